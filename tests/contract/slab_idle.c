/*
 * slab_idle: what the engine slab takes back by itself, look by look: idle arrays of CPUs every 2 seconds, a share at a
 * time, shared arrays and free slabs every 4, alien arrays in turn; and what alien arrays do. Disciplines: all.
 */
#include "slab.h"

/* ------------------------------------------------------------------ arrays of CPUs */

/* Touched, it is left alone once; then a fifth of the limit goes, the oldest, until less is there: then the half. */
static void case_idle_array(void)
{
	struct kmem_cache *cache = fresh();
	void *objects[120];

	take(cache, objects, 120);
	for (unsigned i = 0; i < 120; i++)
		put(cache, objects[i]);
	look(cache, 1);
	CHECK_EQUAL(km_front_shelf_objects(cache), 120);
	look(cache, 1);
	CHECK_EQUAL(km_front_shelf_objects(cache), 96);
	for (unsigned i = 0; i < 120; i++)
		CHECK_EQUAL(slab_is_free(slab_of(objects[i]), index_of(cache, objects[i])), i < 24);
	/* A hit is seen, by the shelf's word. */
	void *object = get(cache);
	CHECK(object == objects[119]);
	look(cache, 1);
	CHECK_EQUAL(km_front_shelf_objects(cache), 95);
	put(cache, object);
	look(cache, 1);
	CHECK_EQUAL(km_front_shelf_objects(cache), 96);
	static const unsigned left[] = { 72, 48, 24, 0, 0 };
	for (unsigned i = 0; i < km_array_count(left); i++) {
		look(cache, 1);
		CHECK_EQUAL(km_front_shelf_objects(cache), left[i]);
	}
	CHECK_EQUAL(node_of(cache)->counts.taken, 0);
	CHECK_EQUAL(cache->engine->check(cache), 0);
	/* Nothing lies there any more, not even an array; then it is a cold one. */
	CHECK_EQUAL(km_shelf_top_cpu(&cache->shelf, km_cpu()), 0);
	kmem_cache_clear_events(cache);
	put(cache, get(cache));
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), SLAB_BATCH_UNTOUCHED);
	done(cache);
}

/* Less than a fifth: the half, rounded up. */
static void case_few_left(void)
{
	struct kmem_cache *cache = fresh();
	static const unsigned left[] = { 7, 3, 1, 0 };
	void *objects[7];

	take(cache, objects, 7);
	for (unsigned i = 0; i < 7; i++)
		put(cache, objects[i]);
	for (unsigned i = 0; i < km_array_count(left); i++) {
		look(cache, 1);
		CHECK_EQUAL(km_front_shelf_objects(cache), left[i]);
	}
	done(cache);
}

/* ------------------------------------------------------------------ the node */

/* At a refill: many where the array was used since the last look, by a miss or by hits, few where it was not. */
static void case_touched(void)
{
	struct kmem_cache *cache = fresh_with(64, 0, NULL);
	void *objects[200];
	unsigned count = 0;

	objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 16);
	look(cache, 1);
	/* 15 hits since the look. */
	while (count < 17)
		objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 64);
	while (count < 64)
		objects[count++] = get(cache);
	/* Empty when it is looked at, and when it is wanted. */
	look(cache, 2);
	objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 64 + 16);
	while (count < 81)
		objects[count++] = get(cache);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_ALLOCS), 64 + 64);
	while (count)
		put(cache, objects[--count]);
	done(cache);
}

static void case_idle_node(void)
{
	struct kmem_cache *cache = fresh();
	struct slab_node *n = node_of(cache);
	unsigned shared = n_shared ? 100 : 0, slabs;
	void *objects[320];

	take(cache, objects, 320);
	/* Half of the objects are free, in free slabs; some are in the shared array. */
	give(cache, objects, 160);
	if (shared) {
		enter();
		void **block = cache->engine->spill(cache, NULL);
		memcpy(block - 60, objects + 160, 60 * sizeof(*block));
		cache->engine->retire(cache, cache->engine->spill(cache, block - 60));
		leave();
		shared = 60;
	}
	CHECK_EQUAL(n->counts.shared, shared);
	slabs = (unsigned)n->free_slabs;
	CHECK_EQUAL(slabs, 10);
	/* The first look says when the node is due; each second one comes to it. */
	look(cache, 1);
	n->shared_touched = n->free_touched = true;
	look(cache, 2);
	CHECK_EQUAL(n->counts.shared, shared);
	CHECK_EQUAL(n->free_slabs, slabs);
	CHECK(!n->shared_touched && !n->free_touched);
	look(cache, 1);
	CHECK_EQUAL(n->free_slabs, slabs);
	kmem_cache_clear_events(cache);
	look(cache, 1);
	/* A fifth of 480 is more than there is: the half. */
	CHECK_EQUAL(n->counts.shared, shared / 2);
	unsigned long reaped = (n->free_limit + 5 * 16 - 1) / (5 * 16);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_REAPED), reaped);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREE_SLAB), reaped);
	CHECK_EQUAL(cache->engine->check(cache), 0);
	/* In time all of it goes. */
	look(cache, 40);
	CHECK_EQUAL(n->counts.shared, 0);
	CHECK_EQUAL(n->free_slabs, 0);
	CHECK_EQUAL(cache->engine->check(cache), 0);
	give(cache, objects + 160 + shared, 160 - shared);
	done(cache);
}

/* Nobody calls a look here: misses of another cache do, some time. What idles goes a share at a time, not at once. */
static void case_by_itself(void)
{
	struct kmem_cache *cache = fresh();
	struct kmem_cache *other = kmem_cache_create("poked", 64, NULL, SLAB_NO_SHEAVES);
	void *objects[120];

	take(cache, objects, 120);
	for (unsigned i = 0; i < 120; i++)
		put(cache, objects[i]);
	for (unsigned i = 0; i < 3000 && km_front_shelf_objects(cache) == 120; i++) {
		put(other, get(other));
		usleep(10000);
	}
	CHECK_EQUAL(km_front_shelf_objects(cache), 96);
	kmem_cache_destroy(other);
	done(cache);
}

/* ------------------------------------------------------------------ another node */

static _Alignas(64) char other_node[sizeof(struct slab_node)];

/* A second node, which has those slabs, all of whose objects are taken. */
static struct slab_node *second_node(struct kmem_cache *cache, void **objects, unsigned slabs)
{
	struct slab_node *from = node_of(cache), *to;

	memset(other_node, 0, sizeof(other_node));
	cache->node[1] = other_node;
	cache->engine->node_init(cache, 1);
	to = slab_node(cache, 1);
	for (unsigned i = 0; i < slabs; i++) {
		struct km_page *slab = slab_of(objects[i * n_objects]);

		CHECK_EQUAL(slab->inuse, slab->objects);
		km_list_del(&slab->list);
		km_list_add_head(&slab->list, &to->full);
		slab->node = 1;
	}
	from->counts.slabs -= slabs;
	from->counts.objects -= slabs * n_objects;
	from->counts.taken -= slabs * n_objects;
	to->counts.slabs += slabs;
	to->counts.objects += slabs * n_objects;
	to->counts.taken += slabs * n_objects;
	CHECK_EQUAL(cache->engine->check(cache), 0);
	return to;
}

static void forget_second_node(struct kmem_cache *cache)
{
	kmem_cache_shrink(cache);
	CHECK_EQUAL(slab_node(cache, 1)->counts.slabs, 0);
	CHECK_EQUAL(cache->engine->check(cache), 0);
	cache->engine->node_fini(cache, 1);
	cache->node[1] = NULL;
	done(cache);
}

/* Spill these objects, as many as a batch, and keep the block. */
static void spill(struct kmem_cache *cache, void **objects, unsigned count)
{
	enter();
	void **block = cache->engine->spill(cache, NULL) - count;
	for (unsigned i = 0; i < count; i++)
		block[count - 1 - i] = objects[i];
	block = cache->engine->spill(cache, block);
	cache->engine->retire(cache, block);
	leave();
}

static void case_alien(void)
{
	struct kmem_cache *cache = small(4);
	struct slab_node *n = node_of(cache);
	void *objects[64];

	take(cache, objects, 64);
	struct slab_node *other = second_node(cache, objects, 2);
	kmem_cache_clear_events(cache);
	/* Two of theirs, two of ours: ours go to our shared array. */
	void *mixed[] = { objects[0], objects[40], objects[1], objects[41] };
	spill(cache, mixed, 4);
	EVENTS(cache, [KMEM_FREEMISS] = 1, [KMEM_NODE_FREES] = 2);
	CHECK_EQUAL(n->counts.shared, 2);
	CHECK_EQUAL(n->alien[1].avail, 2);
	CHECK_EQUAL(n->ready, 4);
	CHECK_EQUAL(other->counts.shared, 0);
	/* Twelve fit; the thirteenth sends them home: as many as its shared array takes, the rest to slabs. */
	spill(cache, objects + 2, 4);
	spill(cache, objects + 6, 4);
	spill(cache, objects + 10, 2);
	CHECK_EQUAL(n->alien[1].avail, 12);
	kmem_cache_clear_events(cache);
	spill(cache, objects + 12, 1);
	EVENTS(cache, [KMEM_FREEMISS] = 1, [KMEM_NODE_FREES] = 1, [KMEM_OVERFLOWS] = 1);
	CHECK_EQUAL(n->alien[1].avail, 1);
	CHECK_EQUAL(other->counts.shared, 12);
	CHECK_EQUAL(other->counts.taken, 32);
	for (unsigned i = 13; i < 29; i += 4)
		spill(cache, objects + i, 4);
	CHECK_EQUAL(n->alien[1].avail, 5);
	CHECK_EQUAL(other->counts.shared, 16);
	CHECK_EQUAL(other->counts.taken, 24);
	CHECK_EQUAL(cache->engine->check(cache), 0);
	/* A look drains one alien array; in turn all. */
	look(cache, KM_MAX_NODES);
	CHECK_EQUAL(n->alien[1].avail, 0);
	CHECK_EQUAL(cache->engine->check(cache), 0);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.active_objects, 64 - 31);
	give(cache, objects + 29, 11);
	give(cache, objects + 42, 22);
	forget_second_node(cache);
}

/* Objects of both nodes go back to the slabs in one call. */
static void case_give_both(void)
{
	struct kmem_cache *cache = small(0);
	void *objects[64], *mixed[64];

	take(cache, objects, 64);
	struct slab_node *other = second_node(cache, objects, 2);
	for (unsigned i = 0; i < 32; i++) {
		mixed[2 * i] = objects[i];
		mixed[2 * i + 1] = objects[32 + i];
	}
	give(cache, mixed, 64);
	CHECK_EQUAL(other->counts.taken, 0);
	CHECK_EQUAL(node_of(cache)->counts.taken, 0);
	CHECK_EQUAL(cache->engine->check(cache), 0);
	/* A request for a node is served there; nothing is got from elsewhere while there is memory. */
	struct km_request request = km_request_of(GFP_KERNEL, 1);
	enter();
	CHECK_EQUAL(cache->engine->take(cache, &request, objects, 3), 3);
	leave();
	CHECK_EQUAL(slab_of(objects[0])->node, 1);
	CHECK_EQUAL(other->counts.taken, 3);
	CHECK_EQUAL(kmem_cache_event(cache, KMEM_NODE_ALLOCS), 0);
	give(cache, objects, 3);
	forget_second_node(cache);
}

/* No pages: what another node has, unless only this one will do. */
static void case_elsewhere(void)
{
	enum { MOST = 65536 };
	struct kmem_cache *cache = small(0);
	void *objects[32], *object;
	struct blocks {
		struct km_page *page[MOST];
		unsigned char order[MOST];
		unsigned count;
	} *blocks = calloc(1, sizeof(*blocks));
	struct km_page *page;

	take(cache, objects, 32);
	struct slab_node *other = second_node(cache, objects, 2);
	give(cache, objects, 3);
	km_os_fault = no_more;
	for (unsigned order = KM_MAX_ORDER + 1; order-- > 0;)
		while (blocks->count < MOST && (page = km_pages_alloc(order, -1, false, NULL))) {
			blocks->order[blocks->count] = (unsigned char)order;
			blocks->page[blocks->count++] = page;
		}
	kmem_cache_clear_events(cache);
	struct km_request only = km_request_of(GFP_NOWAIT | __GFP_THISNODE, 0),
			  any = km_request_of(GFP_NOWAIT, 0);
	enter();
	CHECK_EQUAL(cache->engine->take(cache, &only, &object, 1), 0);
	EVENTS(cache, [KMEM_ERRORS] = 1);
	CHECK_EQUAL(cache->engine->take(cache, &any, &object, 1), 1);
	EVENTS(cache, [KMEM_ERRORS] = 1, [KMEM_NODE_ALLOCS] = 1, [KMEM_ALLOCS] = 1,
	       [KMEM_HIGH] = other->counts.taken);
	leave();
	CHECK(object == objects[2]);
	km_os_fault = NULL;
	for (unsigned i = 0; i < blocks->count; i++)
		km_pages_free(blocks->page[i], blocks->order[i]);
	free(blocks);
	give(cache, objects + 2, 30);
	forget_second_node(cache);
}

int main(void)
{
	static const struct contract_case cases[] = {
		{ "an idle array", case_idle_array },
		{ "few objects left", case_few_left },
		{ "a touched array gets more", case_touched },
		{ "an idle node", case_idle_node },
		{ "by itself", case_by_itself },
		{ "alien arrays", case_alien },
		{ "objects of two nodes", case_give_both },
		{ "another node helps out", case_elsewhere },
	};

	return slab_run(cases, km_array_count(cases), 20);
}
