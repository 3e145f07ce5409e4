/*
 * malloc_accounted.c: malloc charges groups during all other work: threads allocate, resize and free each other's
 * blocks in the name of groups that start, end and have limits. Children go on with them. Memory is released. And one
 * thread switches accounting on and off. Each block keeps its contents, a group with a limit is never above the
 * limit, and in the end, and in each child, all charges are zero. Arguments: seed, rounds. Disciplines: all
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/groups.h"
#include "kit/malloc.h"
#include "kit/random.h"

#define THREADS	4
#define TENANTS	8
#define BOXES	512
#define MAX	(512ul << 10)	/* of every second tenant */

struct block {
	uint32_t bytes, seed;
	unsigned char rest[];
};

static struct place {
	pthread_mutex_t lock;
	struct mem_cgroup *group;
} places[TENANTS];
static struct mem_cgroup *above;
static struct block *boxes[BOXES];
static int rounds = 8000, running;
static unsigned long refused;

static size_t size_of(uint64_t random)
{
	static const size_t most[] = { 64, 64, 500, 500, 3000, 30000, 100000, 400000, 5 << 20 };
	size_t all = most[random % 31 % (sizeof(most) / sizeof(most[0]))];

	return sizeof(struct block) + (random >> 8) % all;
}

/* Writes the beginning and the end; a large block is not written through. */
static void mark(struct block *block, size_t bytes, uint32_t seed)
{
	block->bytes = (uint32_t)bytes;
	block->seed = seed;
	block->rest[(bytes - sizeof(*block)) / 2] = (unsigned char)seed;
	if (bytes > sizeof(*block))
		((unsigned char *)block)[bytes - 1] = (unsigned char)(seed >> 8);
}

static void is_whole(const struct block *block)
{
	if (block->bytes > sizeof(*block))
		NEED(((const unsigned char *)block)[block->bytes - 1] == (unsigned char)(block->seed >> 8));
}

static struct block *get(uint64_t *random)
{
	size_t bytes = size_of(random_next(random));
	uint64_t how = random_next(random) % 4;
	/* At least a byte behind the head; mark() may write there. */
	struct block *block = how == 0 ? calloc(1, bytes + 1) : how == 1 ? aligned_alloc(64, bytes + 1) :
			      malloc(bytes + 1);

	if (!block) {
		NEED(errno == ENOMEM);
		__atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	mark(block, bytes, (uint32_t)random_next(random));
	return block;
}

static struct block *resized(struct block *block, uint64_t *random)
{
	size_t bytes = size_of(random_next(random));
	uint32_t seed = block->seed;
	struct block *same = realloc(block, bytes + 1);

	if (!same) {
		NEED(errno == ENOMEM);
		is_whole(block);
		return block;
	}
	NEED(same->seed == seed);
	mark(same, bytes, seed);
	return same;
}

static void replace(uint64_t random)
{
	struct mem_cgroup *fresh = group_of(above, "tenant", random >> 20 & 3 ? 0 : MEM_CGROUP_PRIVATE);
	struct place *place = &places[random % TENANTS];

	if (random % TENANTS % 2)
		mem_cgroup_set_max(fresh, MAX);
	pthread_mutex_lock(&place->lock);
	struct mem_cgroup *old = place->group;
	place->group = fresh;
	pthread_mutex_unlock(&place->lock);
	mem_cgroup_put(old);
}

static void step(uint64_t *random)
{
	struct place *place = &places[random_next(random) % TENANTS];
	struct mem_cgroup *group = NULL;

	if (random_next(random) % 8) {
		pthread_mutex_lock(&place->lock);
		group = mem_cgroup_get(place->group);
		pthread_mutex_unlock(&place->lock);
	}
	set_active_memcg(group);
	for (int i = 0; i < 8; i++) {
		struct block **box = &boxes[random_next(random) % BOXES];
		struct block *mine = random_next(random) % 4 ? get(random) : NULL;

		mine = __atomic_exchange_n(box, mine, __ATOMIC_ACQ_REL);
		if (!mine)
			continue;
		is_whole(mine);
		if (random_next(random) % 4 == 0)
			mine = __atomic_exchange_n(box, resized(mine, random), __ATOMIC_ACQ_REL);
		free(mine);
	}
	if (group && mem_cgroup_max(group) == MAX)
		NEED(mem_cgroup_current(group) <= MAX, "(%lu)", (unsigned long)mem_cgroup_current(group));
	set_active_memcg(NULL);
	mem_cgroup_put(group);
}

static void *works(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	for (int i = 0; i < rounds / THREADS; i++) {
		step(&random);
		if (random_next(&random) % 200 == 0)
			replace(random_next(&random));
		if (random_next(&random) % 500 == 0)
			kmem_shrink_all();
	}
	__atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Frees the blocks in the boxes; then each group is at 0. Without other threads. */
static void nothing_is_charged(void)
{
	set_active_memcg(NULL);
	for (int i = 0; i < BOXES; i++) {
		if (boxes[i])
			is_whole(boxes[i]);
		free(boxes[i]);
		boxes[i] = NULL;
	}
	for (int i = 0; i < TENANTS; i++)
		NEED(drained(places[i].group) == 0, "(tenant %d: %lu)", i,
		     (unsigned long)mem_cgroup_current(places[i].group));
	NEED(kmem_check_all() == 0);
}

/*
 * A child goes on by itself: the child allocates, switches and frees. Blocks in the hands of other threads are lost
 * there, and stay charged: so the child checks the charges of its own group only.
 */
static void child(uint64_t random)
{
	struct mem_cgroup *own = group_below(NULL, "child's");

	alarm(580);
	for (int i = 0; i < 20; i++) {
		NEED(mem_cgroup_account_malloc(i & 1) == 0);
		step(&random);
	}
	NEED(mem_cgroup_account_malloc(true) == 0);
	set_active_memcg(own);
	void *p = malloc(1000), *q = malloc(100000);
	NEED(p && q && drained(own) >= 101000);
	NEED(mem_cgroup_account_malloc(false) == 0);
	free(p);
	free(q);
	NEED(drained(own) == 0);
	_exit(0);
}

static void *switches(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	for (unsigned i = 0; __atomic_load_n(&running, __ATOMIC_ACQUIRE); i++) {
		NEED(mem_cgroup_account_malloc(random_next(&random) % 3) == 0);
		for (uint64_t turns = random_next(&random) % 64; turns; turns--)
			sched_yield();
		if (i % 64)
			continue;
		/* A child must not find the tests' own locks held. */
		for (int j = 0; j < TENANTS; j++)
			pthread_mutex_lock(&places[j].lock);
		pid_t pid = fork();
		for (int j = 0; j < TENANTS; j++)
			pthread_mutex_unlock(&places[j].lock);
		NEED(pid >= 0);
		if (!pid)
			child(random_next(&random));
		int status;
		NEED(waitpid(pid, &status, 0) == pid && status == 0, "(a child: %#x)", status);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)getpid();
	pthread_t threads[THREADS + 1];

	check_ours();
	if (argc > 2)
		rounds = atoi(argv[2]);
	above = group_below(NULL, "above");
	for (int i = 0; i < TENANTS; i++) {
		pthread_mutex_init(&places[i].lock, NULL);
		replace((uint64_t)i | (uint64_t)(i < TENANTS / 2) << 20);
	}
	running = THREADS;
	for (uintptr_t i = 0; i <= THREADS; i++)
		NEED(!pthread_create(&threads[i], NULL, i < THREADS ? works : switches, (void *)(seed * 16 + i)));
	for (int i = 0; i <= THREADS; i++)
		pthread_join(threads[i], NULL);
	nothing_is_charged();
	NEED(drained(above) == 0, "(%lu)", (unsigned long)mem_cgroup_current(above));
	printf("seed %lu, %d rounds, %lu refused\n", (unsigned long)seed, rounds, refused);
	return 0;
}
