/* Writes lines of a recording without Python. They are lines of calls whose arguments are numbers, short texts and
 * pointers, while only one recording is under way. Python takes these lines when it writes a line itself, or when there
 * are many. A line is made in memory of its thread, and added under the mutex, which no thread holds while it runs
 * Python.
 *
 * If the same line of the program made the same call with the same values shortly before, the call's line has only the
 * number of that earlier call: "again". */
#include "recorded.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALL = 1 << 16, LINE = 1 << 12, INSIDE = 1 << 11, PLACES = 1024, LIBRARIES = 16, DEEPEST = 8 };
enum { REACH = 4096, VALUES = 14 }; /* the most calls between two equal calls; the most values of such a call */

/* A call: its place, thread, function and values, except real numbers. Two calls are the same if the bytes of their
 * keys are equal, and Python wrote no line into the file between them. */
typedef struct {
  const char *library, *name;
  long place, thread;
  uint64_t values[VALUES];
  unsigned char kinds[VALUES];
} Key;

typedef struct {
  int count;
  double at[VALUES];
} Numbers;

/* An outermost call, as it is known before it is made. */
typedef struct {
  unsigned recording; /* that has the place; 0: none has */
  long place;         /* 0: Python has to write the line */
  size_t slot;        /* among the places */
  int is_keyed;
  Key key;
  Numbers numbers;
  long long again; /* the number of the same call before; 0: none */
  int is_same;     /* its numbers are the same, too */
} Outermost;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint direct; /* the number of the recording whose lines are written here; 0: none is */
static struct {
  unsigned last;      /* number of a recording */
  PyObject *pointers; /* a dict by handle, of tuples whose first item is the pointer's number */
  size_t size;        /* of the lines */
  long long calls;    /* in them */
  long long total;    /* of the calls in the file with these lines */
  unsigned batch;     /* how often lines were taken */
  struct timespec taken;
  const char *libraries[LIBRARIES]; /* that the recording has */
  struct {
    PyObject *code;
    long at;
    long number;
    Key key; /* of the last call whose line is written in full */
    Numbers numbers;
    long long call; /* its number */
    unsigned batch; /* in which it was written */
  } places[PLACES]; /* of calls, by code and instruction, which are known faster than lines */
  char text[ALL];
} lines;

/* The portable calls that this thread is in, and the text of the vendor's calls that they made. Other recordings may
 * begin and end meanwhile: the end of a call is handled where its beginning was, here or in Python. */
static _Thread_local struct {
  unsigned recording;
  long thread; /* its number in the recording */
  int depth;
  int told;              /* of calls whose beginning was reported to Python */
  Outermost outermost;   /* of them */
  size_t begun[DEEPEST]; /* where the text of each one's calls begins */
  size_t size;
  char text[INSIDE];
} inside;

typedef struct {
  char *at, *end;
  PyObject *pointers;
} Text;

/* -- text: each function returns 0 if there is no room, or no text for a value ------------------------------------- */
static int put_bytes(Text *text, const char *bytes, size_t size) {
  if ((size_t)(text->end - text->at) < size) return 0;
  memcpy(text->at, bytes, size);
  text->at += size;
  return 1;
}

static int put(Text *text, const char *words) { return put_bytes(text, words, strlen(words)); }

static int put_integer(Text *text, long long number) {
  char digits[24], *at = digits + sizeof digits;
  unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
  do *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (number < 0) *--at = '-';
  return put_bytes(text, at, (size_t)(digits + sizeof digits - at));
}

static _Thread_local struct {
  double number; /* 0: none, as in a new thread */
  char digits[32];
} known; /* the number that was written last */

static int put_real(Text *text, double number) {
  if (!isfinite(number)) return 0;
  if (number == 0) return put(text, signbit(number) ? "-0.0" : "0.0");
  if (fabs(number) < 1e15 && number != 0 && number == (double)(long long)number)
    return put_integer(text, (long long)number) && put(text, ".0");
  if (number != known.number) { /* the vendor's call has the numbers of the portable one */
    char *digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (digits == NULL) return 0;
    const int fits = snprintf(known.digits, sizeof known.digits, "%s", digits) < (int)sizeof known.digits;
    PyMem_Free(digits);
    known.number = fits ? number : 0;
    if (!fits) return 0;
  }
  return put(text, known.digits);
}

static int put_letters(Text *text, PyObject *letters) {
  Py_ssize_t size;
  const char *bytes = PyUnicode_AsUTF8AndSize(letters, &size);
  if (bytes == NULL) return 0;
  for (Py_ssize_t i = 0; i < size; i++)
    if (bytes[i] < 0x20 || bytes[i] > 0x7e || bytes[i] == '"' || bytes[i] == '\\') return 0;
  return put(text, "\"") && put_bytes(text, bytes, (size_t)size) && put(text, "\"");
}

static int put_value(Text *text, PyObject *value, int depth);

static int put_values(Text *text, PyObject *tuple, int depth) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (!put(text, "[")) return 0;
  for (Py_ssize_t i = 0; i < count; i++)
    if ((i > 0 && !put(text, ",")) || !put_value(text, PyTuple_GetItem(tuple, i), depth + 1)) return 0;
  return put(text, "]");
}

static int put_pointer(Text *text, const Pointer *pointer) {
  PyObject *key = PyLong_FromVoidPtr(pointer->root);
  PyObject *row = key == NULL ? NULL : PyObject_GetItem(text->pointers, key);
  Py_XDECREF(key);
  if (row == NULL) return 0;
  const long number = PyLong_AsLong(PyTuple_GetItem(row, 0));
  Py_DECREF(row);
  if (number <= 0 || !put(text, "{\"p\":") || !put_integer(text, number)) return 0;
  if (pointer->root == pointer->handle) return put(text, "}");
  int64_t first;
  return pointer_first(pointer, &first) == 0 && put(text, ",\"offset\":") && put_integer(text, first) &&
         put(text, ",\"shape\":") && put_values(text, pointer->shape, 0) && put(text, ",\"strides\":") &&
         put_values(text, pointer->strides, 0) && put(text, "}");
}

static int put_value(Text *text, PyObject *value, int depth) {
  if (value == Py_None) return put(text, "null");
  if (value == Py_True) return put(text, "true");
  if (value == Py_False) return put(text, "false");
  if (PyObject_TypeCheck(value, (PyTypeObject *)python.pointer)) return put_pointer(text, (const Pointer *)value);
  if (PyLong_CheckExact(value)) {
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && put_integer(text, number);
  }
  if (PyFloat_CheckExact(value)) return put_real(text, PyFloat_AsDouble(value));
  if (PyUnicode_CheckExact(value)) return put_letters(text, value);
  if (depth > 2 || !(PyTuple_CheckExact(value) || PyList_CheckExact(value))) return 0;
  PyObject *tuple = PySequence_Tuple(value); /* no other thread changes it */
  const int done = tuple != NULL && put_values(text, tuple, depth);
  Py_XDECREF(tuple);
  return done;
}

/* Puts a call as an object of JSON without its closing brace, so that keys may follow. */
static int put_call(Text *text, const Recorded *call) {
  const Py_ssize_t named = call->names == NULL ? 0 : PyTuple_Size(call->names);
  if (!put(text, call->library == NULL ? "{\"blas\":\"" : "{\"call\":\"")) return 0;
  if (call->library != NULL && !(put(text, call->library) && put(text, "."))) return 0;
  if (!put(text, call->name) || !put(text, "\",\"args\":[")) return 0;
  for (Py_ssize_t i = 0; i < call->count; i++)
    if ((i > 0 && !put(text, ",")) || !put_value(text, call->values[i], 0)) return 0;
  if (!put(text, "]")) return 0;
  for (Py_ssize_t i = 0; i < named; i++)
    if (!put(text, i == 0 ? ",\"names\":{" : ",") || !put_letters(text, PyTuple_GetItem(call->names, i)) ||
        !put(text, ":") || !put_value(text, call->values[call->count + i], 0))
      return 0;
  return named == 0 || put(text, "}");
}

/* -- the user's line ----------------------------------------------------------------------------------------------- */
/* Gets a fact from Python. Returns a new reference; NULL with an exception. */
static PyObject *ask(const char *kind, PyObject *subject) {
  return PyObject_CallFunction(python.done, "sOOOOO", kind, subject, Py_None, Py_None, Py_None, Py_None);
}

/* Returns the number of the calling line; 0 if Python has to write the call; -1 with an exception. */
static long place_of_caller(unsigned recording_number, size_t *slot) {
  PyFrameObject *frame = PyEval_GetFrame();
  if (frame == NULL) return 0;
  static _Atomic(PyObject *) known_name; /* made once, or by several threads the same */
  PyObject *name = atomic_load(&known_name);
  if (name == NULL) atomic_store(&known_name, name = PyUnicode_InternFromString("f_lasti"));
  PyObject *instruction = name == NULL ? NULL : PyObject_GetAttr((PyObject *)frame, name), *old = NULL;
  if (instruction == NULL) return -1;
  const long here = PyLong_AsLong(instruction);
  Py_DECREF(instruction);
  PyObject *code = (PyObject *)PyFrame_GetCode(frame);
  const size_t at = *slot = (((uintptr_t)code >> 5) + (unsigned long)here * 31U) % PLACES;
  pthread_mutex_lock(&mutex);
  long number = lines.places[at].code == code && lines.places[at].at == here ? lines.places[at].number : 0;
  pthread_mutex_unlock(&mutex);
  if (number == 0) {
    PyObject *answer = ask("where", Py_None); /* the number, or 0 if this line is the package's; None after the end */
    number = answer == NULL ? -1 : answer == Py_None ? 0 : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    pthread_mutex_lock(&mutex);
    if (number > 0 && lines.last == recording_number) {
      old = lines.places[at].code;
      lines.places[at].code = Py_NewRef(code);
      lines.places[at].at = here;
      lines.places[at].number = number;
      lines.places[at].call = 0;
    }
    pthread_mutex_unlock(&mutex);
  }
  Py_DECREF(code);
  Py_XDECREF(old);
  return number;
}

/* -- the same call again ------------------------------------------------------------------------------------------- */
/* Each returns 0 if a value has no place in a key. */
static int key_letters(PyObject *letters, uint64_t *word) {
  Py_ssize_t size;
  const char *bytes = PyUnicode_AsUTF8AndSize(letters, &size);
  if (bytes == NULL) PyErr_Clear();
  if (bytes == NULL || size > (Py_ssize_t)sizeof *word || strlen(bytes) != (size_t)size) return 0;
  memcpy(word, bytes, (size_t)size);
  return 1;
}

static int key_value(PyObject *value, uint64_t *word, unsigned char *kind, Numbers *numbers) {
  enum { CONSTANT = 1, INTEGER, REAL, LETTERS, POINTER };
  if (value == Py_None || value == Py_True || value == Py_False) {
    *kind = CONSTANT;
    *word = (uintptr_t)value;
  } else if (PyFloat_CheckExact(value)) {
    *kind = REAL;
    numbers->at[numbers->count++] = PyFloat_AsDouble(value);
  } else if (PyLong_CheckExact(value)) {
    int overflow;
    *kind = INTEGER;
    *word = (uint64_t)PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0;
  } else if (Py_TYPE(value) == (PyTypeObject *)python.pointer) {
    const Pointer *pointer = (const Pointer *)value;
    *kind = POINTER;
    *word = (uintptr_t)pointer->handle;
    return pointer->root == pointer->handle; /* until its region ends, of which Python writes a line */
  } else {
    *kind = LETTERS;
    return PyUnicode_CheckExact(value) && key_letters(value, word);
  }
  return 1;
}

static int make_key(Key *key, Numbers *numbers, const Recorded *call, long place) {
  const Py_ssize_t named = call->names == NULL ? 0 : PyTuple_Size(call->names);
  if (call->count + 2 * named > VALUES) return 0;
  memset(key, 0, sizeof *key);
  numbers->count = 0;
  key->library = call->library;
  key->name = call->name;
  key->place = place;
  key->thread = inside.thread;
  int at = 0;
  for (Py_ssize_t i = 0; i < call->count + named; i++, at++)
    if (!key_value(call->values[i], &key->values[at], &key->kinds[at], numbers)) return 0;
  for (Py_ssize_t i = 0; i < named; i++, at++)
    if (!key_letters(PyTuple_GetItem(call->names, i), &key->values[at])) return 0;
  return 1;
}

/* Finds the number of an earlier call that was the same, if its line is near enough. */
static void find_same(Outermost *call) {
  pthread_mutex_lock(&mutex);
  const int is_known = lines.places[call->slot].call > 0 && lines.places[call->slot].batch == lines.batch &&
                       memcmp(&lines.places[call->slot].key, &call->key, sizeof call->key) == 0;
  call->again = is_known ? lines.places[call->slot].call : 0;
  call->is_same = is_known && memcmp(lines.places[call->slot].numbers.at, call->numbers.at,
                                     (size_t)call->numbers.count * sizeof *call->numbers.at) == 0;
  pthread_mutex_unlock(&mutex);
}

/* Finds the place and the key of an outermost call. Returns -1 with an exception. */
static int find_before(Outermost *outermost, unsigned recording_number, const Recorded *call) {
  outermost->recording = recording_number;
  outermost->place = place_of_caller(recording_number, &outermost->slot);
  outermost->is_keyed = outermost->place > 0 && make_key(&outermost->key, &outermost->numbers, call, outermost->place);
  outermost->again = 0;
  if (outermost->is_keyed) find_same(outermost);
  return outermost->place < 0 ? -1 : 0;
}

int lines_are_known(void) { return inside.depth > 0 && inside.outermost.again > 0; }

/* Reports a library to Python at its first call. Returns -1 with an exception. */
static int note_library(const char *library) {
  int known = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < LIBRARIES && !known; i++) {
    if (lines.libraries[i] == NULL) {
      lines.libraries[i] = library;
      break;
    }
    known = strcmp(lines.libraries[i], library) == 0;
  }
  pthread_mutex_unlock(&mutex);
  if (known) return 0;
  PyObject *name = PyUnicode_FromString(library), *none = name == NULL ? NULL : ask("library", name);
  Py_XDECREF(name);
  Py_XDECREF(none);
  return none == NULL ? -1 : 0;
}

/* -- lines --------------------------------------------------------------------------------------------------------- */
/* Adds a line. If the same call was made before, the line refers to that call. Returns 1; 0 if there is no room, or if
 * another recording has begun. *is_late: lines should be taken now. */
static int add_line(const Outermost *call, const Text *text, const char *line, int *is_late) {
  struct timespec now;
  const size_t size = (size_t)(text->at - line);
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  pthread_mutex_lock(&mutex);
  const int fits = atomic_load(&direct) == call->recording && lines.size + size <= ALL &&
                   (call->again == 0 || lines.total - call->again < REACH);
  if (fits) {
    memcpy(lines.text + lines.size, line, size);
    lines.size += size;
    lines.calls++;
    lines.total++;
    if (call->is_keyed && call->again == 0) {
      lines.places[call->slot].key = call->key;
      lines.places[call->slot].numbers = call->numbers;
      lines.places[call->slot].call = lines.total;
      lines.places[call->slot].batch = lines.batch;
    }
  }
  *is_late = lines.size > ALL - LINE ||
             (now.tv_sec - lines.taken.tv_sec) * 1000000000LL + now.tv_nsec - lines.taken.tv_nsec > 500000000LL;
  pthread_mutex_unlock(&mutex);
  return fits;
}

/* Has Python take the lines if it is time. Returns 1, or -1 with an exception. */
static int take_in_time(int is_late) {
  PyObject *none = is_late ? ask("flush", Py_None) : Py_NewRef(Py_None);
  Py_XDECREF(none);
  return none == NULL ? -1 : 1;
}

/* Puts a number as float.fromhex reads it: all its bits, at little cost. Returns 0 if it is not finite. */
static int put_hexadecimal(Text *text, double number) {
  char letters[] = "\"-0x1.0123456789abcp";
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  const int exponent = (int)(bits >> 52) & 0x7ff;
  if (exponent == 0x7ff) return 0;
  letters[1] = bits >> 63 ? '-' : '+';
  letters[4] = exponent == 0 ? '0' : '1';
  for (int i = 0; i < 13; i++) letters[6 + i] = "0123456789abcdef"[bits >> (48 - 4 * i) & 15];
  return put(text, letters) && put_integer(text, exponent == 0 ? -1022 : exponent - 1023) && put(text, "\"");
}

static int write_again(const Outermost *call) {
  char line[1 << 9];
  Text text = {line, line + sizeof line, NULL};
  int is_late = 0;
  int done = put(&text, "{\"again\":") && put_integer(&text, call->again);
  for (int i = 0; done && !call->is_same && i < call->numbers.count; i++)
    done = put(&text, i == 0 ? ",\"numbers\":[" : ",") && put_hexadecimal(&text, call->numbers.at[i]);
  done = done && put(&text, call->is_same ? "}\n" : "]}\n") && add_line(call, &text, line, &is_late);
  return done ? take_in_time(is_late) : 0;
}

/* Adds the text of a call to the text of the call that made it, if there is room. */
static void keep_inside(const char *text, size_t size) {
  if (inside.size + size + 2 > INSIDE) return;
  inside.text[inside.size] = ',';
  memcpy(inside.text + inside.size + 1, text, size);
  inside.text[inside.size + size + 1] = '}';
  inside.size += size + 2;
}

/* Writes the line of an outermost call; if `outermost` is NULL, the text of an inner call. Returns 1; 0 if Python has
 * to write it; -1 with an exception. */
static int write_line(unsigned recording_number, const Recorded *call, const Outermost *outermost, const char *calls,
                      size_t size) {
  char line[LINE];
  Text text = {line, line + sizeof line, NULL};
  pthread_mutex_lock(&mutex);
  text.pointers = lines.last == recording_number ? Py_XNewRef(lines.pointers) : NULL;
  pthread_mutex_unlock(&mutex);
  if (text.pointers == NULL) return 0;
  int done = put_call(&text, call);
  Py_DECREF(text.pointers);
  if (PyErr_Occurred()) PyErr_Clear(); /* Python writes it */
  if (!done) return 0;
  if (outermost == NULL) {
    keep_inside(line, (size_t)(text.at - line));
    return 1;
  }
  int is_late = 0;
  done = (call->library != NULL || (put(&text, ",\"calls\":[") && put_bytes(&text, calls, size) && put(&text, "]"))) &&
         put(&text, ",\"at\":") && put_integer(&text, outermost->place) && put(&text, ",\"thread\":") &&
         put_integer(&text, inside.thread) && put(&text, "}\n") && add_line(outermost, &text, line, &is_late);
  return done ? take_in_time(is_late) : 0;
}

/* Begins the thread's part in a recording. Returns the recording's number; 0 if Python writes it; -1 with an exception.
 */
static int64_t join(void) {
  const unsigned number = atomic_load_explicit(&direct, memory_order_relaxed);
  if (number == 0 || inside.recording == number) return number;
  PyObject *answer = ask("thread", Py_None);
  if (answer == NULL) return -1;
  const long thread = answer == Py_None ? 0 : PyLong_AsLong(answer);
  Py_DECREF(answer);
  if (thread <= 0) return PyErr_Occurred() ? -1 : 0;
  inside.recording = number;
  inside.thread = thread;
  return number;
}

int lines_begin(const Recorded *call) {
  const int64_t number = inside.told > 0 ? 0 : join();
  if (number < 0) return -1;
  if (number == 0 && inside.depth == 0) {
    inside.told++;
    return 0;
  }
  if (inside.depth == 0) {
    Outermost outermost; /* finalizers may make calls meanwhile */
    if (find_before(&outermost, (unsigned)number, call) < 0) return -1;
    inside.outermost = outermost;
    inside.size = 0;
  }
  if (inside.depth < DEEPEST) inside.begun[inside.depth] = inside.size;
  inside.depth++;
  return 1;
}

void lines_told(void) { inside.told--; }

int lines_end(const Recorded *call, PyObject *result) {
  const char *calls = "";
  if (inside.told > 0) return 0;
  size_t size = 0;
  if (call->library == NULL && inside.depth > 0) {
    inside.depth--;
    if (inside.depth < DEEPEST) {
      calls = inside.text + inside.begun[inside.depth];
      size = inside.size - inside.begun[inside.depth];
      inside.size = inside.begun[inside.depth];
    }
    if (size > 0) calls++, size--; /* the comma before the first one */
  }
  const int is_plain = result != NULL && (result == Py_None || PyNumber_Check(result)); /* no object of a library */
  if (inside.depth > 0) { /* the call around it is recorded */
    if (!is_plain || inside.outermost.again > 0) return 1;
    const int64_t number = join();
    if (number > 0 && call->library != NULL && note_library(call->library) < 0) return -1;
    return number < 0 || (number > 0 && write_line((unsigned)number, call, NULL, "", 0) < 0) ? -1 : 1;
  }
  Outermost outermost = inside.outermost;
  const int64_t number = is_plain ? join() : 0; /* with an exception no Python function is called */
  if (number <= 0) return (int)number;
  if (call->library != NULL && note_library(call->library) < 0) return -1;
  if ((call->library != NULL || outermost.recording != (unsigned)number) &&
      find_before(&outermost, (unsigned)number, call) < 0)
    return -1;
  if (outermost.place == 0) return 0;
  return outermost.again > 0 ? write_again(&outermost) : write_line((unsigned)number, call, &outermost, calls, size);
}

/* Returns a tuple of lines, which it frees, and of the number of calls in them. */
static PyObject *taken(char *copy, size_t size, long long calls) {
  PyObject *pair = copy == NULL ? PyErr_NoMemory() : Py_BuildValue("y#L", copy, (Py_ssize_t)size, calls);
  free(copy);
  return pair;
}

/* Returns the lines since the last time and the number of calls in them; written: the calls that Python writes now. */
static PyObject *take(long written) {
  pthread_mutex_lock(&mutex);
  const size_t size = lines.size;
  const long long calls = lines.calls;
  char *copy = malloc(size + 1);
  if (copy != NULL) {
    memcpy(copy, lines.text, size);
    lines.size = 0;
    lines.calls = 0;
    lines.total += written;
    lines.batch++;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &lines.taken);
  }
  pthread_mutex_unlock(&mutex);
  return taken(copy, size, calls);
}

/* (the number of calls that Python writes now) -> (the lines since the last time, the number of calls in them) */
PyObject *lines_take(PyObject *Py_UNUSED(module), PyObject *written) {
  const long count = PyLong_AsLong(written);
  return count == -1 && PyErr_Occurred() ? NULL : take(count);
}

/* (pointers or None, the number of calls in its file): writes lines for another recording, which has these pointers, or
 * none. Returns as lines_take. */
PyObject *lines_set(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *codes[PLACES], *old, *pointers;
  long long calls;
  if (!PyArg_ParseTuple(arguments, "OL", &pointers, &calls)) return NULL;
  atomic_store(&direct, 0);
  PyObject *pair = take(0);
  if (pair == NULL) return NULL;
  pthread_mutex_lock(&mutex);
  lines.total = calls;
  old = lines.pointers;
  lines.pointers = pointers == Py_None ? NULL : Py_NewRef(pointers);
  lines.last++;
  for (int i = 0; i < PLACES; i++) {
    codes[i] = lines.places[i].code;
    lines.places[i].code = NULL;
    lines.places[i].call = 0;
  }
  memset(lines.libraries, 0, sizeof lines.libraries);
  if (pointers != Py_None) atomic_store(&direct, lines.last);
  pthread_mutex_unlock(&mutex);
  Py_XDECREF(old);
  for (int i = 0; i < PLACES; i++) Py_XDECREF(codes[i]);
  return pair;
}

/* () -> whether this thread is in a call of blas whose line is written here */
PyObject *lines_are_inside(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return PyBool_FromLong(inside.depth > 0);
}

void lines_after_fork(void) {
  pthread_mutex_init(&mutex, NULL);
  atomic_store(&direct, 0);
  lines.size = 0;
  lines.calls = 0;
}
