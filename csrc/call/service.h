/* Services: functions of a library that work on no array of a device: they make, set, ask, name and destroy. */
#ifndef OA_SERVICE_H
#define OA_SERVICE_H

#include "call/described.h"
#include "call/object.h"
#include "call/routine.h"

enum { OA_MOST_OBJECTS = 16 };

/* One call of a service, from oa_service_begin to oa_service_end. */
typedef struct oa_service {
  const oa_routine *routine;
  oa_object_use uses[OA_MOST_OBJECTS];
  int use_count;
  oa_device *device; /* NULL: it works on none */
  void *saved;       /* what was current before */
  const oa_object_kind *makes;
  int makes_at; /* the place of the new object among the values */
  oa_stream *stream;
  int dtype;                          /* of the memory that the object will keep */
  oa_object_memory *memory;           /* that the object will keep; NULL: none */
  const char *forgets;                /* what the object keeps by this name is no longer used; NULL: nothing */
  oa_object_held holds[OA_MOST_HELD]; /* that the first object holds from now on */
  int held_at[OA_MOST_HELD];          /* their places among the uses; -1: none */
  int hold_count;
  oa_note note; /* that the first object has from now on; of OA_ANY: the one that it has */
} oa_service;

/* Takes the objects among the values, puts the vendor's own in their places, and makes their device current. Sets the
 * outputs to zeros. */
int oa_service_begin(oa_service *service, const oa_routine *routine, oa_value *values);
/* Has the service's only object keep memory: the value at that place becomes an address. size: in elements, or of any
 * dtype in bytes. A failure ends the service. */
int oa_service_keep(oa_service *service, oa_value *values, int at, const char *name, int64_t size);
/* Ends that with the vendor's status, and makes the object of a new one. */
int oa_service_end(oa_service *service, oa_value *values, int vendor_status);
/* Where a routine has an object among its values. */
typedef struct oa_object_place {
  const char *name;
  unsigned char name_length, at, kind; /* kind: its place among the library's */
  unsigned char optional;              /* there may be none */
  unsigned char changes;               /* the function may change it */
} oa_object_place;

/* Runs the body of a routine that has arrays, with the vendor's own objects in the places of the core's: so many. */
int oa_with_objects(const oa_routine *routine, oa_value *values, int device, const oa_object_place *places, int count,
                    int (*body)(const oa_routine *, oa_value *, int));
/* The note of a dtype, and of a shape of so many dimensions. */
oa_note oa_note_of(int dtype, const oa_number_list *shape, int64_t rank);
/* Sets *dtype to the one that an object among the values notes. Fails if it notes none. */
int oa_noted_dtype(const oa_routine *routine, const char *name, const oa_value *object, unsigned char *dtype);
/* Sets *says to the dtype and the shape that it notes. */
int oa_noted_says(const oa_routine *routine, const char *name, const oa_value *object, oa_described *says);
/* Runs a routine that destroys its only value. */
int oa_service_destroy(const oa_routine *routine, oa_value *values, int device);

#endif
