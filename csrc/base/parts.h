/* Parts: a set of bytes as intervals, sorted and apart from each other. Pure data, used as csrc/DESIGN.md says. NULL is
 * the empty set. */
#ifndef OA_PARTS_H
#define OA_PARTS_H

#include "base/lines.h"

typedef struct oa_parts oa_parts;

/* Adds the bytes of the lines. Time in the intervals of both. Returns false, and changes nothing, if there is no host
 * memory. */
bool oa_parts_add(oa_parts **parts, oa_lines lines);
/* Returns whether every byte of the lines is in the set. */
bool oa_parts_contain(const oa_parts *parts, oa_lines lines);
/* Returns the next lines of the set and moves *at on; 0 lines after the last ones. *at: 0 at the start. The lines have
 * no byte outside of the set, and each byte of the set is in one of them. */
oa_lines oa_parts_next(const oa_parts *parts, int64_t *at);
/* Returns the number of lines that oa_parts_next gives. */
int64_t oa_parts_pieces(const oa_parts *parts);
/* Empties the set, and frees its memory. */
void oa_parts_clear(oa_parts **parts);

#endif
