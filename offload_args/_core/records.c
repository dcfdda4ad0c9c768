/* Records: structures of the core as named tuples, each from one table of its fields.
 *
 * The tables are the only list of the fields; the stub _core.pyi repeats them for static checkers, and a test compares
 * the two. */
#include "module.h"

#include <stddef.h>
#include <string.h>

enum kind { KIND_INT, KIND_INT64, KIND_UINT64, KIND_TEXT, KIND_FLAG, KIND_MODE };

typedef struct {
  const char *name; /* in Python */
  enum kind kind;
  size_t offset;
  const char *doc;
} Field;

/* The kind of a member follows from its C type, except for flags and modes, which are ints in C. */
#define KIND_OF(structure, member) \
  _Generic(((structure *)NULL)->member, int: KIND_INT, int64_t: KIND_INT64, uint64_t: KIND_UINT64, char *: KIND_TEXT)
#define FIELD(structure, member, doc) {#member, KIND_OF(structure, member), offsetof(structure, member), doc}
#define FLAG(structure, member, doc) {#member, KIND_FLAG, offsetof(structure, member), doc}
#define MODE(structure, member, doc) {#member, KIND_MODE, offsetof(structure, member), doc}

#define BACKEND(member, doc) FIELD(oa_backend_info, member, doc)
static const Field backend_info[] = {
    BACKEND(name, "\"cuda\""),
    BACKEND(flags, "the sum of its OA_DEVICE_ flags"),
    BACKEND(dlpack_type, "DLPack's type of its devices; 0: their memory can't be exported"),
};

#define INFO(member, doc) FIELD(oa_device_info, member, doc)
static const Field device_info[] = {
    INFO(name, "\"cuda:0\""),
    INFO(backend, "\"cuda\""),
    INFO(model, "the maker's name for it"),
    INFO(index, "within its backend"),
    INFO(flags, "the sum of its OA_DEVICE_ flags"),
    INFO(memory_free, "bytes"),
    INFO(memory_total, "bytes"),
    INFO(driver_version, "0 where there is no driver"),
    INFO(compute_major, "0 on devices that are not GPUs"),
    INFO(compute_minor, ""),
    INFO(dlpack_type, "DLPack's type of device; 0: its memory can't be exported"),
    INFO(reads_host, "1 if it can read host memory that is not pinned, 2 if it does so by the host's page tables"),
    FLAG(oa_device_info, coherent, "arrays are lent to it without copies"),
};

#define COUNTER(member, doc) FIELD(oa_counters, member, doc)
static const Field counters[] = {
    COUNTER(copies_up, "host to device, one for each array or part of one"),
    COUNTER(bytes_up, "bytes of the copies up"),
    COUNTER(copies_down, "device to host"),
    COUNTER(bytes_down, "bytes of the copies down"),
    COUNTER(allocations, "pieces of memory taken, from the driver or from the pool"),
    COUNTER(frees, "pieces returned to the driver or to the pool"),
    COUNTER(mappings, "live entries of the present table"),
    COUNTER(regions, "live regions"),
    COUNTER(calls, "vendor calls"),
    COUNTER(memory_used, "bytes of the device in use now"),
    COUNTER(memory_peak, "the most bytes that were in use at once"),
    COUNTER(pinned_bytes, "bytes of host memory that is pinned for the device"),
    COUNTER(copies_peer, "from another device, instead of up from the host"),
    COUNTER(bytes_peer, "bytes of the copies from other devices"),
    COUNTER(bytes_former, "bytes copied within the host before calls wrote arrays that the device uses there"),
};

#define RESIDENT(member, doc) FIELD(oa_residency, member, doc)
static const Field residency[] = {
    MODE(oa_residency, mode, "OFFLOAD_ARGS_RESIDENCY"),
    FLAG(oa_residency, tracking,
         "whether writes to host memory can be detected; if not, resident arrays are sent again"),
    RESIDENT(kept, "resident arrays that are not lent now"),
    RESIDENT(kept_bytes, "bytes of these arrays"),
    RESIDENT(returns, "how often a resident array was lent again and read"),
    RESIDENT(bytes_spared, "not sent, because the host's were unchanged"),
    RESIDENT(bytes_resent, "sent again, because they were written or might have been"),
    RESIDENT(pages_armed, "whose next write is slow"),
    RESIDENT(pages_written, "armed pages that were written"),
    RESIDENT(dropped, "arrays evicted under memory pressure"),
    RESIDENT(promoted, "arrays that mode \"auto\" made resident"),
    RESIDENT(demoted, "arrays that it stopped keeping, because they were written"),
};

#define POINTER(member, doc) FLAG(oa_pointer_info, member, doc)
static const Field pointer_info[] = {
    POINTER(readable, ""),
    POINTER(writable, ""),
    POINTER(borrowed, "the device memory is the caller's own"),
    POINTER(escaped, "its address was given away"),
    FIELD(oa_pointer_info, nbytes, "from the first byte to the last, gaps included"),
    POINTER(scratch, "it has no host array"),
    POINTER(valid, "the device has its bytes"),
    POINTER(written, "it was written since it was lent"),
    POINTER(captured, "a chain captures the calls of its region"),
    FIELD(oa_pointer_info, lacking, "at most so many bytes may go up in parts, under other calls"),
    POINTER(in_parts, "calls may overwrite parts of it, and nothing goes up"),
    POINTER(host_writes, "an update lets the host write its array"),
    POINTER(packed, "the device has its array in C order without gaps"),
    POINTER(shared, "another region lent its bytes before"),
};

#define EVENT(member, doc) FIELD(oa_trace_event, member, doc)
static const Field trace_event[] = {
    EVENT(kind, "an OA_TRACE_ number"),
    EVENT(begun, "nanoseconds, as time.monotonic_ns() counts them"),
    EVENT(ended, ""),
    EVENT(nbytes, ""),
    EVENT(tag, "of an enter: the region's tag"),
    EVENT(region, "a number; 0: none"),
    EVENT(address, "of a copy, on the host; 0: unknown"),
    EVENT(checksum, "of a copy; 0: not taken"),
    EVENT(device, "its number"),
    EVENT(thread, "the system's number"),
    EVENT(status, "an oa_status; of a vendor's call, the vendor's"),
    EVENT(batch, "of a copy: how many went together"),
    FLAG(oa_trace_event, packed, "of a copy: it was gathered or scattered on the host"),
    EVENT(name, "the array's or the function's"),
    EVENT(why, "of a copy or wait: its reason"),
};

enum { MOST_FIELDS = 16 };

#define RECORD(type_name, module_name, text, fields) \
  {type_name, "offload_args." module_name, text, fields, sizeof(fields) / sizeof *(fields), NULL}
static struct {
  const char *name, *module, *doc;
  const Field *fields;
  int count;
  PyTypeObject *type; /* a subclass of tuple, made by collections.namedtuple */
} records[] = {
    [RECORD_BACKEND_INFO] = RECORD("BackendInfo", "_core", "One kind of device of this build.", backend_info),
    [RECORD_DEVICE_INFO] = RECORD("DeviceInfo", "_core", "A device, and its memory now.", device_info),
    [RECORD_COUNTERS] = RECORD("Counters", "devices",
                               "The work of a device in this process so far, and its live objects now.", counters),
    [RECORD_RESIDENCY] = RECORD("ResidencyFields", "_core", "The fields of devices.Residency.", residency),
    [RECORD_POINTER_INFO] = RECORD("PointerInfo", "_core", "The state of a pointer's bytes.", pointer_info),
    [RECORD_TRACE_EVENT] = RECORD("TraceEvent", "_core", "An event as the core recorded it.", trace_event),
};
_Static_assert(sizeof records / sizeof *records == RECORD_COUNT, "each record has its table");
_Static_assert(sizeof trace_event / sizeof *trace_event <= MOST_FIELDS, "the longest table");

const char *const residency_modes[] = {
    [OA_RESIDENCY_OFF] = "off", [OA_RESIDENCY_EXPLICIT] = "explicit", [OA_RESIDENCY_AUTO] = "auto", NULL};

static PyObject *value_of(const Field *field, const char *structure) {
  const char *at = structure + field->offset;
  switch (field->kind) {
    case KIND_INT:
      return PyLong_FromLong(*(const int *)at);
    case KIND_INT64:
      return PyLong_FromLongLong(*(const int64_t *)at);
    case KIND_UINT64:
      return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case KIND_TEXT:
      return PyUnicode_DecodeUTF8(at, (Py_ssize_t)strlen(at), "replace");
    case KIND_FLAG:
      return PyBool_FromLong(*(const int *)at);
    default:
      return PyUnicode_FromString(residency_modes[*(const int *)at]);
  }
}

PyObject *record_new(int record, const void *structure) {
  PyTypeObject *type = records[record].type;
  const int count = records[record].count;
  PyObject *values[MOST_FIELDS];
  int filled = 0;
  while (filled < count && (values[filled] = value_of(&records[record].fields[filled], structure)) != NULL) filled++;
  PyObject *tuple = filled < count ? NULL : ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, count);
  for (int i = 0; i < filled; i++) {
    if (tuple == NULL)
      Py_DECREF(values[i]);
    else
      PyTuple_SetItem(tuple, i, values[i]); /* can't fail: the tuple is new and long enough */
  }
  return tuple;
}

/* The names of a record's fields, as a tuple. */
static PyObject *names_of(int record) {
  PyObject *names = PyTuple_New(records[record].count);
  for (int i = 0; names != NULL && i < records[record].count; i++) {
    PyObject *name = PyUnicode_FromString(records[record].fields[i].name);
    if (name == NULL || PyTuple_SetItem(names, i, name) < 0) Py_CLEAR(names);
  }
  return names;
}

/* Sets a docstring. Returns 0, or -1 with an exception; steals object, which may be NULL after a failure. */
static int describe(PyObject *object, const char *text) {
  PyObject *doc = object == NULL ? NULL : PyUnicode_FromString(text);
  const int status = doc == NULL ? -1 : PyObject_SetAttrString(object, "__doc__", doc);
  Py_XDECREF(doc);
  Py_XDECREF(object);
  return status;
}

/* Makes the type of a record; NULL with an exception. */
static PyObject *make_type(int record, PyObject *namedtuple) {
  PyObject *names = names_of(record);
  PyObject *arguments = names == NULL ? NULL : Py_BuildValue("(sN)", records[record].name, names);
  PyObject *keywords = arguments == NULL ? NULL : Py_BuildValue("{ss}", "module", records[record].module);
  PyObject *type = keywords == NULL ? NULL : PyObject_Call(namedtuple, arguments, keywords);
  Py_XDECREF(arguments);
  Py_XDECREF(keywords);
  int failed = type == NULL || describe(Py_NewRef(type), records[record].doc) < 0;
  for (int i = 0; !failed && i < records[record].count; i++) {
    const Field *field = &records[record].fields[i];
    failed = describe(PyObject_GetAttrString(type, field->name), field->doc) < 0;
  }
  if (failed) Py_CLEAR(type);
  return type;
}

int add_records(PyObject *module) {
  PyObject *collections = PyImport_ImportModule("collections");
  PyObject *namedtuple = collections == NULL ? NULL : PyObject_GetAttrString(collections, "namedtuple");
  int failed = namedtuple == NULL;
  for (int i = 0; !failed && i < RECORD_COUNT; i++) {
    PyObject *type = make_type(i, namedtuple);
    records[i].type = (PyTypeObject *)type; /* until the process ends */
    failed = type == NULL || PyModule_AddObjectRef(module, records[i].name, type) < 0;
  }
  Py_XDECREF(namedtuple);
  Py_XDECREF(collections);
  return failed ? -1 : 0;
}
