/*
 * node.c: reads the machine's memory nodes from sysfs, or pretends nodes. Invariant: the entry of every CPU, of
 * every id, and every entry of `near` is a node below km_node_count, with any content of the files.
 */
#include "node.h"

#include "base/bits.h"
#include "base/text.h"
#include "os/die.h"
#include "os/os.h"

#define LOCAL_DISTANCE	10u	/* distance of a node from itself in the firmware's tables */
#define REMOTE_DISTANCE	20u
#define MEMORYLESS	0x80u	/* flag in of_id: the id has no memory, and the nearest node serves it */
#define ID_WORDS	(KM_MAX_NODE_IDS / 64)

typedef uint64_t id_set[ID_WORDS];

unsigned km_node_count = 1;
int km_only_node = -1;
const char *km_node_root = "/sys/devices/system/node";
struct km_nodes km_nodes km_sparse;

static struct {
	uint8_t of_id[KM_MAX_NODE_IDS];	/* node of each system id, plus 1; 0: no such id */
	id_set ids[KM_MAX_NODES];	/* system ids of each node */
	char text[4096];		/* text of a file; a file of sysfs has a page at most */
} topology km_sparse;

static bool has(const uint64_t *set, unsigned bit)
{
	return set[bit / 64] >> bit % 64 & 1;
}

static void add(unsigned bit, void *set)
{
	((uint64_t *)set)[bit / 64] |= (uint64_t)1 << bit % 64;
}

static unsigned count_ids(const uint64_t *set)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ID_WORDS; i++)
		count += (unsigned)__builtin_popcountll(set[i]);
	return count;
}

/* ------------------------------------------------------------------ files */

static const char *read_file(const char *name)
{
	char path[256];

	km_format(path, sizeof(path), "%s/%s", km_node_root, name);
	return km_os_read(path, topology.text, sizeof(topology.text)) > 0 ? topology.text : NULL;
}

static const char *read_node_file(unsigned id, const char *name)
{
	char path[32];

	km_format(path, sizeof(path), "node%u/%s", id, name);
	return read_file(path);
}

/* Returns: the next number of the text, or -1 at the end. */
static long next_number(const char **text)
{
	uint64_t number;

	while (**text && (**text < '0' || **text > '9'))
		++*text;
	return km_text_number(text, INT64_MAX, &number) ? (long)number : -1;
}

/* Parse a list such as "0-3,8", and call `call` for each number below `limit`. */
static void for_each_in_list(const char *text, long limit, void (*call)(unsigned number, void *arg), void *arg)
{
	long first, last;

	while (text && (first = next_number(&text)) >= 0) {
		last = *text == '-' ? next_number(&text) : first;
		for (; first <= last && first < limit; first++)
			call((unsigned)first, arg);
	}
}

static void put_cpu_on(unsigned cpu, void *node)
{
	km_nodes.of_cpu[cpu] = *(const uint8_t *)node;
}

/* ------------------------------------------------------------------ distances */

/* Read the distances from id `from` to every online id, in the order of the file. Without a file all are equally
 * far. */
static void read_distances(const uint64_t *online, unsigned from, uint16_t *distances)
{
	const char *text = read_node_file(from, "distance");

	for (unsigned id = 0; id < KM_MAX_NODE_IDS; id++) {
		long distance;

		if (!has(online, id))
			continue;
		distance = text ? next_number(&text) : -1;
		distances[id] = (uint16_t)(distance >= 0 ? distance : id == from ? LOCAL_DISTANCE : REMOTE_DISTANCE);
	}
}

static uint16_t distance_to_node(const uint16_t *distances, unsigned node)
{
	uint16_t least = UINT16_MAX;

	for (unsigned id = 0; id < KM_MAX_NODE_IDS; id++)
		if (has(topology.ids[node], id))
			least = km_min(least, distances[id]);
	return least;
}

/* Order the nodes by distance from n. Equally far nodes form a ring that begins behind n, to spread the load from node
 * 0. */
static void order_near(unsigned n, const uint16_t *distances)
{
	uint8_t *near = km_nodes.near[n];

	for (unsigned i = 0; i < km_node_count; i++)
		near[i] = (uint8_t)((n + i) % km_node_count);
	km_debug(near[0] == n, "the nearest node of a node is the node itself");
	for (unsigned i = 2; distances && i < km_node_count; i++)
		for (unsigned j = i; j > 1 && distance_to_node(distances, near[j]) <
						      distance_to_node(distances, near[j - 1]); j--) {
			const uint8_t farther = near[j - 1];

			near[j - 1] = near[j];
			near[j] = farther;
		}
}

/* ------------------------------------------------------------------ tables */

/* Number the ids with memory as nodes, in order. With too many ids, several ids share a node. */
static void number_nodes(const uint64_t *memory)
{
	unsigned found = count_ids(memory), each = (found + KM_MAX_NODES - 1) / KM_MAX_NODES, k = 0;

	for (unsigned id = 0; id < KM_MAX_NODE_IDS; id++) {
		if (!has(memory, id))
			continue;
		topology.of_id[id] = (uint8_t)(1 + k / each);
		add(id, topology.ids[k++ / each]);
	}
	km_node_count = (found + each - 1) / each;
	km_debug(km_node_count && km_node_count <= KM_MAX_NODES, "the tables have room for all nodes");
}

/* Find the node for the CPUs of an id, and order the nodes near to the id. */
static void place_id(const uint64_t *online, unsigned id)
{
	static uint16_t distances[KM_MAX_NODE_IDS];
	uint8_t node = 0;

	read_distances(online, id, distances);
	if (topology.of_id[id]) {
		node = (uint8_t)(topology.of_id[id] - 1);
		/* The distances of a node are those of its first id. */
		if (!km_nodes.near[node][0] && !km_nodes.near[node][1])
			order_near(node, distances);
	} else {
		for (unsigned i = 1; i < km_node_count; i++)
			if (distance_to_node(distances, i) < distance_to_node(distances, node))
				node = (uint8_t)i;
		topology.of_id[id] = (uint8_t)(1 + node) | MEMORYLESS;
	}
	for_each_in_list(read_node_file(id, "cpulist"), KM_MAX_CPUS, put_cpu_on, &node);
}

/* Intersects `set` with `with`. If the result would be empty, `set` becomes `with`. */
static void intersect(uint64_t *set, const uint64_t *with)
{
	for (unsigned i = 0; i < ID_WORDS; i++)
		set[i] &= with[i];
	if (!count_ids(set))
		__builtin_memcpy(set, with, sizeof(id_set));
}

static void read_nodes(void)
{
	id_set online = { 0 }, memory = { 0 }, allowed = { 0 };

	for_each_in_list(read_file("online"), KM_MAX_NODE_IDS, add, online);
	if (!count_ids(online))
		add(0, online);		/* without /sys: one node with all CPUs */
	if (count_ids(online) == 1) {
		number_nodes(online);
		return;
	}
	for_each_in_list(read_file("has_memory"), KM_MAX_NODE_IDS, add, memory);
	/* A node forbidden by the process's cpuset has no memory for the library. */
	if (km_os_allowed_nodes(allowed, KM_MAX_NODE_IDS) == 0)
		intersect(memory, allowed);
	intersect(memory, online);
	number_nodes(memory);
	for (unsigned id = 0; id < KM_MAX_NODE_IDS; id++)
		if (has(online, id))
			place_id(online, id);
	/* A memory policy that the user chose for the process (numactl) has precedence. */
	km_nodes.bind = km_node_count > 1 && !km_os_has_memory_policy();
}

static void pretend(unsigned count)
{
	km_node_count = km_min(count, KM_MAX_NODES);
	for (unsigned cpu = 0; cpu < KM_MAX_CPUS; cpu++)
		km_nodes.of_cpu[cpu] = (uint8_t)(cpu % km_node_count);
	for (unsigned node = 0; node < km_node_count; node++) {
		topology.of_id[node] = (uint8_t)(1 + node);
		order_near(node, NULL);
	}
}

static int only_node(void)
{
	for (unsigned id = 0; km_node_count == 1 && id < KM_MAX_NODE_IDS; id++)
		if (topology.of_id[id] == 1)
			return (int)id;
	return -1;
}

/* Returns: true if all tables name existing nodes. For an assertion. */
static km_unused bool nodes_are_right(void)
{
	bool right = true;

	for (unsigned cpu = 0; cpu < KM_MAX_CPUS; cpu++)
		right &= km_nodes.of_cpu[cpu] < km_node_count;
	for (unsigned node = 0; node < km_node_count; node++)
		for (unsigned i = 0; i < km_node_count; i++)
			right &= km_nodes.near[node][i] < km_node_count;
	for (unsigned id = 0; id < KM_MAX_NODE_IDS; id++)
		right &= !topology.of_id[id] || (topology.of_id[id] & ~MEMORYLESS) <= km_node_count;
	return right;
}

void km_node_start(unsigned pretended)
{
	static bool again;

	/* Clear only on a second call (tests): at the first call the tables are zeros, and writing would make shared
	 * zero pages private. */
	if (again) {
		__builtin_memset(&km_nodes, 0, sizeof(km_nodes));
		__builtin_memset(&topology, 0, sizeof(topology));
	}
	again = true;
	if (pretended)
		pretend(pretended);
	else
		read_nodes();
	km_only_node = only_node();
	km_debug(nodes_are_right(), "each entry is an existing node");
}

int km_node_of_id(int id, bool only)
{
	unsigned entry = id >= 0 && id < (int)KM_MAX_NODE_IDS ? topology.of_id[id] : 0;

	if (!entry || (only && entry & MEMORYLESS))
		return -1;
	return (int)(entry & ~MEMORYLESS) - 1;
}

int km_node_bind(void *p, size_t bytes, unsigned node)
{
	km_debug(node < km_node_count, "memory is bound to an existing node");
	return km_os_prefer_nodes(p, bytes, topology.ids[node], KM_MAX_NODE_IDS);
}

void km_node_unbind(void *p, size_t bytes)
{
	km_os_prefer_nodes(p, bytes, NULL, 0);
}
