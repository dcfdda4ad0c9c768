#include "region/change.h"

#include "device/device.h"

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting;

void oa_wait_change(void) {
  waiting++;
  pthread_cond_wait(&changed, &oa_mutex);
  waiting--;
}

void oa_announce_change(void) {
  if (waiting) pthread_cond_broadcast(&changed);
}
