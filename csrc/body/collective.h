/* For the bodies of functions that several ranks call together: numbers of communicators, and groups. */
#ifndef OA_COLLECTIVE_H
#define OA_COLLECTIVE_H

#include "body/helper_function.h"

/* Structs that functions take by value. */
typedef struct oa_bytes_128 {
  unsigned char bytes[128];
} oa_bytes_128;

/* Returns the numbers that the library reports of an object among the values, in the order that the object's kind
 * defines. The library is queried once for each object. Returns NULL with the error set if the library does not report
 * the numbers. */
const int *oa_told(const oa_routine *routine, const char *name, const oa_value *object);
/* Returns the device of an object among the values, for oa_call.only. */
const void *oa_device_of_object(const oa_value *object);

/* Ends a call as oa_end does; a call in a group ends when the group ends. `object`: the value that is the call's
 * object. */
int oa_end_in_group(oa_call *call, const oa_value *object, int vendor_status);
/* End a helper function that begins a group, or that ends a group and thereby issues the calls of the group. */
int oa_group_begins(oa_helper_call *call, oa_value *values, int vendor_status);
int oa_group_ends(oa_helper_call *call, oa_value *values, int vendor_status);
/* Fails if this thread has a group. */
int oa_refuse_in_group(const oa_routine *routine);

#endif
