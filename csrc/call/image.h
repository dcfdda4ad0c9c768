/* The formats of modules, as far as a driver or a loader has to be kept from reading behind their ends. */
#ifndef OA_CALL_IMAGE_H
#define OA_CALL_IMAGE_H

#include "base/error.h"

/* Returns OA_OK if the image is whole: PTX text, a fatbin, or an ELF file whose sections and segments are inside it.
 * shared: it needs to be a shared object for this machine. */
int oa_image_check(const char *name, const void *image, size_t nbytes, int shared);

#endif
