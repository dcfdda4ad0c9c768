#include "base/nodes.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PREFERRED = 1, NODES = 8 * sizeof((oa_node_policy *)0)->nodes, WORD = 8 * sizeof(unsigned long) };

int oa_node_of_pci(const char *name) {
  char path[96];
  int length = snprintf(path, sizeof path, "/sys/bus/pci/devices/"), node = -1;
  for (; *name && length < 64; name++) {
    if (!isxdigit((unsigned char)*name) && *name != ':' && *name != '.') return -1;
    path[length++] = (char)tolower((unsigned char)*name);
  }
  strcpy(path + length, "/numa_node");
  FILE *file = fopen(path, "re");
  if (!file) return -1;
  if (fscanf(file, "%d", &node) != 1) node = -1;
  fclose(file);
  return node < 0 || node >= NODES ? -1 : node;
}

void oa_node_prefer(int node, oa_node_policy *before) {
  *before = (oa_node_policy){.changed = false};
  if (node < 0 || node >= NODES) return;
  unsigned long mask[sizeof before->nodes / sizeof before->nodes[0]] = {0};
  mask[node / WORD] = 1UL << (node % WORD);
  if (syscall(SYS_get_mempolicy, &before->mode, before->nodes, (unsigned long)NODES, NULL, 0UL)) return;
  before->changed = syscall(SYS_set_mempolicy, PREFERRED, mask, (unsigned long)NODES) == 0;
}

void oa_node_restore(const oa_node_policy *before) {
  if (before->changed) syscall(SYS_set_mempolicy, before->mode, before->nodes, (unsigned long)NODES);
}
