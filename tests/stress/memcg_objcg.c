/*
 * memcg_objcg.c: one group is charged for all objects of a cache, so that frees go to the CPU's charged sheaf without
 * a comparison; then a second group comes. Repeated, each time with a new cache: moving threads, and handlers that
 * interrupt them, allocate the first group's objects and free each other's, by every call, while stocks are drained
 * and the cache is shrunk; at some moment one of the threads begins to allocate for a second group, a private one, or
 * uncharged. No object is allocated twice or as another group's, and in the end no group is charged. Arguments: seed,
 * rounds. Disciplines: all
 */
#include "kit/events.h"
#include "kit/groups.h"
#include "kit/random.h"

#include <signal.h>
#include <sys/time.h>

#define THREADS	3
#define STEPS	20000
#define BOXES	256
#define MOST	40
#define TAKEN	0x6e656b6174756f79ul

enum { FIRST, SECOND, PRIVATE, UNCHARGED, OBJCGS };

static struct kmem_cache *cache;
static struct mem_cgroup *groups[OBJCGS];
static void *boxes[BOXES];
static pthread_barrier_t barrier;
static unsigned long twice, wrong;	/* atomic; allocated twice; another group's */
static int running;			/* atomic: threads at work */
static unsigned seed = 1, rounds = 150;

static _Thread_local struct {
	uint64_t random;
	volatile bool inside;		/* the cache is there, for a handler too */
} here;

static unsigned below(unsigned n)
{
	return random_next(&here.random) % n;
}

static void count(unsigned long *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static unsigned long *mark_of(void *object)
{
	return (unsigned long *)object + 1;
}

static void *swap(unsigned box, void *object)
{
	if (object && __atomic_exchange_n(mark_of(object), TAKEN, __ATOMIC_RELAXED) == TAKEN)
		count(&twice);
	object = __atomic_exchange_n(&boxes[box], object, __ATOMIC_ACQ_REL);
	if (object)
		__atomic_store_n(mark_of(object), 0, __ATOMIC_RELAXED);
	return object;
}

static void check_objcg(void *object, int objcg)
{
	struct mem_cgroup *group = mem_cgroup_from_obj(object);

	if (group != groups[objcg])
		count(&wrong);
	mem_cgroup_put(group);
}

/* By a random call. */
static void give(void **objects, unsigned n)
{
	switch (below(4)) {
	case 0:
		kmem_cache_free_bulk(cache, n, objects);
		break;
	case 1:
		kfree_bulk(n, objects);
		break;
	case 2:
		for (unsigned i = 0; i < n; i++)
			kfree(objects[i]);
		break;
	default:
		for (unsigned i = 0; i < n; i++)
			kmem_cache_free(cache, objects[i]);
	}
}

static void step(int objcg)
{
	gfp_t gfp = below(4) ? GFP_KERNEL : GFP_NOWAIT | __GFP_NOWARN;
	unsigned n = below(8) ? 1 : 1 + below(MOST), old = 0;
	void *objects[MOST];
	MEMCG_SCOPE(groups[objcg]);

	if (n == 1 ? !(objects[0] = kmem_cache_alloc(cache, gfp)) : !kmem_cache_alloc_bulk(cache, gfp, n, objects))
		return;
	if (below(8) == 0)
		check_objcg(objects[n - 1], objcg);
	for (unsigned i = 0; i < n; i++)
		if ((objects[old] = swap(below(BOXES), objects[i])))
			old++;
	give(objects, old);
}

/* In the name of the interrupted thread's group. */
static void strike(int signal)
{
	if (!here.inside)
		return;
	unsigned box = (unsigned)(here.random >> 40) % BOXES;
	void *object = swap(box, kmem_cache_alloc(cache, GFP_NOWAIT | __GFP_NOWARN));
	if (object)
		kfree(object);
}

static void *work(void *number)
{
	unsigned me = (unsigned)(uintptr_t)number;

	here.random = (uint64_t)seed * 1000 + me;
	for (unsigned round = 0; round < rounds; round++) {
		int later = me ? FIRST : SECOND + (int)(round % (OBJCGS - 1));
		unsigned when = below(STEPS);

		pthread_barrier_wait(&barrier);
		here.inside = true;
		for (unsigned i = 0; i < STEPS; i++) {
			if (below(200) == 0)
				go_to_cpu(cpu_at((int)below(2)));
			step(i < when ? FIRST : later);
		}
		here.inside = false;
		__atomic_fetch_sub(&running, 1, __ATOMIC_RELEASE);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* False: something is wrong. */
static bool look(unsigned round)
{
	for (unsigned i = 0; i < BOXES; i++) {
		void *object = swap(i, NULL);

		if (object)
			kmem_cache_free(cache, object);
	}
	unsigned long left = 0;
	kmem_cache_shrink(cache);
	for (int objcg = 0; objcg < UNCHARGED; objcg++)
		left |= drained(groups[objcg]);
	if (left || twice || wrong)
		printf("round %u: %lu twice, %lu another's, charged:", round, twice, wrong);
	for (int objcg = 0; objcg < UNCHARGED && (left || twice || wrong); objcg++)
		printf(" %lu%s", (unsigned long)mem_cgroup_current(groups[objcg]), objcg + 1 < UNCHARGED ? "," : "\n");
	return !left && !twice && !wrong;
}

static bool run_round(unsigned round)
{
	struct kmem_cache_args args = { .engine = round % 2 ? "slab" : "sheaf" };
	unsigned drains = 0;

	cache = kmem_cache_create_args("objcg", round % 4 < 2 ? 200 : 1000, &args, SLAB_ACCOUNT | SLAB_NO_MERGE);
	if (!cache)
		abort();
	__atomic_store_n(&running, THREADS, __ATOMIC_RELAXED);
	pthread_barrier_wait(&barrier);
	for (; __atomic_load_n(&running, __ATOMIC_ACQUIRE); drains++) {
		if (drains % 2)
			kmem_cache_shrink(cache);
		else
			mem_cgroup_drain(groups[FIRST]);
		sched_yield();
	}
	pthread_barrier_wait(&barrier);
	bool good = look(round);
	kmem_cache_destroy(cache);
	return good;
}

static void strike_often(void)
{
	struct sigaction action = { .sa_handler = strike, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 300 }, { 0, 300 } };
	sigset_t alarm;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	/* Not the draining thread. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
}

int main(int argc, char **argv)
{
	unsigned round = 0;
	pthread_t threads[THREADS];
	bool good = true;

	if (argc > 1)
		seed = (unsigned)atoi(argv[1]);
	if (argc > 2)
		rounds = (unsigned)atoi(argv[2]);
	cpu_at(0);
	for (int objcg = 0; objcg < UNCHARGED; objcg++)
		groups[objcg] = mem_cgroup_create(NULL, "objcg", objcg == PRIVATE ? MEM_CGROUP_PRIVATE : 0);
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			abort();
	strike_often();
	for (; round < rounds && good; round++)
		good = run_round(round);
	if (!good)
		return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int objcg = 0; objcg < UNCHARGED; objcg++)
		mem_cgroup_put(groups[objcg]);
	int damages = kmem_check_all();
	printf("ok   seed %u, %u rounds, %d damages\n", seed, round, damages);
	return damages != 0;
}
