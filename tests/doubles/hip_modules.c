/* Modules and launches of the double of libamdhip64, which hip.c includes. They follow the sources of HIP 5.7: they
 * refuse the same calls with the same codes, and omit the same checks. Modules are HSACOs and bundles of HSACOs. Their
 * code is not run. A section ".double" may have a shared object with the same kernels for the CPU. Without this
 * section, kernels.h runs kernels of tests/kernels by their names, and other kernels do nothing.
 *
 * The first device is a gfx90a, and the second device is a gfx1100. HIP_DOUBLE_PROCESSOR=gfx942 makes every device a
 * gfx942. */
#include "../../csrc/kernel/hsaco.c"

enum {
  INVALID_CONFIGURATION = 9,
  NO_BINARY_FOR_GPU = 209,
  INVALID_KERNEL_FILE = 218,
  INIT_FAILED = 303,
  CODE_OBJECT_5 = 3, /* in its header */
  LAUNCH_FAILURE = 719,
  SHARED_BYTES = 65536, /* of a block */
  MOST_ARGUMENT_BYTES = 8192,
  BUFFER_POINTER = 1, /* of `extra` */
  BUFFER_SIZE = 2,
  BUFFER_END = 3
};

static const size_t unknown_size = PTRDIFF_MAX / 2; /* HIP does not get the length of an image */

/* Returns the processor, and its features that code may require on or off. gfx1100 has no such features. */
static const char *target(int device) {
  const char *processor = getenv("HIP_DOUBLE_PROCESSOR");
  return processor ? processor : device ? "gfx1100" : "gfx90a:sramecc+:xnack-";
}

#ifndef REAL_HEADERS
/* Sets the processor and its features. The other properties are zeros. */
hipError_t hipGetDeviceProperties(void *properties, int device) { /* of HIP 5 */
  enum { BYTES = 792, PLACE = 396 };
  memset(properties, 0, BYTES);
  snprintf((char *)properties + PLACE, 256, "%s", target(device));
  return 0;
}
hipError_t hipGetDevicePropertiesR0600(void *properties, int device) {
  enum { BYTES = 1472, PLACE = 1160 };
  memset(properties, 0, BYTES);
  snprintf((char *)properties + PLACE, 256, "%s", target(device));
  return 0;
}
#endif

/* -- modules ------------------------------------------------------------------------------------------------------- */

struct amd_module {
  oa_bytes object; /* the caller's own memory, which HIP reads as long as the module is loaded */
  oa_bytes metadata;
  uint64_t sum;
  void *library; /* the shared object that runs in place of the module's code; never closed */
};

struct amd_function {
  struct amd_function *next;
  const struct amd_module *module;
  oa_hsaco_kernel facts;
  char name[64];
  oa_kernel_function *run;
};
static struct amd_function *amd_functions; /* never freed */

static uint64_t sum_of(oa_bytes bytes) {
  uint64_t sum = 1;
  for (size_t i = 0; i < bytes.nbytes; i++) sum = sum * 31 + bytes.at[i];
  return sum;
}

/* Returns whether code fits a device. `code`: 3 needs the feature on, 2 needs it off, other code fits both. The device
 * has the feature on ("+") or off ("-"). */
static int feature_suits(unsigned code, const char *name, const char *feature) {
  const char *place = strstr(name, feature);
  return code < 2 || (place && place[strlen(feature)] == (code == 3 ? '+' : '-'));
}

/* Returns whether the code is for the device, according to the flags of the header. For code objects 4 and later. */
static int is_for(const Elf64_Ehdr *header, const char *name) {
  if (!feature_suits(header->e_flags >> 8 & 3, name, ":xnack")) return 0;
  if (!feature_suits(header->e_flags >> 10 & 3, name, ":sramecc")) return 0;
  if (header->e_ident[EI_ABIVERSION] > CODE_OBJECT_5 && version() < 6) return 0;
  static const struct {
    const char *name;
    unsigned number;
  } processors[] = {{"gfx90a", 0x3f}, {"gfx942", 0x4c}, {"gfx1100", 0x41}};
  for (size_t i = 0; i < sizeof processors / sizeof *processors; i++)
    if (strcspn(name, ":") == strlen(processors[i].name) && !strncmp(processors[i].name, name, strcspn(name, ":")))
      return (header->e_flags & 0xff) == processors[i].number;
  return 0;
}

static void load_library(struct amd_module *module, const Elf64_Ehdr *header) {
  const Elf64_Shdr *sections = (const void *)(module->object.at + header->e_shoff);
  if (header->e_shstrndx >= header->e_shnum) return; /* the file is damaged */
  const Elf64_Shdr *table = &sections[header->e_shstrndx];
  const char *names = (const char *)module->object.at + table->sh_offset;
  for (int i = 0; i < header->e_shnum; i++) {
    char path[64];
    if (sections[i].sh_name + sizeof ".double" > table->sh_size) continue;
    if (memcmp(names + sections[i].sh_name, ".double", sizeof ".double") != 0) continue;
    const int file = memfd_create("module", 0);
    if (write(file, module->object.at + sections[i].sh_offset, sections[i].sh_size) < 0) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
}

static int load_module(void **result, const void *image) {
  const char *name = target(current()->number);
  struct amd_module module = {0};
  oa_hsaco_kernel kernel;
  oa_bytes list;
  uint64_t left = UINT64_MAX;
  if (!image || !result) return INVALID_VALUE;
  if (!oa_hsaco_find(image, unknown_size, name, &module.object)) return NO_BINARY_FOR_GPU;
  const Elf64_Ehdr *header = (const void *)module.object.at;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return INVALID_KERNEL_FILE;
  if (!is_for(header, name) || !oa_hsaco_metadata(module.object, &module.metadata)) return INIT_FAILED;
  if (!oa_hsaco_kernels(module.metadata, &list)) return INIT_FAILED;
  while (oa_hsaco_next(&list, &left, &kernel))
    if (!kernel.uniform_blocks && header->e_ident[EI_ABIVERSION] >= CODE_OBJECT_5) return INIT_FAILED;
  module.object.nbytes = header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr);
  module.sum = sum_of(module.object);
  load_library(&module, header);
  struct amd_module *kept = make(sizeof *kept, current()->number);
  if (!kept) return OUT_OF_MEMORY;
  *kept = module;
  *result = kept;
  return SUCCESS;
}

hipError_t hipModuleLoadData(hipModule_t *module, const void *image) { ANSWER(load_module((void **)module, image)); }
hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned count, hipJitOption *options,
                               void **values) {
  (void)count, (void)options, (void)values; /* HIP ignores them, too */
  ANSWER(load_module((void **)module, image));
}
hipError_t hipModuleUnload(hipModule_t module) {
  be_ready();
  if (belongs(module) || !module) return remember(INVALID_HANDLE);
  drop(module, current()->number);
  return remember(SUCCESS);
}

static int get_function(void **function, const struct amd_module *module, const char *name) {
  char symbol[96];
  struct amd_function added = {.module = module};
  if (!function || !name || !*name) return INVALID_VALUE;
  if (!module || belongs(module)) return INVALID_HANDLE;
  if (!oa_hsaco_find_kernel(module->metadata, name, &added.facts)) return NOT_FOUND;
  snprintf(added.name, sizeof added.name, "%s", name);
  snprintf(symbol, sizeof symbol, "oa_kernel_%s", name);
  if (module->library) *(void **)&added.run = dlsym(module->library, symbol);
  struct amd_function *kept = malloc(sizeof *kept);
  if (!kept) return OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  added.next = amd_functions;
  *kept = added;
  amd_functions = kept;
  pthread_mutex_unlock(&lock);
  *function = kept;
  return SUCCESS;
}
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  ANSWER(get_function((void **)function, (const void *)module, name));
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t *address, size_t *nbytes, hipModule_t module, const char *name) {
  const struct amd_module *loaded = (const void *)module;
  gpu_address variable = 0;
  be_ready();
  if (!address || !nbytes || !name || !loaded || belongs(loaded)) return remember(INVALID_HANDLE);
  const int code = find_variable(&variable, nbytes, loaded->library, name);
  *address = (hipDeviceptr_t)(uintptr_t)variable;
  return remember(code);
}

/* -- launches ------------------------------------------------------------------------------------------------------ */

static int attribute_of(int *value, int attribute, const struct amd_function *f) {
  if (!f || belongs(f->module)) return INVALID_HANDLE;
  const int own = (int)f->facts.shared_bytes;
  const int values[10] = {[0] = (int)f->facts.most_threads,
                          [1] = own,
                          [4] = (int)f->facts.vector_registers,
                          [5] = 30,
                          [8] = SHARED_BYTES - own};
  if (!value || attribute < 0 || attribute > 9) return INVALID_VALUE;
  *value = values[attribute];
  return SUCCESS;
}
hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute, hipFunction_t function) {
  ANSWER(attribute_of(value, (int)attribute, (const void *)function));
}

/* The block is a whole number of waves, so it may be larger than the limit `most` and the kernel's limit. */
hipError_t hipModuleOccupancyMaxPotentialBlockSize(int *grid, int *block, hipFunction_t function, size_t shared_bytes,
                                                   int most) {
  const struct amd_function *f = (const void *)function;
  be_ready();
  if (!grid || !block || !f || shared_bytes) return remember(INVALID_VALUE);
  *block = most < 1 || most > 1024 ? 1024 : (most + 63) / 64 * 64;
  *grid = 220;
  return remember(belongs(f->module));
}

/* The arguments of the last launch, as they are in the kernel's memory. Tests read them. */
static _Alignas(16) unsigned char last_arguments[MOST_ARGUMENT_BYTES];
static size_t last_bytes;
const void *double_arguments(size_t *nbytes);
const void *double_arguments(size_t *nbytes) { return *nbytes = last_bytes, last_arguments; }

/* Copies the arguments to the offsets that the metadata state. */
static int pack_arguments(const struct amd_function *f, void **arguments, void **extra, unsigned char *bytes) {
  oa_hsaco_parameter parameter;
  if (f->facts.argument_bytes > MOST_ARGUMENT_BYTES || (arguments && extra)) return INVALID_VALUE;
  if (extra &&
      (extra[0] != (void *)BUFFER_POINTER || extra[2] != (void *)BUFFER_SIZE || extra[4] != (void *)BUFFER_END))
    return INVALID_VALUE;
  for (int i = 0; i < MOST_PARAMETERS; i++) {
    if (!oa_hsaco_find_parameter(&f->facts, i, &parameter)) return INVALID_VALUE;
    if (!parameter.nbytes) break;
    memcpy(bytes + parameter.offset, arguments ? arguments[i] : (unsigned char *)extra[1] + parameter.offset,
           parameter.nbytes);
  }
  pthread_mutex_lock(&lock);
  memcpy(last_arguments, bytes, last_bytes = f->facts.argument_bytes);
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

static int run_amd(const struct amd_function *f, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                   unsigned char *bytes) {
  void *places[MOST_PARAMETERS];
  oa_hsaco_parameter parameter;
  oa_hsaco_kernel facts = f->facts;
  for (int i = 0; i < MOST_PARAMETERS && oa_hsaco_next_parameter(&facts, &parameter); i++)
    places[i] = bytes + parameter.offset;
  return run_kernel(f->run, f->name, grid, block, shared_bytes, places);
}

struct amd_launch {
  const struct amd_function *f;
  unsigned grid[3], block[3], shared_bytes;
  _Alignas(16) unsigned char bytes[MOST_ARGUMENT_BYTES];
};
static int launch_amd_later(const void *arguments, gpu_stream stream) {
  const struct amd_launch *l = arguments;
  _Alignas(16) unsigned char bytes[MOST_ARGUMENT_BYTES];
  (void)stream;
  memcpy(bytes, l->bytes, sizeof bytes);
  return belongs(l->f->module) ? INVALID_HANDLE : run_amd(l->f, l->grid, l->block, l->shared_bytes, bytes);
}

static int launch_amd(const struct amd_function *f, const unsigned asked[3], const unsigned block[3],
                      unsigned shared_bytes, const void *stream, void **arguments, void **extra) {
  _Alignas(16) unsigned char bytes[MOST_ARGUMENT_BYTES] = {0};
  unsigned grid[3];
  if (!f || belongs(f->module)) return INVALID_HANDLE;
  check_stream(stream);
  if (belongs(stream)) return INVALID_VALUE;
  if ((uint64_t)asked[0] * block[0] > UINT32_MAX) return INVALID_CONFIGURATION;
  for (int i = 0; i < 3; i++) { /* threads beyond 2^32 get lost */
    const unsigned all = asked[i] * block[i];
    if (asked[i] > INT32_MAX || all == 0) return INVALID_VALUE;
    grid[i] = all / block[i];
  }
  const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (threads > 1024 || shared_bytes > SHARED_BYTES) return INVALID_VALUE;
  if (threads > f->facts.most_threads) return LAUNCH_FAILURE;
  if (shared_bytes + f->facts.shared_bytes > SHARED_BYTES || sum_of(f->module->object) != f->module->sum) {
    fprintf(stderr, "a queue of the double failed: too much shared memory, or the module's image has changed\n");
    abort(); /* as AMD's runtime does */
  }
  const int code = pack_arguments(f, arguments, extra, bytes);
  if (code) return code;
  struct amd_launch later = {.f = f, .shared_bytes = shared_bytes};
  memcpy(later.grid, grid, sizeof later.grid);
  memcpy(later.block, block, sizeof later.block);
  memcpy(later.bytes, bytes, sizeof bytes);
  if (gpu_double_captures(stream, launch_amd_later, &later, sizeof later)) return SUCCESS;
  return run_amd(f, grid, block, shared_bytes, bytes);
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 hipStream_t stream, void **arguments, void **extra) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  ANSWER(launch_amd((const void *)function, grid, block, shared_bytes, stream, arguments, extra));
}
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                            hipStream_t stream, void **arguments) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  ANSWER(launch_amd((const void *)function, grid, block, shared_bytes, stream, arguments, NULL));
}
