/*
 * many_slabs.c: a private group may have any number of slabs of a cache. No piece of metadata grows with their
 * number, because the largest piece has 4 MiB. In this test no piece is above 32 KiB, and a fourth of the wanted
 * pieces is refused at first. Disciplines: all.
 */
#include <stdint.h>

#include <kmem/stats.h>

#include "kit/groups.h"

#define SLABS	20011u		/* of a page each */
#define LARGEST	(32u << 10)

static unsigned large, wanted;
static bool scarce;

void *__real_km_metadata_alloc(size_t bytes, bool may_wait);
void *__wrap_km_metadata_alloc(size_t bytes, bool may_wait)
{
	large += bytes > LARGEST;
	/* One in four, at no regular distance. */
	if (bytes > LARGEST || (scarce && ++wanted * 2654435761u >> 30 == 0))
		return NULL;
	return __real_km_metadata_alloc(bytes, may_wait);
}

static void *objects[SLABS];
static struct kmem_cache *cache;
static unsigned long seen;

static void count(struct kmem_cache *of, void *object, void *arg)
{
	(void)arg;
	NEED(of == cache);
	seen += *(unsigned *)object;
}

/* The caller repeats a refused request. */
static unsigned long fill(struct mem_cgroup *group, bool with_refusals)
{
	unsigned long sum = 0;

	scarce = with_refusals;
	for (unsigned i = 0; i < SLABS; i++) {
		unsigned failed = 0;

		while (!(objects[i] = kmem_cache_alloc_in(cache, group, GFP_KERNEL | __GFP_NOWARN)))
			NEED(++failed < 100);
		*(unsigned *)objects[i] = i;
		sum += i;
	}
	scarce = false;
	NEED(!large);
	return sum;
}

static void many_slabs(const char *engine)
{
	struct kmem_cache_args args = { .engine = engine };
	struct mem_cgroup *group;

	cache = kmem_cache_create("pages", 4096, &args, SLAB_ACCOUNT);
	NEED(cache);
	for (int round = 0; round < 3; round++) {
		group = private_group("many");
		kmem_cache_free(cache, kmem_cache_alloc_in(cache, group, GFP_KERNEL));
		/* The later rounds have the slabs of this round's child cache. */
		unsigned long sum = fill(group, !round);
		NEED(wanted >= SLABS / 4096);
		if (round < 2) {
			/* In an order of their own: the last place is filled with what lay at another. */
			for (unsigned i = 0, at = 0; i < SLABS; i++, at = (at + 7919) % SLABS)
				kmem_cache_free(cache, objects[at]);
		} else {
			seen = 0;
			NEED(mem_cgroup_destroy_all(group, count, NULL) == 0 && seen == sum);
		}
		kmem_cache_shrink(cache);
		NEED(drained(group) == 0 && kmem_check_all() == 0);
		mem_cgroup_put(group);
	}
	kmem_cache_destroy(cache);
}

int main(void)
{
	many_slabs("slab");
	many_slabs("slub");
	return 0;
}
