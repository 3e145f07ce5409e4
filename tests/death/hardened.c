/*
 * hardened: with KMEM_OPTIONS=hardened:1 every bad free ends the process at once, with a line of the misuse: through
 * kmem_cache_free, kfree, free and both bulk calls, at every kind of size, also for an object beneath others in a
 * sheaf, from another CPU, or of another thread. Permitted calls go on. Disciplines: all.
 */
#define _GNU_SOURCE
#define CHECK_FD 2
#include <pthread.h>

#include "kit/api.h"
#include "kit/cpus.h"

static const unsigned sizes[] = { 8, 16, 24, 48, 64, 100, 256, 1000, 4096, 8192, 20000, 300000, 5000000 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define OF_CACHES 10u		/* of the first so many there are caches */
static unsigned size, low;	/* of the running case; offset of the bad address */
static struct kmem_cache *cache, *other;

enum door { CACHE, KFREE, FREE, CACHE_BULK, KFREE_BULK, DOORS };
static enum door door;
static const char *const doors[] = { "kmem_cache_free", "kfree", "free", "kmem_cache_free_bulk", "kfree_bulk" };

static bool by_cache(void)
{
	return door == CACHE || door == CACHE_BULK;
}

static void *get(void)
{
	void *p = by_cache() ? kmem_cache_alloc(cache, GFP_KERNEL) : door == FREE ? malloc(size) :
								   kvmalloc(size, GFP_KERNEL);

	NEED(p);
	memset(p, 0x5a, size);
	__asm__ volatile("" : "+r"(p));
	return p;
}

static void put(void *p)
{
	void *one[2] = { p, NULL };

	if (door == CACHE)
		kmem_cache_free(cache, p);
	else if (door == KFREE)
		kfree(p);
	else if (door == FREE)
		free(p);
	else if (door == CACHE_BULK)
		kmem_cache_free_bulk(cache, 2, one);
	else
		kfree_bulk(2, one);
}

static void *put_elsewhere(void *p)
{
	go_to_cpu(cpu_at(1));
	put(p);
	return NULL;
}

static void by_another_thread(void *p)
{
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, put_elsewhere, p) == 0 && pthread_join(thread, NULL) == 0);
}

static void twice(void)
{
	void *p = get();

	put(p);
	put(p);
}

/* Other objects are above the object in the sheaf. */
static void twice_beneath(void)
{
	void *p = get(), *q = get(), *r = get();

	put(p);
	put(q);
	put(r);
	put(p);
}

/* All of them have been to their slabs, and another object is out. */
static void twice_late(void)
{
	static void *many[200];
	size_t n = size > 8192 ? 4 : 200;

	for (size_t i = 0; i < n; i++)
		many[i] = get();
	void *kept = get();
	for (size_t i = 0; i < n; i++)
		put(many[i]);
	if (by_cache())
		kmem_cache_shrink(cache);
	put(many[1]);
	put(kept);
}

static void twice_by_threads(void)
{
	void *p = get();

	by_another_thread(p);
	put(p);
}

static void twice_in_array(void)
{
	void *p = get(), *q = get(), *many[] = { p, q, p };

	if (by_cache())
		kmem_cache_free_bulk(cache, 3, many);
	else
		kfree_bulk(3, many);
}

static void inside(void)
{
	put((char *)get() + low);
}

static void never_handed_out(void)
{
	char *p = get();

	put(p + ((uintptr_t)p % (2 * size) ? -(ptrdiff_t)size : (ptrdiff_t)size));
}

static void of_stack(void)
{
	char bytes[64] = "";

	put(bytes);
}

static void of_other_cache(void)
{
	put(kmem_cache_alloc(other, GFP_KERNEL));
}

static void of_kmalloc(void)
{
	put(kmalloc(size, GFP_KERNEL));
}

/* An object of a cache may go by kfree; not twice. */
static void mixed_doors(void)
{
	void *p = get();

	kfree(p);
	put(p);
}

/* ------------------------------------------------------------------ checks of the end */

static char text[4096];

/* Expects one line with the phrase, and the end of the process. */
static void ends(const char *name, void (*run)(void), const char *phrase)
{
	int lines, status = said(run, text, &lines);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1 && strstr(text, phrase),
	      "%s by %s, %u bytes: status %#x, said: %s", name, doors[door], size, (unsigned)status, text);
}

#define ENDS(run, phrase) ends(#run, run, phrase)

static void at_size(void)
{
	const bool large = size > KMALLOC_MAX_CACHE_SIZE;
	/* For freed pages the only known fact is that there is no object: any line will do. */
	const char *freed = large || slob ? "" : "object already free";

	ENDS(twice, freed);
	ENDS(twice_beneath, freed);
	ENDS(twice_late, "");
	ENDS(twice_by_threads, freed);
	if (door == CACHE_BULK || door == KFREE_BULK)
		ENDS(twice_in_array, freed);
	for (low = 1; low < size && low < 200; low += low < 9 ? 1 : 13)
		ENDS(inside, large || (by_cache() && slob) ? "" : "pointer is not the start of an object");
	ENDS(of_stack, "pointer is not from this allocator");
	if (by_cache() && !slob) {
		ENDS(of_other_cache, "object belongs to different cache");
		ENDS(of_kmalloc, "object belongs to different cache");
		ENDS(never_handed_out, "");
		ENDS(mixed_doors, freed);
	}
}

static void each_size(void)
{
	for (size_t i = 0; i < SIZES; i++) {
		size = sizes[i];
		if (by_cache() && i >= OF_CACHES)
			break;
		if (by_cache()) {
			cache = make("hardened", size);
			other = make("other", size);
		}
		at_size();
		kmem_cache_destroy(cache);
		kmem_cache_destroy(other);
		cache = other = NULL;
	}
}

static void through_cache(void) { door = CACHE; each_size(); }
static void through_kfree(void) { door = KFREE; each_size(); }
static void through_free(void) { door = FREE; each_size(); }
static void through_cache_bulk(void) { door = CACHE_BULK; each_size(); }
static void through_kfree_bulk(void) { door = KFREE_BULK; each_size(); }

/* ------------------------------------------------------------------ what is allowed */

static void *take_and_give(void *arg)
{
	struct kmem_cache *shared = arg;
	void *many[64];

	for (int round = 0; round < 300; round++) {
		NEED(kmem_cache_alloc_bulk(shared, GFP_KERNEL, 64, many));
		for (int i = 0; i < 32; i++)
			kmem_cache_free(shared, many[i]);
		kmem_cache_free_bulk(shared, 32, many + 32);
		void *p = malloc((size_t)round * 7 + 1);
		NEED((p = realloc(p, (size_t)round * 50 + 1)));
		free(p);
	}
	return NULL;
}

static void goes_on(void)
{
	struct kmem_cache *shared = make("shared", 72);
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		NEED(pthread_create(&threads[i], NULL, take_and_give, shared) == 0);
	for (int i = 0; i < 3; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	gone(shared);
}

/* Objects in a prefilled sheaf belong to the caller; objects left go back with the sheaf. */
static void sheaves(void)
{
	struct kmem_cache *filled = make("filled", 64);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(filled, GFP_KERNEL, 10);
	void *p = kmem_cache_alloc_from_sheaf(filled, GFP_KERNEL, sheaf);

	NEED(p);
	kmem_cache_return_sheaf(filled, GFP_KERNEL, sheaf);
	kmem_cache_free(filled, p);
	gone(filled);
}

/* A slab's pages go to another cache with another object size. */
static void pages_change_hands(void)
{
	static void *many[3000];

	for (unsigned of = 8; of < 9000; of = of * 3 / 2 / 8 * 8 + 8) {
		struct kmem_cache *mine = make("mine", of);

		for (size_t i = 0; i < 3000; i++)
			NEED((many[i] = kmem_cache_alloc(mine, GFP_KERNEL)));
		for (size_t i = 0; i < 3000; i++)
			kmem_cache_free(mine, many[i]);
		gone(mine);
	}
}

static const struct test_case cases[] = {
	{ "kmem_cache_free", through_cache }, { "kfree", through_kfree }, { "free", through_free },
	{ "kmem_cache_free_bulk", through_cache_bulk }, { "kfree_bulk", through_kfree_bulk },
	{ "what is allowed", goes_on }, { "prefilled sheaves", sheaves }, { "pages change hands", pages_change_hands },
};
/* No slab ages on a busy machine. */
API_MAIN_OPTIONS(cases, ",hardened:1,decay:3600000")
