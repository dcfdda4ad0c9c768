/* The NUMA nodes of the machine: which node is near a device, and memory from that node. */
#ifndef OA_NODES_H
#define OA_NODES_H

#include <stdbool.h>

/* Returns the node that the system reports for the PCI device of that name ("0000:1B:00.0"), or -1. */
int oa_node_of_pci(const char *name);

/* A thread's policy for new memory: the nodes on which the kernel allocates it. */
typedef struct oa_node_policy {
  bool changed;
  int mode;
  unsigned long nodes[16];
} oa_node_policy;

/* Makes the kernel allocate this thread's new memory on that node while the node has free memory. Sets *before to the
 * thread's policy so far. Does nothing if `node` is -1, or if the system refuses. */
void oa_node_prefer(int node, oa_node_policy *before);
/* Restores the thread's policy. */
void oa_node_restore(const oa_node_policy *before);

#endif
