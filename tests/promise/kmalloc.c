/*
 * kmalloc.c: what the kmalloc family promises, as <kmem/kmem.h> and the kernel's documentation have it: sizes,
 * alignment, zeros, overflow, krealloc, the kv family, copies, bulk over mixed sizes. Disciplines: all.
 * With hardened: own_addresses:0, for pages go from one name to another here.
 */
#include <limits.h>

#include "kit/api.h"

#define MIB ((size_t)1 << 20)

static size_t divisor(size_t size)
{
	return size & -size;
}

/* Fills all usable bytes; a later check finds writes of another owner. */
static void fill(void *p, size_t bytes, unsigned value)
{
	memset(HELD(p), (int)(value & 0xff), bytes);
}

static void check_size(size_t size)
{
	void *p = kmalloc(size, GFP_KERNEL), *q = kmalloc(size, GFP_KERNEL);
	size_t usable = ksize(p), align = divisor(size) < 8 ? 8 : divisor(size);

	NEED(p && q && p != q);
	NEED((uintptr_t)p % align == 0 && (uintptr_t)q % align == 0);
	NEED(usable >= size && usable == kmalloc_size_roundup(size));
	fill(p, usable, 1);
	fill(q, usable, 2);
	NEED(all(p, 1, usable) && all(q, 2, usable));
	kfree(p);
	kfree(q);
}

static void sizes(void)
{
	for (size_t size = 1; size <= KMALLOC_MAX_CACHE_SIZE; size++)
		check_size(size);
	for (size_t size = KMALLOC_MAX_CACHE_SIZE; size <= KMALLOC_MAX_SIZE; size *= 2) {
		check_size(size);
		if (size < KMALLOC_MAX_SIZE) {
			check_size(size + 1);
			check_size(size + size / 2);
		}
	}
}

static void roundup(void)
{
	static const size_t pairs[][2] = {
		{ 0, 0 }, { 1, 8 }, { 8, 8 }, { 9, 16 }, { 17, 32 }, { 33, 64 }, { 65, 96 },
		{ 96, 96 }, { 97, 128 }, { 129, 192 }, { 193, 256 }, { 257, 512 }, { 513, 1024 },
		{ 4096, 4096 }, { 4097, 8192 }, { 8192, 8192 }, { 8193, 12288 },
		{ 100000, 102400 }, { KMALLOC_MAX_SIZE, KMALLOC_MAX_SIZE },
		{ KMALLOC_MAX_SIZE + 1, KMALLOC_MAX_SIZE + 1 }, { SIZE_MAX, SIZE_MAX },
	};

	/* Engine slab: an index is a byte, so the smallest object has 16 bytes. */
	size_t least = 8;

	if (!slob) {
		struct kmem_cache_stats stats;
		void *p = kmalloc(1, GFP_KERNEL);

		kmem_cache_get_stats(kmem_cache_of(p), &stats);
		least = strcmp(stats.engine, "slab") == 0 ? 16 : 8;
		kfree(p);
	}
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		/* Slob rounds up to 8 bytes, and to a page for the largest caches of the other engines. */
		bool small = slob && pairs[i][0] && pairs[i][0] < 4088;
		size_t rounded = small ? (pairs[i][0] + 7) / 8 * 8 : pairs[i][1] == 8 ? least : pairs[i][1];

		NEED(kmalloc_size_roundup(pairs[i][0]) == rounded);
	}
}

static void size_zero(void)
{
	void *const zero = ZERO_SIZE_PTR;

	NEED(kmalloc(0, GFP_KERNEL) == zero && kzalloc(0, GFP_KERNEL) == zero);
	NEED(kmalloc_node(0, GFP_KERNEL, 0) == zero && kzalloc_node(0, GFP_KERNEL, 0) == zero);
	NEED(kmalloc_array(0, 8, GFP_KERNEL) == zero && kcalloc(8, 0, GFP_KERNEL) == zero);
	NEED(kvmalloc(0, GFP_KERNEL) == zero && kvzalloc(0, GFP_KERNEL) == zero);
	NEED(krealloc(NULL, 0, GFP_KERNEL) == zero);
	NEED(krealloc(zero, 0, GFP_KERNEL) == zero);
	NEED(ksize(zero) == 0 && ksize(NULL) == 0);
	kfree(zero);
	kfree(NULL);
	kvfree(zero);
	kvfree(NULL);
	kfree_sensitive(NULL);
	kfree_sensitive(zero);
	kvfree_sensitive(NULL, 10);
}

static void too_large(void)
{
	static const size_t wrong[] = { KMALLOC_MAX_SIZE + 1, 1ul << 40, SIZE_MAX - 4096, SIZE_MAX };
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		errno = 0;
		NEED(!kmalloc(wrong[i], gfp) && errno == EINVAL);
		errno = 0;
		NEED(!kzalloc(wrong[i], gfp) && errno == EINVAL);
		NEED(!kmalloc_node(wrong[i], gfp, 0));
	}
}

static void overflow(void)
{
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	char *p = kmalloc(100, GFP_KERNEL);

	fill(p, 100, 7);
	errno = 0;
	NEED(!kmalloc_array(SIZE_MAX / 2, 3, gfp) && errno == ENOMEM);
	NEED(!kcalloc(SIZE_MAX, SIZE_MAX, gfp));
	NEED(!kcalloc((size_t)1 << 32, (size_t)1 << 32, gfp));
	NEED(!kvmalloc_array(SIZE_MAX / 2, 3, gfp) && !kvcalloc(SIZE_MAX, 2, gfp));
	errno = 0;
	NEED(!krealloc_array(p, SIZE_MAX / 2, 3, gfp) && errno == ENOMEM);
	NEED(all(p, 7, 100));
	p = krealloc_array(p, 100, 10, gfp);
	NEED(p && all(p, 7, 100) && ksize(p) >= 1000);
	kfree(p);
}

/* A dirtied and freed object comes back as zeros, on a hit too. */
static void zeros(void)
{
	static const size_t try[] = { 1, 8, 24, 64, 96, 100, 192, 1000, 4096, 8192, 8193, 65536, MIB };

	for (size_t i = 0; i < sizeof(try) / sizeof(try[0]); i++) {
		void *many[40];
		char *p = kmalloc(try[i], GFP_KERNEL);

		fill(p, ksize(p), 0xff);
		kfree(p);
		p = kzalloc(try[i], GFP_KERNEL);
		NEED(p && all(p, 0, try[i]));
		fill(p, ksize(p), 0xff);
		kfree(p);
		p = kcalloc(1, try[i], GFP_NOWAIT);
		NEED(p && all(p, 0, try[i]));
		kfree(p);
		NEED(kmalloc_bulk(try[i], GFP_KERNEL, 40, many));
		for (int j = 0; j < 40; j++)
			fill(many[j], ksize(many[j]), 0xff);
		kfree_bulk(40, many);
		NEED(kmalloc_bulk(try[i], GFP_KERNEL | __GFP_ZERO, 40, many));
		for (int j = 0; j < 40; j++)
			NEED(all(many[j], 0, try[i]));
		kfree_bulk(40, many);
	}
}

static void realloc_moves(void)
{
	static const size_t steps[] = { 1, 8, 9, 63, 64, 65, 500, 8192, 8193, 70000, MIB, 70000, 8000,
					100, 3 };
	char *p = krealloc(NULL, 5, GFP_KERNEL);
	size_t have = 5;

	NEED(p);
	fill(p, 5, 0x35);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		p = krealloc(p, steps[i], GFP_KERNEL);
		NEED(p && ksize(p) >= steps[i]);
		NEED(all(p, 0x35, have < steps[i] ? have : steps[i]));
		have = steps[i];
		fill(p, have, 0x35);
	}
	NEED(krealloc(p, 0, GFP_KERNEL) == ZERO_SIZE_PTR);
	p = krealloc(ZERO_SIZE_PTR, 10, GFP_KERNEL);
	NEED(!ZERO_OR_NULL_PTR(p));
	/* On failure the old object stays. */
	fill(p, 10, 0x36);
	errno = 0;
	NEED(!krealloc(p, KMALLOC_MAX_SIZE + 1, GFP_KERNEL | __GFP_NOWARN) && errno == EINVAL);
	NEED(all(p, 0x36, 10));
	/* While the new size fits, at the alignment promised for the size, the object stays. */
	NEED(krealloc(p, 15, GFP_KERNEL) == p && krealloc(p, 9, GFP_KERNEL) == p);
	kfree(p);
}

/* With __GFP_ZERO in every call, bytes never written read as zeros: after growth, and after shrinking and growth. */
static void realloc_zeros(void)
{
	char *p = kzalloc(10, GFP_KERNEL);
	size_t have = 10;

	fill(p, have, 0x11);
	for (size_t size = 12; size < 2 * MIB; size = size * 3 / 2) {
		p = krealloc(p, size, GFP_KERNEL | __GFP_ZERO);
		NEED(p && all(p, 0x11, have) && all(p + have, 0, size - have));
		fill(p, size, 0x11);
		have = size;
	}
	kfree(p);
	p = kzalloc(256, GFP_KERNEL);
	fill(p, 256, 0x22);
	p = krealloc(p, 200, GFP_KERNEL | __GFP_ZERO);
	p = krealloc(p, 256, GFP_KERNEL | __GFP_ZERO);
	NEED(p && all(p, 0x22, 200) && all(p + 200, 0, 56));
	kfree(p);
}

/*
 * A block of whole pages grows in place while the pages behind it are free, with and without waiting, and gives back
 * spare pages. The block moves where its alignment would be below kmalloc's.
 */
static void realloc_grows(void)
{
	for (int how = 0; how < 4; how++) {
		gfp_t gfp = (how & 1 ? GFP_NOWAIT : GFP_KERNEL) | (how & 2 ? __GFP_ZERO : 0);
		/* The pages behind the block are committed and dirty. */
		char *p = kmalloc(3 * MIB, GFP_KERNEL), *moved;
		size_t size = 10000;
		int moves = 0;

		fill(p, 3 * MIB, 0xee);
		kfree(p);
		p = kmalloc(size, gfp);
		fill(p, size, 0x5a);
		for (size_t next; size < 2 * MIB; size = next) {
			next = size * 3 / 2;
			moved = krealloc(p, next, gfp);
			NEED(moved && all(moved, 0x5a, size) && (!(how & 2) || all(moved + size, 0, next - size)));
			moves += moved != p;
			p = moved;
			fill(p, next, 0x5a);
		}
		NEED(moves <= 3);
		moved = krealloc(p, 500000, gfp);
		NEED(moved == p && ksize(p) < MIB && all(p, 0x5a, 500000));
		kfree(p);
	}
	for (size_t size = 16384; size <= 4 * MIB; size *= 2) {
		char *p = krealloc(kmalloc(9000, GFP_KERNEL), size, GFP_KERNEL);

		NEED(p && (uintptr_t)p % size == 0);
		kfree(p);
	}
}

static void sensitive(void)
{
	for (size_t size = 32; size <= 65536; size *= 4) {
		unsigned char *p = kmalloc(size, GFP_KERNEL);
		size_t usable = ksize(p), left = 0;

		fill(p, usable, 0xa5);
		kfree_sensitive(p);
		unsigned char *q = kmalloc(size, GFP_KERNEL);
		for (size_t i = 0; q == p && i < usable; i++)
			left += q[i] == 0xa5;
		NEED(left < 8);
		kfree(q);
	}
	char *big = kvmalloc(6 * MIB, GFP_KERNEL);
	NEED(big);
	fill(big, 6 * MIB, 1);
	kvfree_sensitive(big, 6 * MIB);
	/* More than there is: no more than the block is cleared. */
	for (int i = 0; i < 100; i++) {
		unsigned char *p = kmalloc(16, GFP_KERNEL), *q = kmalloc(16, GFP_KERNEL);

		fill(p, 16, 7), fill(q, 16, 7);
		kvfree_sensitive(p, i ? 64 : SIZE_MAX);
		NEED(all(q, 7, 16));
		kfree(q);
	}
}

static void kv_family(void)
{
	char *p = kvmalloc(6 * MIB, GFP_KERNEL), *q;

	NEED(p && (uintptr_t)p % 4096 == 0 && ksize(p) >= 6 * MIB);
	fill(p, 6 * MIB, 3);
	kvfree(p);
	p = kvzalloc(6 * MIB, GFP_KERNEL);
	NEED(p && all(p, 0, 6 * MIB));
	fill(p, 6 * MIB, 4);
	q = kvrealloc(p, 20 * MIB, GFP_KERNEL);
	NEED(q && all(q, 4, 6 * MIB));
	fill(q, 20 * MIB, 5);
	p = kvrealloc(q, 5 * MIB, GFP_KERNEL);
	NEED(p && all(p, 5, 5 * MIB));
	q = kvrealloc(p, 100, GFP_KERNEL);
	NEED(q && all(q, 5, 100));
	NEED(kvrealloc(q, 0, GFP_KERNEL) == ZERO_SIZE_PTR);
	p = kvrealloc(NULL, 5000000, GFP_KERNEL);
	NEED(p);
	/* kfree takes what the kv family gave. */
	kfree(p);
	p = kvcalloc(1000, 9000, GFP_KERNEL);
	NEED(p && all(p, 0, 9000000));
	kvfree(p);
	p = kvmalloc_node(100, GFP_KERNEL, 0);
	NEED(p && ksize(p) == kmalloc_size_roundup(100));
	kvfree(p);
	errno = 0;
	NEED(!kvmalloc((size_t)INT32_MAX + 1, GFP_KERNEL | __GFP_NOWARN) && errno == EINVAL);
	NEED(!kvmalloc(SIZE_MAX, GFP_KERNEL | __GFP_NOWARN));
}

static void kv_zeros(void)
{
	char *p = kvzalloc(5 * MIB, GFP_KERNEL);

	fill(p, 5 * MIB, 9);
	p = kvrealloc(p, 9 * MIB, GFP_KERNEL | __GFP_ZERO);
	NEED(p && all(p, 9, 5 * MIB) && all(p + 5 * MIB, 0, 4 * MIB));
	fill(p, 9 * MIB, 9);
	p = kvrealloc(p, 7 * MIB + 5, GFP_KERNEL | __GFP_ZERO);
	p = kvrealloc(p, 9 * MIB, GFP_KERNEL | __GFP_ZERO);
	NEED(p && all(p, 9, 7 * MIB + 5) && all(p + 7 * MIB + 5, 0, 2 * MIB - 5));
	kvfree(p);
}

/* A block of whole pages may grow by pages that another block has left. */
static void kv_grows_by_zeros(void)
{
	char *p = kvmalloc(3 * MIB, GFP_KERNEL);

	fill(p, 3 * MIB, 9);
	/* The check reads and the test writes each byte; the block is freed unchanged. */
	NEED(all(p, 9, 3 * MIB));
	kvfree(p);
	p = kvzalloc(300000, GFP_KERNEL);
	for (size_t old = 300000, size; p && old < 3 * MIB; old = size) {
		size = old + 300000;
		NEED(all(p, 0, old));
		p = kvrealloc(p, size, GFP_KERNEL | __GFP_ZERO);
		NEED(p && all(p, 0, size));
	}
	kvfree(p);
}

static void copies(void)
{
	char *p = kmemdup("12345", 5, GFP_KERNEL);

	NEED(p && memcmp(p, "12345", 5) == 0);
	kfree(p);
	NEED(!kmemdup(NULL, 5, GFP_KERNEL) && kmemdup("x", 0, GFP_KERNEL) == ZERO_SIZE_PTR);
	p = kstrdup("a string", GFP_KERNEL);
	NEED(p && strcmp(p, "a string") == 0);
	kfree(p);
	p = kstrdup("", GFP_KERNEL);
	NEED(p && *p == '\0');
	kfree(p);
	NEED(!kstrdup(NULL, GFP_KERNEL) && !kstrndup(NULL, 3, GFP_KERNEL));
	p = kstrndup("a string", 3, GFP_KERNEL);
	NEED(p && strcmp(p, "a s") == 0);
	kfree(p);
	p = kstrndup("a", 300, GFP_KERNEL);
	NEED(p && strcmp(p, "a") == 0);
	kfree(p);
}

static void keeps_errno(void)
{
	void *objects[2000];
	size_t n = 0;

	for (size_t i = 0; i < 2000; i++)
		objects[n++] = kmalloc(i % 50 ? 64 : i * 100, GFP_KERNEL);
	errno = 77;
	for (size_t i = 0; i < n; i++)
		kfree(objects[i]);
	kfree(NULL);
	NEED(errno == 77);
	void *p = kvmalloc(8 * MIB, GFP_KERNEL);
	errno = 78;
	kvfree(p);
	NEED(errno == 78);
}

/* kfree takes objects of any cache, in engines with a cache for each page. */
static void any_cache(void)
{
	struct kmem_cache *cache = make("any", 333);
	struct kmem_cache_stats stats;
	void *objects[500];

	if (slob)
		return;
	for (int i = 0; i < 500; i++) {
		objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(objects[i] && kmem_cache_of(objects[i]) == cache && ksize(objects[i]) >= 333);
	}
	for (int i = 0; i < 250; i++)
		kfree(objects[i]);
	kfree_bulk(250, objects + 250);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 0);
	gone(cache);
}

static void nodes(void)
{
	const gfp_t quiet = GFP_KERNEL | __GFP_NOWARN;
	void *p = kmalloc_node(100, GFP_KERNEL, 0);

	NEED(p);
	kfree(p);
	p = kmalloc_node(100, GFP_KERNEL, NUMA_NO_NODE);
	NEED(p);
	kfree(p);
	p = kmalloc(100, quiet | __GFP_THISNODE);
	NEED(p);
	kfree(p);
	/* A missing node: another node will do, unless the flags insist. */
	p = kmalloc_node(100, quiet, 7);
	NEED(p);
	kfree(p);
	errno = 0;
	NEED(!kmalloc_node(100, quiet | __GFP_THISNODE, 7) && errno == ENOMEM);
	/* Whole pages and mappings of their own, as well. */
	static const size_t large[] = { 16384, KMALLOC_MAX_SIZE, 2 * KMALLOC_MAX_SIZE };
	for (int i = 0; i < 3; i++) {
		errno = 0;
		NEED(!kvmalloc_node(large[i], quiet | __GFP_THISNODE, 7) && errno == ENOMEM);
		NEED(!kvmalloc_node(large[i], quiet, -2));
		p = kvmalloc_node(large[i], quiet, 7);
		NEED(p);
		kfree(p);
		p = kvmalloc_node(large[i], quiet | __GFP_THISNODE, 0);
		NEED(p);
		kfree(p);
	}
}

static int order_by_address(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return (x > y) - (x < y);
}

static void bulk(void)
{
	static const size_t try[] = { 0, 8, 64, 100, 256, 1024, 8192, 8193, 100000 };
	static void *objects[1000];

	for (size_t i = 0; i < sizeof(try) / sizeof(try[0]); i++)
		for (size_t n = 0; n < 300; n = n * 2 + 1) {
			NEED(kmalloc_bulk(try[i], GFP_KERNEL, n, objects) == (int)n);
			for (size_t j = 0; j < n; j++)
				NEED(objects[j] && ksize(objects[j]) == kmalloc_size_roundup(try[i]));
			qsort(objects, n, sizeof(objects[0]), order_by_address);
			for (size_t j = 1; try[i] && j < n; j++)
				NEED((char *)objects[j] - (char *)objects[j - 1] >= (long)try[i]);
			kfree_bulk(n, objects);
		}
	errno = 0;
	NEED(!kmalloc_bulk(KMALLOC_MAX_SIZE + 1, GFP_KERNEL | __GFP_NOWARN, 3, objects));
	size_t beyond = (size_t)UINT_MAX + 1;
	__asm__("" : "+r"(beyond));
	NEED(!kmalloc_bulk(8, GFP_KERNEL | __GFP_NOWARN, beyond, objects) && errno == ENOMEM);
}

/* Mixed caches, sizes, large ones, mappings, NULL and ZERO_SIZE_PTR in one array, in any order. */
static void bulk_mixed(void)
{
	static void *objects[3000];
	struct kmem_cache *cache = make("mixed", 77);
	struct kmem_stats before, after;
	unsigned random = 12345;

	kmem_shrink_all();
	kmem_get_stats(&before);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 3000; i++) {
			random = random * 1103515245 + 12345;
			unsigned choice = random >> 16;

			if (i % 500 == 499) {
				objects[i] = kvmalloc(5 * MIB, GFP_KERNEL);
				continue;
			}
			switch (choice % 8) {
			case 0: objects[i] = NULL; break;
			case 1:
				objects[i] = slob ? kmalloc(77, GFP_KERNEL) :
						    kmem_cache_alloc(cache, GFP_KERNEL);
				break;
			case 2: objects[i] = kmalloc(choice % 9000, GFP_KERNEL); break;
			case 3: objects[i] = kmalloc(0, GFP_KERNEL); break;
			default: objects[i] = kmalloc(8u << choice / 8 % 6, GFP_KERNEL);
			}
		}
		kfree_bulk(3000, objects);
	}
	kfree_bulk(0, objects);
	gone(cache);
	kmem_shrink_all();
	kmem_get_stats(&after);
	NEED(after.large_blocks == before.large_blocks && after.pages_used <= before.pages_used);
	NEED(kmem_check_all() == 0);
}

/*
 * A bulk free expects objects of the cache of the last object; here with one object of another cache, and with
 * another cache at the same id.
 */
static void bulk_stranger(void)
{
	static const size_t counts[] = { 2, 3, 8, 63, 64, 65, 130 };
	void *objects[130];

	if (slob)
		return;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		const size_t n = counts[c];
		struct kmem_cache *cache = make("usual", 96), *other = make("stranger", 160);

		for (size_t i = 0; i < 4 * n; i++) {
			NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects));
			kfree_bulk(n, objects);
			NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects));
			kmem_cache_free(cache, objects[i / 4]);
			objects[i / 4] = i % 4 == 0 ? NULL :
					 i % 4 == 1 ? kmem_cache_alloc(other, GFP_KERNEL) :
					 i % 4 == 2 ? kmalloc(100000, GFP_KERNEL) :
						      ZERO_SIZE_PTR;
			kfree_bulk(n, objects);
		}
		gone(cache);
		/* The id may belong to the next cache. */
		cache = make("another", 48);
		NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects));
		kfree_bulk(n, objects);
		gone(cache);
		gone(other);
	}
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "every size: room, alignment, roundup", sizes },
	{ "kmalloc_size_roundup", roundup },
	{ "size 0", size_zero },
	{ "too large", too_large },
	{ "overflow", overflow },
	{ "zeros where asked for", zeros },
	{ "krealloc", realloc_moves },
	{ "krealloc with zeros", realloc_zeros },
	{ "krealloc where what follows is free", realloc_grows },
	{ "kfree_sensitive", sensitive },
	{ "the kv family", kv_family },
	{ "kvrealloc with zeros", kv_zeros },
	{ "kvrealloc: what a block grows by is zeros", kv_grows_by_zeros },
	{ "copies", copies },
	{ "errno is kept", keeps_errno },
	{ "kfree of any cache's object", any_cache },
	{ "nodes", nodes },
	{ "kmalloc_bulk", bulk },
	{ "kfree_bulk of all kinds", bulk_mixed },
	{ "kfree_bulk of an array with a stranger", bulk_stranger },
};

API_MAIN(cases)
