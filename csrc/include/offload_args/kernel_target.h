/* The differences between the compilers for NVIDIA GPUs, AMD GPUs and the CPU: a part of kernel.h, which includes
 * it. */
#ifndef OFFLOAD_ARGS_KERNEL_TARGET_H
#define OFFLOAD_ARGS_KERNEL_TARGET_H
#ifdef __cplusplus

/* oa::now has the same functions for each compiler. The keywords for AMD are clang's own: only hipcc, hiprtc and clang
 * accept them without a header. OA_DEBUG is for Kernel.compile(debug=True). */
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
#include <math.h> /* compilers for GPUs have the functions of math.h built in */
#ifdef __cpp_exceptions
#include <exception>
#endif
#endif
#ifndef OA_DEBUG
#define OA_DEBUG 0
#endif
/* A variable that Module.variable finds by its name: OA_CONSTANT_VARIABLE(float, weights[16]). Kernels may change an
 * OA_DEVICE_VARIABLE. */
#if defined(__HIP__)
#define OA_DEVICE_VARIABLE(type, ...)                                    \
  extern "C" {                                                           \
  __attribute__((device, used, visibility("default"))) type __VA_ARGS__; \
  }
#define OA_CONSTANT_VARIABLE(type, ...)                                    \
  extern "C" {                                                             \
  __attribute__((constant, used, visibility("default"))) type __VA_ARGS__; \
  }
#elif OA_ON_GPU
#define OA_DEVICE_VARIABLE(type, ...) \
  extern "C" {                        \
  __device__ type __VA_ARGS__;        \
  }
#define OA_CONSTANT_VARIABLE(type, ...) \
  extern "C" {                          \
  __constant__ type __VA_ARGS__;        \
  }
#else
#define OA_DEVICE_VARIABLE(type, ...)                      \
  extern "C" {                                             \
  __attribute__((visibility("default"))) type __VA_ARGS__; \
  }
#define OA_CONSTANT_VARIABLE OA_DEVICE_VARIABLE
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
OA_DEVICE unsigned shared_bytes() { /* the packet of the launch has the size of all shared memory */
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
/* Returns whether the thread is the first thread along y and z. The sizes are constants, and show whether the launch is
 * along x alone; reading the thread's own numbers would take a wait. */
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
}  // namespace oa

#endif
#endif
