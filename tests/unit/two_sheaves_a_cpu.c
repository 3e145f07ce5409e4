/*
 * two_sheaves_a_cpu.c: a CPU keeps two sheaves. Disciplines: all. Allocations and frees in turns, at any edge of a
 * sheaf, stay on the CPU: with both sheaves there, neither refill nor spill is called. A swap that shares leaves both
 * sheaves about half full, and every object is still there, once.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>

#include <kmem/kmem.h>

#include "kit/clock.h"
#include "kit/cpus.h"
#include "alloc/fast_path.h"

#define OBJECTS 400
#define SWINGS 50

static const struct km_engine *inner;
static struct km_engine counting;
static unsigned long calls;

static void **count_refill(struct kmem_cache *cache, const struct km_request *request, void **empty)
{
	calls++;
	return inner->array.refill(cache, request, empty);
}

static void **count_spill(struct kmem_cache *cache, void **full)
{
	calls++;
	return inner->array.spill(cache, full);
}

/* One more and one less, `reach` steps to each side. */
static void swing(struct kmem_cache *cache, void **objects, unsigned *count, unsigned reach)
{
	for (unsigned i = 0; i < reach; i++)
		kmem_cache_free(cache, objects[--*count]);
	for (unsigned i = 0; i < reach; i++)
		objects[(*count)++] = kmem_cache_alloc(cache, GFP_KERNEL);
}

/* A cache whose sheaves hold `capacity` objects, and never grow. */
static struct kmem_cache *create(unsigned capacity)
{
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_cache *cache = kmem_cache_create("spare", 64, &args, 0);

	cache->tune.busy_capacity = (uint16_t)capacity;
	km_alloc_resize(cache, capacity);
	return cache;
}

/*
 * The worst level of all. A new level may call once, and a short move off this CPU is not tested here: so the
 * smallest figure of some tries counts.
 */
static unsigned long worst(unsigned capacity, unsigned reach)
{
	struct kmem_cache *cache = create(capacity);
	static void *objects[OBJECTS];
	unsigned long most = 0;
	unsigned count = 0;

	counting = *(inner = cache->layout.engine);
	counting.array.refill = count_refill;
	counting.array.spill = count_spill;
	cache->layout.engine = &counting;
	while (count < 3 * capacity + reach)
		objects[count++] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (unsigned level = 0; level < 2 * capacity; level++) {
		unsigned long least = ~0ul;

		for (int try = 0; try < 5 && least; try++) {
			swing(cache, objects, &count, reach);
			calls = 0;
			for (int i = 0; i < SWINGS; i++)
				swing(cache, objects, &count, reach);
			least = calls < least ? calls : least;
		}
		most = least > most ? least : most;
		kmem_cache_free(cache, objects[--count]);
	}
	while (count)
		kmem_cache_free(cache, objects[--count]);
	cache->layout.engine = inner;
	kmem_cache_destroy(cache);
	return most;
}

/* Counts the objects of the CPU's main and spare sheaf. */
static void look(struct kmem_cache *cache, size_t *main_count, size_t *spare)
{
	char *area = km_area((unsigned)sched_getcpu());
	uintptr_t top = *(uintptr_t *)(area + cache->fast.pcs.slot);
	void **block = (void **)(area + top);

	*main_count = top ? km_sheaf_objects(&cache->fast.pcs, block) : 0;
	*spare = km_pcs_count_cpu(&cache->fast.pcs, (unsigned)sched_getcpu()) - *main_count;
}

/* One sheaf full, the other empty, then a swap. Returns: false for a wrong state afterwards. */
static bool shares(unsigned capacity, bool for_pop, bool share)
{
	struct kmem_cache *cache = create(capacity);
	void *objects[OBJECTS];
	size_t first, second;
	unsigned count = 0;

	/*
	 * Objects of two sheaves are allocated and freed, and one sheaf of them allocated: main is empty,
	 * the spare full.
	 */
	for (unsigned i = 0; i < 4 * capacity; i++)
		objects[count++] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (unsigned i = 0; i < 2 * capacity + 1; i++)
		kmem_cache_free(cache, objects[--count]);
	do {
		objects[count++] = kmem_cache_alloc(cache, GFP_KERNEL);
		look(cache, &first, &second);
	} while (first);
	if (!for_pop)
		km_pcs_swap(&cache->fast.pcs, true, false);
	bool swapped = km_pcs_swap(&cache->fast.pcs, for_pop, share);
	look(cache, &first, &second);
	bool right = swapped && first + second == capacity;
	if (share)
		right &= first - capacity / 2 <= 1 && second - capacity / 2 <= 1;
	else
		right &= first == (for_pop ? capacity : 0);
	/* All different, also from the allocated ones. */
	for (size_t i = 0; i < capacity; i++)
		objects[count++] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < i; j++)
			right &= objects[i] != objects[j];
	while (count)
		kmem_cache_free(cache, objects[--count]);
	kmem_cache_destroy(cache);
	return right;
}

int main(void)
{
	static const unsigned capacities[] = { 2, 6, 14, 30, 62 };
	unsigned wrong = 0;

	stay_here();
	for (unsigned i = 0; i < sizeof(capacities) / sizeof(*capacities) * 4; i++) {
		bool right = false;

		/* An interruption counts as a miss: then again. */
		for (int try = 0; try < 5 && !right; try++)
			right = shares(capacities[i / 4], i & 1, (i & 2) != 0);
		if (right)
			continue;
		printf("FAIL capacity %u, swap for a %s%s\n", capacities[i / 4], i & 1 ? "pop" : "push",
		       i & 2 ? ", shared" : "");
		wrong++;
	}
	for (unsigned i = 0; i < sizeof(capacities) / sizeof(*capacities); i++)
		for (unsigned reach = 1; reach <= capacities[i]; reach += (reach + 1) / 2) {
			unsigned long most = worst(capacities[i], reach);

			if (!most)
				continue;
			printf("FAIL capacity %u: %lu calls of the engine in %u swings by %u\n",
			       capacities[i], most, SWINGS, reach);
			wrong++;
		}
	return wrong != 0;
}
