/*
 * prefill: prefilled sheaves: their source and their end, with every event; errors; exhausted memory; allocations
 * from a prefilled sheaf cannot fail. Disciplines: all. Not with hardened: objects pass from the engine's own
 * functions to callers, unproved.
 */
#include "kit/engine.h"

#include <kmem/inline.h>

#include "cache/cache.h"

enum { SIZE = 256, FIRST = 30, LARGEST = 254, IN_SLAB = 16, BARN = 300 };

static struct kmem_cache *fresh_with(const char *engine, unsigned size, slab_flags_t flags,
				     void (*ctor)(void *))
{
	return cache_of((struct kmem_cache_args){ .engine = engine, .ctor = ctor }, size, flags);
}

/* A sheaf cache with a main sheaf and without a spare on this CPU. */
static struct kmem_cache *warm(void)
{
	struct kmem_cache *cache = fresh_with("sheaf", SIZE, 0, NULL);

	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	CHECK_EQUAL(cache->fast.capacity, FIRST);
	CHECK_EQUAL(cache->tune.max_capacity, LARGEST);
	CHECK_EQUAL(cache->layout.objects, IN_SLAB);
	kmem_cache_clear_events(cache);
	return cache;
}

static unsigned long active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

static void done(struct kmem_cache *cache)
{
	CHECK_EQUAL(active(cache), 0);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	CHECK_EQUAL(kmem_cache_shrink(cache), 0);
	kmem_cache_destroy(cache);
}

static struct slab_sheaf *prefill(struct kmem_cache *cache, unsigned n)
{
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, n);

	CHECK(sheaf);
	return sheaf;
}

static void give(struct kmem_cache *cache, struct slab_sheaf *sheaf)
{
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
}

/* Take n and free them: each is written to whole, and none comes twice. */
static void use(struct kmem_cache *cache, struct slab_sheaf *sheaf, unsigned n)
{
	void **objects = malloc(n * sizeof(*objects));
	unsigned before = kmem_cache_sheaf_size(sheaf);

	for (unsigned i = 0; i < n; i++) {
		objects[i] = kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT, sheaf);
		CHECK(objects[i]);
		if (!objects[i])
			return;
		memset(objects[i], (int)i, kmem_cache_size(cache));
	}
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), before - n);
	for (unsigned i = 0; i < n; i++)
		CHECK(*(unsigned char *)objects[i] == (unsigned char)i);
	for (unsigned i = 0; i < n; i++)
		kmem_cache_free(cache, objects[i]);
	free(objects);
}

/* ------------------------------------------------------------------ the source */

static void case_from_slabs(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaf = prefill(cache, 5);

	/* Filled up, not only to 5. One slab was there. */
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), FIRST);
	EVENTS(cache, [KMEM_SHEAF_PREFILL_SLOW] = 1, [KMEM_BARN_GET_FAIL] = 1, [KMEM_SHEAF_REFILL] = 1,
	       [KMEM_ALLOC_SLAB] = 2);
	CHECK_EQUAL(active(cache), FIRST);
	give(cache, sheaf);
	EVENTS(cache, [KMEM_SHEAF_RETURN_FAST] = 1);
	done(cache);
}

static void case_from_the_cpu(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaf = prefill(cache, 5), *again;
	void *object = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaf);

	give(cache, sheaf);
	kmem_cache_clear_events(cache);
	again = prefill(cache, FIRST - 1);
	CHECK(again == sheaf);
	CHECK_EQUAL(kmem_cache_sheaf_size(again), FIRST - 1);
	EVENTS(cache, [KMEM_SHEAF_PREFILL_FAST] = 1);
	give(cache, again);
	EVENTS(cache, [KMEM_SHEAF_RETURN_FAST] = 1);
	/* One object more than the spare has: the same sheaf, filled up. */
	again = prefill(cache, FIRST);
	CHECK(again == sheaf);
	CHECK_EQUAL(kmem_cache_sheaf_size(again), FIRST);
	EVENTS(cache, [KMEM_SHEAF_PREFILL_SLOW] = 1, [KMEM_SHEAF_REFILL] = 1);
	use(cache, again, FIRST);
	kmem_cache_free(cache, object);
	give(cache, again);
	done(cache);
}

/* An empty spare goes to the barn for a full one. */
static void case_from_the_barn(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *one = prefill(cache, 1), *two = prefill(cache, 1), *sheaf;
	void *objects[FIRST];

	for (unsigned i = 0; i < FIRST; i++)
		objects[i] = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, one);
	/* The CPU has the empty one, the barn the full. */
	give(cache, one);
	give(cache, two);
	kmem_cache_clear_events(cache);
	sheaf = prefill(cache, 1);
	CHECK(sheaf == two);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), FIRST);
	EVENTS(cache, [KMEM_SHEAF_PREFILL_SLOW] = 1, [KMEM_BARN_GET] = 1);
	give(cache, sheaf);
	kmem_cache_free_bulk(cache, FIRST, objects);
	done(cache);
}

/*
 * A request above the sheaf's capacity raises the capacity; a request above the largest capacity gets an
 * array.
 */
static void case_large(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaf = prefill(cache, FIRST + 1);

	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), 62);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_PREFILL_OVERSIZE), 0);
	give(cache, sheaf);
	sheaf = prefill(cache, LARGEST);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), LARGEST);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_PREFILL_OVERSIZE), 0);
	use(cache, sheaf, LARGEST);
	give(cache, sheaf);
	kmem_cache_clear_events(cache);
	sheaf = prefill(cache, LARGEST + 1);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), LARGEST + 1);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_PREFILL_OVERSIZE), 1);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_PREFILL_SLOW), 0);
	CHECK_EQUAL(active(cache), LARGEST + 1);
	use(cache, sheaf, LARGEST);
	kmem_cache_clear_events(cache);
	give(cache, sheaf);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_RETURN_FAST), 0);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_RETURN_SLOW), 0);
	done(cache);
}

/* ------------------------------------------------------------------ the end */

static void case_to_the_barn(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *one = prefill(cache, 1), *two = prefill(cache, 1);
	void *object = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, two);

	give(cache, one);
	kmem_cache_clear_events(cache);
	/* The CPU has one already: this one is filled up, for the barn. */
	give(cache, two);
	EVENTS(cache, [KMEM_SHEAF_RETURN_SLOW] = 1, [KMEM_SHEAF_REFILL] = 1);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.shelf_objects, 3 * FIRST);
	kmem_cache_free(cache, object);
	done(cache);
}

static void case_to_the_slabs(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaves[BARN / FIRST + 2];
	const unsigned last = BARN / FIRST + 1;

	for (unsigned i = 0; i <= last; i++)
		sheaves[i] = prefill(cache, 1);
	void *object = kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaves[last]);
	/* One sheaf to the CPU, ten to the barn: then the barn is full. */
	for (unsigned i = 0; i < last; i++)
		give(cache, sheaves[i]);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_FLUSH), 0);
	kmem_cache_clear_events(cache);
	give(cache, sheaves[last]);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_RETURN_SLOW), 1);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_FLUSH), 1);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_REFILL), 0);
	kmem_cache_free(cache, object);
	done(cache);
}

/* A CPU without sheaves has no place for a spare either. */
static void case_to_a_cold_cpu(void)
{
	struct kmem_cache *cache = fresh_with("sheaf", SIZE, 0, NULL);
	struct slab_sheaf *sheaf = prefill(cache, 3);

	use(cache, sheaf, 3);
	kmem_cache_shrink(cache);
	kmem_cache_clear_events(cache);
	give(cache, sheaf);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_RETURN_SLOW), 1);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_RETURN_FAST), 0);
	kmem_cache_return_sheaf(cache, GFP_KERNEL, NULL);
	errno = 77;
	give(cache, prefill(cache, 1));
	CHECK_EQUAL(errno, 77);
	done(cache);
}

/* Prefilled here, used there, returned there. */
static void case_on_another_cpu(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaf = prefill(cache, 20);

	if (cpu_at(1) >= 0)
		go_to_cpu(cpu_at(1));
	use(cache, sheaf, 20);
	give(cache, sheaf);
	go_to_cpu(cpu_at(0));
	done(cache);
}

/* ------------------------------------------------------------------ refill */

static void case_refill(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaf = NULL, *before;

	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, 1), -EINVAL);
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, NULL, 1), -EINVAL);
	sheaf = before = prefill(cache, 1);
	use(cache, sheaf, 10);
	kmem_cache_clear_events(cache);
	/* First the sheaf has enough objects; then the sheaf has too few. */
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, FIRST - 10), 0);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), FIRST - 10);
	EVENTS(cache, 0);
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, FIRST - 9), 0);
	CHECK(sheaf == before);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), FIRST);
	EVENTS(cache, [KMEM_SHEAF_REFILL] = 1, [KMEM_ALLOC_SLAB] = 1);
	/* Beyond what any block can hold. */
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, 500), 0);
	CHECK(sheaf != before);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), 500);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_PREFILL_OVERSIZE), 1);
	use(cache, sheaf, 400);
	before = sheaf;
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, 101), 0);
	CHECK(sheaf == before);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), 500);
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, 501), 0);
	CHECK(sheaf != before);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), 501);
	CHECK_EQUAL(active(cache), 501);
	give(cache, sheaf);
	done(cache);
}

/* ------------------------------------------------------------------ taking */

static void construct(void *object)
{
	memset(object, 0x3c, SIZE);
}

static void case_taking(void)
{
	struct kmem_cache *cache = warm(), *made = fresh_with("sheaf", SIZE, 0, construct);
	struct slab_sheaf *sheaf = prefill(cache, 2);
	unsigned char *object;

	use(cache, sheaf, 2);
	for (int i = 0; i < FIRST - 2; i++) {
		/* With the inline function of the header, and in its zeroing form. */
		object = i % 2 ? kmem_cache_alloc_from_sheaf_inline(cache, GFP_NOWAIT, sheaf) :
				 kmem_cache_alloc_from_sheaf_inline(cache, GFP_NOWAIT | __GFP_ZERO, sheaf);
		CHECK(object);
		if (i % 2 == 0)
			CHECK(object[0] == 0 && memcmp(object, object + 1, SIZE - 1) == 0);
		memset(object, 0xff, SIZE);
		kmem_cache_free(cache, object);
	}
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), 0);
	errno = 0;
	CHECK(!kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaf));
	CHECK_EQUAL(errno, ENOMEM);
	errno = 0;
	CHECK(!kmem_cache_alloc_from_sheaf_inline(cache, GFP_KERNEL, sheaf));
	CHECK_EQUAL(errno, ENOMEM);
	give(cache, sheaf);
	errno = 0;
	CHECK(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 0));
	CHECK_EQUAL(errno, EINVAL);
	done(cache);
	/* A constructed object keeps its contents. */
	sheaf = prefill(made, 1);
	object = kmem_cache_alloc_from_sheaf(made, GFP_KERNEL | __GFP_ZERO, sheaf);
	CHECK(object[0] == 0x3c && object[SIZE - 1] == 0x3c);
	kmem_cache_free(made, object);
	give(made, sheaf);
	done(made);
}

/* ------------------------------------------------------------------ no memory */

/* Memory is refused; the process fence is not a request for memory. */
static bool no_memory(const char *call)
{
	return strcmp(call, "fence") != 0;
}

/* More memory than is committed, also ahead for requests that may not wait. */
#define MOST (1u << 22)

/* As after a long night: the system gives nothing, and nothing is free here. */
static void **use_up(struct kmem_cache *cache, size_t *count)
{
	static void *objects[MOST];

	km_os_fault = no_memory;
	for (*count = 0; *count < MOST; ++*count)
		if (!(objects[*count] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN)))
			break;
	CHECK(*count < MOST);
	return objects;
}

static void with_nothing_left(struct kmem_cache *cache, bool array)
{
	const unsigned n = array ? LARGEST + 10 : 20;
	struct slab_sheaf *sheaf = prefill(cache, n), *before = sheaf;
	size_t count;
	void **objects = use_up(cache, &count);

	/* All prefilled objects are there, after all events. */
	for (unsigned i = 0; i < n - 1; i++) {
		void *object = kmem_cache_alloc_from_sheaf(cache, GFP_NOWAIT, sheaf);

		CHECK(object);
		CHECK(count < MOST);
		objects[count++] = object;
	}
	unsigned left = kmem_cache_sheaf_size(sheaf);
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, &sheaf, left + 1), -ENOMEM);
	CHECK(sheaf == before);
	CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), left);
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, &sheaf, 1000), -ENOMEM);
	CHECK(sheaf == before);
	for (unsigned i = 1; i < 2000; i *= 7) {
		errno = 0;
		CHECK(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, i));
		CHECK_EQUAL(errno, ENOMEM);
		CHECK(!kmem_cache_prefill_sheaf(cache, GFP_NOWAIT, i));
	}
	CHECK(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, 524285));
	give(cache, sheaf);
	kmem_cache_free_bulk(cache, count, objects);
	km_os_fault = NULL;
	done(cache);
}

static void case_no_memory(void)
{
	with_nothing_left(warm(), false);
	with_nothing_left(warm(), true);
	with_nothing_left(fresh_with("slub", SIZE, 0, NULL), true);
	with_nothing_left(fresh_with("slab", SIZE, 0, NULL), true);
	with_nothing_left(fresh_with("slob", SIZE, 0, NULL), true);
}

/* A little is left: not enough is as good as nothing, and comes back. */
static void case_too_little(void)
{
	struct kmem_cache *cache = warm();
	size_t count;
	void **objects = use_up(cache, &count);

	kmem_cache_free_bulk(cache, 7, objects);
	kmem_cache_shrink(cache);
	CHECK(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, 8));
	CHECK_EQUAL(active(cache), count - 7);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, 7);
	CHECK(sheaf);
	if (sheaf) {
		CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), 7);
		give(cache, sheaf);
	}
	kmem_cache_free_bulk(cache, count - 7, objects + 7);
	km_os_fault = NULL;
	done(cache);
}

/* The memory of an array not filled serves the next array. */
static void case_array_kept(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaf;
	size_t count;

	give(cache, prefill(cache, 2000));
	void **objects = use_up(cache, &count);
	for (int i = 0; i < 100; i++)
		CHECK(!kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, 2000));
	kmem_cache_free_bulk(cache, count, objects);
	sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL | __GFP_NOWARN, 2000);
	CHECK(sheaf);
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
	km_os_fault = NULL;
	done(cache);
}

/* ------------------------------------------------------------------ caches without blocks */

static void without_blocks(const char *engine, slab_flags_t flags)
{
	struct kmem_cache *cache = fresh_with(engine, SIZE, flags, NULL);

	for (unsigned n = 1; n <= 700; n = n * 3 + 1) {
		struct slab_sheaf *sheaf = prefill(cache, n);

		CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), n);
		CHECK_EQUAL(active(cache), n);
		use(cache, sheaf, n / 2 + 1);
		CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, n), 0);
		CHECK_EQUAL(kmem_cache_sheaf_size(sheaf), n);
		use(cache, sheaf, n);
		CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, n * 2), 0);
		give(cache, sheaf);
		CHECK_EQUAL(active(cache), 0);
	}
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_PREFILL_OVERSIZE), 12);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_SHEAF_PREFILL_SLOW), 0);
	done(cache);
}

static void case_without_blocks(void)
{
	without_blocks("slub", 0);
	without_blocks("sheaf", SLAB_CONSISTENCY_CHECKS);
	without_blocks("sheaf", SLAB_NO_SHEAVES);
	without_blocks("slub", SLAB_CONSISTENCY_CHECKS);
	without_blocks("slab", 0);
	without_blocks("slob", 0);
}

/* A call inside of the allocator, as from a handler: no memory, and no harm. */
static void case_nested(void)
{
	struct kmem_cache *cache = warm();
	struct slab_sheaf *sheaf = prefill(cache, 2), *before = sheaf;

	use(cache, sheaf, FIRST);
	struct km_busy_was was = km_busy_begin();
	CHECK(!kmem_cache_prefill_sheaf(cache, GFP_NOWAIT, 1));
	CHECK(!kmem_cache_prefill_sheaf(cache, GFP_NOWAIT, 1000));
	CHECK_EQUAL(kmem_cache_refill_sheaf(cache, GFP_NOWAIT, &sheaf, 1), -ENOMEM);
	CHECK(sheaf == before);
	km_busy_end(was);
	give(cache, sheaf);
	done(cache);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "from the slabs, filled up", case_from_slabs },
		{ "from the CPU", case_from_the_cpu },
		{ "from the barn", case_from_the_barn },
		{ "more than a block holds", case_large },
		{ "to the barn", case_to_the_barn },
		{ "to the slabs", case_to_the_slabs },
		{ "to a CPU that has nothing", case_to_a_cold_cpu },
		{ "on another CPU", case_on_another_cpu },
		{ "refill", case_refill },
		{ "taking", case_taking },
		{ "no memory", case_no_memory },
		{ "too little memory", case_too_little },
		{ "an array that was not filled", case_array_kept },
		{ "caches without blocks", case_without_blocks },
		{ "from inside", case_nested },
	};

	kfree(kmalloc(8, GFP_KERNEL));
	km_layout_options.count_events = true;
	return run_in_turn(cases, sizeof(cases) / sizeof(cases[0]), 5);
}
