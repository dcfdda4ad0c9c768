/* A LAPACK call of the program, as the generated hooks pass it. */
#ifndef OA_ACCELERATE_LAPACK_H
#define OA_ACCELERATE_LAPACK_H

#include "accelerate/lapack_call.h"

/* Makes the call on the device and returns true. All outputs are then as LAPACK leaves them, and info is 0. Otherwise,
 * returns false and changes nothing. The hook then calls the original, and oa_lapack_by_host after it. */
bool oa_lapack_try(const oa_lapack_family *family, const oa_hooked *routine, const oa_lapack_arguments *arguments,
                   oa_program_call *call);
/* Notes that the original has made the call. */
void oa_lapack_by_host(oa_program_call *call, const oa_lapack_arguments *arguments);

static inline char oa_capital(const char *letter) { return (char)(*letter & ~32); }

#endif
