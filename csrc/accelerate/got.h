/* Writes functions of this library into the global offset tables of other modules, and restores the former contents. */
#ifndef OA_GOT_H
#define OA_GOT_H

#include <stdbool.h>

/* Returns the function that replaces `original`, which a module imports as `name`; NULL if the slot has to stay
 * unchanged. `handle`: the module's handle, for dlsym. */
typedef void *(*oa_got_choose)(const char *path, const char *name, void *original, void *handle);

/* Returns whether this system's tables can be read. */
bool oa_got_works(void);
/* Writes into the tables of all modules that no earlier call found. Modules with written tables stay loaded until
 * oa_got_undo. Two threads must not call oa_got_patch at the same time. */
void oa_got_patch(oa_got_choose choose);
/* Returns whether modules were loaded since the last oa_got_patch. */
bool oa_got_is_behind(void);
/* Restores the contents of all slots. Two threads must not call oa_got_undo at the same time. */
void oa_got_undo(void);
/* Counts the written slots and their modules. */
void oa_got_count(int *slots, int *modules);

#endif
