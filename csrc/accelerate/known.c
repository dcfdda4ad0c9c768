#include "accelerate/known.h"

#include "device/device.h"
#include "region/array.h"
#include "region/pages.h"
#include "region/residency.h"

#include <pthread.h>
#include <string.h>

enum {
  PLACES = 128,
  CHAINS = 64,
  LEAST_EAGER = 128 << 10, /* bytes: the core keeps no smaller array */
  LEAST_CHAIN = 4 << 20,   /* bytes of arrays that a call writes */
  SAMPLES = 16,            /* pages */
  UNCHANGED = 2,           /* consecutive times that the sample was not written */
  WRITTEN_LIMIT = 20,      /* as WRITTEN_LIMIT in residency.c */
  LOST_SHARE = 2,          /* the stay of an unused array ends if half of its memory may have changed */
  MOST_STRIKES = 20,
  UNWATCHED_STRIKES = 8
};

/* An array of earlier calls. */
typedef struct place {
  uintptr_t low, high; /* high is 0 in a free entry */
  oa_lines lines;
  uint64_t used;
  int64_t skip; /* number of reads to ignore before the array is tried again */
  int strikes, clean;
  double rent;   /* seconds that calls would have saved if the array had been on the device */
  double earned; /* seconds that calls saved since the array is kept, less the seconds of sending it */
  oa_watch *sample;
  bool kept, coming; /* coming: the call that brings the array up is under way */
  int device;
  uint64_t maker; /* the call that wrote the array last; 0: none, or a call has read the array since */
} place;

/* Similar calls that wrote a large array. */
typedef struct chain {
  uint64_t maker, used;
  int hits, strikes; /* hits: how many times in a row the next call read the array unchanged */
  int64_t skip;
} chain;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static place places[PLACES];
static chain chains[CHAINS];
static uint64_t uses;
static int kept_count, swept;
static int64_t kept_bytes;

void oa_known_lock(void) { pthread_mutex_lock(&mutex); }
void oa_known_unlock(void) { pthread_mutex_unlock(&mutex); }

/* -- without the lock -- */

static bool is_dense(const oa_known_array *array) {
  return array->lines.count > 0 && array->bytes / 9 * 10 >= (int64_t)(array->high - array->low);
}

void oa_known_look(oa_known *known, const oa_array *arrays, int count, int device, uint64_t maker, bool eager) {
  const int64_t least = eager ? LEAST_EAGER : OA_KNOWN_LEAST, least_chain = eager ? LEAST_EAGER : LEAST_CHAIN;
  oa_device *on = device < 0 ? NULL : oa_device_of(device);
  const bool may_stay = oa_pages_work() && oa_residency_current() != OA_RESIDENCY_OFF;
  *known = (oa_known){.count = count <= OA_KNOWN_ARRAYS ? count : 0,
                      .device = on ? device : -1,
                      .least_chain = least_chain,
                      .maker = maker | 1};
  for (int i = 0; i < known->count; i++) {
    oa_known_array *array = &known->arrays[i];
    array->place = -1;
    array->is_read = arrays[i].direction != OA_OUT;
    array->is_written = arrays[i].direction != OA_IN;
    const bool has_lines = oa_array_bytes("accelerate", &arrays[i], &array->low, &array->high, &array->lines) == OA_OK;
    array->bytes = arrays[i].shape[0] * arrays[i].shape[1] * oa_itemsize(arrays[i].dtype);
    array->missing = array->is_read ? array->bytes : 0;
    for (int j = 0; j < i; j++)
      array->again |=
          known->arrays[j].low == array->low && known->arrays[j].high == array->high && known->arrays[j].is_read;
    if (array->again) array->missing = 0;
    if (!has_lines || array->again || array->bytes < least || !may_stay) continue;
    /* A GPU's writes into pinned memory mark no pages. */
    if (on && on->backend->pinned(on, arrays[i].data, (size_t)(array->high - array->low))) continue;
    if (on && array->is_read) array->missing = oa_resident_missing(on, array->low, array->high, array->lines);
    if (is_dense(array)) array->place = PLACES;
    if (array->is_read) known->maker = (known->maker * 31 + array->low) | 1;
  }
}

/* -- places -- */

static uint64_t power(int exponent) { return (uint64_t)1 << exponent; }

static void end_sample(place *p) {
  oa_watch_free(p->sample);
  p->sample = NULL;
  p->clean = 0;
}

static void end_stay(place *p) {
  if (!p->kept) return;
  p->kept = false;
  kept_count--;
  kept_bytes -= (int64_t)(p->high - p->low);
  const oa_device *device = oa_device_of(p->device);
  if (device) oa_resident_drop(device, p->low, p->high, p->lines);
}

/* Ends the array's sample and stay. Some reads of the array are then ignored; the number of ignored reads grows with
 * each strike. After a stay that saved time, no read is ignored, and the saved time counts as paid for the next stay:
 * a program may write its array now and then, and read it many times in between. */
static void strike(place *p, int strikes) {
  const double earned = p->kept ? p->earned : 0;
  end_sample(p);
  end_stay(p);
  if (earned > 0) {
    p->strikes = 0;
    p->skip = 0;
    p->rent = earned;
    return;
  }
  p->strikes = p->strikes + strikes < MOST_STRIKES ? p->strikes + strikes : MOST_STRIKES;
  p->skip = (int64_t)power(p->strikes);
  p->rent = 0;
}

static void begin_stay(place *p, oa_known_array *array, int device) {
  if (p->kept) return;
  array->began = true;
  p->kept = p->coming = true;
  p->device = device;
  p->rent = p->earned = 0;
  kept_count++;
  kept_bytes += (int64_t)(p->high - p->low);
  end_sample(p);
}

/* -- chains -- */

static chain *chain_of(uint64_t maker) {
  chain *oldest = &chains[0];
  for (int i = 0; i < CHAINS; i++) {
    if (chains[i].maker == maker) oldest = &chains[i];
    if (oldest->maker == maker) break;
    if (chains[i].used < oldest->used) oldest = &chains[i];
  }
  if (oldest->maker != maker) *oldest = (chain){.maker = maker};
  oldest->used = uses;
  return oldest;
}

static void break_chain(uint64_t maker) {
  chain *c = chain_of(maker);
  c->hits = 0;
  c->strikes += c->strikes < MOST_STRIKES;
  c->skip = (int64_t)power(c->strikes);
}

/* Notes the next use of an array that a call wrote. `unchanged`: a call reads the array as it was written; if it is
 * false, the chain breaks. */
static void end_chain(place *p, bool unchanged) {
  if (!p->maker) return;
  if (unchanged)
    chain_of(p->maker)->hits++;
  else
    break_chain(p->maker);
  p->maker = 0;
}

/* -- the table: under the lock -- */

static void forget(place *p) {
  end_chain(p, false);
  end_stay(p);
  end_sample(p);
  *p = (place){0};
}

static bool is_at(const place *p, const oa_known_array *array) {
  return p->low == array->low && p->high == array->high && memcmp(&p->lines, &array->lines, sizeof p->lines) == 0;
}

/* Finds the place of the array. An array without a place gets the place of the array that was unused longest. */
static place *place_of(oa_known_array *array) {
  int oldest = 0;
  for (int i = 0; i < PLACES; i++) {
    if (is_at(&places[i], array)) {
      array->place = i;
      return &places[i];
    }
    if (places[i].used < places[oldest].used) oldest = i;
  }
  place *p = &places[oldest];
  forget(p);
  p->low = array->low;
  p->high = array->high;
  p->lines = array->lines;
  array->place = oldest;
  return p;
}

/* Returns whether no page of the array's sample was written since the last check. */
static bool is_unchanged(place *p) {
  oa_run runs[1];
  int64_t written;
  oa_watch_take(p->sample, runs, 1, &written);
  return written == 0;
}

/* Begins to watch a sample of the array's pages in their present state. */
static bool begin_sample(place *p) {
  oa_run runs[1];
  int64_t written;
  end_sample(p);
  p->sample = oa_watch_new(p->low, p->high, SAMPLES);
  if (p->sample) oa_watch_take(p->sample, runs, 1, &written);
  return p->sample != NULL;
}

/* Returns whether enough samples showed that the program leaves an array unchanged. Samples are taken only once half of
 * the price is paid: a sample splits the array's huge pages, which makes the program's own accesses slower. */
static bool is_steady(place *p) {
  if (!p->sample) {
    if (!begin_sample(p)) strike(p, UNWATCHED_STRIKES);
    return false;
  }
  if (is_unchanged(p))
    p->clean++;
  else
    strike(p, 1);
  return p->clean >= UNCHANGED;
}

static void see_read(place *p, oa_known_array *array) {
  if (p->kept) {
    const bool good = p->coming || array->missing * WRITTEN_LIMIT <= array->bytes;
    end_chain(p, good);
    array->keep = good;
    if (good) return;
    strike(p, 1);
    array->missing = array->bytes;
    return;
  }
  if (p->maker) {
    end_chain(p, p->sample && is_unchanged(p));
    end_sample(p);
  }
  /* Nothing to do: the program lends the array, or this call changes it. */
  if (!array->missing || array->is_written) return;
  if (p->skip > 0)
    p->skip--;
  else
    array->steady = true;
}

/* Ends the stay of one array that no call has used for long, if its memory was freed or rewritten. */
static void sweep(void) {
  enum { LONG = 16 };
  if (!kept_count) return;
  place *p = &places[swept++ % PLACES];
  if (!p->kept || p->used + LONG > uses) return;
  const int64_t unknown = oa_pages_unknown(p->low, p->high);
  if (unknown < 0 || unknown >= (int64_t)(p->high - p->low) / LOST_SHARE) forget(p);
}

void oa_known_see(oa_known *known) {
  uses++;
  for (int i = 0; i < known->count; i++) {
    oa_known_array *array = &known->arrays[i];
    if (array->place < 0) continue;
    place *p = place_of(array);
    p->used = uses;
    if (p->kept && p->device != known->device) end_stay(p);
    if (array->is_read)
      see_read(p, array);
    else if (p->kept && !p->maker)
      end_stay(p); /* the array was kept for calls that read it */
  }
  sweep();
}

int64_t oa_known_steady(const oa_known *known) {
  int64_t bytes = 0;
  for (int i = 0; i < known->count; i++) bytes += known->arrays[i].steady ? known->arrays[i].missing : 0;
  return bytes;
}

/* Drops the arrays that were unused longest until nbytes more bytes fit. Returns false if the bytes can't fit. */
static bool make_room(int64_t nbytes, int64_t room) {
  if (!room) return true;
  if (nbytes > room) return false;
  while (kept_bytes + nbytes > room) {
    place *oldest = NULL;
    for (int i = 0; i < PLACES; i++)
      if (places[i].kept && places[i].used != uses && (!oldest || places[i].used < oldest->used)) oldest = &places[i];
    if (!oldest) return false;
    end_stay(oldest);
  }
  return true;
}

bool oa_known_pay(oa_known *known, double seconds, double price, int64_t room) {
  const double bytes = (double)oa_known_steady(known);
  double paid = 0;
  for (int i = 0; i < known->count; i++) {
    const oa_known_array *array = &known->arrays[i];
    if (!array->steady) continue;
    places[array->place].rent += seconds * (double)array->missing / bytes;
    paid += places[array->place].rent;
  }
  if (paid * 2 < price) return false;
  bool all = true;
  for (int i = 0; i < known->count; i++) {
    const oa_known_array *array = &known->arrays[i];
    if (!array->steady) continue;
    place *p = &places[array->place];
    all &= (room < 0 && p->clean >= UNCHANGED) || is_steady(p);
  }
  if (paid < price) return false;
  if (!all || room < 0) return all;
  for (int i = 0; i < known->count; i++) {
    oa_known_array *array = &known->arrays[i];
    if (!array->steady) continue;
    place *p = &places[array->place];
    array->keep = make_room((int64_t)(p->high - p->low), room);
    all &= array->keep;
    if (array->keep)
      begin_stay(p, array, known->device);
    else
      strike(p, 1);
  }
  return all;
}

void oa_known_chain(oa_known *known, int64_t room) {
  for (int i = 0; i < known->count; i++) {
    oa_known_array *array = &known->arrays[i];
    if (!array->is_written || array->place < 0) continue;
    place *p = &places[array->place];
    end_chain(p, false); /* no call has read the earlier result in this array */
    array->keep = chain_of(known->maker)->hits >= UNCHANGED && make_room((int64_t)(p->high - p->low), room);
    if (array->keep)
      begin_stay(p, array, known->device);
    else
      end_stay(p);
  }
}

void oa_known_cancel(oa_known *known) {
  for (int i = 0; i < known->count; i++) {
    const oa_known_array *array = &known->arrays[i];
    if (array->began) end_stay(&places[array->place]);
  }
}

void oa_known_end(oa_known *known, bool well, double saved) {
  int keeps = 0;
  for (int i = 0; i < known->count; i++) keeps += known->arrays[i].keep;
  for (int i = 0; i < known->count; i++) {
    oa_known_array *array = &known->arrays[i];
    place *p = array->place < 0 || !is_at(&places[array->place], array) ? NULL : &places[array->place];
    /* The stay ended while the call was under way, so the memory has to be dropped here. */
    if (array->keep && !(p && p->kept)) {
      const oa_device *device = oa_device_of(known->device);
      if (device) oa_resident_drop(device, array->low, array->high, array->lines);
    }
    if (!p) continue;
    if (array->keep) p->earned = well ? p->earned + saved / keeps : 0;
    if (array->began || (array->keep && well)) p->coming = false;
    if (!well) {
      if (array->keep) strike(p, 1);
      continue;
    }
    if (!array->is_written) continue;
    chain *c = chain_of(known->maker);
    if (array->keep) {
      p->maker = known->maker;
    } else if (c->skip > 0) {
      c->skip--;
    } else if (array->bytes >= known->least_chain && begin_sample(p)) {
      p->maker = known->maker;
    }
  }
}

void oa_known_clear(void) {
  for (int i = 0; i < PLACES; i++) forget(&places[i]);
  memset(chains, 0, sizeof chains);
  uses = 0;
}
