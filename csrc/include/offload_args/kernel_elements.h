/* Arrays, shared memory and threads in a kernel: a part of kernel.h, which includes it. */
#ifndef OFFLOAD_ARGS_KERNEL_ELEMENTS_H
#define OFFLOAD_ARGS_KERNEL_ELEMENTS_H
#ifdef __cplusplus
#include "offload_args/kernel_call.h"
#include "offload_args/kernel_target.h"

namespace oa {
/* -- elements in memory -------------------------------------------------------------------------------------------- */
#if OA_DEBUG
/* The first out-of-bounds access of a launch. offload_args/kernels/debug.py has the same fields. */
struct Record {
  unsigned is_set; /* 1: the launch had an out-of-bounds access */
  int argument;    /* number of the argument, from 0; -1: shared memory; -2: an exception, whose text is in sink */
  int in_slice;    /* 1: index and size describe a slice of the argument */
  unsigned block[3], thread[3];
  unsigned unused;
  long long index, size, unused_too;
  /* Memory that is read and written in place of an element out of bounds. */
  alignas(16) unsigned char zeros[256], sink[256];
  long long sizes[1]; /* size of each argument, in elements; the array is as long as the kernel's list of arguments */
};

#if !OA_ON_GPU
/* The simulated GPU thread that this CPU thread runs. */
struct Running {
  unsigned block[3], thread[3];
};
inline thread_local Running running;
#endif

OA_DEVICE void report(Record *record, int argument, int in_slice, long long index, long long size) {
  if (now::compare_swap(&record->is_set, 0u, 1u)) return;
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
  static_assert(sizeof(T) <= sizeof record->sink, "elements of over 256 bytes need debug=False");
  return *static_cast<T *>(static_cast<void *>(record->sink));
}
template <class T>
OA_DEVICE const T &instead(const T *, Record *record) {
  static_assert(sizeof(T) <= sizeof record->zeros, "elements of over 256 bytes need debug=False");
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
  /* Returns element i, which is element j of a slice of slice_size elements. */
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

/* The unsigned integer type of that many bytes. */
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

/* An element that any thread may change at any time, in one atomic step. Each function returns the former value. The
 * functions do not order accesses to other elements. */
template <class T>
class AtomicElement {
  using Word = typename WordOf<sizeof(T)>::type;
  T *place;

  union Bits { /* NVRTC has no memcpy */
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
    if constexpr (static_cast<T>(0.5) == 0) /* signed and unsigned integers are added alike */
      return value_of(now::add(words(), word_of(value)));
    else
      return now::add(place, value);
  }
  OA_DEVICE T exchange(T value) const { return value_of(now::exchange(words(), word_of(value))); }
  /* Sets the element to desired if it has the same bits as expected. */
  OA_DEVICE T compare_swap(T expected, T desired) const {
    return value_of(now::compare_swap(words(), word_of(expected), word_of(desired)));
  }
  /* min sets the element to value if value is less; max sets the element to value if value is greater. NaN is neither
   * less nor greater. */
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

/* The dynamic shared memory of a block, as elements. The launch's Shared[dtype](size) sets the number of elements. */
template <class T>
class Shared {
  Array<T> array;
  long long size_;

 public:
  OA_FUNCTION Shared(void *memory, long long nbytes, Record *record)
      : array(static_cast<T *>(memory), nbytes / static_cast<long long>(sizeof(T)), -1, record),
        size_(nbytes / static_cast<long long>(sizeof(T))) {}
  OA_FUNCTION T &operator[](long long i) const { return array.at(i); }
  /* Returns element i, which any thread of the block may change in this phase. */
  OA_DEVICE AtomicElement<T> atomic(long long i) const { return AtomicElement<T>(&array.at(i)); }
  OA_FUNCTION long long size() const { return size_; }
};

/* -- threads ------------------------------------------------------------------------------------------------------- */
#if OA_ON_GPU
/* The running thread, in its block and grid. */
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
  /* Return the thread's number in the grid along an axis, and the number of threads. */
  OA_DEVICE long long index(int axis = 0) const {
    return static_cast<long long>(block_index(axis)) * threads(axis) + thread_index(axis);
  }
  OA_DEVICE long long size(int axis = 0) const { return static_cast<long long>(blocks(axis)) * threads(axis); }
  OA_DEVICE bool is_before(long long end, bool mine) const { return index() < (mine ? end : 0); }
  OA_DEVICE bool is_on_x() const { return now::is_on_x(); }
  /* Returns the thread's number in its block, along x, then y, then z. */
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
/* A block of the grid. The members are copies of the launch's sizes, so no store of a kernel can change the sizes. */
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

/* The running thread, in its block and grid. */
class Here : public Place {
  long long x, y, z; /* in the grid: the variables of the compiler's loop */
  bool in_row;       /* true: the blocks along x are one loop, so x alone determines the block */
  /* clang does not split a loop at a bound, so the first thread of a row stores its bound for the other threads of the
   * row. */
  long long below; /* a number that is known to be greater than x; no_bound if none is known */
  long long *met;  /* becomes the least bound that x is compared with; may be null */

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
  /* Returns x < end if the row is this thread's (`mine` is constant along a row). */
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

/* The running block, for code outside of its phases. */
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

}  // namespace oa

#endif
#endif
