/*
 * zeroed: each function with __GFP_ZERO returns zeros over any former contents, and leaves the bytes beside the
 * object alone. For kmalloc all bytes of ksize are zeros, because krealloc grows into these bytes. Disciplines: all.
 */
#define _GNU_SOURCE
#include <kmem/memcg.h>
#include <sys/time.h>

#include "kit/api.h"
#include "kit/cpus.h"
#include "os/os.h"

enum { NEIGHBOURS = 10, DIRT = 0xee };

/* A gfp unknown to the compiler goes through the exported function's own test. */
static gfp_t any(gfp_t gfp)
{
	static volatile gfp_t hidden;

	hidden = gfp;
	return hidden;
}

static void *plainly(size_t size) { return kzalloc(size, GFP_KERNEL); }
static void *atomically(size_t size) { return kzalloc(size, GFP_NOWAIT); }
static void *by_flag(size_t size) { return kmalloc(size, any(GFP_KERNEL | __GFP_ZERO)); }
static void *by_constant(size_t size) { return kmalloc(size, GFP_KERNEL | __GFP_ZERO); }
static void *twice_said(size_t size) { return kzalloc(size, any(GFP_KERNEL | __GFP_ZERO)); }
static void *as_array(size_t size) { return kcalloc(1, size, GFP_KERNEL); }
static void *of_bytes(size_t size) { return kcalloc(size, 1, GFP_KERNEL); }
static void *array_by_flag(size_t size) { return kmalloc_array(1, size, GFP_KERNEL | __GFP_ZERO); }
static void *on_any_node(size_t size) { return kzalloc_node(size, GFP_KERNEL, NUMA_NO_NODE); }
static void *on_node(size_t size) { return kzalloc_node(size, GFP_KERNEL, 0); }
static void *there_only(size_t size) { return kzalloc_node(size, GFP_KERNEL | __GFP_THISNODE, 0); }
static void *here_only(size_t size) { return kzalloc(size, GFP_KERNEL | __GFP_THISNODE); }
static void *nowhere(size_t size) { return kzalloc_node(size, GFP_KERNEL, 1 << 20); }
static void *node_by_flag(size_t size) { return kmalloc_node(size, GFP_KERNEL | __GFP_ZERO, 0); }
static void *of_any_length(size_t size) { return kvzalloc(size, GFP_KERNEL); }
static void *array_of_any_length(size_t size) { return kvcalloc(1, size, GFP_KERNEL); }
static void *length_by_flag(size_t size) { return kvmalloc(size, any(GFP_KERNEL | __GFP_ZERO)); }
static void *charged(size_t size) { return kzalloc(size, GFP_KERNEL_ACCOUNT); }
static void *charged_by_flag(size_t size) { return kmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_ZERO); }
static void *many(size_t size)
{
	void *objects[3];

	if (!kmalloc_bulk(size, GFP_KERNEL | __GFP_ZERO, 3, objects))
		return NULL;
	kfree(objects[0]);
	kfree(objects[2]);
	return objects[1];
}

static void *(*const ways[])(size_t size) = {
	plainly, atomically, by_flag, by_constant, twice_said, as_array, of_bytes, array_by_flag, on_any_node, on_node,
	there_only, here_only, nowhere, node_by_flag, of_any_length, array_of_any_length, length_by_flag, charged,
	charged_by_flag, many,
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* Dirt in all usable bytes; for a charged object in its neighbours, too. */
static void *dirty(size_t size, gfp_t gfp)
{
	void *p = kmalloc(size, gfp);

	NEED(p && ksize(p) >= size);
	memset(HELD(p), DIRT, ksize(p));
	return p;
}

/* Every second neighbour is freed; objects in their place are zeros, and the others are unchanged. */
static void one_size(size_t size, unsigned way, gfp_t gfp)
{
	unsigned count = size > 100000 ? 2 : NEIGHBOURS;
	char *about[NEIGHBOURS];

	for (unsigned i = 0; i < count; i++)
		about[i] = dirty(size, gfp);
	for (unsigned i = 0; i < count; i += 2)
		kfree(about[i]);
	for (unsigned i = 0; i < count; i += 2) {
		about[i] = ways[way](size);
		NEED(about[i] && (uintptr_t)about[i] % 8 == 0);
		NEED(all(about[i], 0, ksize(about[i])));
		memset(HELD(about[i]), DIRT, ksize(about[i]));
	}
	for (unsigned i = 0; i < count; i++) {
		NEED(all(about[i], DIRT, ksize(about[i])));
		kfree(about[i]);
	}
}

/* The edges of each class of each engine, and whole pages; by the first way all small sizes. */
static void each_size(gfp_t gfp)
{
	for (unsigned way = 0; way < WAYS; way++) {
		for (size_t size = 1; size <= 260; size += !way || (size + 1) % 8 <= 1 ? 1 : 6)
			one_size(size, way, gfp);
		for (size_t size = 512; size <= 65536; size *= 2)
			for (size_t off = 0; off < 3; off++)
				one_size(size - 1 + off, way, gfp);
		one_size(300000, way, gfp);
	}
	NEED(kmem_check_all() == 0);
}

static void of_kmalloc(void)
{
	each_size(GFP_KERNEL);
}

static void of_kmalloc_charged(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "group", 0);

	NEED(group);
	set_active_memcg(group);
	each_size(GFP_KERNEL_ACCOUNT);
	mem_cgroup_drain(group);
	NEED(mem_cgroup_current(group) == 0);
	set_active_memcg(NULL);
	mem_cgroup_put(group);
}

static bool refuse(const char *call)
{
	(void)call;
	return true;
}

/* A block above the mapping size, with mappings refused by the system, is made of used pages. */
static void of_pages_that_were_used(void)
{
	enum { MIB = 1 << 20, BLOCKS = 40, FREED = 8 };
	void *blocks[BLOCKS];

	/* Side by side: of one node. */
	stay_here();
	for (unsigned i = 0; i < BLOCKS; i++)
		blocks[i] = dirty(MIB, GFP_KERNEL);
	for (unsigned i = 0; i < FREED; i++)
		kfree(blocks[BLOCKS / 2 + i]);
	km_os_fault = refuse;
	char *p = kvzalloc(KMALLOC_MAX_SIZE + 1, GFP_KERNEL);
	NEED(p && all(p, 0, ksize(p)));
	memset(p, DIRT, KMALLOC_MAX_SIZE + 1);
	p = kvrealloc(p, KMALLOC_MAX_SIZE + 1000, GFP_KERNEL | __GFP_ZERO);
	NEED(p && all(p + KMALLOC_MAX_SIZE + 1, 0, 999));
	km_os_fault = NULL;
	kvfree(p);
}

/* ------------------------------------------------------------------ caches */

static void *object_plainly(struct kmem_cache *cache) { return kmem_cache_zalloc(cache, GFP_KERNEL); }
static void *object_atomically(struct kmem_cache *cache) { return kmem_cache_zalloc(cache, GFP_NOWAIT); }
static void *object_by_flag(struct kmem_cache *cache) { return kmem_cache_alloc(cache, any(GFP_KERNEL | __GFP_ZERO)); }
static void *object_inline(struct kmem_cache *cache)
{
	return kmem_cache_alloc_inline(cache, GFP_KERNEL | __GFP_ZERO);
}
static void *object_on_node(struct kmem_cache *cache)
{
	return kmem_cache_alloc_node(cache, GFP_KERNEL | __GFP_ZERO, 0);
}
static void *object_there_only(struct kmem_cache *cache)
{
	return kmem_cache_alloc_node(cache, GFP_KERNEL | __GFP_ZERO | __GFP_THISNODE, 0);
}
static void *object_paid_for(struct kmem_cache *cache) { return kmem_cache_zalloc(cache, GFP_KERNEL_ACCOUNT); }

static void *(*const object_ways[])(struct kmem_cache *cache) = {
	object_plainly, object_atomically, object_by_flag, object_inline, object_on_node, object_there_only,
	object_paid_for,
};

static void of_cache(struct kmem_cache *cache)
{
	size_t size = kmem_cache_size(cache);
	char *about[NEIGHBOURS];

	for (unsigned way = 0; way < sizeof(object_ways) / sizeof(object_ways[0]); way++) {
		for (unsigned i = 0; i < NEIGHBOURS; i++) {
			about[i] = kmem_cache_alloc(cache, GFP_KERNEL);
			NEED(about[i]);
			memset(about[i], DIRT, size);
		}
		for (unsigned i = 0; i < NEIGHBOURS; i += 2)
			kmem_cache_free(cache, about[i]);
		for (unsigned i = 0; i < NEIGHBOURS; i += 2) {
			about[i] = object_ways[way](cache);
			NEED(about[i] && all(about[i], 0, size));
			memset(about[i], DIRT, size);
		}
		for (unsigned i = 0; i < NEIGHBOURS; i++) {
			NEED(all(about[i], DIRT, size));
			kmem_cache_free(cache, about[i]);
		}
	}
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(cache);
}

static void of_each_kind(void)
{
	static const slab_flags_t flags[] = {
		0, SLAB_CONSISTENCY_CHECKS, SLAB_NO_SHEAVES, SLAB_TYPESAFE_BY_RCU, SLAB_HWCACHE_ALIGN,
	};
	static const unsigned sizes[] = { 8, 20, 64, 100, 256, 1000, 5000, 20000 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned j = 0; j < sizeof(flags) / sizeof(flags[0]); j++)
			of_cache(kmem_cache_create("zeroed", sizes[i], 0, flags[j], NULL));
}

static void of_charged_caches(void)
{
	struct mem_cgroup *group[2] = { mem_cgroup_create(NULL, "one", 0), mem_cgroup_create(NULL, "two", 0) };
	struct kmem_cache *cache;

	for (unsigned i = 0; i < 4; i++) {
		NEED(cache = kmem_cache_create("charged", 100, 0, SLAB_ACCOUNT, NULL));
		set_active_memcg(group[i % 2]);
		of_cache(cache);
		mem_cgroup_drain(group[i % 2]);
		NEED(mem_cgroup_current(group[i % 2]) == 0);
	}
	set_active_memcg(NULL);
	mem_cgroup_put(group[0]);
	mem_cgroup_put(group[1]);
}

/* ------------------------------------------------------------------ constructors and handlers */

static void construct(void *object)
{
	memset(object, 0x77, 96);
}

static void use_constructed(void)
{
	struct kmem_cache *cache = kmem_cache_create("built", 96, 0, 0, construct);
	void *objects[70];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 70; i++) {
			objects[i] = i % 2 ? kmem_cache_zalloc(cache, GFP_KERNEL) :
					     kmem_cache_alloc(cache, any(GFP_KERNEL | __GFP_ZERO));
			NEED(objects[i] && all(objects[i], 0x77, 96));
		}
		for (int i = 0; i < 70; i++)
			kmem_cache_free(cache, objects[i]);
	}
	_exit(0);
}

/* The object keeps the constructor's contents, on a hit too, with one report. */
static void constructed(void)
{
	char text[4096];
	int lines;

	NEED(said(use_constructed, text, &lines) == 0);
	NEED(lines == 1 && strstr(text, "built") && strstr(text, "has a constructor"));
}

static struct kmem_cache *shared;
static volatile unsigned struck;

/* The handler leaves its objects dirty: the interrupted code may get the same object next. */
static void on_alarm(int number)
{
	char *p = kmem_cache_zalloc(shared, GFP_NOWAIT), *q = kzalloc(100, GFP_NOWAIT);

	(void)number;
	NEED((!p || all(p, 0, 200)) && (!q || all(q, 0, 100)));
	if (p) {
		memset(p, DIRT, 200);
		kmem_cache_free(shared, p);
	}
	if (q)
		memset(q, DIRT, 100);
	kfree(q);
	struck++;
}

static void in_handlers(void)
{
	struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { { 0, 0 }, { 0, 0 } };

	shared = make("shared", 200);
	signal(SIGALRM, on_alarm);
	NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (unsigned i = 0; i < 100000 || (struck < 20 && i < 100000000); i++) {
		char *p = kmem_cache_zalloc(shared, GFP_KERNEL), *q = kzalloc(100, GFP_KERNEL);

		NEED(p && q && all(p, 0, 200) && all(q, 0, 100));
		memset(p, DIRT, 200);
		memset(q, DIRT, 100);
		kmem_cache_free(shared, p);
		kfree(q);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	NEED(struck >= 20);
	gone(shared);
}

static const struct test_case cases[] = {
	{ "kmalloc's, by every function", of_kmalloc },
	{ "kmalloc's, charged", of_kmalloc_charged },
	{ "large blocks of used pages", of_pages_that_were_used },
	{ "caches of each kind", of_each_kind },
	{ "charged caches", of_charged_caches },
	{ "constructed objects stay so", constructed },
	{ "handlers that strike between", in_handlers },
};

API_MAIN(cases)
