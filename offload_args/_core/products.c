/* The routines of portable BLAS that are called most: gemm, gemm_strided_batched and gemv. Each is a builtin that has
 * the vendor's routine run at once where operands and options are the usual ones. All other calls go to the function
 * in Python, which takes every call, and says what is wrong with one. */
#include "function.h"

#include <string.h>

/* A function that stands for a routine on a device and for a dtype. It is never freed. */
typedef struct Chosen {
  struct Chosen *next;
  int device, dtype;
  PyObject *routine;        /* whose it is */
  PyObject *callable;       /* the vendor's function, or one in Python that stands for it; NULL: there is none */
  const Function *function; /* of a callable that is a builtin, else NULL */
  int64_t order[2];         /* its first argument, of matrices by columns and by rows; -1: it has none */
  int64_t op[2][3];         /* its "N", "T" and "C", of a matrix and of one stored as its transpose; -1: none */
} Chosen;

/* One builtin's data. It lives as long as the module object that is the builtin's self. */
typedef struct {
  PyObject *rare;        /* the function in Python */
  PyObject *choose;      /* (routine, pointer) -> (function, orders, op, flipped), or None; see choose() */
  PyObject *note;        /* (error, C) adds what a failure of the vendor's function needs; or None */
  PyObject *routines;    /* a tuple of them, one a form */
  PyObject *name, *text; /* what the method's strings belong to */
  PyMethodDef method;
  _Atomic(Chosen *) chosen;
} Product;

enum { PLAIN, TRANSPOSED, CONJUGATED }; /* options, as places in Chosen.op */

/* -- what stands for a routine ------------------------------------------------------------------------------------- */
/* Returns whether a function takes such arguments in column-major order; 'o', 'e', 's', 'n', 'a': an order, another
 * enum, a size, a number and an array. */
static int takes(const Function *function, const char *kinds) {
  static const char letters[] = {[ENUM] = 'e', [SIZE] = 's', [SCALAR] = 'n', [ARRAY] = 'a'};
  if (function->is_service || function->has_result || function->has_outputs || function->routine->typed_count) return 0;
  if ((size_t)function->positional != strlen(kinds)) return 0;
  for (int i = 0; i < function->positional; i++) {
    const enum kind kind = function->parameters[i].kind;
    if ((size_t)kind >= sizeof letters || letters[kind] != kinds[i]) return 0;
  }
  return 1;
}

/* Asks Python for what stands for a routine, and keeps it. kinds: the arguments, for a function without and with an
 * order. NULL with an exception. */
static __attribute__((cold, noinline)) const Chosen *choose(Product *self, const Pointer *pointer, PyObject *routine,
                                                            const char *kinds) {
  PyObject *found = PyObject_CallFunctionObjArgs(self->choose, routine, (PyObject *)pointer, NULL);
  Chosen *made = found == NULL ? NULL : PyMem_Calloc(1, sizeof *made);
  if (made == NULL) {
    if (found != NULL) PyErr_NoMemory();
    Py_XDECREF(found);
    return NULL;
  }
  PyObject *function = NULL;
  long long order[2], op[2][3];
  if (found != Py_None && PyArg_ParseTuple(found, "O(LL)(LLL)(LLL)", &function, &order[0], &order[1], &op[0][0],
                                           &op[0][1], &op[0][2], &op[1][0], &op[1][1], &op[1][2])) {
    for (int i = 0; i < 2; i++) {
      made->order[i] = order[i];
      for (int k = 0; k < 3; k++) made->op[i][k] = op[i][k];
    }
    made->callable = Py_NewRef(function);
    made->function = function_of(function);
    if (made->function != NULL && !takes(made->function, order[0] < 0 ? kinds + 1 : kinds)) made->function = NULL;
  }
  Py_DECREF(found);
  if (PyErr_Occurred()) {
    Py_XDECREF(made->callable);
    PyMem_Free(made);
    return NULL;
  }
  made->device = pointer->device_number;
  made->dtype = pointer->dtype;
  made->routine = routine;
  made->next = atomic_load(&self->chosen);
  while (!atomic_compare_exchange_weak(&self->chosen, &made->next, made)) continue;
  return made;
}

/* Returns what stands for a routine on the pointer's device. NULL if there is nothing, perhaps with an exception. */
static inline const Chosen *chosen_for(Product *self, const Pointer *pointer, PyObject *routine, const char *kinds) {
  const Chosen *one = atomic_load_explicit(&self->chosen, memory_order_acquire);
  while (one != NULL &&
         (one->routine != routine || one->dtype != pointer->dtype || one->device != pointer->device_number))
    one = one->next;
  if (__builtin_expect(one == NULL, 0)) one = choose(self, pointer, routine, kinds);
  return one != NULL && one->callable != NULL ? one : NULL;
}

/* -- arguments ----------------------------------------------------------------------------------------------------- */
/* Reads an option: "N", "T" or "C". Returns -1 for anything else. */
static int read_option(PyObject *object) {
  if (!PyUnicode_Check(object) || PyUnicode_GetLength(object) != 1) return -1;
  switch (PyUnicode_ReadChar(object, 0)) {
    case 'N':
      return PLAIN;
    case 'T':
      return TRANSPOSED;
    case 'C':
      return CONJUGATED;
    default:
      return -1;
  }
}

/* Reads the options that are given by name. Returns 0, or -1 if Python has to. */
static int read_options(PyObject *const *values, PyObject *names, const char *const *known, int count, int *options) {
  const Py_ssize_t given = names == NULL ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < given; i++) {
    int at = 0;
    while (at < count && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), known[at]) != 0) at++;
    if (at == count || (options[at] = read_option(values[i])) < 0) return -1;
  }
  return 0;
}

/* Returns the geometry of a DevicePtr; NULL of anything else, or with an exception. */
static inline const Geometry *read_operand(PyObject *object) {
  if (Py_TYPE(object) != (PyTypeObject *)python.pointer) return NULL;
  const Geometry *known = atomic_load(&((Pointer *)object)->geometry);
  return __builtin_expect(known != NULL, 1) ? known : pointer_geometry((Pointer *)object);
}

/* The arguments of a call as they are filled: values for a routine, or a tuple for any callable. */
typedef struct {
  int count;
  PyObject *objects; /* the tuple; NULL: values */
  oa_value values[MOST_VALUES];
} Values;

static inline void put_object(Values *to, PyObject *object) { PyTuple_SetItem(to->objects, to->count++, object); }

static inline void put_integer(Values *to, int64_t integer) {
  if (__builtin_expect(to->objects != NULL, 0))
    put_object(to, PyLong_FromLongLong(integer)); /* NULL, with an exception, without memory */
  else
    to->values[to->count++].integer = integer;
}

static inline void put_pointer(Values *to, PyObject *pointer) {
  if (__builtin_expect(to->objects != NULL, 0))
    put_object(to, Py_NewRef(pointer));
  else
    to->values[to->count++].pointer = ((Pointer *)pointer)->handle;
}

/* Returns 0, or -1 with or without an exception. */
static inline int put_number(Values *to, PyObject *object, int dtype) {
  if (__builtin_expect(to->objects == NULL, 1))
    return function_read_number(object, dtype, to->values[to->count++].bytes);
  put_object(to, Py_NewRef(object));
  return 0;
}

/* Starts the arguments of a call with those two numbers. length: of a function's without an order. Returns 0, or -1
 * with an exception. */
static inline int start(Values *to, const Chosen *chosen, PyObject *alpha, PyObject *beta, int length) {
  const int on_device = pointer_of(alpha) != NULL || pointer_of(beta) != NULL;
  const int has_order = chosen->order[0] >= 0;
  to->count = 0;
  to->objects = NULL;
  if (__builtin_expect(chosen->function != NULL && !on_device, 1)) return 0;
  to->objects = PyTuple_New(length + has_order);
  return to->objects == NULL ? -1 : 0;
}

static __attribute__((noinline)) int run_callable(const Chosen *chosen, PyObject *arguments) {
  PyObject *done = PyErr_Occurred() ? NULL : PyObject_Call(chosen->callable, arguments, NULL);
  Py_DECREF(arguments);
  Py_XDECREF(done);
  return done == NULL ? -1 : 1;
}

/* Has the routine run. Returns 1, or -1 with an exception. written: the operand that it writes. */
static int run(const Product *self, const Chosen *chosen, Values *values, PyObject *written) {
  int status = OA_OK;
  if (__builtin_expect(values->objects != NULL, 0)) {
    if (run_callable(chosen, values->objects) > 0) return 1;
  } else {
    const oa_routine *routine = chosen->function->routine;
    Py_BEGIN_ALLOW_THREADS status = routine->run(routine, values->values, 0);
    Py_END_ALLOW_THREADS if (__builtin_expect(status == OA_OK, 1)) return 1;
    fail(status);
  }
  if (self->note == Py_None) return -1;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  Py_XDECREF(PyObject_CallFunctionObjArgs(self->note, error, written, NULL));
  PyErr_Restore(type, error, traceback); /* instead of one of the note itself */
  return -1;
}

/* Calls the function in Python. */
static __attribute__((noinline)) PyObject *call_rare(const Product *self, PyObject *const *given, Py_ssize_t count,
                                                     PyObject *names) {
  PyObject *positional = PyTuple_New(count), *keywords = names == NULL ? NULL : PyDict_New(), *result = NULL;
  for (Py_ssize_t i = 0; positional != NULL && i < count; i++) PyTuple_SetItem(positional, i, Py_NewRef(given[i]));
  for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_Size(names); i++)
    if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), given[count + i]) < 0) Py_CLEAR(keywords);
  if (positional != NULL && (names == NULL || keywords != NULL))
    result = PyObject_Call(self->rare, positional, keywords);
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

/* Returns the result of a call: done: 1; 0: Python has to make it; or -1 with an exception. */
static inline PyObject *finish(const Product *self, int done, PyObject *const *given, Py_ssize_t count,
                               PyObject *names) {
  if (__builtin_expect(done > 0, 1)) Py_RETURN_NONE;
  if (done < 0) return NULL;
  PyErr_Clear(); /* Python raises it again, or something better */
  return call_rare(self, given, count, names);
}

/* -- products of matrices ------------------------------------------------------------------------------------------ */
static int do_fit(const Geometry *a, const Geometry *b, const Geometry *c, const int *options) {
  return (options[0] == PLAIN ? a->rows : a->columns) == c->rows &&
         (options[1] == PLAIN ? b->columns : b->rows) == c->columns &&
         (options[0] == PLAIN ? a->columns : a->rows) == (options[1] == PLAIN ? b->rows : b->columns) &&
         (a->count == 1 || a->count == c->count) && (b->count == 1 || b->count == c->count);
}

/* An operand as the vendor's function takes it. */
typedef struct {
  int64_t op, ld;
} Factor;

/* Finds how a library that goes by columns (0) or by rows (1) takes an operand. Returns 0 if it can't. */
static inline int read_factor(Factor *factor, const Chosen *chosen, const Geometry *matrix, int option, int by_rows) {
  const int other = matrix->ld[by_rows] == 0; /* then it is the transpose that has the order */
  factor->op = chosen->op[other][option];
  factor->ld = matrix->ld[by_rows != other];
  return factor->op >= 0 && factor->ld != 0;
}

/* Fills the arguments of a product of matrices that were found to fit. operands: A and B in the order of the call, then
 * C; factors, and geometries likewise. Returns 0, or -1 with or without an exception. */
static inline int fill_product(Values *to, const Chosen *chosen, PyObject *const *operands, const Factor *factors,
                               const Geometry *const *geometries, int64_t k, PyObject *alpha, PyObject *beta,
                               int by_rows) {
  const Geometry *c = geometries[2];
  const int is_batch = c->dimensions == 3, dtype = chosen->dtype;
  if (start(to, chosen, alpha, beta, is_batch ? 17 : 13)) return -1;
  if (chosen->order[0] >= 0) put_integer(to, chosen->order[0]);
  put_integer(to, factors[0].op);
  put_integer(to, factors[1].op);
  put_integer(to, by_rows ? c->columns : c->rows);
  put_integer(to, by_rows ? c->rows : c->columns);
  put_integer(to, k);
  if (put_number(to, alpha, dtype)) return -1;
  for (int i = 0; i < 3; i++) {
    put_pointer(to, operands[i]);
    put_integer(to, i < 2 ? factors[i].ld : c->ld[by_rows]);
    if (is_batch) put_integer(to, geometries[i]->stride);
    if (i == 1 && put_number(to, beta, dtype)) return -1;
  }
  if (is_batch) put_integer(to, c->count);
  return 0;
}

/* The routines of a product: of matrices, None if there is none, and of batches: 2 and 2 dimensions of A and B, 2 and
 * 3, 3 and 2, 3 and 3. Returns 1; 0 if Python has to make the call, perhaps with an exception; or -1 with one. */
static int multiply(Product *self, PyObject *const *given, const int *options) {
  PyObject *const A = given[1], *const B = given[2], *const C = given[4];
  const Geometry *a = read_operand(A), *b = read_operand(B), *c = read_operand(C);
  if (a == NULL || b == NULL || c == NULL) return 0;
  const int is_batch = c->dimensions == 3, dtype = ((Pointer *)C)->dtype;
  if (a->dimensions < 2 || b->dimensions < 2 || a->dimensions > c->dimensions || b->dimensions > c->dimensions ||
      ((Pointer *)A)->dtype != dtype || ((Pointer *)B)->dtype != dtype || !do_fit(a, b, c, options) ||
      (a->stride | b->stride | c->stride) < 0 || (a->uneven | b->uneven | c->uneven))
    return 0;
  PyObject *routine = PyTuple_GetItem(self->routines, is_batch ? 1 + 2 * (a->dimensions - 2) + b->dimensions - 2 : 0);
  const Chosen *chosen =
      routine == Py_None ? NULL
                         : chosen_for(self, (Pointer *)C, routine, is_batch ? "eeesssnassassnasss" : "eeesssnasasnas");
  if (chosen == NULL) return 0;
  Values values;
  for (int by_rows = 0; by_rows < 2; by_rows++) {
    Factor factors[2]; /* by rows, the library computes the transpose: B and A change places */
    if (c->ld[by_rows] == 0 || !read_factor(&factors[by_rows], chosen, a, options[0], by_rows) ||
        !read_factor(&factors[!by_rows], chosen, b, options[1], by_rows))
      continue;
    PyObject *const operands[] = {by_rows ? B : A, by_rows ? A : B, C};
    const Geometry *const geometries[] = {by_rows ? b : a, by_rows ? a : b, c};
    const int64_t k = options[0] == PLAIN ? a->columns : a->rows;
    if (fill_product(&values, chosen, operands, factors, geometries, k, given[0], given[3], by_rows)) return 0;
    return run(self, chosen, &values, C);
  }
  return 0;
}

/* (alpha, A, B, beta, C, *, trans_a="N", trans_b="N") */
static PyObject *gemm(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  static const char *const known[] = {"trans_a", "trans_b"};
  Product *self = *(Product **)PyModule_GetState(module);
  int options[] = {PLAIN, PLAIN};
  const int usual = count == 5 && read_options(given + 5, names, known, 2, options) == 0;
  return finish(self, usual ? multiply(self, given, options) : 0, given, count, names);
}

/* -- a matrix and a vector ----------------------------------------------------------------------------------------- */
/* Returns as multiply(). */
static int multiply_vector(Product *self, PyObject *const *given, int option) {
  PyObject *const operands[] = {given[1], given[2], given[4]};
  const Geometry *a = read_operand(operands[0]), *x = read_operand(operands[1]), *y = read_operand(operands[2]);
  if (a == NULL || x == NULL || y == NULL) return 0;
  const Pointer *A = (Pointer *)operands[0];
  if (a->dimensions != 2 || x->dimensions != 1 || y->dimensions != 1 || x->uneven || y->uneven ||
      ((Pointer *)operands[1])->dtype != A->dtype || ((Pointer *)operands[2])->dtype != A->dtype ||
      x->count != (option == PLAIN ? a->columns : a->rows) || y->count != (option == PLAIN ? a->rows : a->columns))
    return 0;
  const Chosen *chosen = chosen_for(self, A, PyTuple_GetItem(self->routines, 0), "eessnasasnas");
  if (chosen == NULL) return 0;
  const int by_rows = a->ld[0] == 0, has_order = chosen->order[0] >= 0;
  const int flipped = by_rows && !has_order; /* the library takes the transpose */
  const int64_t op = chosen->op[flipped][option], ld = a->ld[by_rows];
  Values values;
  if (op < 0 || ld == 0 || start(&values, chosen, given[0], given[3], 11)) return 0;
  if (has_order) put_integer(&values, chosen->order[by_rows]);
  put_integer(&values, op);
  put_integer(&values, flipped ? a->columns : a->rows);
  put_integer(&values, flipped ? a->rows : a->columns);
  if (put_number(&values, given[0], A->dtype)) return 0;
  put_pointer(&values, operands[0]);
  put_integer(&values, ld);
  put_pointer(&values, operands[1]);
  put_integer(&values, x->stride);
  if (put_number(&values, given[3], A->dtype)) return 0;
  put_pointer(&values, operands[2]);
  put_integer(&values, y->stride);
  return run(self, chosen, &values, operands[2]);
}

/* (alpha, A, x, beta, y, *, trans="N") */
static PyObject *gemv(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  static const char *const known[] = {"trans"};
  Product *self = *(Product **)PyModule_GetState(module);
  int option = PLAIN;
  const int usual = count == 5 && read_options(given + 5, names, known, 1, &option) == 0;
  return finish(self, usual ? multiply_vector(self, given, option) : 0, given, count, names);
}

/* -- making one ---------------------------------------------------------------------------------------------------- */
static void product_free(void *module) {
  Product **state = PyModule_GetState(module), *self = state == NULL ? NULL : *state;
  if (self == NULL) return;
  Py_XDECREF(self->rare);
  Py_XDECREF(self->choose);
  Py_XDECREF(self->note);
  Py_XDECREF(self->routines);
  Py_XDECREF(self->name);
  Py_XDECREF(self->text);
  PyMem_Free(self);
}

/* As that of function.c: a builtin's self is a module, so that it counts as a function of a module. */
static struct PyModuleDef carrier = {PyModuleDef_HEAD_INIT, .m_name = "offload_args._core.product",
                                     .m_size = sizeof(Product *), .m_free = product_free};

/* ("gemm" or "gemv", function, its name, its text as a PyMethodDef has it, its module, choose, note, routines) -> the
 * builtin; Product has what they are. */
static PyObject *make_product(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *kind;
  PyObject *rare, *name, *text, *home, *chooser, *note, *routines;
  if (!PyArg_ParseTuple(arguments, "sOUUUOOO!", &kind, &rare, &name, &text, &home, &chooser, &note, &PyTuple_Type,
                        &routines))
    return NULL;
  const char *ml_name = PyUnicode_AsUTF8AndSize(name, NULL), *ml_doc = PyUnicode_AsUTF8AndSize(text, NULL);
  PyObject *self = ml_name == NULL || ml_doc == NULL ? NULL : PyModule_Create(&carrier);
  if (self == NULL) return NULL;
  Product *product = *(Product **)PyModule_GetState(self) = PyMem_Calloc(1, sizeof *product);
  PyObject *made = NULL;
  if (product != NULL) {
    product->rare = Py_NewRef(rare);
    product->name = Py_NewRef(name);
    product->text = Py_NewRef(text);
    product->choose = Py_NewRef(chooser);
    product->note = Py_NewRef(note);
    product->routines = Py_NewRef(routines);
    void (*called)(void) = (void (*)(void))(strcmp(kind, "gemv") == 0 ? gemv : gemm);
    product->method = (PyMethodDef){ml_name, (PyCFunction)called, METH_FASTCALL | METH_KEYWORDS, ml_doc};
    made = PyCFunction_NewEx(&product->method, self, home);
  } else {
    PyErr_NoMemory();
  }
  Py_DECREF(self);
  return made;
}

static PyMethodDef functions[] = {
    {"product", make_product, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_products(PyObject *module) { return PyModule_AddFunctions(module, functions); }
