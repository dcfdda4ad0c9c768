/* Other copies of the library in the process. */
#ifndef OA_VERSION_H
#define OA_VERSION_H

#include "base/error.h"

/* Marks this copy as in use. Returns OA_ERROR_VERSION with the text set, and sets no mark, if another copy is. */
int oa_start_alone(void);

#endif
