/* The operands of a call: the checks of oa_begin, and the bytes that each operand reaches. */
#ifndef OA_OPERAND_H
#define OA_OPERAND_H

#include "base/lines.h"
#include "offload_args/shim.h"
#include "region/region.h"

#include <stdbool.h>

/* More bits of oa_call.special, in addition to oa_call_special. */
enum {
  OA_BESIDE_CAPTURE = 1 << 8, /* the call goes to the region's stream, although the region's calls are captured */
  OA_REPLAYS = 1 << 10,       /* calls of a chain, which were checked: an Out is written before it is read */
  OA_KEEPS_VALUES = 1 << 9    /* a graph of the core can have the call, even if `uncaptured` refuses other graphs,
                               * because a graph of the core keeps values of the host, and workspaces */
};

/* The extent kind of operands of the core's own calls: all elements of the pointer. */
enum { OA_EXTENT_ALL = 100 };
/* Added to the access of an operand whose address is taken, so that the call itself reads nothing. If the caller has to
 * fill the group with zeros, oa_begin makes the access an overwrite. */
enum { OA_ADDRESS_ONLY = 1 << 16 };
/* oa_operand.touched, from oa_begin to oa_end. 0: the call touches no element. */
enum {
  OA_TOUCHED = 1,
  OA_OVERWRITTEN = 2, /* the call writes all of the operand's group */
  OA_FOR_WRITING = 4, /* the call, or code that has the address, may write the operand */
  OA_PART_WRITTEN = 8 /* the call writes all of the operand's lines, and the group is written by parts */
};
/* A call with more operands than this needs memory for them, and compares them in another way. */
enum { OA_FEW_OPERANDS = 16 };

/* The bytes that a call reaches through one operand. */
typedef struct oa_reach {
  oa_lines lines;       /* from the mapping's address; no lines if the call touches nothing */
  uintptr_t start, end; /* the reach's first byte, and the end of its last byte; equal if the call touches nothing */
  bool up;              /* the group has to be brought up first */
  bool part;            /* with `up`: only these lines of it */
} oa_reach;

/* Returns whether an oa_access writes. */
static inline bool oa_writes(int access) { return access & OA_OVERWRITE; }

/* Sets the lines of an operand that was found, from the mapping's address. */
void oa_operand_lines(const oa_call *call, const oa_operand *operand, oa_lines *lines);
/* Finds all operands of a call and checks them. Sets each operand's slot, address and touched, the bytes that the call
 * reaches through each operand, the youngest region of the operands, and the number of operands to bring up. Called
 * with the lock, which it may free and take again. */
int oa_operands_find(const oa_call *call, oa_reach *reaches, oa_region_state **region, int *arriving);

#endif
