/*
 * busy_kept.c: a call that finds its thread busy leaves the thread busy in the same way. KM_BUSY_IN_OPERATION permits a
 * fork of the thread, and does not become KM_BUSY after a call with locks of its own. Disciplines: all.
 */
#include <kmem/kmem.h>
#include <kmem/memcg.h>

#include "kit/check.h"
#include "memcg/memcg_group.h"
#include "cache/cache.h"
#include "page/huge.h"

static struct kmem_cache *cache;
static void *mapped;

static void shrink(void) { kmem_cache_shrink(cache); }
static void shrink_all(void) { kmem_shrink_all(); }
static void validate(void) { kmem_cache_validate(cache); }
static void lock_groups(void) { km_memcg_lock(); km_memcg_unlock(); }
static void lock_caches(void) { km_registry_lock(); km_registry_unlock(); }
static void find_mapped(void) { km_huge_search(); NEED(km_huge_bytes(mapped)); }
static void ask_usable(void) { NEED(ksize(mapped)); }

int main(void)
{
	static void (*const calls[])(void) = {
		shrink, shrink_all, validate, lock_groups, lock_caches, find_mapped, ask_usable,
	};
	static const enum km_busy ways[] = { KM_BUSY_NOT, KM_BUSY, KM_BUSY_IN_OPERATION };

	NEED((cache = kmem_cache_create("kept", 64, NULL, 0)));
	NEED((mapped = kvmalloc(KMALLOC_MAX_SIZE + 1, GFP_KERNEL)));
	for (unsigned way = 0; way < sizeof(ways) / sizeof(ways[0]); way++)
		for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
			km_thread.busy = (uint8_t)ways[way];
			calls[i]();
			if (km_thread.busy != ways[way])
				printf("call %u: %u became %u\n", i, (unsigned)ways[way], km_thread.busy);
			failures += km_thread.busy != ways[way];
			km_thread.busy = KM_BUSY_NOT;
		}
	kvfree(mapped);
	kmem_cache_destroy(cache);
	return failures != 0;
}
