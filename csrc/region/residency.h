/* Residency: device memory that outlives its regions, and when it is as good as the host's. csrc/DESIGN.md has the rules.
 * What is kept is memory, not a mapping: each region makes its own mapping, which takes the memory and gives it back.
 * All functions are called under the core's lock unless they say otherwise. */
#ifndef OA_RESIDENCY_H
#define OA_RESIDENCY_H

#include "region/mapping.h"

/* So many moves at most bring one kept array up to date. */
enum { OA_RESIDENT_MOVES = 64 };
/* So many are looked at together at most. */
enum { OA_RESIDENT_LOOKS = 32 };

/* Reads OFFLOAD_ARGS_RESIDENCY at first; OA_ERROR_ARGUMENT for what is no mode. Without the lock. */
int oa_residency_start(void);
/* Frees what ended meanwhile. Without the lock. */
void oa_resident_free_ended(void);
/* A mapping of one array, which was just made or is shared: gives a new one the memory that was kept, if there is some. */
void oa_resident_attach(oa_mapping *mapping, const oa_array *array, bool made);
/* The mapping was made for a region that could not be entered: nothing was issued. */
void oa_resident_unused(oa_mapping *mapping);
/* The mapping ends: returns true if its memory stays. It has nothing to do with what is kept afterwards. */
bool oa_resident_return(oa_mapping *mapping);
/* The mapping has nothing to do with what is kept any more; its memory is its own. */
void oa_resident_separate(oa_mapping *mapping);

/* Whether the pages of mapping->kept are to be looked at before it is used. */
bool oa_resident_is_unseen(const oa_mapping *mapping);
/* Looks at the pages of several such mappings at once. Without the lock, while they are moving. */
void oa_resident_look(oa_mapping *const *mappings, int count);
/* The host may write the mapping's array again: what was seen of it does not count. */
void oa_resident_unsee(oa_mapping *mapping);
/* What brings mapping->kept up to date, at most OA_RESIDENT_MOVES moves. Without the lock, while the mapping is moving. */
int oa_resident_moves_up(oa_mapping *mapping, oa_move *moves);
/* They were issued, or not. */
void oa_resident_arrived(oa_mapping *mapping, bool well);
/* Prepares the watched pages of a mapping that will be copied down, and is seized. Frees the lock meanwhile. */
void oa_resident_before_down(oa_mapping *mapping);
/* The copies down of a region that had the mapping are complete, or failed. Frees the lock meanwhile. */
void oa_resident_after_down(oa_mapping *mapping, bool well);

#endif
