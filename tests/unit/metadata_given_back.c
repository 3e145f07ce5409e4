/*
 * metadata_given_back.c: metadata goes back to the system by wholly free pages, and is zeros when allocated again;
 * the metadata of private groups goes back after their end; and calls to a destroyed cache are still reported.
 * With hardened: own_addresses:0, because here pages go from one name to another.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/random.h"
#include "slab/engine.h"
#include "page/metadata.h"

#define PIECES	6000u
#define GROUPS	600u

static bool refused;

int __real_km_os_purge(void *p, size_t bytes);
int __wrap_km_os_purge(void *p, size_t bytes)
{
	return refused ? -ENOMEM : __real_km_os_purge(p, bytes);
}

/* ------------------------------------------------------------------ pieces */

static struct {
	unsigned char *p;
	size_t bytes;
} piece[PIECES];

static bool all(const unsigned char *p, unsigned char value, size_t bytes)
{
	return p[0] == value && !memcmp(p, p + 1, bytes - 1);
}

/* Mostly small pieces; each is zeros, aligned, and filled with its number from then on. */
static void take(unsigned i)
{
	size_t bytes = 64;

	while (bytes < 16384 && random_number() % 3)
		bytes *= 2;
	piece[i].bytes = bytes -= random_number() % (bytes / 2);
	NEED((piece[i].p = km_metadata_alloc(bytes, true)));
	CHECK(all(piece[i].p, 0, bytes));
	while (bytes & (bytes - 1))
		bytes += bytes & -bytes;
	CHECK((uintptr_t)piece[i].p % (bytes < 8192 ? bytes : 8192) == 0);
	memset(piece[i].p, (unsigned char)(i | 1), piece[i].bytes);
}

static void give(unsigned i)
{
	CHECK(all(piece[i].p, (unsigned char)(i | 1), piece[i].bytes));
	km_metadata_free(piece[i].p, piece[i].bytes);
	piece[i].p = NULL;
}

static void pieces(void)
{
	size_t before = km_metadata_committed_bytes();

	for (int round = 0; round < 12; round++) {
		/* All of them go, or every second one. */
		for (unsigned i = 0; i < PIECES; i++)
			if (!piece[i].p)
				take(i);
		size_t most = km_metadata_committed_bytes();
		for (unsigned i = 0; i < PIECES; i++)
			if (round % 3 == 0 || random_number() % 2)
				give(i);
		refused = round % 4 == 3;
		km_metadata_trim(true);
		refused = false;
		CHECK(km_metadata_committed_bytes() < most);
		CHECK(round % 3 || km_metadata_committed_bytes() <= before + (1 << 19));
	}
	for (unsigned i = 0; i < PIECES; i++)
		if (piece[i].p)
			give(i);
	km_metadata_trim(true);
}

/* A tick gives 2 MiB back, such as the sheaves of a phase. */
static void by_a_tick(void)
{
	void *sheaf[512];

	for (unsigned i = 0; i < 512; i++) {
		NEED((sheaf[i] = km_metadata_alloc(4096, true)));
		memset(sheaf[i], 1, 4096);
	}
	size_t most = km_metadata_committed_bytes();
	for (unsigned i = 0; i < 512; i++)
		km_metadata_free(sheaf[i], 4096);
	km_metadata_trim(false);
	CHECK(km_metadata_committed_bytes() + (1 << 20) <= most);
}

/* ------------------------------------------------------------------ groups */

static unsigned long meta_bytes(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.meta_bytes;
}

/* The end of the last group releases the metadata, without a request. */
static void groups(void)
{
	static struct mem_cgroup *group[GROUPS];
	unsigned long before = meta_bytes();

	for (unsigned i = 0; i < GROUPS; i++) {
		NEED((group[i] = mem_cgroup_create(NULL, "one", MEM_CGROUP_PRIVATE)));
		MEMCG_SCOPE(group[i]);
		for (size_t bytes = 16; bytes <= 2048; bytes *= 2)
			NEED(kmalloc(bytes, GFP_KERNEL_ACCOUNT));
	}
	unsigned long most = meta_bytes();
	CHECK(most - before > GROUPS * 8192);
	for (unsigned i = 0; i < GROUPS; i++) {
		NEED(mem_cgroup_destroy_all(group[i], NULL, NULL) == 0);
		mem_cgroup_put(group[i]);
	}
	CHECK(meta_bytes() < before + (most - before) / 2);
	kmem_shrink_all();
	CHECK(meta_bytes() < before + (most - before) / 4);
	NEED(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ calls to a destroyed cache */

static void destroyed(void)
{
	struct kmem_cache *cache = kmem_cache_create("destroyed", 100, NULL, 0);

	NEED(cache);
	/* volatile hides the destruction from the compiler. */
	struct kmem_cache *volatile going = cache;
	kmem_cache_destroy(going);
	pieces();
	kmem_shrink_all();
	CHECK(cache->layout.dead && !strcmp(kmem_cache_name(cache), "destroyed"));
	/* The next cache may get this memory, and no other data. */
	struct kmem_cache *next = kmem_cache_create("next", 100, NULL, 0);
	CHECK(next == cache && !next->layout.dead);
	kmem_cache_destroy(next);
}

int main(void)
{
	kmem_shrink_all();
	pieces();
	by_a_tick();
	destroyed();
	groups();
	return failures != 0;
}
