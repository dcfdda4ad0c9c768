/* The bodies of cuBLASLt's functions that compute. These bodies read the attributes of descriptors, one at a time.
 *
 * An attribute that is a device array holds a handle of the core in place of an address. During the call, and while the
 * library only reads the descriptor, an address replaces the handle. */
#ifndef OA_BODY_CUBLASLT_H
#define OA_BODY_CUBLASLT_H

#include "body/descriptor.h"

enum { OA_LT_POINTERS = 10 };

/* The handles in a descriptor. */
typedef struct oa_lt_hidden {
  void *object;
  int (*set)(void *object, int attribute, const void *value, size_t nbytes);
  const void *handles[OA_LT_POINTERS];
} oa_lt_hidden;

/* `asks`: the indices, in the library's table, of the functions that get and set the attributes of a product. Returns
 * whether the library has these functions; otherwise the error is set. */
int oa_lt_ready(const oa_routine *routine, const int *asks);
/* oa_lt_hide replaces handles, which are not aligned, by aligned addresses. oa_lt_show restores the handles. */
void oa_lt_hide(const oa_routine *routine, const int *asks, const void *object, oa_lt_hidden *hidden);
void oa_lt_show(const oa_lt_hidden *hidden);

/* The bodies. `codes`: the data types. `asks`: the functions that the bodies call, in the order of
 * roles/cublaslt.toml. */
int oa_lt_matmul(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes);
int oa_lt_transform(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes);

#endif
