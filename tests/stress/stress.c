/*
 * stress: threads hand objects to each other, while other threads end with objects allocated, and caches are created
 * and destroyed. One thread moves every thread to another CPU every few microseconds, shrinks and drains, reads all
 * statistics, and forks. Timers interrupt each thread with a handler that allocates and frees from the same caches.
 * Disciplines: all; caches of each engine at once.
 *
 * Checked: the contents of every object, with its cache, address and length; at the end that no object and no memory
 * is left, and every invariant. SECONDS=n and THREADS=n change the amount; WITHOUT=word,word leaves out some of:
 * fork signals bully caches shrink watch mortals large.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"

#define CACHES		16
#define SLOTS		512
#define LARGE		8
#define MAX_THREADS	64
#define MOST_BULK	200
#define KMALLOC		200u	/* kinds of object beyond the caches' numbers */
#define KEY		0x6a09e667f3bcc908ull

extern char **environ;

static struct {
	struct kmem_cache *cache[CACHES];
	unsigned size[CACHES];
	bool shared_pages[CACHES];	/* of engine slob: kfree cannot free its objects */
	unsigned caches;
	void *slot[SLOTS];		/* where objects change hands */
	void *large[LARGE];		/* blocks of pages and mappings freed by handlers */
	pid_t tid[MAX_THREADS];
	unsigned threads, seconds;
	bool over, no_large;
	unsigned long handed, interrupted, refused, forks, came, moves;
} stress;

static __thread uint64_t seed;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...)
{
	char line[256];
	va_list arguments;

	va_start(arguments, format);
	int length = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	(void)!write(2, line, (size_t)length);
	(void)!write(2, "\n", 1);
	abort();
}

static uint64_t roll(void)
{
	seed += 0x9e3779b97f4a7c15ull;
	uint64_t z = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9ull;

	return z ^ z >> 29;
}

static bool over(void)
{
	return __atomic_load_n(&stress.over, __ATOMIC_RELAXED);
}

static void count(unsigned long *what)
{
	__atomic_fetch_add(what, 1ul, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ objects and what they hold */

/* Word 0 has kind and length, the others follow from word 0 and from their addresses. */
static void fill(void *object, unsigned kind, size_t bytes)
{
	uint64_t *word = object;

	word[0] = (roll() & 0xffffff) << 40 | (uint64_t)kind << 32 | bytes;
	for (size_t i = 1; i < bytes / 8; i++)
		word[i] = word[0] * KEY ^ (uintptr_t)&word[i];
}

static void check(const void *object)
{
	const uint64_t *word = object;
	size_t bytes = (uint32_t)word[0];
	unsigned kind = word[0] >> 32 & 0xff;

	if (kind == KMALLOC ? bytes > 8u << 20 : kind >= stress.caches || bytes != stress.size[kind])
		die("%p: no object of ours: %016lx", object, (unsigned long)word[0]);
	for (size_t i = 1; i < bytes / 8; i++)
		if (word[i] != (word[0] * KEY ^ (uintptr_t)&word[i]))
			die("%p of %zu bytes, kind %u: word %zu is %016lx", object, bytes, kind, i,
			    (unsigned long)word[i]);
}

static unsigned kind_of(const void *object)
{
	return *(const uint64_t *)object >> 32 & 0xff;
}

/* A freed object must not look like one. */
static void destroy(void *object)
{
	check(object);
	unsigned kind = kind_of(object);
	*(uint64_t *)object = ~(uint64_t)0;
	if (kind != KMALLOC && (roll() % 2 || stress.shared_pages[kind]))
		kmem_cache_free(stress.cache[kind], object);
	else
		kfree(object);
}

static size_t some_bytes(bool large)
{
	unsigned dice = roll() % 64;

	if (dice == 0 && large)
		return 4096 + roll() % 100000 / 8 * 8;
	if (dice == 1 && large && roll() % 16 == 0)
		return (5u << 20) + roll() % 100000 / 8 * 8;
	return 16 + roll() % (dice < 16 ? 8000 : 400) / 8 * 8;
}

static bool without(const char *what)
{
	const char *list = getenv("WITHOUT");

	return list && strstr(list, what);
}

/* Now and then from a named node, with __GFP_THISNODE. */
static void *from_cache(unsigned kind, gfp_t gfp)
{
	uint64_t dice = roll();
	int node = dice % 8 ? NUMA_NO_NODE : (int)(dice / 8 % km_node_count);
	void *object;

	if (dice % 16 == 0)
		gfp |= __GFP_THISNODE;
	object = kmem_cache_alloc_node(stress.cache[kind], gfp, node);
	if (object && dice % 16 == 0 && km_page_node(object) != (unsigned)node)
		die("%p is of node %u, wanted of %d", object, km_page_node(object), node);
	return object;
}

static void *create(gfp_t gfp)
{
	size_t bytes;
	void *object;

	if (roll() % 4) {
		unsigned kind = roll() % stress.caches;

		object = from_cache(kind, gfp);
		if (object)
			fill(object, kind, stress.size[kind]);
		return object;
	}
	bytes = some_bytes(!stress.no_large);
	object = bytes > KMALLOC_MAX_SIZE ? kvmalloc(bytes, gfp) : kmalloc(bytes, gfp);
	if (object)
		fill(object, KMALLOC, bytes);
	return object;
}

/* Leaves an object for another thread, and takes an object left there. */
static void *hand_over(void *object)
{
	count(&stress.handed);
	return __atomic_exchange_n(&stress.slot[roll() % SLOTS], object, __ATOMIC_ACQ_REL);
}

/* ------------------------------------------------------------------ workers */

static void one_by_one(void)
{
	gfp_t gfp = roll() % 8 ? GFP_KERNEL : GFP_NOWAIT;
	void *object = create(gfp), *other;

	if (!object) {
		if (gfp == GFP_KERNEL)
			die("refused: %s", strerror(errno));
		count(&stress.refused);
		return;
	}
	other = hand_over(object);
	if (other)
		destroy(other);
}

static void in_bulk(void)
{
	void *objects[MOST_BULK];
	unsigned kind = roll() % stress.caches;
	size_t n = 1 + roll() % MOST_BULK;

	if (!kmem_cache_alloc_bulk(stress.cache[kind], GFP_KERNEL | (n % 8 ? 0 : __GFP_THISNODE), n, objects))
		die("bulk of %zu: false", n);
	for (size_t i = 0; i < n; i++)
		fill(objects[i], kind, stress.size[kind]);
	for (size_t i = 0; i < n; i++) {
		void *other = i % 4 ? objects[i] : hand_over(objects[i]);

		if (other && i % 4 == 0 && kind_of(other) != kind) {
			destroy(other);
			other = NULL;
		}
		objects[i] = other;
	}
	for (size_t i = 0; i < n; i++) {
		if (!objects[i])
			continue;
		check(objects[i]);
		*(uint64_t *)objects[i] = ~(uint64_t)0;
	}
	kmem_cache_free_bulk(stress.cache[kind], n, objects);
}

/* Some of what is in a sheaf goes round, the rest goes back. */
static void prefilled(void)
{
	unsigned kind = roll() % stress.caches, n = 1 + (unsigned)(roll() % 40), taken;
	struct kmem_cache *cache = stress.cache[kind];
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, n);

	if (!sheaf)
		die("prefill of %u: %s", n, strerror(errno));
	taken = (unsigned)(roll() % (n + 1));
	for (unsigned i = 0; i < taken; i++) {
		void *object = kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT, sheaf), *other;

		if (!object)
			die("%u of a sheaf of %u: NULL", i, n);
		fill(object, kind, stress.size[kind]);
		other = hand_over(object);
		if (other)
			destroy(other);
	}
	if (taken % 4 == 0 && kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, n + 30))
		die("refill to %u", n + 30);
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
}

static void mixed_bulk(void)
{
	void *objects[MOST_BULK];
	size_t n = 1 + roll() % MOST_BULK;

	for (size_t i = 0; i < n; i++) {
		void *object = create(GFP_KERNEL);

		objects[i] = object ? hand_over(object) : NULL;
	}
	for (size_t i = 0; i < n; i++) {
		if (!objects[i])
			continue;
		check(objects[i]);
		unsigned kind = kind_of(objects[i]);
		*(uint64_t *)objects[i] = ~(uint64_t)0;
		if (kind != KMALLOC && stress.shared_pages[kind]) {
			kmem_cache_free(stress.cache[kind], objects[i]);
			objects[i] = NULL;
		}
	}
	kfree_bulk(n, objects);
}

static void resize(void)
{
	size_t bytes = some_bytes(false), more = some_bytes(false);
	uint64_t *object = kmalloc(bytes, GFP_KERNEL);

	if (!object)
		die("kmalloc(%zu): NULL", bytes);
	for (size_t i = 0; i < bytes / 8; i++)
		object[i] = i * KEY;
	object = krealloc(object, more, GFP_KERNEL);
	if (!object)
		die("krealloc(%zu): NULL", more);
	for (size_t i = 0; i < (bytes < more ? bytes : more) / 8; i++)
		if (object[i] != i * KEY)
			die("krealloc(%zu, %zu): word %zu is lost", bytes, more, i);
	kfree(object);
}

/* Cache a large block for handlers: nested, they could not get one. */
static void stock_large(void)
{
	size_t bytes = roll() % 8 ? 9000 + roll() % 50000 / 8 * 8 : (5u << 20) + 4096;
	void *object = kvmalloc(bytes, GFP_KERNEL);

	if (!object)
		die("kvmalloc(%zu): NULL", bytes);
	fill(object, KMALLOC, bytes);
	object = __atomic_exchange_n(&stress.large[roll() % LARGE], object, __ATOMIC_ACQ_REL);
	if (object)
		destroy(object);
}

static void *worker(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;

	seed = number * 77 + 1;
	__atomic_store_n(&stress.tid[number], (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	while (!over()) {
		unsigned dice = roll() % 64;

		if (dice == 0)
			mixed_bulk();
		else if (dice < 4)
			in_bulk();
		else if (dice < 8)
			resize();
		else if (dice == 8 && !stress.no_large)
			stock_large();
		else if (dice < 12)
			prefilled();
		else
			one_by_one();
	}
	return NULL;
}

/* ------------------------------------------------------------------ disturbing threads */

/* Ends with objects left in the slots, and with objects never freed: other threads free these. */
static void *mortal(void *arg)
{
	seed = (uintptr_t)arg;
	for (int i = 0; i < 300 && !over(); i++)
		one_by_one();
	return NULL;
}

static void *parent_of_mortals(void *arg)
{
	pthread_t child[4];

	for (uintptr_t n = 1000; !over(); n += 10) {
		for (unsigned i = 0; i < 4; i++)
			if (pthread_create(&child[i], NULL, mortal, (void *)(n + i)))
				die("pthread_create");
		for (unsigned i = 0; i < 4; i++)
			pthread_join(child[i], NULL);
	}
	return arg;
}

static void *maker_of_caches(void *arg)
{
	static const slab_flags_t flags[] = { 0, SLAB_HWCACHE_ALIGN, SLAB_TYPESAFE_BY_RCU,
					      SLAB_NO_SHEAVES, SLAB_CONSISTENCY_CHECKS };
	void *objects[MOST_BULK];

	seed = 4711;
	while (!over()) {
		unsigned size = 8 + roll() % 1200;
		size_t n = 1 + roll() % MOST_BULK;
		struct kmem_cache *cache = kmem_cache_create("coming and going", size, NULL,
							     flags[roll() % 5]);

		if (!cache)
			die("kmem_cache_create: %s", strerror(errno));
		for (int turn = 0; turn < 3; turn++) {
			if (!kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects))
				die("bulk of a new cache");
			for (size_t i = 0; i < n; i++)
				memset(objects[i], turn, size);
			if ((turn & 1) && !km_options.engine->shared_pages)
				kfree_bulk(n, objects);
			else
				for (size_t i = 0; i < n; i++)
					kmem_cache_free(cache, objects[i]);
		}
		kmem_cache_destroy(cache);
		count(&stress.came);
	}
	return arg;
}

static void *bully(void *arg)
{
	cpu_set_t all, one;

	seed = 99;
	prctl(PR_SET_TIMERSLACK, 1);
	sched_getaffinity(0, sizeof(all), &all);
	while (!over()) {
		pid_t tid = __atomic_load_n(&stress.tid[roll() % stress.threads], __ATOMIC_ACQUIRE);
		unsigned cpu = roll() % CPU_SETSIZE;

		if (!tid)
			continue;
		while (!CPU_ISSET(cpu % CPU_SETSIZE, &all))
			cpu = roll() % 64;
		CPU_ZERO(&one);
		CPU_SET(cpu % CPU_SETSIZE, &one);
		sched_setaffinity(tid, sizeof(one), &one);
		count(&stress.moves);
		if (roll() % 8 == 0)
			sched_setaffinity(tid, sizeof(all), &all);
		nanosleep(&(struct timespec){ 0, 3000 }, NULL);
	}
	return arg;
}

static void *shrinker(void *arg)
{
	seed = 5;
	while (!over()) {
		struct kmem_cache *cache = stress.cache[roll() % stress.caches];

		kmem_cache_shrink(cache);
		kmem_cache_set_min_partial(cache, roll() % 12);
		if (roll() % 8 == 0)
			kmem_shrink_all();
		nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
	}
	return arg;
}

static int look(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (!stats.name[0] || !stats.size || strlen(stats.name) >= sizeof(stats.name))
		die("statistics of nothing");
	/* Counters are read, and set back, while others count. */
	for (unsigned event = 0; event < KMEM_NR_EVENTS; event++)
		kmem_cache_event(cache, event);
	kmem_cache_clear_events(cache);
	++*(unsigned *)arg;
	return 0;
}

static void *watcher(void *arg)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	while (!over()) {
		struct kmem_stats all;
		unsigned seen = 0;

		kmem_for_each_cache(look, &seen);
		if (seen < stress.caches + (km_kmalloc_sized ? 1 : 13))
			die("%u caches seen", seen);
		kmem_get_stats(&all);
		kmem_print_slabinfo(null);
		kmem_print_json(null);
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
	}
	close(null);
	return arg;
}

/* ------------------------------------------------------------------ fork */

/* All objects left in the slots are intact here, and all calls work. */
static void in_child(void)
{
	alarm(580);
	for (unsigned i = 0; i < SLOTS; i++)
		if (stress.slot[i])
			destroy(stress.slot[i]);
	memset(stress.slot, 0, sizeof(stress.slot));
	for (int i = 0; i < 100; i++)
		one_by_one();
	in_bulk();
	for (unsigned i = 0; i < stress.caches; i++) {
		struct kmem_cache_stats stats;

		kmem_cache_shrink(stress.cache[i]);
		kmem_cache_get_stats(stress.cache[i], &stats);
		/* No sheaf is unreachable because of a thread missing here. */
		if (stats.shelf_objects)
			die("in a child: %lu objects on shelves", stats.shelf_objects);
	}
	if (kmem_check_all())
		die("in a child: damaged");
	_exit(0);
}

static void wait_for(pid_t pid, const char *what)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid: %s", strerror(errno));
	if (status)
		die("%s: a child ended with status 0x%x", what, (unsigned)status);
	count(&stress.forks);
}

static void *forker(void *arg)
{
	static char *const command[] = { (char *)"true", NULL };
	pid_t pid;

	seed = 31;
	for (volatile unsigned turn = 0; !over(); turn++) {
		if (turn % 4 == 3) {
			int error = posix_spawnp(&pid, "true", NULL, NULL, command, environ);

			if (error)
				die("posix_spawn: %s", strerror(error));
			wait_for(pid, "posix_spawn");
			continue;
		}
		if (turn % 4 == 2) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
			pid = vfork();
#pragma GCC diagnostic pop
			if (!pid) {
				kfree(kmalloc(100, GFP_KERNEL));
				_exit(0);
			}
			wait_for(pid, "vfork");
			continue;
		}
		pid = fork();
		if (pid < 0)
			die("fork: %s", strerror(errno));
		if (!pid)
			in_child();
		wait_for(pid, "fork");
		nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
	}
	return arg;
}

/* ------------------------------------------------------------------ signals */

static __thread timer_t timer;
static __thread bool in_handler;

static void handler(int signal)
{
	int saved_errno = errno;
	void *object, *other;

	(void)signal;
	if (over() || in_handler)
		return;
	in_handler = true;
	/* Random numbers of its own: the interrupted thread may be in the middle of making one. */
	uint64_t saved_seed = seed;
	seed ^= KEY;
	count(&stress.interrupted);
	for (int i = 0; i < 4; i++) {
		object = create(i & 1 ? GFP_ATOMIC : GFP_KERNEL | __GFP_NOWARN);
		if (!object) {
			count(&stress.refused);
			continue;
		}
		check(object);
		other = i & 1 ? object : hand_over(object);
		if (other)
			destroy(other);
	}
	object = __atomic_exchange_n(&stress.large[roll() % LARGE], NULL, __ATOMIC_ACQ_REL);
	if (object)
		destroy(object);
	seed = saved_seed + 1;
	in_handler = false;
	errno = saved_errno;
}

static void *interrupted_worker(void *arg)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	struct itimerspec often = { { 0, 150000 }, { 0, 150000 } };

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL))
		die("timer: %s", strerror(errno));
	worker(arg);
	timer_delete(timer);
	return NULL;
}

/* ------------------------------------------------------------------ all together */

static void make_caches(void)
{
	static const unsigned sizes[] = { 16, 64, 200, 1024 };
	static const char *const engines[] = { KM_ENGINE_NAMES };
	_Static_assert(sizeof(engines) / sizeof(*engines) * 4 <= CACHES, "each engine has four");

	for (unsigned e = 0; e < sizeof(engines) / sizeof(engines[0]); e++)
		for (unsigned i = 0; i < 4 && km_engine_find(engines[e]); i++) {
			struct kmem_cache_args args = { .engine = engines[e] };
			char name[32];

			snprintf(name, sizeof(name), "stress-%s-%u", engines[e], sizes[i]);
			stress.size[stress.caches] = sizes[i];
			stress.shared_pages[stress.caches] = km_engine_find(engines[e])->shared_pages;
			stress.cache[stress.caches] = kmem_cache_create(name, sizes[i], &args, 0);
			if (!stress.cache[stress.caches++])
				die("no cache");
		}
}

static int must_be_empty(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (!stats.active_objects && !stats.shelf_objects)
		return 0;
	fprintf(stderr, "%s: %lu objects left, %lu in sheaves, %lu slabs\n", stats.name,
		stats.active_objects, stats.shelf_objects, stats.total_slabs);
	++*(int *)arg;
	return 0;
}

static int account(void)
{
	struct kmem_stats all;
	int left = 0;

	for (unsigned i = 0; i < SLOTS; i++)
		if (stress.slot[i])
			destroy(stress.slot[i]);
	for (unsigned i = 0; i < LARGE; i++)
		if (stress.large[i])
			destroy(stress.large[i]);
	kmem_shrink_all();
	kmem_for_each_cache(must_be_empty, &left);
	kmem_get_stats(&all);
	if (all.large_blocks || all.mapped_blocks) {
		fprintf(stderr, "%lu large blocks left, %lu mappings\n", all.large_blocks,
			all.mapped_blocks);
		left++;
	}
	if (kmem_check_all())
		left++;
	for (unsigned i = 0; i < stress.caches; i++)
		kmem_cache_destroy(stress.cache[i]);
	return left;
}

static unsigned number(const char *name, unsigned otherwise)
{
	const char *value = getenv(name);

	return value && *value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

int main(void)
{
	static const struct { const char *word; void *(*run)(void *); } disturbers[] = {
		{ "mortals", parent_of_mortals }, { "caches", maker_of_caches }, { "bully", bully },
		{ "shrink", shrinker }, { "watch", watcher }, { "fork", forker },
	};
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	pthread_t thread[MAX_THREADS + 8];
	unsigned started = 0;

	stress.seconds = number("SECONDS", 5);
	stress.threads = number("THREADS", 4);
	if (stress.threads > MAX_THREADS)
		stress.threads = MAX_THREADS;
	alarm(stress.seconds * 20 + 60);
	stress.no_large = without("large");
	make_caches();
	sigaction(SIGUSR1, &action, NULL);
	for (unsigned i = 0; i < stress.threads; i++)
		if (pthread_create(&thread[started++], NULL,
				   without("signals") ? worker : interrupted_worker,
				   (void *)(uintptr_t)i))
			die("pthread_create");
	for (unsigned i = 0; i < sizeof(disturbers) / sizeof(disturbers[0]); i++)
		if (!without(disturbers[i].word) &&
		    pthread_create(&thread[started++], NULL, disturbers[i].run, NULL))
			die("pthread_create");
	for (unsigned i = 0; i < stress.seconds * 10; i++)
		nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
	__atomic_store_n(&stress.over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	int left = account();
	printf("%s: %lu objects handed over, %lu interruptions, %lu refused, %lu forks, %lu caches made, %lu moves\n",
	       kmem_percpu_discipline(), stress.handed, stress.interrupted, stress.refused,
	       stress.forks, stress.came, stress.moves);
	return left != 0;
}
