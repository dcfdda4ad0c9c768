/* Work of a recording that has to run on the thread that launches the graph, and that may fail. Recordings are in
 * base/recording.h. */
#ifndef OA_HERE_H
#define OA_HERE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct oa_recording oa_recording;

/* The arguments of oa_run_here. */
typedef struct oa_here {
  char function[48];           /* the name of the call, for the error */
  int (*run)(void *arguments); /* returns 0, or another number after a failure */
  int status;                  /* OA_OK, or OA_ERROR_LIBRARY with the error's text set */
  _Alignas(max_align_t) unsigned char arguments[];
} oa_here;

/* Calls the function of an oa_here, and sets its status. */
void oa_run_here(void *here);
/* Returns whether the recording calls oa_run_here: then the thread that launches the graph has to run it. */
bool oa_recording_is_here(const oa_recording *recording);

#endif
