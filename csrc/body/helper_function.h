/* Helper functions: library functions without device arrays, which make, set, query, name and destroy objects. */
#ifndef OA_HELPER_FUNCTION_H
#define OA_HELPER_FUNCTION_H

#include "body/body.h"
#include "body/descriptor.h"
#include "call/object.h"

enum { OA_MOST_OBJECTS = 16 };

/* The state of a thread before a helper function. */
typedef struct oa_before {
  void *current; /* the current device */
  /* capture mode; -1: unchanged. Helper functions are independent of captures, whatever they allocate or wait for */
  int mode;
} oa_before;

/* One call of a helper function, from oa_helper_begin to oa_helper_end. */
typedef struct oa_helper_call {
  const oa_routine *routine;
  oa_object_use uses[OA_MOST_OBJECTS];
  int use_count;
  oa_device *device; /* NULL: the call works on no device */
  oa_before saved;
  const oa_object_kind *makes;
  int makes_at; /* the index of the new object among the values */
  oa_stream *stream;
  int dtype;                          /* dtype of the memory that the object will keep */
  oa_object_memory *memory;           /* memory that the object will keep; NULL: none */
  const char *forgets;                /* the name of kept memory that is no longer used; NULL: none */
  oa_object_held holds[OA_MOST_HELD]; /* objects that the first object holds from now on */
  int held_at[OA_MOST_HELD];          /* indices of these objects among the uses; -1: none */
  int hold_count;
  oa_note note; /* the new note of the first object, or of the object that is made; OA_ANY: no new note */
} oa_helper_call;

/* Takes the objects among the values, replaces them by the vendor's own, and makes their device current. Clears the
 * outputs. */
int oa_helper_begin(oa_helper_call *call, const oa_routine *routine, oa_value *values);
/* Ends a call that failed before its library function was called. Returns the status. */
int oa_helper_fail(oa_helper_call *call, int status);
/* Makes the call's only object keep memory. The value at index `at` becomes an address. `size` is in elements, or in
 * bytes if the dtype is OA_ANY. A failure ends the call. */
int oa_helper_keep(oa_helper_call *call, oa_value *values, int at, const char *name, int64_t size);
/* Ends the call with the vendor's status. If the library made a native part, makes an object from it. */
int oa_helper_end(oa_helper_call *call, oa_value *values, int vendor_status);
/* An object among a routine's values. */
typedef struct oa_object_place {
  const char *name;
  unsigned char at, kind; /* kind: index of the object's kind among the library's kinds */
  unsigned char optional; /* the caller may pass no object */
  unsigned char changes;  /* the function may change the object */
} oa_object_place;

/* Runs the body of a routine that has arrays. In the values, the `count` objects of the core are replaced by the
 * vendor's own objects. */
int oa_with_objects(const oa_routine *routine, oa_value *values, int device, const oa_object_place *places, int count,
                    int (*body)(const oa_routine *, oa_value *, int));
/* Returns the note of a dtype, and of a shape of that many dimensions. */
oa_note oa_note_of(int dtype, const oa_number_list *shape, int64_t rank);
/* Sets *dtype to the dtype that an object among the values has noted. Fails if the object has no note. */
int oa_noted_dtype(const oa_routine *routine, const char *name, const oa_value *object, unsigned char *dtype);
/* Sets *description to the dtype and the shape of the note. */
int oa_noted_description(const oa_routine *routine, const char *name, const oa_value *object,
                         oa_description *description);
/* Runs a routine that destroys its only value. */
int oa_helper_destroy(const oa_routine *routine, oa_value *values, int device);
/* Runs a routine that destroys its only value, even while other threads use the object. */
int oa_helper_abort(const oa_routine *routine, oa_value *values, int device);
/* Removes a holder of an object. Destroys the object if it has ended and has no other holder. */
int oa_object_let_go(const char *function, oa_object_state *state);
/* Makes the graph that captures an open call hold an object of the call, until the graph ends. */
int oa_object_keep(const oa_call *call, oa_object_state *state);
/* Fails and ends a call whose first object a graph holds. */
int oa_helper_refuse_graphs(oa_helper_call *call);

#endif
