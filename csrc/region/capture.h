/* Captures: streams of regions that a program captures into graphs of CUDA or HIP, and the captures of the core's own
 * graphs, which graph/ begins and ends. */
#ifndef OA_CAPTURE_H
#define OA_CAPTURE_H

#include "region/region.h"

/* A group that captured calls use. */
typedef struct oa_captured {
  const void *root;  /* handle of a region's own pointer to the group, or of the capture's pointer to counted memory */
  const void *noted; /* the handle of the first operand that uses the group */
  const oa_mapping *mapping;
  uint64_t serial; /* serial of the mapping */
  int group;
  bool owns;        /* the pointer is the capture's own, so that the memory lives as long as the graph */
  uint64_t address; /* address of the mapping */
  bool reads;       /* the graph reads bytes that the group has before the graph runs */
  bool writes;
} oa_captured;

/* A region's own pointer by which captured calls use a group. */
typedef struct oa_captured_root {
  const void *root; /* the pointer's handle */
  bool writes;
} oa_captured_root;

/* A captured call. */
typedef struct oa_captured_call {
  char function[48];
  int first, uses; /* the call's uses: a range of oa_capture.uses */
} oa_captured_call;

typedef struct oa_captured_use {
  int group; /* index in oa_capture.groups */
  bool reads, writes;
} oa_captured_use;

/* Values of the host that captured copies read. */
typedef struct oa_captured_values {
  struct oa_captured_values *next;
  void *memory; /* pinned */
  size_t nbytes;
} oa_captured_values;

/* Memory of the device that captured calls use while they run. */
typedef struct oa_captured_workspace {
  struct oa_captured_workspace *next;
  uint64_t address;
  size_t nbytes;
} oa_captured_workspace;

/* A handle of a library. The captured calls of this handle use memory of the graph as their workspace. */
typedef struct oa_captured_handle {
  struct oa_captured_handle *next;
  const oa_library *library;
  void *handle;
  bool is_ready; /* a thread has set the handle's workspace, or has found that there is no memory for one */
  bool is_set;
} oa_captured_handle;

/* An object of a library that captured calls use, such as a plan. The graph keeps it. */
typedef struct oa_captured_object {
  struct oa_captured_object *next;
  void *object;
  void (*let_go)(void *object); /* ends the hold of the object */
} oa_captured_object;

/* A capture of a region's calls by the core, and its result. The owner sets the functions. They are called with the
 * lock, and `end` frees it and takes it again. */
typedef struct oa_capture {
  oa_stream *stream; /* the stream that is captured */
  oa_captured *groups;
  int count, capacity;
  oa_captured_root *roots; /* all of the regions' own pointers, even if they are to the same group */
  int root_count, root_capacity;
  oa_captured_values *values;
  int64_t nbytes; /* size of the values */
  oa_captured_workspace *workspaces;
  uint64_t shared; /* address of the largest workspace that calls share */
  size_t shared_bytes;
  oa_captured_handle *handles;
  oa_captured_object *objects;
  oa_captured_call *calls;
  int call_count, call_capacity;
  oa_captured_use *uses;
  int use_count, use_capacity;
  int open;             /* calls that have begun and not ended */
  bool failed;          /* a call failed, or could not be noted: the graph can't be used */
  bool is_whole;        /* the capture has ended */
  oa_abortable aborted; /* set once an object of the calls was aborted */
  /* Ends the graph, unless a thread uses it or its replays run. Returns whether it does. */
  bool (*end)(struct oa_capture *);
  struct oa_capture *next; /* in the list of captures that have held objects */
  bool listed;
} oa_capture;

/* Returns the capture that a call to that stream of the region belongs to; NULL: the core does not capture that
 * stream. */
oa_capture *oa_capture_of(const oa_region_state *region, const oa_stream *stream);
/* Notes a captured call, whose operands are noted next. */
void oa_capture_note_call(oa_capture *capture, const char *function);
/* Notes an operand of the last call. overwrites: the call writes all of the operand's group. reads, writes: the call
 * reads or writes some of the group. */
void oa_capture_note(oa_capture *capture, oa_slot *slot, bool overwrites, bool reads, bool writes);
/* Clears the notes of overwritten groups, after the last call was captured. */
void oa_capture_end(const oa_capture *capture);
/* Allocates pinned memory that lives as long as the graph. Sets *memory. Called without the lock. */
int oa_capture_keep(oa_capture *capture, size_t nbytes, void **memory);
/* Allocates memory of the device that lives as long as the graph, which can use it immediately. Sets *address. Called
 * without the lock. */
int oa_capture_take(oa_capture *capture, const oa_region_state *region, size_t nbytes, uint64_t *address);
/* Does as oa_capture_take. All calls of the graph may get the same memory, because they run one after the other. */
int oa_capture_share(oa_capture *capture, const oa_region_state *region, size_t nbytes, uint64_t *address);
/* Makes the captured calls of the stream's handle use memory of the graph as their workspace, if the library can do so
 * and the device has room. If not, the calls use the library's own memory. Called without the lock, with the device
 * current. */
int oa_capture_equip(oa_capture *capture, const oa_region_state *region, const oa_library *library, void *handle);
/* Notes an object that a captured call uses, unless the object is noted already. *is_new becomes true if the object was
 * not noted: the caller then has to hold it, and the end of the graph calls let_go. Called without the lock. */
int oa_capture_hold(oa_capture *capture, void *object, void (*let_go)(void *object), bool *is_new);
/* Fails with OA_ERROR_CAPTURE if calls that use the object are being captured. Otherwise makes all graphs with calls
 * that use it stale, and what their running replays write undefined; *any: there are such graphs. name: the object's,
 * a literal. Called with the lock. */
int oa_captures_abort(const char *function, const char *name, const void *object, bool *any);
/* Ends these graphs, except those in use. Returns whether none is left. Called with the lock, which it frees and takes
 * again. */
bool oa_captures_end(const void *object);
/* Returns whether replays of these graphs may still run. Called with the lock. */
bool oa_captures_run(const void *object);
/* Returns whether `aborted` belongs to a graph with calls that use the object. Called with the lock. */
bool oa_captures_have(const void *object, const oa_abortable *aborted);
/* Ends the holds of all objects. Called without the lock. */
void oa_capture_let_go(oa_capture *capture);
/* Frees everything that the capture owns, except its stream. Called without the lock. */
void oa_capture_free(oa_capture *capture);

/* Returns whether a region that lends some of the mapping is captured by the core. Called with the lock. */
bool oa_capture_concerns(const oa_mapping *mapping);

/* Fails with OA_ERROR_CAPTURE if a program captures a stream that may touch the mapping: the stream of a region that
 * lends some of the mapping, or a stream on which a call used the mapping. The caller's work on the mapping would be
 * missing from the graph, and would run before the graph. own: the stream of this work, which does not count; or NULL.
 * If *own is not captured, makes *own run after the graphs that such streams may be running. function and name (of the
 * array) are for the message. Called with the lock. */
int oa_capture_check(const char *function, const char *name, const oa_mapping *mapping, oa_stream *own);

#endif
