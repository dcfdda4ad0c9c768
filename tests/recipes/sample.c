/* A backend in one file: one device whose memory is malloc's, and whose operations are complete when they return. It is
 * the sample of CONTRIBUTING.md, "Add a backend"; test_recipes.py adds it to a copy of the core. */
#include "device/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int sample_count(int *count) {
  *count = 1;
  return OA_OK;
}

static int sample_open(oa_device *device) {
  snprintf(device->model, sizeof device->model, "a sample");
  return OA_OK;
}

static int sample_memory(oa_device *device, int64_t *free_bytes, int64_t *total_bytes) {
  (void)device;
  *free_bytes = *total_bytes = 1 << 30;
  return OA_OK;
}

/* Copies lines between any two addresses: all memory of this device is memory of the process. */
static void copy_lines(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines) {
  for (size_t i = 0; i < lines; i++) memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
}

static int sample_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  (void)stream;
  void *memory = nbytes <= (size_t)1 << 30 ? aligned_alloc(64, (nbytes + 63) / 64 * 64) : NULL;
  if (!memory) return oa_fail(OA_ERROR_MEMORY, "%s: no memory for %zu bytes", device->name, nbytes);
  *address = (uintptr_t)memory;
  return OA_OK;
}

static int sample_free(oa_device *device, void *stream, uint64_t address, size_t nbytes) {
  (void)device, (void)stream, (void)nbytes;
  free((void *)(uintptr_t)address);
  return OA_OK;
}

static int sample_copy_up(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                          size_t from_pitch, size_t width, size_t lines) {
  (void)device, (void)stream;
  copy_lines((void *)(uintptr_t)to, to_pitch, from, from_pitch, width, lines);
  return OA_OK;
}

static int sample_copy_down(oa_device *device, void *stream, void *to, size_t to_pitch, uint64_t from,
                            size_t from_pitch, size_t width, size_t lines) {
  (void)device, (void)stream;
  copy_lines(to, to_pitch, (const void *)(uintptr_t)from, from_pitch, width, lines);
  return OA_OK;
}

static int sample_copy(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
                       size_t width, size_t lines) {
  (void)device, (void)stream;
  copy_lines((void *)(uintptr_t)to, to_pitch, (const void *)(uintptr_t)from, from_pitch, width, lines);
  return OA_OK;
}

static int sample_fill(oa_device *device, void *stream, uint64_t to, size_t pitch, uint32_t value, size_t unit,
                       size_t width, size_t lines) {
  (void)device, (void)stream;
  for (size_t i = 0; i < lines; i++)
    for (size_t at = 0; at < width; at += unit) memcpy((char *)(uintptr_t)to + i * pitch + at, &value, unit);
  return OA_OK;
}

static int sample_pin(oa_device *device, size_t nbytes, void **memory) {
  uint64_t address = 0;
  const int status = sample_allocate(device, NULL, nbytes, &address);
  *memory = (void *)(uintptr_t)address;
  return status;
}

static int sample_unpin(oa_device *device, void *memory, size_t nbytes) {
  (void)device, (void)nbytes;
  free(memory);
  return OA_OK;
}

static bool sample_pinned(oa_device *device, const void *memory, size_t nbytes) {
  (void)device, (void)memory, (void)nbytes;
  return false;
}

static int sample_submit(oa_device *device, void *stream, void (*run)(void *), const void *arguments, size_t size) {
  (void)device, (void)stream, (void)size;
  run((void *)arguments);
  return OA_OK;
}

/* Streams and events are NULL: every operation is complete when it returns. */
static int nothing(oa_device *device) {
  (void)device;
  return OA_OK;
}

static int no_object(oa_device *device, void **object) {
  (void)device;
  *object = NULL;
  return OA_OK;
}

static int nothing_with(oa_device *device, void *object) {
  (void)device, (void)object;
  return OA_OK;
}

static int nothing_between(oa_device *device, void *object, void *other) {
  (void)device, (void)object, (void)other;
  return OA_OK;
}

static int sample_capturing(oa_device *device, void *stream, int *capturing) {
  (void)device, (void)stream;
  *capturing = 0;
  return OA_OK;
}

static int sample_done(oa_device *device, void *event, int *done) {
  (void)device, (void)event;
  *done = 1;
  return OA_OK;
}

const oa_backend oa_backend_sample = {
    .name = "sample",
    .flags = OA_DEVICE_HOST_CALLS | OA_SYNCHRONOUS | OA_SINGLE,
    .count = sample_count,
    .open = sample_open,
    .memory = sample_memory,
    .allocate = sample_allocate,
    .free = sample_free,
    .trim = nothing,
    .copy_up = sample_copy_up,
    .copy_down = sample_copy_down,
    .copy_up_later = sample_copy_up,
    .pin = sample_pin,
    .unpin = sample_unpin,
    .pinned = sample_pinned,
    .copy = sample_copy,
    .fill = sample_fill,
    .stream_create = no_object,
    .stream_synchronize = nothing_with,
    .stream_wait = nothing_between,
    .stream_capturing = sample_capturing,
    .event_create = no_object,
    .event_record = nothing_between,
    .event_destroy = nothing_with,
    .event_done = sample_done,
    .event_synchronize = nothing_with,
    .synchronize = nothing,
    .submit = sample_submit,
};
