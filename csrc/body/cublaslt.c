#include "body/cublaslt.h"

#if __has_include("libraries/cublaslt_constants.h") /* a build without cuBLASLt compiles nothing of this file */
#include "call/call.h"
#include "libraries/cublaslt_constants.h"

/* The constants of cuBLASLt's header that this file uses, with shorter names. */
enum layout_attribute {
  TYPE = CUBLASLT_MATRIX_LAYOUT_TYPE,
  ORDER = CUBLASLT_MATRIX_LAYOUT_ORDER,
  ROWS = CUBLASLT_MATRIX_LAYOUT_ROWS,
  COLS = CUBLASLT_MATRIX_LAYOUT_COLS,
  LD = CUBLASLT_MATRIX_LAYOUT_LD,
  BATCH_COUNT = CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
  BATCH_STRIDE = CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
  PLANE_OFFSET = CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET,
  BATCH_MODE = CUBLASLT_MATRIX_LAYOUT_BATCH_MODE
};
enum order {
  ORDER_COL = CUBLASLT_ORDER_COL,
  ORDER_ROW = CUBLASLT_ORDER_ROW,
  ORDER_COL32 = CUBLASLT_ORDER_COL32,
  ORDER_COL4_4R2_8C = CUBLASLT_ORDER_COL4_4R2_8C,
  ORDER_COL32_2R_4R4 = CUBLASLT_ORDER_COL32_2R_4R4
};
enum product_attribute {
  COMPUTE_TYPE = CUBLASLT_MATMUL_DESC_COMPUTE_TYPE,
  SCALE_TYPE = CUBLASLT_MATMUL_DESC_SCALE_TYPE,
  POINTER_MODE = CUBLASLT_MATMUL_DESC_POINTER_MODE,
  TRANSA = CUBLASLT_MATMUL_DESC_TRANSA,
  TRANSB = CUBLASLT_MATMUL_DESC_TRANSB,
  FILL_MODE = CUBLASLT_MATMUL_DESC_FILL_MODE,
  EPILOGUE = CUBLASLT_MATMUL_DESC_EPILOGUE,
  BIAS_POINTER = CUBLASLT_MATMUL_DESC_BIAS_POINTER,
  BIAS_BATCH_STRIDE = CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
  EPILOGUE_AUX_POINTER = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
  EPILOGUE_AUX_LD = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
  EPILOGUE_AUX_BATCH_STRIDE = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
  A_SCALE_POINTER = CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
  B_SCALE_POINTER = CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
  C_SCALE_POINTER = CUBLASLT_MATMUL_DESC_C_SCALE_POINTER,
  D_SCALE_POINTER = CUBLASLT_MATMUL_DESC_D_SCALE_POINTER,
  AMAX_D_POINTER = CUBLASLT_MATMUL_DESC_AMAX_D_POINTER,
  EPILOGUE_AUX_DATA_TYPE = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE,
  EPILOGUE_AUX_SCALE_POINTER = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER,
  EPILOGUE_AUX_AMAX_POINTER = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER,
  BIAS_DATA_TYPE = CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
  A_SCALE_MODE = CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
  B_SCALE_MODE = CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
  C_SCALE_MODE = CUBLASLT_MATMUL_DESC_C_SCALE_MODE,
  D_SCALE_MODE = CUBLASLT_MATMUL_DESC_D_SCALE_MODE,
  EPILOGUE_AUX_SCALE_MODE = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE,
  D_OUT_SCALE_POINTER = CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER,
  D_OUT_SCALE_MODE = CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE
};
enum transform_attribute {
  TRANSFORM_SCALE_TYPE = CUBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE,
  TRANSFORM_POINTER_MODE = CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE,
  TRANSFORM_TRANSA = CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA,
  TRANSFORM_TRANSB = CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB
};
/* The bits of epilogues. The header has names for sums of these bits. */
enum epilogue {
  RELU = CUBLASLT_EPILOGUE_RELU,
  BIAS = CUBLASLT_EPILOGUE_BIAS,
  GELU = CUBLASLT_EPILOGUE_GELU,
  AUX = CUBLASLT_EPILOGUE_RELU_AUX - RELU,
  DRELU = CUBLASLT_EPILOGUE_DRELU - AUX,
  DGELU = CUBLASLT_EPILOGUE_DGELU - AUX,
  BGRAD = CUBLASLT_EPILOGUE_DRELU_BGRAD - CUBLASLT_EPILOGUE_DRELU,
  BGRADA = CUBLASLT_EPILOGUE_BGRADA,
  BGRADB = CUBLASLT_EPILOGUE_BGRADB
};
enum scale_mode {
  SCALE_SCALAR_32F = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
  SCALE_VEC16_UE4M3 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3,
  SCALE_VEC32_UE8M0 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
  SCALE_OUTER_VEC_32F = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
  SCALE_VEC128_32F = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
  SCALE_BLK128x128_32F = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
  SCALE_PER_BATCH_SCALAR_32F = CUBLASLT_MATMUL_MATRIX_SCALE_PER_BATCH_SCALAR_32F,
  SCALE_VEC128_MN_K4_UE8M0 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_MN_K4_UE8M0,
  SCALE_VEC32_MN_K4_UE8M0 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_MN_K4_UE8M0
};
enum { MIN_ALIGNMENT_A = CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, FILL_FULL = CUBLAS_FILL_MODE_FULL };
enum { ALGO_BYTES = 64, RESULT_BYTES = 96, MOST_ALIGNMENT = 256 };

typedef int get_attribute(const void *object, int attribute, void *value, size_t nbytes, size_t *written);
typedef int set_attribute(void *object, int attribute, const void *value, size_t nbytes);

/* The attributes that are device arrays, with their names in Python. `mode`: the attribute with the arrangement of the
 * scales; 0 if there is none. */
static const struct {
  int attribute;
  const char *name;
  int mode;
} pointers[OA_LT_POINTERS] = {{BIAS_POINTER, "bias_pointer", 0},
                              {EPILOGUE_AUX_POINTER, "epilogue_aux_pointer", 0},
                              {A_SCALE_POINTER, "a_scale_pointer", A_SCALE_MODE},
                              {B_SCALE_POINTER, "b_scale_pointer", B_SCALE_MODE},
                              {C_SCALE_POINTER, "c_scale_pointer", C_SCALE_MODE},
                              {D_SCALE_POINTER, "d_scale_pointer", D_SCALE_MODE},
                              {AMAX_D_POINTER, "amax_d_pointer", 0},
                              {EPILOGUE_AUX_SCALE_POINTER, "epilogue_aux_scale_pointer", EPILOGUE_AUX_SCALE_MODE},
                              {EPILOGUE_AUX_AMAX_POINTER, "epilogue_aux_amax_pointer", 0},
                              {D_OUT_SCALE_POINTER, "d_out_scale_pointer", D_OUT_SCALE_MODE}};

/* -- hiding handles from the library -- */

int oa_lt_ready(const oa_routine *routine, const int *asks) {
  return oa_asked(routine, asks[0]) && oa_asked(routine, asks[1]);
}

void oa_lt_hide(const oa_routine *routine, const int *asks, const void *object, oa_lt_hidden *hidden) {
  get_attribute *get = (get_attribute *)oa_asked(routine, asks[0]);
  const void *aligned = (const void *)(uintptr_t)(1 << 20);
  *hidden = (oa_lt_hidden){.object = (void *)(uintptr_t)object, .set = (set_attribute *)oa_asked(routine, asks[1])};
  for (int i = 0; i < OA_LT_POINTERS; i++) {
    const void **handle = &hidden->handles[i];
    if (get(object, pointers[i].attribute, (void *)handle, sizeof *handle, NULL)) *handle = NULL;
    if (*handle) hidden->set(hidden->object, pointers[i].attribute, &aligned, sizeof aligned);
  }
}

void oa_lt_show(const oa_lt_hidden *hidden) {
  for (int i = 0; i < OA_LT_POINTERS; i++)
    if (hidden->handles[i])
      hidden->set(hidden->object, pointers[i].attribute, &hidden->handles[i], sizeof hidden->handles[i]);
}

/* -- layouts -- */

/* A matrix as its layout describes it, with the names for messages. */
typedef struct layout {
  const char *name, *matrix;
  const void *object;
  int dtype, type, order, batches;
  /* plane: number of elements from the real parts to the imaginary parts, if the two are stored separately */
  int64_t rows, columns, ld, stride, plane;
} layout;

/* The attributes of a product's or a transformation's descriptor that were read so far. Each attribute has a bit, at
 * its number in the library's header. */
typedef struct answers {
  uint64_t attributes;
  int64_t values[D_OUT_SCALE_MODE + 1];
} answers;
_Static_assert(sizeof(answers) <= OA_MOST_ANSWER && sizeof(layout) <= OA_MOST_ANSWER, "they are remembered by stamps");

/* One call: the routine, the descriptors, and the operands that were declared so far. */
typedef struct product {
  const oa_routine *routine;
  const oa_code_dtype *codes;
  get_attribute *get_of_layout, *get;
  set_attribute *set;
  void *object; /* the descriptor of the product or transformation */
  uint64_t stamp;
  answers answers;
  uint64_t before; /* the attributes that were read in earlier calls */
  layout a, b, c, d;
  int transa, transb, scale; /* scale: the dtype of alpha and beta */
  uint32_t epilogue;
  oa_operand operands[5 + OA_LT_POINTERS];
  const char *by[5 + OA_LT_POINTERS]; /* the descriptor that sets an operand's dtype */
  int attributes[OA_LT_POINTERS];     /* the attributes of the operands from first_attribute on */
  int first_attribute, count;
} product;

static int64_t layout_value(const product *p, const layout *l, int attribute, size_t nbytes, int *status) {
  int64_t value = 0; /* the library sets only the low bits for an attribute of 32 bits */
  const int answer = p->get_of_layout(l->object, attribute, &value, nbytes, NULL);
  /* A failure to read a later attribute is ignored, because older versions lack these attributes. */
  if (answer && attribute < PLANE_OFFSET && !*status) *status = answer;
  return nbytes == 4 ? (int32_t)value : value;
}

static int fail_layout(const product *p, const layout *l, const char *fault) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s %s; cublaslt.raw takes it", p->routine->function, l->name, fault);
}

/* Returns the data type of the two real numbers in a complex number; -1 for other types. */
static int real_of(int type) {
  if (type >= 4 && type <= 7) return type - 4; /* the types CUDA_C_32F to CUDA_C_8I */
  return type > 8 && type < 28 && type % 2 ? type - 1 : -1;
}

/* Sets the plane of imaginary parts: the layout then describes two matrices of real numbers. */
static int ask_plane(const product *p, layout *l, int64_t bytes) {
  const int real = real_of(l->type);
  if (real < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s has a plane_offset, and its type is not complex (%s)",
                   p->routine->function, l->name, oa_name_of_code(p->codes, l->type));
  if (l->batches != 1) return fail_layout(p, l, "has both a plane_offset and a batch_count");
  l->dtype = oa_dtype_of_code(p->codes, real);
  const int size = l->dtype == OA_ANY ? 0 : oa_itemsize(l->dtype);
  if (!size) return fail_layout(p, l, "has a plane_offset for numbers that NumPy lacks");
  if (bytes < 0 || bytes % size)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a plane_offset of 0 or more bytes, in multiples of %d, got %lld",
                   p->routine->function, l->name, size, (long long)bytes);
  l->plane = bytes / size;
  return OA_OK;
}

/* Reads a layout from the library. */
static int ask_layout(const product *p, layout *l) {
  int status = 0;
  l->type = (int)layout_value(p, l, TYPE, 4, &status);
  l->order = (int)layout_value(p, l, ORDER, 4, &status);
  l->rows = layout_value(p, l, ROWS, 8, &status);
  l->columns = layout_value(p, l, COLS, 8, &status);
  l->ld = layout_value(p, l, LD, 8, &status);
  l->batches = (int)layout_value(p, l, BATCH_COUNT, 4, &status);
  l->stride = layout_value(p, l, BATCH_STRIDE, 8, &status);
  if (status) return oa_fail_description(p->routine, l->name, "cublasLtMatrixLayoutGetAttribute", l->object, status);
  const int64_t plane = layout_value(p, l, PLANE_OFFSET, 8, &status);
  l->dtype = oa_dtype_of_code(p->codes, l->type);
  if (plane && (status = ask_plane(p, l, plane))) return status;
  if (l->dtype == OA_ANY)
    return oa_fail(OA_ERROR_TYPE, "%s: %s is of %s, which no array of NumPy has; cublaslt.raw takes it",
                   p->routine->function, l->name, oa_name_of_code(p->codes, l->type));
  if (l->order < ORDER_COL || l->order > ORDER_COL32_2R_4R4) return fail_layout(p, l, "has an unknown order");
  if (layout_value(p, l, BATCH_MODE, 4, &status))
    return fail_layout(p, l, "has an array of pointers to its matrices (batch_mode)");
  return OA_OK;
}

static int read_layout(const product *p, layout *l, const char *name, const char *matrix, const oa_value *value) {
  const uint64_t stamp = oa_stamp_of(value);
  const void *object = value->pointer;
  const int known = object && oa_answer_find(&stamp, 1, 1, l, sizeof *l);
  if (!known) *l = (layout){0};
  l->name = name;
  l->matrix = matrix;
  l->object = object;
  if (known) return OA_OK;
  if (!object) return oa_fail_description(p->routine, name, "cublasLtMatrixLayoutGetAttribute", NULL, 0);
  const int status = ask_layout(p, l);
  if (!status) oa_answer_keep(&stamp, 1, 1, l, sizeof *l);
  return status;
}

static int64_t rounded(int64_t size, int64_t to) {
  return size > INT64_MAX - to ? INT64_MAX : (size + to - 1) / to * to;
}

/* Returns the extent of a matrix in an order of tiles: groups of 32 columns, `ld` elements apart. */
static oa_extent tiles(const layout *l) {
  const int rows_to = l->order == ORDER_COL32 ? 1 : l->order == ORDER_COL4_4R2_8C ? 8 : 32;
  const int64_t groups = rounded(l->columns, 32) / 32, group = oa_times(32, rounded(l->rows, rows_to));
  return OA_MATRIX(l->rows ? group : 0, groups, l->ld, "the elements of 32 columns", "cols / 32", "ld");
}

static oa_extent extent_of(const layout *l) {
  oa_extent extent = tiles(l);
  if (l->order == ORDER_COL) extent = OA_MATRIX(l->rows, l->columns, l->ld, "rows", "cols", "ld");
  if (l->order == ORDER_ROW) extent = OA_MATRIX(l->columns, l->rows, l->ld, "cols", "rows", "ld");
  if (l->plane) return oa_strided(extent, 2, l->plane, "planes", "plane_offset");
  return l->batches == 1 ? extent : oa_strided(extent, l->batches, l->stride, "batch_count", "strided_batch_offset");
}

static void add(product *p, const char *name, const void *pointer, int access, int dtype, oa_extent extent,
                const char *by) {
  p->by[p->count] = by;
  p->operands[p->count++] = oa_operand_of(name, pointer, access, dtype, extent);
}

static void add_matrix(product *p, const layout *l, const void *pointer, int access) {
  add(p, l->matrix, pointer, access, l->dtype, extent_of(l), l->name);
}

/* If an operand does not fit its descriptor, adds the descriptor's name to the failure of the call. */
static int fail_operands(const product *p, int status) {
  oa_saved_error saved;
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  if (status != OA_ERROR_TYPE && status != OA_ERROR_EXTENT && status != OA_ERROR_ARGUMENT) return status;
  oa_error_save(&saved);
  for (int i = 0; i < p->count; i++) {
    const oa_operand *o = &p->operands[i];
    if (!p->by[i]) continue;
    if (status == OA_ERROR_TYPE && o->dtype != OA_ANY && !oa_pointer_query(o->pointer, &info) && info.dtype != o->dtype)
      return oa_fail(status, "%s: %s needs %s, as %s says, got a pointer to %s", p->routine->function, o->name,
                     oa_dtype_name(o->dtype), p->by[i], oa_dtype_name(info.dtype));
  }
  oa_error_restore(&saved);
  return status;
}

/* -- the descriptor of a product -- */

/* Initializes the product, with the attributes that earlier calls read. Returns whether the library has the functions
 * of `asks`. Does not initialize the array of operands, because the array is large. */
static bool start(product *p, const oa_routine *routine, const oa_value *desc, const int *asks,
                  const oa_code_dtype *codes) {
  p->routine = routine;
  p->codes = codes;
  p->get_of_layout = (get_attribute *)oa_asked(routine, asks[0]);
  p->get = (get_attribute *)oa_asked(routine, asks[1]);
  p->object = (void *)(uintptr_t)desc->pointer;
  p->stamp = oa_stamp_of(desc);
  if (!p->object || !oa_answer_find(&p->stamp, 1, 1, &p->answers, sizeof p->answers)) p->answers.attributes = 0;
  p->before = p->answers.attributes;
  p->epilogue = 0;
  p->count = p->first_attribute = 0;
  return p->get_of_layout && p->get;
}

/* Keeps the descriptor's attributes, if more were read than before. */
static void remember(const product *p) {
  if (p->answers.attributes != p->before) oa_answer_keep(&p->stamp, 1, 1, &p->answers, sizeof p->answers);
}

static int64_t product_value(product *p, int attribute, size_t nbytes) {
  int64_t value = 0;
  if (p->answers.attributes >> attribute & 1) return p->answers.values[attribute];
  /* an older version lacks the attribute, and works as a newer version does with the default value */
  if (p->get(p->object, attribute, &value, nbytes, NULL)) value = 0;
  p->answers.attributes |= (uint64_t)1 << attribute;
  return p->answers.values[attribute] = nbytes == 4 ? (int32_t)value : value;
}

static int read_descriptor(product *p, const char *name, int scale, int mode, int transa, int transb) {
  if (!(p->answers.attributes >> scale & 1)) {
    int32_t code = 0;
    const int status = p->get(p->object, scale, &code, sizeof code, NULL);
    if (status) return oa_fail_description(p->routine, name, "its GetAttribute", p->object, status);
  }
  p->scale = oa_dtype_of_code(p->codes, (int)product_value(p, scale, 4));
  p->transa = product_value(p, transa, 4) != 0;
  p->transb = product_value(p, transb, 4) != 0;
  if (!product_value(p, mode, 4)) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT,
                 "%s: %s has a pointer mode, and alpha and beta are numbers: set POINTER_MODE_HOST, or call "
                 "cublaslt.raw",
                 p->routine->function, name);
}

/* Writes alpha or beta in the descriptor's type. */
static int weight(const product *p, const char *name, const char *by, const oa_value *number, oa_value *to) {
  return oa_weight_for(p->routine, name, number->parts, p->scale, by, to);
}

static int check_size(const product *p, const layout *l, const char *dimension, int64_t size, const layout *other,
                      int64_t needed) {
  if (size == needed) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs %lld %s, as %s says, has %lld", p->routine->function, l->name,
                 (long long)needed, dimension, other->name, (long long)size);
}

static int check_batches(const product *p, const layout *l) {
  if (l->batches == p->d.batches) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a batch_count of %d, as %s has, got %d", p->routine->function,
                 l->name, p->d.batches, p->d.name, l->batches);
}

/* Checks that the matrices of a product fit. */
static int check_product(const product *p) {
  const layout *a = &p->a, *b = &p->b, *c = &p->c, *d = &p->d;
  const int64_t inner = p->transa ? a->rows : a->columns;
  int status = check_size(p, a, p->transa ? "columns" : "rows", p->transa ? a->columns : a->rows, d, d->rows);
  if (!status)
    status = check_size(p, b, p->transb ? "rows" : "columns", p->transb ? b->rows : b->columns, d, d->columns);
  if (!status) status = check_size(p, b, p->transb ? "columns" : "rows", p->transb ? b->columns : b->rows, a, inner);
  if (!status) status = check_size(p, c, "rows", c->rows, d, d->rows);
  if (!status) status = check_size(p, c, "columns", c->columns, d, d->columns);
  if (!status) status = check_batches(p, a);
  if (!status) status = check_batches(p, b);
  return status ? status : check_batches(p, c);
}

/* -- attributes that are arrays -- */

static bool is_f8(int dtype) { return dtype == OA_F8E4M3 || dtype == OA_F8E5M2; }

/* Returns the dtype of the bias: the descriptor's, or the library's default. */
static int bias_dtype(product *p) {
  const int declared = (int)product_value(p, BIAS_DATA_TYPE, 4);
  if (declared >= 0) return oa_dtype_of_code(p->codes, declared);
  if (p->d.dtype == OA_I8) return p->scale;
  if (!is_f8(p->a.dtype) || !(is_f8(p->d.dtype) || p->d.dtype == OA_F32)) return p->d.dtype;
  return p->c.dtype == OA_F16 ? OA_F16 : OA_BF16;
}

static oa_extent repeated(product *p, oa_extent extent, int stride_attribute) {
  const int64_t stride = product_value(p, stride_attribute, 8);
  return p->d.batches == 1 ? extent : oa_strided(extent, p->d.batches, stride, "batch_count", "its batch stride");
}

static void add_bias(product *p, const char *name, const void *pointer) {
  const bool gradient = p->epilogue & (BGRAD | BGRADA | BGRADB);
  const int64_t size = p->epilogue & BGRADB ? p->d.columns : p->d.rows;
  const oa_extent extent = OA_EXTENT(OA_EXTENT_VECTOR, 0, size, 1, 1, p->epilogue & BGRADB ? "cols" : "rows", "", "");
  const int64_t stride = product_value(p, BIAS_BATCH_STRIDE, 8);
  const bool shared = p->d.batches > 1 && !stride; /* all batches share the bias */
  const int dtype = gradient && product_value(p, BIAS_DATA_TYPE, 4) < 0 ? p->d.dtype : bias_dtype(p);
  add(p, name, pointer, gradient ? OA_OVERWRITE : OA_READ, dtype,
      shared ? extent : repeated(p, extent, BIAS_BATCH_STRIDE), "computeDesc");
}

/* Declares the epilogue's auxiliary array. For ReLU, the array is a mask with a bit per element. For GELU, the array is
 * the input of GELU. */
static int add_aux(product *p, const char *name, const void *pointer) {
  const bool writes = p->epilogue & (RELU | GELU), is_mask = p->epilogue & (RELU | DRELU);
  const int64_t ld = product_value(p, EPILOGUE_AUX_LD, 8), to = is_mask ? 128 : 8;
  const int declared = (int)product_value(p, EPILOGUE_AUX_DATA_TYPE, 4);
  if (p->d.order != ORDER_COL)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: Ddesc needs ORDER_COL for an epilogue with %s", p->routine->function, name);
  if (ld % to || ld < p->d.rows)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: epilogue_aux_ld needs a multiple of %lld, and at least %lld, got %lld",
                   p->routine->function, (long long)to, (long long)p->d.rows, (long long)ld);
  const int access = !writes ? OA_READ : ld == p->d.rows ? OA_OVERWRITE : OA_READ_WRITE;
  if (!is_mask) {
    const oa_extent extent = OA_MATRIX(p->d.rows, p->d.columns, ld, "rows", "cols", "epilogue_aux_ld");
    add(p, name, pointer, writes ? OA_OVERWRITE : OA_READ,
        declared < 0 ? p->d.dtype : oa_dtype_of_code(p->codes, declared),
        repeated(p, extent, EPILOGUE_AUX_BATCH_STRIDE), "computeDesc");
    return OA_OK;
  }
  oa_extent bytes = OA_MATRIX(ld / 8, p->d.columns, ld / 8, "epilogue_aux_ld / 8", "cols", "epilogue_aux_ld / 8");
  if (p->d.batches > 1)
    bytes = oa_strided(bytes, p->d.batches, product_value(p, EPILOGUE_AUX_BATCH_STRIDE, 8) / 8, "batch_count",
                       "epilogue_aux_batch_stride / 8");
  add(p, name, pointer, access, OA_U8, bytes, "computeDesc");
  return OA_OK;
}

static int64_t over_up(int64_t size, int64_t by) { return size / by + (size % by != 0); }

/* Returns the number of scales that a mode has for a matrix of `outer` lines of `inner` elements, as in the manual:
 * scales of 8 bits are in tiles of 128 lines and 4 blocks. -1: the mode is unknown. */
static int64_t count_scales(int mode, int64_t inner, int64_t outer) {
  switch (mode) {
    case SCALE_SCALAR_32F:
    case SCALE_PER_BATCH_SCALAR_32F:
      return 1;
    case SCALE_OUTER_VEC_32F:
      return outer;
    case SCALE_VEC16_UE4M3:
      return oa_times(rounded(outer, 128), rounded(over_up(inner, 16), 4));
    case SCALE_VEC32_UE8M0:
      return oa_times(rounded(outer, 128), rounded(over_up(inner, 32), 4));
    case SCALE_VEC128_32F:
      return oa_times(outer, over_up(inner, 128));
    case SCALE_BLK128x128_32F:
      return oa_times(over_up(outer, 128), rounded(over_up(inner, 128), 4));
    case SCALE_VEC128_MN_K4_UE8M0:
      return oa_times(rounded(outer, 4), oa_times(4, over_up(inner, 512)));
    case SCALE_VEC32_MN_K4_UE8M0:
      return oa_times(rounded(outer, 4), oa_times(4, over_up(inner, 128)));
    default:
      return -1;
  }
}

static bool is_of_bytes(int mode) {
  return mode == SCALE_VEC16_UE4M3 || mode == SCALE_VEC32_UE8M0 || mode >= SCALE_VEC128_MN_K4_UE8M0;
}

/* Declares an array of scales: a single number, or a number for each line or each block of lines. Scales of 8 bits are
 * bytes of any dtype. The matrices of a batch share a single number or a vector, and no other scales. */
static int add_scale(product *p, int index, const void *pointer) {
  const int attribute = pointers[index].attribute;
  const char *name = pointers[index].name;
  const int mode = pointers[index].mode ? (int)product_value(p, pointers[index].mode, 4) : SCALE_SCALAR_32F;
  const bool of_a = attribute == A_SCALE_POINTER, of_b = attribute == B_SCALE_POINTER;
  const int64_t inner = !(of_a || of_b) ? p->d.rows : p->transa ? p->a.rows : p->a.columns;
  const int64_t each = count_scales(mode, inner, of_a ? p->d.rows : p->d.columns);
  const bool shared = mode == SCALE_SCALAR_32F || mode == SCALE_OUTER_VEC_32F;
  const int64_t count = oa_times(each, shared ? 1 : p->d.batches);
  const bool writes =
      attribute == AMAX_D_POINTER || attribute == EPILOGUE_AUX_AMAX_POINTER || attribute == D_OUT_SCALE_POINTER;
  /* The library writes some arrays of scales, but may leave their padding unwritten. */
  const int access = !writes ? OA_READ : mode == SCALE_SCALAR_32F ? OA_OVERWRITE : OA_READ_WRITE;
  if (each < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: computeDesc has the mode %d for %s, which is unknown; cublaslt.raw takes it",
                   p->routine->function, mode, name);
  const bool bytes = is_of_bytes(mode);
  add(p, name, pointer, access, bytes ? OA_ANY : OA_F32,
      bytes ? oa_extent_of_bytes(pointer, count, "its scale mode")
            : OA_EXTENT(OA_EXTENT_VECTOR, 0, count, 1, 1, mode ? "the scales of its mode" : "size", "", ""),
      bytes ? NULL : "computeDesc");
  return OA_OK;
}

static int fail_no_pointer(const product *p, const char *name) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: computeDesc has an epilogue that needs %s, which is not set",
                 p->routine->function, name);
}

/* Declares the attributes that are arrays, except arrays that the epilogue does not use. */
static int add_attributes(product *p) {
  const bool has_bias = p->epilogue & (BIAS | BGRAD | BGRADA | BGRADB), has_aux = p->epilogue & AUX;
  int status = OA_OK;
  p->first_attribute = p->count;
  for (int i = 0; i < OA_LT_POINTERS && !status; i++) {
    const int attribute = pointers[i].attribute, before = p->count;
    const char *name = pointers[i].name;
    const void *pointer = (const void *)(uintptr_t)product_value(p, attribute, sizeof pointer);
    if (attribute == BIAS_POINTER || attribute == EPILOGUE_AUX_POINTER) {
      const bool is_bias = attribute == BIAS_POINTER;
      if (!(is_bias ? has_bias : has_aux)) continue;
      if (!pointer) return fail_no_pointer(p, name);
      if (is_bias)
        add_bias(p, name, pointer);
      else
        status = add_aux(p, name, pointer);
    } else if (pointer) {
      status = add_scale(p, i, pointer);
    }
    if (p->count > before) p->attributes[before - p->first_attribute] = attribute;
  }
  return status;
}

/* Replaces the handles in the descriptor by addresses, or the addresses by the handles. */
static void show_addresses(const product *p, bool addresses) {
  for (int i = p->first_attribute; i < p->count; i++) {
    const oa_operand *o = &p->operands[i];
    const void *value = addresses ? o->address : o->pointer;
    p->set(p->object, p->attributes[i - p->first_attribute], &value, sizeof value);
  }
}

/* -- products -- */

/* The indices of matmul's values. */
enum matmul_value { DESC, ALPHA, A, A_DESC, B, B_DESC, BETA, C, C_DESC, D, D_DESC, ALGO, WORKSPACE, WORKSPACE_SIZE };

static bool is_same(const layout *c, const layout *d) {
  return c->type == d->type && c->order == d->order && c->ld == d->ld && c->stride == d->stride && c->plane == d->plane;
}

/* Returns whether C is a separate operand, which is then the fourth operand. */
static bool has_own_c(const oa_value *values) { return values[C].pointer && values[C].pointer != values[D].pointer; }

/* Returns the address of C. If the caller passed no C, beta is 0: then returns D's address if the layouts are the same,
 * and otherwise NULL. */
static const void *address_of_c(const product *p, const oa_value *values) {
  if (has_own_c(values)) return p->operands[3].address;
  return values[C].pointer || is_same(&p->c, &p->d) ? p->operands[2].address : NULL;
}

static bool is_zero(const oa_value *number) { return number->parts[0] == 0 && number->parts[1] == 0; }

static int read_product(product *p, const oa_value *values) {
  int status = read_descriptor(p, "computeDesc", SCALE_TYPE, POINTER_MODE, TRANSA, TRANSB);
  const bool own_c = values[C_DESC].pointer != NULL;
  if (!status) status = read_layout(p, &p->a, "Adesc", "A", &values[A_DESC]);
  if (!status) status = read_layout(p, &p->b, "Bdesc", "B", &values[B_DESC]);
  if (!status) status = read_layout(p, &p->d, "Ddesc", "D", &values[D_DESC]);
  const bool same = !own_c || values[C_DESC].pointer == values[D_DESC].pointer;
  if (!status && !same) status = read_layout(p, &p->c, "Cdesc", "C", &values[C_DESC]);
  if (status) return status;
  if (same) {
    p->c = p->d;
    p->c.matrix = "C";
    if (own_c) p->c.name = "Cdesc";
  }
  p->epilogue = (uint32_t)product_value(p, EPILOGUE, 4);
  return check_product(p);
}

/* Declares the matrices. If beta is 0, C is not read, and may be missing. */
static int add_matrices(product *p, const oa_value *values) {
  const char *function = p->routine->function;
  const void *c = values[C].pointer, *d = values[D].pointer;
  const bool reads = !is_zero(&values[BETA]);
  if (reads && !c) return oa_fail(OA_ERROR_ARGUMENT, "%s: C needs a DevicePtr, as beta is not 0; got none", function);
  if (reads && c == d && !is_same(&p->c, &p->d))
    return oa_fail(OA_ERROR_ALIAS, "%s: C is D, and Cdesc is not as Ddesc; pass the same layout", function);
  const bool partial = product_value(p, FILL_MODE, 4) != FILL_FULL; /* only one triangle of D is written */
  add_matrix(p, &p->a, values[A].pointer, OA_READ);
  add_matrix(p, &p->b, values[B].pointer, OA_READ);
  add_matrix(p, &p->d, d,
             (reads && c == d) || partial ? OA_READ_WRITE : OA_OVERWRITE | (c && c != d ? OA_IN_PLACE : 0));
  if (c && c != d) add_matrix(p, &p->c, c, OA_READ | OA_IN_PLACE);
  return OA_OK;
}

static int begin(product *p, oa_call *call) {
  *call = oa_call_of(p->routine->function, p->routine->library, p->operands, p->count);
  remember(p);
  const int status = oa_begin(call);
  return status ? fail_operands(p, status) : OA_OK;
}

/* Checks that the addresses have the alignment that an algorithm needs. */
static int check_alignment(const product *p, oa_call *call, const void *algo, void *symbol, const void *c) {
  get_attribute *capability = (get_attribute *)symbol;
  const void *const addresses[] = {p->operands[0].address, p->operands[1].address, c, p->operands[2].address};
  static const char names[] = "ABCD";
  uintptr_t all = 0;
  for (int i = 0; i < 4; i++) all |= (uintptr_t)addresses[i];
  /* This test avoids a query of the library, which takes half a microsecond. */
  if (all % MOST_ALIGNMENT == 0) return OA_OK;
  for (int i = 0; i < 4; i++) {
    uint32_t needed = 1;
    if (capability(algo, MIN_ALIGNMENT_A + i, &needed, sizeof needed, NULL) || !needed) continue;
    if ((uintptr_t)addresses[i] % needed == 0) continue;
    return oa_call_fail(
        call, oa_fail(OA_ERROR_ARGUMENT,
                      "%s: %c starts at %llu bytes after a multiple of %u, which algo needs; find one for less, by the "
                      "preferences min_alignment_*_bytes, or the alignment of a Matmul",
                      p->routine->function, names[i], (unsigned long long)((uintptr_t)addresses[i] % needed), needed));
  }
  return OA_OK;
}

/* Gets the workspace size of an algorithm from the library. Returns the library's status. */
static int ask_workspace(const product *p, const oa_call *call, const void *algo, void *symbol, size_t *needed) {
  unsigned char result[RESULT_BYTES] = {0};
  int (*check)(void *, const void *, const void *, const void *, const void *, const void *, const void *, void *) =
      (int (*)(void *, const void *, const void *, const void *, const void *, const void *, const void *,
               void *))symbol;
  const int status = check(call->handle, p->object, p->a.object, p->b.object, p->c.object, p->d.object, algo, result);
  memcpy(needed, result + ALGO_BYTES, sizeof *needed);
  return status;
}

/* Takes the workspace: the caller's memory, or device memory of the size that the caller passed. The workspace has at
 * least the bytes that `algo` needs. */
static int take_workspace(const product *p, oa_call *call, oa_workspace *workspace, const oa_value *values,
                          const int *asks) {
  const void *algo = values[ALGO].host.address;
  const int64_t size = values[WORKSPACE_SIZE].integer;
  const bool own = values[WORKSPACE].pointer != NULL;
  void *address = own ? p->operands[p->first_attribute - 1].address : NULL;
  size_t needed = own ? 0 : (size_t)size;
  int answer = call->library->success;
  if (algo) {
    void *capability = oa_asked(p->routine, asks[4]), *check = oa_asked(p->routine, asks[3]);
    const void *c = address_of_c(p, values);
    int status = capability && check ? OA_OK : oa_call_fail(call, OA_ERROR_LIBRARY);
    if (!status) status = check_alignment(p, call, algo, capability, c);
    if (status) return status;
    if (own || !size) answer = ask_workspace(p, call, algo, check, &needed);
  }
  return oa_workspace_take(call, workspace, address, "workspace", size, "workspaceSizeInBytes", needed, answer,
                           "cublasLtMatmulAlgoCheck");
}

static int call_matmul(const product *p, const oa_call *call, void *symbol, const oa_value *values,
                       const oa_value *alpha, const oa_value *beta, const oa_workspace *workspace) {
  typedef int matmul(void *, const void *, const void *, const void *, const void *, const void *, const void *,
                     const void *, const void *, const void *, void *, const void *, const void *, void *, size_t,
                     void *);
  void *d = p->operands[2].address;
  const void *c = address_of_c(p, values);
  return ((matmul *)symbol)(call->handle, p->object, alpha, p->operands[0].address, p->a.object, p->operands[1].address,
                            p->b.object, beta, c, p->c.object, d, p->d.object, values[ALGO].host.address,
                            workspace->address, workspace->nbytes, call->native_stream);
}

/* Makes the call once everything is declared. */
static int run_matmul(product *p, void *symbol, const oa_value *values, const int *asks, const oa_value *alpha,
                      const oa_value *beta) {
  oa_call call;
  oa_workspace workspace = {0};
  int status = begin(p, &call);
  if (status) return status;
  if (!p->d.rows || !p->d.columns || !p->d.batches) return oa_end(&call, call.library->success);
  show_addresses(p, true);
  status = take_workspace(p, &call, &workspace, values, asks);
  if (status) {
    show_addresses(p, false);
    return status;
  }
  const int answer = call_matmul(p, &call, symbol, values, alpha, beta, &workspace);
  show_addresses(p, false);
  return oa_workspace_end(&call, &workspace, answer);
}

static int check_rest(const oa_routine *routine, const oa_value *values) {
  const int64_t size = values[WORKSPACE_SIZE].integer;
  if (size < 0) return oa_fail_negative(routine, "workspaceSizeInBytes", size);
  if (!values[ALGO].host.array) return OA_OK;
  return oa_check_bytes(routine, "algo", &values[ALGO], ALGO_BYTES, NULL, NULL, 0, 0);
}

int oa_lt_matmul(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes) {
  oa_value alpha, beta;
  product p;
  void *symbol = oa_routine_symbol(routine, 0);
  if (!symbol) return oa_fail_symbol(routine, values, 0, 0);
  p.set = (set_attribute *)oa_asked(routine, asks[2]);
  if (!start(&p, routine, &values[DESC], asks, codes) || !p.set) return OA_ERROR_LIBRARY;
  int status = check_rest(routine, values);
  if (!status) status = read_product(&p, values);
  if (!status) status = weight(&p, "alpha", "computeDesc", &values[ALPHA], &alpha);
  if (!status) status = weight(&p, "beta", "computeDesc", &values[BETA], &beta);
  if (!status) status = add_matrices(&p, values);
  if (status) return status;
  if (values[WORKSPACE].pointer) {
    const oa_extent bytes =
        oa_extent_of_bytes(values[WORKSPACE].pointer, values[WORKSPACE_SIZE].integer, "workspaceSizeInBytes");
    add(&p, "workspace", values[WORKSPACE].pointer, OA_OVERWRITE, OA_ANY, bytes, NULL);
  }
  if ((status = add_attributes(&p))) return status;
  return run_matmul(&p, symbol, values, asks, &alpha, &beta);
}

/* -- transformations -- */

/* The indices of matrix_transform's values. */
enum transform_value { T_DESC, T_ALPHA, T_A, T_A_DESC, T_BETA, T_B, T_B_DESC, T_C, T_C_DESC };

/* Reads the layout of one source, and declares the source as an operand. A missing source counts as zeros. */
static int read_source(product *p, layout *l, const char *name, const char *matrix, const oa_value *pointer,
                       const oa_value *number, bool transposed) {
  const oa_value *desc = pointer + 1;
  const layout *c = &p->c;
  if (!pointer->pointer) {
    if (is_zero(number)) return OA_OK;
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a DevicePtr, as %s is not 0; got none", p->routine->function,
                   matrix, matrix[0] == 'A' ? "alpha" : "beta");
  }
  int status = read_layout(p, l, name, matrix, desc);
  if (!status)
    status = check_size(p, l, transposed ? "columns" : "rows", transposed ? l->columns : l->rows, c, c->rows);
  if (!status)
    status = check_size(p, l, transposed ? "rows" : "columns", transposed ? l->rows : l->columns, c, c->columns);
  if (status) return status;
  p->d = *c; /* the layout of C sets the number of batches */
  p->d.name = c->name;
  if ((status = check_batches(p, l))) return status;
  add_matrix(p, l, pointer->pointer, OA_READ);
  return OA_OK;
}

static int call_transform(const product *p, const oa_call *call, void *symbol, const oa_value *alpha,
                          const oa_value *beta, int b) {
  typedef int transform(void *, const void *, const void *, const void *, const void *, const void *, const void *,
                        const void *, void *, const void *, void *);
  const bool has_a = b > 1, has_b = p->count > b;
  return ((transform *)symbol)(call->handle, p->object, alpha, has_a ? p->operands[1].address : NULL,
                               has_a ? p->a.object : NULL, beta, has_b ? p->operands[b].address : NULL,
                               has_b ? p->b.object : NULL, p->operands[0].address, p->c.object, call->native_stream);
}

int oa_lt_transform(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes) {
  oa_value alpha, beta;
  oa_call call;
  product p;
  void *symbol = oa_routine_symbol(routine, 0);
  if (!symbol) return oa_fail_symbol(routine, values, 0, 0);
  if (!start(&p, routine, &values[T_DESC], asks, codes)) return OA_ERROR_LIBRARY;
  int status = read_descriptor(&p, "transformDesc", TRANSFORM_SCALE_TYPE, TRANSFORM_POINTER_MODE, TRANSFORM_TRANSA,
                               TRANSFORM_TRANSB);
  if (!status) status = weight(&p, "alpha", "transformDesc", &values[T_ALPHA], &alpha);
  if (!status) status = weight(&p, "beta", "transformDesc", &values[T_BETA], &beta);
  if (!status) status = read_layout(&p, &p.c, "Cdesc", "C", &values[T_C_DESC]);
  if (status) return status;
  add_matrix(&p, &p.c, values[T_C].pointer, OA_OVERWRITE);
  status = read_source(&p, &p.a, "Adesc", "A", &values[T_A], &values[T_ALPHA], p.transa);
  const int b = p.count;
  if (!status) status = read_source(&p, &p.b, "Bdesc", "B", &values[T_B], &values[T_BETA], p.transb);
  if (!status) status = begin(&p, &call);
  if (status) return status;
  if (!p.c.rows || !p.c.columns || !p.c.batches) return oa_end(&call, call.library->success);
  return oa_end(&call, call_transform(&p, &call, symbol, &alpha, &beta, b));
}
#endif
