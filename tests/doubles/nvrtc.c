/* A double of libnvrtc.so.13 for machines with no GPU. It compiles with the host's C++ compiler into a shared object,
 * which the double of the driver runs. Sources that use only the macros of offload_args/kernel.h compile with NVRTC,
 * too. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef ARCHITECTURE
#define ARCHITECTURE "--gpu-architecture=sm_"
#define LIKE_CPU "--fmad=false" /* the option with which sums equal the CPU's sums */
/* Writes the command that makes the result from the compiler's output; "" if the output is the result. */
static int pack(char *command, size_t size, const char *folder, const char *architecture) {
  return snprintf(command, size, "%.0s%.0s", folder, architecture);
}
#endif

typedef struct program {
  char folder[64], *source, *result, *log;
  size_t result_bytes;
} program;

int nvrtcVersion(int *major, int *minor);
int nvrtcCreateProgram(program **created, const char *source, const char *name, int count, const char **headers,
                       const char **names);
int nvrtcCompileProgram(program *p, int count, const char **options);
int nvrtcGetCUBINSize(program *p, size_t *nbytes);
int nvrtcGetCUBIN(program *p, char *bytes);
int nvrtcGetProgramLogSize(program *p, size_t *nbytes);
int nvrtcGetProgramLog(program *p, char *bytes);
int nvrtcDestroyProgram(program **p);

enum { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6 };

int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, SUCCESS; }

int nvrtcCreateProgram(program **created, const char *source, const char *name, int count, const char **headers,
                       const char **names) {
  if (!source || !name || count || headers || names) return INVALID_INPUT;
  program *p = *created = calloc(1, sizeof *p);
  snprintf(p->folder, sizeof p->folder, "/tmp/nvrtc-double-XXXXXX");
  p->source = strdup(source);
  return mkdtemp(p->folder) ? SUCCESS : INVALID_INPUT;
}

/* Returns a file of the program's folder, with a zero byte after it. */
static char *file_of(const program *p, const char *name, size_t *nbytes) {
  char path[96];
  struct stat status;
  snprintf(path, sizeof path, "%s/%s", p->folder, name);
  FILE *file = fopen(path, "rb");
  *nbytes = file && fstat(fileno(file), &status) == 0 ? (size_t)status.st_size : 0;
  char *bytes = calloc(1, *nbytes + 1);
  if (file && fread(bytes, 1, *nbytes, file) != *nbytes) *nbytes = 0;
  if (file) fclose(file);
  return bytes;
}

int nvrtcCompileProgram(program *p, int count, const char **options) {
  char command[8192], path[96];
  const char *architecture = NULL;
  snprintf(path, sizeof path, "%s/source", p->folder);
  FILE *file = fopen(path, "w");
  fputs(p->source, file);
  fclose(file);
  snprintf(command, sizeof command, "c++ -O1 -shared -fPIC -x c++ %s/source -o %s/result", p->folder, p->folder);
  for (int i = 0; i < count; i++) {
    if (strncmp(options[i], ARCHITECTURE, strlen(ARCHITECTURE)) == 0)
      architecture = options[i] + strlen(ARCHITECTURE);
    else if (strcmp(options[i], LIKE_CPU) != 0)
      snprintf(command + strlen(command), sizeof command - strlen(command), " '%s'", options[i]);
  }
  snprintf(command + strlen(command), sizeof command - strlen(command), " 2>%s/log", p->folder);
  int code = system(command);
  size_t nbytes;
  if (code == 0 && architecture && pack(command, sizeof command, p->folder, architecture)) code = system(command);
  p->log = file_of(p, "log", &nbytes);
  p->result = file_of(p, "result", &p->result_bytes);
  return architecture && WIFEXITED(code) && WEXITSTATUS(code) == 0 ? SUCCESS : COMPILATION;
}

int nvrtcGetCUBINSize(program *p, size_t *nbytes) { return *nbytes = p->result_bytes, SUCCESS; }
int nvrtcGetCUBIN(program *p, char *bytes) { return memcpy(bytes, p->result, p->result_bytes), SUCCESS; }
int nvrtcGetProgramLogSize(program *p, size_t *nbytes) { return *nbytes = strlen(p->log) + 1, SUCCESS; }
int nvrtcGetProgramLog(program *p, char *bytes) { return strcpy(bytes, p->log), SUCCESS; }

int nvrtcDestroyProgram(program **p) {
  static const char *const names[] = {"source", "result", "log"};
  char path[96];
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", (*p)->folder, names[i]);
    unlink(path);
  }
  rmdir((*p)->folder);
  free((*p)->source);
  free((*p)->result);
  free((*p)->log);
  free(*p);
  *p = NULL;
  return SUCCESS;
}
