/* The bodies of cuBLASLt's functions that compute: their descriptors are asked for attributes, one at a time.
 *
 * An attribute that is an array of the device has a handle of the core, as if it were the address. During the call, and
 * while the library only looks at the descriptor, an address is in its place. */
#ifndef OA_MATMUL_H
#define OA_MATMUL_H

#include "call/described.h"

enum { OA_LT_POINTERS = 10 };

/* The handles that a descriptor had. */
typedef struct oa_lt_hidden {
  void *object;
  int (*set)(void *object, int attribute, const void *value, size_t nbytes);
  const void *handles[OA_LT_POINTERS];
} oa_lt_hidden;

/* asks: the places in the library's table of the functions that get and set the attributes of a product. Returns
 * whether it has them; else the error is set. */
int oa_lt_ready(const oa_routine *routine, const int *asks);
/* Puts aligned addresses in the places of handles, which are not aligned; and the handles back. */
void oa_lt_hide(const oa_routine *routine, const int *asks, const void *object, oa_lt_hidden *hidden);
void oa_lt_show(const oa_lt_hidden *hidden);

/* The bodies. codes: the data types; asks: the functions that they call, in the order of roles/cublaslt.toml. */
int oa_lt_matmul(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes);
int oa_lt_transform(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes);

#endif
