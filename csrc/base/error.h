/* The text of a thread's last failure: set with the status, read with oa_last_error(). */
#ifndef OA_ERROR_H
#define OA_ERROR_H

#include "offload_args/core.h"
#include "offload_args/shim.h" /* oa_fail_null and other failures of shims */

enum { OA_TEXT_BYTES = 2048 }; /* the most bytes of a failure's text, its end included */

/* Sets this thread's text and returns status. */
int oa_fail(int status, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));
/* Puts the formatted text and ": " before this thread's text. Returns status. */
int oa_fail_in(int status, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));
/* Sets this thread's warning. */
void oa_warn(const char *format, ...) __attribute__((cold, format(printf, 1, 2)));
/* Sets the warning of the process, which the next oa_take_warning of any thread returns. Only the first call has an
 * effect. */
void oa_warn_process(const char *format, ...) __attribute__((cold, format(printf, 1, 2)));

/* Save and restore this thread's text. A failure during a clean-up then does not replace the text of the first
 * failure. */
typedef struct oa_saved_error {
  char text[OA_TEXT_BYTES];
} oa_saved_error;
void oa_error_save(oa_saved_error *saved);
void oa_error_restore(const oa_saved_error *saved);

#endif
