/* Products of matrices in panels: one matrix goes up in parts, while the device computes with its earlier parts. */
#ifndef OFFLOAD_ARGS_CORE_PANELS_H
#define OFFLOAD_ARGS_CORE_PANELS_H

#include "function.h"

#pragma GCC visibility push(hidden)

/* A call whose result has fewer elements is not made in panels. Tests change this number. */
enum { PANELS_ELEMENTS = 1 << 20 };
extern atomic_llong panels_elements;

/* The way in which a routine's calls are made in panels. */
typedef struct PanelForm PanelForm;

/* One call of a routine. */
typedef struct {
  const PanelForm *form;
  const Function *function;
  const Function *gemm; /* of the same library and dtype; NULL if the form needs none */
  const oa_value *values;
  int first; /* 1 if the values begin with an order, which the form lacks; otherwise 0 */
  /* the library's constants: "U" of uplo, or "L" of side; and "N" of the operation, or "L" of side again */
  int64_t upper, plain;
} PanelCall;

/* Returns the form of a routine's calls; NULL if they are never made in panels. */
const PanelForm *panels_form(const char *name);
/* Returns the index, in the routine's options, of the option that decides how a call is parted. */
int panels_option(const PanelForm *form);
/* Makes a call in panels if the device lacks a large matrix. Returns 0 if the call has to be made at once, or is wrong;
 * -1 with an exception; 1 if the call was made. */
int panels_compute(const PanelCall *call);

#pragma GCC visibility pop

#endif
