/* Objects: what a library made for the caller, such as a handle or a descriptor. */
#ifndef OA_OBJECT_H
#define OA_OBJECT_H

#include "library/library.h"
#include "region/slot.h"

/* Device memory that an object's library may use at any time: it lives until the object ends, or gets other memory. */
typedef struct oa_object_memory {
  const char *name; /* of the parameter that gave it */
  const oa_any *pointer;
  void *keep; /* of oa_export */
  struct oa_object_memory *next;
} oa_object_memory;

enum { OA_MOST_HELD = 2 };
/* The highest bit beside the address of a note, which no stamp has. */
#define OA_NOTED ((uint64_t)1 << 63)

enum { OA_MOST_NOTED = 4 };
/* A dtype and a shape that an object was set to, if its library does not tell them. */
typedef struct oa_note {
  int dtype; /* OA_ANY: nothing yet */
  int rank, shape[OA_MOST_NOTED];
} oa_note;

/* An object that another one's library part uses, since a parameter that "holds" it. NULL: none. */
typedef struct oa_object_held {
  const char *name; /* the parameter's; not terminated */
  int name_length;
  struct oa_object_state *object;
} oa_object_held;

/* One object. Its fields are constant, but for `busy`, `user`, `held`, `holders`, `ended` and `stamp`, which
 * the core's lock guards, and `memory` and `note`, which belong to the call that has the object. */
typedef struct oa_object_state {
  oa_object *handle;
  const oa_library *library;
  const oa_object_kind *kind;
  void *native;
  oa_device *device; /* NULL: it belongs to none */
  oa_stream *stream; /* taken from the device's pool, of a library's handle; NULL: none */
  bool busy;         /* a call uses it; others wait */
  pthread_t user;    /* the thread of that call */
  oa_object_memory *memory;
  oa_object_held held[OA_MOST_HELD];
  int holders; /* objects that hold it */
  bool ended;  /* it is stale, and its last holder destroys it */
  /* A number that no object had before; it has a new one whenever a function may have changed it. */
  uint64_t stamp;
  oa_note note;
  atomic_bool escaped; /* its native part was given away, so that code outside may change it */
} oa_object_state;

/* One object among the values of a call. */
typedef struct oa_object_use {
  const char *name; /* the parameter's; not terminated */
  int name_length;
  const oa_object_kind *kind;
  const void *handle;
  oa_object_state *state; /* set by oa_objects_take */
} oa_object_use;

/* Takes all of a call's objects for this thread, once no other call uses one of them. Refuses what is not a live object
 * of the library and of the right kind, and objects of different devices. */
int oa_objects_take(const char *function, const oa_library *library, oa_object_use *uses, int count);
void oa_objects_return(const oa_object_use *uses, int count);
/* Gives objects new stamps. */
void oa_objects_renew(const oa_object_use *uses, int count);
/* Returns an object's stamp; 0 if it may change unnoticed. The call has the object. */
uint64_t oa_object_stamp(const oa_object_state *state);
/* Takes the object that is the handle of a call; *handle becomes the vendor's own. A vendor's own stays as it is. */
int oa_object_take_handle(oa_call *call, void **handle);
/* Sets *stream to that of the call's handle: its library says it, or the object has it. */
int oa_object_handle_stream(const oa_call *call, void *handle, void **stream);
/* Returns the failure of a call that needs a handle and has none. */
__attribute__((cold)) int oa_object_fail_none(const oa_call *call);
/* Returns that object, if there is one. */
void oa_object_return_handle(oa_call *call);
/* Checks that the call's handle is of the device. */
int oa_object_check_device(const oa_call *call, const oa_device *device);
/* Makes the object of what a library made; the device is current. Takes over the stream, and destroys `native` if it
 * fails. */
int oa_object_make(const char *function, const oa_object_state *made, oa_object **object);
/* Has the library destroy its own part; the device is current. */
int oa_object_destroy_native(const char *function, const oa_library *library, const oa_object_kind *kind, void *native);
/* Waits for calls that use the object, and makes it stale. *state: what remains to be destroyed; NULL: nothing does, as
 * it was stale, or other objects hold it. */
int oa_object_end(const char *function, const void *object, oa_object_state **state);
/* Has the object hold another one, or none, in the place of what it held by that name. Returns what is to be destroyed
 * now, or NULL. Under the lock. */
oa_object_state *oa_object_hold(oa_object_state *state, const oa_object_held *other);

#endif
