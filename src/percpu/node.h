/*
 * node.h: the machine's memory nodes: how many there are, which one a CPU is on, which is next to which.
 *
 * A node is a number from 0 to km_node_count - 1, whatever the system calls it: its ids may have gaps, and a node
 * without memory is none of ours (its CPUs belong to the nearest that has some). Where the system has more than
 * KM_MAX_NODES, neighbours count as one. Everything is looked up once, at the start, and never changes; where there is
 * one node, nobody asks for the CPU. All the engines need: km_node_count, km_node_here(), km_node_near().
 */
#ifndef KM_OS_NODE_H
#define KM_OS_NODE_H

#include "base/cc.h"
#include "os/die.h"
#include "pcpu.h"

#define KM_MAX_NODES	8u
#define KM_MAX_NODE_IDS	1024u	/* of the system's */

extern km_hidden unsigned km_node_count;
extern km_hidden int km_only_node;	/* the system's number of the only node; -1: there are more, or not yet known */
/* Where the system shows its nodes; tests show others. */
extern km_hidden const char *km_node_root;

struct km_nodes {
	uint8_t of_cpu[KM_MAX_CPUS];
	uint8_t near[KM_MAX_NODES][KM_MAX_NODES];	/* [n]: n first, then the others by distance */
	bool bind;		/* memory is bound to its node: there are several, and they are real */
};
extern km_hidden struct km_nodes km_nodes;

/*
 * Find out, before any memory is got. pretended: that many nodes, whose CPUs are dealt out in turn, and nothing is
 * bound (for tests); 0: those that the system shows.
 */
void km_node_start(unsigned pretended);

/*
 * Which node serves requests for the system's node `id`; -1: there is no such. A node without memory is served by the
 * nearest, unless `only` its own will do.
 */
int km_node_of_id(int id, bool only);

km_inline unsigned km_node_of_cpu(unsigned cpu)
{
	return km_nodes.of_cpu[cpu < KM_MAX_CPUS ? cpu : 0];
}

/* The node of the CPU we are on; stale at once, and that does no harm. */
km_inline unsigned km_node_here(void)
{
	return km_likely(km_node_count == 1) ? 0 : km_node_of_cpu(km_cpu_number());
}

/* The i-th nearest node to n, itself being the 0th; i < km_node_count. */
km_inline unsigned km_node_near(unsigned n, unsigned i)
{
	km_debug(i < km_node_count && n < km_node_count, "a node is near to one that there is");
	return km_nodes.near[n][i];
}

/*
 * Let fresh memory, which nobody has touched, come from the node: 0, or -errno where the system refuses. A preference:
 * when the node is full the system takes another, where a strict binding would end the process.
 */
int km_node_bind(void *p, size_t bytes, unsigned node);
/* Nor any more. */
void km_node_unbind(void *p, size_t bytes);

#endif
