#define _GNU_SOURCE
#include "accelerate/got.h"

#if defined __GLIBC__ || defined __linux__
#include <features.h>
#endif

#if defined __GLIBC__ && (defined __x86_64__ || defined __aarch64__)

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __x86_64__
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT, ABSOLUTE = R_X86_64_64 };
#else
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT, ABSOLUTE = R_AARCH64_ABS64 };
#endif

typedef struct written {
  void **slot;
  void *original, *hook;
} written;

/* A module that a scan found. Modules without slots are in the list, too, so that they are not read again. */
typedef struct module {
  uintptr_t base, dynamic;
  uintptr_t low, high;             /* the addresses that the module occupies */
  uintptr_t relro_low, relro_high; /* whole pages that are read-only once the module is loaded; equal: none */
  void *handle; /* a handle that keeps the module loaded while it has written slots; NULL: it has no written slots */
  written *slots;
  int count, room;
} module;

typedef struct module_list {
  module *at;
  int count, room;
  bool failed;
} module_list;

static module_list seen;
static unsigned long long adds; /* number of modules that this process had loaded up to the last scan */

bool oa_got_works(void) { return true; }

/* -- finding modules -- */

static bool is_known(uintptr_t base, uintptr_t dynamic) {
  for (int i = 0; i < seen.count; i++)
    if (seen.at[i].base == base && seen.at[i].dynamic == dynamic) return true;
  return false;
}

static module *append(module_list *list) {
  if (list->count == list->room) {
    const int room = list->room ? 2 * list->room : 64;
    module *at = realloc(list->at, (size_t)room * sizeof *at);
    if (!at) {
      list->failed = true;
      return NULL;
    }
    list->at = at;
    list->room = room;
  }
  module *entry = &list->at[list->count++];
  memset(entry, 0, sizeof *entry);
  return entry;
}

/* A module in the loader's list. The path is a copy, because the loader may free its own string. */
typedef struct listed {
  module module;
  char *path;
} listed;

typedef struct listing {
  listed *at;
  int count, room;
  unsigned long long adds;
} listing;

static int list_module(struct dl_phdr_info *info, size_t size, void *data) {
  listing *list = data;
  (void)size;
  list->adds = info->dlpi_adds;
  module entry = {.base = info->dlpi_addr, .low = UINTPTR_MAX};
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    const uintptr_t low = info->dlpi_addr + header->p_vaddr, high = low + header->p_memsz;
    if (header->p_type == PT_DYNAMIC) entry.dynamic = low;
    if (header->p_type == PT_LOAD && low < entry.low) entry.low = low;
    if (header->p_type == PT_LOAD && high > entry.high) entry.high = high;
    if (header->p_type == PT_GNU_RELRO) { /* the range is rounded as the loader rounds it */
      entry.relro_low = low & ~(page - 1);
      entry.relro_high = high & ~(page - 1);
    }
  }
  if (!entry.dynamic || is_known(entry.base, entry.dynamic)) return 0;
  if (list->count == list->room) {
    const int room = list->room ? 2 * list->room : 128;
    listed *at = realloc(list->at, (size_t)room * sizeof *at);
    if (!at) return 1;
    list->at = at;
    list->room = room;
  }
  char *path = strdup(info->dlpi_name ? info->dlpi_name : "");
  if (!path) return 1;
  list->at[list->count++] = (listed){entry, path};
  return 0;
}

/* -- reading one module's tables -- */

typedef struct tables {
  const ElfW(Sym) * symbols;
  const char *strings;
  const ElfW(Rela) * lists[2];
  size_t sizes[2];
} tables;

static uintptr_t address_in(const module *owner, ElfW(Addr) value) {
  return value < owner->base ? owner->base + value : value; /* the loader may have relocated the value already */
}

static tables read_tables(const module *owner) {
  tables t = {0};
  for (const ElfW(Dyn) *entry = (const void *)owner->dynamic; entry->d_tag != DT_NULL; entry++) {
    const uintptr_t at = address_in(owner, entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_SYMTAB:
        t.symbols = (const void *)at;
        break;
      case DT_STRTAB:
        t.strings = (const void *)at;
        break;
      case DT_JMPREL:
        t.lists[0] = (const void *)at;
        break;
      case DT_PLTRELSZ:
        t.sizes[0] = entry->d_un.d_val;
        break;
      case DT_RELA:
        t.lists[1] = (const void *)at;
        break;
      case DT_RELASZ:
        t.sizes[1] = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return t;
}

static bool note_slot(module *owner, void **slot, void *original, void *hook) {
  if (owner->count == owner->room) {
    const int room = owner->room ? 2 * owner->room : 16;
    written *slots = realloc(owner->slots, (size_t)room * sizeof *slots);
    if (!slots) return false;
    owner->slots = slots;
    owner->room = room;
  }
  owner->slots[owner->count++] = (written){slot, original, hook};
  return true;
}

static void find_slots(module *owner, const char *path, oa_got_choose choose) {
  const tables t = read_tables(owner);
  if (!t.symbols || !t.strings) return;
  for (int list = 0; list < 2; list++) {
    const size_t count = t.lists[list] ? t.sizes[list] / sizeof(ElfW(Rela)) : 0;
    for (size_t i = 0; i < count; i++) {
      const ElfW(Rela) *entry = &t.lists[list][i];
      const unsigned type = ELF64_R_TYPE(entry->r_info);
      if (type != JUMP_SLOT && type != GLOB_DAT && !(type == ABSOLUTE && !entry->r_addend)) continue;
      const ElfW(Sym) *symbol = &t.symbols[ELF64_R_SYM(entry->r_info)];
      if (symbol->st_shndx != SHN_UNDEF || !symbol->st_name) continue; /* the module's own symbol */
      void **slot = (void **)(owner->base + entry->r_offset);
      const char *name = t.strings + symbol->st_name;
      void *now = __atomic_load_n(slot, __ATOMIC_ACQUIRE), *bound = now;
      /* Before its first call, a lazily bound slot has the address of a stub in the module itself. */
      if ((uintptr_t)now >= owner->low && (uintptr_t)now < owner->high) bound = NULL;
      void *hook = choose(path, name, bound, owner->handle);
      if (hook && hook != now && !note_slot(owner, slot, now, hook)) return;
    }
  }
}

/* -- writing -- */

static bool in_relro(const module *owner, const void *slot) {
  return (uintptr_t)slot >= owner->relro_low && (uintptr_t)slot < owner->relro_high;
}

/* Writes the hooks, or the former contents, into the slots of a module. A slot with other contents stays unchanged,
 * because another library of this kind may have written it. */
static void write_slots(module *owner, bool hooks) {
  bool opened = false;
  for (int i = 0; i < owner->count && !opened; i++) opened = in_relro(owner, owner->slots[i].slot);
  const size_t nbytes = owner->relro_high - owner->relro_low;
  if (opened && mprotect((void *)owner->relro_low, nbytes, PROT_READ | PROT_WRITE)) {
    owner->count = 0;
    return;
  }
  for (int i = 0; i < owner->count; i++) {
    written *w = &owner->slots[i];
    void *before = hooks ? w->original : w->hook;
    __atomic_compare_exchange_n(w->slot, &before, hooks ? w->hook : w->original, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
  }
  if (opened) mprotect((void *)owner->relro_low, nbytes, PROT_READ);
}

void oa_got_patch(oa_got_choose choose) {
  listing list = {0};
  dl_iterate_phdr(list_module, &list);
  for (int i = 0; i < list.count; i++) {
    module *entry = append(&seen);
    if (!entry) break;
    *entry = list.at[i].module;
    const char *path = list.at[i].path;
    /* dlopen waits for another thread that is still relocating the module, and keeps the module loaded. */
    entry->handle = dlopen(path[0] ? path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (!entry->handle) continue; /* the kernel's own module, or a module that was closed meanwhile */
    if (((const struct link_map *)entry->handle)->l_addr == entry->base) find_slots(entry, path, choose);
    if (entry->count) write_slots(entry, true);
    if (!entry->count) {
      dlclose(entry->handle);
      entry->handle = NULL;
    }
  }
  for (int i = 0; i < list.count; i++) free(list.at[i].path);
  free(list.at);
  __atomic_store_n(&adds, list.adds, __ATOMIC_RELAXED);
}

void oa_got_undo(void) {
  for (int i = 0; i < seen.count; i++) {
    module *entry = &seen.at[i];
    if (entry->handle) {
      write_slots(entry, false);
      dlclose(entry->handle);
    }
    free(entry->slots);
  }
  free(seen.at);
  seen = (module_list){0};
  __atomic_store_n(&adds, 0, __ATOMIC_RELAXED);
}

static int read_adds(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  *(unsigned long long *)data = info->dlpi_adds;
  return 1;
}

bool oa_got_is_behind(void) {
  unsigned long long now = 0;
  dl_iterate_phdr(read_adds, &now);
  return now != __atomic_load_n(&adds, __ATOMIC_RELAXED);
}

void oa_got_count(int *slots, int *modules) {
  *slots = *modules = 0;
  for (int i = 0; i < seen.count; i++) {
    *slots += seen.at[i].count;
    *modules += seen.at[i].count > 0;
  }
}

#else

bool oa_got_works(void) { return false; }
void oa_got_patch(oa_got_choose choose) { (void)choose; }
bool oa_got_is_behind(void) { return false; }
void oa_got_undo(void) {}
void oa_got_count(int *slots, int *modules) { *slots = *modules = 0; }

#endif
