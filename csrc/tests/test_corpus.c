/* The inputs that fuzzing kept (corpus.txt, one a line in hexadecimal), run once each, and then some made of them at
 * random: fuzz_c_api.c says what holds. scripts/fuzz-c-api makes a million, and looks which reach other code. */
#include "fuzz_c_api.c"

enum { MOST = 1000, LONGEST = 60, CHANGED = 40 /* inputs made of each */ };

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

/* Returns an input with some bytes changed, and some of another one behind it or instead of its end. */
static kept changed(const kept *one, const kept *other) {
  kept made = *one;
  for (size_t changes = below(4); changes && made.size; changes--)
    made.bytes[below(made.size)] = below(2) ? (uint8_t)below(256) : (uint8_t)(1 << below(8));
  if (below(2)) {
    const size_t from = below(other->size + 1), count = below(other->size - from + 1);
    if (below(2)) made.size = below(made.size + 1);
    memcpy(made.bytes + made.size, other->bytes + from, count);
    made.size += count;
  }
  return made;
}

static void run(const kept *one) {
  uint8_t *bytes_of = malloc(one->size ? one->size : 1); /* not a byte behind its end can be read */
  if (one->size) memcpy(bytes_of, one->bytes, one->size);
  LLVMFuzzerTestOneInput(bytes_of, one->size);
  free(bytes_of);
}

int main(void) {
  static kept all[MOST];
  char line[4 * LONGEST];
  int count = 0;
  FILE *corpus = fopen(CORPUS, "r");
  const char *seed = getenv("FUZZ_SEED"); /* other inputs than usually */
  if (seed) state ^= strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15ull;
  LLVMFuzzerInitialize(NULL, NULL);
  for (; corpus && count < MOST && fgets(line, sizeof line, corpus); count++) {
    kept *one = &all[count];
    for (unsigned value; one->size < LONGEST && sscanf(line + 2 * one->size, "%2x", &value) == 1;)
      one->bytes[one->size++] = (uint8_t)value;
    run(one);
  }
  if (corpus) fclose(corpus);
  for (int i = 0; i < CHANGED * count; i++) {
    const kept made = changed(&all[i % count], &all[below((size_t)count)]);
    run(&made);
  }
  printf("%d inputs, %d made of them\n", count, CHANGED * count);
  return count < 100;
}
