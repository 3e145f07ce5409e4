/*
 * cached_huge_blocks.c: freed blocks above 4 MiB keep their memory for the next requests. A program that replaces
 * blocks makes no mapping after the first swing; a program that frees all blocks keeps none; a reused block is not
 * reported as zeros. Cached blocks go by age, on demand, after a refused mapping or mremap, with less memory in use,
 * and with smaller blocks in use instead. A purge ends, with any frees of other threads meanwhile. Protected memory of
 * the last user is accessible again. Not with nodes: large blocks begin as the system makes them, and none is cached.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "page/huge.h"
#include "page/huge_cache.h"
#include "os/os.h"

#define MIB	((size_t)1 << 20)
#define BLOCKS	20u

static struct {
	char *p;
	size_t bytes;
} blocks[BLOCKS];
static unsigned maps, refuse_remaps, refuse_unprotects;
static bool scarce;			/* the system has no memory while a block is cached */

static size_t cached(void)
{
	return km_huge_cache.pages;
}

static bool count(const char *call)
{
	bool map = !strcmp(call, "map"), remap = !strcmp(call, "remap");

	maps += map;
	if (scarce && cached() && (map || remap || !strcmp(call, "reserve") || !strcmp(call, "commit")))
		return true;
	if (remap && refuse_remaps)
		return refuse_remaps--;
	if (!strcmp(call, "unprotect") && refuse_unprotects)
		return refuse_unprotects--;
	return false;
}

static uint64_t any(void)
{
	static uint64_t state = 1;

	return (state = state * 6364136223846793005ull + 1442695040888963407ull) >> 33;
}

static void replace(unsigned i)
{
	size_t bytes = 5 * MIB + any() % (20 * MIB);
	bool zero;
	char *p = km_huge_alloc(bytes, 1, &zero);

	NEED(p);
	/* The last user wrote the first and the last word. */
	if (zero)
		NEED(!p[0] && !p[bytes - 1]);
	memset(p, 1, sizeof(long));
	memset(p + bytes - sizeof(long), 1, sizeof(long));
	if (blocks[i].p)
		NEED(km_huge_free(blocks[i].p));
	blocks[i].p = p;
	blocks[i].bytes = bytes;
}

static void free_all(void)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		NEED(km_huge_free(blocks[i].p));
		NEED(!km_huge_free(blocks[i].p));
		blocks[i].p = NULL;
	}
}

static void swing(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		replace(i);
	for (unsigned i = 0; i < 400; i++)
		replace((unsigned)(any() % BLOCKS));
	maps = 0;
	for (unsigned i = 0; i < 100; i++)
		replace((unsigned)(any() % BLOCKS));
}

static void all_at_once(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		replace(i);
	free_all();
	NEED(!cached());
}

static void replaced(void)
{
	struct kmem_stats stats;
	size_t used, kept;

	swing();
	NEED(maps <= 2);
	kmem_get_stats(&stats);
	used = stats.mapped_bytes / 4096;
	kept = cached();
	NEED(kept && kept <= used && stats.pages_free_dirty >= kept);
	kmem_shrink_all();
	kmem_get_stats(&stats);
	NEED(!cached() && stats.mapped_bytes / 4096 == used);
	free_all();
	NEED(!cached());
	/* Or what comes next would be another swing. */
	kmem_shrink_all();
}

/* Large blocks and smaller ones in turn: cached blocks of one kind give way to the other kind, in use or free. */
static void by_turns(void)
{
	enum { MANY = 24 * 1024 / 16, FEW = 4 };
	static void *p[MANY];
	struct kmem_stats stats;

	kmem_shrink_all();
	for (unsigned turn = 0; turn < 12; turn++) {
		const unsigned count = turn % 2 ? FEW : MANY;

		for (unsigned i = 0; i < count; i++) {
			p[i] = turn % 2 ? kvmalloc(24 * MIB / FEW, GFP_KERNEL) : kmalloc(16384, GFP_KERNEL);
			NEED(p[i]);
			memset(p[i], 1, 16384);
		}
		kmem_tick();
		kmem_get_stats(&stats);
		CHECK(stats.pages_free_dirty * 4096 <= 20 * MIB, "turn %u: %lu KiB lie ready", turn,
		      stats.pages_free_dirty * 4);
		for (unsigned i = 0; i < count; i++)
			kvfree(p[i]);
	}
	kmem_shrink_all();
}

/* A request for zeros gets zeros. */
static void zeros(void)
{
	for (unsigned i = 0; i < 40; i++) {
		size_t bytes = 6 * MIB + any() % (5 * MIB);
		char *p = kvmalloc(bytes, GFP_KERNEL), *q;

		NEED(p);
		memset(HELD(p), 1, ksize(p));
		kvfree(p);
		q = kvzalloc(bytes - any() % MIB, GFP_KERNEL);
		NEED(q);
		for (size_t k = 0; k < 4 * MIB; k += 512)
			NEED(!q[k]);
		/* kvrealloc may grow up to here. */
		for (size_t k = ksize(q) - 4096; k < ksize(q); k++)
			NEED(!q[k]);
		kvfree(q);
	}
	kmem_shrink_all();
}

static void by_age(void)
{
	swing();
	NEED(cached());
	km_huge_purge(1000000);
	NEED(cached());
	usleep(20000);
	km_huge_purge(5);
	NEED(!cached());
	free_all();
	/* And the learnt demand goes, also without a cached block. */
	km_huge_purge(0);
	swing();
	free_all();
	usleep(20000);
	km_huge_purge(5);
	NEED(!cached());
	for (int i = 0; i < 200; i++)
		km_huge_purge(1000000);
	all_at_once();
	kmem_shrink_all();
}

static void refused(void)
{
	bool zero;

	swing();
	NEED(cached());
	/* Cached blocks may be the missing memory. */
	scarce = true;
	char *p = km_huge_alloc(200 * MIB, 1, &zero);
	NEED(p && zero && !cached());
	scarce = false;
	NEED(km_huge_free(p));
	swing();
	NEED(cached());
	/* A block that cannot grow is freed, and a new one is made. */
	refuse_remaps = 1;
	for (unsigned i = 0; refuse_remaps; i++) {
		NEED(i < 1000);
		replace(i % BLOCKS);
	}
	free_all();
	kmem_shrink_all();
	NEED(!cached());
}

static void *held[BLOCKS];

static void hold(size_t bytes)
{
	bool zero;

	for (unsigned i = 0; i < BLOCKS; i++)
		NEED((held[i] = km_huge_alloc(bytes, 1, &zero)));
}

static void drop(unsigned count)
{
	for (unsigned i = BLOCKS - count; i < BLOCKS; i++)
		NEED(km_huge_free(held[i]));
}

/* A resize lowers the memory in use as a free does, and the bound of cached blocks with it. */
static void resized(void)
{
	hold(40 * MIB);
	drop(4);
	NEED(cached() == 160 * MIB / 4096);
	for (unsigned i = 0; i < BLOCKS - 4; i++)
		NEED((held[i] = km_huge_resize(held[i], 5 * MIB)));
	NEED(cached() <= 16 * 5 * MIB / 4 / 4096);
	for (unsigned i = 0; i < BLOCKS - 4; i++)
		NEED(km_huge_free(held[i]));
	kmem_shrink_all();
	NEED(!cached());
}

/* A program that allocates and frees all its blocks again and again, and then stops. */
static void silent(void)
{
	bool zero;

	for (int i = 0; i < 8; i++)
		NEED(km_huge_free(km_huge_alloc(500 * MIB, 1, &zero)));
	NEED(cached() <= 64 * MIB / 4096);
	for (int i = 0; i < 8; i++)
		NEED(km_huge_free(km_huge_alloc(40 * MIB, 1, &zero)));
	NEED(cached() == 40 * MIB / 4096);
	kmem_shrink_all();
}

static unsigned unmaps;

/* While one block goes, another thread frees one. */
static bool free_another(const char *call)
{
	bool zero;

	if (strcmp(call, "unmap") != 0)
		return false;
	NEED(++unmaps < 1000);
	NEED(km_huge_free(km_huge_alloc(8 * MIB, 1, &zero)));
	return false;
}

/* A purge of all cached blocks ends, although other threads go on freeing. */
static void others_free(void)
{
	hold(40 * MIB);
	drop(4);
	km_os_fault = free_another;
	NEED(km_huge_purge(0) >= 160 * MIB);
	km_os_fault = count;
	for (unsigned i = 0; i < BLOCKS - 4; i++)
		NEED(km_huge_free(held[i]));
	kmem_shrink_all();
}

/* In a program with such blocks only, the clock also advances. */
static void by_age_alone(void)
{
	hold(8 * MIB);
	drop(2);
	for (unsigned i = 0; cached() > 8 * MIB / 4096; i++) {
		void *p = kvmalloc(8 * MIB, GFP_KERNEL);

		NEED(p && i < 30000);
		kvfree(p);
		usleep(1000);
	}
	for (unsigned i = 0; i < BLOCKS - 2; i++)
		NEED(km_huge_free(held[i]));
	kmem_shrink_all();
}

/* As under mlockall(MCL_FUTURE) with a limit: a growing block gets a cached block instead. */
static void grown(void)
{
	hold(40 * MIB);
	drop(4);
	NEED(cached());
	scarce = true;
	char *p = km_huge_resize(held[0], 60 * MIB);
	NEED(p && !cached());
	scarce = false;
	NEED(km_huge_free(p));
	for (unsigned i = 1; i < BLOCKS - 4; i++)
		NEED(km_huge_free(held[i]));
	kmem_shrink_all();
}

/* A protected block, wholly or in part, is freed: the next owner may write to the block, and resize the block. */
static void protected(void)
{
	bool zero;

	hold(40 * MIB);
	for (unsigned i = 0; i < 60; i++) {
		size_t from = i % 3 ? 4 * MIB * (i % 5) : 0, bytes = (35 + i % 3 * 5) * MIB;
		char *p = held[i % 4];

		NEED(mprotect(p + from, 8 * MIB, i % 2 ? PROT_READ : PROT_NONE) == 0 && km_huge_free(p));
		NEED((held[i % 4] = p = km_huge_alloc(bytes, 1, &zero)));
		for (size_t k = 0; k < bytes; k += MIB)
			p[k] = 1;
	}
	/* If the system refuses the reset, the block is unmapped, and the next block is another. */
	kmem_shrink_all();
	refuse_unprotects = 1;
	NEED(mprotect(held[0], MIB, PROT_READ) == 0 && km_huge_free(held[0]) && !cached() && !refuse_unprotects);
	NEED((held[0] = km_huge_alloc(40 * MIB, 1, &zero)) && zero);
	*(char *)held[0] = 1;
	for (unsigned i = 0; i < BLOCKS; i++)
		NEED(km_huge_free(held[i]));
	kmem_shrink_all();
	NEED(!cached());
}

int main(void)
{
	NEED(slab_is_available());
	km_os_fault = count;
	all_at_once();
	replaced();
	by_turns();
	all_at_once();
	zeros();
	by_age();
	refused();
	resized();
	silent();
	others_free();
	by_age_alone();
	grown();
	protected();
	NEED(!kmem_check_all());
	return 0;
}
