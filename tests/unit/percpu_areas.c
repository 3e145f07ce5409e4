/*
 * percpu_areas.c: per-CPU areas: on a CPU beyond the system's reported CPUs every operation of every engine
 * misses, and so on a CPU whose area could not be allocated. An area costs no memory before the first use of its
 * CPU, and is drained afterwards. Without room for all areas CPUs share, and without room for any there are no
 * per-CPU sheaves. Disciplines: all
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/cpus.h"
#include "kit/check.h"
#include "kit/clock.h"
#include "kit/inside.h"
#include "os/os.h"
#include "slab/engine.h"
#include "percpu/pcpu.h"

static int first = -1, other = -1;	/* CPUs the process may use */

/*
 * ------------------------------------------------------------------ the system as the library sees it at the
 * start
 */

unsigned __real_km_os_possible_cpus(unsigned *masks);
unsigned __wrap_km_os_possible_cpus(unsigned *masks);
unsigned __wrap_km_os_possible_cpus(unsigned *masks)
{
	const char *told = getenv("AREAS_TOLD");

	if (!told)
		return __real_km_os_possible_cpus(masks);
	*masks = 64;
	return (unsigned)atoi(told);
}

static bool refuse_areas(const char *call)
{
	return strcmp(call, "commit_readonly") == 0;
}

/* libc's own environment is not there yet. */
static void before_start(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	for (; *environment; environment++)
		if (strncmp(*environment, "AREAS_NONE=", 11) == 0)
			km_os_fault = refuse_areas;
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_start;

/* ------------------------------------------------------------------ work */

static void move_to(int cpu)
{
	NEED(go_to_cpu(cpu));
}

/* Moves now and then, so that work begun on one CPU goes on on another. */
static void use(struct kmem_cache *cache)
{
	enum { MANY = 500 };
	void *objects[MANY];

	for (int round = 0; round < 8; round++) {
		if (other >= 0)
			move_to(round & 1 ? other : first);
		for (int i = 0; i < MANY; i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		for (int i = 0; i < MANY; i++)
			i & 1 ? kmem_cache_free(cache, objects[i]) : kfree(objects[i]);
		if (other >= 0)
			move_to(round & 2 ? other : first);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, objects));
		kmem_cache_free_bulk(cache, MANY, objects);
	}
}

static void use_all(void)
{
	static const char *const engines[] = { "sheaf", "slub", "slab" };
	struct mem_cgroup *group = mem_cgroup_create(NULL, "tenant", 0);

	NEED(group);
	for (unsigned i = 0; i < 6; i++) {
		struct kmem_cache_args args = { .engine = engines[i / 2] };
		struct kmem_cache *cache = kmem_cache_create("areas", 96, &args, i & 1 ? SLAB_ACCOUNT : 0);

		NEED(cache);
		struct mem_cgroup *old = i & 1 ? set_active_memcg(group) : NULL;
		use(cache);
		if (i & 1)
			set_active_memcg(old);
		NEED(kmem_cache_shrink(cache) == 0);
		kmem_cache_destroy(cache);
	}
	mem_cgroup_put(group);
	for (int size = 8; size < 5000; size += size / 4) {
		void *object = kmalloc(size, GFP_KERNEL);

		NEED(object);
		kfree(object);
	}
	NEED(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ cases */

static bool is_rseq(void)
{
	return strcmp(kmem_percpu_discipline(), "rseq") == 0;
}

static void beyond(void)
{
	NEED(km_percpu.cpus == 1);
	use_all();
	NEED(!km_cpu_is_online((unsigned)other));
}

/* A process restored on a larger machine may run on any CPU: there the area is zeros, and requests miss. */
static void needs_zeros_beyond(void)
{
	for (unsigned cpu = km_percpu.cpus; cpu < KM_MAX_CPUS; cpu += cpu / 8 + 1)
		for (size_t at = 0; at < (size_t)1 << KMEM_AREA_SHIFT; at += 65536)
			NEED(*(volatile uint64_t *)(km_area(cpu) + at) == 0);
	NEED(*(volatile uint64_t *)(km_area(KM_MAX_CPUS) - 8) == 0);
}

static unsigned long page_tables_kib(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[256];

	NEED(file);
	while (!kib && fgets(line, sizeof(line), file))
		sscanf(line, "VmPTE: %lu", &kib);
	fclose(file);
	return kib;
}

static bool can_be_read(const char *p)
{
	int ends[2];

	NEED(pipe(ends) == 0);
	bool can = write(ends[1], p, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return can;
}

/* Another thread forks while threads lock memory: in the child no thread is left to show the hidden memory. */
static void needs_zeros_in_a_child(void)
{
	int status;

	INSIDE(km_percpu_show_beyond(false));
	INSIDE(km_percpu_show_beyond(false));
	NEED(!can_be_read(km_area(1)) && !can_be_read(km_area(KM_MAX_CPUS - 1)));
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		needs_zeros_beyond();
		INSIDE(km_percpu_show_beyond(true));
		needs_zeros_beyond();
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	INSIDE(km_percpu_show_beyond(true));
	NEED(!can_be_read(km_area(1)));
	INSIDE(km_percpu_show_beyond(true));
}

/*
 * A program that locks all memory does not pay for missing CPUs, nor does memcheck, which records readable memory.
 */
static void larger(void)
{
	if (!is_rseq()) {
		NEED(can_be_read(km_area(0)) && !can_be_read(km_area(1)));
		NEED(mlockall(MCL_CURRENT) || munlockall() == 0);
		NEED(!can_be_read(km_area(1)));
		return;
	}
	unsigned long before = page_tables_kib();
	if (mlockall(MCL_CURRENT) == 0) {
		NEED(page_tables_kib() < before + 1024);
		NEED(munlockall() == 0);
	}
	needs_zeros_in_a_child();
	needs_zeros_beyond();
	use_all();
}

/* Mappings and written pages between two addresses. */
static void look_at(const char *from, const char *to, unsigned *mappings, unsigned long *dirty_kib)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long start, end, kib;
	bool inside = false;
	char line[512];

	NEED(file);
	*mappings = 0;
	*dirty_kib = 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
			inside = start < (unsigned long)to && end > (unsigned long)from;
			*mappings += inside;
		} else if (inside && sscanf(line, "Private_Dirty: %lu", &kib) == 1) {
			*dirty_kib += kib;
		}
	}
	fclose(file);
}

static void many(void)
{
	unsigned long dirty_kib;
	unsigned mappings;

	NEED(km_percpu.cpus == 1024);
	other = -1;
	use_all();
	kmem_shrink_all();
	look_at(km_area(0) - 1, km_area(1024), &mappings, &dirty_kib);
	printf("%s, 1024 CPUs: %u mappings, %lu KiB written\n", kmem_percpu_discipline(), mappings, dirty_kib);
	/* Soft disciplines have all areas from the start. */
	NEED(!is_rseq() || (mappings <= 6 && dirty_kib <= 256));
}

static bool refuse_commit(const char *call)
{
	return strcmp(call, "commit") == 0;
}

static void comes_online(void)
{
	void *objects[64];

	if (!is_rseq())
		return;
	struct kmem_cache *cache = kmem_cache_create("alive", 64, 8, 0, NULL);
	NEED(cache && !km_cpu_is_online((unsigned)other));
	move_to(other);
	/* Not without leave to make calls, and not where the system has no memory: the engine serves. */
	NEED((objects[0] = kmem_cache_alloc(cache, GFP_NOWAIT)));
	NEED(!km_cpu_is_online((unsigned)other));
	km_os_fault = refuse_commit;
	kmem_cache_free(cache, objects[0]);
	NEED(!km_cpu_is_online((unsigned)other));
	km_os_fault = NULL;
	for (int i = 0; i < 64; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	NEED(km_cpu_is_online((unsigned)other));
	for (int i = 0; i < 64; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(km_pcs_count_cpu(&cache->fast.pcs, (unsigned)other) > 0);
	move_to(first);
	NEED(kmem_cache_shrink(cache) == 0);
	NEED(km_pcs_count_cpu(&cache->fast.pcs, (unsigned)other) == 0);
	use_all();
}

static void shared(void)
{
	NEED(strcmp(kmem_percpu_discipline(), "lock") == 0 || strcmp(kmem_percpu_discipline(), "cmpxchg") == 0);
	NEED(km_percpu.cpus >= 1 && km_percpu.cpus < 1024);
	use_all();
}

/* Thousands of caches, so that their ids lead far beyond any existing word. */
static void none(void)
{
	enum { CACHES = 3000 };
	static struct kmem_cache *caches[CACHES];

	NEED(strcmp(kmem_percpu_discipline(), "none") == 0);
	use_all();
	for (int i = 0; i < CACHES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "none-%d", i);
		NEED((caches[i] = kmem_cache_create(name, 64, 8, 0, NULL)));
		kfree(kmem_cache_alloc(caches[i], GFP_KERNEL));
	}
	for (int i = 0; i < CACHES; i++)
		kmem_cache_destroy(caches[i]);
	NEED(kmem_check_all() == 0);
}

static const struct test_case {
	const char *name;
	void (*run)(void);
	const char *told;
	bool two;		/* wants a second CPU */
} cases[] = {
	{ "beyond", beyond, "1", true },
	{ "larger", larger, "1", false },
	{ "many", many, "1024", false },
	{ "comes_alive", comes_online, NULL, true },
	{ "shared", shared, "1024", false },
	{ "none", none, NULL, false },
};

static void in_child(const struct test_case *test, const char *program)
{
	struct rlimit limit = { (rlim_t)2 << 30, (rlim_t)2 << 30 };

	if (test->told)
		setenv("AREAS_TOLD", test->told, 1);
	if (test->run == none)
		setenv("AREAS_NONE", "1", 1);
	if (test->run == shared)
		setrlimit(RLIMIT_AS, &limit);
	move_to(first);
	execl(program, program, test->name, NULL);
	_exit(126);
}

int main(int argc, char **argv)
{
	int status, failed = 0;

	if (argc > 1) {
		first = atoi(getenv("AREAS_FIRST"));
		other = atoi(getenv("AREAS_OTHER"));
	} else {
		char number[16];

		first = cpu_at(0);
		other = cpu_at(1);
		snprintf(number, sizeof(number), "%d", first);
		setenv("AREAS_FIRST", number, 1);
		snprintf(number, sizeof(number), "%d", other);
		setenv("AREAS_OTHER", number, 1);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
		if (argc > 1 || (cases[i].two && other < 0))
			continue;
		fflush(stdout);
		if (!fork())
			in_child(&cases[i], argv[0]);
		NEED(wait(&status) > 0);
		printf("%s: %s (%d)\n", cases[i].name, status ? "FAILED" : "passed", status);
		failed += status != 0;
	}
	return failed != 0;
}
