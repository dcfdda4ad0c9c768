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
 * that no two threads write the same one, and `slices` the same elements as runs. `here` is the thread. Kernels whose
 * threads wait for each other are in phases: the threads of a block meet at the end of each.
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

/* -- compilers ----------------------------------------------------------------------------------------------------- */
/* All that differs between compilers stands here. Below, oa::now has the same functions for each. The words for AMD are
 * clang's own: hipcc, hiprtc and clang alone know them with no header. OA_DEBUG is for Kernel.compile(debug=True). */
#if defined(__CUDACC__) && !defined(__HIP__)
#define OA_ON_GPU 1
#define OA_FUNCTION __host__ __device__ __forceinline__
#define OA_DEVICE __device__ __forceinline__
#define OA_GLOBAL extern "C" __global__
#define OA_CONSTANT static __device__ const
#define OA_SHARED __shared__
#define OA_ALONG(axis, name) (axis == 0 ? name.x : axis == 1 ? name.y : name.z)
#elif defined(__HIP__)
#define OA_ON_GPU 1
#define OA_FUNCTION __attribute__((host, device, always_inline)) inline
#define OA_DEVICE __attribute__((device, always_inline)) inline
#define OA_GLOBAL extern "C" __attribute__((global))
#define OA_CONSTANT static __attribute__((device)) const
#define OA_SHARED __attribute__((shared))
#define OA_ALONG(axis, name) (axis == 0 ? name##_x() : axis == 1 ? name##_y() : name##_z())
#else
#define OA_ON_GPU 0
#define OA_FUNCTION inline __attribute__((always_inline))
#define OA_DEVICE OA_FUNCTION
#define OA_SHARED
#include <math.h> /* which compilers for GPUs have without it */
#endif
#ifndef OA_DEBUG
#define OA_DEBUG 0
#endif
/* Parameters of constructors have the names of the members that they become, as the C++ of this file is read best. */
#if defined(__GNUC__) && !defined(__clang__) && !OA_ON_GPU
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

namespace oa {
namespace now {
#if defined(__HIP__)
OA_DEVICE unsigned thread(int axis) { return OA_ALONG(axis, __builtin_amdgcn_workitem_id); }
OA_DEVICE unsigned block(int axis) { return OA_ALONG(axis, __builtin_amdgcn_workgroup_id); }
OA_DEVICE unsigned threads(int axis) { return OA_ALONG(axis, __builtin_amdgcn_workgroup_size); }
OA_DEVICE unsigned blocks(int axis) { return OA_ALONG(axis, __builtin_amdgcn_grid_size) / threads(axis); }
OA_DEVICE bool is_on_x() { return (block(1) | thread(1) | block(2) | thread(2)) == 0; }
OA_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
OA_DEVICE void *shared_memory() {
  extern __attribute__((shared, aligned(16))) unsigned char oa_shared_memory[];
  return oa_shared_memory;
}
OA_DEVICE unsigned shared_bytes() { /* the size of all shared memory is in the packet of the launch */
  return reinterpret_cast<const unsigned *>((const void *)__builtin_amdgcn_dispatch_ptr())[7] -
         __builtin_amdgcn_groupstaticsize();
}
template <class T>
OA_DEVICE T add(T *place, T value) {
  return __hip_atomic_fetch_add(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T>
OA_DEVICE T exchange(T *place, T value) {
  return __hip_atomic_exchange(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T>
OA_DEVICE T compare_swap(T *place, T expected, T desired) {
  __hip_atomic_compare_exchange_strong(place, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}
#elif OA_ON_GPU
OA_DEVICE unsigned thread(int axis) { return OA_ALONG(axis, threadIdx); }
OA_DEVICE unsigned block(int axis) { return OA_ALONG(axis, blockIdx); }
OA_DEVICE unsigned threads(int axis) { return OA_ALONG(axis, blockDim); }
OA_DEVICE unsigned blocks(int axis) { return OA_ALONG(axis, gridDim); }
/* Tells whether the thread is the first one along y and z. A launch along x alone is known by its sizes, which are
 * constants; for the thread's own numbers it would wait. */
OA_DEVICE bool is_on_x() {
  if (__builtin_expect((blocks(1) | threads(1) | blocks(2) | threads(2)) == 1, 1)) return true;
  unsigned numbers;
  asm volatile(
      "{ .reg .u32 a; mov.u32 %0, %%tid.y; mov.u32 a, %%tid.z; or.b32 %0, %0, a; mov.u32 a, %%ctaid.y;"
      "  or.b32 %0, %0, a; mov.u32 a, %%ctaid.z; or.b32 %0, %0, a; }"
      : "=r"(numbers));
  return numbers == 0;
}
OA_DEVICE void barrier() { __syncthreads(); }
OA_DEVICE void *shared_memory() {
  extern __shared__ __align__(16) unsigned char oa_shared_memory[];
  return oa_shared_memory;
}
OA_DEVICE unsigned shared_bytes() {
  unsigned nbytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(nbytes));
  return nbytes;
}
template <class T>
OA_DEVICE T add(T *place, T value) {
  return atomicAdd(place, value);
}
template <class T>
OA_DEVICE T exchange(T *place, T value) {
  return atomicExch(place, value);
}
template <class T>
OA_DEVICE T compare_swap(T *place, T expected, T desired) {
  return atomicCAS(place, expected, desired);
}
#else
template <class T>
OA_DEVICE T compare_swap(T *place, T expected, T desired) {
  __atomic_compare_exchange_n(place, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T>
OA_DEVICE T exchange(T *place, T value) {
  return __atomic_exchange_n(place, value, __ATOMIC_RELAXED);
}
template <class T>
OA_DEVICE T add(T *place, T value) {
  return __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
}
template <class Word, class T>
OA_DEVICE T add_by_words(T *place, T value) {
  Word *word = reinterpret_cast<Word *>(place), seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    T before, after;
    __builtin_memcpy(&before, &seen, sizeof before);
    after = before + value;
    Word next;
    __builtin_memcpy(&next, &after, sizeof next);
    if (__atomic_compare_exchange_n(word, &seen, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return before;
  }
}
OA_DEVICE float add(float *place, float value) { return add_by_words<unsigned>(place, value); }
OA_DEVICE double add(double *place, double value) { return add_by_words<unsigned long long>(place, value); }
#endif
}  // namespace now

/* -- elements in memory -------------------------------------------------------------------------------------------- */
#if OA_DEBUG
/* The first access of a launch that is out of bounds. offload_args/kernels/debug.py has the same fields. */
struct Record {
  unsigned found; /* 1: there is one */
  int argument;   /* its number, from 0; -1: shared memory */
  int in_slice;   /* 1: index and size are those of a slice of it */
  unsigned block[3], thread[3];
  unsigned unused;
  long long index, size, unused_too;
  alignas(16) unsigned char zeros[32], sink[32]; /* read and written in place of such an element */
  long long sizes[1]; /* of each argument, in elements; as many as the kernel has arguments */
};

#if !OA_ON_GPU
/* The thread that runs on this thread of the CPU. */
struct Running {
  unsigned block[3], thread[3];
};
inline thread_local Running running;
#endif

OA_DEVICE void report(Record *record, int argument, int in_slice, long long index, long long size) {
  if (now::compare_swap(&record->found, 0u, 1u)) return;
  record->argument = argument;
  record->in_slice = in_slice;
  record->index = index;
  record->size = size;
  for (int axis = 0; axis < 3; axis++) {
#if OA_ON_GPU
    record->block[axis] = now::block(axis);
    record->thread[axis] = now::thread(axis);
#else
    record->block[axis] = running.block[axis];
    record->thread[axis] = running.thread[axis];
#endif
  }
}

template <class T>
OA_DEVICE T &instead(T *, Record *record) {
  static_assert(sizeof(T) <= sizeof record->sink, "debug=True takes elements of at most 32 bytes");
  return *static_cast<T *>(static_cast<void *>(record->sink));
}
template <class T>
OA_DEVICE const T &instead(const T *, Record *record) {
  static_assert(sizeof(T) <= sizeof record->zeros, "debug=True takes elements of at most 32 bytes");
  return *static_cast<const T *>(static_cast<const void *>(record->zeros));
}

/* An array, or shared memory, with its bounds. */
template <class T>
class Array {
  T *elements;
  long long size;
  int argument;
  Record *record;

 public:
  OA_DEVICE Array(T *elements, long long size, int argument, Record *record)
      : elements(elements), size(size), argument(argument), record(record) {}
  OA_DEVICE T &at(long long i) const {
    if (i >= 0 && i < size) return elements[i];
    report(record, argument, 0, i, size);
    return instead(elements, record);
  }
  /* Element i, which is element j of a slice of so many. */
  OA_DEVICE T &at(long long i, long long j, long long slice_size) const {
    if (j >= 0 && j < slice_size) return at(i);
    report(record, argument, 1, j, slice_size);
    return instead(elements, record);
  }
};
#else
struct Record;
template <class T>
class Array {
  T *elements;

 public:
  Array() = default;
  OA_FUNCTION Array(T *elements, long long, int, Record *) : elements(elements) {}
  OA_FUNCTION T &at(long long i) const { return elements[i]; }
  OA_FUNCTION T &at(long long i, long long, long long) const { return elements[i]; }
};
#endif

/* Unsigned numbers of so many bytes. */
template <int nbytes>
struct WordOf;
template <>
struct WordOf<4> {
  using type = unsigned;
};
template <>
struct WordOf<8> {
  using type = unsigned long long;
};

/* An element that any thread changes at any time, each time in one step. Each function returns the value before. Other
 * elements are not ordered by it. */
template <class T>
class AtomicElement {
  using Word = typename WordOf<sizeof(T)>::type;
  T *place;

  union Bits { /* NVRTC has no memcpy of its own */
    T value;
    Word word;
  };
  OA_DEVICE static Word word_of(T value) {
    Bits bits;
    bits.value = value;
    return bits.word;
  }
  OA_DEVICE static T value_of(Word word) {
    Bits bits;
    bits.word = word;
    return bits.value;
  }
  OA_DEVICE Word *words() const { return reinterpret_cast<Word *>(place); }

 public:
  OA_DEVICE explicit AtomicElement(T *place) : place(place) {}
  OA_DEVICE T add(T value) const {
    if constexpr (static_cast<T>(0.5) == 0) /* integers, with or without a sign, are added alike */
      return value_of(now::add(words(), word_of(value)));
    else
      return now::add(place, value);
  }
  OA_DEVICE T exchange(T value) const { return value_of(now::exchange(words(), word_of(value))); }
  /* Becomes desired if it has the same bits as expected. */
  OA_DEVICE T compare_swap(T expected, T desired) const {
    return value_of(now::compare_swap(words(), word_of(expected), word_of(desired)));
  }
  /* Becomes value if that is less, or greater. NaN is neither. */
  OA_DEVICE T min(T value) const {
    for (T seen = load();;) {
      const T before = value < seen ? compare_swap(seen, value) : seen;
      if (word_of(before) == word_of(seen)) return seen;
      seen = before;
    }
  }
  OA_DEVICE T max(T value) const {
    for (T seen = load();;) {
      const T before = value > seen ? compare_swap(seen, value) : seen;
      if (word_of(before) == word_of(seen)) return seen;
      seen = before;
    }
  }
  OA_DEVICE T load() const { return value_of(*static_cast<const volatile Word *>(words())); }
};

/* The dynamic shared memory of a block, as elements: as many as the launch's Shared[dtype](size) has. */
template <class T>
class Shared {
  Array<T> array;
  long long size_;

 public:
  OA_FUNCTION Shared(void *memory, long long nbytes, Record *record)
      : array(static_cast<T *>(memory), nbytes / static_cast<long long>(sizeof(T)), -1, record),
        size_(nbytes / static_cast<long long>(sizeof(T))) {}
  OA_FUNCTION T &operator[](long long i) const { return array.at(i); }
  /* Element i, which any thread of the block may change in this phase. */
  OA_DEVICE AtomicElement<T> atomic(long long i) const { return AtomicElement<T>(&array.at(i)); }
  OA_FUNCTION long long size() const { return size_; }
};

/* -- threads ------------------------------------------------------------------------------------------------------- */
#if OA_ON_GPU
/* The thread that runs, in its block and grid. */
class Here {
 public:
#if OA_DEBUG
  Record *record_;
#else
  static constexpr Record *record_ = nullptr;
#endif
  template <class T>
  OA_DEVICE Shared<T> shared() const {
    return Shared<T>(now::shared_memory(), now::shared_bytes(), record_);
  }
  OA_DEVICE unsigned block_index(int axis = 0) const { return now::block(axis); }
  OA_DEVICE unsigned thread_index(int axis = 0) const { return now::thread(axis); }
  OA_DEVICE unsigned blocks(int axis = 0) const { return now::blocks(axis); }
  OA_DEVICE unsigned threads(int axis = 0) const { return now::threads(axis); }
  /* The thread's number in the grid along an axis, and how many there are. */
  OA_DEVICE long long index(int axis = 0) const {
    return static_cast<long long>(block_index(axis)) * threads(axis) + thread_index(axis);
  }
  OA_DEVICE long long size(int axis = 0) const { return static_cast<long long>(blocks(axis)) * threads(axis); }
  OA_DEVICE bool is_before(long long end, bool mine) const { return index() < (mine ? end : 0); }
  OA_DEVICE bool is_on_x() const { return now::is_on_x(); }
  /* The thread's number in its block, along x, then y, then z. */
  OA_DEVICE int thread() const {
    return static_cast<int>((thread_index(2) * threads(1) + thread_index(1)) * threads(0) + thread_index(0));
  }
  /* Runs f(here) in each thread of the block, and waits for all of them. */
  template <class F>
  OA_DEVICE void phase(F f) const {
    f(*this);
    now::barrier();
  }
};
using Block = Here;
#else
/* A block of the grid. Its members have copies of the launch's sizes, which no store of a kernel can change. */
struct Place {
  unsigned blocks_[3], threads_[3], block_[3];
  void *memory;
  long long nbytes;
  Record *record_;
  OA_FUNCTION Place(const oa_kernel_call &call, Record *record)
      : blocks_{call.grid[0], call.grid[1], call.grid[2]},
        threads_{call.block[0], call.block[1], call.block[2]},
        block_{},
        memory(call.shared),
        nbytes(call.shared_bytes),
        record_(record) {}
  OA_FUNCTION unsigned blocks(int axis = 0) const { return blocks_[axis]; }
  OA_FUNCTION unsigned threads(int axis = 0) const { return threads_[axis]; }
  OA_FUNCTION long long size(int axis = 0) const { return static_cast<long long>(blocks_[axis]) * threads_[axis]; }
  OA_FUNCTION long long first(int axis) const { return static_cast<long long>(block_[axis]) * threads_[axis]; }
};

constexpr long long no_bound = 0x7fffffffffffffff;

/* The thread that runs, in its block and grid. */
class Here : public Place {
  long long x, y, z; /* in the grid: what the compiler sees a loop run over */
  bool in_row;       /* of blocks along x that are one loop: x alone says which block it is */
  /* clang does not split a loop at a bound: the first thread of a row tells the others which one it met. */
  long long below; /* x is less; no_bound if nothing is known */
  long long *met;  /* becomes the least bound that the thread asks about; may be null */

 public:
  static constexpr bool of_block = false;
  OA_FUNCTION Here(const Place &place, long long x, long long y, long long z, bool in_row, long long below = no_bound,
                   long long *met = nullptr)
      : Place(place), x(x), y(y), z(z), in_row(in_row), below(below), met(met) {
#if OA_DEBUG
    for (int axis = 0; axis < 3; axis++) {
      running.block[axis] = block_index(axis);
      running.thread[axis] = thread_index(axis);
    }
#endif
  }
  OA_FUNCTION long long index(int axis = 0) const { return axis == 0 ? x : axis == 1 ? y : z; }
  /* Tells whether x is below a bound, if mine, which is the same for a whole row. */
  OA_FUNCTION bool is_before(long long end, bool mine) const {
#if defined(__clang__)
    if (met && end < *met) *met = end;
    return mine && (below <= end || x < end);
#else
    return x < (mine ? end : 0);
#endif
  }
  OA_FUNCTION bool is_on_x() const { return y == 0 && z == 0; }
  OA_FUNCTION unsigned block_index(int axis = 0) const {
    return axis == 0 && in_row ? static_cast<unsigned>(x / threads_[0]) : block_[axis];
  }
  OA_FUNCTION unsigned thread_index(int axis = 0) const {
    return static_cast<unsigned>(index(axis) - static_cast<long long>(block_index(axis)) * threads_[axis]);
  }
  OA_FUNCTION int thread() const {
    return static_cast<int>((thread_index(2) * threads_[1] + thread_index(1)) * threads_[0] + thread_index(0));
  }
  template <class T>
  OA_FUNCTION Shared<T> shared() const {
    return Shared<T>(memory, nbytes, record_);
  }
};

/* The block that runs, outside of its phases. */
class Block : public Place {
 public:
  static constexpr bool of_block = true;
  using Place::Place;
  OA_FUNCTION unsigned block_index(int axis = 0) const { return block_[axis]; }
  template <class T>
  OA_FUNCTION Shared<T> shared() const {
    return Shared<T>(memory, nbytes, record_);
  }
  template <class F>
  OA_FUNCTION void phase(F f) const {
    for (long long z = first(2), z_end = z + threads_[2]; z < z_end; z++)
      for (long long y = first(1), y_end = y + threads_[1]; y < y_end; y++)
        for (long long x = first(0), x_end = x + threads_[0]; x < x_end; x++) f(Here(*this, x, y, z, false));
  }
};
#endif

/* -- regions: elements of one thread ------------------------------------------------------------------------------- */
/* One element, or none. */
struct One {
  long long row, column, index;
  bool mine;
};
/* The numbers first, first + step and so on, below end. */
struct Run {
  long long first, end, step;
  OA_FUNCTION long long size() const { return end > first ? (end - first + step - 1) / step : 0; }
};
/* The elements at some rows and some columns, where rows begin ld elements apart. */
struct Lines {
  Run rows, columns;
  long long ld;
};

/* The share of a thread in first..end - 1: each gets its own. On a GPU neighbours go to neighbouring threads, so that
 * they are read and written together; on the CPU each thread has a run, so that its loop is a plain one. */
OA_FUNCTION Run share(long long first, long long end, long long thread, long long threads) {
#if OA_ON_GPU
  return {first + thread, end, threads};
#else
  if (threads == 1) return {first, end, 1};
  const long long size = end > first ? end - first : 0, each = size / threads, more = size % threads;
  const long long before = thread * each + (thread < more ? thread : more);
  return {first + before, first + before + each + (thread < more), 1};
#endif
}

OA_FUNCTION long long smaller(long long a, long long b) { return a < b ? a : b; }

/* -- partitions: which elements belong to which thread ------------------------------------------------------------- */
/* Element i belongs to thread i of the grid's x axis. Threads along y and z have none but the first. */
struct Linear1D {
  long long n;
  OA_FUNCTION explicit Linear1D(long long n) : n(n) {}
  OA_FUNCTION One of(const Here &here) const {
    const long long i = here.index();
    return {0, i, i, here.is_before(n, here.is_on_x())};
  }
};

/* The threads along x share the elements: any grid covers all. On a GPU, element i belongs to thread i modulo their
 * number; on the CPU, each has a run. */
struct GridStride1D {
  long long n;
  OA_FUNCTION explicit GridStride1D(long long n) : n(n) {}
  OA_FUNCTION Run of(const Here &here) const {
    const bool mine = here.is_on_x();
    return share(0, mine ? n : 0, here.index(), here.size());
  }
};

/* Element i, of n, belongs to the first thread of block i along x. */
struct PerBlock {
  long long n;
  OA_FUNCTION PerBlock() : n(1LL << 62) {}
  OA_FUNCTION explicit PerBlock(long long n) : n(n) {}
  OA_FUNCTION One of(const Here &here) const {
    const long long i = here.block_index();
    const bool mine = i < n && here.thread() == 0 && here.block_index(1) == 0 && here.block_index(2) == 0;
    return {0, i, i, mine};
  }
};

/* A matrix, whose rows begin ld elements apart. One with columns that overlap has no owners. */
struct Matrix {
  long long rows, columns, ld;
  OA_FUNCTION Matrix(long long rows, long long columns) : rows(rows), columns(columns), ld(columns) {}
  OA_FUNCTION Matrix(long long rows, long long columns, long long ld)
      : rows(columns <= ld ? rows : 0), columns(columns), ld(ld) {}
};

/* Element (row, column) belongs to the thread of that place along y and x. */
struct Linear2D : Matrix {
  using Matrix::Matrix;
  OA_FUNCTION One of(const Here &here) const {
    const long long row = here.index(1), column = here.index();
    const bool mine = row < rows && here.index(2) == 0;
    return {row, column, row * ld + column, here.is_before(columns, mine)};
  }
};

/* Row i belongs to thread i of the grid's x axis. */
struct Rows : Matrix {
  using Matrix::Matrix;
  OA_FUNCTION Lines of(const Here &here) const {
    const long long row = here.index();
    const bool mine = row < rows && here.is_on_x();
    return {{row, row + mine, 1}, {0, columns, 1}, ld};
  }
};

/* The rows and columns of a matrix that belong to one block: where they begin, and how many there are. */
struct Box {
  long long row, column, rows, columns;
};

/* A box's elements belong to the block's threads: they share its rows along y, and its columns along x. */
OA_FUNCTION Lines shared_out(const Box &box, long long ld, const Here &here) {
  const bool mine = here.thread_index(2) == 0;
  return {share(box.row, mine ? box.row + box.rows : box.row, here.thread_index(1), here.threads(1)),
          share(box.column, box.column + box.columns, here.thread_index(), here.threads()), ld};
}

/* Rows i * height to (i + 1) * height - 1 belong to block i along x. */
template <int height>
struct RowBlocks : Matrix {
  static_assert(height > 0, "RowBlocks needs 1 or more rows a block");
  using Matrix::Matrix;
  template <class BlockOrHere>
  OA_FUNCTION Box box(const BlockOrHere &here) const {
    const long long row = static_cast<long long>(height) * here.block_index();
    const bool mine = row < rows && here.block_index(1) == 0 && here.block_index(2) == 0;
    return {row, 0, mine ? smaller(height, rows - row) : 0, columns};
  }
  OA_FUNCTION Lines of(const Here &here) const { return shared_out(box(here), ld, here); }
};

/* The tile of rows i * height and following, columns j * width and following belongs to block i along y, j along x. */
template <int height, int width>
struct Tiles : Matrix {
  static_assert(height > 0 && width > 0, "Tiles needs tiles of 1 or more rows and columns");
  using Matrix::Matrix;
  template <class BlockOrHere>
  OA_FUNCTION Box box(const BlockOrHere &here) const {
    const long long row = static_cast<long long>(height) * here.block_index(1);
    const long long column = static_cast<long long>(width) * here.block_index();
    const bool mine = row < rows && column < columns && here.block_index(2) == 0;
    return {row, column, mine ? smaller(height, rows - row) : 0, mine ? smaller(width, columns - column) : 0};
  }
  OA_FUNCTION Lines of(const Here &here) const { return shared_out(box(here), ld, here); }
};

/* -- arguments ----------------------------------------------------------------------------------------------------- */
/* One element of a thread. A partition of one dimension has row 0 only. */
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
  long long row_, start; /* of the row */
  Run columns;

 public:
  OA_FUNCTION Slice(const Array<T> &array, long long row, long long start, const Run &columns)
      : array(array), row_(row), start(start), columns(columns) {}
  OA_FUNCTION T &operator[](long long j) const { return array.at(index(j), j, size()); }
  OA_FUNCTION long long size() const { return columns.size(); }
  OA_FUNCTION long long row() const { return row_; }
  /* The column, and the index, of the slice's element j. */
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
  One one;

 public:
  class Place {
    Array<T> array;
    One one;

   public:
    OA_FUNCTION Place(const Array<T> &array, const One &one) : array(array), one(one) {}
    OA_FUNCTION Element<T> operator*() const { return Element<T>(array, one.row, one.column, one.index); }
    OA_FUNCTION bool operator!=(const Place &end) const { return one.mine != end.one.mine; }
    OA_FUNCTION Place &operator++() {
      one.mine = false;
      return *this;
    }
  };
  OA_FUNCTION Mine(const Array<T> &array, const One &one) : array(array), one(one) {}
  OA_FUNCTION Place begin() const { return Place(array, one); }
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

/* The same elements as slices: one for each row of them. */
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
  OA_FUNCTION Slices(const Array<T> &array, const One &one)
      : Slices(array, Lines{{one.row, one.row + one.mine, 1}, {one.column, one.column + 1, 1}, 0}) {
    if (one.row) lines.ld = (one.index - one.column) / one.row;
  }
  OA_FUNCTION Place begin() const { return Place(array, lines); }
  OA_FUNCTION Place end() const { return Place(array, lines); }
};

/* An array that the kernel reads: any thread any element. */
template <class T>
class In {
  Array<const T> array;

 public:
  using Pointer = const T *;
  In() = default;
  OA_FUNCTION explicit In(const Array<const T> &array) : array(array) {}
  OA_FUNCTION const T &operator[](long long i) const { return array.at(i); }
};

/* An array that the kernel writes: each thread the elements that are its own. */
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
  /* The element of the same index as one of this thread's in another array, of the same partition. */
  template <class U>
  OA_FUNCTION T &operator[](const Element<U> &one) const {
    return array.at(one.index());
  }
};
template <class T>
using InOut = Out<T>;

/* An array of elements that any thread changes, each in one step: InOut in the signature. */
template <class T>
class Atomic {
  Array<T> array;

 public:
  using Pointer = T *;
  Atomic() = default;
  OA_FUNCTION explicit Atomic(const Array<T> &array) : array(array) {}
  OA_DEVICE AtomicElement<T> operator[](long long i) const { return AtomicElement<T>(&array.at(i)); }
};

/* -- kernels as they are launched ---------------------------------------------------------------------------------- */
/* How the launch passes an argument: an array as a pointer. */
template <class T>
struct Passed {
  using type = T;
  OA_FUNCTION static T given(const T &value, int, Record *) { return value; }
};
template <class A>
struct PassedArray {
  using type = typename A::Pointer;
  OA_FUNCTION static A given(type elements, [[maybe_unused]] int argument, [[maybe_unused]] Record *record) {
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
struct Passed<Atomic<T>> : PassedArray<Atomic<T>> {};

#if OA_DEBUG
/* Argument number of a kernel's function. */
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
struct Entry { /* of a table of parameters */
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

/* Makes a place that of a block, by its number. */
OA_FUNCTION void set_block(Place &place, const oa_kernel_call &call, long long number) {
  place.block_[0] = static_cast<unsigned>(number % call.grid[0]);
  place.block_[1] = static_cast<unsigned>(number / call.grid[0] % call.grid[1]);
  place.block_[2] = static_cast<unsigned>(number / call.grid[0] / call.grid[1]);
}

template <auto function>
struct Kernel;
template <class Who, class... A, void (*function)(const Who &, A...)>
struct Kernel<function> {
#if OA_DEBUG /* its record is one more argument */
  static constexpr Table<sizeof...(A) + 1> table = {
      { sizeof...(A) + 1,
        Entry<typename Passed<A>::type>::value...,
        OA_POINTER }};
  static Record *record(const oa_kernel_call *call) {
    return *static_cast<Record *const *>(call->arguments[sizeof...(A)]);
  }
#else
  static constexpr Table<sizeof...(A)> table = {{sizeof...(A), Entry<typename Passed<A>::type>::value...}};
  static Record *record(const oa_kernel_call *) { return nullptr; }
#endif
  static void run(const oa_kernel_call *call) { run(call, typename Count<sizeof...(A)>::type()); }

 private:
  template <unsigned... numbers>
  OA_FUNCTION static void run(const oa_kernel_call *call, Numbers<numbers...>) {
    if constexpr (Who::of_block) {
      Block block(*call, record(call));
      for (long long number = call->first; number < call->last; number++) {
        set_block(block, *call, number);
        function(block, given<A>(call, numbers)...);
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
  /* Runs the threads of a row. It is a function of its own, so that its loop has the registers. */
  template <unsigned... numbers>
  __attribute__((noinline)) static void run_row(const oa_kernel_call *call, const Place &given_place, long long first,
                                                long long end, long long y, long long z) {
    run_row(given_place, first, end, y, z, given<A>(call, numbers)...); /* with copies that no store can change */
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
    asm("" : "+r"(split)); /* so that clang does not know it as the bound, and compare with it instead */
    for (; x < split; x++) function(Here(place, x, y, z, true, below), arguments...);
#endif
    for (; x < end; x++) function(Here(place, x, y, z, true), arguments...);
  }
  template <class T>
  OA_FUNCTION static T given(const oa_kernel_call *call, int number) {
    return Passed<T>::given(*static_cast<const typename Passed<T>::type *>(call->arguments[number]), number,
                            record(call));
  }
};
#endif

}  // namespace oa

#if defined(__GNUC__) && !defined(__clang__) && !OA_ON_GPU
#pragma GCC diagnostic pop
#endif

#if OA_ON_GPU && OA_DEBUG
/* The kernel itself, which Kernel.compile adds to the source, makes the arguments with their bounds. */
#define OA_KERNEL(name, ...) \
  [[maybe_unused]] static OA_DEVICE void name##_in([[maybe_unused]] const oa::Here &here, __VA_ARGS__)
#define OA_BLOCK_KERNEL OA_KERNEL
#define OA_DEBUG_KERNEL(name, parameters, arguments) \
  OA_GLOBAL void name parameters { name##_in arguments; }
#elif OA_ON_GPU
OA_CONSTANT oa::Here here{};
#define OA_KERNEL(name, ...) OA_GLOBAL void name(__VA_ARGS__)
#define OA_BLOCK_KERNEL OA_KERNEL
#else
#define OA_KERNEL_OF(name, who, ...)                                                                                   \
  static OA_FUNCTION void name##_in(const oa::who &here, __VA_ARGS__);                                                 \
  OA_KERNEL_EXPORT void oa_kernel_##name(const oa_kernel_call *call) { oa::Kernel<&name##_in>::run(call); }            \
  OA_KERNEL_EXPORT const decltype(oa::Kernel<&name##_in>::table) oa_parameters_##name = oa::Kernel<&name##_in>::table; \
  static OA_FUNCTION void name##_in([[maybe_unused]] const oa::who &here, __VA_ARGS__)
#define OA_KERNEL(name, ...) OA_KERNEL_OF(name, Here, __VA_ARGS__)
#define OA_BLOCK_KERNEL(name, ...) OA_KERNEL_OF(name, Block, __VA_ARGS__)
#define OA_DEBUG_KERNEL(name, parameters, arguments)
#endif
#endif

#endif
