/* The functions of portable BLAS: builtins that arrange their arguments for the vendor's function by a plan, which is
 * data, and call it. A call that does not fit its plan goes to the function in Python, which takes every call, and
 * reports wrong arguments. */
#include "function.h"
#include "panels.h"
#include "recorded.h"

#include <string.h>

enum { MOST_OPERANDS = 5, MOST_OPTIONS = 4, MOST_LETTERS = 3, MOST_ARGUMENTS = 24, MOST_KEYWORDS = 16 };
enum { M, N, K, KL, KU, SIZE_COUNT };

/* The kinds of operands. A number on the device may have any dtype, or has to have the arrays' dtype. ANYTHING is not
 * checked. */
enum operand { NUMBER, SAME_NUMBER, VECTOR, MATRIX, PACKED, BAND, ELEMENT, FIVE, FIVE_OR_NUMBERS, ANYTHING };

/* The condition on which an option is exchanged. NEVER: no condition. WITH_CALL: the call is of transposes.
 * WITH_MATRIX: the option's matrix is stored as its transpose. AGAINST_MATRIX: exactly one of these two conditions
 * holds. */
enum exchange { NEVER, WITH_CALL, WITH_MATRIX, AGAINST_MATRIX };

typedef struct {
  enum operand kind;
  int size[2][2]; /* indices in sizes, of rows and columns or of a vector's size; by the option `by` */
  int by;         /* an option: its first letter selects size[0], another one size[1]; -1: always size[0] */
  int is_free;    /* a matrix: its order may differ from the call's */
} Operand;

typedef struct {
  PyObject *name; /* interned */
  Py_UCS4 letters[MOST_LETTERS];
  int letter_count, standard; /* the index of the default letter */
  enum exchange exchange;
  int matrix; /* an operand */
} Option;

/* The vendor's function for a routine on a device and for a dtype. It is never freed. */
typedef struct Choice {
  struct Choice *next;
  PyObject *routine;
  int device, dtype;
  PyObject *callable;       /* the vendor's function, or a Python function that stands for it; NULL: there is none */
  const Function *function; /* of a callable that is a builtin, otherwise NULL */
  const Function *gemm;     /* the product that panels of a triangle need; NULL: none */
  int is_direct;            /* 1: it takes only enums, sizes, arrays, lists of them and single numbers */
  int64_t order[2];         /* its first argument, for matrices by columns and by rows; -1: it has none */
  int64_t value[MOST_OPTIONS][2][MOST_LETTERS]; /* of each letter, unchanged and exchanged; -1: there is none */
  int one_order, by_columns;                    /* all matrices have the order of the call; that order is by columns */
  int is_in_place; /* 0: it takes its last array twice, and the result may go to another array */
  int64_t base;    /* base of an index that it returns */
} Choice;

/* One builtin's data. It lives as long as the module object that is the builtin's self. */
typedef struct {
  PyObject *python;                            /* the function in Python */
  PyObject *choose;                            /* (routine, pointer) -> the fields of a Choice, or None */
  PyObject *note;                              /* (error, 1 if of transposes): adds the operands' names; or None */
  PyObject *routine, *strided;                 /* of matrices, and of strided batches of them; or None */
  PyObject *name, *text;                       /* own the method's strings */
  PyObject *names;                             /* of the operands: a tuple of texts */
  PyObject *kl, *ku, *order, *result, *panels; /* names of keywords, interned */
  PyMethodDef method;
  int operand_count, option_count, size_count;
  Operand operands[MOST_OPERANDS];
  Option options[MOST_OPTIONS];
  int turned[MOST_OPERANDS], turned_options[MOST_OPTIONS]; /* their indices in a call of transposes */
  int sizes[2][SIZE_COUNT];                                /* the passed sizes, and the sizes of a call of transposes */
  int orders;                       /* a library that has both orders gets matrices in their own order */
  int absolute, extreme, diagonals; /* increments count as positive; an index is returned; kl and ku are arguments */
  int has_order, lists;             /* the order by rows is an option; arrays are lists of pointers */
  const PanelForm *panel_form;      /* of large calls in panels; NULL: there are none */
  int in_squares;                   /* the result has n rows, otherwise m rows */
  _Atomic(Choice *) choices;
} Plan;

/* The facts of one call. */
typedef struct {
  const Geometry *geometry[MOST_OPERANDS];
  PyObject *lists[MOST_OPERANDS]; /* of a plan with lists: tuples of pointers, owned; NULL where there is none */
  int64_t size[SIZE_COUNT];       /* -1: not known yet */
  int64_t batch;                  /* the number of matrices of each operand; -1: one, not a batch */
  int letter[MOST_OPTIONS];
  int by_rows;  /* the order that the caller requested */
  int is_whole; /* the caller wants one call of the library, without panels */
  Pointer *first;
  PyObject *result; /* NULL: not passed */
} Call;

/* The arguments for the vendor's function. */
typedef struct {
  PyObject *object; /* borrowed; NULL: an integer */
  int64_t integer;
} Argument;

typedef struct {
  int count;
  Argument at[MOST_ARGUMENTS];
} Arranged;

/* -- reading ------------------------------------------------------------------------------------------------------- */
/* Each returns 1, or 0 if Python has to make the call, perhaps with an exception. */

/* Reads a text of one character; returns 0 for anything else. */
static inline Py_UCS4 letter_from(PyObject *object) {
  return PyUnicode_Check(object) && PyUnicode_GetLength(object) == 1 ? PyUnicode_ReadChar(object, 0) : 0;
}

static int read_letter(const Option *option, PyObject *object, int *letter) {
  const Py_UCS4 character = letter_from(object);
  for (*letter = 0; *letter < option->letter_count; ++*letter)
    if (option->letters[*letter] == character) return 1;
  return 0;
}

static inline int is_named(PyObject *name, PyObject *known) {
  return name == known || (known != NULL && PyUnicode_Compare(name, known) == 0);
}

static int read_diagonals(Call *call, int which, PyObject *object) {
  if (!PyLong_CheckExact(object)) return 0;
  call->size[which] = PyLong_AsLongLong(object);
  return call->size[which] >= 0;
}

static int read_order(Call *call, PyObject *object) {
  const Py_UCS4 letter = letter_from(object);
  call->by_rows = letter == 'C';
  return letter == 'C' || letter == 'F';
}

static int read_panels(Call *call, PyObject *object) {
  call->is_whole = object == Py_False;
  return PyBool_Check(object);
}

static int read_keyword(const Plan *plan, Call *call, PyObject *name, PyObject *object) {
  for (int i = 0; i < plan->option_count; i++)
    if (is_named(name, plan->options[i].name)) return read_letter(&plan->options[i], object, &call->letter[i]);
  if (is_named(name, plan->result)) {
    call->result = object == Py_None ? NULL : object;
    return 1;
  }
  if (is_named(name, plan->order)) return read_order(call, object);
  if (is_named(name, plan->panels)) return read_panels(call, object);
  if (is_named(name, plan->kl)) return read_diagonals(call, KL, object);
  return is_named(name, plan->ku) && read_diagonals(call, KU, object);
}

/* Sets a size, or compares it with the known one. */
static inline int is_size(Call *call, int which, int64_t size) {
  if (call->size[which] >= 0) return call->size[which] == size;
  call->size[which] = size;
  return 1;
}

static int has_one(const Pointer *pointer, const Geometry *geometry) {
  if (geometry->dimensions == 0) return PyTuple_Size(pointer->shape) == 0;
  return geometry->count == 1 && (geometry->dimensions == 1 || (geometry->rows == 1 && geometry->columns == 1));
}

static inline int read_vector(enum operand kind, Call *call, const Geometry *g, const int *size) {
  if (g->dimensions != 1 || g->uneven) return 0;
  if (kind == VECTOR) return is_size(call, size[0], g->count);
  return g->stride == 1; /* packed, or five: their number is checked later */
}

static inline int read_matrix(const Plan *plan, Call *call, const Geometry *g, const int *size) {
  if (g->dimensions != 2 && (g->dimensions != 3 || plan->strided == Py_None)) return 0;
  return is_size(call, size[0], g->rows) && is_size(call, size[1], g->columns);
}

/* Reads a band, whose diagonals are its rows, or its columns if the order is by rows. */
static int read_band(Call *call, const Geometry *g, const int *size) {
  if (g->dimensions != 2) return 0;
  const int64_t diagonals = call->by_rows ? g->columns : g->rows;
  call->size[K] = diagonals - 1;
  return diagonals > 0 && g->ld[call->by_rows] != 0 &&
         is_size(call, size[call->by_rows], call->by_rows ? g->rows : g->columns);
}

/* Returns a pointer's geometry, or NULL with an exception. */
static inline const Geometry *geometry_of(Pointer *pointer) {
  const Geometry *known = atomic_load(&pointer->geometry);
  return OA_LIKELY(known != NULL) ? known : pointer_geometry(pointer);
}

/* Reads a pointer that has the dtype of the first pointer. */
static inline int read_pointer(Call *call, PyObject *object, const Geometry **geometry) {
  if (Py_TYPE(object) != (PyTypeObject *)python.pointer) return 0;
  Pointer *pointer = (Pointer *)object;
  if (call->first == NULL) call->first = pointer;
  if (pointer->dtype != call->first->dtype) return 0;
  *geometry = geometry_of(pointer);
  return *geometry != NULL;
}

/* Reads a list of matrices of one geometry: as many as the last list has, or one for all. */
static int read_list_of(const Plan *plan, Call *call, int i, PyObject *object, const int *size) {
  if (!PyList_Check(object) && !PyTuple_Check(object)) return 0;
  PyObject *pointers = call->lists[i] = PySequence_Tuple(object);
  const Py_ssize_t count = pointers == NULL ? 0 : PyTuple_Size(pointers);
  const int is_for_all = count == 1 && i < plan->operand_count - 1;
  if (count == 0 || (count != call->batch && !is_for_all)) return 0;
  const Geometry *g = NULL, *other;
  if (!read_pointer(call, PyTuple_GetItem(pointers, 0), &g) || g->dimensions != 2) return 0;
  call->geometry[i] = g;
  for (Py_ssize_t k = 1; k < count; k++) {
    if (!read_pointer(call, PyTuple_GetItem(pointers, k), &other)) return 0;
    if (other->dimensions != 2 || other->rows != g->rows || other->columns != g->columns || other->ld[0] != g->ld[0] ||
        other->ld[1] != g->ld[1])
      return 0;
  }
  if (is_for_all && call->batch > 1) {
    PyObject *all = PyTuple_New((Py_ssize_t)call->batch);
    for (Py_ssize_t k = 0; all != NULL && k < call->batch; k++)
      PyTuple_SetItem(all, k, Py_NewRef(PyTuple_GetItem(pointers, 0)));
    Py_DECREF(pointers);
    call->lists[i] = all;
    if (all == NULL) return 0;
  }
  return is_size(call, size[0], g->rows) && is_size(call, size[1], g->columns);
}

static inline int read_operand(const Plan *plan, Call *call, int i, PyObject *object) {
  const Operand *operand = &plan->operands[i];
  call->geometry[i] = NULL;
  if (operand->kind == NUMBER || operand->kind == SAME_NUMBER || operand->kind == ANYTHING) return 1;
  if (operand->kind == FIVE_OR_NUMBERS && Py_TYPE(object) != (PyTypeObject *)python.pointer) return 1;
  const int *size = operand->size[operand->by >= 0 && call->letter[operand->by] != 0];
  if (OA_UNLIKELY(plan->lists)) return read_list_of(plan, call, i, object, size);
  const Geometry *g = NULL;
  if (!read_pointer(call, object, &g)) return 0;
  call->geometry[i] = g;
  switch (operand->kind) {
    case ELEMENT:
      return has_one((Pointer *)object, g);
    case MATRIX:
      return read_matrix(plan, call, g, size);
    case BAND:
      return read_band(call, g, size);
    default:
      return read_vector(operand->kind, call, g, size);
  }
}

/* Checks the number of matrices of each operand: as many as the last operand has, or one for all. Sets call->batch. */
static int do_batches_fit(const Plan *plan, Call *call) {
  const Geometry *last = call->geometry[plan->operand_count - 1];
  if (last->dimensions == 3) call->batch = last->count;
  for (int i = 0; i < plan->operand_count; i++) {
    const Geometry *g = call->geometry[i];
    if (g == NULL) continue;
    if (g->uneven || g->stride < 0 || g->dimensions > last->dimensions || (g->count != 1 && g->count != last->count))
      return 0;
  }
  return 1;
}

/* Checks properties that depend on other operands. */
static inline int do_operands_fit(const Plan *plan, Call *call, PyObject *const *values) {
  const int64_t n = call->size[N];
  for (int i = 0; i < plan->operand_count; i++) {
    const Geometry *g = call->geometry[i];
    switch (plan->operands[i].kind) {
      case SAME_NUMBER:
        if (pointer_of(values[i]) != NULL && pointer_of(values[i])->dtype != call->first->dtype) return 0;
        break;
      case PACKED:
        if (n > INT32_MAX || g->count != n * (n + 1) / 2) return 0;
        break;
      case FIVE:
      case FIVE_OR_NUMBERS:
        if (g != NULL && g->count != 5) return 0;
        break;
      default:
        break;
    }
  }
  if (plan->extreme) return n > 0 && call->geometry[0]->stride > 0;
  if (plan->strided != Py_None) return do_batches_fit(plan, call);
  return !plan->diagonals || (call->size[KL] >= 0 && call->size[KU] >= 0 && call->size[KL] <= call->size[K] &&
                              call->size[KU] == call->size[K] - call->size[KL]);
}

static inline int read_call(const Plan *plan, Call *call, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  if (OA_UNLIKELY(plan->lists))
    for (int i = 0; i < plan->operand_count; i++) call->lists[i] = NULL;
  if (count != plan->operand_count) return 0;
  for (int i = 0; i < SIZE_COUNT; i++) call->size[i] = -1;
  for (int i = 0; i < plan->option_count; i++) call->letter[i] = plan->options[i].standard;
  call->first = NULL;
  call->result = NULL;
  call->by_rows = call->is_whole = 0;
  call->batch = -1;
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < named; i++)
    if (!read_keyword(plan, call, PyTuple_GetItem(names, i), values[count + i])) return 0;
  if (plan->lists) {
    PyObject *last = values[count - 1];
    call->batch = PyList_Check(last) ? PyList_Size(last) : PyTuple_Check(last) ? PyTuple_Size(last) : 0;
  }
  for (int i = 0; i < plan->operand_count; i++)
    if (!read_operand(plan, call, i, values[i])) return 0;
  return do_operands_fit(plan, call, values);
}

/* -- the vendor's function ----------------------------------------------------------------------------------------- */
/* Reads an integer; None is -1. Returns 0, or -1 with an exception. */
static int read_constant(PyObject *object, int64_t *constant) {
  *constant = -1;
  return object == NULL ? -1 : object == Py_None ? 0 : function_read_integer(object, constant);
}

static int read_values(const Plan *plan, Choice *choice, PyObject *tables) {
  for (int i = 0; i < plan->option_count; i++)
    for (int k = 0; k < 2 * plan->options[i].letter_count; k++) {
      const int exchanged = k >= plan->options[i].letter_count;
      const int letter = exchanged ? k - plan->options[i].letter_count : k;
      PyObject *table = PyTuple_GetItem(tables, i);
      if (table == NULL || read_constant(PyTuple_GetItem(table, k), &choice->value[i][exchanged][letter])) return -1;
    }
  return 0;
}

static int is_direct(const Function *function) {
  if (function == NULL || function->has_outputs || function->routine->typed_count) return 0;
  for (int i = 0; i < function->positional; i++) {
    const Parameter *parameter = &function->parameters[i];
    const int is_single = parameter->kind == SCALAR && parameter->elements == 1;
    if (parameter->kind != ENUM && parameter->kind != SIZE && parameter->kind != ARRAY && parameter->kind != POINTERS &&
        !is_single)
      return 0;
  }
  return 1;
}

/* Fills a choice with the facts that Python returned. Returns 0, or -1 with an exception. */
static int read_choice(const Plan *plan, Choice *choice, PyObject *facts) {
  PyObject *callable, *gemm, *order[2], *tables;
  long base;
  if (facts == Py_None) return 0;
  if (!PyArg_ParseTuple(facts, "O(OO)O!ppplO", &callable, &order[0], &order[1], &PyTuple_Type, &tables,
                        &choice->one_order, &choice->by_columns, &choice->is_in_place, &base, &gemm) ||
      read_values(plan, choice, tables) || read_constant(order[0], &choice->order[0]) ||
      read_constant(order[1], &choice->order[1]))
    return -1;
  choice->base = base;
  choice->function = function_of(callable);
  if (choice->function != NULL && choice->function->is_helper) choice->function = NULL;
  choice->is_direct = is_direct(choice->function);
  choice->gemm = gemm == Py_None ? NULL : function_of(gemm);
  choice->callable = Py_NewRef(callable);
  return 0;
}

/* Gets the vendor's function from Python, and keeps it. NULL with an exception. */
static __attribute__((cold, noinline)) const Choice *choose(Plan *plan, PyObject *routine, const Pointer *pointer) {
  PyObject *facts = PyObject_CallFunctionObjArgs(plan->choose, routine, (PyObject *)pointer, NULL);
  Choice *choice = facts == NULL ? NULL : PyMem_Calloc(1, sizeof *choice);
  if (facts != NULL && choice == NULL) PyErr_NoMemory();
  if (choice == NULL || read_choice(plan, choice, facts)) {
    PyMem_Free(choice);
    Py_XDECREF(facts);
    return NULL;
  }
  Py_DECREF(facts);
  choice->routine = routine;
  choice->device = pointer->device_number;
  choice->dtype = pointer->dtype;
  choice->next = atomic_load(&plan->choices);
  while (!atomic_compare_exchange_weak(&plan->choices, &choice->next, choice)) continue;
  return choice;
}

/* Returns the vendor's function for a call; NULL if there is none, perhaps with an exception. */
static inline const Choice *choice_for(Plan *plan, const Call *call) {
  PyObject *routine = call->batch >= 0 && !plan->lists ? plan->strided : plan->routine;
  const Choice *choice = atomic_load_explicit(&plan->choices, memory_order_acquire);
  while (choice != NULL && (choice->dtype != call->first->dtype || choice->device != call->first->device_number ||
                            choice->routine != routine))
    choice = choice->next;
  if (OA_UNLIKELY(choice == NULL && routine != Py_None)) choice = choose(plan, routine, call->first);
  return choice != NULL && choice->callable != NULL ? choice : NULL;
}

/* -- arranging ----------------------------------------------------------------------------------------------------- */
static inline void put(Arranged *to, PyObject *object) { to->at[to->count++].object = object; }

static inline void put_integer(Arranged *to, int64_t integer) {
  to->at[to->count].object = NULL;
  to->at[to->count++].integer = integer;
}

/* Finds the order of a matrix in a call of transposes (1) or of the matrices themselves (0); -1: no order fits. */
static inline int order_of(const Plan *plan, const Choice *choice, const Call *call, int i, int transposed) {
  const Geometry *g = call->geometry[i];
  if (g->ld[transposed] != 0) return transposed;
  return plan->operands[i].is_free && !choice->one_order && g->ld[!transposed] != 0 ? !transposed : -1;
}

/* Puts the options. Returns 0 if the library lacks an exchanged option. */
static inline int put_options(const Plan *plan, const Choice *choice, const Call *call, Arranged *to, const int *order,
                              int transposed, int turned) {
  for (int k = 0; k < plan->option_count; k++) {
    const int i = turned ? plan->turned_options[k] : k;
    const Option *option = &plan->options[i];
    int exchanged = 0;
    if (turned == transposed && option->exchange != NEVER)
      exchanged = option->exchange == WITH_CALL     ? transposed
                  : option->exchange == WITH_MATRIX ? order[option->matrix]
                                                    : order[option->matrix] != transposed;
    const int64_t value = choice->value[i][exchanged][call->letter[i]];
    if (value < 0) return 0;
    put_integer(to, value);
  }
  return 1;
}

static inline void put_operand(const Plan *plan, const Call *call, Arranged *to, PyObject *object, int i,
                               const int *order) {
  const Geometry *g = call->geometry[i];
  put(to, OA_UNLIKELY(plan->lists) && call->lists[i] != NULL ? call->lists[i] : object);
  switch (plan->operands[i].kind) {
    case VECTOR:
      put_integer(to, plan->absolute && g->stride < 0 ? -g->stride : g->stride);
      break;
    case MATRIX:
      put_integer(to, g->ld[order[i]]);
      if (call->batch >= 0 && !plan->lists) put_integer(to, g->stride);
      break;
    case BAND:
      put_integer(to, g->ld[call->by_rows]);
      break;
    default:
      break;
  }
}

/* Returns whether a call of transposes has its operands at other indices. It does not if the library has the order by
 * rows. */
static inline int is_turned(const Plan *plan, const Choice *choice, int transposed) {
  return transposed && !(plan->orders && choice->order[0] >= 0);
}

/* Fills the arguments of a call of transposes, or of the matrices themselves. Returns 1; 0 if that is impossible. */
static inline int arrange(const Plan *plan, const Choice *choice, const Call *call, PyObject *const *values,
                          Arranged *to, int transposed) {
  int order[MOST_OPERANDS];
  const int turned = is_turned(plan, choice, transposed);
  to->count = 0;
  for (int i = 0; i < plan->operand_count; i++)
    if (plan->operands[i].kind == MATRIX && (order[i] = order_of(plan, choice, call, i, transposed)) < 0) return 0;
  if (choice->order[0] >= 0) put_integer(to, choice->order[transposed && !turned]);
  if (!put_options(plan, choice, call, to, order, transposed, turned)) return 0;
  for (int i = 0; i < plan->size_count; i++) put_integer(to, call->size[plan->sizes[turned][i]]);
  for (int k = 0; k < plan->operand_count; k++) {
    const int i = turned ? plan->turned[k] : k;
    put_operand(plan, call, to, values[i], i, order);
  }
  if (!choice->is_in_place)
    put_operand(plan, call, to, values[plan->operand_count - 1], plan->operand_count - 1, order);
  if (call->batch >= 0) put_integer(to, call->batch);
  return 1;
}

/* -- calling ------------------------------------------------------------------------------------------------------- */
/* Fills the routine's values. Returns 0; -1, with or without an exception, if this function can't fill them. */
static inline int fill_values(const Function *function, const Arranged *arranged, oa_value *values, List **lists) {
  const Parameter *parameter = function->parameters;
  const Argument *argument = arranged->at;
  if (arranged->count != function->positional) return -1;
  for (int i = 0; i < arranged->count; i++, argument++, parameter++) {
    PyObject *object = argument->object;
    if (parameter->kind == ENUM || parameter->kind == SIZE) {
      if (object != NULL) return -1;
      values[i].integer = argument->integer;
    } else if (object == NULL) {
      return -1;
    } else if (parameter->kind == SCALAR) {
      if (pointer_of(object) != NULL || function_read_number(object, parameter->dtype, values[i].bytes)) return -1;
    } else if (parameter->kind == ARRAY) {
      if (Py_TYPE(object) != (PyTypeObject *)python.pointer || ((Pointer *)object)->dtype != parameter->dtype)
        return -1;
      values[i].pointer = ((Pointer *)object)->handle;
    } else if (read_pointers(object, parameter->dtype, lists, &values[i])) {
      return -1;
    }
  }
  return 0;
}

/* Returns whether a call may be made in panels. */
static inline int is_large(const Plan *plan, const Call *call) {
  return plan->panel_form != NULL && call->batch < 0 && !call->is_whole &&
         call->size[plan->in_squares ? N : M] * call->size[N] >=
             atomic_load_explicit(&panels_elements, memory_order_relaxed);
}

static __attribute__((noinline)) int compute_in_panels(const Plan *plan, const Choice *choice, const oa_value *values) {
  const PanelCall call = {.form = plan->panel_form,
                          .function = choice->function,
                          .gemm = choice->gemm,
                          .values = values,
                          .first = choice->order[0] >= 0,
                          .upper = choice->value[0][0][0],
                          .plain = choice->value[panels_option(plan->panel_form)][0][0]};
  return panels_compute(&call);
}

/* Runs the routine on values. Returns 1 with the result, which is NULL with an exception; 0, perhaps with an exception,
 * if fill_values can't fill the values. */
static inline int run_values(const Plan *plan, const Choice *choice, const Call *call, const Arranged *arranged,
                             PyObject **result) {
  const Function *function = choice->function;
  oa_value values[MOST_VALUES];
  List *lists = NULL;
  int status;
  *result = NULL;
  if (OA_UNLIKELY(fill_values(function, arranged, values, &lists))) {
    release_lists(lists);
    if (!PyErr_Occurred()) return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return 1;
    PyErr_Clear();
    return 0;
  }
  if (OA_UNLIKELY(is_large(plan, call))) {
    const int in_panels = compute_in_panels(plan, choice, values);
    if (in_panels) {
      if (in_panels > 0) *result = Py_NewRef(Py_None);
      return 1;
    }
  }
  Py_BEGIN_ALLOW_THREADS status = function->routine->run(function->routine, values, 0);
  Py_END_ALLOW_THREADS if (OA_UNLIKELY(status != OA_OK)) fail(status);
  if (OA_UNLIKELY(lists != NULL)) release_lists(lists);
  if (OA_UNLIKELY(status != OA_OK)) return 1;
  *result = function->has_result
                ? function_number(&function->parameters[function->positional], values[function->positional].bytes)
                : Py_NewRef(Py_None);
  return 1;
}

/* Calls a function with the arguments of a builtin. */
static __attribute__((noinline)) PyObject *call_python(PyObject *function, PyObject *const *values, Py_ssize_t count,
                                                       PyObject *names) {
  PyObject *positional = PyTuple_New(count), *keywords = names == NULL ? NULL : PyDict_New(), *result = NULL;
  for (Py_ssize_t i = 0; positional != NULL && i < count; i++) PyTuple_SetItem(positional, i, Py_NewRef(values[i]));
  for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_Size(names); i++)
    if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), values[count + i]) < 0) Py_CLEAR(keywords);
  if (positional != NULL && (names == NULL || keywords != NULL)) result = PyObject_Call(function, positional, keywords);
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

/* Calls the vendor's function with objects. This is needed if a scalar or the result is on the device, or if the
 * function is not a builtin. NULL with an exception. */
static __attribute__((noinline)) PyObject *run_objects(const Plan *plan, const Choice *choice, const Arranged *arranged,
                                                       PyObject *result) {
  PyObject *objects[MOST_ARGUMENTS + 1], *own[MOST_ARGUMENTS], *names = NULL, *done = NULL;
  int own_count = 0, wrong = 0;
  for (int i = 0; i < arranged->count && !wrong; i++) {
    objects[i] = arranged->at[i].object;
    if (objects[i] != NULL) continue;
    objects[i] = own[own_count] = PyLong_FromLongLong(arranged->at[i].integer);
    if (objects[i] == NULL)
      wrong = 1;
    else
      own_count++;
  }
  if (result != NULL) {
    names = PyTuple_New(1);
    if (names == NULL)
      wrong = 1;
    else
      PyTuple_SetItem(names, 0, Py_NewRef(plan->result));
    objects[arranged->count] = result;
  }
  if (!wrong)
    done = choice->function != NULL ? function_call(choice->function, objects, arranged->count, names)
                                    : call_python(choice->callable, objects, arranged->count, names);
  for (int i = 0; i < own_count; i++) Py_DECREF(own[i]);
  Py_XDECREF(names);
  return done;
}

/* Calls note(the current exception, about), which adds to the exception. */
static __attribute__((cold, noinline)) void note_failure(PyObject *note, int turned) {
  PyObject *type, *error, *traceback, *about = NULL;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  about = PyLong_FromLong(turned);
  if (about != NULL) Py_XDECREF(PyObject_CallFunctionObjArgs(note, error, about, NULL));
  Py_XDECREF(about);
  PyErr_Restore(type, error, traceback); /* instead of an exception of note itself */
}

static inline PyObject *run(const Plan *plan, const Choice *choice, const Call *call, const Arranged *arranged,
                            int turned) {
  PyObject *done;
  if (OA_UNLIKELY(!choice->is_direct || call->result != NULL ||
                  (atomic_load_explicit(&recording, memory_order_relaxed) && !lines_are_known())) ||
      !run_values(plan, choice, call, arranged, &done))
    done = run_objects(plan, choice, arranged, call->result);
  if (OA_UNLIKELY(done == NULL) && plan->note != Py_None) note_failure(plan->note, turned);
  return done;
}

/* Returns an index as NumPy counts it. Steals done, which may be NULL with an exception. */
static PyObject *index_from(PyObject *done, int64_t base) {
  if (done == NULL || base == 0) return done;
  const long long index = PyLong_AsLongLong(done);
  Py_DECREF(done);
  return PyErr_Occurred() ? NULL : PyLong_FromLongLong(index - base);
}

/* Makes the call. Returns 1 with the result, which is NULL with an exception; or 0, perhaps with an exception. */
static inline int make_call(Plan *plan, const Call *call, PyObject *const *values, PyObject **result) {
  Arranged arranged;
  const Choice *choice = choice_for(plan, call);
  if (choice == NULL) return 0;
  const int last = plan->has_order ? call->by_rows : 1;
  for (int transposed = call->by_rows; transposed <= (choice->by_columns ? 0 : last); transposed++) {
    if (!arrange(plan, choice, call, values, &arranged, transposed)) continue;
    *result = run(plan, choice, call, &arranged, is_turned(plan, choice, transposed));
    if (plan->extreme) *result = index_from(*result, choice->base);
    return 1;
  }
  return 0;
}

static PyObject *call_plan(Plan *plan, PyObject *const *values, Py_ssize_t count, PyObject *names);

/* Makes a call that names its last operands as the same call by position. Returns NULL without an exception if an
 * operand is missing. */
static __attribute__((cold, noinline)) PyObject *call_by_names(Plan *plan, PyObject *const *values, Py_ssize_t count,
                                                               PyObject *names) {
  PyObject *all[MOST_OPERANDS + MOST_KEYWORDS] = {NULL};
  const int operands = plan->operand_count;
  const Py_ssize_t named = PyTuple_Size(names), options = count + named - operands;
  if (options < 0 || named > MOST_KEYWORDS) return NULL;
  PyObject *rest = PyTuple_New(options), *result = NULL;
  if (rest == NULL) return NULL;
  for (Py_ssize_t i = 0; i < count; i++) all[i] = values[i];
  Py_ssize_t missing = operands - count, kept = 0;
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    int place = (int)count;
    while (place < operands && PyUnicode_Compare(name, PyTuple_GetItem(plan->names, place)) != 0) place++;
    if (place < operands) {
      all[place] = values[count + i];
      missing--;
    } else if (kept < options) {
      all[operands + kept] = values[count + i];
      PyTuple_SetItem(rest, kept++, Py_NewRef(name));
    }
  }
  if (missing == 0) result = call_plan(plan, all, operands, options ? rest : NULL);
  Py_DECREF(rest);
  return result;
}

static inline PyObject *call_plan(Plan *plan, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  Call call;
  PyObject *result = NULL;
  if (OA_UNLIKELY(count < plan->operand_count && names != NULL)) {
    result = call_by_names(plan, values, count, names);
    if (result != NULL || PyErr_Occurred()) return result;
  }
  const int done = read_call(plan, &call, values, count, names) && make_call(plan, &call, values, &result);
  if (OA_UNLIKELY(plan->lists))
    for (int i = 0; i < plan->operand_count; i++) Py_XDECREF(call.lists[i]);
  if (OA_LIKELY(done)) return result;
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL; /* such as Ctrl-C */
  PyErr_Clear();
  return call_python(plan->python, values, count, names);
}

/* Calls the routine, and reports to the recorder before and after it, so that the vendor's calls in between count as
 * parts of it. */
static __attribute__((cold, noinline)) PyObject *call_recorded(Plan *plan, PyObject *const *values, Py_ssize_t count,
                                                               PyObject *names) {
  const Recorded call = {NULL, PyUnicode_AsUTF8AndSize(plan->name, NULL), values, count, names};
  const int begun = call.name == NULL ? -1 : lines_begin(&call);
  if (begun < 0) return NULL;
  if (begun) {
    PyObject *result = call_plan(plan, values, count, names);
    const int done = lines_end(&call, result);
    if (done < 0) Py_CLEAR(result);
    if (done != 0) return result;
    return tell_recorder_values("blas", plan->name, values, count, names, result);
  }
  const int all = atomic_load_explicit(&recording, memory_order_relaxed) == RECORDS_BEGINNINGS;
  PyObject *none =
      tell_recorder_values("begin", plan->name, values, all ? count : 0, all ? names : NULL, Py_NewRef(Py_None));
  PyObject *result = none == NULL ? NULL : call_plan(plan, values, count, names);
  lines_told();
  if (none == NULL) return NULL;
  Py_DECREF(none);
  return tell_recorder_values("blas", plan->name, values, count, names, result);
}

static PyObject *call_planned(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  Plan *plan = *(Plan **)PyModule_GetState(module);
  if (OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed)))
    return call_recorded(plan, values, count, names);
  return call_plan(plan, values, count, names);
}

/* -- making one ---------------------------------------------------------------------------------------------------- */
static void plan_free(void *module) {
  Plan **state = PyModule_GetState(module), *plan = state == NULL ? NULL : *state;
  if (plan == NULL) return;
  PyObject *owned[] = {plan->python, plan->choose, plan->note, plan->routine, plan->strided, plan->name,  plan->text,
                       plan->names,  plan->kl,     plan->ku,   plan->order,   plan->result,  plan->panels};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) Py_XDECREF(owned[i]);
  for (int i = 0; i < plan->option_count; i++) Py_XDECREF(plan->options[i].name);
  PyMem_Free(plan);
}

/* As in function.c, a builtin's self is a module, so that it counts as a function of a module. */
static struct PyModuleDef carrier = {PyModuleDef_HEAD_INIT, .m_name = "offload_args._core.planned",
                                     .m_size = sizeof(Plan *), .m_free = plan_free};

static int read_operands(Plan *plan, PyObject *operands) {
  plan->operand_count = (int)PyTuple_Size(operands);
  for (int i = 0; i < plan->operand_count; i++) {
    Operand *to = &plan->operands[i];
    int kind;
    if (!PyArg_ParseTuple(PyTuple_GetItem(operands, i), "i(iiii)iii", &kind, &to->size[0][0], &to->size[0][1],
                          &to->size[1][0], &to->size[1][1], &to->by, &to->is_free, &plan->turned[i]))
      return -1;
    to->kind = (enum operand)kind;
  }
  return 0;
}

static int read_options(Plan *plan, PyObject *options) {
  const int count = (int)PyTuple_Size(options);
  for (int i = 0; i < count; i++) {
    Option *to = &plan->options[i];
    PyObject *letters;
    const char *name;
    int exchange;
    if (!PyArg_ParseTuple(PyTuple_GetItem(options, i), "sUiiii", &name, &letters, &to->standard, &exchange, &to->matrix,
                          &plan->turned_options[i]))
      return -1;
    to->exchange = (enum exchange)exchange;
    to->letter_count = (int)PyUnicode_GetLength(letters);
    for (int k = 0; k < to->letter_count && k < MOST_LETTERS; k++) to->letters[k] = PyUnicode_ReadChar(letters, k);
    to->name = PyUnicode_InternFromString(name);
    if (to->name == NULL) return -1;
    plan->option_count = i + 1;
  }
  return 0;
}

static int read_sizes(Plan *plan, PyObject *sizes) {
  for (int turned = 0; turned < 2; turned++) {
    PyObject *places = PyTuple_GetItem(sizes, turned);
    plan->size_count = (int)PyTuple_Size(places);
    for (int i = 0; i < plan->size_count; i++) plan->sizes[turned][i] = (int)PyLong_AsLong(PyTuple_GetItem(places, i));
  }
  plan->in_squares = plan->size_count > 0 && plan->sizes[0][0] == N;
  return PyErr_Occurred() ? -1 : 0;
}

/* Interns the names of keywords; NULL if there is no such keyword. */
static int name_keywords(Plan *plan, int has_result) {
  if (has_result && (plan->result = PyUnicode_InternFromString("result")) == NULL) return -1;
  if (plan->panel_form != NULL && (plan->panels = PyUnicode_InternFromString("panels")) == NULL) return -1;
  if (plan->has_order && (plan->order = PyUnicode_InternFromString("order")) == NULL) return -1;
  if (plan->diagonals && (plan->kl = PyUnicode_InternFromString("kl")) == NULL) return -1;
  return plan->diagonals && (plan->ku = PyUnicode_InternFromString("ku")) == NULL ? -1 : 0;
}

/* (function, its name, its text as in a PyMethodDef, its module, choose, note, routine, routine of strided batches,
 * operands, their names, options, sizes, flags) -> the builtin; blas/_plans.py makes these arguments */
static PyObject *make_planned(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *function, *name, *text, *home, *chooser, *note, *routine, *strided, *operands, *names, *options, *sizes;
  Plan flags = {.name = NULL};
  int has_result;
  if (!PyArg_ParseTuple(arguments, "OUUUOOOOO!O!O!O!(ppppppp)", &function, &name, &text, &home, &chooser, &note,
                        &routine, &strided, &PyTuple_Type, &operands, &PyTuple_Type, &names, &PyTuple_Type, &options,
                        &PyTuple_Type, &sizes, &flags.orders, &flags.absolute, &flags.extreme, &flags.diagonals,
                        &flags.has_order, &flags.lists, &has_result))
    return NULL;
  const char *ml_name = PyUnicode_AsUTF8AndSize(name, NULL), *ml_doc = PyUnicode_AsUTF8AndSize(text, NULL);
  PyObject *self = ml_name == NULL || ml_doc == NULL ? NULL : PyModule_Create(&carrier), *builtin = NULL;
  if (self == NULL) return NULL;
  Plan *plan = *(Plan **)PyModule_GetState(self) = PyMem_Calloc(1, sizeof *plan);
  if (plan == NULL) {
    PyErr_NoMemory();
  } else {
    *plan = flags;
    plan->python = Py_NewRef(function);
    plan->choose = Py_NewRef(chooser);
    plan->note = Py_NewRef(note);
    plan->routine = Py_NewRef(routine);
    plan->strided = Py_NewRef(strided);
    plan->name = Py_NewRef(name);
    plan->text = Py_NewRef(text);
    plan->names = Py_NewRef(names);
    plan->panel_form = panels_form(ml_name);
    plan->method =
        (PyMethodDef){ml_name, (PyCFunction)(void (*)(void))call_planned, METH_FASTCALL | METH_KEYWORDS, ml_doc};
    if (name_keywords(plan, has_result) == 0 && read_operands(plan, operands) == 0 &&
        read_options(plan, options) == 0 && read_sizes(plan, sizes) == 0)
      builtin = PyCFunction_NewEx(&plan->method, self, home);
  }
  Py_DECREF(self);
  return builtin;
}

static PyMethodDef functions[] = {
    {"planned", make_planned, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_blas(PyObject *module) { return PyModule_AddFunctions(module, functions); }
