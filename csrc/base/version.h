/* Other copies of the library in the process. */
#ifndef OA_VERSION_H
#define OA_VERSION_H

#include "base/error.h"

/* Marks this copy as in use. If another copy is in use, sets no mark and returns OA_ERROR_VERSION with the text set. */
int oa_start_alone(void);

#endif
