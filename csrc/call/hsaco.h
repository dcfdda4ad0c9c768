/* The metadata of AMD's code objects: HIP itself tells nothing of a kernel's parameters (LLVM: "User Guide for AMDGPU
 * Backend", code objects 3 to 6). Everything here takes any bytes, and reads none outside of them. */
#ifndef OA_CALL_HSACO_H
#define OA_CALL_HSACO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Some bytes of an image. */
typedef struct oa_bytes {
  const unsigned char *at;
  size_t nbytes;
} oa_bytes;

/* An entry of a bundle. */
typedef struct oa_bundle_entry {
  oa_bytes name; /* "hipv4-amdgcn-amd-amdhsa--gfx90a" */
  oa_bytes image;
} oa_bundle_entry;

/* A kernel, as the metadata describes it. */
typedef struct oa_hsaco_kernel {
  oa_bytes name;
  oa_bytes arguments; /* read with oa_hsaco_parameter */
  uint64_t argument_bytes, shared_bytes, vector_registers, scalar_registers, most_threads;
  uint64_t wave; /* its threads; 64 if the metadata does not say */
  bool uniform_blocks;
} oa_hsaco_kernel;

/* Returns whether the image is a bundle. */
bool oa_is_bundle(const void *image, size_t nbytes);
/* Returns the number of a bundle's entries. */
uint64_t oa_bundle_count(const void *image, size_t nbytes);
/* Reads entry `number`; false behind the last one, and if it is not inside the image. */
bool oa_bundle_read(const void *image, size_t nbytes, uint64_t number, oa_bundle_entry *entry);
/* Finds the code object for a device's target, such as "gfx90a:sramecc+:xnack-": the image itself unless that is a
 * bundle. As in HIP's loader, the processor has to be the same, and so has each feature that the entry names. */
bool oa_hsaco_find(const void *image, size_t nbytes, const char *target, oa_bytes *object);
/* Returns whether code for one target runs on a device of another: the same rule. */
bool oa_hsaco_suits(oa_bytes code, const char *device);
/* Returns the version of a code object: 3 to 6; 0 if the image is none. */
int oa_hsaco_version(oa_bytes object);
/* Finds its metadata; false if it is damaged or has none. */
bool oa_hsaco_metadata(oa_bytes object, oa_bytes *metadata);
/* Writes the targets that an image has code for: "gfx90a:xnack+, gfx1100"; "" if it does not say. */
void oa_hsaco_targets(const void *image, size_t nbytes, char *text, size_t size);
/* Sets *list to what begins with the list of kernels. */
bool oa_hsaco_kernels(oa_bytes metadata, oa_bytes *list);
/* Reads the next kernel of it; *left is UINT64_MAX at first. false behind the last one, and if it is damaged. */
bool oa_hsaco_next(oa_bytes *list, uint64_t *left, oa_hsaco_kernel *kernel);
/* Reads a kernel; false if there is none of that name. */
bool oa_hsaco_find_kernel(oa_bytes metadata, const char *name, oa_hsaco_kernel *kernel);
/* Reads a parameter; *nbytes is 0 behind the last one. false if the metadata is damaged. */
bool oa_hsaco_parameter(const oa_hsaco_kernel *kernel, int number, uint64_t *offset, uint64_t *nbytes);

#endif
