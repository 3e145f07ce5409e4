/* calls.h: the model of a cache under test, and each function that allocates or frees its objects. */
#ifndef TESTS_RSEQ_CALLS_H
#define TESTS_RSEQ_CALLS_H

#include <kmem/inline.h>
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "malloc/malloc.h"
#include "fixture.h"
#include "alloc/profile_record.h"
#include "alloc/alloc_ops.h"
#include "page/alloc_map.h"
#include "page/zone.h"

enum { OBJECT_BYTES = 1024, MAX_LIVE = 4096, CAPACITY = 14, SLAB_LIMIT = 11, SPARE = 48 };

/* The functions for the cache. */
enum family { CACHE, KMALLOC, MALLOC };

/* C++'s operator new, with and without an exception, and delete; C23's frees. */
void *_Znwm(size_t size);
void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow);
void *_ZnwmSt11align_val_t(size_t size, size_t align);
void *_Znam(size_t size);
void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow);
void _ZdlPv(void *p);
void _ZdaPv(void *p);
void _ZdlPvSt11align_val_t(void *p, size_t align);
void _ZdlPvm(void *p, size_t size);
void _ZdaPvm(void *p, size_t size);
void _ZdlPvmSt11align_val_t(void *p, size_t size, size_t align);
void _ZdaPvmSt11align_val_t(void *p, size_t size, size_t align);
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);
/* Further names; a compiler may give them hits of their own. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void __libc_free(void *p);
void cfree(void *p);
void *memalign(size_t align, size_t size);
void *valloc(size_t size);
void *pvalloc(size_t size);
void *mallocx(size_t size, int flags);
void dallocx(void *p, int flags);
void sdallocx(void *p, size_t size, int flags);

static struct {
	struct kmem_cache *cache, *other;
	enum family family;
	void *little;			/* what realloc makes larger */
	int capacity;			/* of a block */
	uint64_t *live[MAX_LIVE];
	volatile unsigned count;
} model;

static uint64_t tag_of(const uint64_t *object)
{
	return (uintptr_t)object ^ 0x5eed5eed5eed5eed;
}

/* Takes an object into the model's hand. */
static void adopt(void *p)
{
	uint64_t *object = p;

	need(p, "alloc failed");
	need(object[0] != tag_of(object), "%p given twice", p);
	need(model.count < MAX_LIVE, "the model is full");
	object[0] = object[OBJECT_BYTES / 8 - 1] = tag_of(object);
	model.live[model.count] = object;
	model.count++;
}

/* Gives an object out of the model's hand. */
static void *part_with(void)
{
	need(model.count, "the model has no objects left");
	model.count--;
	uint64_t *object = model.live[model.count];
	need(object[0] == tag_of(object) && object[OBJECT_BYTES / 8 - 1] == tag_of(object),
	     "%p was written to while it was ours", (void *)object);
	object[0] = object[OBJECT_BYTES / 8 - 1] = 0;
	return object;
}

/* ------------------------------------------------------------------ operations */

static void *any_alloc(gfp_t gfp)
{
	switch (model.family) {
	case CACHE: return kmem_cache_alloc(model.cache, gfp);
	case KMALLOC: return kmalloc(OBJECT_BYTES, gfp);
	default: return malloc(OBJECT_BYTES);
	}
}

static void get_one(void)
{
	void *p = any_alloc(GFP_KERNEL);

	need(p, "alloc failed");
	adopt(p);
}

static void get_inline(void)
{
	void *p = model.family == MALLOC ? _Znwm(OBJECT_BYTES) :
					   kmem_cache_alloc_inline(model.cache, GFP_KERNEL);

	need(p, "inline alloc failed");
	adopt(p);
}

/*
 * With validated frees: malloc's hit, as if the cache were malloc's. Returns: NULL for a miss served by another
 * cache.
 */
static void *by_validated_malloc(void)
{
	struct kmem_cache **shown = &km_malloc_first[km_malloc_step(OBJECT_BYTES)];

	km_store_release(shown, model.cache);
	void *p = km_malloc_miss(OBJECT_BYTES);
	km_store_release(shown, NULL);
	need(p, "malloc failed");
	if (km_page_head(km_page_of(p))->cache == model.cache)
		return p;
	free(p);
	return NULL;
}

static void get_inline_any(void)
{
	static volatile gfp_t gfp = GFP_KERNEL;
	void *p = model.cache->layout.live_shift && model.cache->fast.pcs.slot ? by_validated_malloc() : NULL;

	if (!p)
		p = model.family == MALLOC ? _ZnwmRKSt9nothrow_t(OBJECT_BYTES, "") :
					     kmem_cache_alloc_inline(model.cache, gfp);

	need(p, "inline alloc failed");
	adopt(p);
}

static void get_zeroed(void)
{
	uint64_t *p = model.family == CACHE   ? kmem_cache_zalloc(model.cache, GFP_KERNEL) :
		      model.family == KMALLOC ? kzalloc(OBJECT_BYTES, GFP_KERNEL) :
						calloc(1, OBJECT_BYTES);

	need(p, "zalloc failed");
	for (unsigned i = 0; i < OBJECT_BYTES / 8; i++)
		need(p[i] == 0, "zalloc: word %u is not zero", i);
	adopt(p);
}

/* malloc's objects, by each aligning function. */
static void get_aligned(unsigned how)
{
	void *p = NULL;

	switch (how) {
	case 0: p = aligned_alloc(64, OBJECT_BYTES - 8); break;
	case 1: p = _ZnwmSt11align_val_t(OBJECT_BYTES - 8, 64); break;
	default: need(posix_memalign(&p, 64, OBJECT_BYTES - 8) == 0, "posix_memalign failed");
	}
	need(p && (uintptr_t)p % 64 == 0, "%p is not aligned", p);
	adopt(p);
}

/* An object of whole pages: not in the model, so freed at once. */
static void pass_pages(void *p)
{
	need(p, "no pages");
	free(p);
}

/* By each further allocation function. The second request for pages is a hit. */
static void get_named(void)
{
	switch (model.family) {
	case CACHE:
		adopt(kmem_cache_alloc_node(model.cache, GFP_KERNEL, NUMA_NO_NODE));
		adopt(km_alloc_ops(model.cache)->alloc(model.cache, GFP_KERNEL, NUMA_NO_NODE));
		break;
	case KMALLOC:
		adopt(kmalloc_node(OBJECT_BYTES, GFP_KERNEL, NUMA_NO_NODE));
		adopt(kzalloc_node(OBJECT_BYTES, GFP_KERNEL, NUMA_NO_NODE));
		adopt(kvmalloc(OBJECT_BYTES, GFP_KERNEL));
		adopt(kvzalloc(OBJECT_BYTES, GFP_KERNEL));
		break;
	default:
		adopt(_Znam(OBJECT_BYTES));
		adopt(_ZnamRKSt9nothrow_t(OBJECT_BYTES, ""));
		adopt(__libc_malloc(OBJECT_BYTES));
		adopt(__libc_calloc(1, OBJECT_BYTES));
		adopt(mallocx(OBJECT_BYTES, 0));
		adopt(memalign(64, OBJECT_BYTES - 8));
		for (int i = 0; i < 2; i++) {
			pass_pages(valloc(OBJECT_BYTES));
			pass_pages(pvalloc(OBJECT_BYTES));
		}
	}
}

static void get_larger(void)
{
	void *p = model.family == MALLOC ? realloc(model.little, OBJECT_BYTES) :
					   krealloc(model.little, OBJECT_BYTES, GFP_KERNEL);

	need(p, "realloc failed");
	adopt(p);
}

static bool try_many(unsigned n)
{
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	void *objects[64];
	bool done = true;

	if (model.family == CACHE)
		done = kmem_cache_alloc_bulk(model.cache, gfp, n, objects) == (int)n;
	else if (model.family == KMALLOC)
		done = kmalloc_bulk(OBJECT_BYTES, gfp, n, objects) == (int)n;
	for (unsigned i = 0; model.family == MALLOC && i < n; i++) {
		void *p = malloc(OBJECT_BYTES);

		if (!p)
			return false;
		adopt(p);
	}
	if (model.family == MALLOC)
		return true;

	for (unsigned i = 0; done && i < n; i++)
		adopt(objects[i]);
	return done;
}

static void get_many(unsigned n)
{
	need(try_many(n), "bulk alloc of %u failed", n);
}

static void put_one(void)
{
	void *p = part_with();

	switch (model.family) {
	case CACHE: kmem_cache_free(model.cache, p); break;
	case KMALLOC: kfree(p); break;
	default: free(p);
	}
}

static void put_inline(void)
{
	void *p = part_with();

	if (model.family == MALLOC)
		_ZdlPv(p);
	/* A chain has no inline hit: by the copy of accounting's frees. */
	else if (model.cache->layout.engine->front == KM_PERCPU_FREELIST)
		km_plain_free(model.cache, p);
	else
		kmem_cache_free_inline(model.cache, p);
}

/* By each further free function. */
static void put_named(void)
{
	if (model.family == MALLOC) {
		_ZdaPv(part_with());
		__libc_free(part_with());
		cfree(part_with());
		dallocx(part_with(), 0);
		sdallocx(part_with(), OBJECT_BYTES, 0);
	} else {
		/* As a cache without an id. */
		uint32_t id = model.cache->ext.live_id;

		model.cache->ext.live_id = UINT32_MAX;
		kmem_cache_free(model.cache, part_with());
		model.cache->ext.live_id = id;

		kfree(part_with());
		kvfree(part_with());
	}
}

static void put_many(unsigned n)
{
	void *objects[64];

	for (unsigned i = 0; i < n; i++)
		objects[i] = part_with();
	if (model.family == CACHE)
		kmem_cache_free_bulk(model.cache, n, objects);
	else if (model.family == KMALLOC)
		kfree_bulk(n, objects);
	for (unsigned i = 0; model.family == MALLOC && i < n; i++)
		free(objects[i]);
}

/* Neighbours in the array are from slabs far apart, some from the CPU's own. */
static void put_mixed(void)
{
	void *objects[61];
	unsigned n = sizeof(objects) / sizeof(*objects);

	while (model.count < n)
		get_one();
	for (unsigned i = 0; i < n; i++)
		objects[i * 17 % n] = part_with();
	if (model.family == CACHE)
		kmem_cache_free_bulk(model.cache, n, objects);
	else
		kfree_bulk(n, objects);
}

/* Uses prefilled sheaves; one object is taken from each, and the rest goes back. */
static void use_sheaves(unsigned count)
{
	struct slab_sheaf *sheaves[2];

	for (unsigned i = 0; i < count; i++) {
		sheaves[i] = kmem_cache_prefill_sheaf(model.cache, GFP_KERNEL, 3);
		need(sheaves[i], "prefill failed");
		adopt(kmem_cache_alloc_from_sheaf(model.cache, GFP_NOWAIT, sheaves[i]));
	}
	for (unsigned i = 0; i < count; i++)
		kmem_cache_return_sheaf(model.cache, GFP_KERNEL, sheaves[i]);
}

/*
 * Two frees, the first as in a handler that interrupted the slow path: if the first misses, its object waits at the
 * second.
 */
static void put_deferred(void)
{
	struct km_busy_was was = km_busy_begin();

	put_one();
	km_busy_end(was);
	put_one();
}

static unsigned take_home(void **objects, unsigned count)
{
	struct km_request request = km_request_of(GFP_KERNEL, NUMA_NO_NODE);
	unsigned got = model.cache->layout.engine->take(model.cache, &request, objects, count);

	need(got == count, "the engine gives %u of %u objects", got, count);
	return got;
}

/* Objects in the model's hand, never on the CPU's sheaf before. */
static void stock_model(unsigned count)
{
	void *objects[SPARE];
	struct km_busy_was was = km_busy_begin();

	take_home(objects, count);
	km_busy_end(was);
	for (unsigned i = 0; i < count; i++) {
		if (model.cache->layout.live_shift)
			*km_alloc_map_find(objects[i], model.cache->layout.live_shift) = km_alloc_map_proof(objects[i]);
		adopt(objects[i]);
	}
}

#endif
