/* A library for tests that need a table of libraries: it has some symbols, and no handles. */
#ifndef OA_TESTS_SAMPLE_LIBRARY_H
#define OA_TESTS_SAMPLE_LIBRARY_H

#include "library/library.h"

/* The fields of an oa_library without handles. names: a static array of its symbols; room: an array of as many
 * addresses; its_state: its oa_library_state. */
#define SAMPLE_LIBRARY(called, names, room, its_state)                                                   \
  .name = (called), .symbols = (names), .addresses = (room), .state = (its_state),                       \
  .symbol_count = (int)(sizeof(names) / sizeof *(names)), .create = -1, .destroy = -1, .set_stream = -1, \
  .get_stream = -1, .set_pointer_mode = -1, .get_pointer_mode = -1

#endif
