/* Bare launches, with which launch_cost.py compares the package's launches. The driver is dlopen'ed and has prototypes
 * of our own here, so that no header of CUDA is needed. */
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

enum { NON_BLOCKING = 1 };

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);
static int (*set_current)(void *);
static int (*synchronize)(void);
static void *context, *stream, *function;

/* Loads the kernel of that name from an image. Returns 0, or 1. */
int bare_open(const void *image, const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *module;
  if (!driver) return 1;
  int (*init)(unsigned), (*retain)(void **, int), (*stream_create)(void **, unsigned);
  int (*load)(void **, const void *, unsigned, int *, void **), (*get)(void **, void *, const char *);
  *(void **)&init = dlsym(driver, "cuInit");
  *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
  *(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
  *(void **)&stream_create = dlsym(driver, "cuStreamCreate");
  *(void **)&synchronize = dlsym(driver, "cuCtxSynchronize");
  *(void **)&load = dlsym(driver, "cuModuleLoadDataEx");
  *(void **)&get = dlsym(driver, "cuModuleGetFunction");
  *(void **)&launch = dlsym(driver, "cuLaunchKernel");
  if (!init || !retain || !set_current || !stream_create || !synchronize || !load || !get || !launch) return 1;
  return init(0) || retain(&context, 0) || set_current(context) || stream_create(&stream, NON_BLOCKING) ||
         load(&module, image, 0, NULL, NULL) || get(&function, module, name);
}

/* Makes the GPU's context current on this thread, or none. */
int bare_current(int on) { return set_current(on ? context : NULL); }

/* Waits for all work of the context, which is current. */
int bare_wait(void) { return synchronize(); }

/* Returns the seconds in which count launches of vadd are issued in a loop. */
double bare_issue(long count, unsigned grid, unsigned block, void *a, void *b, void *c, int n) {
  struct timespec begun, ended;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  for (long i = 0; i < count; i++) {
    void *arguments[] = {&a, &b, &c, &n};
    if (launch(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, NULL)) return -1;
  }
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return (double)(ended.tv_sec - begun.tv_sec) + 1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
}
