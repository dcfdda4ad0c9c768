/* Kernels in C for `host` and `sim` devices. A shared object exports a function for each kernel, and a table of its
 * parameters.
 *
 *   #include <offload_args/kernel.h>
 *
 *   OA_HOST_KERNEL(scale, OA_POINTER, OA_VALUE(float), OA_VALUE(int)) {
 *     float *x = OA_ARGUMENT(call, 0, float *);
 *     const float a = OA_ARGUMENT(call, 1, float);
 *     const int n = OA_ARGUMENT(call, 2, int);
 *     OA_FOR_THREADS(call, i) if (i < n) x[i] *= a;
 *   }
 *
 * The function runs some blocks of the grid, first to last - 1, numbered along x, then y, then z. Other threads of the
 * program run other blocks at the same time, so blocks must share nothing that they write. */
#ifndef OFFLOAD_ARGS_KERNEL_H
#define OFFLOAD_ARGS_KERNEL_H

#include "offload_args/kernel_call.h"

#ifdef __cplusplus
#define OA_KERNEL_C extern "C"
#else
#define OA_KERNEL_C
#endif
#define OA_KERNEL_EXPORT OA_KERNEL_C __attribute__((visibility("default")))

/* Entries of a table of parameters: the bytes of each parameter, with this bit for a pointer. */
#define OA_IS_POINTER 0x80000000u
#define OA_POINTER (8u | OA_IS_POINTER)
#define OA_VALUE(type) ((unsigned)sizeof(type))

/* Begins a kernel; the arguments after the name are its table of parameters. */
#define OA_HOST_KERNEL(name, ...)                                                                                  \
  OA_KERNEL_C void oa_kernel_##name(const oa_kernel_call *call) __attribute__((visibility("default")));            \
  OA_KERNEL_C const unsigned oa_parameters_##name[] __attribute__((visibility("default")));                        \
  OA_KERNEL_C const unsigned oa_parameters_##name[] = {sizeof((const unsigned[]){__VA_ARGS__}) / sizeof(unsigned), \
                                                       __VA_ARGS__};                                               \
  OA_KERNEL_C void oa_kernel_##name(const oa_kernel_call *call)

#define OA_ARGUMENT(call, number, type) (*(type const *)(call)->arguments[number])

/* Runs the statement after it for each thread of the call's blocks, if the grid is along x only. i is the thread's
 * number in the grid. */
#define OA_FOR_THREADS(call, i) \
  for (long long i = (call)->first * (long long)(call)->block[0]; i < (call)->last * (long long)(call)->block[0]; i++)

#ifdef __cplusplus
#include "offload_args/kernel_target.h"
#include "offload_args/kernel_types.h"

/* Compilers shall not warn if a constructor's parameter has the name of the member that it initializes. */
#if defined(__GNUC__) && !defined(__clang__) && !OA_ON_GPU
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#include "offload_args/kernel_elements.h"
#include "offload_args/kernel_partitions.h"

/* -- one source for GPUs and the CPU ------------------------------------------------------------------------------- */
/* A kernel in C++17, for NVRTC, nvcc, hiprtc, hipcc, clang and the host's compiler alike:
 *
 *   OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
 *     for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index()] + b[element.index()];
 *   }
 *
 * A written argument has no index operator: `mine` gives a thread its elements by the partition, so that no two threads
 * write the same element, and `slices` the same elements as runs. `here` is the thread. Kernels whose threads wait for
 * each other are in phases: the threads of a block meet at the end of each phase.
 *
 *   OA_BLOCK_KERNEL(sums, oa::In<float> x, oa::Out<float> y, int n) {
 *     OA_SHARED float part[256];
 *     here.phase([&](const oa::Here &here) { part[here.thread()] = here.index() < n ? x[here.index()] : 0; });
 *     for (int step = 128; step > 0; step /= 2)
 *       here.phase([&](const oa::Here &here) {
 *         if (here.thread() < step) part[here.thread()] += part[here.thread() + step];
 *       });
 *     here.phase([&](const oa::Here &here) { for (auto element : y.mine(oa::PerBlock(), here)) *element = part[0]; });
 *   }
 *
 * On the CPU, the threads of a block are a loop in each phase, and blocks run on the core's threads. */

namespace oa {
/* -- arguments ----------------------------------------------------------------------------------------------------- */
/* One element of a thread. A partition of one dimension has only row 0. */
template <class T>
class Element {
  Array<T> array;
  long long row_, column_, index_;

 public:
  OA_FUNCTION Element(const Array<T> &array, long long row, long long column, long long index)
      : array(array), row_(row), column_(column), index_(index) {}
  OA_FUNCTION T &operator*() const { return array.at(index_); }
  OA_FUNCTION long long index() const { return index_; }
  OA_FUNCTION long long row() const { return row_; }
  OA_FUNCTION long long column() const { return column_; }
};

/* A run of a thread's elements in one row: slice[0] to slice[slice.size() - 1], or a loop over them. */
template <class T>
class Slice {
  Array<T> array;
  long long row_, start; /* index of the row, and the row's start */
  Run columns;

 public:
  OA_FUNCTION Slice(const Array<T> &array, long long row, long long start, const Run &columns)
      : array(array), row_(row), start(start), columns(columns) {}
  OA_FUNCTION T &operator[](long long j) const { return array.at(index(j), j, size()); }
  OA_FUNCTION long long size() const { return columns.size(); }
  OA_FUNCTION long long row() const { return row_; }
  /* Return the column, and the index, of the slice's element j. */
  OA_FUNCTION long long column(long long j = 0) const { return columns.first + j * columns.step; }
  OA_FUNCTION long long index(long long j = 0) const { return start + column(j); }

  class Place {
    Array<T> array;
    long long row, start, column, step;

   public:
    OA_FUNCTION Place(const Array<T> &array, long long row, long long start, long long column, long long step)
        : array(array), row(row), start(start), column(column), step(step) {}
    OA_FUNCTION Element<T> operator*() const { return Element<T>(array, row, column, start + column); }
    OA_FUNCTION bool operator!=(const Place &end) const { return column < end.column; }
    OA_FUNCTION Place &operator++() {
      column += step;
      return *this;
    }
  };
  OA_FUNCTION Place begin() const { return Place(array, row_, start, columns.first, columns.step); }
  OA_FUNCTION Place end() const { return Place(array, row_, start, columns.end, columns.step); }
};

/* The elements of one thread, for a loop over them. */
template <class T, class Region>
class Mine;

template <class T>
class Mine<T, One> {
  Array<T> array;
  One element;

 public:
  class Place {
    Array<T> array;
    One element;

   public:
    OA_FUNCTION Place(const Array<T> &array, const One &element) : array(array), element(element) {}
    OA_FUNCTION Element<T> operator*() const { return Element<T>(array, element.row, element.column, element.index); }
    OA_FUNCTION bool operator!=(const Place &end) const { return element.mine != end.element.mine; }
    OA_FUNCTION Place &operator++() {
      element.mine = false;
      return *this;
    }
  };
  OA_FUNCTION Mine(const Array<T> &array, const One &element) : array(array), element(element) {}
  OA_FUNCTION Place begin() const { return Place(array, element); }
  OA_FUNCTION Place end() const { return Place(array, One{0, 0, 0, false}); }
};

template <class T>
class Mine<T, Run> : public Slice<T> {
 public:
  OA_FUNCTION Mine(const Array<T> &array, const Run &run) : Slice<T>(array, 0, 0, run) {}
};

template <class T>
class Mine<T, Lines> {
  Array<T> array;
  Lines lines;

 public:
  class Place {
    Array<T> array;
    Lines lines;
    long long column;

   public:
    OA_FUNCTION Place(const Array<T> &array, const Lines &lines) : array(array), lines(lines), column(0) {
      column = lines.columns.first;
      if (column >= lines.columns.end) this->lines.rows.first = lines.rows.end;
    }
    OA_FUNCTION Element<T> operator*() const {
      const long long row = lines.rows.first;
      return Element<T>(array, row, column, row * lines.ld + column);
    }
    OA_FUNCTION bool operator!=(const Place &) const { return lines.rows.first < lines.rows.end; }
    OA_FUNCTION Place &operator++() {
      column += lines.columns.step;
      if (column >= lines.columns.end) {
        column = lines.columns.first;
        lines.rows.first += lines.rows.step;
      }
      return *this;
    }
  };
  OA_FUNCTION Mine(const Array<T> &array, const Lines &lines) : array(array), lines(lines) {}
  OA_FUNCTION Place begin() const { return Place(array, lines); }
  OA_FUNCTION Place end() const { return begin(); }
};

/* The elements of one thread as slices, one for each row. */
template <class T>
class Slices {
  Array<T> array;
  Lines lines;

 public:
  class Place {
    Array<T> array;
    Lines lines;

   public:
    OA_FUNCTION Place(const Array<T> &array, const Lines &lines) : array(array), lines(lines) {}
    OA_FUNCTION Slice<T> operator*() const {
      return Slice<T>(array, lines.rows.first, lines.rows.first * lines.ld, lines.columns);
    }
    OA_FUNCTION bool operator!=(const Place &end) const { return lines.rows.first < end.lines.rows.end; }
    OA_FUNCTION Place &operator++() {
      lines.rows.first += lines.rows.step;
      return *this;
    }
  };
  OA_FUNCTION Slices(const Array<T> &array, const Lines &lines) : array(array), lines(lines) {}
  OA_FUNCTION Slices(const Array<T> &array, const Run &run) : Slices(array, Lines{{0, 1, 1}, run, 0}) {}
  OA_FUNCTION Slices(const Array<T> &array, const One &element)
      : Slices(array, Lines{{element.row, element.row + element.mine, 1}, {element.column, element.column + 1, 1}, 0}) {
    if (element.row) lines.ld = (element.index - element.column) / element.row;
  }
  OA_FUNCTION Place begin() const { return Place(array, lines); }
  OA_FUNCTION Place end() const { return Place(array, lines); }
};

/* An array that the kernel reads: any thread may read any element. */
template <class T>
class In {
  Array<const T> array;

 public:
  using Pointer = const T *;
  In() = default;
  OA_FUNCTION explicit In(const Array<const T> &array) : array(array) {}
  OA_FUNCTION const T &operator[](long long i) const { return array.at(i); }
};

/* An array that the kernel writes: each thread writes its own elements. */
template <class T>
class Out {
  Array<T> array;

 public:
  using Pointer = T *;
  Out() = default;
  OA_FUNCTION explicit Out(const Array<T> &array) : array(array) {}
  template <class Partition>
  OA_FUNCTION auto mine(const Partition &partition, const Here &here) const {
    return Mine<T, decltype(partition.of(here))>(array, partition.of(here));
  }
  template <class Partition>
  OA_FUNCTION Slices<T> slices(const Partition &partition, const Here &here) const {
    return Slices<T>(array, partition.of(here));
  }
  /* Returns the element with the index of `element`, which is this thread's element in another array of the same
   * partition. */
  template <class U>
  OA_FUNCTION T &operator[](const Element<U> &element) const {
    return array.at(element.index());
  }
};
/* An array that the kernel reads and writes: each thread reads and writes its own elements. */
template <class T>
class InOut : public Out<T> {
 public:
  using Out<T>::Out;
};

/* An array whose elements any thread may change, each in one atomic step. In the kernel's signature, such an array is
 * InOut. */
template <class T>
class Atomic {
  Array<T> array;

 public:
  using Pointer = T *;
  Atomic() = default;
  OA_FUNCTION explicit Atomic(const Array<T> &array) : array(array) {}
  OA_DEVICE AtomicElement<T> operator[](long long i) const { return AtomicElement<T>(&array.at(i)); }
};

/* -- kernels as functions that a launch calls --------------------------------------------------------------------- */
/* The type in which a launch passes an argument. An array is passed as a pointer. */
template <class T>
struct Passed {
  using type = T;
  OA_FUNCTION static T passed(const T &value, int, Record *) { return value; }
};
template <class A>
struct PassedArray {
  using type = typename A::Pointer;
  OA_FUNCTION static A passed(type elements, [[maybe_unused]] int argument, [[maybe_unused]] Record *record) {
#if OA_DEBUG
    return A({elements, record->sizes[argument], argument, record});
#else
    return A({elements, 0, 0, nullptr});
#endif
  }
};
template <class T>
struct Passed<In<T>> : PassedArray<In<T>> {};
template <class T>
struct Passed<Out<T>> : PassedArray<Out<T>> {};
template <class T>
struct Passed<InOut<T>> : PassedArray<InOut<T>> {};
template <class T>
struct Passed<Atomic<T>> : PassedArray<Atomic<T>> {};

namespace types {
template <class T>
struct Parameter<In<T>> : Word<T, by_in> {};
template <class T>
struct Parameter<Out<T>> : Word<T, by_out> {};
template <class T>
struct Parameter<InOut<T>> : Word<T, by_in_out> {};
template <class T>
struct Parameter<Atomic<T>> : Word<T, by_atomic> {};
template <class... A>
struct Of<void (*)(const Here &, A...)> : Of<void (*)(A...)> {};
#if !OA_ON_GPU
template <class... A>
struct Of<void (*)(const Block &, A...)> : Of<void (*)(A...)> {};
#endif
}  // namespace types

#if OA_DEBUG
/* The type of a kernel function's argument with that number. */
template <class Function, int number>
struct Argument;
template <class Who, class First, class... Others>
struct Argument<void (*)(const Who &, First, Others...), 0> : Passed<First> {};
template <class Who, class First, class... Others, int number>
struct Argument<void (*)(const Who &, First, Others...), number>
    : Argument<void (*)(const Who &, Others...), number - 1> {};
#endif

#if !OA_ON_GPU
/* -- blocks on the CPU --------------------------------------------------------------------------------------------- */
template <class T>
struct Entry { /* an entry of a table of parameters */
  static constexpr unsigned value = sizeof(T);
};
template <class T>
struct Entry<T *> {
  static constexpr unsigned value = OA_POINTER;
};
template <unsigned count>
struct Table {
  unsigned words[count + 1];
};
template <unsigned... numbers>
struct Numbers {};
template <unsigned count, unsigned... numbers>
struct Count : Count<count - 1, count - 1, numbers...> {};
template <unsigned... numbers>
struct Count<0, numbers...> {
  using type = Numbers<numbers...>;
};

/* Sets the members of a place for the block with that number. */
OA_FUNCTION void set_block(Place &place, const oa_kernel_call &call, long long number) {
  place.block_[0] = static_cast<unsigned>(number % call.grid[0]);
  place.block_[1] = static_cast<unsigned>(number / call.grid[0] % call.grid[1]);
  place.block_[2] = static_cast<unsigned>(number / call.grid[0] / call.grid[1]);
}

template <auto function>
struct Kernel;
template <class Who, class... A, void (*function)(const Who &, A...)>
struct Kernel<function> {
#if OA_DEBUG /* one more value: the address of the record, in host memory */
  static constexpr Table<sizeof...(A) + 1> table = {
      { sizeof...(A) + 1,
        Entry<typename Passed<A>::type>::value...,
        OA_VALUE(Record *) }};
  static Record *record(const oa_kernel_call *call) {
    return *static_cast<Record *const *>(call->arguments[sizeof...(A)]);
  }
#else
  static constexpr Table<sizeof...(A)> table = {{sizeof...(A), Entry<typename Passed<A>::type>::value...}};
  static Record *record(const oa_kernel_call *) { return nullptr; }
#endif
#if OA_DEBUG && defined(__cpp_exceptions)
  static void run(const oa_kernel_call *call) {
    try {
      run(call, typename Count<sizeof...(A)>::type());
    } catch (const std::exception &error) {
      note(record(call), error.what());
    } catch (...) {
      note(record(call), "an exception that is not a std::exception");
    }
  }
  static void note(Record *record, const char *text) {
    report(record, -2, 0, 0, 0);
    if (record->argument == -2)
      __builtin_strncpy(reinterpret_cast<char *>(record->sink), text, sizeof record->sink - 1);
  }
#else
  static void run(const oa_kernel_call *call) { run(call, typename Count<sizeof...(A)>::type()); }
#endif

 private:
  template <unsigned... numbers>
  OA_FUNCTION static void run(const oa_kernel_call *call, Numbers<numbers...>) {
    if constexpr (Who::of_block) {
      Block block(*call, record(call));
      for (long long number = call->first; number < call->last; number++) {
        set_block(block, *call, number);
        function(block, passed<A>(call, numbers)...);
      }
    } else {
      Place place(*call, record(call));
      for (long long number = call->first, count; number < call->last; number += count) {
        set_block(place, *call, number);
        count = smaller(call->last - number, call->grid[0] - place.block_[0]); /* blocks along x are one loop */
        const long long first = place.first(0), end = first + count * place.threads_[0];
        for (long long z = place.first(2), z_end = z + place.threads_[2]; z < z_end; z++)
          for (long long y = place.first(1), y_end = y + place.threads_[1]; y < y_end; y++)
            run_row<numbers...>(call, place, first, end, y, z);
      }
    }
  }
  /* Runs the threads of a row. The function is not inlined, so that its loop can use all registers. */
  template <unsigned... numbers>
  __attribute__((noinline)) static void run_row(const oa_kernel_call *call, const Place &given_place, long long first,
                                                long long end, long long y, long long z) {
    run_row(given_place, first, end, y, z, passed<A>(call, numbers)...); /* passes copies that no store can change */
  }
  OA_FUNCTION static void run_row(const Place place, long long first, long long end, long long y, long long z,
                                  const A... arguments) {
    long long x = first;
#if defined(__clang__)
    if (first == end) return;
    long long met = no_bound;
    function(Here(place, x++, y, z, true, no_bound, &met), arguments...);
    const long long below = met;
    long long split = smaller(below, end);
    asm("" : "+r"(split)); /* hides the value from clang, which would compare with the bound instead */
    for (; x < split; x++) function(Here(place, x, y, z, true, below), arguments...);
#endif
    for (; x < end; x++) function(Here(place, x, y, z, true), arguments...);
  }
  template <class T>
  OA_FUNCTION static T passed(const oa_kernel_call *call, int number) {
    return Passed<T>::passed(*static_cast<const typename Passed<T>::type *>(call->arguments[number]), number,
                             record(call));
  }
};
#endif

}  // namespace oa

#if defined(__GNUC__) && !defined(__clang__) && !OA_ON_GPU
#pragma GCC diagnostic pop
#endif

#if OA_ON_GPU && OA_DEBUG
/* Kernel.compile adds the kernel itself to the source. The added kernel makes the arguments with their bounds, and
 * calls the function that this macro defines. */
#define OA_KERNEL(name, ...)                                                           \
  [[maybe_unused]] static OA_DEVICE void name##_in(const oa::Here &here, __VA_ARGS__); \
  OA_KERNEL_PARAMETERS(name, __VA_ARGS__)                                              \
  [[maybe_unused]] static OA_DEVICE void name##_in([[maybe_unused]] const oa::Here &here, __VA_ARGS__)
#define OA_BLOCK_KERNEL OA_KERNEL
#define OA_DEBUG_KERNEL(name, parameters, arguments) \
  OA_GLOBAL void name parameters { name##_in arguments; }
#elif OA_ON_GPU
OA_CONSTANT oa::Here here{};
#define OA_KERNEL(name, ...)              \
  OA_GLOBAL void name(__VA_ARGS__);       \
  OA_KERNEL_PARAMETERS(name, __VA_ARGS__) \
  OA_GLOBAL void name(__VA_ARGS__)
#define OA_BLOCK_KERNEL OA_KERNEL
#else
#define OA_KERNEL_OF(name, who, ...)                                                                                   \
  static OA_FUNCTION void name##_in(const oa::who &here, __VA_ARGS__);                                                 \
  OA_KERNEL_EXPORT void oa_kernel_##name(const oa_kernel_call *call) { oa::Kernel<&name##_in>::run(call); }            \
  OA_KERNEL_EXPORT const decltype(oa::Kernel<&name##_in>::table) oa_parameters_##name = oa::Kernel<&name##_in>::table; \
  OA_KERNEL_PARAMETERS(name, __VA_ARGS__)                                                                              \
  static OA_FUNCTION void name##_in([[maybe_unused]] const oa::who &here, __VA_ARGS__)
#define OA_KERNEL(name, ...) OA_KERNEL_OF(name, Here, __VA_ARGS__)
#define OA_BLOCK_KERNEL(name, ...) OA_KERNEL_OF(name, Block, __VA_ARGS__)
#define OA_DEBUG_KERNEL(name, parameters, arguments)
#endif
/* A template of kernels: template <class T> OA_TEMPLATE_KERNEL(scale, oa::InOut<T> x, T by, int n) {...}. Only for
 * Kernel.compile(source, "scale<float>", ...), which makes the instance. On the CPU, Kernel.compile uses OA_INSTANCE
 * for this. */
#if OA_ON_GPU && OA_DEBUG
#define OA_TEMPLATE_KERNEL(name, ...) OA_DEVICE void name##_in(const oa::Here &here, __VA_ARGS__)
#define OA_TEMPLATE_BLOCK_KERNEL OA_TEMPLATE_KERNEL
#elif defined(__HIP__)
#define OA_TEMPLATE_KERNEL(name, ...) __attribute__((global)) void name(__VA_ARGS__)
#define OA_TEMPLATE_BLOCK_KERNEL OA_TEMPLATE_KERNEL
#elif OA_ON_GPU
#define OA_TEMPLATE_KERNEL(name, ...) __global__ void name(__VA_ARGS__)
#define OA_TEMPLATE_BLOCK_KERNEL OA_TEMPLATE_KERNEL
#else
#define OA_TEMPLATE_KERNEL(name, ...) \
  static OA_FUNCTION void name##_in([[maybe_unused]] const oa::Here &here, __VA_ARGS__)
#define OA_TEMPLATE_BLOCK_KERNEL(name, ...) \
  static OA_FUNCTION void name##_in([[maybe_unused]] const oa::Block &here, __VA_ARGS__)
#define OA_INSTANCE(name, ...)                                                                                \
  OA_KERNEL_EXPORT void oa_kernel_##name(const oa_kernel_call *call) { oa::Kernel<&__VA_ARGS__>::run(call); } \
  OA_KERNEL_EXPORT const decltype(oa::Kernel<&__VA_ARGS__>::table) oa_parameters_##name =                     \
      oa::Kernel<&__VA_ARGS__>::table;                                                                        \
  OA_KERNEL_TYPES(name, __VA_ARGS__)
#endif
#endif

#endif
