/* The inputs that fuzzing kept (corpus.txt, one a line in hexadecimal), run once each: fuzz_c_api.c says what holds. */
#include "fuzz_c_api.c"

int main(void) {
  char line[512];
  FILE *corpus = fopen(CORPUS, "r");
  int run = 0;
  LLVMFuzzerInitialize(NULL, NULL);
  while (corpus && fgets(line, sizeof line, corpus)) {
    uint8_t bytes_of[sizeof line / 2];
    size_t size = 0;
    unsigned value;
    while (sscanf(line + 2 * size, "%2x", &value) == 1) bytes_of[size++] = (uint8_t)value;
    LLVMFuzzerTestOneInput(bytes_of, size);
    run++;
  }
  if (corpus) fclose(corpus);
  printf("%d inputs\n", run);
  return run < 100;
}
