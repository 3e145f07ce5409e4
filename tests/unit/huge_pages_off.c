/*
 * huge_pages_off: a program without huge pages (PR_SET_THP_DISABLE) gets none ahead from the library, nor small pages
 * in their place: only touched memory is resident. After the program permits huge pages again, they come; and the
 * library asks the system only now and then. With hardened: own_addresses:0, because here pages go from one name to
 * another.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "os/os.h"

#define OBJECTS	16384u		/* 64 MiB */

static void *object[OBJECTS];
static unsigned asked;

static bool count(const char *call)
{
	asked += !strcmp(call, "huge");
	return false;
}

/* Returns: the most pages free and resident while objects were allocated and touched. */
static unsigned long grow(struct kmem_cache *cache)
{
	unsigned long most = 0;

	for (unsigned i = 0; i < OBJECTS; i++) {
		struct kmem_stats stats;

		NEED((object[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
		memset(object[i], 1, 4096);
		kmem_get_stats(&stats);
		most = stats.pages_free_dirty > most ? stats.pages_free_dirty : most;
	}
	for (unsigned i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, object[i]);
	kmem_shrink_all();
	return most;
}

int main(void)
{
	struct kmem_cache *cache = kmem_cache_create("pages", 4096, NULL, 0);

	NEED(cache);
	km_os_fault = count;
	NEED(!prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	CHECK(grow(cache) == 0);
	/* A huge page's worth of slabs between two questions, about. */
	CHECK(asked <= OBJECTS / 256 + 2);
	NEED(!prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
	asked = 0;
	CHECK(grow(cache) > 0);
	CHECK(asked > 0);
	return failures != 0;
}
