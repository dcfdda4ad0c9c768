#include "call/group.h"

#include <stdlib.h>

_Thread_local oa_group_of_calls oa_group_of_thread;

void oa_group_open(const oa_library *library) {
  oa_group_of_calls *group = &oa_group_of_thread;
  oa_lock();
  const oa_region_state *youngest = oa_region_youngest();
  oa_caller *caller = oa_caller_with_room(0); /* NULL: host memory ran out, so no call begins, either */
  if (caller) caller->grouped = true;
  *group = (oa_group_of_calls){.library = library, .depth = 1, .since = youngest ? youngest->serial : 0};
  oa_unlock();
}

oa_grouped *oa_group_add(const oa_call *call) {
  oa_group_of_calls *group = &oa_group_of_thread;
  oa_grouped *grouped = call->count > OA_MOST_GROUPED ? NULL : malloc(sizeof *grouped);
  if (!grouped) {
    oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a call of a group; its arrays stay lent", call->function);
    return NULL;
  }
  *grouped = (oa_grouped){.call = *call};
  for (int i = 0; i < call->count; i++) {
    const oa_operand *o = &call->operands[i];
    oa_lines lines = {0};
    if (o->touched) oa_operand_lines(call, o, &lines);
    grouped->operands[i] = *o;
    grouped->starts[i] = (uintptr_t)o->address;
    grouped->ends[i] = (uintptr_t)o->address + (uintptr_t)oa_lines_span(lines);
  }
  if (!call->lists) grouped->call.operands = grouped->operands; /* these outlive the caller's function */
  *(group->first ? &group->last->next : &group->first) = grouped;
  group->last = grouped;
  return grouped;
}

oa_grouped *oa_group_close(void) {
  oa_grouped *first = oa_group_of_thread.first;
  oa_group_of_thread = (oa_group_of_calls){.depth = 0};
  if (oa_caller_of_thread) oa_caller_of_thread->grouped = false;
  return first;
}

int oa_group_check(const oa_call *call, const oa_reach *reaches, const oa_region_state *region) {
  if (call->library && call->library == oa_group_of_thread.library && region->serial > oa_group_of_thread.since &&
      pthread_equal(region->thread, pthread_self()))
    return oa_fail(OA_ERROR_ARGUMENT,
                   "%s: its arrays were lent after the group began, which issues the call at its end; begin the group "
                   "inside of their region",
                   call->function);
  for (const oa_grouped *g = oa_group_of_thread.first; g; g = g->next)
    for (int i = 0; i < call->count; i++)
      for (int k = 0; k < g->call.count; k++) {
        const oa_operand *o = &call->operands[i], *other = &g->operands[k];
        if (reaches[i].end <= g->starts[k] || g->ends[k] <= reaches[i].start || !oa_writes(o->access | other->access))
          continue;
        return oa_fail(OA_ERROR_ALIAS,
                       "%s: %s overlaps %s of %s, which this thread's group has not issued yet, and one of the two is "
                       "written; end the group first",
                       call->function, o->name, other->name, g->call.function);
      }
  return OA_OK;
}
