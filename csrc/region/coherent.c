#include "region/coherent.h"

#include "base/threads.h"
#include "base/trace.h"

#include <stdlib.h>

/* -- copies within the host -- */

/* A copy of lines that several threads make; each takes one piece after the other. */
typedef struct copy {
  char *to;
  const char *from;
  oa_lines lines; /* start is not used */
  int64_t each;   /* bytes of a line, or lines, of a piece */
  int64_t pieces;
  _Atomic int64_t next;
} copy;

static void copy_pieces(void *data) {
  copy *c = data;
  const oa_lines l = c->lines;
  int64_t number;
  while ((number = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed)) < c->pieces) {
    const int64_t first = number * c->each, most = (l.count == 1 ? l.width : l.count) - first;
    const int64_t size = most < c->each ? most : c->each, at = l.count == 1 ? first : first * l.pitch;
    oa_copy_lines(c->to + at, (size_t)l.pitch, c->from + at, (size_t)l.pitch, (size_t)(l.count == 1 ? size : l.width),
                  (size_t)(l.count == 1 ? 1 : size));
  }
}

/* Copies lines between two places that have them at the same offsets. */
static void copy_lines(const oa_device *device, char *to, const char *from, oa_lines lines) {
  enum { PIECE = 1 << 20 };
  copy c = {.to = to + lines.start, .from = from + lines.start, .lines = lines};
  c.each = lines.count == 1 ? PIECE : PIECE / lines.width + 1;
  c.pieces = ((lines.count == 1 ? lines.width : lines.count) + c.each - 1) / c.each;
  const int64_t threads = oa_lines_bytes(lines) < oa_tuning.split_least ? 1 : oa_threads_count();
  oa_threads_run(device, copy_pieces, &c, (int)(threads < c.pieces ? threads : c.pieces));
}

static char *host_of(const oa_mapping *mapping) { return (char *)(uintptr_t)mapping->at.low; }

/* Copies all bytes of a group: to the former bytes, or from them. Returns the number of bytes. */
static int64_t copy_group(const oa_mapping *mapping, const oa_group *group, bool save) {
  int64_t nbytes = 0;
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_view *view = &mapping->views[i];
    if (&mapping->groups[view->group] != group || (group->cover >= 0 && group->cover != i)) continue;
    char *to = save ? mapping->former : host_of(mapping), *from = save ? host_of(mapping) : mapping->former;
    copy_lines(mapping->device, to, from, view->lines);
    nbytes += oa_lines_bytes(view->lines);
  }
  return nbytes;
}

/* -- former bytes -- */

int oa_coherent_save(const char *function, oa_mapping *mapping, oa_group *group) {
  if (!mapping->former && !(mapping->former = malloc((size_t)mapping->nbytes)))
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a copy of %s, which a region that fails needs (%lld bytes)",
                   function, mapping->views[0].name, (long long)mapping->nbytes);
  mapping->moving = true;
  oa_unlock();
  const int64_t begun = oa_trace_begin();
  const int64_t nbytes = copy_group(mapping, group, true);
  atomic_fetch_add_explicit(&mapping->device->counts.bytes_former, nbytes, memory_order_relaxed);
  if (begun)
    oa_trace_note(OA_TRACE_WAIT, begun, mapping->device->number, mapping->serial, 0, "wait", "saving former bytes",
                  nbytes, OA_OK);
  oa_lock();
  group->saved = true;
  oa_mapping_yield(mapping);
  return OA_OK;
}

void oa_coherent_forget(oa_mapping *mapping) {
  for (int g = 0; mapping->former && g < mapping->group_count; g++) {
    oa_group *group = &mapping->groups[g];
    group->saved &= group->dirty || group->escaped || group->invalid;
  }
}

void oa_coherent_follow(oa_mapping *mapping, oa_lines lines) {
  copy_lines(mapping->device, mapping->former, host_of(mapping), lines);
}

void oa_coherent_restore(const oa_mapping *mapping, const oa_group *group) {
  if (group->saved) copy_group(mapping, group, false);
}

void oa_coherent_leave(oa_mapping *mapping, bool arrived) {
  for (int g = 0; g < mapping->group_count; g++) {
    oa_group *group = &mapping->groups[g];
    const bool written = group->dirty || group->escaped || group->invalid;
    if (group->saved && written && !(arrived && group->stays)) copy_group(mapping, group, false);
    group->saved = group->dirty = group->committed = false;
  }
}
