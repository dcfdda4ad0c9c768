/* Kernels in C for `host` and `sim` devices: a shared object that exports a function a kernel, and a table of its
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
 * program run others at the same time, so blocks may share nothing that they write. */
#ifndef OFFLOAD_ARGS_KERNEL_H
#define OFFLOAD_ARGS_KERNEL_H

typedef struct oa_kernel_call {
  unsigned grid[3], block[3]; /* blocks of the grid, and threads of a block, along x, y, z */
  long long first, last;      /* the blocks to run */
  void *const *arguments;     /* the address of each argument's value */
  void *shared;               /* shared_bytes of memory, for one block after the other; undefined at first */
  long long shared_bytes;
} oa_kernel_call;

typedef void oa_kernel_function(const oa_kernel_call *call);

#ifdef __cplusplus
#define OA_KERNEL_C extern "C"
#else
#define OA_KERNEL_C
#endif
#define OA_KERNEL_EXPORT OA_KERNEL_C __attribute__((visibility("default")))

/* Entries of a table of parameters: the bytes of each, with this bit for a pointer. */
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

/* Runs what follows for each thread of these blocks, of a grid along x only: i is the thread's number in the grid. */
#define OA_FOR_THREADS(call, i) \
  for (long long i = (call)->first * (long long)(call)->block[0]; i < (call)->last * (long long)(call)->block[0]; i++)

#ifdef __cplusplus
/* -- one source for GPUs and the CPU ------------------------------------------------------------------------------- */
/* A kernel in C++17, for NVRTC, nvcc, hiprtc, hipcc, clang and the host's compiler alike:
 *
 *   OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
 *     for (auto one : c.mine(oa::Linear1D(n), here)) *one = a[one.index()] + b[one.index()];
 *   }
 *
 * A written argument has no index of its own: `mine` gives a thread the elements that the partition says are its, so
 * that no two threads write the same one. `here` is the thread. Kernels whose threads wait for each other are in
 * phases: the threads of a block meet at the end of each.
 *
 *   OA_BLOCK_KERNEL(sums, oa::In<float> x, oa::Out<float> y, int n) {
 *     OA_SHARED float part[256];
 *     here.phase([&](const oa::Here &here) { part[here.thread()] = here.index() < n ? x[here.index()] : 0; });
 *     for (int step = 128; step > 0; step /= 2)
 *       here.phase([&](const oa::Here &here) {
 *         if (here.thread() < step) part[here.thread()] += part[here.thread() + step];
 *       });
 *     here.phase([&](const oa::Here &here) { for (auto one : y.mine(oa::PerBlock(), here)) *one = part[0]; });
 *   }
 *
 * On the CPU, the threads of a block are a loop in each phase, and blocks run on the core's threads. */
#if defined(__CUDACC__) || defined(__HIPCC__)
#define OA_ON_GPU 1
#else
#define OA_ON_GPU 0
#endif

/* The words of each compiler. Those for AMD are clang's own: hipcc, hiprtc and clang alone know them with no header. */
#if defined(__HIP__)
#define OA_FUNCTION inline __attribute__((host, device, always_inline))
#define OA_DEVICE_FUNCTION inline __attribute__((device, always_inline))
#define OA_DEVICE __attribute__((device))
#define OA_GLOBAL __attribute__((global))
#define OA_SHARED __attribute__((shared))
#define OA_BLOCK_INDEX(axis) __builtin_amdgcn_workgroup_id_##axis()
#define OA_THREAD_INDEX(axis) __builtin_amdgcn_workitem_id_##axis()
#define OA_THREADS(axis) static_cast<unsigned>(__builtin_amdgcn_workgroup_size_##axis())
#define OA_BLOCKS(axis) (__builtin_amdgcn_grid_size_##axis() / OA_THREADS(axis))
#define OA_BARRIER()                                       \
  do {                                                     \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
    __builtin_amdgcn_s_barrier();                          \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); \
  } while (0)
#elif OA_ON_GPU
#define OA_FUNCTION __host__ __device__ __forceinline__
#define OA_DEVICE_FUNCTION __device__ __forceinline__
#define OA_DEVICE __device__
#define OA_GLOBAL __global__
#define OA_SHARED __shared__
#define OA_BLOCK_INDEX(axis) blockIdx.axis
#define OA_THREAD_INDEX(axis) threadIdx.axis
#define OA_THREADS(axis) blockDim.axis
#define OA_BLOCKS(axis) gridDim.axis
#define OA_BARRIER() __syncthreads()
#else
#define OA_FUNCTION inline __attribute__((always_inline))
#define OA_SHARED
#include <math.h> /* which compilers for GPUs have without it */
#endif

namespace oa {

/* The thread that runs, in its block and grid. */
class Here {
 public:
#if OA_ON_GPU
  OA_DEVICE_FUNCTION unsigned block_index(int axis = 0) const {
    return axis == 0 ? OA_BLOCK_INDEX(x) : axis == 1 ? OA_BLOCK_INDEX(y) : OA_BLOCK_INDEX(z);
  }
  OA_DEVICE_FUNCTION unsigned thread_index(int axis = 0) const {
    return axis == 0 ? OA_THREAD_INDEX(x) : axis == 1 ? OA_THREAD_INDEX(y) : OA_THREAD_INDEX(z);
  }
  OA_DEVICE_FUNCTION unsigned blocks(int axis = 0) const {
    return axis == 0 ? OA_BLOCKS(x) : axis == 1 ? OA_BLOCKS(y) : OA_BLOCKS(z);
  }
  OA_DEVICE_FUNCTION unsigned threads(int axis = 0) const {
    return axis == 0 ? OA_THREADS(x) : axis == 1 ? OA_THREADS(y) : OA_THREADS(z);
  }
  /* Runs f(here) in each thread of the block, and waits for all of them. */
  template <class F>
  OA_DEVICE_FUNCTION void phase(F f) const {
    f(*this);
    OA_BARRIER();
  }
#else
  const unsigned *grid, *block; /* of the call */
  unsigned block_[3];
  long long index_[3]; /* of the thread in the grid: what the compiler sees a loop run over */
  OA_FUNCTION unsigned block_index(int axis = 0) const { return block_[axis]; }
  OA_FUNCTION unsigned thread_index(int axis = 0) const { return static_cast<unsigned>(index_[axis] - first(axis)); }
  OA_FUNCTION unsigned blocks(int axis = 0) const { return grid[axis]; }
  OA_FUNCTION unsigned threads(int axis = 0) const { return block[axis]; }
  OA_FUNCTION long long first(int axis) const { return static_cast<long long>(block_[axis]) * block[axis]; }
  template <class F>
  OA_FUNCTION void phase(F f) const {
    const long long ends[] = {first(0) + block[0], first(1) + block[1], first(2) + block[2]};
    for (long long z = first(2); z < ends[2]; z++)
      for (long long y = first(1); y < ends[1]; y++)
        for (long long x = first(0); x < ends[0]; x++)
          f(Here{grid, block, {block_[0], block_[1], block_[2]}, {x, y, z}});
  }
#endif
  /* The thread's number in the grid along an axis, and how many there are. */
#if OA_ON_GPU
  OA_DEVICE_FUNCTION long long index(int axis = 0) const {
    return static_cast<long long>(block_index(axis)) * threads(axis) + thread_index(axis);
  }
#else
  OA_FUNCTION long long index(int axis = 0) const { return index_[axis]; }
#endif
  OA_FUNCTION long long size(int axis = 0) const { return static_cast<long long>(blocks(axis)) * threads(axis); }
  /* The thread's number in its block, along x, then y, then z. */
  OA_FUNCTION int thread() const {
    return static_cast<int>((thread_index(2) * threads(1) + thread_index(1)) * threads(0) + thread_index(0));
  }
};

/* -- partitions: which elements belong to which thread ------------------------------------------------------------- */
/* The element of one thread, if it has one. */
struct OneIndex {
  long long index;
  bool mine;
};
/* The elements of one thread: first, first + step and so on, below end. */
struct Indices {
  long long first, end, step;
};

/* Element i belongs to thread i of the grid's x axis. Threads along y and z have none but the first. */
struct Linear1D {
  long long n;
  OA_FUNCTION explicit Linear1D(long long n) : n(n) {}
  OA_FUNCTION OneIndex of(const Here &here) const {
    const long long i = here.index();
    const bool mine = i < n && here.index(1) == 0 && here.index(2) == 0;
    return {i, mine};
  }
};

/* Element i belongs to thread i modulo the number of threads along x: any grid covers all elements. */
struct GridStride1D {
  long long n;
  OA_FUNCTION explicit GridStride1D(long long n) : n(n) {}
  OA_FUNCTION Indices of(const Here &here) const {
    const long long i = here.index();
    const bool mine = i < n && here.index(1) == 0 && here.index(2) == 0;
    return {i, mine ? n : i, here.size()};
  }
};

/* Element (row, column) of rows that begin ld elements apart belongs to the thread of that place along y and x. */
struct Linear2D {
  long long rows, columns, ld;
  OA_FUNCTION Linear2D(long long rows, long long columns) : rows(rows), columns(columns), ld(columns) {}
  OA_FUNCTION Linear2D(long long rows, long long columns, long long ld) : rows(rows), columns(columns), ld(ld) {}
  OA_FUNCTION OneIndex of(const Here &here) const {
    const long long row = here.index(1), column = here.index(), i = row * ld + column;
    const bool mine = row < rows && column < columns && columns <= ld && here.index(2) == 0;
    return {i, mine};
  }
};

/* Element i belongs to the first thread of block i along x. */
struct PerBlock {
  OA_FUNCTION OneIndex of(const Here &here) const {
    const long long i = here.block_index();
    const bool mine = here.thread() == 0 && here.block_index(1) == 0 && here.block_index(2) == 0;
    return {i, mine};
  }
};

/* -- arguments ----------------------------------------------------------------------------------------------------- */
/* One element of a thread. */
template <class T>
class Element {
  T *elements;
  long long i;

 public:
  OA_FUNCTION Element(T *elements, long long i) : elements(elements), i(i) {}
  OA_FUNCTION T &operator*() const { return elements[i]; }
  OA_FUNCTION long long index() const { return i; }
};

/* The elements of one thread, for a loop over them. */
template <class T, class Which>
class Mine;

template <class T>
class Mine<T, OneIndex> {
  T *elements;
  OneIndex which;

 public:
  class Place {
    T *elements;
    OneIndex which;

   public:
    OA_FUNCTION Place(T *elements, const OneIndex &which) : elements(elements), which(which) {}
    OA_FUNCTION Element<T> operator*() const { return Element<T>(elements, which.index); }
    OA_FUNCTION bool operator!=(const Place &end) const { return which.mine != end.which.mine; }
    OA_FUNCTION Place &operator++() {
      which.mine = false;
      return *this;
    }
  };
  OA_FUNCTION Mine(T *elements, const OneIndex &which) : elements(elements), which(which) {}
  OA_FUNCTION Place begin() const { return Place(elements, which); }
  OA_FUNCTION Place end() const { return Place(elements, OneIndex{which.index, false}); }
};

template <class T>
class Mine<T, Indices> {
  T *elements;
  Indices which;

 public:
  class Place {
    T *elements;
    long long i, step;

   public:
    OA_FUNCTION Place(T *elements, long long i, long long step) : elements(elements), i(i), step(step) {}
    OA_FUNCTION Element<T> operator*() const { return Element<T>(elements, i); }
    OA_FUNCTION bool operator!=(const Place &end) const { return i < end.i; }
    OA_FUNCTION Place &operator++() {
      i += step;
      return *this;
    }
  };
  OA_FUNCTION Mine(T *elements, const Indices &which) : elements(elements), which(which) {}
  OA_FUNCTION Place begin() const { return Place(elements, which.first, which.step); }
  OA_FUNCTION Place end() const { return Place(elements, which.end, which.step); }
};

/* An array that the kernel reads: any thread any element. */
template <class T>
class In {
  const T *elements;

 public:
  OA_FUNCTION const T &operator[](long long i) const { return elements[i]; }
};

/* An array that the kernel writes: each thread the elements that are its own. */
template <class T>
class Out {
  T *elements;

 public:
  template <class Partition>
  OA_FUNCTION auto mine(const Partition &partition, const Here &here) const {
    const auto which = partition.of(here);
    return Mine<T, decltype(partition.of(here))>(elements, which);
  }
};
template <class T>
using InOut = Out<T>;

#if !OA_ON_GPU
template <class T>
struct Word { /* of a table of parameters */
  static constexpr unsigned value = sizeof(T);
};
template <class T>
struct Word<T *> {
  static constexpr unsigned value = OA_POINTER;
};
template <class T>
struct Word<In<T>> {
  static constexpr unsigned value = OA_POINTER;
};
template <class T>
struct Word<Out<T>> {
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

/* Runs blocks of a kernel. by_thread: the function is one thread's, else a block's. */
template <auto function, bool by_thread>
struct Kernel;
template <class... A, void (*function)(const Here &, A...), bool by_thread>
struct Kernel<function, by_thread> {
  static constexpr Table<sizeof...(A)> table = {{sizeof...(A), Word<A>::value...}};
  template <unsigned... numbers>
  static void run(const oa_kernel_call *call, Numbers<numbers...>) {
    run(call, *static_cast<const A *>(call->arguments[numbers])...);
  }
  static void run(const oa_kernel_call *call) { run(call, typename Count<sizeof...(A)>::type()); }

 private:
  OA_FUNCTION static void run(const oa_kernel_call *call, A... arguments) {
    Here here = {call->grid, call->block, {}, {}};
    for (long long number = call->first; number < call->last; number++) {
      here.block_[0] = static_cast<unsigned>(number % call->grid[0]);
      here.block_[1] = static_cast<unsigned>(number / call->grid[0] % call->grid[1]);
      here.block_[2] = static_cast<unsigned>(number / call->grid[0] / call->grid[1]);
      if (by_thread)
        here.phase([&](const Here &here) { function(here, arguments...); });
      else
        function(here, arguments...);
    }
  }
};
#endif

}  // namespace oa

#if OA_ON_GPU
static OA_DEVICE const oa::Here here{};
#define OA_KERNEL(name, ...) extern "C" OA_GLOBAL void name(__VA_ARGS__)
#define OA_BLOCK_KERNEL OA_KERNEL
#else
#define OA_KERNEL_OF(name, by_thread, ...)                                                              \
  static OA_FUNCTION void name##_in(const oa::Here &here, __VA_ARGS__);                                 \
  extern "C" __attribute__((visibility("default"))) void oa_kernel_##name(const oa_kernel_call *call) { \
    oa::Kernel<&name##_in, by_thread>::run(call);                                                       \
  }                                                                                                     \
  extern "C" __attribute__((visibility("default")))                                                     \
  const decltype(oa::Kernel<&name##_in, by_thread>::table) oa_parameters_##name =                       \
      oa::Kernel<&name##_in, by_thread>::table;                                                         \
  static OA_FUNCTION void name##_in([[maybe_unused]] const oa::Here &here, __VA_ARGS__)
#define OA_KERNEL(name, ...) OA_KERNEL_OF(name, true, __VA_ARGS__)
#define OA_BLOCK_KERNEL(name, ...) OA_KERNEL_OF(name, false, __VA_ARGS__)
#endif
#endif

#endif
