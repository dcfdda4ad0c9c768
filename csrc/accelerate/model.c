#define _GNU_SOURCE
#include "accelerate/model.h"

#include <math.h>
#include <sched.h>

enum { ROUTINES = 256, FORMS = 2, CLASSES = 64, CELLS = ROUTINES * FORMS * CLASSES };
/* After MOST_ODD consecutive odd calls, the device does not get the next FEWEST_REFUSALS calls, and after each further
 * one, twice as many as before, up to a number. */
enum { MOST_ODD = 3, FEWEST_REFUSALS = 8, DOUBLINGS = 7 };

/* Times of calls of one routine and form whose numbers of operations round down to the same power of two. */
typedef struct cell {
  double host;   /* seconds per operation, measured */
  double device; /* measured seconds divided by predicted seconds */
  int host_calls, device_calls;
  int16_t odd,
      refusals; /* consecutive odd calls on the device, and how many calls the device does not get after them */
} cell;

/* Calls whose operands were already on the device have separate cells. */
static cell cells[CELLS][2];
static oa_accelerate_rates now;

static const double DEVICE_MEMORY = 1e12; /* bytes per second, on the slowest GPUs that pay off */

static int cpus(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

void oa_model_nominal(oa_accelerate_rates *rates) {
  const double cores = cpus();
  *rates = (oa_accelerate_rates){.size = sizeof *rates,
                                 .up = 25e9,
                                 .down = 20e9,
                                 .call = 150e-6,
                                 .device = {2e13, 1e13, 2e13, 1e13},
                                 .host = {6e10 * cores, 3e10 * cores, 6e10 * cores, 3e10 * cores},
                                 .host_memory = 2e10 + 5e9 * cores};
}

static void clear(cell *of) {
  of->device_calls = 0;
  of->odd = of->refusals = 0;
}

void oa_model_set(const oa_accelerate_rates *rates) {
  const oa_accelerate_rates before = now;
  now = *rates;
  for (int i = 0; i < 4; i++) /* the host keeps the faster of the two rates */
    if (before.host[i] > now.host[i]) now.host[i] = before.host[i];
  for (int i = 0; i < 2 * CELLS; i++) clear(&cells[i / 2][i % 2]);
}

static int rate_of(int dtype) { return dtype == OA_F32 ? 0 : dtype == OA_F64 ? 1 : dtype == OA_C64 ? 2 : 3; }

/* Returns the pair of cells of a call. The first cell has the times on the CPU, and the times on the device of calls
 * that sent their operands. The second cell has the times on the device of calls whose operands were already there. */
static cell *cells_of(const oa_program_call *call) {
  const int power = call->operations >= 1 ? ilogb(call->operations) : 0;
  const int form = call->routine->number % ROUTINES * FORMS + call->form;
  return cells[form * CLASSES + (power < CLASSES ? power : CLASSES - 1)];
}

static bool is_spared(const oa_program_call *call) { return call->bytes_spared > call->bytes_up; }

static double greater(double a, double b) { return a > b ? a : b; }

void oa_model_predict(oa_program_call *call) {
  const cell *cells = cells_of(call), *sent = &cells[is_spared(call)];
  const int rate = rate_of(call->routine->dtype);
  const double bytes = call->bytes_up + call->bytes_down + call->bytes_spared;
  call->predicted_host = greater(call->operations / (now.host[rate] * call->host_share), bytes / now.host_memory);
  if (cells->host_calls) call->predicted_host = cells->host * call->operations;
  call->predicted_device = now.call + call->bytes_up / now.up + call->bytes_down / now.down + call->steps +
                           greater(call->operations / (now.device[rate] * call->device_share), bytes / DEVICE_MEMORY);
  if (sent->device_calls > 1) call->predicted_device *= sent->device;
}

bool oa_model_needs_host(const oa_program_call *call) {
  return cells_of(call)->host_calls < 2 && call->predicted_device * 4 > call->predicted_host;
}

bool oa_model_is_short(oa_program_call *call, double up, double down, double margin) {
  const cell *cells = cells_of(call);
  if (cells->host_calls < 2) return false;
  const double begun = now.call + up / now.up + down / now.down;
  double least = begun;
  for (int i = 0; i < 2; i++)
    if (cells[i].device_calls > 1 && cells[i].device < 1) least = fmin(least, begun * cells[i].device);
  call->predicted_host = cells->host * call->operations;
  call->predicted_device = least;
  return call->predicted_host < margin * least;
}

bool oa_model_is_odd(const oa_program_call *call) {
  cell *cells = cells_of(call);
  return cells->refusals > 0 && cells->refusals--;
}

void oa_model_note_odd(const oa_program_call *call, bool is_odd) {
  cell *cells = cells_of(call);
  cells->odd = (int16_t)(is_odd ? cells->odd + (cells->odd < MOST_ODD + DOUBLINGS) : 0);
  cells->refusals = (int16_t)(cells->odd < MOST_ODD ? 0 : FEWEST_REFUSALS << (cells->odd - MOST_ODD));
}

double oa_model_up(void) { return now.up; }

void oa_model_learn(const oa_program_call *call, bool on_device, double seconds) {
  cell *cells = cells_of(call);
  const int rate = rate_of(call->routine->dtype);
  if (on_device) {
    cells += is_spared(call);
    /* The first call loads kernels and pins memory. */
    const double before = cells->device_calls > 1 ? cells->device : 1;
    const double ratio = seconds / (call->predicted_device / before);
    if (cells->device_calls == 1) cells->device = ratio;
    if (cells->device_calls > 1) cells->device += (ratio - cells->device) / 4;
    cells->device_calls++;
    return;
  }
  /* BLAS starts its threads in the first call. The fastest later call counts most, because the machine may have been
   * busy during slower calls. */
  const double each = seconds / greater(call->operations, 1);
  if (cells->host_calls < 2 || each < cells->host)
    cells->host = each;
  else
    cells->host += (each - cells->host) / 8;
  cells->host_calls++;
  if (!call->is_lapack && call->operations / seconds > now.host[rate]) now.host[rate] = call->operations / seconds;
  /* Calls that once seemed slow on the device are tried again later. */
  for (int i = 0; i < 2; i++)
    if (cells[i].device_calls > 1 && cells[i].device > 1) cells[i].device += (1 - cells[i].device) / 64;
}
