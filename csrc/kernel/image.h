/* Checks the formats of modules, so that no driver or loader reads beyond the end of a module. */
#ifndef OA_IMAGE_H
#define OA_IMAGE_H

#include "base/error.h"

/* Returns OA_OK if the image is whole: PTX text, a fatbin, or an ELF file whose sections and segments are inside the
 * file. If `shared` is not 0, the image has to be a shared object for this machine. */
int oa_image_check(const char *name, const void *image, size_t nbytes, int shared);

#endif
