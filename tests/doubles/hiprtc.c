/* A double of libhiprtc.so for machines with no AMD GPU: the double of NVRTC with AMD's names. HIPRTC_DOUBLE_PACK names
 * a program that packs the shared object into an HSACO, which the double of libamdhip64 runs. */
#define nvrtcVersion hiprtcVersion
#define nvrtcCreateProgram hiprtcCreateProgram
#define nvrtcCompileProgram hiprtcCompileProgram
#define nvrtcGetCUBINSize hiprtcGetCodeSize
#define nvrtcGetCUBIN hiprtcGetCode
#define nvrtcGetProgramLogSize hiprtcGetProgramLogSize
#define nvrtcGetProgramLog hiprtcGetProgramLog
#define nvrtcDestroyProgram hiprtcDestroyProgram
#define ARCHITECTURE "--offload-arch=gfx"
#define LIKE_CPU "-ffp-contract=off"

#include <stdio.h>
#include <stdlib.h>

static int pack(char *command, size_t size, const char *folder, const char *architecture) {
  return snprintf(command, size, "%s %s/result %s/packed gfx%s && mv %s/packed %s/result", getenv("HIPRTC_DOUBLE_PACK"),
                  folder, folder, architecture, folder, folder);
}

#include "nvrtc.c"
