/*
 * slob.c: each transition of engine slob, observed in its pages: the list for each size, next fit over pages, first
 * fit within a page, cuts and joins, alignment, kmalloc's header, and the allocation and free of pages. Disciplines:
 * all: the engine has no per-CPU data, so each discipline gives the same result.
 */
#include "kit/engine.h"

#include <pthread.h>

#include "cache/cache.h"
#include "engines/slob/slob.h"

static struct kmem_cache *fresh_with(unsigned size, unsigned align, slab_flags_t flags, void (*ctor)(void *))
{
	return cache_of((struct kmem_cache_args){ .engine = "slob", .align = align, .ctor = ctor }, size, flags);
}

static struct kmem_cache *fresh(unsigned size)
{
	return fresh_with(size, 0, 0, NULL);
}

/* Nothing is left: of the cache, and, as each case cleans up, in any page. */
static void done(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 0);
	kmem_cache_destroy(cache);
	CHECK_EQUAL(km_engines_check(), 0);
}

static void nothing_left(void)
{
	CHECK_EQUAL(km_slob.pages, 0);
	CHECK_EQUAL(km_slob.units, 0);
	CHECK_EQUAL(km_slob.blocks, 0);
}

static char *get(struct kmem_cache *cache)
{
	char *object = kmem_cache_alloc(cache, GFP_KERNEL);

	CHECK(object);
	return object;
}

static void put(struct kmem_cache *cache, void *object)
{
	kmem_cache_free(cache, object);
}

static struct km_page *page_of(const void *p)
{
	return km_page_of(p);
}

static unsigned unit_of(const void *p)
{
	return ((uintptr_t)p & 4095) / KM_SLOB_UNIT;
}

/* The free blocks of a page, in units: "64+8,100+412". */
static const char *free_blocks(const void *p)
{
	static char text[256];
	const char *base = (const char *)((uintptr_t)p & ~4095ul);
	size_t length = 0;

	text[0] = '\0';
	for (unsigned at = km_slob_page(page_of(p))->first_free; at < KM_SLOB_UNITS && length < 240;) {
		const struct kmem_record_slob_free *block = (const void *)(base + at * KM_SLOB_UNIT);

		length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%u+%u",
					   length ? "," : "", at, block->units);
		at = block->next;
	}
	return text;
}
#define BLOCKS(p, wanted)                                                                          \
	do {                                                                                       \
		const char *is_ = free_blocks(p);                                                  \
		if (strcmp(is_, wanted) != 0)                                                      \
			check_failed(__FILE__, __LINE__, "free", " are %s, not %s", is_, wanted);  \
	} while (0)

static size_t listed(enum km_slob_list list)
{
	size_t pages = 0;

	km_list_for_each(entry, &km_slob.list[list])
		pages++;
	return pages;
}

static void lists_are(size_t small, size_t medium, size_t large)
{
	CHECK_EQUAL(listed(KM_SLOB_SMALL), small);
	CHECK_EQUAL(listed(KM_SLOB_MEDIUM), medium);
	CHECK_EQUAL(listed(KM_SLOB_LARGE), large);
}

/* ------------------------------------------------------------------ lists */

static void by_size(void)
{
	static const struct { unsigned size; size_t pages[3]; } sizes[] = {
		{ 8, { 1, 0, 0 } },	{ 248, { 1, 0, 0 } },	{ 249, { 0, 1, 0 } },
		{ 256, { 0, 1, 0 } },	{ 1016, { 0, 1, 0 } },	{ 1017, { 0, 0, 1 } },
		{ 1024, { 0, 0, 1 } },	{ 4080, { 0, 0, 1 } },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct kmem_cache *cache = fresh(sizes[i].size);
		void *object = get(cache);

		lists_are(sizes[i].pages[0], sizes[i].pages[1], sizes[i].pages[2]);
		put(cache, object);
		/* The page has no objects, and stays, alone. */
		CHECK_EQUAL(km_slob.pages, 0);
		lists_are(sizes[i].pages[0], sizes[i].pages[1], sizes[i].pages[2]);
		kmem_cache_shrink(cache);
		lists_are(0, 0, 0);
		done(cache);
	}
	nothing_left();
}

/* Two caches and sizes, one page; of another list, another page. */
static void shared_page(void)
{
	struct kmem_cache *a = fresh(64), *b = fresh(100), *c = fresh(500);
	char *first = get(a), *second = get(b), *third = get(a), *other = get(c);

	CHECK_EQUAL(second - first, 64);
	CHECK_EQUAL(third - second, 104);
	CHECK(page_of(other) != page_of(first));
	CHECK_EQUAL(km_slob.pages, 2);
	CHECK_EQUAL(km_slob.units, (64 + 104 + 64 + 504) / 8);
	CHECK_EQUAL(km_slob.blocks, 4);
	put(a, first);
	put(b, second);
	put(c, other);
	CHECK_EQUAL(km_slob.pages, 1);
	put(a, third);
	EVENTS(a, [KMEM_ALLOC_SLAB] = 1, [KMEM_FREE_SLAB] = 1);
	EVENTS(b, [KMEM_ALLOC_SLAB] = 0);
	EVENTS(c, [KMEM_ALLOC_SLAB] = 1, [KMEM_FREE_SLAB] = 1);
	done(a);
	done(b);
	done(c);
	nothing_left();
}

/* ------------------------------------------------------------------ next fit, first fit */

/* A full page is on no list; its first free object lists the page, and the next search begins there. */
static void full_pages(void)
{
	struct kmem_cache *cache = fresh(128);
	void *objects[64];

	for (int i = 0; i < 64; i++) {
		objects[i] = get(cache);
		lists_are(i != 31 && i != 63, 0, 0);
	}
	CHECK_EQUAL(km_slob.pages, 2);
	EVENTS(cache, [KMEM_ALLOC_SLAB] = 2);
	put(cache, objects[5]);
	lists_are(1, 0, 0);
	EVENTS(cache, [KMEM_FREE_ADD_PARTIAL] = 1);
	put(cache, objects[40]);
	put(cache, objects[41]);
	lists_are(2, 0, 0);
	EVENTS(cache, [KMEM_FREE_ADD_PARTIAL] = 1);
	CHECK_EQUAL(get(cache), objects[40]);
	CHECK_EQUAL(get(cache), objects[41]);
	CHECK_EQUAL(get(cache), objects[5]);
	lists_are(0, 0, 0);
	for (int i = 0; i < 64; i++)
		put(cache, objects[i]);
	EVENTS(cache, [KMEM_FREE_ADD_PARTIAL] = 2, [KMEM_FREE_SLAB] = 2);
	done(cache);
	nothing_left();
}

/* The search goes on from the page of the last success, not from the first page with room. */
static void next_fit(void)
{
	struct kmem_cache *cache = fresh(128), *tiny = fresh(8);
	void *objects[96], *last;

	for (int i = 0; i < 96; i++)
		objects[i] = get(cache);
	/* 256 bytes in a row are free in page 1 only, 128 in all three; the list is 2, 1, 0. */
	put(cache, objects[0]);
	put(cache, objects[40]);
	put(cache, objects[41]);
	put(cache, objects[90]);
	struct kmem_cache *wide = fresh(248);
	last = get(wide);
	CHECK(page_of(last) == page_of(objects[40]));
	/*
	 * 8 bytes are left in this page; the ring now begins at this page, followed by page 0 and, at the
	 * end, page 2.
	 */
	CHECK(km_slob.list[KM_SLOB_SMALL].next == &page_of(last)->list);
	void *a = get(tiny);
	CHECK(page_of(a) == page_of(last));
	CHECK_EQUAL(get(cache), objects[0]);
	CHECK_EQUAL(get(cache), objects[90]);
	lists_are(0, 0, 0);
	put(wide, last);
	put(tiny, a);
	for (int i = 0; i < 96; i++)
		if (i != 40 && i != 41)
			put(cache, objects[i]);
	done(wide);
	done(tiny);
	done(cache);
	nothing_left();
}

static void first_fit(void)
{
	struct kmem_cache *cache = fresh(16), *wide = fresh(32);
	char *objects[16], *a, *b;

	for (int i = 0; i < 16; i++)
		objects[i] = get(cache);
	put(cache, objects[1]);
	put(cache, objects[4]);
	put(cache, objects[5]);
	put(cache, objects[6]);
	BLOCKS(objects[0], "2+2,8+6,32+480");
	a = get(wide);
	CHECK_EQUAL(a, objects[4]);
	BLOCKS(objects[0], "2+2,12+2,32+480");
	CHECK_EQUAL(get(cache), objects[1]);
	CHECK_EQUAL(get(cache), objects[6]);
	BLOCKS(objects[0], "32+480");
	b = get(wide);
	CHECK_EQUAL(b, objects[15] + 16);
	put(wide, a);
	put(wide, b);
	for (int i = 0; i < 16; i++)
		if (i != 4 && i != 5)
			put(cache, objects[i]);
	done(cache);
	done(wide);
	nothing_left();
}

/* ------------------------------------------------------------------ cut and join */

static void joining(void)
{
	struct kmem_cache *cache = fresh(64);
	char *objects[10];

	for (int i = 0; i < 10; i++)
		objects[i] = get(cache);
	BLOCKS(objects[0], "80+432");
	put(cache, objects[2]);		/* alone */
	BLOCKS(objects[0], "16+8,80+432");
	put(cache, objects[1]);		/* with the next */
	BLOCKS(objects[0], "8+16,80+432");
	put(cache, objects[3]);		/* with the one before */
	BLOCKS(objects[0], "8+24,80+432");
	put(cache, objects[7]);
	put(cache, objects[5]);
	BLOCKS(objects[0], "8+24,40+8,56+8,80+432");
	put(cache, objects[6]);		/* with both */
	BLOCKS(objects[0], "8+24,40+24,80+432");
	put(cache, objects[4]);
	BLOCKS(objects[0], "8+56,80+432");
	put(cache, objects[0]);		/* the page's first unit */
	BLOCKS(objects[0], "0+64,80+432");
	put(cache, objects[9]);
	BLOCKS(objects[0], "0+64,72+440");
	CHECK_EQUAL(km_slob.pages, 1);
	put(cache, objects[8]);
	nothing_left();
	EVENTS(cache, [KMEM_ALLOC_SLAB] = 1, [KMEM_FREE_SLAB] = 1);
	done(cache);
}

/* A page used to its last unit. */
static void whole_page(void)
{
	struct kmem_cache *cache = fresh(4088), *half = fresh(2048);
	char *a = get(cache), *b = get(half), *c = get(half);

	CHECK_EQUAL((uintptr_t)a & 4095, 0);
	CHECK(page_of(a) != page_of(b) && page_of(b) == page_of(c));
	BLOCKS(a, "511+1");
	BLOCKS(b, "");
	lists_are(0, 0, 1);
	CHECK_EQUAL(km_slob.units, 1023);
	put(half, c);
	BLOCKS(b, "256+256");
	put(cache, a);
	put(half, b);
	nothing_left();
	done(cache);
	done(half);
}

/* ------------------------------------------------------------------ alignment */

static void alignment(void)
{
	struct kmem_cache *odd = fresh(24), *aligned = fresh_with(40, 64, 0, NULL);
	char *a = get(odd), *b = get(aligned), *c = get(odd), *d = get(aligned);

	/* The gap in front of an aligned block is free, and serves. */
	CHECK_EQUAL(unit_of(a), 0);
	CHECK_EQUAL(unit_of(b), 8);
	CHECK_EQUAL(unit_of(c), 3);
	CHECK_EQUAL(unit_of(d), 16);
	BLOCKS(a, "6+2,13+3,21+491");
	CHECK_EQUAL(aligned->layout.size, 40);
	put(aligned, b);
	BLOCKS(a, "6+10,21+491");
	put(aligned, d);
	put(odd, a);
	put(odd, c);
	for (unsigned align = 8; align <= 4096; align *= 2) {
		struct kmem_cache *cache = fresh_with(72, align, 0, NULL);
		void *objects[20];

		for (int i = 0; i < 20; i++) {
			objects[i] = get(cache);
			CHECK_EQUAL((uintptr_t)objects[i] % align, 0);
		}
		for (int i = 0; i < 20; i++)
			put(cache, objects[i]);
		done(cache);
	}
	done(odd);
	done(aligned);
	nothing_left();
}

/* ------------------------------------------------------------------ kmalloc, where slob is the process's engine */

static void kmalloc_header(void)
{
	char *a = kmalloc(24, GFP_KERNEL), *b = kmalloc(1, GFP_KERNEL), *c = kmalloc(64, GFP_KERNEL);

	if (!km_kmalloc_sized) {
		CHECK(kmem_cache_of(a) == km_kmalloc_cache(24));
		nothing_left();
	} else {
		CHECK_EQUAL(unit_of(a), 1);
		CHECK_EQUAL(*(uint32_t *)(a - 8), 24);
		CHECK_EQUAL(ksize(a), 24);
		CHECK_EQUAL(b - a, 32);
		CHECK_EQUAL(*(uint32_t *)(b - 8), 1);
		CHECK_EQUAL(ksize(b), 8);
		/* The object behind the header is aligned, not the header. */
		CHECK_EQUAL(unit_of(c), 8);
		BLOCKS(a, "6+1,16+496");
		CHECK(kmem_cache_of(a) == km_kmalloc_sized && !kmem_cache_of(a - 8));
		CHECK_EQUAL(km_slob.units, 4 + 2 + 9);
	}
	kfree(a);
	kfree(b);
	kfree(c);
	nothing_left();
}

static void kmalloc_sizes(void)
{
	struct kmem_stats stats;

	if (!km_kmalloc_sized)
		return;
	for (size_t size = 1; size < 4200; size++) {
		/* Of the next list; what is alone on this one would stay. */
		if (size == 248 || size == 1016)
			km_slob_drop_stock();
		char *p = kmalloc(size, GFP_KERNEL);
		size_t align = size & -size;

		CHECK_EQUAL((uintptr_t)p % (align < 8 ? 8 : align), 0);
		kmem_get_stats(&stats);
		CHECK_EQUAL(stats.large_blocks, size >= 4088);
		CHECK_EQUAL(stats.slob_pages, size < 4088);
		if (size < 4088)
			CHECK_EQUAL(stats.slob_bytes, 8 + (size + 7) / 8 * 8);
		if (size < 4088)
			lists_are(size < 248 && listed(0), size >= 248 && size < 1016 && listed(1),
				  size >= 1016 && listed(2));
		kfree(p);
	}
	nothing_left();
}

/* ------------------------------------------------------------------ caches */

static unsigned long constructed;

static void construct(void *object)
{
	constructed++;
	memset(object, 0x77, 40);
}

static void constructor(void)
{
	struct kmem_cache *cache = fresh_with(40, 0, 0, construct);
	void *objects[50];

	constructed = 0;
	char *a = get(cache);
	CHECK_EQUAL(constructed, 1);
	memset(a, 0, 40);
	put(cache, a);
	char *b = get(cache);
	CHECK_EQUAL(constructed, 2);
	CHECK(b[0] == 0x77 && b[39] == 0x77);
	put(cache, b);
	CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 50, objects));
	CHECK_EQUAL(constructed, 52);
	kmem_cache_free_bulk(cache, 50, objects);
	done(cache);
	/* In separate pages. */
	cache = fresh_with(5000, 0, 0, construct);
	constructed = 0;
	put(cache, get(cache));
	CHECK_EQUAL(constructed, 1);
	done(cache);
	nothing_left();
}

/* A freed object still belongs to the cache until the cache's end; a second free is found. */
static void typesafe(void)
{
	struct kmem_cache *cache = fresh_with(40, 0, SLAB_TYPESAFE_BY_RCU, NULL), *other = fresh(40);
	char *a = get(cache), *b = get(cache), *c;
	struct kmem_cache_stats stats;

	memset(a, 0x5c, 40);
	put(cache, a);
	CHECK_EQUAL(km_slob.units, 12);
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 1);
	CHECK_EQUAL(stats.total_objects, 2);
	c = get(other);
	CHECK(c != a);
	for (int i = 0; i < 40; i++)
		CHECK(a[i] == 0x5c);
	CHECK_EQUAL(km_engines_check(), 0);
	CHECK_EQUAL(get(cache), a);
	put(cache, b);
	put(cache, a);
	put(other, c);
	done(other);
	CHECK_EQUAL(km_slob.pages, 1);
	done(cache);
	nothing_left();
}

/* From the size of a page on, an object has separate pages, allocated and freed with the object. */
static void own_pages(void)
{
	for (unsigned size = 4096; size <= 1 << 20; size = size * 2 + 8) {
		struct kmem_cache *cache = fresh(size);
		struct kmem_cache_stats stats;
		char *a = get(cache), *b = get(cache);

		memset(a, 1, size);
		memset(b, 2, size);
		kmem_cache_get_stats(cache, &stats);
		CHECK_EQUAL(stats.total_slabs, 2);
		CHECK_EQUAL(stats.active_objects, 2);
		CHECK_EQUAL(km_slob.pages, 0);
		CHECK(a[size - 1] == 1);
		put(cache, a);
		put(cache, b);
		EVENTS(cache, [KMEM_ALLOC_SLAB] = 2, [KMEM_FREE_SLAB] = 2);
		kmem_cache_get_stats(cache, &stats);
		CHECK_EQUAL(stats.total_slabs, 0);
		done(cache);
	}
}

/* Bulk is a loop; 100 objects or none. */
static void bulk(void)
{
	struct kmem_cache *cache = fresh(1024);
	static void *objects[20000];

	CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects));
	CHECK_EQUAL(km_slob.pages, 25);
	kmem_cache_free_bulk(cache, 100, objects);
	nothing_left();
	km_os_fault = no_more;
	CHECK(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 20000, objects));
	km_os_fault = NULL;
	nothing_left();
	done(cache);
}

/*
 * Wholly free pages are cached, at most 16, and one alone on its list; the 16 serve any list, and all go when a cache
 * is shrunk.
 */
static void stock(void)
{
	struct kmem_cache *cache = fresh(2048), *other = fresh(64);
	struct kmem_stats before, after;
	void *objects[80];

	kmem_shrink_all();
	CHECK_EQUAL(km_slob.stocked, 0);
	kmem_get_stats(&before);
	for (int i = 0; i < 80; i++)
		objects[i] = get(cache);
	for (int i = 0; i < 80; i++) {
		put(cache, objects[i]);
		CHECK_EQUAL(km_slob.stocked, i < 3 ? 0 : i < 34 ? (i - 1) / 2 : 16);
	}
	lists_are(0, 0, 1);
	CHECK_EQUAL(km_slob.pages, 0);
	kmem_get_stats(&after);
	CHECK_EQUAL(after.pages_used - before.pages_used, 17);
	CHECK(page_of(get(cache)) == page_of(objects[0]));
	put(cache, objects[0]);
	CHECK_EQUAL(km_slob.stocked, 16);
	EVENTS(cache, [KMEM_ALLOC_SLAB] = 41, [KMEM_FREE_SLAB] = 41, [KMEM_FREE_ADD_PARTIAL] = 40);
	objects[0] = get(other);
	CHECK_EQUAL(km_slob.stocked, 15);
	lists_are(1, 0, 1);
	kmem_get_stats(&after);
	CHECK_EQUAL(after.pages_used - before.pages_used, 17);
	kmem_cache_shrink(cache);
	CHECK_EQUAL(km_slob.stocked, 0);
	lists_are(1, 0, 0);
	kmem_get_stats(&after);
	CHECK_EQUAL(after.pages_used - before.pages_used, 1);
	put(other, objects[0]);
	done(other);
	done(cache);
	nothing_left();
}

/* slob's pages change under slob's lock only: a holder of the lock sees no page come or go. */
#define TURNS 3000
static struct {
	struct km_page *page[80];
	unsigned changed, over;
} observed;

static unsigned pages_of_slob(void)
{
	unsigned count = 0;

	for (int i = 0; i < 80; i++)
		count += km_load(&observed.page[i]->type) == KM_PAGE_SHARED;
	return count;
}

static void *watch(void *arg)
{
	while (!km_load(&observed.over)) {
		km_lock(&km_slob.lock);
		unsigned before = pages_of_slob();
		for (int i = 0; i < 50; i++)
			observed.changed += pages_of_slob() != before;
		km_unlock(&km_slob.lock);
	}
	return arg;
}

static void pages_under_the_lock(void)
{
	struct kmem_cache *cache = fresh(2048);
	void *objects[80];
	pthread_t thread;

	for (int i = 0; i < 80; i++)
		observed.page[i] = km_page_of(objects[i] = get(cache));
	CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
	for (int turn = 0; turn < TURNS; turn++) {
		for (int i = 0; i < 80; i++)
			put(cache, objects[i]);
		for (int i = 0; i < 80; i++)
			objects[i] = get(cache);
	}
	km_store(&observed.over, 1u);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_EQUAL(observed.changed, 0);
	for (int i = 0; i < 80; i++)
		put(cache, objects[i]);
	done(cache);
}

/* Unsupported calls: an object does not name its cache. */
static void cannot(void)
{
	struct kmem_cache *cache = fresh(100);
	void *object = get(cache);

	CHECK(!kmem_cache_of(object));
	CHECK_EQUAL(kmem_cache_walk(cache, NULL, NULL), -EOPNOTSUPP);
	CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	put(cache, object);
	done(cache);
}

static const struct test_case cases[] = {
	{ "a list by size", by_size },
	{ "caches share a page", shared_page },
	{ "full pages leave the list and come back", full_pages },
	{ "next fit", next_fit },
	{ "first fit", first_fit },
	{ "joining", joining },
	{ "a whole page", whole_page },
	{ "alignment", alignment },
	{ "kmalloc: header", kmalloc_header },
	{ "kmalloc: sizes", kmalloc_sizes },
	{ "constructor", constructor },
	{ "typesafe", typesafe },
	{ "pages of its own", own_pages },
	{ "bulk", bulk },
	{ "cached pages", stock },
	{ "pages change hands under the lock", pages_under_the_lock },
	{ "what it can't do", cannot },
};

/* Once with another engine for kmalloc, once with slob. */
int main(int argc, char **argv)
{
	/* The test counts cached pages: no page goes back by age, at any speed of a case. */
	kfree(kmalloc(8, GFP_KERNEL));
	km_arena_set(false, 3600000);
	int failed = run_in_turn(cases, sizeof(cases) / sizeof(cases[0]), 1);

	if (argc > 1)
		return failed || strcmp(argv[1], "failed") == 0;
	fflush(NULL);
	set_options("engine:slob");
	execl("/proc/self/exe", argv[0], failed ? "failed" : "passed", (char *)NULL);
	return 1;
}
