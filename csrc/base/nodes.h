/* The nodes of the machine's memory (NUMA): which one is near a device, and memory from there. */
#ifndef OA_NODES_H
#define OA_NODES_H

#include <stdbool.h>

/* Returns the node that the system says is near the PCI device of that name ("0000:1B:00.0"), or -1. */
int oa_node_of_pci(const char *name);

/* How a thread takes new memory. */
typedef struct oa_node_policy {
  bool changed;
  int mode;
  unsigned long nodes[16];
} oa_node_policy;

/* Has this thread take new memory from that node as long as it has some; *before: its policy so far. Does nothing for
 * -1, or where the system refuses. */
void oa_node_prefer(int node, oa_node_policy *before);
/* Gives the thread its policy back. */
void oa_node_restore(const oa_node_policy *before);

#endif
