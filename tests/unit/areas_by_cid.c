/*
 * areas_by_cid.c: per-CPU areas by concurrency id. The library uses the id only if the kernel is proven to write the
 * id. With a kernel that does not report the id, does not write the id, or refuses to register the thread again, the
 * areas are by CPU, with a line if cid was requested by name. An unregistered thread misses, although the id in its
 * memory is a number like any other. And few threads on many CPUs, simulated by the test, use few areas.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <kmem/inline.h>
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/clock.h"
#include "os/os.h"
#include "alloc/fast_path.h"

/* The kernel's layout. */
struct area {
	uint32_t cpu_id_start, cpu_id;
	uint64_t rseq_cs;
	uint32_t flags, node_id, mm_cid;
};

static struct area *area_of_thread(void)
{
	return (struct area *)((char *)__builtin_thread_pointer() + km_thread_rseq);
}

/* ------------------------------------------------------------------ a simulated kernel */

static bool kernel_is(const char *what)
{
	const char *kernel = getenv("BY_CID_KERNEL");

	return kernel && strcmp(kernel, what) == 0;
}

size_t __real_km_os_rseq_features(void);
size_t __wrap_km_os_rseq_features(void);
size_t __wrap_km_os_rseq_features(void)
{
	return kernel_is("old") ? 20 : __real_km_os_rseq_features();
}

/*
 * True after the thread's area was unregistered. A registration before the start, where libc does not
 * register, stays.
 */
static bool taken_back;

int __real_km_os_rseq_register(void *area, size_t bytes, uint32_t signature);
int __wrap_km_os_rseq_register(void *area, size_t bytes, uint32_t signature);
int __wrap_km_os_rseq_register(void *area, size_t bytes, uint32_t signature)
{
	struct area *thread = area;

	if (taken_back && kernel_is("refuses"))
		return -EPERM;
	if (!taken_back || !kernel_is("silent"))
		return __real_km_os_rseq_register(area, bytes, signature);
	/* This kernel writes the CPU, and no bytes behind it. */
	thread->cpu_id_start = thread->cpu_id = km_os_getcpu();
	return 0;
}

int __real_km_os_rseq_unregister(void *area, size_t bytes, uint32_t signature);
int __wrap_km_os_rseq_unregister(void *area, size_t bytes, uint32_t signature);
int __wrap_km_os_rseq_unregister(void *area, size_t bytes, uint32_t signature)
{
	taken_back = true;
	return kernel_is("keeps") ? -EINVAL : __real_km_os_rseq_unregister(area, bytes, signature);
}

#define CPUS 192u

unsigned __real_km_os_possible_cpus(unsigned *masks);
unsigned __wrap_km_os_possible_cpus(unsigned *masks);
unsigned __wrap_km_os_possible_cpus(unsigned *masks)
{
	unsigned cpus = __real_km_os_possible_cpus(masks);

	if (cpus >= CPUS)
		return cpus;
	*masks = 1024;
	return CPUS;
}

/* ------------------------------------------------------------------ cases */

static void use(struct kmem_cache *cache)
{
	enum { MANY = 300 };
	void *objects[MANY];

	for (int i = 0; i < MANY; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (int i = 0; i < MANY; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, objects));
	kmem_cache_free_bulk(cache, MANY, objects);
	/* A program's own hits go by CPU. */
	for (int i = 0; i < MANY; i++)
		NEED((objects[i] = kmem_cache_alloc_inline(cache, GFP_KERNEL)));
	for (int i = 0; i < MANY; i++)
		kmem_cache_free_inline(cache, objects[i]);
}

static void use_all(void)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	static unsigned used;
	char name[32];

	for (int size = 8; size < 5000; size += size / 4)
		kfree(kmalloc(size, GFP_KERNEL));
	for (unsigned i = 0; i < 4; i++) {
		struct kmem_cache_args args = { .engine = engines[i] };

		snprintf(name, sizeof(name), "uses-%u", __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED));
		struct kmem_cache *cache = kmem_cache_create(name, 96, &args, 0);

		NEED(cache);
		use(cache);
		kmem_cache_destroy(cache);
	}
}

static void by_cpu(void)
{
	NEED(km_percpu.index == KM_INDEX_CPU);
	use_all();
}

static void *in_thread(void *unused)
{
	for (int i = 0; i < 20; i++)
		use_all();
	return unused;
}

static void by_cid(void)
{
	pthread_t threads[6];

	NEED(km_percpu.index == KM_INDEX_CID);
	for (int i = 0; i < 6; i++)
		NEED(pthread_create(&threads[i], NULL, in_thread, NULL) == 0);
	for (int i = 0; i < 6; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	use_all();
}

static size_t ready(struct kmem_cache *cache)
{
	size_t count = 0;

	km_for_each_cpu(cpu)
		count += km_pcs_count_cpu(&cache->fast.pcs, cpu);
	return count;
}

static void leave_kernel(void)
{
	struct area *area = area_of_thread();

	NEED(__real_km_os_rseq_unregister(area, 32, KMEM_RSEQ_SIGNATURE) == 0 ||
	     __real_km_os_rseq_unregister(area, km_os_rseq_bytes(), KMEM_RSEQ_SIGNATURE) == 0);
	NEED((int32_t)area->cpu_id < 0);
	/* A library that registers threads itself does not register again. */
	area->cpu_id = (uint32_t)-2;
}

static void unregistered(void)
{
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_cache *cache = kmem_cache_create("by cid", 96, &args, 0);

	NEED(cache && km_percpu.index == KM_INDEX_CID);
	use(cache);
	size_t before = ready(cache);
	leave_kernel();
	/* Another thread may have this one. */
	area_of_thread()->mm_cid = km_percpu.home;
	for (int i = 0; i < 100; i++) {
		void *object = kmem_cache_alloc(cache, GFP_KERNEL);

		NEED(object && ready(cache) == before);
		kmem_cache_free(cache, object);
		NEED(ready(cache) == before);
	}
	NEED(before);
	use_all();
}

/* Some threads in turn, each a while on some CPU. The kernel does not know the thread: the test writes the area. */
static void wander(struct kmem_cache *cache, unsigned threads)
{
	struct area *area = area_of_thread();
	enum { EACH = 8 };
	void *objects[EACH];

	for (unsigned step = 0; step < 4 * CPUS; step++) {
		area->cpu_id_start = area->cpu_id = step * 7 % CPUS;
		area->mm_cid = step % threads;
		for (int i = 0; i < EACH; i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		for (int i = 0; i < EACH; i++)
			kmem_cache_free(cache, objects[i]);
	}
}

static void many_cpus(void)
{
	enum { THREADS = 8 };
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_cache *cache = kmem_cache_create("wanders", 256, &args, 0);
	const bool by_cid = km_percpu.index == KM_INDEX_CID;
	unsigned live = 0, with = 0;

	NEED(cache && km_percpu.cpus >= CPUS);
	leave_kernel();
	wander(cache, THREADS);
	km_for_each_cpu(cpu) {
		live++;
		with += km_pcs_count_cpu(&cache->fast.pcs, cpu) != 0;
	}
	printf("%u threads that wander over %u CPUs, by %s: %u areas, %u of them with objects, %zu objects ready\n",
	       THREADS, CPUS, by_cid ? "cid" : "CPU", live, with, ready(cache));
	/* One more: where the library started. */
	NEED(by_cid ? with == THREADS && live <= THREADS + 1 : with == CPUS);
}

static const struct test_case {
	const char *name;
	void (*run)(void);
	const char *option, *kernel;
	const char *said;	/* NULL: nothing */
} cases[] = {
	{ "not asked for", by_cpu, NULL, "", NULL },
	{ "by name", by_cid, "index:cid", "", NULL },
	{ "auto", by_cid, "index:auto", "", NULL },
	{ "an old kernel", by_cpu, "index:cid", "old", "the kernel provides no concurrency ids" },
	{ "an old kernel, auto", by_cpu, "index:auto", "old", NULL },
	{ "not written", by_cpu, "index:cid", "silent", "the kernel does not write the concurrency id" },
	{ "not written, auto", by_cpu, "index:auto", "silent", NULL },
	{ "not registered again", by_cpu, "index:cid", "refuses", "cannot be registered again" },
	{ "not taken back", by_cpu, "index:cid", "keeps", "cannot be unregistered" },
	{ "unregistered", unregistered, "index:cid", "", NULL },
	{ "many CPUs", many_cpus, NULL, "", NULL },
	{ "many CPUs by cid", many_cpus, "index:cid", "", NULL },
};

static void in_child(const struct test_case *test, const char *program, int err)
{
	unsetenv("KMEM_OPTIONS");
	if (test->option)
		setenv("KMEM_OPTIONS", test->option, 1);
	setenv("BY_CID_KERNEL", test->kernel, 1);
	dup2(err, 2);
	execl(program, program, test->name, NULL);
	_exit(126);
}

/* Reads the output to its end, and checks the exit. */
static bool passes(const struct test_case *test, const char *program)
{
	char text[2048];
	size_t length = 0;
	int status, ends[2];
	ssize_t got;

	NEED(pipe(ends) == 0);
	fflush(stdout);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child)
		in_child(test, program, ends[1]);
	close(ends[1]);
	while ((got = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	close(ends[0]);
	text[length] = '\0';
	NEED(waitpid(child, &status, 0) == child);
	bool good = status == 0 && (test->said ? strstr(text, test->said) != NULL : !length);
	printf("%s: %s (%d) %s\n", test->name, good ? "passed" : "FAILED", status, good ? "" : text);
	return good;
}

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc == 1 && (strcmp(kmem_percpu_discipline(), "rseq") || __real_km_os_rseq_features() < 28)) {
		printf("skipped: no restartable sequences, or a kernel without concurrency ids\n");
		return 77;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			NEED(kmem_check_all() == 0);
			return 0;
		}
		if (argc == 1)
			failed += !passes(&cases[i], argv[0]);
	}
	return failed != 0;
}
