/* Residency: device memory that outlives its regions. csrc/DESIGN.md has the rules. Memory is resident, and mappings
 * are not: each region makes its own mapping, which takes the memory of a resident entry and returns it. All functions
 * are called under the core's lock unless they say otherwise. */
#ifndef OA_RESIDENCY_H
#define OA_RESIDENCY_H

#include "region/mapping.h"

/* Moves that bring one resident array up to date, at most. */
enum { OA_RESIDENT_MOVES = 64 };
/* Mappings whose pages are looked at together, at most. */
enum { OA_RESIDENT_LOOKS = 32 };

/* Reads OFFLOAD_ARGS_RESIDENCY the first time; returns OA_ERROR_ARGUMENT if it does not name a mode. Without the
 * lock. */
int oa_residency_start(void);
/* Frees entries that were destroyed meanwhile. Without the lock. */
void oa_resident_free_ended(void);
/* Gives a mapping of one array its entry, if the array is resident or may become so. made: the mapping is new, and then
 * takes the entry's memory if there is some; else another region shares it. */
void oa_resident_attach(oa_mapping *mapping, const oa_array *array, bool made);
/* Notes that nothing was issued for the mapping, because its region could not be entered. */
void oa_resident_unused(oa_mapping *mapping);
/* Separates a mapping that ends from its entry. Returns true if the memory stays with the entry. */
bool oa_resident_return(oa_mapping *mapping);
/* Separates the mapping from its entry; the mapping has the memory to itself. */
void oa_resident_separate(oa_mapping *mapping);

/* Finds idle memory of another device of the same backend that may have those lines of the host, counted from low.
 * Until oa_resident_return_peer it stays where it is, and no region uses it. Returns NULL if there is none. */
oa_resident *oa_resident_take_peer(const oa_device *device, uintptr_t low, oa_lines lines, oa_device **source,
                                   uint64_t *address);
/* Returns whether the memory still has the host's bytes. Without the lock. */
bool oa_resident_is_current(const oa_resident *entry);
/* The caller announces the change. */
void oa_resident_return_peer(oa_resident *entry);

/* Returns whether the pages of the mapping's array have to be looked at before it is used. */
bool oa_resident_is_unseen(const oa_mapping *mapping);
/* Looks at the pages of several such mappings at once. Without the lock, while the mappings are moving. */
void oa_resident_look(oa_mapping *const *mappings, int count);
/* Makes the last look at the mapping's pages void, because the host may write the array again. */
void oa_resident_unsee(oa_mapping *mapping);
/* Fills moves with the copies that bring the mapping's memory up to date. Returns how many, at most OA_RESIDENT_MOVES.
 * Without the lock, while the mapping is moving. */
int oa_resident_moves_up(oa_mapping *mapping, oa_move *moves);
/* Notes that these moves were issued, or failed. */
void oa_resident_arrived(oa_mapping *mapping, bool well);
/* Prepares the watched pages of a seized mapping for the copies down. Frees the lock meanwhile. */
void oa_resident_before_down(oa_mapping *mapping);
/* Notes that the copies down of one of the mapping's regions are complete, or failed. Frees the lock meanwhile. */
void oa_resident_after_down(oa_mapping *mapping, bool well);

#endif
