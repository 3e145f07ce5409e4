/*
 * asked.c: requests to a running program, all at once, while its threads allocate, pass objects on, free, and create
 * and destroy caches. Memory is reserved for caches, and caches fall idle. Pointers of any age are queried for the
 * fullness of their slabs, and objects move to the fullest slab. Profiles begin and end; caches are shrunk and tuned
 * by requests; figures are read and written. Without a sanitizer the program also forks. Each object is intact, each
 * request is answered, in the end and in each child no memory is left, and all invariants hold. SECONDS=n: for each
 * engine. Disciplines: all.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <kmem/memcg.h>

#include "kit/api.h"
#include "kit/random.h"

#include "cache/cache.h"
#include "cache/mailbox.h"

#ifdef __SANITIZE_THREAD__
#define MAY_FORK 0
#else
#define MAY_FORK 1
#endif

#define CACHES	6u
#define BOXES	2048u
#define OF_KMALLOC CACHES
#define MAPPED	(CACHES + 1)
#define MARK	0x6a09e667f3bcc908ull

struct thing {
	uint64_t mark;
	uint32_t kind;			/* the object's cache, or one of the two above */
};

static const unsigned sizes[CACHES] = { 24, 64, 200, 700, 2000, 9000 };
static struct kmem_cache *caches[CACHES];
static struct mem_cgroup *groups[3];
static struct thing *boxes[BOXES];
static bool over;
static unsigned long served, forks;

static bool is_over(void)
{
	return __atomic_load_n(&over, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ objects */

static gfp_t bits_of(uint64_t random)
{
	gfp_t gfp = random % 7 ? GFP_KERNEL : GFP_NOWAIT;

	return gfp | __GFP_NOWARN | (random % 4 ? 0 : __GFP_FULLEST) | (random % 5 ? 0 : __GFP_ACCOUNT) |
	       (random % 11 ? 0 : __GFP_ZERO);
}

static struct thing *get(uint64_t *random)
{
	uint64_t how = random_next(random), bytes = random_next(random);
	uint32_t kind = how % 100 == 0 ? MAPPED : (uint32_t)(how % (CACHES + 2)) % MAPPED;
	struct thing *thing;

	if (kind < CACHES)
		thing = kmem_cache_alloc(caches[kind], bits_of(how >> 8));
	else if (kind == OF_KMALLOC)
		thing = kmalloc(sizeof(*thing) + bytes % (bytes % 30 ? 600 : 300000), bits_of(how >> 8));
	else
		thing = kvmalloc(5 << 20, GFP_KERNEL | __GFP_NOWARN);
	if (!thing)
		return NULL;
	thing->kind = kind;
	thing->mark = (uintptr_t)thing ^ MARK;
	return thing;
}

static void put(struct thing *thing, bool to_slab)
{
	if (!thing)
		return;
	NEED(thing->mark == ((uintptr_t)thing ^ MARK) && thing->kind <= MAPPED, "(%p)", (void *)thing);
	thing->mark = 0;
	/* Where pages are shared kfree has kmalloc's alone. */
	if (to_slab && thing->kind <= OF_KMALLOC && !(slob && thing->kind < CACHES))
		kmem_free_to_slab(thing);
	else if (thing->kind < CACHES)
		kmem_cache_free(caches[thing->kind], thing);
	else
		kvfree(thing);
}

/* ------------------------------------------------------------------ threads */

static void *works(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	while (!is_over()) {
		uint64_t whose = random_next(&random);
		struct mem_cgroup *was = set_active_memcg(whose % 3 ? NULL : groups[(whose >> 8) % 3]);

		for (unsigned i = 0; i < 100; i++) {
			uint64_t which = random_next(&random);
			struct thing *thing = which % 3 ? get(&random) : NULL;

			thing = __atomic_exchange_n(&boxes[(which >> 8) % BOXES], thing, __ATOMIC_ACQ_REL);
			put(thing, which >> 62 == 0);
		}
		set_active_memcg(was);
	}
	return NULL;
}

static void *makes_caches(void *arg)
{
	uint64_t random = (uintptr_t)arg;
	void *objects[64];

	while (!is_over()) {
		uint64_t how = random_next(&random);
		unsigned count = (how >> 16) % 64;
		struct kmem_cache *cache = kmem_cache_create("passing", 16 + (unsigned)(how % 3000), NULL,
							     how % 5 ? 0 : SLAB_ACCOUNT);

		NEED(cache);
		if (how % 4 == 0)
			kmem_reserve(cache, (how >> 8) % 300);
		for (unsigned i = 0; i < count; i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		for (unsigned i = 0; i < count; i++)
			kmem_cache_free(cache, objects[i]);
		kmem_cache_destroy(cache);
	}
	return NULL;
}

static void *reserves(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	while (!is_over()) {
		uint64_t how = random_next(&random);
		int error = kmem_reserve(caches[how % CACHES], (how >> 8) % 3 ? (how >> 16) % 3000 : 0);

		NEED(error == 0 || error == -ENOMEM);
	}
	return NULL;
}

static void *gives_back(void *arg)
{
	uint64_t random = (uintptr_t)arg;
	int null = open("/dev/null", O_WRONLY);
	struct kmem_cache_stats stats;
	struct kmem_stats all;

	for (; !is_over(); usleep(100)) {
		struct kmem_cache *cache = caches[random_next(&random) % CACHES];

		switch (random_next(&random) % 7) {
		case 0: kmem_idle(); break;
		case 1: kmem_tick(); break;
		case 2: kmem_cache_shrink(cache); break;
		case 3: kmem_shrink_all(); break;
		case 4: NEED(kmem_metrics(null) == 0); break;
		case 5: kmem_cache_get_stats(cache, &stats); break;
		default: kmem_get_stats(&all);
		}
	}
	close(null);
	return NULL;
}

/* Pointers to objects that may be freed. */
static void *asks_how_full(void *arg)
{
	static struct kmem_slab_usage usage[300];
	static const void *pointers[300];
	uint64_t random = (uintptr_t)arg;

	while (!is_over()) {
		for (unsigned i = 0; i < 300; i++)
			pointers[i] = __atomic_load_n(&boxes[random_next(&random) % BOXES], __ATOMIC_RELAXED);
		kmem_slab_usage(pointers, 300, usage);
		for (unsigned i = 0; i < 300; i++)
			NEED(usage[i].inuse <= usage[i].objects);
	}
	return NULL;
}

/* As another process writes a request. Calls of other threads serve the request, or the threads have ended. */
static void ask(uint32_t command, const char *cache, const char *letters)
{
	struct kmem_mail_request request = { .command = command };
	static uint32_t number;

	strcpy(request.cache, cache);
	strcpy(request.letters, letters);
	for (size_t i = 0; i < sizeof(request); i++)
		__atomic_store_n((char *)&km_mail.request + i, ((char *)&request)[i], __ATOMIC_RELAXED);
	km_store_release(&km_mail.asked, ++number);
	while (km_load_acquire(&km_mail.answered) != number && !is_over())
		usleep(100);
	served += km_load_acquire(&km_mail.answered) == number;
}

static void *asks(void *arg)
{
	static const char *const names[] = { "c0", "c1", "c2", "c3", "c4", "c5", "kmalloc-64", "passing" };
	uint64_t random = (uintptr_t)arg;

	while (!is_over()) {
		uint64_t how = random_next(&random);
		const char *name = names[(how >> 8) % 8], *mean = (how >> 20) % 2 ? "300:100" : "20000:100";

		switch (how % 8) {
		case 0: ask(KMEM_MAIL_PROFILE, (how >> 16) % 3 ? "" : name, mean); break;
		case 1: ask(KMEM_MAIL_PROFILE, "", "0"); break;
		case 2: ask(KMEM_MAIL_SHRINK, name, ""); break;
		case 3: ask(KMEM_MAIL_SHRINK, "", ""); break;
		case 4: ask(KMEM_MAIL_MIN_PARTIAL, name, "3"); break;
		case 5: ask(KMEM_MAIL_TUNE, name, "60 20 8"); break;
		case 6: ask(KMEM_MAIL_SHEAF_CAPACITY, name, "40"); break;
		default: ask(KMEM_MAIL_CLEAR, name, "");
		}
	}
	return NULL;
}

static void in_child(void)
{
	uint64_t random = 1;

	alarm(TEST_SECONDS);
	for (unsigned i = 0; i < 300; i++)
		put(get(&random), i % 4 == 0);
	NEED(kmem_reserve(caches[1], 500) == 0);
	kmem_idle();
	kmem_shrink_all();
	_exit(kmem_check_all() ? 3 : 0);
}

static void *makes_children(void *arg)
{
	while (MAY_FORK && !is_over()) {
		int status = -1;
		pid_t child = fork();

		if (!child)
			in_child();
		NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0, "(%#x)", (unsigned)status);
		forks++;
	}
	return arg;
}

/* ------------------------------------------------------------------ all of them */

static void is_all_back(void)
{
	for (unsigned i = 0; i < BOXES; i++)
		put(boxes[i], false);
	for (unsigned i = 0; i < CACHES; i++)
		NEED(kmem_reserve(caches[i], 0) == 0);
	kmem_shrink_all();
	for (unsigned i = 0; i < CACHES; i++)
		gone(caches[i]);
	for (unsigned i = 0; i < 3 && groups[i]; i++) {
		mem_cgroup_drain(groups[i]);
		NEED(mem_cgroup_current(groups[i]) == 0, "(%lu)", (unsigned long)mem_cgroup_current(groups[i]));
		mem_cgroup_put(groups[i]);
	}
}

static void at_once(void)
{
	static void *(*const works_as[])(void *) = {
		works, works, works, makes_caches, reserves, reserves, gives_back, asks_how_full, asks, makes_children,
	};
	pthread_t threads[km_array_count(works_as)];
	const unsigned seconds = getenv("SECONDS") ? (unsigned)atoi(getenv("SECONDS")) : 2;

	for (unsigned i = 0; i < CACHES; i++)
		caches[i] = make((char[]){ 'c', (char)('0' + i), '\0' }, sizes[i]);
	for (unsigned i = 0; i < 3 && !slob; i++)
		NEED((groups[i] = mem_cgroup_create(NULL, "group", i == 2 ? MEM_CGROUP_PRIVATE : 0)));
	for (uintptr_t i = 0; i < km_array_count(works_as); i++)
		NEED(pthread_create(&threads[i], NULL, works_as[i], (void *)(i + 1)) == 0);
	sleep(seconds);
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < km_array_count(works_as); i++)
		pthread_join(threads[i], NULL);
	is_all_back();
	printf("%lu requests, %lu children\n", served, forks);
	NEED(served);
}

static const struct test_case cases[] = { { "at once", at_once } };
API_MAIN_OPTIONS(cases, ",decay:5")
