/*
 * waits_for_grace.c: objects that wait for a grace period, or in a quarantine, are not in use. A request refused by
 * the limit of a group, of the process or of a cache, or by the system, waits for them once, if the request may wait;
 * for at most a second, and then no other request waits until a grace period has ended. Disciplines: all.
 */
#include <pthread.h>
#include <semaphore.h>

#include <kmem/rcu.h>

#include "kit/cases.h"
#include "kit/groups.h"

#include "os/os.h"

enum { BYTES = 3000, COUNT = 300, LIMIT = 1 << 20 };

struct node {
	void *rcu[2];
	char rest[BYTES - 2 * sizeof(void *)];
};

/*
 * ------------------------------------------------------------------ an RCU with grace periods that end during a wait
 */

static struct kmem_rcu_head *under_way;
static void (*at_its_end)(struct kmem_rcu_head *head);
static sem_t end, ended;
static bool reads;			/* a reader stays: none ends */
static bool goes_on;			/* another thread calls kfree_rcu all the time */
static unsigned waits;
static __thread bool is_main;

static void call(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	at_its_end = func;
	__atomic_store_n(&under_way, head, __ATOMIC_RELEASE);
}

static void end_one(void)
{
	sem_post(&end);
	while (sem_wait(&ended))
		;
}

static const struct kmem_rcu rcu = { call, end_one, end_one };

static void others_object(void)
{
	struct node *one = kmalloc(BYTES, GFP_KERNEL);

	NEED(one);
	kfree_rcu(one, rcu);
}

static void *run(void *unused)
{
	for (;;) {
		while (sem_wait(&end))
			;
		struct kmem_rcu_head *head = __atomic_exchange_n(&under_way, NULL, __ATOMIC_ACQ_REL);

		if (head)
			at_its_end(head);
		if (goes_on)
			others_object();
		sem_post(&ended);
	}
	return unused;
}

void __real_km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void __wrap_km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	if (!is_main) {
		__real_km_os_wait(word, value, ms);
		return;
	}
	waits++;
	if (!reads)
		end_one();
}

static void begin(void)
{
	pthread_t thread;

	is_main = true;
	sem_init(&end, 0, 0);
	sem_init(&ended, 0, 0);
	NEED(pthread_create(&thread, NULL, run, NULL) == 0);
	NEED(kmem_set_rcu(&rcu) == 0);
}

/* ------------------------------------------------------------------ until a refusal */

static struct node *node[4 * COUNT];
static unsigned count;

static void fill(struct mem_cgroup *group, struct kmem_cache *cache)
{
	struct node *one;

	for (count = 0; count < 4 * COUNT; node[count++] = one) {
		/* The first makes a private group's cache. */
		gfp_t gfp = count ? GFP_NOWAIT : GFP_KERNEL;

		one = cache ? kmem_cache_alloc(cache, gfp) : kmalloc_in(group, BYTES, gfp);
		if (!one)
			break;
	}
	NEED(count > COUNT / 2 && count < 4 * COUNT, "%u", count);
}

static void free_later(void)
{
	for (unsigned i = 0; i < count; i++)
		kfree_rcu(node[i], rcu);
}

static void limit_of(struct mem_cgroup *group)
{
	NEED(mem_cgroup_set_max(group, LIMIT) == 0);
	fill(group, NULL);
	free_later();
	waits = 0;
	/* A request that may not wait is refused. */
	CHECK(!kmalloc_in(group, BYTES, GFP_NOWAIT) && !waits);
	struct node *one = kmalloc_in(group, BYTES, GFP_KERNEL);
	CHECK(one && waits);
	kfree(one);
	/* All bytes are back. */
	CHECK(charge(group, LIMIT - 4 * BYTES));
	mem_cgroup_uncharge(group, LIMIT - 4 * BYTES);
	mem_cgroup_put(group);
}

static void groups_limit(void)
{
	begin();
	limit_of(group_below(group_below(NULL, "above"), "group"));
	limit_of(private_group("private"));
}

static void caches_limit(void)
{
	struct kmem_cache *cache = kmem_cache_create("limited", BYTES, NULL, 0);

	begin();
	NEED(kmem_cache_set_limit(cache, LIMIT) == 0);
	fill(NULL, cache);
	free_later();
	struct node *one = kmem_cache_alloc(cache, GFP_KERNEL);
	CHECK(one && waits);
	kmem_cache_free(cache, one);
	kmem_cache_destroy(cache);
}

static bool refuse(const char *what)
{
	(void)what;
	return true;
}

/* Nothing more is to be had of the system. */
static void systems_limit(void)
{
	static struct node *all[400000];
	unsigned had = 0;

	begin();
	struct node *first = kmalloc(BYTES, GFP_KERNEL);
	NEED(first);
	km_os_fault = refuse;
	while (had < 400000 && (all[had] = kmalloc(BYTES, GFP_NOWAIT)))
		had++;
	NEED(had && had < 400000);
	for (unsigned i = 0; i < had; i++)
		kfree_rcu(all[i], rcu);
	struct node *one = kmalloc(BYTES, GFP_KERNEL);
	CHECK(one && waits);
	km_os_fault = NULL;
	kfree(one);
	kfree(first);
}

/* Each end of a grace period finds objects that wait for the next one, and gives the refused request no memory. */
static void others_go_on(void)
{
	struct mem_cgroup *group = group_below(NULL, "group");
	struct kmem_cache *cache = kmem_cache_create("limited", BYTES, NULL, 0);

	begin();
	NEED(mem_cgroup_set_max(group, LIMIT) == 0 && kmem_cache_set_limit(cache, LIMIT) == 0);
	fill(group, NULL);
	goes_on = true;
	others_object();
	waits = 0;
	/* Perhaps one is under way, and what waits now is free after the next one. */
	CHECK(!kmalloc_in(group, BYTES, GFP_KERNEL) && waits && waits <= 2, "%u", waits);
	waits = 0;
	CHECK(!kmalloc_in(group, BYTES, GFP_KERNEL | __GFP_NORETRY) && waits && waits <= 2, "%u", waits);
	free_later();
	fill(NULL, cache);
	waits = 0;
	CHECK(!kmem_cache_alloc(cache, GFP_KERNEL) && waits && waits <= 2, "%u", waits);
	goes_on = false;
	free_later();
	kvfree_rcu_barrier();
	kmem_cache_destroy(cache);
	mem_cgroup_put(group);
}

/* The thread may be a reader. */
static void nothing_ends(void)
{
	struct mem_cgroup *group = group_below(NULL, "group");

	begin();
	NEED(mem_cgroup_set_max(group, LIMIT) == 0);
	fill(group, NULL);
	reads = true;
	free_later();
	CHECK(!kmalloc_in(group, BYTES, GFP_KERNEL) && waits && waits < 20);
	waits = 0;
	CHECK(!kmalloc_in(group, BYTES, GFP_KERNEL) && !waits);
	reads = false;
	kvfree_rcu_barrier();
	void *one = kmalloc_in(group, BYTES, GFP_KERNEL);
	CHECK(one);
	kfree(one);
	mem_cgroup_put(group);
}

/* ------------------------------------------------------------------ a quarantine, and the process's limit */

/* Freed objects are in another size's quarantine, and in its sheaves. */
static void quarantined(struct mem_cgroup *group)
{
	for (int round = 0; round < 3; round++)
		for (size_t bytes = 500; bytes <= 8000; bytes *= 2) {
			void *object[4 * LIMIT / 500];
			unsigned had = 0;

			while (had < LIMIT / bytes * 3 / 4) {
				object[had] = group ? kmalloc_in(group, bytes, GFP_KERNEL) : kmalloc(bytes, GFP_KERNEL);
				if (!object[had])
					break;
				had++;
			}
			CHECK(had == LIMIT / bytes * 3 / 4 || bytes > 4096, "%zu bytes: %u", bytes, had);
			while (had)
				kfree(object[--had]);
		}
}

static void in_quarantine(void)
{
	struct mem_cgroup *group = group_below(NULL, "group"), *private = private_group("private");

	NEED(mem_cgroup_set_max(group, LIMIT) == 0 && mem_cgroup_set_max(private, LIMIT) == 0);
	quarantined(group);
	quarantined(private);
	mem_cgroup_put(group);
	mem_cgroup_put(private);
}

static void processes_limit(void)
{
	begin();
	fill(NULL, NULL);
	free_later();
	struct node *one = kmalloc(BYTES, GFP_KERNEL);
	CHECK(one && waits);
	kfree(one);
}

static const struct test_case cases[] = {
	{ "a group's limit", groups_limit }, { "a cache's limit", caches_limit },
	{ "the system's", systems_limit }, { "nothing ends", nothing_ends },
	{ "others go on", others_go_on },
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "waits for grace") |
		       again(argv[0], "process", "memcg_limit:1M") |
		       again(argv[0], "quarantine", "hardened:1,quarantine:1");
	if (strcmp(argv[1], "process") == 0)
		processes_limit();
	else
		in_quarantine();
	return failures != 0;
}
