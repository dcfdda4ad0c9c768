/* The kind of memory at an address, for doubles of libraries. The double of the driver determines it. */
#include <stdint.h>

int cuPointerGetAttributes(unsigned count, int *attributes, void **values, unsigned long long address);

static int kind_of(const void *pointer) { /* 0: plain memory of the host, 1: pinned, 2: of a device */
  int type = 0, attribute = 2;
  void *values[] = {&type};
  cuPointerGetAttributes(1, &attribute, values, (uintptr_t)pointer);
  return type;
}
