/* Parts: a set of bytes, stored as intervals. NULL is the empty set. csrc/DESIGN.md describes how the core uses these
 * sets. */
#ifndef OA_PARTS_H
#define OA_PARTS_H

#include "base/lines.h"

typedef struct oa_parts oa_parts;

enum { OA_PARTS_RUNS = 64 }; /* the most runs of a set: each is at most half as long as the run before it */

/* A place in a set. A place whose fields are all 0 is the start of the set. */
typedef struct oa_parts_place {
  int64_t at[OA_PARTS_RUNS]; /* the next interval of each run */
  int64_t low, high;         /* an interval that was read, but not returned; low == high: there is no such interval */
} oa_parts_place;

/* Adds the bytes of the lines. The time is proportional to the number of intervals of the lines, times the logarithm of
 * the number of all intervals. Returns false, and changes nothing, if host memory runs out. */
bool oa_parts_add(oa_parts **parts, oa_lines lines);
/* Adds the bytes of another set, which may be NULL. Returns false if host memory runs out; the set may then have some
 * of the bytes. */
bool oa_parts_add_all(oa_parts **parts, const oa_parts *more);
/* Returns at least the number of bytes in the set. */
int64_t oa_parts_bytes(const oa_parts *parts);
/* Returns at least the number of intervals of the set. */
int64_t oa_parts_intervals(const oa_parts *parts);
/* Returns whether every byte of the lines is in the set. */
bool oa_parts_contain(const oa_parts *parts, oa_lines lines);
/* Returns whether every byte of the lines is in the set, which has no byte outside of the lines. Does not read the
 * intervals if the set has too few bytes. */
bool oa_parts_are_all(oa_parts *parts, oa_lines all);
/* Sets *rest to the bytes of the lines that are not in the set. Returns false if host memory runs out. */
bool oa_parts_missing(const oa_parts *parts, oa_lines lines, oa_parts **rest);
/* Returns whether the set would have many short intervals if these lines were added. */
bool oa_parts_are_fine(const oa_parts *parts, oa_lines more);
/* Returns the next lines of the set and advances the place. Returns 0 lines after the end of the set. The lines have no
 * byte outside of the set, and each byte of the set is in one of the returned lines. */
oa_lines oa_parts_next(const oa_parts *parts, oa_parts_place *place);
/* Sets *low and *high to the first bytes of the set that are not before `from`. Returns false if the set has no bytes
 * there. */
bool oa_parts_after(const oa_parts *parts, int64_t from, int64_t *low, int64_t *high);
/* Advances *from, and returns lines that contain all bytes of the set from the old *from to the new *from. The lines
 * have at most one other byte for every eight bytes of the set. Returns 0 lines after the end of the set. The lines
 * stay between the first and the last byte of `bounds`. */
oa_lines oa_parts_next_near(const oa_parts *parts, oa_lines bounds, int64_t *from);
/* Returns the number of calls of oa_parts_next that return lines for the whole set. Merges the runs, which makes these
 * calls fast. */
int64_t oa_parts_pieces(oa_parts *parts);
void oa_parts_free(oa_parts *parts);
/* Empties the set, and frees its memory. */
static inline void oa_parts_clear(oa_parts **parts) {
  if (*parts) oa_parts_free(*parts);
  *parts = NULL;
}

#endif
