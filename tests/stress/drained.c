/*
 * drained: threads allocate and free by kmalloc and kfree, as fast as they can, while another thread drains and
 * reopens the CPUs' sheaves of this cache all the time. No object is allocated twice. The tested fault needs a CPU
 * that stops in the middle of a sequence without an abort: rare, but an emulated machine with more CPUs than the real
 * one (tests/system/kernels) shows the fault within seconds. SECONDS=n. Disciplines: all.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#define SIZE	64u
#define TAKEN	0x6e656b6174756f79ul

static struct {
	unsigned long twice;
	int stop;
} world;

static void *churn(void *unused)
{
	unsigned long *held[8] = { NULL };

	for (unsigned turn = 0; !__atomic_load_n(&world.stop, __ATOMIC_RELAXED); turn++) {
		unsigned long **slot = &held[turn * 5 % 8];

		if (*slot) {
			__atomic_store_n(*slot, 0, __ATOMIC_RELAXED);
			kfree(*slot);
		}
		*slot = kmalloc(SIZE, GFP_KERNEL);
		if (*slot && __atomic_exchange_n(*slot, TAKEN, __ATOMIC_RELAXED) == TAKEN)
			__atomic_fetch_add(&world.twice, 1, __ATOMIC_RELAXED);
	}
	for (unsigned i = 0; i < 8; i++)
		if (held[i]) {
			__atomic_store_n(held[i], 0, __ATOMIC_RELAXED);
			kfree(held[i]);
		}
	return unused;
}

int main(void)
{
	const char *wanted = getenv("SECONDS");
	long seconds = wanted ? atol(wanted) : 2;
	void *probe = kmalloc(SIZE, GFP_KERNEL);
	struct kmem_cache *cache = kmem_cache_of(probe);
	unsigned long drains = 0;
	pthread_t threads[2];

	kfree(probe);
	for (unsigned i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, churn, NULL))
			return 1;
	for (time_t end = time(NULL) + seconds; time(NULL) < end && !world.twice; drains++)
		kmem_cache_shrink(cache);
	__atomic_store_n(&world.stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	int damages = kmem_check_all();
	printf("%lu drains, %lu objects given out twice, %d damages\n", drains, world.twice, damages);
	return world.twice || damages;
}
