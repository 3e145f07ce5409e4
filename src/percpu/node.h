/*
 * node.h: memory nodes of the machine: their number, the node of each CPU, and the distances between nodes.
 *
 * A node is a number from 0 to km_node_count - 1, independent of the system's node ids. The system's ids may have gaps.
 * A node without memory has no number, and its CPUs belong to the nearest node with memory. If the system has more than
 * KM_MAX_NODES nodes, neighbours count as one node. All tables are filled once, at the start, and never change. With
 * one node, no code reads the CPU number. Engines need only km_node_count, km_node_here() and km_node_near().
 */
#ifndef KM_OS_NODE_H
#define KM_OS_NODE_H

#include "base/cc.h"
#include "os/die.h"
#include "pcpu.h"

#define KM_MAX_NODES	8u
#define KM_MAX_NODE_IDS	1024u	/* maximum number of the system's node ids */

extern km_hidden unsigned km_node_count;
extern km_hidden int km_only_node;	/* the system's id of the only node; -1: several nodes, or not yet known */
/* Directory of the system's nodes; tests set another directory. */
extern km_hidden const char *km_node_root;

struct km_nodes {
	uint8_t of_cpu[KM_MAX_CPUS];
	uint8_t near[KM_MAX_NODES][KM_MAX_NODES];	/* [n]: n first, then the other nodes by distance */
	bool bind;		/* memory must be bound to its node: there are several real nodes */
};
extern km_hidden struct km_nodes km_nodes;

/* Fill the tables. pretended: a number of pretended nodes for tests, with the CPUs dealt out in turn and without
 * binding; 0: the nodes of the system. Context: at the start, before any allocation. */
void km_node_start(unsigned pretended);

/* Returns: the node that serves requests for the system's node `id`; -1: there is no such id. A node without memory is
 * served by the nearest node; with `only`, -1. */
int km_node_of_id(int id, bool only);

km_inline unsigned km_node_of_cpu(unsigned cpu)
{
	return km_nodes.of_cpu[cpu < KM_MAX_CPUS ? cpu : 0];
}

/* Returns: the node of this thread's CPU. The node may be stale at once, without harm. */
km_inline unsigned km_node_here(void)
{
	return km_likely(km_node_count == 1) ? 0 : km_node_of_cpu(km_cpu_number());
}

/* Returns: the i-th nearest node to n; the 0th is n itself. Requires: i < km_node_count. */
km_inline unsigned km_node_near(unsigned n, unsigned i)
{
	km_debug(i < km_node_count && n < km_node_count, "a node has an existing nearest node");
	return km_nodes.near[n][i];
}

/* Make fresh, untouched memory come from the node. Returns: 0, or -errno if the system refuses. The binding is a
 * preference: if the node is full, the system takes another node. A strict binding would end the process. */
int km_node_bind(void *p, size_t bytes, unsigned node);
/* Removes the preference set by km_node_bind. */
void km_node_unbind(void *p, size_t bytes);

#endif
