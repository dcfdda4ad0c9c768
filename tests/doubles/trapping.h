/* Memory of a double's device that traps on the host, so that a host dereference of a device address ends the process,
 * as it does on a GPU. The double itself uses the same memory at other addresses, which HERE(address) returns. Code
 * that reads addresses from memory (kernels, lists of pointers) runs between hip_double_begin and hip_double_end, when
 * no access traps. Addresses are used again only when no device memory is allocated any more. */
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TRAPPING_PAGE = 4096 };
static const size_t trapping_reserve = (size_t)1 << 40;
static char *trapping, *trapping_here; /* the same memory at two addresses */
static int trapping_file;
static size_t trapping_used;
static long trapping_live;
static int trapping_open; /* calls under way during which no access traps */
static pthread_mutex_t trapping_lock = PTHREAD_MUTEX_INITIALIZER;

static void protect(int rights) {
  if (trapping_used && mprotect(trapping, trapping_used, rights)) abort();
}

void hip_double_begin(void);
void hip_double_begin(void) {
  pthread_mutex_lock(&trapping_lock);
  if (trapping_open++ == 0) protect(PROT_READ | PROT_WRITE);
  pthread_mutex_unlock(&trapping_lock);
}
void hip_double_end(void);
void hip_double_end(void) {
  pthread_mutex_lock(&trapping_lock);
  if (--trapping_open == 0) protect(PROT_NONE);
  pthread_mutex_unlock(&trapping_lock);
}

/* Returns the address at which the double may use an address of a device. Returns any other address unchanged. */
void *hip_double_here(const void *address);
void *hip_double_here(const void *address) {
  const size_t offset = (size_t)((uintptr_t)address - (uintptr_t)trapping);
  return trapping && offset < trapping_reserve ? trapping_here + offset : (void *)(uintptr_t)address;
}
/* Converts an address of hip_double_here back into the address of the device. */
static const void *there(const void *address) {
  const size_t offset = (size_t)((uintptr_t)address - (uintptr_t)trapping_here);
  return trapping && offset < trapping_reserve ? trapping + offset : address;
}
#define HERE(address) hip_double_here(address)
#define THERE(address) there(address)

static void reserve_trapping(void) {
  trapping_file = memfd_create("memory of the double's devices", MFD_CLOEXEC);
  if (trapping_file < 0 || ftruncate(trapping_file, (off_t)trapping_reserve)) abort();
  const int flags = MAP_SHARED | MAP_NORESERVE;
  trapping_here = mmap(NULL, trapping_reserve, PROT_READ | PROT_WRITE, flags, trapping_file, 0);
  trapping = mmap(NULL, trapping_reserve, PROT_NONE, flags, trapping_file, 0);
  if (trapping_here == MAP_FAILED || trapping == MAP_FAILED) abort();
}

/* Takes device memory. Returns NULL if no addresses are left. */
static char *take_memory(size_t nbytes) {
  char *memory = NULL;
  pthread_mutex_lock(&trapping_lock);
  if (!trapping) reserve_trapping();
  const size_t pages = (nbytes + 2 * TRAPPING_PAGE - 1) / TRAPPING_PAGE * TRAPPING_PAGE; /* the last page is unused */
  if (trapping_live == 0) trapping_used = 0;
  if (pages <= trapping_reserve - trapping_used) {
    memory = trapping + trapping_used;
    trapping_used += pages;
    trapping_live++;
    if (trapping_open) protect(PROT_READ | PROT_WRITE);
  }
  pthread_mutex_unlock(&trapping_lock);
  return memory;
}

static void give_memory(char *memory, size_t nbytes) {
  const size_t pages = (nbytes + TRAPPING_PAGE - 1) / TRAPPING_PAGE * TRAPPING_PAGE;
  pthread_mutex_lock(&trapping_lock);
  if (fallocate(trapping_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, memory - trapping, (off_t)pages)) abort();
  trapping_live--;
  pthread_mutex_unlock(&trapping_lock);
}
