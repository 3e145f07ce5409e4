/*
 * node_files: the files under /sys/devices/system/node: ids with gaps, nodes without memory, without CPUs, more
 * nodes than supported, distances, missing and malformed files. And a system that refuses to bind memory: the
 * program goes on, and the statistics tell. Each case in a process of its own. Not with nodes: it shows the library
 * nodes of its own.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "page/arena.h"
#include "percpu/node.h"
#include "os/os.h"

static char root[64];

static void file(const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	FILE *out = fopen(path, "w");
	NEED(out && fputs(text, out) >= 0 && fclose(out) == 0);
}

static void node_dir(unsigned id, const char *cpus, const char *distances)
{
	char name[64], path[128];

	snprintf(path, sizeof(path), "%s/node%u", root, id);
	NEED(mkdir(path, 0755) == 0);
	snprintf(name, sizeof(name), "node%u/cpulist", id);
	file(name, cpus);
	snprintf(name, sizeof(name), "node%u/distance", id);
	if (distances)
		file(name, distances);
}

/* The real machine's nodes do not matter. */
static bool refuse_allowed(const char *call)
{
	return strcmp(call, "allowed nodes") == 0;
}

static void read_it(void)
{
	km_os_fault = refuse_allowed;
	km_node_start(0);
	km_os_fault = NULL;
	for (unsigned cpu = 0; cpu < KM_MAX_CPUS; cpu++)
		NEED(km_node_of_cpu(cpu) < km_node_count);
	for (unsigned n = 0; n < km_node_count; n++) {
		unsigned seen = 0;

		NEED(km_node_near(n, 0) == n);
		for (unsigned i = 0; i < km_node_count; i++)
			seen |= 1u << km_node_near(n, i);
		NEED(seen == (1u << km_node_count) - 1);
	}
}

static void nothing_there(void)
{
	read_it();
	NEED(km_node_count == 1 && !km_nodes.bind);
	NEED(km_node_of_id(0, true) == 0 && km_node_of_id(1, false) == -1);
	NEED(km_node_of_id(-1, false) == -1 && km_node_of_id(-5, true) == -1);
	NEED(km_node_of_id(1 << 20, false) == -1);
}

static void one_node(void)
{
	file("online", "3\n");
	read_it();
	NEED(km_node_count == 1 && !km_nodes.bind);
	NEED(km_node_of_id(3, true) == 0 && km_node_of_id(0, false) == -1);
}

/* Ids 0, 2, 5 and 9: 5 has no memory and is next to 9; 2 has no CPUs. */
static void gaps(void)
{
	file("online", "0,2,5,9\n");
	file("has_memory", "0,2,9\n");
	node_dir(0, "0-3,8\n", "10 40 20 30\n");
	node_dir(2, "\n", "40 10 30 20\n");
	node_dir(5, "4,5\n", "20 30 10 12\n");
	node_dir(9, "6-7\n", "30 20 12 10\n");
	read_it();
	NEED(km_node_count == 3 && km_nodes.bind);
	NEED(km_node_of_id(0, true) == 0 && km_node_of_id(2, true) == 1 && km_node_of_id(9, true) == 2);
	NEED(km_node_of_id(5, true) == -1 && km_node_of_id(5, false) == 2);
	NEED(km_node_of_id(1, false) == -1 && km_node_of_id(10, false) == -1);
	NEED(km_node_of_cpu(0) == 0 && km_node_of_cpu(3) == 0 && km_node_of_cpu(8) == 0);
	NEED(km_node_of_cpu(4) == 2 && km_node_of_cpu(5) == 2 && km_node_of_cpu(7) == 2);
	/* By distance: from 0 node 9 (30) is nearer than 2 (40). */
	NEED(km_node_near(0, 1) == 2 && km_node_near(0, 2) == 1);
	NEED(km_node_near(1, 1) == 2 && km_node_near(2, 1) == 1);
}

/* Twelve: pairs of neighbours are one. */
static void too_many(void)
{
	char cpus[16];

	file("online", "0-11\n");
	for (unsigned id = 0; id < 12; id++) {
		snprintf(cpus, sizeof(cpus), "%u\n", 100 + id);
		node_dir(id, cpus, NULL);
	}
	read_it();
	NEED(km_node_count == 6);
	for (unsigned id = 0; id < 12; id++) {
		NEED(km_node_of_id((int)id, true) == (int)id / 2);
		NEED(km_node_of_cpu(100 + id) == id / 2);
	}
	/* Equally far: in a ring. */
	NEED(km_node_near(4, 1) == 5 && km_node_near(4, 2) == 0);
}

static void nonsense(void)
{
	file("online", "0-1,hello,7-3,99999999999999999999,-\n");
	file("has_memory", "x\n");
	node_dir(0, "9999999,4095,3-\n", "");
	node_dir(1, "1-5000\n", "a b c\n");
	read_it();
	NEED(km_node_count == 2);
	NEED(km_node_of_cpu(2) == 1 && km_node_of_cpu(4095) == 1);
}

/* ------------------------------------------------------------------ binding, in a library started here */

static bool refuse_binding(const char *call)
{
	return refuse_allowed(call) || strcmp(call, "bind") == 0;
}

/* Runs before any constructor: for a library that starts in a constructor. */
static void before_start(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	for (; *environment; environment++)
		if (strncmp(*environment, "NODE_ROOT=", 10) == 0) {
			km_node_root = *environment + 10;
			km_os_fault = refuse_allowed;
		} else if (strcmp(*environment, "NODE_REFUSE=1") == 0) {
			km_os_fault = refuse_binding;
		}
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) =
	before_start;

#define MPOL_PREFERRED 1
#define MPOL_F_ADDR 2

/* The policy of the memory at p; -1: unknown to the system. */
static int policy_at(void *p)
{
	int mode;

	return syscall(SYS_get_mempolicy, &mode, NULL, 0ul, p, MPOL_F_ADDR) ? -1 : mode;
}

/* Two nodes are shown; the machine has node 0, and perhaps no other. */
static int started(bool refused)
{
	struct kmem_stats stats;
	void *object[2];

	NEED(km_node_count == 2 && km_nodes.bind);
	for (int node = 0; node < 2; node++) {
		object[node] = kmalloc_node(5000, GFP_KERNEL | __GFP_THISNODE, node);
		NEED(object[node] && km_page_node(object[node]) == (unsigned)node);
		memset(object[node], 1, 5000);
	}
	kmem_get_stats(&stats);
	NEED(stats.nodes == 2);
	if (refused) {
		NEED(stats.bind_failures == 2 && policy_at(object[0]) <= 0);
	} else if (stats.bind_failures < 2) {
		NEED(policy_at(object[0]) == MPOL_PREFERRED);
	} else {
		printf("     the system lets nothing be bound: only that was looked at\n");
	}
	kfree(object[0]);
	kfree(object[1]);
	return kmem_check_all() != 0;
}

static void run_started(const char *refuse)
{
	file("online", "0-1\n");
	node_dir(0, "0\n", "10 20\n");
	node_dir(1, "1-99\n", "20 10\n");
	setenv("NODE_ROOT", root, 1);
	setenv("NODE_REFUSE", refuse, 1);
	fflush(stdout);
	execl("/proc/self/exe", "node", refuse, (char *)NULL);
	_exit(127);
}

static void bound(void)
{
	run_started("0");
}

static void refused(void)
{
	run_started("1");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "nothing there", nothing_there }, { "one node", one_node }, { "gaps", gaps },
		{ "too many", too_many }, { "nonsense", nonsense }, { "bound", bound },
		{ "refused", refused },
	};
	int failed = 0;

	if (argc > 1)
		return started(argv[1][0] == '1');
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char command[128];
		int status;

		strcpy(root, "/tmp/kmem-node-XXXXXX");
		NEED(mkdtemp(root));
		fflush(stdout);
		pid_t child = fork();
		if (!child) {
			km_node_root = root;
			cases[i].run();
			_exit(0);
		}
		NEED(waitpid(child, &status, 0) == child);
		printf("%s %s\n", status ? "FAIL" : "ok  ", cases[i].name);
		failed += status != 0;
		snprintf(command, sizeof(command), "rm -rf %s", root);
		NEED(system(command) == 0);
	}
	return failed != 0;
}
