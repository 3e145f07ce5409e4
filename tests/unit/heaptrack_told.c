/*
 * heaptrack_told: with heaptrack in the process the library reports each allocation and free: through every function
 * that heaptrack does not replace itself, for example memalign and pvalloc, and in bulk. Objects of a prefilled sheaf
 * are reported when the sheaf is filled, and the rest when the sheaf goes back. The test defines heaptrack's two
 * functions.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdlib.h>

#include "kit/api.h"
#include "ext/usdt/usdt.h"

#define MOST 4096u
static struct { const void *p; size_t bytes; } live[MOST];
static unsigned came, went;

void heaptrack_malloc(void *p, size_t bytes)
{
	unsigned at = 0;

	while (at < MOST && live[at].p && live[at].p != p)
		at++;
	NEED(at < MOST);
	came += !live[at].p;
	live[at].p = p;
	live[at].bytes = bytes;
}

void heaptrack_free(void *p)
{
	for (unsigned i = 0; i < MOST; i++)
		if (live[i].p == p) {
			live[i].p = NULL;
			went++;
			return;
		}
}

static void *by_memalign(void) { return memalign(256, 300); }
static void *by_pvalloc(void) { return pvalloc(300); }
static void *by_libc_memalign(void) { void *__libc_memalign(size_t, size_t); return __libc_memalign(64, 300); }
static void *by_kmalloc(void) { return kmalloc(300, GFP_KERNEL); }
static void *by_large_kmalloc(void) { return kmalloc(300000, GFP_KERNEL); }

static void one(void *(*get)(void), size_t least)
{
	unsigned before = came, gone_before = went;
	void *p = get();
	bool found = false;

	/* The compiler assumes that memalign changes no static variable of this file. */
	__asm__ volatile("" : : : "memory");

	NEED(p && came == before + 1, "%u came", came - before);
	for (unsigned i = 0; i < MOST; i++)
		found |= live[i].p == p && live[i].bytes >= least;
	NEED(found);
	free(p);
	NEED(went == gone_before + 1);
}

static void doors(void)
{
	/* The first miss detects the tracer. */
	for (unsigned i = 0; i < 100; i++)
		free(malloc(3000 * i));
	for (unsigned i = 0; i < 100; i++) {
		one(by_memalign, 300);
		one(by_pvalloc, 300);
		one(by_libc_memalign, 300);
		one(by_kmalloc, 300);
		one(by_large_kmalloc, 300000);
	}
}

static void sheaves(void)
{
	struct kmem_cache *cache = make("in sheaves", 96);
	void *taken[5];

	for (unsigned i = 0; i < 100; i++)
		free(malloc(3000 * i));
	for (unsigned round = 0; round < 100; round++) {
		unsigned before = came, gone_before = went;
		struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 20);

		NEED(sheaf);
		for (unsigned i = 0; i < 5; i++)
			NEED((taken[i] = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaf)));
		CHECK(came - before >= 20, "%u came of 20", came - before);
		kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
		kmem_cache_free_bulk(cache, 5, taken);
		CHECK_EQUAL(came - before, went - gone_before);
	}
	gone(cache);
}

static const struct test_case cases[] = { { "doors", doors }, { "sheaves", sheaves } };
API_MAIN(cases)
