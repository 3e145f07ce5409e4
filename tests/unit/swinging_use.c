/*
 * swinging_use.c: a program with a swinging use of memory keeps its pages, also where no sheaves keep its objects.
 * Memory released by the bound and soon
 * allocated again raises the bound by as much: the second swing makes some system calls, and later swings none,
 * neither for pages nor for fences. The extra bound fades with time, kmem_shrink_all forgets it, and a program with
 * one fall is followed down, from any level. With hardened: own_addresses:0, because here pages go from one name to
 * another.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "kit/clock.h"
#include "page/arena.h"
#include "os/os.h"
#include "kit/inside.h"

TEST_IS_INSIDE

#define SIZE		4096u
#define OBJECTS		16384u		/* 64 MiB */
#define SWINGS		6
#define FEW		768u		/* 3 MiB */
#define FLOOR_PAGES	256u

static void *objects[OBJECTS];
static unsigned purges, fences;

static bool count(const char *call)
{
	purges += !strcmp(call, "purge");
	fences += !strcmp(call, "fence");
	return false;
}

static void rise_by(struct kmem_cache *cache, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
}

static void fall_by(struct kmem_cache *cache, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		kmem_cache_free(cache, objects[i]);
}

static void rise(struct kmem_cache *cache)
{
	rise_by(cache, OBJECTS);
}

static void fall(struct kmem_cache *cache)
{
	fall_by(cache, OBJECTS);
}

static size_t dirty(void)
{
	struct km_arena_stats stats;

	km_arena_get_stats(&stats);
	return stats.pages.dirty_pages;
}

/* True if memory follows the fall of a program without swings. */
static bool once(struct kmem_cache *cache, unsigned count)
{
	kmem_shrink_all();
	rise_by(cache, count);
	purges = 0;
	fall_by(cache, count);
	return purges && dirty() <= FLOOR_PAGES + km_pages_used() / 4;
}

int main(void)
{
	struct kmem_cache *cache = kmem_cache_create("swings", SIZE, 0, SLAB_NO_SHEAVES, NULL);

	NEED(cache);
	km_arena_set(false, 1000000);
	km_os_fault = count;
	NEED(once(cache, FEW) && once(cache, OBJECTS) && !km_pages_swing());

	for (int i = 0; i < SWINGS; i++) {
		purges = fences = 0;
		rise(cache);
		fall(cache);
	}
	NEED(km_pages_swing() && !purges && !fences);
	NEED(dirty() > OBJECTS / 2 && dirty() <= OBJECTS * 5 / 4);

	/* Forgotten by a demand for all memory, and with time. */
	NEED(once(cache, OBJECTS) && !km_pages_swing());
	rise(cache);
	fall(cache);
	NEED(km_pages_swing());
	for (int i = 0; km_pages_swing(); i++) {
		NEED(i < 200);
		km_pages_purge(1000000);
	}
	kmem_cache_destroy(cache);
	NEED(!km_arena_check());
	return 0;
}
