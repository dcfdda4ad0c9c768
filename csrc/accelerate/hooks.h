/* The choice of a hook for each imported name. */
#ifndef OA_HOOKS_H
#define OA_HOOKS_H

#include "accelerate/program_call.h"

/* Returns the hook for a name that a module imports, and notes the hook's original. Returns NULL if there is no hook,
 * or if all hooks for that name have other originals. `original` is NULL if the slot is not bound yet. Takes no
 * lock. */
void *oa_hook_for(const char *path, const char *name, void *original, void *handle);
/* Returns the routine of that name, such as "dgemm"; NULL: there are no hooks for it. */
const oa_hooked *oa_hook_routine(const char *name);
/* Sets the function that the hook of the interpreter's dlsym calls first. */
void oa_hooks_set_loaded(void (*loaded)(void));

#endif
