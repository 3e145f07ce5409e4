/*
 * sanitizer_told: the library's calls to a sanitizer in the process. This program defines the functions of
 * AddressSanitizer, LeakSanitizer and ThreadSanitizer as mere bookkeeping: each requested byte is accessible from the
 * allocating call to the freeing call, and the sixteen bytes behind are not. A block that changes its owner is
 * released before the next acquire. The root regions are as long as the mapped memory. For each engine. The real
 * sanitizers, and valgrind, are in tests/system.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <kmem/memcg.h>

#include "kit/api.h"

#include "engines/slob/slob.h"
#include "os/sanitizer.h"

/* ------------------------------------------------------------------ the sanitizers */

/* A byte for each byte: inaccessible or not. In stretches, each made at the first write. */
#define STRETCH (1ul << 16)
#define STRETCHES (1ul << 31)
static char **poisoned;

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	NEED(p != MAP_FAILED);
	return p;
}

static void mark(const volatile void *p, size_t bytes, char value)
{
	for (uintptr_t at = (uintptr_t)p, end = at + bytes, n; at < end; at += n) {
		if (!poisoned)
			poisoned = map(STRETCHES * sizeof(*poisoned));
		char **stretch = &poisoned[at / STRETCH];

		n = STRETCH - at % STRETCH < end - at ? STRETCH - at % STRETCH : end - at;
		if (!*stretch && !value)
			continue;
		if (!*stretch)
			*stretch = map(STRETCH);
		memset(*stretch + at % STRETCH, value, n);
	}
}

static bool is_poisoned(const void *p)
{
	uintptr_t at = (uintptr_t)p;

	return poisoned && poisoned[at / STRETCH] && poisoned[at / STRETCH][at % STRETCH];
}

void __asan_poison_memory_region(const volatile void *p, size_t bytes);
void __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
void __lsan_register_root_region(const void *p, size_t bytes);
void __lsan_unregister_root_region(const void *p, size_t bytes);
void __tsan_acquire(void *p);
void __tsan_release(void *p);

void __asan_poison_memory_region(const volatile void *p, size_t bytes)
{
	mark(p, bytes, 1);
}

void __asan_unpoison_memory_region(const volatile void *p, size_t bytes)
{
	mark(p, bytes, 0);
}

static struct {
	const char *p;
	size_t bytes;
} roots[1000];
static unsigned root_count, unknown_roots;

void __lsan_register_root_region(const void *p, size_t bytes)
{
	NEED(root_count < 1000);
	roots[root_count].p = p;
	roots[root_count++].bytes = bytes;
}

void __lsan_unregister_root_region(const void *p, size_t bytes)
{
	for (unsigned i = 0; i < root_count; i++)
		if (roots[i].p == p && roots[i].bytes == bytes) {
			roots[i] = roots[--root_count];
			return;
		}
	unknown_roots++;
}

static bool is_in_root(const void *p, size_t bytes)
{
	for (unsigned i = 0; i < root_count; i++)
		if ((const char *)p >= roots[i].p && (const char *)p + bytes <= roots[i].p + roots[i].bytes)
			return true;
	return false;
}

/* For the observed address: the number of changes of its owner, and the last change in each direction. */
static const void *observed;
static unsigned long hands, released, acquired;

void __tsan_acquire(void *p)
{
	pthread_mutex_lock(&books);
	hands++;
	if (p == observed)
		acquired = hands;
	pthread_mutex_unlock(&books);
}

void __tsan_release(void *p)
{
	pthread_mutex_lock(&books);
	hands++;
	if (p == observed)
		released = hands;
	pthread_mutex_unlock(&books);
}

/* ------------------------------------------------------------------ checks */

/* Checks that all bytes are accessible, and no byte behind them: for a block of exactly this size. */
static void *look_at(void *p, size_t bytes, size_t behind, int line)
{
	const char *at = p;

	NEED(p, "line %d", line);
	for (size_t i = 0; i < bytes; i++)
		NEED(!is_poisoned(at + i), "line %d: byte %zu of %zu", line, i, bytes);
	for (size_t i = 0; i < behind; i++)
		NEED(is_poisoned(at + bytes + i), "line %d: byte %zu of %zu", line, bytes + i, bytes);
	NEED(is_in_root(p, bytes), "line %d: %zu bytes", line, bytes);
	return p;
}
#define living(p, bytes) look_at(p, bytes, KM_RED_ZONE, __LINE__)
/* A kmalloc block; engine slob cuts to the byte, and the next block's header is behind the block. */
#define living_block(p, bytes) look_at(p, bytes, slob ? KM_SLOB_HEADER : KM_RED_ZONE, __LINE__)

static void dead(const void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		NEED(is_poisoned((const char *)p + i), "byte %zu of %zu", i, bytes);
}

static void construct(void *object)
{
	for (int i = 0; i < 40; i++)
		NEED(!is_poisoned((char *)object + i));
	memset(object, 5, 40);
}

static void caches(void)
{
	for (unsigned size = 1; size < 300000; size += size / 2 + 1) {
		struct kmem_cache *cache = make("sized", size);
		char *p = living(kmem_cache_alloc(cache, GFP_KERNEL), size);
		char *q = living(kmem_cache_zalloc(cache, GFP_KERNEL), size);

		NEED(all(q, 0, size));
		kmem_cache_free(cache, p);
		dead(p, size);
		living(q, size);
		kmem_cache_free(cache, q);
		gone(cache);
	}
}

/* The constructor may write; the allocating caller may read its bytes. */
static void constructed(void)
{
	struct kmem_cache *cache = kmem_cache_create("built", 40, 0, 0, construct);
	void *objects[200];

	NEED(cache);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 200; i++)
			NEED(all(objects[i] = living(kmem_cache_alloc(cache, GFP_KERNEL), 40), 5, 40));
		for (int i = 0; i < 200; i++)
			kmem_cache_free(cache, objects[i]);
		dead(objects[0], 40);
	}
	gone(cache);
}

/* A reader with the address of such an object may read the object when free. */
static void typesafe(void)
{
	struct kmem_cache *cache = kmem_cache_create("typesafe", 64, NULL, SLAB_TYPESAFE_BY_RCU);
	char *p = kmem_cache_alloc(cache, GFP_KERNEL), *q = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(p && q);
	kmem_cache_free(cache, p);
	for (int i = 0; i < 64; i++)
		NEED(!is_poisoned(p + i) && !is_poisoned(q + i));
	kmem_cache_free(cache, q);
	kmem_cache_destroy(cache);
}

static void many(void)
{
	struct kmem_cache *cache = make("many", 100);
	void *objects[100];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects));
	for (int i = 0; i < 100; i++)
		living(objects[i], 100);
	kmem_cache_free_bulk(cache, 100, objects);
	for (int i = 0; i < 100; i++)
		dead(objects[i], 100);
	NEED(kmalloc_bulk(30, GFP_KERNEL, 100, objects));
	for (int i = 0; i < 100; i++)
		living_block(objects[i], 30);
	kfree_bulk(100, objects);
	for (int i = 0; i < 100; i++)
		dead(objects[i], 30);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 20);
	NEED(sheaf);
	void *p = living(kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT, sheaf), 100);
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
	kmem_cache_free(cache, p);
	dead(p, 100);
	gone(cache);
}

/* kmalloc's user may access the requested bytes, in any bucket; and the bytes of krealloc's last size. */
static void blocks(void)
{
	for (size_t size = 1; size < KMALLOC_MAX_SIZE / 3; size += size / 2 + 1) {
		char *p = living_block(kmalloc(size, GFP_KERNEL), size), *q;

		NEED(ksize(p) == size || size == 1);
		q = living_block(krealloc(p, size + 1, GFP_KERNEL), size + 1);
		q = living_block(krealloc(q, size * 3, GFP_KERNEL), size * 3);
		/* In slob, a block that krealloc leaves in place keeps its old end. */
		p = krealloc(q, size, GFP_KERNEL);
		NEED(p && (slob || living_block(p, size)));
		kfree(p);
		/* Another mapping may get the addresses next. */
		if (size < 1u << 20)
			dead(p, size);
		p = living_block(kzalloc(size, GFP_KERNEL), size);
		NEED(all(p, 0, size));
		kfree(p);
	}
	void *p = kmalloc_nolock(50, 0, NUMA_NO_NODE);
	if (p) {
		living_block(p, 50);
		kfree_nolock(p);
	}
}

/*
 * malloc's user may access all bytes of malloc_usable_size; a sanitizer that checks requested bytes has a malloc
 * of its own.
 */
static void *living_malloc(void *p, size_t bytes)
{
	NEED(p && malloc_usable_size(p) >= bytes, "%p: %zu of %zu", p, malloc_usable_size(p), bytes);
	return living_block(p, malloc_usable_size(p));
}

static void mallocs(void)
{
	for (size_t size = 1; size < 10u << 20; size += size / 2 + 1) {
		char *p = living_malloc(malloc(size), size);

		p = living_malloc(realloc(p, size + 1), size + 1);
		p = living_malloc(realloc(p, size * 2), size * 2);
		free(p);
		p = living_malloc(calloc(1, size), size);
		NEED(all(p, 0, size));
		free(living_malloc(realloc(p, size / 2 + 1), size / 2 + 1));
		p = living_malloc(aligned_alloc(256, size), size);
		NEED((uintptr_t)p % 256 == 0);
		free(p);
	}
}

/*
 * No other thread is asked about the state of its objects: the old owner releases an object before the new owner's
 * acquire.
 */
static void *take(void *arg)
{
	struct kmem_cache *cache = arg;
	void *objects[20];

	for (int i = 0; i < 20; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(objects[i]);
		if (objects[i] == observed)
			NEED(acquired > released);
	}
	for (int i = 0; i < 20; i++) {
		kmem_cache_free(cache, objects[i]);
		if (objects[i] == observed)
			NEED(released > acquired);
	}
	return NULL;
}

static void changing_hands(void)
{
	static const slab_flags_t flags[] = { 0, SLAB_TYPESAFE_BY_RCU };
	pthread_t other;

	for (int i = 0; i < 2; i++) {
		struct kmem_cache *cache = kmem_cache_create("handed", 64, NULL, flags[i]);
		void *p = kmem_cache_alloc(cache, GFP_KERNEL);

		observed = p;
		kmem_cache_free(cache, p);
		NEED(released && released > acquired);
		NEED(!pthread_create(&other, NULL, take, cache) && !pthread_join(other, NULL));
		take(cache);
		kmem_cache_destroy(cache);
		observed = NULL;
		released = acquired = 0;
	}
	for (size_t size = 100; size < KMALLOC_MAX_SIZE; size *= 9) {
		void *p = kmalloc(size, GFP_KERNEL);

		observed = p;
		acquired = released = 0;
		kfree(p);
		NEED(released, "%zu bytes", size);
		void *q = kmalloc(size, GFP_KERNEL);
		NEED(q && (q != p || acquired > released), "%zu bytes", size);
		kfree(q);
	}
}

/* A private group's objects end with the group, and are inaccessible then. */
static void ended_with_their_group(void)
{
	if (slob)
		return;
	struct mem_cgroup *group = mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE);
	struct kmem_cache *cache = make("owned", 64);

	NEED(group);
	void *p = living(kmem_cache_alloc_in(cache, group, GFP_KERNEL), 64);
	NEED(!mem_cgroup_destroy_all(group, NULL, NULL));
	dead(p, 64);
	gone(cache);
}

/* The sanitizer replaces red zones and checks of objects: debugging is off. */
static void others_stand_back(void)
{
	struct kmem_cache *cache = kmem_cache_create("flagged", 64, NULL, SLAB_RED_ZONE | SLAB_POISON);

	NEED(cache && kmem_cache_set_debug(cache, "FZPU") == -EOPNOTSUPP && !kmem_cache_debug_flags(cache));
	void *p = living(kmem_cache_alloc(cache, GFP_KERNEL), 64);
	kmem_cache_free(cache, p);
	gone(cache);
	NEED(!unknown_roots);
}

static const struct test_case cases[] = {
	{ "caches", caches }, { "constructed", constructed }, { "typesafe", typesafe }, { "many", many },
	{ "blocks", blocks }, { "mallocs", mallocs }, { "changing hands", changing_hands },
	{ "ended with their group", ended_with_their_group }, { "others stand back", others_stand_back },
};

int main(int argc, char **argv)
{
	return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), ",guard:100");
}
