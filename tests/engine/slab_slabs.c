/*
 * slab_slabs: the layout of slabs in engine slab: orders, the place of the indices of free objects, colours,
 * constructors, typesafe caches; overwritten indices are noticed. Disciplines: all. Not with hardened: objects pass
 * from the engine's own functions to callers, unproved.
 */
#include "slab.h"

#include <fcntl.h>

#include "page/metadata.h"

/* ------------------------------------------------------------------ orders and indices */

/* Pages have 4096 bytes, the highest order tried is 1, an eighth may be wasted, a byte counts to 255. */
static void case_layout(void)
{
	static const struct {
		unsigned size, order, objects;
		enum slab_freelist freelist;
	} rows[] = {
		{ 64, 0, 64, SLAB_IN_OBJECT },	  { 96, 0, 42, SLAB_IN_OBJECT },
		{ 128, 0, 32, SLAB_IN_OBJECT },	  { 256, 0, 16, SLAB_IN_OBJECT },
		{ 512, 0, 8, SLAB_IN_OBJECT },	  { 700, 1, 11, SLAB_IN_OBJECT },
		{ 1024, 0, 4, SLAB_IN_OBJECT },	  { 1280, 0, 3, SLAB_IN_OBJECT },
		{ 2500, 1, 3, SLAB_IN_OBJECT },	  { 4096, 0, 1, SLAB_IN_OBJECT },
		{ 8192, 1, 1, SLAB_IN_OBJECT },	  { 10000, 2, 1, SLAB_IN_OBJECT },
		{ 4u << 20, 10, 1, SLAB_IN_OBJECT },
		/* More objects than the object has bytes. */
		{ 32, 0, 124, SLAB_ON_SLAB },	  { 16, 0, 239, SLAB_ON_SLAB },
		{ 8, 0, 239, SLAB_ON_SLAB },	  { 48, 0, 83, SLAB_ON_SLAB },
	};

	for (size_t i = 0; i < km_array_count(rows); i++) {
		struct kmem_cache *cache = fresh_with(rows[i].size, 0, NULL);

		CHECK_EQUAL(cache->layout.order, rows[i].order);
		CHECK_EQUAL(cache->layout.objects, rows[i].objects);
		CHECK_EQUAL(cache->layout.freelist, rows[i].freelist);
		done(cache);
	}
}

static void keep(void *object)
{
	memset(object, 0x6e, 64);
}

/*
 * A constructed object keeps its contents: the slab's indices are behind the objects, or outside of the slab.
 */
static void case_layout_constructed(void)
{
	static const struct {
		unsigned size, objects;
		enum slab_freelist freelist;
	} rows[] = {
		/* Nothing is left over, and 32 bytes are little beside an object: outside. 8 more for a link. */
		{ 248, 16, SLAB_OFF_SLAB }, { 504, 8, SLAB_OFF_SLAB }, { 4088, 1, SLAB_OFF_SLAB },
		/* 128 are much beside an object; what is left over will do. */
		{ 64, 56, SLAB_ON_SLAB },   { 1272, 3, SLAB_ON_SLAB },
	};

	for (size_t i = 0; i < km_array_count(rows); i++) {
		struct kmem_cache *cache = fresh_with(rows[i].size, 0, keep);
		unsigned char *objects[64];

		CHECK_EQUAL(cache->layout.freelist, rows[i].freelist);
		CHECK_EQUAL(cache->layout.objects, rows[i].objects);
		take(cache, (void **)objects, n_objects);
		struct km_page *slab = slab_of(objects[0]);
		uintptr_t list = (uintptr_t)slab_slab(slab)->freelist, base = (uintptr_t)km_page_address(slab);
		bool inside = list >= base && list < base + (KM_PAGE_SIZE << slab->order);
		CHECK_EQUAL(inside, rows[i].freelist == SLAB_ON_SLAB);
		for (unsigned round = 0; round < 2; round++) {
			for (unsigned j = 0; j < n_objects; j++)
				CHECK(objects[j][0] == 0x6e && objects[j][63] == 0x6e);
			give(cache, (void **)objects, n_objects);
			take(cache, (void **)objects, n_objects);
		}
		CHECK_EQUAL(kmem_cache_event(cache, KMEM_GROWN), 1);
		give(cache, (void **)objects, n_objects);
		done(cache);
	}
}

/* The first object freed to a full slab holds the indices, and is allocated last. */
static void case_freelist_in_object(void)
{
	struct kmem_cache *cache = fresh();
	void *objects[16], *again[16];

	take(cache, objects, 16);
	struct km_page *slab = slab_of(objects[0]);
	CHECK(!slab_slab(slab)->freelist);
	give(cache, objects + 9, 1);
	CHECK(slab_slab(slab)->freelist == objects[9]);
	give(cache, objects, 9);
	CHECK(slab_slab(slab)->freelist == objects[9]);
	CHECK_EQUAL(slab->inuse, 6);
	CHECK_EQUAL(slab_slab(slab)->freelist[6], 8);
	CHECK_EQUAL(slab_slab(slab)->freelist[15], 9);
	take(cache, again, 10);
	/* Last in, first out. */
	for (unsigned i = 0; i < 9; i++)
		CHECK(again[i] == objects[8 - i]);
	CHECK(again[9] == objects[9]);
	CHECK(!slab_slab(slab)->freelist);
	give(cache, objects, 16);
	done(cache);
}

/* ------------------------------------------------------------------ colours */

static int said_to, heard_at;
static char heard[512];

static void hear(void)
{
	int ends[2];

	fflush(stderr);
	said_to = dup(2);
	CHECK(pipe(ends) == 0);
	dup2(ends[1], 2);
	close(ends[1]);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	heard_at = ends[0];
}

static void listen(void)
{
	ssize_t n = read(heard_at, heard, sizeof(heard) - 1);

	heard[n > 0 ? n : 0] = '\0';
	dup2(said_to, 2);
	close(said_to);
	close(heard_at);
}

static void case_colours(void)
{
	struct kmem_cache *cache = fresh_with(700, 0, NULL);
	unsigned left = 8192 - 11 * 704, colours = left / 64;
	void *objects[11 * 16];

	CHECK_EQUAL(cache->layout.size, 704);
	CHECK_EQUAL(cache->form.colours, colours);
	CHECK_EQUAL(cache->form.colour_bytes, 64);
	take(cache, objects, 11 * 16);
	for (unsigned i = 0; i < 16; i++) {
		struct km_page *slab = slab_of(objects[11 * i]);
		char *first = (char *)km_page_address(slab) + i % colours * 64;

		CHECK(objects[11 * i] == first);
		for (unsigned j = 0; j < 11; j++) {
			memset(objects[11 * i + j], (int)i, 700);
			CHECK(kmem_cache_of(objects[11 * i + j]) == cache);
			CHECK(!kmem_cache_of((char *)objects[11 * i + j] + 64));
		}
	}
	/* kfree and kfree_bulk find them, too, and kfree what is none. */
	km_misuse_set(KM_MISUSE_WARN);
	hear();
	kfree((char *)objects[11] + 704 - 64);
	listen();
	km_misuse_set(KM_MISUSE_ABORT);
	CHECK(strstr(heard, "pointer is not the start of an object"));
	kfree_bulk(50, objects);
	for (unsigned i = 50; i < 11 * 16; i++)
		kfree(objects[i]);
	done(cache);
	/* Colours are as far apart as objects must be aligned. */
	struct kmem_cache_args args = { .engine = "slab", .align = 256 };
	cache = kmem_cache_create("slab-aligned", 2304, &args, 0);
	CHECK_EQUAL(cache->form.colour_bytes, 256);
	CHECK_EQUAL(cache->form.colours, (8192 - 3 * 2304) / 256);
	take(cache, objects, 12);
	for (unsigned i = 0; i < 12; i++)
		CHECK_EQUAL((uintptr_t)objects[i] % 256, 0);
	give(cache, objects, 12);
	done(cache);
}

/* ------------------------------------------------------------------ typesafe caches */

static void case_typesafe(void)
{
	struct kmem_cache *cache = fresh_with(248, SLAB_TYPESAFE_BY_RCU, NULL);
	void *objects[640];

	CHECK_EQUAL(cache->layout.freelist, SLAB_OFF_SLAB);
	take(cache, objects, 640);
	for (unsigned i = 0; i < 640; i++)
		memset(objects[i], 0x33, 248);
	give(cache, objects, 640);
	drain(cache);
	look(cache, 6);
	CHECK_EQUAL(kmem_cache_shrink(cache), 1);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_SLAB), 0);
	CHECK_EQUAL(node_of(cache)->slabs.counts.free_slabs, 40);
	for (unsigned i = 0; i < 640; i++)
		CHECK(*(unsigned char *)objects[i] == 0x33 && ((unsigned char *)objects[i])[247] == 0x33);
	done(cache);
}

/* ------------------------------------------------------------------ damage */

/* A write to a free object with the indices: after a warning no object is allocated twice. */
static void damage(unsigned how)
{
	struct kmem_cache *cache = fresh();
	void *objects[16], *again[16];
	bool seen[16] = { false };

	take(cache, objects, 16);
	give(cache, objects + 3, 8);
	uint8_t *indices = slab_slab(slab_of(objects[0]))->freelist;
	CHECK(indices == objects[3]);
	if (how == 0)
		memset(indices, 0xee, SIZE);
	else if (how == 1)
		memset(indices, 5, SIZE);	/* the index of a free object, again and again */
	else if (how == 2)
		memset(indices, 0, SIZE);	/* the index of an allocated object */
	else
		for (unsigned i = 8; i < 16; i++)	/* each of them once, but where they lie goes first */
			indices[i] = (uint8_t)(i - 5);
	hear();
	CHECK(cache->layout.engine->check(cache) == 1);
	listen();
	CHECK(strstr(heard, "its bits mark 8 as free"));
	char line[128];
	snprintf(line, sizeof(line), "libkmem: kmem_cache_alloc(%s, %p): free memory of this page was written to; "
		 "KMEM_OPTIONS=guard:each stops at such a write\n",
		 kmem_cache_name(cache), km_page_address(slab_of(objects[0])));
	km_misuse_set(KM_MISUSE_WARN);
	hear();
	take(cache, again, 8);
	listen();
	km_misuse_set(KM_MISUSE_ABORT);
	CHECK(strncmp(heard, line, strlen(line)) == 0);
	for (unsigned i = 0; i < 8; i++) {
		unsigned index = index_of(cache, again[i]);

		CHECK(index >= 3 && index < 11 && !seen[index]);
		seen[index] = true;
	}
	CHECK(again[7] == objects[3]);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	give(cache, objects, 16);
	done(cache);
}

static void case_damage(void)
{
	for (unsigned how = 0; how < 4; how++)
		damage(how);
}

/* ------------------------------------------------------------------ no memory */

/* No memory for indices outside of the slab: no slab, an error, and all is well afterwards. */
static void case_no_memory(void)
{
	struct kmem_cache *cache = fresh_with(4088, 0, keep);
	struct km_request request = km_request_of(GFP_NOWAIT, NUMA_NO_NODE);
	void *pieces = NULL, *object, *piece;

	CHECK_EQUAL(cache->layout.freelist, SLAB_OFF_SLAB);
	/* An array of an old limit; a failed refill must leave the array as before. */
	enter();
	void **block = cache->layout.engine->array.spill(cache, NULL);
	leave();
	CHECK_EQUAL(kmem_cache_tune(cache, 10, 5, 0), 0);
	kmem_cache_clear_events(cache);
	/* Without waiting only what was freed before is to be had. */
	while ((piece = km_metadata_alloc(slab_list_bytes(1), false))) {
		*(void **)piece = pieces;
		pieces = piece;
	}
	enter();
	CHECK_EQUAL(cache->layout.engine->take(cache, &request, &object, 1), 0);
	CHECK(!cache->layout.engine->array.refill(cache, &request, block));
	leave();
	/* A slab is wanted of the CPU's node first, and where there are others of any. */
	EVENTS(cache, [KMEM_ERRORS] = km_node_count > 1 ? 4 : 2, [KMEM_ALLOCMISS] = 1);
	CHECK(*km_sheaf_pad(&cache->fast.pcs, block) != cache->tune.pad);
	CHECK(km_sheaf_bottom(&cache->fast.pcs, block) == block && !*block);
	for (; pieces; pieces = piece) {
		piece = *(void **)pieces;
		km_metadata_free(pieces, slab_list_bytes(1));
	}
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	enter();
	cache->layout.engine->array.retire(cache, block);
	leave();
	take(cache, &object, 1);
	give(cache, &object, 1);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "orders, and where indices lie", case_layout },
		{ "the same with constructors", case_layout_constructed },
		{ "indices in a free object", case_freelist_in_object },
		{ "colours", case_colours },
		{ "SLAB_TYPESAFE_BY_RCU", case_typesafe },
		{ "indices that were written over", case_damage },
		{ "no memory", case_no_memory },
	};

	return counted_run(cases, km_array_count(cases), 20);
}
