/* Modules and kernels of the doubles of CUDA and HIP. cuda.c includes this file, and defines the functions that this
 * file uses. A module is a copy of its PTX text, or a shared object that the double of NVRTC made. PTX is not compiled:
 * this file has the kernels of tests/kernels in C, by their names. A kernel of another name does nothing. */
enum { INVALID_IMAGE = 200, INVALID_PTX = 218, UNSUPPORTED_PTX = 222, NOT_FOUND = 500 };
enum { MOST_PARAMETERS = 64, NEWEST_TARGET = 90, NEWEST_VERSION = 9 };

struct function {
  struct function *next;
  const char *module;
  char name[64];
  int count, most_shared;
  size_t offsets[MOST_PARAMETERS], sizes[MOST_PARAMETERS];
  oa_kernel_function *run; /* of a shared object */
};
static struct function *functions; /* never freed */

struct object_module {
  char magic[SELFMAG]; /* the magic bytes of ELF; PTX text begins with other bytes */
  void *library;       /* never closed */
};

static int refuse_image(int code, const char *why, unsigned count, const int *options, void **values) {
  for (unsigned i = 0; i < count; i++)
    if (options[i] == 5 && i + 1 < count && options[i + 1] == 6)
      snprintf(values[i], (size_t)(uintptr_t)values[i + 1], "ptxas fatal   : %s", why);
  return code;
}

/* Loads a shared object, from a file in memory that stays open. */
static int load_object(gpu_module *module, const Elf64_Ehdr *header) {
  const size_t nbytes = header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr);
  char path[64];
  const int file = memfd_create("module", 0);
  if (header->e_type != ET_DYN || write(file, header, nbytes) != (ssize_t)nbytes) return INVALID_IMAGE;
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  struct object_module *loaded = make(sizeof *loaded, current()->number);
  memcpy(loaded->magic, ELFMAG, SELFMAG);
  loaded->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  *module = loaded;
  return loaded->library ? SUCCESS : INVALID_IMAGE;
}

int cuModuleLoadDataEx(gpu_module *module, const void *image, unsigned count, int *options, void **values) {
  const char *text = image;
  if (!current() || gpu_double_unsafe()) return current() ? UNSUPPORTED : INVALID_CONTEXT;
  if (memcmp(image, ELFMAG, SELFMAG) == 0) return load_object(module, image);
  if (!strstr(text, ".version"))
    return refuse_image(INVALID_IMAGE, "this double reads PTX only", count, options, values);
  const char *target = strstr(text, ".target sm_");
  if (!target) return refuse_image(INVALID_PTX, "Missing .target directive", count, options, values);
  if (atoi(target + 11) > NEWEST_TARGET)
    return refuse_image(UNSUPPORTED_PTX, "SM version is newer than the device", count, options, values);
  if (atoi(strstr(text, ".version") + 8) > NEWEST_VERSION)
    return refuse_image(UNSUPPORTED_PTX, "Unsupported .version", count, options, values);
  char *copy = make(strlen(text) + 1, current()->number);
  if (!copy) return OUT_OF_MEMORY;
  strcpy(copy, text);
  *module = copy;
  return SUCCESS;
}

int cuModuleUnload(gpu_module module) {
  if (!current() || gpu_double_unsafe()) return current() ? UNSUPPORTED : INVALID_CONTEXT;
  return drop(module, current()->number) < 0 ? 400 : SUCCESS;
}

/* Reads the parameters in the brackets after the kernel's name. */
static void read_parameters(struct function *f, const char *text) {
  const char *end = text + strcspn(text, ")");
  size_t at = 0;
  while ((text = strstr(text, ".param")) && text < end && f->count < MOST_PARAMETERS) {
    int bits = 0, elements = 1, align = 0;
    const char *comma = text + strcspn(text, ",)"), *bracket = memchr(text, '[', (size_t)(comma - text));
    const char *type = text + 6 + strspn(text + 6, " ") + 1;
    if (strncmp(type, "align", 5) == 0) {
      align = atoi(type + 5);
      type = strchr(type, '.') + 1;
    }
    bits = atoi(type + strcspn(type, "0123456789"));
    if (bracket) elements = atoi(bracket + 1);
    const size_t size = (size_t)(bits / 8 * elements), unit = align ? (size_t)align : size;
    at = (at + unit - 1) / unit * unit;
    f->offsets[f->count] = at;
    f->sizes[f->count++] = size;
    at += size;
    text = comma;
  }
}

/* Reads the parameters of a shared object's kernel from the table beside the kernel. Returns 0 if the object has no
 * such kernel. */
static int read_object(struct function *f, const struct object_module *module) {
  char symbol[96];
  size_t at = 0;
  snprintf(symbol, sizeof symbol, "oa_kernel_%s", f->name);
  *(void **)&f->run = dlsym(module->library, symbol);
  snprintf(symbol, sizeof symbol, "oa_parameters_%s", f->name);
  const unsigned *table = dlsym(module->library, symbol);
  if (!f->run || !table) return 0;
  f->count = (int)table[0];
  for (int i = 0; i < f->count; i++) {
    const size_t size = table[i + 1] & ~OA_IS_POINTER, unit = size & -size; /* an estimate for a struct */
    at = (at + unit - 1) / unit * unit;
    f->offsets[i] = at;
    f->sizes[i] = size;
    at += size;
  }
  return 1;
}

int cuModuleGetFunction(gpu_function *function, gpu_module module, const char *name) {
  const char *at = module;
  const size_t length = strlen(name);
  const int code = belongs(module);
  if (code) return code;
  const int is_object = memcmp(module, ELFMAG, SELFMAG) == 0;
  while (!is_object && (at = strstr(at, ".entry "))) {
    at += 7;
    if (strncmp(at, name, length) == 0 && strcspn(at, "( \n") == length) break;
  }
  if (!at) return NOT_FOUND;
  struct function *added = calloc(1, sizeof *added);
  if (!added) return OUT_OF_MEMORY;
  added->module = module;
  added->most_shared = 49152;
  snprintf(added->name, sizeof added->name, "%s", name);
  if (!is_object) {
    read_parameters(added, at);
  } else if (!read_object(added, module)) {
    free(added);
    return NOT_FOUND;
  }
  pthread_mutex_lock(&lock);
  added->next = functions;
  functions = added;
  pthread_mutex_unlock(&lock);
  *function = added;
  return SUCCESS;
}

/* Finds a variable of a shared object, and registers it as memory of the current device. */
static int find_variable(gpu_address *address, size_t *nbytes, void *library, const char *name) {
  void *variable = library ? dlsym(library, name) : NULL, *entry = NULL;
  Dl_info info;
  if (!variable || !dladdr1(variable, &info, &entry, RTLD_DL_SYMENT) || !entry) return NOT_FOUND;
  *nbytes = ((const Elf64_Sym *)entry)->st_size;
  *address = (gpu_address)(uintptr_t)variable;
  if (owner_of(variable, *nbytes) >= 0) return SUCCESS;
  struct object *object = malloc(sizeof *object);
  pthread_mutex_lock(&lock);
  *object = (struct object){objects, variable, *nbytes, current()->number, 1, 0, 0};
  objects = object;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

int cuModuleGetGlobal_v2(gpu_address *address, size_t *nbytes, gpu_module module, const char *name) {
  const struct object_module *object = module;
  const int code = belongs(module);
  if (code) return code;
  return find_variable(address, nbytes, memcmp(object->magic, ELFMAG, SELFMAG) == 0 ? object->library : NULL, name);
}

/* Returns SUCCESS if the function's module is loaded in the current context, otherwise an error code. */
static int is_loaded(const struct function *f) { return f ? belongs(f->module) : INVALID_VALUE; }

int cuFuncGetAttribute(int *value, int attribute, gpu_function function) {
  const struct function *f = function;
  *value = attribute == 0 ? 1024 : attribute == 4 ? 16 : attribute == 8 ? f->most_shared : 0;
  return is_loaded(f);
}
int cuFuncSetAttribute(gpu_function function, int attribute, int value) {
  struct function *f = function;
  if (attribute != 8 || value > 232448) return INVALID_VALUE;
  f->most_shared = value;
  return is_loaded(f);
}
int cuFuncGetParamInfo(gpu_function function, size_t number, size_t *offset, size_t *nbytes) {
  const struct function *f = function;
  if (number >= (size_t)f->count) return INVALID_VALUE;
  *offset = f->offsets[number];
  *nbytes = f->sizes[number];
  return is_loaded(f);
}
int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, gpu_function function, size_t (*shared_of_block)(int),
                                     size_t shared, int most_block) {
  if (shared_of_block || shared || most_block) return INVALID_VALUE;
  *grid = 264;
  *block = 768;
  return is_loaded(function);
}

static int out_of_reach(const void *memory, size_t nbytes) { return nbytes && on_device((uintptr_t)memory, nbytes); }

/* Runs the kernels of tests/kernels/programs.py for all threads of a grid along x. Returns a code. */
static int run_known(const char *name, int64_t threads, void **p) {
  if (strcmp(name, "vadd") == 0) {
    const int n = *(int *)p[3];
    const float *a = *(float **)p[0], *b = *(float **)p[1];
    float *c = *(float **)p[2];
    const size_t nbytes = (size_t)(n < threads ? n : threads) * sizeof *c;
    if (out_of_reach(a, nbytes) || out_of_reach(b, nbytes) || out_of_reach(c, nbytes)) return ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < threads && i < n; i++) c[i] = a[i] + b[i];
  } else if (strcmp(name, "relu") == 0) {
    float *x = *(float **)p[0];
    const int n = *(int *)p[1];
    if (out_of_reach(x, (size_t)n * sizeof *x)) return ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < threads && i < n; i++) x[i] = x[i] > 0 ? x[i] : 0;
  } else if (strcmp(name, "line") == 0) { /* y = slope * x + start */
    const struct {
      float slope;
      double start;
    } *line = p[1];
    double *y = *(double **)p[0];
    const int64_t n = *(int64_t *)p[2];
    if (out_of_reach(y, (size_t)n * sizeof *y)) return ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < threads && i < n; i++) y[i] = (double)line->slope * (double)i + line->start;
  } else if (strcmp(name, "multiply") == 0) { /* a sparse matrix by a vector */
    const double *values = *(double **)p[0], *x = *(double **)p[4];
    const int *columns = *(int **)p[1], *starts = *(int **)p[2], rows = *(int *)p[3];
    double *y = *(double **)p[5];
    if (out_of_reach(starts, (size_t)(rows + 1) * sizeof *starts) || out_of_reach(y, (size_t)rows * sizeof *y) ||
        out_of_reach(values, (size_t)starts[rows] * sizeof *values) ||
        out_of_reach(columns, (size_t)starts[rows] * sizeof *columns))
      return ILLEGAL_ADDRESS;
    for (int64_t row = 0; row < threads && row < rows; row++) {
      y[row] = 0;
      for (int k = starts[row]; k < starts[row + 1]; k++) y[row] += values[k] * x[columns[k]];
    }
  } else if (strcmp(name, "offload_args_until") == 0) { /* csrc/backends/cuda.c */
    const char *number = *(char **)p[0];
    const unsigned words = *(unsigned *)p[1], nbytes = *(unsigned *)p[2];
    const uint64_t bits = *(uint64_t *)p[3], at_most = *(uint64_t *)p[4];
    uint64_t *count = *(uint64_t **)p[5], *outcome = *(uint64_t **)p[6];
    if (!looping || *(struct condition **)p[7] != looping || out_of_reach(number, words * nbytes) ||
        (uintptr_t)number % nbytes || out_of_reach(count, sizeof *count) ||
        owner_of(outcome, 2 * sizeof *outcome) != -1)
      return ILLEGAL_ADDRESS;
    uint64_t ended = 0;
    for (unsigned i = 0; i < words; i++) {
      uint64_t word = 0;
      memcpy(&word, number + i * nbytes, nbytes);
      ended |= word & bits;
    }
    ++*count;
    looping->value = !ended && *count < at_most;
    if (looping->value) return SUCCESS;
    outcome[0] = *count;
    outcome[1] = ended != 0;
  } else if (strcmp(name, "stray") == 0) { /* writes to address 0 */
    return ILLEGAL_ADDRESS;
  }
  return SUCCESS;
}

/* Runs a kernel that was compiled for this machine, or the known kernel of this name if `run` is NULL. */
static int run_kernel(oa_kernel_function *run, const char *name, const unsigned grid[3], const unsigned block[3],
                      unsigned shared_bytes, void **arguments) {
  int code = SUCCESS;
  oa_kernel_call call = {.arguments = arguments, .shared_bytes = shared_bytes, .shared = calloc(1, shared_bytes + 1)};
  memcpy(call.grid, grid, sizeof call.grid);
  memcpy(call.block, block, sizeof call.block);
  call.last = (long long)grid[0] * grid[1] * grid[2];
  hip_double_begin();
  if (run)
    run(&call);
  else
    code = run_known(name, (int64_t)grid[0] * block[0], arguments);
  hip_double_end();
  free(call.shared);
  return code;
}

struct launch {
  const struct function *f;
  unsigned grid[3], block[3], shared_bytes;
  _Alignas(16) char values[1024];
};
static operation launch_later;
static int is_launched_later(const struct function *f, const unsigned grid[3], const unsigned block[3],
                             unsigned shared_bytes, gpu_stream stream, void **arguments) {
  struct launch l = {.f = f, .shared_bytes = shared_bytes};
  memcpy(l.grid, grid, sizeof l.grid);
  memcpy(l.block, block, sizeof l.block);
  for (int i = 0; i < f->count && f->offsets[i] + f->sizes[i] <= sizeof l.values; i++)
    memcpy(l.values + f->offsets[i], arguments[i], f->sizes[i]);
  return gpu_double_captures(stream, launch_later, &l, sizeof l);
}

static int launch(const struct function *f, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                  gpu_stream stream, void **arguments) {
  int code = takes_work(stream);
  if (!code) code = is_loaded(f);
  if (code) return code;
  const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (!grid[0] || !grid[1] || !grid[2] || !threads || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 ||
      shared_bytes > (unsigned)f->most_shared)
    return INVALID_VALUE;
  if (is_launched_later(f, grid, block, shared_bytes, stream, arguments)) return SUCCESS;
  return run_kernel(f->run, f->name, grid, block, shared_bytes, arguments);
}

static int launch_later(const void *arguments, gpu_stream stream) {
  const struct launch *l = arguments;
  void *places[MOST_PARAMETERS];
  for (int i = 0; i < l->f->count; i++) places[i] = (char *)(uintptr_t)l->values + l->f->offsets[i];
  return launch(l->f, l->grid, l->block, l->shared_bytes, stream, places);
}

int cuLaunchKernel(gpu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, gpu_stream stream, void **arguments,
                   void **extra) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  return extra ? INVALID_VALUE : launch(function, grid, block, shared_bytes, stream, arguments);
}
int cuLaunchKernelEx(const struct launch_config *config, gpu_function function, void **arguments, void **extra) {
  if (extra || !config->attribute_count) return INVALID_VALUE;
  return launch(function, config->grid, config->block, config->shared_bytes, config->stream, arguments);
}
