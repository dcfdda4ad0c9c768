/* The time of a call on the CPU and on the device: rates, corrected by the measured times of similar calls. Callers
 * hold the lock of record.h. */
#ifndef OA_MODEL_H
#define OA_MODEL_H

#include "accelerate/program_call.h"

/* Fills in typical rates of a current GPU and of as many CPUs as this machine has. No machine has exactly these
 * rates. */
void oa_model_nominal(oa_accelerate_rates *rates);
/* Sets the rates of a device. Times of calls on the device are forgotten, times on the CPU are kept. */
void oa_model_set(const oa_accelerate_rates *rates);
/* Predicts the times of a call on the CPU and on the device, if call->bytes_up bytes have to be copied up. */
void oa_model_predict(oa_program_call *call);
/* Returns whether the CPU should make a call, so that its time on the CPU becomes known. The CPU should make the call
 * if the predicted times on the CPU and on the device are near each other, and the prediction for the CPU is only a
 * guess. */
bool oa_model_needs_host(const oa_program_call *call);
/* Returns whether no device can be faster by the factor `margin`, even if all large operands are there: the CPU's
 * measured time is shorter than a call that copies `up` and `down` bytes, the small ones. If the CPU's time is known,
 * fills in the predicted times. */
bool oa_model_is_short(oa_program_call *call, double up, double down, double margin);
/* Returns whether earlier calls of the same routine and of similar work were odd on the device (OA_CALL_ODD), so that
 * the device does not get this call. Counts the call. */
bool oa_model_is_odd(const oa_program_call *call);
/* Notes a call that the device made, or that was odd there. */
void oa_model_note_odd(const oa_program_call *call, bool is_odd);
/* Returns how many bytes go up per second. */
double oa_model_up(void);
/* Corrects the rates by the measured time of a call that the CPU or the device made. */
void oa_model_learn(const oa_program_call *call, bool on_device, double seconds);

#endif
