/*
 * debugged: debugged caches keep the promises of caches: alignment, usable sizes, zeros, constructors, contents
 * after krealloc, bulk requests, sheaves, typesafe memory, accounting. A write of one byte too many is found at
 * every size. Each engine runs in a process of its own, with all checks of the engine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "slab/engine.h"
#include "kit/options.h"

#define FLAGS (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)
#define NEED(truth)                                                                                \
	((truth) ? (void)0 : (printf("line %d: %s\n", __LINE__, #truth), fflush(stdout), _exit(1)))

static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

/* Writes all bytes of the object. */
static void *use(void *p, size_t bytes)
{
	NEED(p);
	memset(p, 0x33, bytes);
	return p;
}

static size_t damages_of(void *p)
{
	return (size_t)kmem_cache_validate(kmem_cache_of(p));
}

/* One byte behind, and one in front: each is found, once, and then mended. */
static void found_around(void *p, size_t bytes)
{
	unsigned char *at = blind(p);

	NEED(damages_of(p) == 0);
	at[bytes] ^= 1;
	NEED(damages_of(p) == 1);
	at[-1] ^= 1;
	NEED(damages_of(p) == 1);
	NEED(damages_of(p) == 0);
}

static void every_size(void)
{
	for (size_t size = 1; size <= 8192; size += size / 5 + 1) {
		void *p = use(kmalloc(size, GFP_KERNEL), size), *q = use(malloc(size), size);

		NEED(ksize(p) == size && malloc_usable_size(q) == size);
		found_around(p, size);
		found_around(q, size);
		kfree(p);
		free(q);
	}
	for (size_t size = 8193; size <= 32768; size += size / 5) {
		void *q = use(malloc(size), size);

		found_around(q, size);
		free(q);
	}
}

static void every_class(void)
{
	for (unsigned size = 1; size < 300000; size += size / 2 + 1) {
		struct kmem_cache *cache = kmem_cache_create("sized", size, NULL, FLAGS);
		unsigned char *p = use(kmem_cache_alloc(cache, GFP_KERNEL), size);

		found_around(p, size);
		kmem_cache_free(cache, p);
		NEED(size < 2 || p[0] == 0x6b);
		p[size - 1] ^= 1;
		NEED(kmem_cache_validate(cache) == 1);
		kmem_cache_destroy(cache);
	}
	/* An object without room for debug bytes in the largest slab is allocated without them. */
	struct kmem_cache *largest = kmem_cache_create("largest", KMALLOC_MAX_SIZE, NULL, FLAGS);
	NEED(largest);
	kmem_cache_free(largest, use(kmem_cache_alloc(largest, GFP_KERNEL), KMALLOC_MAX_SIZE));
	kmem_cache_destroy(largest);
}

static void alignments(void)
{
	for (unsigned align = 8; align <= 4096; align *= 2) {
		struct kmem_cache *cache = kmem_cache_create("aligned", 24, align, FLAGS, NULL);
		void *objects[20];

		for (int i = 0; i < 20; i++) {
			objects[i] = use(kmem_cache_alloc(cache, GFP_KERNEL), 24);
			NEED((uintptr_t)objects[i] % align == 0);
		}
		for (int i = 0; i < 20; i++)
			kmem_cache_free(cache, objects[i]);
		kmem_cache_destroy(cache);
		for (size_t size = 1; size < 9000; size = size * 2 + 1) {
			void *p = use(aligned_alloc(align, size), size), *q = kmalloc(align, GFP_KERNEL);

			NEED((uintptr_t)p % align == 0 && (uintptr_t)q % align == 0);
			free(p);
			kfree(q);
		}
	}
}

static bool all_are(const unsigned char *p, size_t bytes, unsigned char value)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != value)
			return false;
	return true;
}

static void zeros_and_growth(void)
{
	for (size_t size = 1; size < 8000; size += size / 3 + 1) {
		unsigned char *p = use(kmalloc(size, GFP_KERNEL), size), *q = kzalloc(size, GFP_KERNEL), *r;

		NEED(q && all_are(q, size, 0));
		kfree(p);
		p = calloc(1, size);
		NEED(p && all_are(p, size, 0));
		free(p);
		/*
		 * Within its bucket krealloc keeps the block; new bytes read as zeros if the caller
		 * asked for zeros.
		 */
		r = krealloc(q, size + 1, GFP_KERNEL | __GFP_ZERO);
		NEED(r && all_are(r, size + 1, 0) && ksize(r) >= size + 1);
		use(r, size + 1);
		r = krealloc(r, size * 3, GFP_KERNEL);
		NEED(r && all_are(r, size + 1, 0x33));
		use(r, size * 3);
		kfree(r);
		p = use(realloc(use(malloc(size), size), size * 2), size);
		use(p, size * 2);
		free(use(realloc(p, size / 2 + 1), size / 2 + 1));
	}
	void *p = kmalloc(33, GFP_KERNEL);
	NEED(krealloc(p, 64, GFP_KERNEL) == p && krealloc(p, 40, GFP_KERNEL) == p && ksize(p) == 40);
	found_around(p, 40);
	kfree(p);
	p = realloc(malloc(0), 100);
	free(use(p, 100));
}

static void construct(void *object)
{
	memset(object, 0x44, 72);
}

/* The contents from a constructor, and contents for readers of a typesafe object, are never poisoned. */
static void kept_contents(void)
{
	struct kmem_cache *built = kmem_cache_create("built", 72, 0, FLAGS, construct);
	struct kmem_cache *typed = kmem_cache_create("typed", 72, NULL, FLAGS | SLAB_TYPESAFE_BY_RCU);
	unsigned char *objects[100];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 100; i++) {
			objects[i] = kmem_cache_alloc(built, GFP_KERNEL);
			NEED(objects[i] && all_are(objects[i], 72, 0x44));
		}
		for (int i = 0; i < 100; i++)
			kmem_cache_free(built, objects[i]);
	}
	objects[0] = use(kmem_cache_alloc(typed, GFP_KERNEL), 72);
	kmem_cache_free(typed, objects[0]);
	NEED(all_are(objects[0], 72, 0x33));
	NEED(kmem_cache_validate(typed) == 0 && kmem_cache_validate(built) == 0);
	kmem_cache_destroy(built);
	kmem_cache_destroy(typed);
}

static void many_at_once(void)
{
	struct kmem_cache *cache = kmem_cache_create("many", 100, NULL, FLAGS);
	static void *objects[500];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 500, objects));
	for (int i = 0; i < 500; i++)
		use(objects[i], 100);
	NEED(kmem_cache_validate(cache) == 0);
	kmem_cache_free_bulk(cache, 500, objects);
	NEED(kmalloc_bulk(70, GFP_KERNEL, 500, objects));
	for (int i = 0; i < 500; i++)
		NEED(ksize(use(objects[i], 70)) == 70);
	found_around(objects[7], 70);
	kfree_bulk(500, objects);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 20);
	NEED(sheaf && kmem_cache_sheaf_size(sheaf) >= 20);
	for (int i = 0; i < 10; i++)
		objects[i] = use(kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT, sheaf), 100);
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
	for (int i = 0; i < 10; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(kmem_cache_validate(cache) == 0);
	kmem_cache_destroy(cache);
}

static void accounted(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "paying", 0);
	struct kmem_cache *cache = kmem_cache_create("charged", 100, NULL, FLAGS | SLAB_ACCOUNT);
	void *objects[50], *p;

	NEED(group && cache);
	set_active_memcg(group);
	for (int i = 0; i < 50; i++)
		objects[i] = use(kmem_cache_alloc(cache, GFP_KERNEL), 100);
	p = use(kmalloc(50, GFP_KERNEL_ACCOUNT), 50);
	set_active_memcg(NULL);
	mem_cgroup_drain(group);
	NEED(mem_cgroup_current(group) >= 50 * 108 + 58);
	found_around(objects[3], 100);
	found_around(p, 50);
	for (int i = 0; i < 50; i++)
		kmem_cache_free(cache, objects[i]);
	kfree(p);
	mem_cgroup_drain(group);
	NEED(mem_cgroup_current(group) == 0);
	kmem_cache_destroy(cache);
	mem_cgroup_put(group);
}

/* One line for each allocation and each free, in the kernel's form: both lines count the object as in use. */
static void traced(void)
{
	static char text[1 << 16];
	char lines[3][128];

	for (int i = 0; i < 2; i++) {
		struct kmem_cache *cache = kmem_cache_create("traced", 100, NULL, SLAB_TRACE | (i ? FLAGS : 0));
		int saved = dup(2), said = memfd_create("stderr", 0);
		NEED(saved >= 0 && said >= 0 && dup2(said, 2) == 2);
		void *p = kmem_cache_alloc(cache, GFP_KERNEL), *q = kmem_cache_alloc(cache, GFP_KERNEL);

		kmem_cache_free(cache, p);
		kmem_cache_free(cache, q);
		NEED(dup2(saved, 2) == 2);
		memset(text, 0, sizeof(text));
		NEED(pread(said, text, sizeof(text) - 1, 0) > 0);
		snprintf(lines[0], sizeof(lines[0]), "libkmem: TRACE traced alloc %p inuse=1 fp=0x", p);
		snprintf(lines[1], sizeof(lines[1]), "libkmem: TRACE traced alloc %p inuse=2 fp=0x", q);
		snprintf(lines[2], sizeof(lines[2]), "libkmem: TRACE traced free %p inuse=2 fp=0x", p);
		char *at = text;
		for (int line = 0; line < 3; line++)
			NEED((at = strstr(at, lines[line])));
		close(saved);
		close(said);
		kmem_cache_destroy(cache);
	}
}

static struct kmem_cache *shared;
static void *kept[64];

/* Objects come and go in both threads, and are exchanged. */
static void *exchange(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 3000; i++) {
		seed = seed * 1103515245 + 12345;
		void *p = use(kmem_cache_alloc(shared, GFP_KERNEL), 48);
		p = __atomic_exchange_n(&kept[seed >> 16 & 63], p, __ATOMIC_ACQ_REL);
		if (p)
			kmem_cache_free(shared, p);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t other[3];

	shared = kmem_cache_create("shared", 48, NULL, FLAGS);
	for (uintptr_t i = 0; i < 3; i++)
		NEED(!pthread_create(&other[i], NULL, exchange, (void *)(i + 1)));
	for (int i = 0; i < 3; i++)
		pthread_join(other[i], NULL);
	for (int i = 0; i < 64; i++)
		if (kept[i])
			kmem_cache_free(shared, kept[i]);
	NEED(kmem_cache_validate(shared) == 0);
	kmem_cache_destroy(shared);
}

static volatile sig_atomic_t struck;

static void strike(int signal)
{
	(void)signal;
	int was = errno;
	void *p = kmem_cache_alloc(shared, GFP_NOWAIT);

	if (p)
		kmem_cache_free(shared, p);
	struck++;
	errno = was;
}

static void *send(void *arg)
{
	while (struck < 100) {
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
		usleep(100);
	}
	return NULL;
}

/* A signal handler allocates, at any point of the interrupted code. */
static void handlers(void)
{
	pthread_t self = pthread_self(), other;

	shared = kmem_cache_create("struck", 48, NULL, FLAGS);
	signal(SIGUSR1, strike);
	NEED(!pthread_create(&other, NULL, send, &self));
	while (struck < 100)
		kmem_cache_free(shared, use(kmem_cache_alloc(shared, GFP_KERNEL), 48));
	pthread_join(other, NULL);
	NEED(kmem_cache_validate(shared) == 0);
	kmem_cache_destroy(shared);
}

static void forked(void)
{
	void *p = use(malloc(50), 50);
	pid_t pid = fork();
	int status;

	if (!pid) {
		found_around(p, 50);
		free(p);
		free(use(malloc(1000), 1000));
		_exit(kmem_check_all() != 0);
	}
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
	free(p);
}

static __attribute__((noinline)) void *some(struct kmem_cache *cache)
{
	return blind(kmem_cache_alloc(cache, GFP_KERNEL));
}

static __attribute__((noinline)) void *others(struct kmem_cache *cache)
{
	return blind(kmem_cache_alloc(cache, GFP_KERNEL));
}

/* The allocating calls, most objects first, without freed objects. */
static void traces(void)
{
	struct kmem_cache *cache = kmem_cache_create("traced", 100, NULL, FLAGS);
	struct kmem_cache *plain = kmem_cache_create("plain", 100, NULL, SLAB_NO_USER_FLAGS);
	static char text[65536];
	void *objects[35];
	unsigned long first, second, lines = 0;
	volatile int fives = 5;		/* volatile: the compiler would unroll a loop of known
					 * length into several call sites */
	int ends[2];

	for (int i = 0; i < 35; i++)
		objects[i] = i < fives ? others(cache) : some(cache);
	kmem_cache_free(cache, some(cache));
	NEED(kmem_cache_print_traces(plain, 1) == -EINVAL);
	NEED(!pipe(ends) && kmem_cache_print_traces(cache, ends[1]) == 0);
	close(ends[1]);
	for (ssize_t n, at = 0; (n = read(ends[0], text + at, sizeof(text) - 1 - (size_t)at)) > 0;)
		at += n;
	/* A libc without an unwinder, as musl: one place for all. */
	char *frame = strstr(text, "\n        ");
	NEED(frame && strstr(text, "\nTOTAL 35\n"));
	bool stacks = strstr(frame + 1, "\n        ") != NULL;
	NEED(stacks || sscanf(text, "%lu", &first) == 1);
	if (!stacks && first == 35)
		goto end;
	NEED(sscanf(text, "%lu", &first) == 1 && first == 30 && strstr(text, " age=") && strstr(text, " pid="));
	for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
		lines += sscanf(line + 1, "%lu %*s age=", &second) == 1 && strncmp(line + 1, "        ", 8);
	NEED(lines == 1 && strstr(text, "\n      5 ") && strstr(text, "\nTOTAL 35\n"));
end:
	for (int i = 0; i < 35; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_destroy(cache);
	kmem_cache_destroy(plain);
}

static const struct {
	const char *name;
	void (*run)(void);
	bool shared;			/* also where caches share pages, and kmalloc's blocks are not debugged */
} cases[] = {
	{ "every size", every_size, false }, { "every class", every_class, false },
	{ "alignments", alignments, true }, { "zeros and growth", zeros_and_growth, false },
	{ "kept contents", kept_contents, true }, { "many at once", many_at_once, false },
	{ "accounted", accounted, false }, { "threads", threads, true }, { "handlers", handlers, true },
	{ "forked", forked, false }, { "traces", traces, false },
	{ "traced", traced, false },
};

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	int failed = 0, status;

	if (argc == 2) {
		/* Findings are printed. */
		int nowhere = open("/dev/null", O_WRONLY);

		dup2(nowhere, 2);
		alarm(580);
		cases[atoi(argv[1])].run();
		NEED(kmem_check_all() == 0);
		return 0;
	}
	for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			char options[64], number[16];

			if (km_engine_find(engines[e])->shared_pages && !cases[i].shared)
				continue;

			/*
			 * decay:3600000: freed slabs stay, and are checked, although a second may pass on a
			 * busy machine.
			 */
			snprintf(options, sizeof(options), "misuse:warn,decay:3600000,engine:%s", engines[e]);
			snprintf(number, sizeof(number), "%zu", i);
			pid_t pid = fork();
			if (!pid) {
				set_options(options);
				setenv("KMEM_DEBUG", "FZPU", 1);
				execl("/proc/self/exe", "debugged", number, NULL);
				_exit(2);
			}
			if (waitpid(pid, &status, 0) == pid && status == 0)
				continue;
			printf("%s: %s: status 0x%x\n", engines[e], cases[i].name, (unsigned)status);
			failed++;
		}
	printf("%d failed\n", failed);
	return failed != 0;
}
