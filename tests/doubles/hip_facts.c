/* Compares the numbers and structures of csrc/backends/hip.c with AMD's headers. scripts/check_hip_headers.py compiles
 * this file, which succeeds only if they agree. */
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__
#include <hip/hip_runtime_api.h>

#include "../../csrc/backends/hip.c"

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours " is not " #theirs)
#define PLACE(ours, field, theirs, other) SAME(offsetof(struct ours, field), offsetof(theirs, other))

SAME(SUCCESS, hipSuccess);
SAME(OUT_OF_MEMORY, hipErrorOutOfMemory);
SAME(NOT_READY, hipErrorNotReady);
SAME(NOT_FOUND, hipErrorNotFound);
SAME(NO_DEVICE, hipErrorNoDevice);
SAME(INVALID_DEVICE, hipErrorInvalidDevice);
SAME(1, hipErrorInvalidValue); /* of was_reset, and of end_of_device in gpu.inc */
SAME(4, hipErrorDeinitialized);
SAME(201, hipErrorInvalidContext);
SAME(214, hipErrorECCNotCorrectable);
SAME(400, hipErrorInvalidHandle);
SAME(700, hipErrorIllegalAddress);
SAME(702, hipErrorLaunchTimeOut);
SAME(709, hipErrorContextIsDestroyed);
SAME(710, hipErrorAssert);
SAME(719, hipErrorLaunchFailure);

SAME(ATTRIBUTE_COOPERATIVE, hipDeviceAttributeCooperativeLaunch);
SAME(ATTRIBUTE_BLOCK_X, hipDeviceAttributeMaxBlockDimX);
SAME(ATTRIBUTE_BLOCK_X + 1, hipDeviceAttributeMaxBlockDimY);
SAME(ATTRIBUTE_BLOCK_X + 2, hipDeviceAttributeMaxBlockDimZ);
SAME(ATTRIBUTE_GRID_X, hipDeviceAttributeMaxGridDimX);
SAME(ATTRIBUTE_GRID_X + 1, hipDeviceAttributeMaxGridDimY);
SAME(ATTRIBUTE_GRID_X + 2, hipDeviceAttributeMaxGridDimZ);
SAME(ATTRIBUTE_MULTIPROCESSORS, hipDeviceAttributeMultiprocessorCount);
SAME(ATTRIBUTE_SHARED_PER_BLOCK, hipDeviceAttributeMaxSharedMemoryPerBlock);
SAME(ATTRIBUTE_COMPUTE_MAJOR, hipDeviceAttributeComputeCapabilityMajor);
SAME(ATTRIBUTE_COMPUTE_MINOR, hipDeviceAttributeComputeCapabilityMinor);
SAME(ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, hipDeviceAttributePageableMemoryAccess);
SAME(ATTRIBUTE_HOST_PAGE_TABLES, hipDeviceAttributePageableMemoryAccessUsesHostPageTables);
SAME(ATTRIBUTE_MEMORY_POOLS, hipDeviceAttributeMemoryPoolsSupported);

SAME(FUNCTION_MOST_THREADS, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(FUNCTION_SHARED, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(FUNCTION_REGISTERS, HIP_FUNC_ATTRIBUTE_NUM_REGS);
SAME(FUNCTION_MOST_DYNAMIC_SHARED, HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

SAME(KIND_UP, hipMemcpyHostToDevice);
SAME(KIND_DOWN, hipMemcpyDeviceToHost);
SAME(KIND_DEVICE, hipMemcpyDeviceToDevice);
SAME(STREAM_NON_BLOCKING, hipStreamNonBlocking);
SAME(EVENT_DISABLE_TIMING, hipEventDisableTiming);
SAME(HOST_PORTABLE, hipHostMallocPortable);
SAME(ALLOCATION_PINNED, hipMemAllocationTypePinned);
SAME(LOCATION_DEVICE, hipMemLocationTypeDevice);
SAME(POOL_RELEASE_THRESHOLD, hipMemPoolAttrReleaseThreshold);
SAME(POOL_RESERVED, hipMemPoolAttrReservedMemCurrent);
SAME(POOL_USED, hipMemPoolAttrUsedMemCurrent);

SAME(sizeof(struct pool_properties), sizeof(hipMemPoolProps));
PLACE(pool_properties, allocation_type, hipMemPoolProps, allocType);
PLACE(pool_properties, handle_types, hipMemPoolProps, handleTypes);
PLACE(pool_properties, location_type, hipMemPoolProps, location.type);
PLACE(pool_properties, location_id, hipMemPoolProps, location.id);

SAME(sizeof(struct pointer_attributes), sizeof(hipPointerAttribute_t));
PLACE(pointer_attributes, device, hipPointerAttribute_t, device);
PLACE(pointer_attributes, on_device, hipPointerAttribute_t, devicePointer);
PLACE(pointer_attributes, on_host, hipPointerAttribute_t, hostPointer);
PLACE(pointer_attributes, is_managed, hipPointerAttribute_t, isManaged);

/* Changed with HIP 6. */
#if HIP_VERSION_MAJOR < 6
PLACE(pointer_attributes, type, hipPointerAttribute_t, memoryType);
SAME(HOST_5, hipMemoryTypeHost);
SAME(ARCHITECTURE_5, offsetof(hipDeviceProp_t, gcnArchName));
#else
PLACE(pointer_attributes, type, hipPointerAttribute_t, type);
SAME(PLAIN_6, hipMemoryTypeUnregistered);
SAME(HOST_6, hipMemoryTypeHost);
SAME(ARCHITECTURE_6, offsetof(hipDeviceProp_t, gcnArchName));
#endif
