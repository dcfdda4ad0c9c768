/* Objects that a library made for the caller, such as handles and descriptors. */
#ifndef OA_OBJECT_H
#define OA_OBJECT_H

#include "library/library.h"
#include "region/slot.h"

/* Device memory that an object's library may use at any time. The memory lives until the object ends, or gets other
 * memory. */
typedef struct oa_object_memory {
  const char *name; /* name of the parameter that passed it */
  void *keep;       /* the share of the memory, from oa_export */
  struct oa_object_memory *next;
} oa_object_memory;

/* This bit is added to an object that is a number in place of an address, because all 32 bits of the number may be
 * 0. */
#define OA_NUMBERED ((uint64_t)1 << 32)

enum { OA_MOST_HELD = 2 };
/* The highest bit, added to the address of a note; no stamp has it. */
#define OA_NOTED ((uint64_t)1 << 63)

/* The most dimensions of a note, and the numbers that a note has room for. */
enum { OA_MOST_NOTED = 4, OA_NOTED_NUMBERS = 16 };
/* The dtype and shape that an object was set to, or the layouts of a plan (body/fft.c), if the object's library does
 * not report these. */
typedef struct oa_note {
  int dtype; /* OA_ANY: no dtype was noted yet */
  int rank;
  int64_t shape[OA_NOTED_NUMBERS];
} oa_note;

/* An object that another object uses in the library, because a parameter "holds" it. NULL: none. */
typedef struct oa_object_held {
  const char *name; /* name of the parameter */
  struct oa_object_state *object;
} oa_object_held;

/* One object. The fields are constant, with two exceptions: the core's lock guards `busy`, `user`, `held`, `holders`,
 * `graphs`, `ended`, `stays` and `stamp`; `memory` and `note` belong to the call that has the object. */
typedef struct oa_object_state {
  oa_object *handle;
  const oa_library *library;
  const oa_object_kind *kind;
  void *native;
  oa_device *device; /* NULL: the object belongs to no device */
  oa_stream *stream; /* stream of a library's handle, from the device's pool; NULL: none */
  bool busy;         /* a call uses the object, and other calls wait */
  pthread_t user;    /* the thread of the call that uses the object */
  oa_object_memory *memory;
  oa_object_held held[OA_MOST_HELD];
  int holders; /* the number of objects, calls of groups and graphs that hold this object */
  int graphs;  /* the number of graphs among the holders */
  bool ended;  /* the object is stale, and the last holder destroys it */
  oa_abortable aborted;
  bool stays; /* the native part is never destroyed, because the library would wait for graphs of a lost device */
  /* A number that no object had before. The object gets a new stamp whenever a function may have changed the object. */
  uint64_t stamp;
  oa_note note;
  bool has_told; /* the library has reported `told`; both fields belong to the call that has the object */
  int told[OA_MOST_TOLD];
  atomic_bool escaped; /* the native part was exposed, so code outside may change the object */
} oa_object_state;

/* One object among the values of a call. */
typedef struct oa_object_use {
  const char *name; /* name of the parameter */
  const oa_object_kind *kind;
  const void *handle;
  oa_object_state *state; /* set by oa_objects_take */
} oa_object_use;

/* Takes all objects of a call for this thread, once no other call uses one of them. Refuses values that are not live
 * objects of the library and of the right kind, and objects of different devices. */
int oa_objects_take(const char *function, const oa_library *library, oa_object_use *uses, int count);
void oa_objects_return(const oa_object_use *uses, int count);
/* Gives the objects new stamps. */
void oa_objects_renew(const oa_object_use *uses, int count);
/* Returns an object's stamp; 0 if the object may change unnoticed. The call must have taken the object. */
uint64_t oa_object_stamp(const oa_object_state *state);
/* If *handle is an object, takes this object for the call and sets *handle to the vendor's handle. If *handle is a
 * vendor's handle, changes nothing. */
int oa_object_take_handle(oa_call *call, void **handle);
/* Sets *stream to the stream of the call's handle, from its library or from the object. */
int oa_object_handle_stream(const oa_call *call, void *handle, void **stream);
/* Fails for a call that needs a handle and has none. */
__attribute__((cold)) int oa_object_fail_none(const oa_call *call);
/* Ends the call's use of the object from oa_object_take_handle, if there is one. */
void oa_object_return_handle(oa_call *call);
/* Checks that the call's handle belongs to the device. */
int oa_object_check_device(const oa_call *call, const oa_device *device);
/* Makes an object with these fields from a library's native part. The device is current. Takes over the stream. After a
 * failure, destroys `native`. */
int oa_object_make(const char *function, const oa_object_state *fields, oa_object **object);
/* Calls the library to destroy an object's native part; the device is current. */
int oa_object_destroy_native(const char *function, const oa_library *library, const oa_object_kind *kind, void *native);
/* Fails for a function that would end an object while a graph has calls of it. */
__attribute__((cold)) int oa_fail_held(const char *function, const char *name);
/* Takes an object from its users, even while calls use the object. The object is stale from now on, and its state has
 * one more holder. The caller has to destroy *native, and to end the graphs that hold the object if there are any
 * (oa_captures_end). Fails if calls that use the object are being captured. */
int oa_object_seize(const char *function, const oa_library *library, oa_object_use *use, void **native,
                    bool *has_graphs);
/* Waits for calls that use a seized object, as oa_device_wait_change does, and removes the holder that oa_object_seize
 * added. Returns true if this was the last holder, so that the caller has to destroy the remaining parts of the object.
 * If it waits in vain, the object's memory stays in use. */
bool oa_object_drop_seized(oa_object_state *state, bool hurries);
/* Waits for calls that use the object, and makes it stale. *state becomes the state that the caller has to destroy;
 * NULL if the object was stale, or if other objects hold it. */
int oa_object_end(const char *function, const void *object, oa_object_state **state);
/* Replaces the object that `state` holds under the name in `other`. If the object in `other` is NULL, `state` holds no
 * object under that name afterwards. Returns the object to destroy now, or NULL. Called with the lock. */
oa_object_state *oa_object_hold(oa_object_state *state, const oa_object_held *other);

#endif
