/* Residency: device memory that outlives its regions. csrc/DESIGN.md has the rules. Memory is resident, mappings are
 * not: each region makes its own mapping, which takes the memory of a resident entry and returns it. Callers hold the
 * core's lock unless a function says otherwise. */
#ifndef OA_RESIDENCY_H
#define OA_RESIDENCY_H

#include "region/mapping.h"

/* The most moves that bring one resident array up to date. */
enum { OA_RESIDENT_MOVES = 64 };
/* The most mappings whose pages are scanned together. */
enum { OA_RESIDENT_LOOKS = 32 };

/* Reads OFFLOAD_ARGS_RESIDENCY the first time; returns OA_ERROR_ARGUMENT if it does not name a mode. Called without the
 * lock. */
int oa_residency_start(void);
/* Frees entries that were destroyed meanwhile. Called without the lock. */
void oa_resident_free_ended(void);
/* Gives a mapping of one array its entry, if the array is resident or may become so. If is_new is true, the mapping is
 * new, and takes the entry's memory, if any. Otherwise the region shares the mapping of another region. */
void oa_resident_attach(oa_mapping *mapping, const oa_array *array, bool is_new);
/* Notes that nothing was issued for the mapping, because its region could not be entered. */
void oa_resident_unused(oa_mapping *mapping);
/* Returns how many bytes of a host array would be sent if a call read the array now: less than all if the array is
 * resident, 0 if a region lends the array. lines: from the array's lowest byte on. Moves and changes nothing. The
 * result may be wrong a moment later, because other threads may change the state. Called without the lock. */
int64_t oa_resident_missing(const oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines);
/* Ends the residency of memory that is resident only by OA_TRACKED. The function does not wait: memory that is being
 * copied is freed later. Takes the lock. */
void oa_resident_drop(const oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines);
/* Separates a mapping that ends from its entry. Returns whether the memory stays with the entry. */
bool oa_resident_return(oa_mapping *mapping);
/* Separates the mapping from its entry; the mapping then owns the memory. */
void oa_resident_separate(oa_mapping *mapping);

/* Finds idle memory of another device of the same backend that may have the host's bytes `lines`, counted from `low`.
 * Until oa_resident_return_peer the memory stays in place, and no region uses it. Returns NULL if no other device has
 * the bytes. */
oa_resident *oa_resident_take_peer(const oa_device *device, uintptr_t low, oa_lines lines, oa_device **source,
                                   uint64_t *address);
/* Returns whether the memory still has the host's bytes. Called without the lock. */
bool oa_resident_is_current(const oa_resident *entry);
/* Ends the use by a peer. The caller announces the change. */
void oa_resident_return_peer(oa_resident *entry);

/* Returns whether the pages of the mapping's array have to be scanned before it is used. */
bool oa_resident_is_unseen(const oa_mapping *mapping);
/* Looks at the pages of several mappings together. Called without the lock, while the mappings are moving. */
void oa_resident_look(oa_mapping *const *mappings, int count);
/* Discards the last scan of the mapping's pages, because the host may write the array again. */
void oa_resident_unsee(oa_mapping *mapping);
/* Fills moves with the copies that bring the mapping's memory up to date. Returns the number of moves, at most
 * OA_RESIDENT_MOVES. Called without the lock, while the mapping is moving. */
int oa_resident_moves_up(oa_mapping *mapping, oa_move *moves);
/* Notes that these moves were issued (well is true), or failed. */
void oa_resident_arrived(oa_mapping *mapping, bool well);
/* Prepares the watched pages of a seized mapping for the copies down. Frees the lock and takes it again. */
void oa_resident_before_down(oa_mapping *mapping);
/* Notes that the copies down of one of the mapping's regions are complete (well), or failed. Frees the lock and takes
 * it again. */
void oa_resident_after_down(oa_mapping *mapping, bool well);

#endif
