/* Runs each input that fuzzing kept (corpus.txt, one a line in hexadecimal), and then random changes of these inputs.
 * fuzz_c_api.c describes the checks. scripts/fuzz-c-api makes a million inputs, and finds inputs that reach other
 * code. */
#include "fuzz_c_api.c"

enum { MOST = 1000, LONGEST = 60, CHANGED = 40 /* changed inputs made of each input */ };

typedef struct {
  uint8_t bytes[2 * LONGEST];
  size_t size;
} kept;

static unsigned long long state = 88172645463325252ull;

static size_t below(size_t count) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (size_t)(state >> 16) % count;
}

/* Returns an input with some bytes changed, and some of another input after it or instead of its end. */
static kept changed(const kept *input, const kept *other) {
  kept mixed = *input;
  for (size_t changes = below(4); changes && mixed.size; changes--)
    mixed.bytes[below(mixed.size)] = below(2) ? (uint8_t)below(256) : (uint8_t)(1 << below(8));
  if (below(2)) {
    const size_t from = below(other->size + 1), count = below(other->size - from + 1);
    if (below(2)) mixed.size = below(mixed.size + 1);
    memcpy(mixed.bytes + mixed.size, other->bytes + from, count);
    mixed.size += count;
  }
  return mixed;
}

static void run(const kept *input) {
  /* This memory has exactly the input's size, so that a sanitizer finds a read after the end. */
  uint8_t *bytes_of = malloc(input->size ? input->size : 1);
  if (input->size) memcpy(bytes_of, input->bytes, input->size);
  LLVMFuzzerTestOneInput(bytes_of, input->size);
  free(bytes_of);
}

int main(void) {
  static kept all[MOST];
  char line[4 * LONGEST];
  int count = 0;
  FILE *corpus = fopen(CORPUS, "r");
  const char *seed = getenv("FUZZ_SEED"); /* a seed makes other random inputs */
  if (seed) state ^= strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15ull;
  LLVMFuzzerInitialize(NULL, NULL);
  for (; corpus && count < MOST && fgets(line, sizeof line, corpus); count++) {
    kept *input = &all[count];
    for (unsigned value; input->size < LONGEST && sscanf(line + 2 * input->size, "%2x", &value) == 1;)
      input->bytes[input->size++] = (uint8_t)value;
    run(input);
  }
  if (corpus) fclose(corpus);
  for (int i = 0; i < CHANGED * count; i++) {
    const kept mixed = changed(&all[i % count], &all[below((size_t)count)]);
    run(&mixed);
  }
  printf("%d inputs, %d made of them\n", count, CHANGED * count);
  return count < 100;
}
