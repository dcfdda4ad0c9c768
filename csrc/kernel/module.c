/* Modules and kernels: loading, finding, checking their parameters, unloading. */
#include "kernel/module.h"

#include "base/sized.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/stream.h"
#include "kernel/hsaco.h"
#include "kernel/image.h"
#include "kernel/shared_object.h"
#include "region/caller.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_on_host(const oa_device *device) { return device->backend->flags & OA_DEVICE_HOST_CALLS; }

/* -- modules ------------------------------------------------------------------------------------------------------ */

/* Writes the target at the end of a model: "gfx1100" for "AMD Radeon RX 7900 XTX (gfx1100)"; "" if there is none. */
static void target_of(const oa_device *device, char *text, size_t size) {
  const char *begin = strrchr(device->model, '(');
  snprintf(text, size, "%.*s", begin ? (int)strcspn(begin + 1, ")") : 0, begin ? begin + 1 : "");
}

/* Returns whether HIP accepts the blocks of all kernels of an HSACO of code object 5; HIP refuses a module if a kernel
 * permits blocks of unequal sizes in one launch. */
static bool has_uniform_blocks(oa_bytes metadata) {
  oa_hsaco_kernel kernel;
  oa_bytes list;
  uint64_t left = UINT64_MAX;
  if (!oa_hsaco_kernels(metadata, &list)) return true;
  while (oa_hsaco_next(&list, &left, &kernel))
    if (!kernel.uniform_blocks) return false;
  return true;
}

/* Returns the likely reason why HIP refused an image with code for those targets, and the remedy; "" if no reason is
 * known. */
static const char *reason_of(const oa_device *device, oa_bytes metadata, const void *image, size_t nbytes,
                             const char *targets) {
  char target[64], processor[64];
  oa_bytes object;
  target_of(device, target, sizeof target);
  snprintf(processor, sizeof processor, "%.*s", (int)strcspn(target, ":"), target);
  if (!*target || !oa_hsaco_find(image, nbytes, target, &object) ||
      (!oa_is_bundle(image, nbytes) &&
       !oa_hsaco_suits((oa_bytes){(const unsigned char *)targets, strlen(targets)}, target)))
    return strstr(targets, processor) && *processor
               ? "; compile it without :xnack and :sramecc, for both, or set the device's XNACK by HSA_XNACK=1 or 0"
               : "";
  if (oa_hsaco_version(object) > 5)
    return "; its code object is of version 6, which older releases of HIP do not load: compile it with "
           "-mcode-object-version=5";
  return has_uniform_blocks(metadata)
             ? ""
             : "; a kernel lacks .uniform_work_group_size: 1, which HIP wants of code object 5";
}

/* Adds the likely reason of HIP's refusal of an HSACO to the error text: HIP has one status code for many reasons. */
static int explain_refusal(const oa_device *device, oa_bytes metadata, const void *image, size_t nbytes) {
  char targets[256];
  oa_saved_error driver;
  oa_hsaco_targets(image, nbytes, targets, sizeof targets);
  if (!*targets) return OA_ERROR_MODULE;
  oa_error_save(&driver);
  return oa_fail(OA_ERROR_MODULE, "%s; the module has code for %s, and %s is %s%s", driver.text, targets, device->name,
                 device->model, reason_of(device, metadata, image, nbytes, targets));
}

/* Keeps the metadata of an HSACO's kernels, because the driver does not report it. */
static int keep_metadata(oa_module_state *state, const void *image, size_t nbytes) {
  char target[64];
  oa_bytes object, metadata;
  target_of(state->device, target, sizeof target);
  if (!oa_hsaco_find(image, nbytes, target, &object) || !oa_hsaco_metadata(object, &metadata)) return OA_OK;
  unsigned char *copy = malloc(metadata.nbytes + 1);
  if (!copy) return oa_fail(OA_ERROR_MEMORY, "oa_module_load: no host memory");
  memcpy(copy, metadata.at, metadata.nbytes);
  state->metadata = (oa_bytes){copy, metadata.nbytes};
  return OA_OK;
}

static void free_module(oa_module_state *state) {
  free((void *)state->metadata.at);
  free(state->variables);
  free(state);
}

/* Loads the image on the device. */
static int load(const oa_module_state *module, const char *name, const void *image, size_t nbytes, void **native) {
  oa_device *device = module->device;
  const bool on_host = is_on_host(device);
  if (!on_host && !device->backend->module_load)
    return oa_fail(OA_ERROR_UNAVAILABLE, "%s: %s devices have no kernels", name, device->backend->name);
  int status = oa_image_check(name, image, nbytes, on_host);
  if (status) return status;
  if (on_host) return oa_shared_object_load(name, image, nbytes, native);
  status = device->backend->module_load(device, name, image, nbytes, native);
  return status == OA_ERROR_MODULE ? explain_refusal(device, module->metadata, image, nbytes) : status;
}

static int unload(oa_device *device, void *native) {
  if (!is_on_host(device)) return device->backend->module_unload(device, native);
  oa_shared_object_unload(native);
  return OA_OK;
}

int oa_module_load(int device, const char *name, const void *image, size_t nbytes, oa_module **module) {
  const char *const function = "oa_module_load";
  oa_device *target;
  void *native;
  if (!name || !image || !module) return oa_fail_null(function, !name ? "name" : image ? "module" : "image");
  int status = oa_device_find(device, function, &target);
  if (status || (status = oa_slots_start())) return status;
  oa_module_state *state = calloc(1, sizeof *state);
  if (!state) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory", function);
  state->device = target;
  if ((status = keep_metadata(state, image, nbytes)) || (status = load(state, name, image, nbytes, &native))) {
    free_module(state);
    return status;
  }
  state->native = native;
  oa_lock();
  oa_slot *slot = oa_slot_take(NULL, OA_SLOT_MODULE);
  if (slot) slot->state = state;
  *module = slot ? oa_slot_handle(slot) : NULL;
  oa_unlock();
  if (slot) return OA_OK;
  unload(target, native);
  free_module(state);
  return OA_ERROR_MEMORY;
}

/* Returns the module's slot; NULL with *status and the text set. Called with the lock. */
static oa_slot *module_slot(const char *function, const oa_module *module, int *status) {
  oa_slot *slot = oa_slot_of(module, OA_SLOT_MODULE, status);
  if (!slot)
    oa_fail(*status, "%s: module %s; got %p", function,
            *status == OA_ERROR_STALE ? "was unloaded" : "needs one that oa_module_load gave", (const void *)module);
  return slot;
}

int oa_module_find_variable(oa_module *module, const char *name, uint64_t *address, size_t *nbytes) {
  const char *const function = "oa_module_find_variable";
  if (!name || !address || !nbytes) return oa_fail_null(function, !name ? "name" : address ? "nbytes" : "address");
  int status = oa_core_start(__func__);
  if (status) return status;
  oa_lock();
  const oa_slot *slot = module_slot(function, module, &status);
  oa_module_state *state = slot ? slot->state : NULL;
  if (state) atomic_fetch_add(&state->launches, 1); /* while a launch is counted, the module can't be unloaded */
  oa_unlock();
  if (!state) return status;
  oa_device *device = state->device;
  if (is_on_host(device)) status = oa_shared_object_variable(state->native, name, address, nbytes);
  if (!status && device->backend->module_variable)
    status = device->backend->module_variable(device, state->native, name, address, nbytes);
  oa_lock();
  atomic_fetch_sub(&state->launches, 1);
  oa_announce_change();
  oa_unlock();
  return status;
}

int oa_module_use_variable(oa_module *module, const oa_any *pointer) {
  const char *const function = "oa_module_use_variable";
  int status = oa_core_start(__func__);
  if (status) return status;
  oa_lock();
  const oa_slot *slot = module_slot(function, module, &status);
  oa_module_state *state = slot ? slot->state : NULL;
  const oa_slot *variable = state ? oa_slot_of(pointer, OA_SLOT_POINTER, &status) : NULL;
  if (state && !variable) oa_fail(status, "%s: pointer needs a live pointer, got %p", function, (const void *)pointer);
  if (variable) {
    const size_t nbytes = ((size_t)state->variable_count + 1) * sizeof *state->variables;
    const oa_any **grown = realloc(state->variables, nbytes);
    if (grown) {
      grown[state->variable_count++] = pointer;
      state->variables = grown;
    } else {
      status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory", function);
    }
  }
  oa_unlock();
  return status;
}

static void free_kernel(oa_kernel_state *kernel) {
  oa_device *device = kernel->module->device;
  if (kernel->function && !is_on_host(device)) device->backend->function_free(device, kernel->function);
  for (int i = 0; kernel->parameters && i < kernel->count; i++) free((char *)kernel->parameters[i].name);
  free(kernel->parameters);
  free(kernel->name);
  free(kernel);
}

static atomic_int unloads; /* unloads that wait for launches: the end of a launch has to be announced */

/* Returns whether the other thread waits in a launch of one of the module's kernels. */
static bool unloading_needs(const oa_wait *wait, const oa_caller *other) {
  int ignored;
  const oa_slot *slot = oa_slot_of(wait->subject, OA_SLOT_MODULE, &ignored);
  const oa_kernel_state *kernel = slot ? ((oa_module_state *)slot->state)->kernels : NULL;
  /* The `function` of a launch that waits is kernel->name itself, so comparing the pointers is enough. */
  while (kernel && other->wait && other->wait->function != kernel->name) kernel = kernel->next;
  return kernel && other->wait;
}

int oa_module_unload(oa_module *module) {
  int status = oa_core_start(__func__);
  const oa_wait wait = {"oa_module_unload", unloading_needs, module};
  if (status) return status;
  oa_lock();
  /* `unloads` is raised before `launches` is read. So if a launch ends meanwhile, either this thread reads a count
   * without it, or the thread that ends it reads the raised `unloads`. */
  atomic_fetch_add(&unloads, 1);
  oa_slot *slot = module_slot("oa_module_unload", module, &status);
  while (slot && atomic_load(&((oa_module_state *)slot->state)->launches)) {
    slot = (status = oa_wait_for(&wait)) ? NULL : module_slot("oa_module_unload", module, &status);
  }
  atomic_fetch_sub(&unloads, 1);
  if (slot && !((oa_module_state *)slot->state)->captured &&
      (status = oa_streams_check(((oa_module_state *)slot->state)->device, "the kernels of a module", false)))
    slot = NULL;
  oa_module_state *state = slot ? slot->state : NULL;
  if (slot) oa_slot_free(slot);
  for (oa_kernel_state *k = state ? state->kernels : NULL; k; k = k->next)
    oa_slot_free(oa_slot_of(k->handle, OA_SLOT_KERNEL, &status));
  oa_unlock();
  if (!state) return status;
  oa_device *device = state->device;
  if (!state->captured && !(status = oa_device_usable(device)) &&
      !(status = oa_device_wait(device, 0, "oa_module_unload")))
    status = unload(device, state->native);
  while (state->kernels) {
    oa_kernel_state *kernel = state->kernels;
    state->kernels = kernel->next;
    free_kernel(kernel);
  }
  free_module(state);
  return status;
}

/* -- kernels ------------------------------------------------------------------------------------------------------ */

static int check_parameter(const char *name, int number, const oa_parameter *p, int64_t end) {
  const bool pointer = p->access != 0;
  if (!p->name) return oa_fail_null("oa_kernel_get", "parameters->name");
  if (pointer && ((p->access & ~OA_READ_WRITE) || p->dtype < 0 || p->dtype >= OA_DTYPE_COUNT || p->nbytes != 8))
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_kernel_get: %s: parameter %d (%s) needs an access of OA_READ, OA_OVERWRITE or OA_READ_WRITE, an "
                   "oa_dtype and 8 bytes; got %d, %d and %d",
                   name, number, p->name, p->access, p->dtype, p->nbytes);
  if (p->nbytes < 1 || p->offset < end || p->offset > OA_MOST_PARAMETER_BYTES - p->nbytes)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_kernel_get: %s: parameter %d (%s) needs bytes after the previous parameter, %d in all at most; "
                   "got %d at offset %d",
                   name, number, p->name, OA_MOST_PARAMETER_BYTES, p->nbytes, p->offset);
  return OA_OK;
}

/* Returns a copy of the caller's description, without a function yet; NULL with *status and the text set. */
static oa_kernel_state *new_kernel(oa_module_state *module, const char *name, const oa_parameter *parameters, int count,
                                   int *status) {
  int64_t end = 0;
  int pointers = 0;
  for (int i = 0; i < count; i++) {
    if ((*status = check_parameter(name, i + 1, &parameters[i], end))) return NULL;
    end = parameters[i].offset + parameters[i].nbytes;
    pointers += parameters[i].access != 0;
  }
  *status = OA_ERROR_SIGNATURE;
  if (!pointers) {
    oa_fail(*status, "%s: a kernel needs a pointer parameter: without one it has no effect", name);
    return NULL;
  }
  *status = OA_ERROR_MEMORY;
  oa_kernel_state *kernel = calloc(1, sizeof *kernel);
  bool whole = kernel != NULL;
  if (whole) {
    *kernel = (oa_kernel_state){.module = module, .count = count, .pointers = pointers, .nbytes = (size_t)end};
    kernel->name = strdup(name);
    kernel->parameters = calloc((size_t)count, sizeof *parameters);
    whole = kernel->name && kernel->parameters;
  }
  for (int i = 0; whole && i < count; i++) {
    kernel->parameters[i] = parameters[i];
    kernel->parameters[i].name = strdup(parameters[i].name);
    whole = kernel->parameters[i].name != NULL;
  }
  if (whole) {
    *status = OA_OK;
    return kernel;
  }
  oa_fail(OA_ERROR_MEMORY, "oa_kernel_get: no host memory");
  if (kernel) free_kernel(kernel);
  return NULL;
}

static int fail_count(const oa_kernel_state *kernel, int count) {
  return oa_fail(
      OA_ERROR_SIGNATURE, "%s: the signature has %d parameter%s, the module's kernel has %s%d; give a type for each",
      kernel->name, kernel->count, kernel->count == 1 ? "" : "s", count > kernel->count ? "at least " : "", count);
}

/* Compares the parameters with the table that a shared object exports beside its kernel. */
static int compare_table(const oa_kernel_state *kernel, const unsigned *table) {
  if (!table) return OA_OK;
  if (table[0] != (unsigned)kernel->count) return fail_count(kernel, (int)table[0]);
  for (int i = 0; i < kernel->count; i++) {
    const oa_parameter *p = &kernel->parameters[i];
    const unsigned own = (unsigned)p->nbytes | (p->access ? OA_IS_POINTER : 0);
    if (table[i + 1] != own)
      return oa_fail(OA_ERROR_SIGNATURE, "%s: %s is a %s of %d bytes in the signature, a %s of %u in the module",
                     kernel->name, p->name, p->access ? "pointer" : "value", p->nbytes,
                     table[i + 1] & OA_IS_POINTER ? "pointer" : "value", table[i + 1] & ~OA_IS_POINTER);
  }
  return OA_OK;
}

/* Finds the facts of the kernel in an HSACO. Wave sizes and register counts that no processor has would make HIP divide
 * by 0. */
static int find_facts(const oa_kernel_state *kernel, oa_hsaco_kernel *facts) {
  enum { MOST_REGISTERS = 512 };
  const oa_bytes metadata = kernel->module->metadata;
  *facts = (oa_hsaco_kernel){0};
  if (!metadata.nbytes) return OA_OK;
  if (!oa_hsaco_find_kernel(metadata, kernel->name, facts))
    return oa_fail(OA_ERROR_MODULE, "%s: the module has no kernel of that name", kernel->name);
  if (facts->fault) return oa_fail(OA_ERROR_MODULE, "%s: the HSACO is damaged: %s", kernel->name, facts->fault);
  if (facts->vector_registers <= MOST_REGISTERS && facts->scalar_registers <= MOST_REGISTERS &&
      (facts->wave == 32 || facts->wave == 64))
    return OA_OK;
  return oa_fail(OA_ERROR_MODULE,
                 "%s: the HSACO is damaged: it has a wave of %llu threads, and %llu and %llu registers of one",
                 kernel->name, (unsigned long long)facts->wave, (unsigned long long)facts->vector_registers,
                 (unsigned long long)facts->scalar_registers);
}

/* Finds a parameter, from the driver or the metadata. *nbytes is 0 after the last parameter, and SIZE_MAX if neither
 * source reports the parameter. */
static int find_parameter(const oa_kernel_state *kernel, const oa_hsaco_kernel *facts, int number, size_t *offset,
                          size_t *nbytes) {
  oa_device *device = kernel->module->device;
  const int status = device->backend->function_parameter(device, kernel->function, number, offset, nbytes);
  if (status || *nbytes != SIZE_MAX || !facts->name.at) return status;
  oa_hsaco_parameter parameter;
  if (!oa_hsaco_find_parameter(facts, number, &parameter))
    return oa_fail(OA_ERROR_MODULE, "%s: the HSACO is damaged: its arguments do not fit each other", kernel->name);
  *offset = parameter.offset;
  *nbytes = parameter.nbytes;
  return OA_OK;
}

/* Compares the parameters with the parameters that the driver, or the module's metadata, reports. */
static int compare_with_module(const oa_kernel_state *kernel, const oa_hsaco_kernel *facts) {
  for (int i = 0; i <= kernel->count; i++) {
    size_t offset = 0, nbytes = 0;
    const int status = find_parameter(kernel, facts, i, &offset, &nbytes);
    if (status || nbytes == SIZE_MAX) return status;
    if ((nbytes != 0) != (i < kernel->count)) return fail_count(kernel, nbytes ? i + 1 : i);
    if (!nbytes) break;
    const oa_parameter *p = &kernel->parameters[i];
    if (nbytes != (size_t)p->nbytes || offset != (size_t)p->offset)
      return oa_fail(OA_ERROR_SIGNATURE,
                     "%s: %s has %d bytes at offset %d in the signature, %zu at offset %zu in the module", kernel->name,
                     p->name, p->nbytes, p->offset, nbytes, offset);
  }
  return OA_OK;
}

static int find_function(oa_kernel_state *kernel) {
  oa_module_state *module = kernel->module;
  oa_device *device = module->device;
  if (is_on_host(device)) {
    oa_kernel_function *function;
    const unsigned *table;
    const int status = oa_shared_object_function(module->native, kernel->name, &function, &table);
    if (status) return status;
    kernel->function = *(void **)&function;
    oa_shared_object_info(&kernel->info);
    return compare_table(kernel, table);
  }
  oa_hsaco_kernel facts;
  int status = find_facts(kernel, &facts);
  if (!status)
    status = device->backend->function_make(device, module->native, kernel->name, &kernel->function, &kernel->info);
  return status ? status : compare_with_module(kernel, &facts);
}

int oa_kernel_get(oa_module *module, const char *name, const oa_parameter *parameters, int count, oa_kernel **kernel) {
  const char *const function = "oa_kernel_get";
  if (!name || !parameters || !kernel)
    return oa_fail_null(function, !name ? "name" : parameters ? "kernel" : "parameters");
  if (count < 1 || count > OA_MOST_PARAMETERS)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s: count needs 1 to %d parameters, got %d", function, name,
                   OA_MOST_PARAMETERS, count);
  int status = oa_core_start(__func__);
  if (status) return status;
  oa_lock();
  const oa_slot *slot = module_slot(function, module, &status);
  oa_module_state *state = slot ? slot->state : NULL;
  if (state) atomic_fetch_add(&state->launches, 1);
  oa_unlock();
  if (!state) return status;
  oa_kernel_state *fresh = new_kernel(state, name, parameters, count, &status);
  if (fresh) status = find_function(fresh);
  oa_lock();
  oa_slot *own = status ? NULL : oa_slot_take(NULL, OA_SLOT_KERNEL);
  if (own) {
    own->state = fresh;
    *kernel = fresh->handle = oa_slot_handle(own);
    fresh->next = state->kernels;
    state->kernels = fresh;
  } else if (!status) {
    status = OA_ERROR_MEMORY;
  }
  if (status && fresh) free_kernel(fresh);
  atomic_fetch_sub(&state->launches, 1);
  oa_announce_change();
  oa_unlock();
  return status;
}

oa_kernel_state *oa_kernel_hold(const char *function, const oa_kernel *kernel, int *status) {
  const oa_slot *slot = oa_slot_of(kernel, OA_SLOT_KERNEL, status);
  oa_kernel_state *state = slot ? slot->state : NULL;
  if (state)
    atomic_fetch_add(&state->module->launches, 1);
  else
    oa_fail(*status, "%s: kernel %s; got %p", function,
            *status == OA_ERROR_STALE ? "belongs to a module that was unloaded" : "needs one that oa_kernel_get gave",
            (const void *)kernel);
  return state;
}

void oa_kernel_unhold(oa_kernel_state *kernel, bool captured) {
  if (OA_UNLIKELY(captured)) {
    oa_lock();
    kernel->module->captured = true;
    oa_unlock();
  }
  atomic_fetch_sub(&kernel->module->launches, 1); /* after this line, another thread may free the module */
  if (OA_UNLIKELY(atomic_load(&unloads) != 0)) {
    oa_lock();
    oa_announce_change();
    oa_unlock();
  }
}

int oa_kernel_get_info(oa_kernel *kernel, oa_kernel_info *info) {
  const char *const function = "oa_kernel_get_info";
  int status = oa_sized_check(function, "info", info, OA_FIRST_KERNEL_INFO, sizeof *info);
  if (status || (status = oa_core_start(function))) return status;
  oa_lock();
  oa_kernel_state *state = oa_kernel_hold(function, kernel, &status);
  oa_unlock();
  if (!state) return status;
  oa_sized_write(info, &state->info);
  oa_kernel_unhold(state, false);
  return OA_OK;
}
