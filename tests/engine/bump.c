/*
 * bump.c: a fifth engine, as a proof: an engine is one file and one line; here the line is km_engine_add, below.
 * A slab gives its objects from the first to the last. Freed objects go on a list through the slab's free
 * objects, and are allocated first. No object is cached on CPUs: every call takes the node's lock.
 *
 * Invariants, under the node's lock: a slab is listed iff some object is free; objects - inuse is the number of
 * objects on the list and of objects never allocated. tests/engine/bumped runs the tests for each engine with
 * this one.
 */
#include "slab/freeptr.h"
#include "slab/partial.h"
#include "base/bits.h"

/* In a slab's descriptor. */
struct bump_slab {
	uint32_t free, next;	/* offset of the list's first object plus one, 0: none; the first object never
				 * allocated */
};
KM_ENGINE_PAGE(bump, struct bump_slab)

static unsigned free_objects(const struct km_page *slab)
{
	return (unsigned)(slab->objects - slab->inuse);
}

static int layout(struct kmem_cache *cache, const struct kmem_cache_args *args km_unused)
{
	cache->layout.order = (uint8_t)km_layout_order(cache->layout.size, km_layout_options.min_objects ?: 16,
						km_layout_options.max_order ?: 3);
	cache->layout.objects =
		(uint32_t)km_min((KM_PAGE_SIZE << cache->layout.order) / cache->layout.size,
				 (size_t)KM_SLAB_MAX_OBJECTS);
	return 0;
}

/* From partial slabs, as long as there are more than `keep`; lock held. */
static unsigned take_partial(struct kmem_cache *cache, struct km_slabs *n, unsigned long keep, void **objects,
			     unsigned want)
{
	unsigned got = 0;

	while (got < want && n->counts.partial > keep) {
		struct km_page *slab = km_list_first(&n->partial, struct km_page, list);
		struct bump_slab *state = bump(slab);
		char *base = km_page_address(slab), *next;
		char *object = km_slab_first(cache, slab) + (size_t)state->next * cache->layout.size;

		if (state->free) {
			object = base + state->free - 1;
			next = km_free_next(cache, object);
			km_store(&state->free, next ? (uint32_t)(next - base) + 1 : 0u);
		} else {
			km_store(&state->next, state->next + 1);
		}
		objects[got++] = object;
		if (++slab->inuse == slab->objects)
			km_slabs_unlist(n, slab);
	}
	km_bump(&n->counts.taken, got);
	return got;
}

/*
 * Takes objects from slabs of other nodes: a node without pages gets slabs of other nodes, and must use them up.
 */
static unsigned take_elsewhere(struct kmem_cache *cache, const struct km_request *request, void **objects,
			       unsigned want)
{
	struct km_slabs *n;
	unsigned got = 0;

	km_for_each_elsewhere(n, cache, km_request_node(request)) {
		if (got == want || !km_lock_may(&n->lock, request->may_wait))
			break;
		got += take_partial(cache, n, 0, objects + got, want - got);
		km_unlock_may(&n->lock, request->may_wait);
	}
	return got;
}

static unsigned take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	struct km_slabs *n = cache->state.node[km_request_node(request)];
	unsigned got = 0;

	while (km_lock_may(&n->lock, request->may_wait)) {
		got += take_partial(cache, n, 0, objects + got, want - got);
		km_unlock_may(&n->lock, request->may_wait);
		if (got < want && km_node_count > 1 && !(request->gfp & __GFP_THISNODE))
			got += take_elsewhere(cache, request, objects + got, want - got);
		struct km_page *slab = got < want ? km_slab_new(cache, request) : NULL;
		if (!slab)
			break;
		*bump(slab) = (struct bump_slab){ 0, 0 };
		n = cache->state.node[slab->node];
		if (!km_lock_may(&n->lock, request->may_wait)) {
			km_slab_free(cache, slab);
			break;
		}
		km_slabs_came(n, slab);
		km_slabs_list(n, slab, false);
		km_unlock_may(&n->lock, request->may_wait);
	}
	return got;
}

static void *alloc(struct kmem_cache *cache, const struct km_request *request)
{
	void *object;

	return take(cache, request, &object, 1) ? object : NULL;
}

/* Other CPUs may change the list: each link is checked before its use. */
static uint64_t taken(struct kmem_cache *cache, struct km_page *slab, unsigned word)
{
	char *base = km_page_address(slab);
	uint32_t at = km_load(&bump(slab)->free), next = km_load(&bump(slab)->next);
	char *object = at ? base + at - 1 : NULL;
	uint64_t bits = km_object_bits(next, word);
	int index;

	for (unsigned i = 0; object && i < slab->objects; i++, object = km_free_next(cache, object))
		if ((index = km_object_index(cache, slab, km_slab_first(cache, slab), object)) < 0)
			break;
		else if ((unsigned)index / 64 == word)
			bits &= ~((uint64_t)1 << index % 64);
	return bits;
}

static bool is_taken(struct kmem_cache *cache, struct km_page *slab, unsigned index)
{
	return taken(cache, slab, index / 64) >> index % 64 & 1;
}

static void free_one(struct kmem_cache *cache, void *object)
{
	int index;
	struct km_page *slab = km_slab_of(cache, object, &index, "kmem_cache_free");
	char *base = slab ? km_page_address(slab) : NULL;

	if (!slab)
		return;
	struct km_slabs *n = cache->state.node[slab->node];
	km_lock(&n->lock);
	bool twice = !is_taken(cache, slab, (unsigned)index), go = false;
	if (!twice) {
		uint32_t free = bump(slab)->free;

		km_set_free_next(cache, object, free ? base + free - 1 : NULL);
		km_store(&bump(slab)->free, (uint32_t)((char *)object - base) + 1);
		km_bump(&n->counts.taken, -1);
		if (slab->inuse-- == slab->objects)
			km_slabs_list(n, slab, false);
		go = !slab->inuse && n->counts.partial > km_load(&cache->tune.min_partial) &&
		     !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU);
	}
	if (go)
		km_slabs_drop(n, slab);
	km_unlock_quick(&n->lock);
	if (twice)
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->registry.name);
	if (go)
		km_slab_free(cache, slab);
}

static void give(struct kmem_cache *cache, void **objects, unsigned count)
{
	while (count)
		free_one(cache, objects[--count]);
}

static const struct km_slab_kind kind = { .free_objects = free_objects };

static size_t shrink(struct kmem_cache *cache)
{
	struct km_slabs *n;
	size_t freed = 0;

	km_for_each_node(n, cache)
		freed += km_slabs_shrink(cache, n, &kind);
	return freed;
}

static int check_slab(struct kmem_cache *cache, struct km_page *slab)
{
	unsigned count = 0;

	for (unsigned i = 0; i < slab->objects; i++)
		count += is_taken(cache, slab, i);
	if (count == slab->inuse && slab->cache == cache)
		return 0;
	km_warn("check: %s: %u objects are taken, the slab says %u", cache->registry.name, count, slab->inuse);
	return 1;
}

static int check(struct kmem_cache *cache)
{
	return km_slabs_check(cache, &kind, check_slab);
}

static const struct km_engine bump_engine = {
	.name = "bump", .front = KM_PERCPU_NONE, .links_free = true, .node_bytes = sizeof(struct km_slabs),
	.layout = layout, .node_init = km_slabs_init, .take = take, .give = give, .alloc = alloc,
	.free = free_one, .shrink = shrink, .reap = shrink, .discard = km_slabs_discard, .is_taken = is_taken,
	.taken = taken, .stats = km_slabs_stats, .check = check, .fork = km_slabs_fork,
};

/* Runs before the library reads the options. */
__attribute__((constructor(101))) static void enter_bump(void)
{
	km_engine_add(&bump_engine);
}

/* Weak: tests/engine/bumped links this file with tests, each with a main of its own. */
__attribute__((weak)) int main(void)
{
	return km_engine_find("bump") != &bump_engine;
}
