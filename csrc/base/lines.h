/* Lines are the only shape with which the core computes: `count` lines of `width` bytes. The first line starts at
 * `start`, and the starts are `pitch` bytes apart. A contiguous array is one line. A matrix with a leading dimension
 * has a line for each column (or row), and a strided vector has a line for each element. */
#ifndef OA_LINES_H
#define OA_LINES_H

#include "offload_args/core.h"

#include <stdbool.h>

#define OA_MAX_DIMENSIONS 64

typedef struct oa_lines {
  int64_t start; /* in bytes, relative to an address that the user of the lines chooses */
  int64_t width, pitch, count;
} oa_lines;

/* Returns the number of bytes from the first byte to the last, gaps included; 0 if there are no bytes. */
static inline int64_t oa_lines_span(oa_lines a) {
  return a.count == 0 || a.width == 0 ? 0 : a.pitch * (a.count - 1) + a.width;
}
static inline int64_t oa_lines_bytes(oa_lines a) { return a.width * a.count; }

/* Returns one line with the same bytes if there are no gaps between the lines. If there are gaps, returns the lines
 * unchanged. */
oa_lines oa_lines_simplest(oa_lines a);
/* Returns whether every byte of inner is a byte of outer. */
bool oa_lines_contain(oa_lines outer, oa_lines inner);
/* Returns whether `a` and `b` share no byte. May return false for disjoint lines, but never true for lines that
 * overlap. */
bool oa_lines_disjoint(oa_lines a, oa_lines b);

/* The bytes that an array with a shape and strides (in bytes) touches, relative to the address of its element at index
 * 0. */
typedef struct oa_layout {
  oa_lines lines;    /* only if `regular` */
  int64_t low, span; /* offset and span of all touched bytes; low <= 0 */
  int64_t size;      /* elements */
  bool regular; /* the bytes are lines, and each element is a multiple of the itemsize away from the first element */
  bool overlapping; /* two indices reach or may reach the same byte, for example with zero strides */
  bool reversed;    /* a stride is negative */
} oa_layout;

/* Fills *layout. Returns OA_OK, OA_ERROR_ARGUMENT (a negative dimension, too many dimensions) or OA_ERROR_OVERFLOW;
 * sets no text. */
int oa_layout_of(int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize, oa_layout *layout);

/* The elements of an array, or of two arrays of the same shape, in pieces. A piece is a group of lines that one 2-D
 * copy can describe. Each byte of these lines belongs to an element. */
typedef struct oa_pieces {
  int64_t width, count, pitch[2]; /* the lines of every piece, with a pitch on each side */
  int64_t at[2];                  /* start of the next piece, from the lowest byte of each side */
  int64_t pieces, left;           /* number of pieces in all, and of pieces left */
  int axes;                       /* axes that are not part of a piece */
  struct oa_axis {
    int64_t size, step[2], index;
  } axis[OA_MAX_DIMENSIONS];
} oa_pieces;
/* Starts the pieces. The caller passes a shape and strides that oa_layout_of has accepted, without a dimension of 0.
 * `other`: the strides of the second array, or NULL. If `other` is NULL, the lines follow the order of the memory. With
 * a second array, the lines run along the longest axis that can be lines on both sides, which makes the fewest
 * pieces. */
void oa_pieces_start(oa_pieces *pieces, int ndim, const int64_t *shape, const int64_t *strides, const int64_t *other,
                     int64_t itemsize);
/* Writes the lines of the next piece on each side, relative to the lowest byte of that side. Returns false after the
 * last piece. `other` may be NULL. */
bool oa_pieces_next(oa_pieces *pieces, oa_lines *lines, oa_lines *other);

/* Copies the elements [first, first + count) in C order between an array and packed memory. If `count` is not 0, no
 * dimension may be 0. */
void oa_gather(void *packed, const void *data, int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize,
               int64_t first, int64_t count);
void oa_scatter(void *data, const void *packed, int ndim, const int64_t *shape, const int64_t *strides,
                int64_t itemsize, int64_t first, int64_t count);

/* Copies lines from one host address to another; as one block if both sides are contiguous. */
void oa_copy_lines(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines);
/* Fills lines with the low `unit` bytes of value (1, 2 or 4), repeated. `unit` divides the addresses and the width of
 * the lines. */
void oa_fill_lines(void *to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines);

#endif
