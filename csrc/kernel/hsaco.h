/* The metadata of AMD's code objects. The core reads the metadata because HIP itself reports no parameters of a kernel.
 * LLVM's "User Guide for AMDGPU Backend" documents the metadata of code objects 3 to 6. All functions here accept any
 * bytes, and read nothing outside of these bytes. */
#ifndef OA_HSACO_H
#define OA_HSACO_H

#include "offload_args/launch.h"

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

/* A kernel, as the metadata describes it. Numbers that the metadata does not state are 0. */
typedef struct oa_hsaco_kernel {
  oa_bytes name;
  const char *fault; /* a text such as "its .vgpr_count is not a number ..."; NULL if nothing is wrong */
  uint64_t argument_bytes, shared_bytes, vector_registers, scalar_registers, most_threads;
  uint64_t wave; /* threads of a wave; 64 if the metadata does not state them */
  bool uniform_blocks;
  oa_bytes arguments; /* the unread parameters, their number, and the end of the last read parameter */
  uint64_t arguments_left, arguments_end;
} oa_hsaco_kernel;

/* A parameter: its place among the arguments, and its kind, such as OA_STATED_VALUE. */
typedef struct oa_hsaco_parameter {
  uint64_t offset, nbytes;
  int kind;
} oa_hsaco_parameter;

/* Returns whether the image is a bundle. */
bool oa_is_bundle(const void *image, size_t nbytes);
/* Returns the number of a bundle's entries. */
uint64_t oa_bundle_count(const void *image, size_t nbytes);
/* Reads entry `number`. Returns false after the last entry, and if the entry is not inside the image. */
bool oa_bundle_read(const void *image, size_t nbytes, uint64_t number, oa_bundle_entry *entry);
/* Finds the code object for a device's target, such as "gfx90a:sramecc+:xnack-"; in an image that is not a bundle, the
 * image itself. As in HIP's loader, the entry has to name the device's processor, and each feature in the entry's
 * target has to be as on the device. */
bool oa_hsaco_find(const void *image, size_t nbytes, const char *target, oa_bytes *object);
/* Returns whether code for the target `code` runs on a device of the target `device`, by the rule of oa_hsaco_find. */
bool oa_hsaco_suits(oa_bytes code, const char *device);
/* Returns the version of a code object: 3 to 6; 0 if the image is not a code object. */
int oa_hsaco_version(oa_bytes object);
/* Finds the metadata of a code object. Returns false if the object is damaged or has no metadata. */
bool oa_hsaco_metadata(oa_bytes object, oa_bytes *metadata);
/* Writes the targets that an image has code for: "gfx90a:xnack+, gfx1100"; "" if it states none. */
void oa_hsaco_targets(const void *image, size_t nbytes, char *text, size_t size);
/* Returns whether the metadata is one map, and nothing follows it. */
bool oa_hsaco_is_whole(oa_bytes metadata);
/* Sets *list to the bytes that start with the list of kernels. */
bool oa_hsaco_kernels(oa_bytes metadata, oa_bytes *list);
/* Reads the next kernel of the list; *left is UINT64_MAX at first. Returns false after the last kernel. Also returns
 * false if the kernel is damaged, and then sets its fault. */
bool oa_hsaco_next(oa_bytes *list, uint64_t *left, oa_hsaco_kernel *kernel);
/* Reads a kernel. Returns false if no kernel has that name. */
bool oa_hsaco_find_kernel(oa_bytes metadata, const char *name, oa_hsaco_kernel *kernel);
/* Reads the kernel's next parameter. Returns false after the last parameter. Also returns false if the parameter is
 * damaged, and then sets the kernel's fault. */
bool oa_hsaco_next_parameter(oa_hsaco_kernel *kernel, oa_hsaco_parameter *parameter);
/* Reads a parameter; its nbytes are 0 after the last parameter. Returns false if the metadata is damaged. */
bool oa_hsaco_find_parameter(const oa_hsaco_kernel *kernel, int number, oa_hsaco_parameter *parameter);

#endif
