/*
 * slab.c: SLAB as in Linux up to 6.7: functions on objects. Objects move between slabs, the shared and alien arrays,
 * and the CPUs' sheaves, which are SLAB's per-CPU arrays. slab.h has the picture.
 *
 * A miss takes `batchcount` objects: from the shared array, else from partial slabs, else from free slabs, else from
 * a new slab, unknown to other threads until its first objects are taken. A full sheaf gives its `batchcount` oldest
 * objects to the shared array if the array has room, else to their slabs. Objects of other nodes are sorted out then.
 * Kernel: at each free, which would need a test on each hit.
 *
 * Invariants under a node's lock: a slab is on the list for its inuse. The bits, inuse and the entries [inuse,
 * objects) of a slab agree. After a free, more than free_limit objects are free only if no slab is wholly free. Slabs
 * of SLAB_TYPESAFE_BY_RCU may stay. No thread holds the locks of two nodes at once, or of a node and an alien array.
 */
#include "page/metadata.h"
#include "base/bits.h"
#include "os/die.h"
#include "slab.h"

#define GIVE_BATCH 32u		/* objects validated before a lock is taken */

/* ------------------------------------------------------------------ a slab on its lists */

static bool is_partial(const struct km_page *slab)
{
	return slab->inuse && slab->inuse < slab->objects;
}

/* Takes a slab off the list for its inuse. */
static void unlist(struct slab_node *n, struct km_page *slab)
{
	km_debug(km_is_locked(&n->slabs.lock) && slab->inuse <= slab->objects,
		 "the lists change under their node's lock");

	km_list_del(&slab->list);
	km_bump(&n->slabs.counts.partial, -is_partial(slab));
	km_bump(&n->slabs.counts.free_slabs, -!slab->inuse);
	if (km_unlikely(n->slabs.packed == slab))
		km_store(&n->slabs.packed, NULL);
	km_debug((long)n->slabs.counts.partial >= 0 && (long)n->slabs.counts.free_slabs >= 0,
		 "a slab is on the list of its inuse");
}

static void list(struct slab_node *n, struct km_page *slab, bool tail)
{
	struct km_list *at = is_partial(slab) ? &n->slabs.partial : slab->inuse ? &n->full : &n->free;

	km_debug(km_is_locked(&n->slabs.lock) && slab->inuse <= slab->objects,
		 "the lists change under their node's lock");

	if (tail)
		km_list_add_tail(&slab->list, at);
	else
		km_list_add_head(&slab->list, at);
	km_bump(&n->slabs.counts.partial, is_partial(slab));
	km_bump(&n->slabs.counts.free_slabs, !slab->inuse);
}

/* ------------------------------------------------------------------ a slab and its free objects */

/* For assertions: counts the set bits. */
static km_unused unsigned free_in(const struct km_page *slab)
{
	unsigned count = 0;

	for (unsigned word = 0; word * 64 < slab->objects; word++)
		count += (unsigned)__builtin_popcountll(slab_bits(slab)[word]);
	return count;
}

/* A user wrote to a freed object that held the indices. Warns, then rebuilds entries [at, objects) from the bits.
 * The object that holds the indices comes last, because it must be allocated last. */
km_cold static void mend(struct kmem_cache *cache, struct km_page *slab, unsigned at)
{
	unsigned last = slab->objects;

	km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", km_page_address(slab), cache->registry.name);
	if (cache->layout.freelist == SLAB_IN_OBJECT) {
		last = (unsigned)((char *)slab_slab(slab)->freelist - km_slab_first(cache, slab)) / cache->layout.size;
		slab_slab(slab)->freelist[slab->objects - 1] = (uint8_t)last;
	}
	for (unsigned i = 0; i < slab->objects; i++)
		if (i != last && slab_is_free(slab, i))
			slab_slab(slab)->freelist[at++] = (uint8_t)i;
}

/* Takes up to `want` free objects of the slab. */
static unsigned take_from(struct kmem_cache *cache, struct km_page *slab, void **objects, unsigned want)
{
	char *first = km_slab_first(cache, slab);
	uint64_t *bits = slab_bits(slab);
	unsigned at = slab->inuse, end = km_min(at + want, (unsigned)slab->objects), got = 0;

	for (; at < end; at++) {
		if (km_unlikely(!slab_entry_sound(cache, slab, first, at)))
			mend(cache, slab, at);
		unsigned index = slab_slab(slab)->freelist[at];

		km_store(&bits[index / 64], bits[index / 64] & ~((uint64_t)1 << index % 64));
		objects[got++] = first + (size_t)index * cache->layout.size;
	}
	km_store(&slab->inuse, (uint16_t)at);
	km_debug(slab->inuse + free_in(slab) == slab->objects, "inuse is the number of clear bits");
	if (at == slab->objects && cache->layout.freelist == SLAB_IN_OBJECT)
		slab_slab(slab)->freelist = NULL;
	return got;
}

/* Puts one object back. Requires: the node's lock. Returns: false on a double free. Kernel: checks only for
 * debugging. */
static bool put_back(struct kmem_cache *cache, struct slab_node *n, struct km_page *slab, unsigned index)
{
	uint64_t *word = &slab_bits(slab)[index / 64], bit = (uint64_t)1 << index % 64;
	/* A slab at the end of the partial list would be moved to the same place. */
	bool stays = slab->inuse > 1 && slab->list.next == &n->slabs.partial;

	if (km_unlikely(*word & bit))
		return false;
	km_debug(slab->inuse && slab->inuse + free_in(slab) == slab->objects, "inuse is the number of clear bits");
	km_store(word, *word | bit);
	if (!slab_slab(slab)->freelist)
		slab_slab(slab)->freelist = (uint8_t *)km_slab_first(cache, slab) + (size_t)index * cache->layout.size;
	if (!stays)
		unlist(n, slab);
	km_store(&slab->inuse, (uint16_t)(slab->inuse - 1));
	slab_slab(slab)->freelist[slab->inuse] = (uint8_t)index;
	if (!stays)
		list(n, slab, slab->inuse != 0);
	km_bump(&n->slabs.counts.taken, -1);
	return true;
}

void km_slab_discard(struct kmem_cache *cache, struct km_page *slab)
{
	if (cache->layout.freelist == SLAB_OFF_SLAB)
		km_metadata_free(slab_slab(slab)->freelist, slab_list_bytes(slab->objects));
	km_slab_free(cache, slab);
}

/* Returns the node's next colour, in bytes. */
static uint32_t next_colour(const struct kmem_cache *cache, struct slab_node *n)
{
	uint32_t colour = km_load(&n->colour_next);

	if (!cache->form.colours)
		return 0;
	km_store(&n->colour_next, colour + 1 < cache->form.colours ? colour + 1 : 0u);
	return colour * cache->form.colour_bytes;
}

/* Allocates a slab with all bits set. The indices are not written, because objects taken at once need none. */
static struct km_page *new_slab(struct kmem_cache *cache, const struct km_request *request)
{
	uint8_t *indices = NULL;

	if (cache->layout.freelist == SLAB_OFF_SLAB) {
		indices = km_metadata_alloc(slab_list_bytes(cache->layout.objects), request->may_wait);
		if (!indices)
			return NULL;
	}
	struct km_page *slab = km_slab_new_raw(cache, request);
	if (!slab) {
		km_metadata_free(indices, slab_list_bytes(cache->layout.objects));
		return NULL;
	}
	uint32_t first = next_colour(cache, slab_node(cache, slab->node));
	char *address = km_page_address(slab);
	if (cache->layout.freelist == SLAB_IN_OBJECT)
		indices = (uint8_t *)address + first + (size_t)(slab->objects - 1) * cache->layout.size;
	else if (cache->layout.freelist == SLAB_ON_SLAB)
		indices = (uint8_t *)address + (KM_PAGE_SIZE << slab->order) -
			  slab_list_bytes(slab->objects);
	slab_slab(slab)->freelist = indices;
	km_store(&slab_slab(slab)->colour.first, first);
	uint64_t *bits = slab_bits(slab);
	for (unsigned word = 0; word * 64 < slab->objects; word++)
		km_store(&bits[word], km_object_bits(slab->objects, word));
	km_slab_construct(cache, slab);
	return slab;
}

/* ------------------------------------------------------------------ out of a node */

static void note_taken(struct slab_node *n, unsigned count)
{
	km_bump(&n->slabs.counts.taken, count);
	km_bump(&n->allocs, count);
	km_debug(n->slabs.counts.taken <= n->slabs.counts.objects, "at most the free objects are taken");
	km_store(&n->high, km_max(n->high, (uint64_t)n->slabs.counts.taken));
}

static unsigned take_shared(struct slab_node *n, void **objects, unsigned want)
{
	unsigned got = (unsigned)km_min(n->slabs.counts.shared, (size_t)want);

	if (!got)
		return 0;
	km_debug(got <= n->slabs.counts.shared && n->slabs.counts.shared <= n->shared_limit,
		 "the shared array has a bound");
	__builtin_memcpy(objects, n->shared + n->shared_limit - n->slabs.counts.shared, got * sizeof(*objects));
	km_bump(&n->slabs.counts.shared, -(long)got);
	km_sub(&n->ready, (size_t)got);
	n->shared_touched = true;
	return got;
}

/* Takes objects of partial slabs, then of free slabs. Requires: the node's lock. */
static unsigned take_slabs(struct kmem_cache *cache, struct slab_node *n, void **objects, unsigned want)
{
	unsigned got = 0;

	while (got < want) {
		struct km_list *from = &n->slabs.partial;

		if (km_list_empty(from)) {
			from = &n->free;
			n->free_touched = true;
		}
		if (km_list_empty(from))
			break;
		struct km_page *slab = km_list_first(from, struct km_page, list);
		unlist(n, slab);
		got += take_from(cache, slab, objects + got, want - got);
		list(n, slab, false);
	}
	note_taken(n, got);
	return got;
}

/* Takes an object of the packed slab, bypassing the shared array. */
km_cold static unsigned take_fullest(struct kmem_cache *cache, struct slab_node *n, void **objects)
{
	struct km_page *slab = km_slabs_fullest(&n->slabs, km_slab_free_objects);
	unsigned got = take_slabs(cache, n, objects, 1);

	/* unlist cleared `packed` for a moment. */
	if (slab && is_partial(slab))
		km_store(&n->slabs.packed, slab);
	return got;
}

/* Takes cached objects of the node; from the shared array alone if the array has any. */
static unsigned take_ready(struct kmem_cache *cache, struct slab_node *n, const struct km_request *request,
			   void **objects, unsigned want)
{
	if (!km_lock_may(&n->slabs.lock, request->may_wait))
		return 0;
	unsigned got = km_unlikely(request->gfp & __GFP_FULLEST) ? take_fullest(cache, n, objects) :
		       take_shared(n, objects, want) ?: take_slabs(cache, n, objects, want);
	km_unlock_may(&n->slabs.lock, request->may_wait);
	return got;
}

/* Allocates a slab and takes its first objects. No lock is held while pages are allocated. */
static unsigned grow(struct kmem_cache *cache, const struct km_request *request, unsigned node,
		     void **objects, unsigned want)
{
	struct km_request wanted = km_request_of(request->gfp, (int)node);
	struct km_page *slab = new_slab(cache, &wanted);

	if (!slab) {
		km_count(cache, KMEM_ERRORS);
		return 0;
	}
	struct slab_node *n = slab_node(cache, slab->node);
	if (!km_lock_may(&n->slabs.lock, request->may_wait)) {
		km_slab_discard(cache, slab);
		return 0;
	}
	km_debug(!slab->inuse && free_in(slab) == slab->objects, "a fresh slab is all free");
	/* The object that holds the list comes last. */
	unsigned got = km_min(want, (unsigned)slab->objects), last = cache->layout.freelist == SLAB_IN_OBJECT;
	struct km_slab_order order = km_slab_order(slab->objects - last);
	char *first = km_slab_first(cache, slab);
	uint64_t *bits = slab_bits(slab);
	for (unsigned i = 0; i < slab->objects; i++) {
		unsigned index = i + last < slab->objects ? km_order_next(&order) : i;

		if (i >= got) {
			slab_slab(slab)->freelist[i] = (uint8_t)index;
			continue;
		}
		km_store(&bits[index / 64], bits[index / 64] & ~((uint64_t)1 << index % 64));
		objects[i] = first + (size_t)index * cache->layout.size;
	}
	km_store(&slab->inuse, (uint16_t)got);
	if (got == slab->objects && cache->layout.freelist == SLAB_IN_OBJECT)
		slab_slab(slab)->freelist = NULL;
	km_slabs_came(&n->slabs, slab);
	note_taken(n, got);
	list(n, slab, false);
	km_unlock_may(&n->slabs.lock, request->may_wait);
	km_count(cache, KMEM_GROWN);
	return got;
}

/* Takes cached objects of other nodes, nearest first, after the node is exhausted. */
static unsigned take_elsewhere(struct kmem_cache *cache, const struct km_request *request, unsigned node,
			       void **objects, unsigned want)
{
	struct slab_node *n;
	unsigned got = 0;

	km_for_each_elsewhere(n, cache, node)
		if ((got = take_ready(cache, n, request, objects, want)))
			break;
	if (got)
		km_count(cache, KMEM_NODE_ALLOCS);
	return got;
}

/* Takes as many objects as one visit provides; 0: none. Cached objects of other nodes come before new pages of
 * other nodes. Kernel: fallback_alloc. */
static unsigned take_some(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	unsigned node = km_request_node(request);
	unsigned got = take_ready(cache, slab_node(cache, node), request, objects, want);
	struct km_request here = *request;

	if (km_likely(got) || km_likely(km_node_count == 1) || request->gfp & __GFP_THISNODE)
		return got ?: grow(cache, request, node, objects, want);
	here.node = (int)node;
	here.gfp |= __GFP_THISNODE;
	return grow(cache, &here, node, objects, want) ?: take_elsewhere(cache, request, node, objects, want) ?:
	       grow(cache, request, node, objects, want);
}

unsigned km_slab_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	unsigned got = 0, now;

	while (got < want && (now = take_some(cache, request, objects + got, want - got)))
		got += now;
	return got;
}

/* ------------------------------------------------------------------ back into slabs */

struct candidate {
	struct km_page *slab;
	void *object;
	unsigned index;
};

void km_slab_drop(struct kmem_cache *cache, struct km_page *slab)
{
	struct slab_node *n = slab_node(cache, slab->node);

	km_lock(&n->slabs.lock);
	unlist(n, slab);
	km_slabs_went(&n->slabs, slab);
	km_bump(&n->slabs.counts.taken, -slab->inuse);
	km_unlock_quick(&n->slabs.lock);
	km_slab_discard(cache, slab);
}

/* Unlists free slabs while more than `limit` objects are free. Requires: the node's lock. Returns: number of
 * slabs, at most `room`. */
static unsigned drop_surplus(struct kmem_cache *cache, struct slab_node *n, size_t limit,
			     struct km_page **empty, unsigned room)
{
	unsigned count = 0;

	if (km_slabs_stay(cache))
		return 0;
	while (count < room && n->slabs.counts.free_slabs && n->slabs.counts.objects - n->slabs.counts.taken > limit) {
		struct km_page *slab = km_list_last(&n->free, struct km_page, list);

		km_debug(!slab->inuse, "a freed slab has no allocated object");
		unlist(n, slab);
		km_slabs_went(&n->slabs, slab);
		empty[count++] = slab;
	}
	return count;
}

/* Frees the candidates of the first candidate's node. Returns: number of candidates left, at the front. */
static unsigned give_to_node(struct kmem_cache *cache, struct candidate *candidates, unsigned count)
{
	unsigned node = candidates[0].slab->node, left = 0, twice_count = 0;
	struct slab_node *n = slab_node(cache, node);
	struct km_page *empty[GIVE_BATCH];
	void *twice[GIVE_BATCH];

	km_lock(&n->slabs.lock);
	for (unsigned i = 0; i < count; i++) {
		struct candidate *c = &candidates[i];

		if (km_unlikely(c->slab->node != node))
			candidates[left++] = *c;
		else if (km_unlikely(!put_back(cache, n, c->slab, c->index)))
			twice[twice_count++] = c->object;
	}
	km_store(&n->max_freeable, km_max(n->max_freeable, (uint64_t)n->slabs.counts.free_slabs));
	unsigned empty_count = drop_surplus(cache, n, n->free_limit, empty, GIVE_BATCH);
	km_unlock_quick(&n->slabs.lock);
	for (unsigned i = 0; i < empty_count; i++)
		km_slab_discard(cache, empty[i]);
	for (unsigned i = 0; i < twice_count; i++)
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", twice[i], cache->registry.name);
	return left;
}

void km_slab_give(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct candidate candidates[GIVE_BATCH];
	unsigned ready = 0;

	for (unsigned i = 0; i < count; i++) {
		struct candidate *c = &candidates[ready];
		int index;

		c->slab = km_slab_of(cache, objects[i], &index, "kmem_cache_free");
		if (!c->slab)
			continue;
		__builtin_prefetch(c->slab, 1);
		c->object = objects[i];
		c->index = (unsigned)index;
		if (++ready == GIVE_BATCH)
			while (ready)
				ready = give_to_node(cache, candidates, ready);
	}
	while (ready)
		ready = give_to_node(cache, candidates, ready);
}

size_t km_slab_free_slabs(struct kmem_cache *cache, struct slab_node *n, size_t most)
{
	struct km_page *empty[GIVE_BATCH];
	size_t total = 0;
	unsigned count;

	do {
		km_lock(&n->slabs.lock);
		count = drop_surplus(cache, n, 0, empty, (unsigned)km_min(most - total, (size_t)GIVE_BATCH));
		km_unlock_quick(&n->slabs.lock);
		for (unsigned i = 0; i < count; i++)
			km_slab_discard(cache, empty[i]);
		total += count;
	} while (count == GIVE_BATCH && total < most);
	return total;
}

/* ------------------------------------------------------------------ the shared array */

/* Kernel: allocated with the cache. Most caches never spill. */
static void make_shared(struct slab_node *n)
{
	unsigned limit = km_load(&n->shared_limit);
	void **shared = limit ? km_metadata_alloc(limit * sizeof(*shared), true) : NULL;

	if (!shared)
		return;
	km_lock(&n->slabs.lock);
	if (!n->shared && n->shared_limit == limit) {
		km_store(&n->shared, shared);
		shared = NULL;
	}
	km_unlock_quick(&n->slabs.lock);
	km_metadata_free(shared, limit * sizeof(*shared));
}

/* Moves the last of objects[0, count) to the shared array, as far as room allows. Returns: their number. */
static unsigned to_shared(struct slab_node *n, void **objects, unsigned count)
{
	if (km_unlikely(!km_load(&n->shared)) && km_load(&n->shared_limit))
		make_shared(n);
	if (!km_load(&n->shared))
		return 0;
	km_lock_quick_scope(&n->slabs.lock);
	size_t there = n->slabs.counts.shared;
	unsigned moved = n->shared ? (unsigned)km_min((size_t)count, n->shared_limit - there) : 0;
	if (moved)
		__builtin_memcpy(n->shared + n->shared_limit - there - moved, objects + count - moved,
				 moved * sizeof(*objects));
	km_debug(there + moved <= n->shared_limit || !moved, "the shared array has a bound");
	km_bump(&n->slabs.counts.shared, moved);
	km_add(&n->ready, (size_t)moved);
	km_store(&n->max_freeable, km_max(n->max_freeable, (uint64_t)n->slabs.counts.free_slabs));
	return moved;
}

/* Returns: the number of objects that an idle array of `avail` objects gives back: a fifth of `limit`, rounded up, or
 * half of `avail` if there are fewer. Kernel: the same. */
unsigned km_slab_idle_share(unsigned limit, size_t avail)
{
	unsigned share = (limit + 4) / 5;

	return share > avail ? (unsigned)(avail + 1) / 2 : share;
}

void km_slab_drain_shared(struct kmem_cache *cache, struct slab_node *n, bool all)
{
	void *objects[GIVE_BATCH];
	size_t left = 0;
	unsigned count;

	km_lock(&n->slabs.lock);
	if (all)
		left = n->slabs.counts.shared;
	else if (!n->shared_touched)
		left = km_slab_idle_share(n->shared_limit, n->slabs.counts.shared);
	n->shared_touched = false;
	km_unlock_quick(&n->slabs.lock);
	for (; left; left -= count) {
		km_lock(&n->slabs.lock);
		count = (unsigned)km_min(km_min(left, n->slabs.counts.shared), (size_t)GIVE_BATCH);
		if (count) {
			void **end = n->shared + n->shared_limit, **top = end - n->slabs.counts.shared;

			__builtin_memcpy(objects, end - count, sizeof(*objects) * count);
			__builtin_memmove(top + count, top, (char *)(end - count) - (char *)top);
			km_bump(&n->slabs.counts.shared, -(long)count);
			km_sub(&n->ready, (size_t)count);
		}
		km_unlock_quick(&n->slabs.lock);
		if (!count)
			return;
		km_slab_give(cache, objects, count);
	}
}

/* ------------------------------------------------------------------ alien arrays */

static bool make_alien(struct slab_node *n)
{
	struct slab_alien *alien = km_metadata_alloc(km_node_count * sizeof(*alien), true);

	if (!alien)
		return false;
	for (unsigned i = 0; i < km_node_count; i++)
		km_lock_init(&alien[i].lock, KM_RANK_BARN);
	/* Release pairs with the acquire of users without the lock. */
	km_lock(&n->slabs.lock);
	if (!n->alien) {
		km_store_release(&n->alien, alien);
		alien = NULL;
	}
	km_unlock_quick(&n->slabs.lock);
	km_metadata_free(alien, km_node_count * sizeof(*alien));
	return true;
}

/* Returns objects of node `other` to its shared array, or without room to its slabs. */
static void send_home(struct kmem_cache *cache, unsigned other, void **objects, unsigned count)
{
	km_slab_give(cache, objects, count - to_shared(slab_node(cache, other), objects, count));
}

void km_slab_drain_alien(struct kmem_cache *cache, struct slab_node *n, unsigned other)
{
	struct slab_alien *aliens = km_load_acquire(&n->alien), *alien;
	void *objects[SLAB_ALIEN_LIMIT];

	if (!aliens)
		return;
	alien = &aliens[other];
	km_lock(&alien->lock);
	unsigned count = alien->avail;
	km_debug(count <= SLAB_ALIEN_LIMIT, "an alien array has a bound");
	__builtin_memcpy(objects, alien->objects, count * sizeof(*objects));
	alien->avail = 0;
	km_sub(&n->ready, (size_t)count);
	km_unlock_quick(&alien->lock);
	if (count)
		send_home(cache, other, objects, count);
}

/* Puts a remote object into the alien array for node `other`. A full array is drained first. */
static void to_alien(struct kmem_cache *cache, struct slab_node *n, unsigned other, void *object)
{
	struct slab_alien *aliens = km_load_acquire(&n->alien);
	unsigned limit = km_load(&cache->fast.capacity) > 1 ? SLAB_ALIEN_LIMIT : 1;

	km_count(cache, KMEM_NODE_FREES);
	if (!aliens && !make_alien(n)) {
		km_slab_give(cache, &object, 1);
		return;
	}
	struct slab_alien *alien = &km_load_acquire(&n->alien)[other];
	if (km_load(&alien->avail) >= limit) {
		km_count(cache, KMEM_OVERFLOWS);
		km_slab_drain_alien(cache, n, other);
	}
	km_lock(&alien->lock);
	bool room = alien->avail < SLAB_ALIEN_LIMIT;
	if (room) {
		alien->objects[alien->avail] = object;
		km_bump(&alien->avail, 1);
		km_add(&n->ready, (size_t)1);
	}
	km_unlock_quick(&alien->lock);
	if (!room)
		km_slab_give(cache, &object, 1);
}

/* Moves objects of other nodes out of objects[0, count). Returns: number of objects left, at the end. */
static unsigned sort_out(struct kmem_cache *cache, unsigned here, void **objects, unsigned count)
{
	unsigned to = count;

	for (unsigned i = count; i-- > 0;) {
		struct km_page *slab = km_page_head(km_page_of(objects[i]));
		unsigned node = slab && slab->type == KM_PAGE_SLAB ? slab->node : here;

		if (node != here)
			to_alien(cache, slab_node(cache, here), node, objects[i]);
		else
			objects[--to] = objects[i];
	}
	return count - to;
}

/* ------------------------------------------------------------------ sheaves */

/* Sets the pad of an empty sheaf. Returns: the sheaf's top. */
static void **fit(const struct km_pcs *pcs, void **sheaf, uint64_t pad)
{
	uint64_t *at = km_sheaf_pad(pcs, sheaf);
	void **bottom = (void **)((char *)at - pad);

	km_debug(pad % sizeof(void *) == 0 && pad <= pcs->sheaf_mask - 15,
		 "the bottom of a sheaf is inside of the sheaf");
	/* A concurrent reader finds the old or the new bottom. */
	km_store(at, pad);
	km_store(bottom, NULL);
	return bottom;
}

static void **new_sheaf(struct kmem_cache *cache, bool may_wait)
{
	void **sheaf = km_sheaf_new(cache, may_wait);

	return sheaf ? fit(&cache->fast.pcs, sheaf, km_load(&cache->tune.pad)) : NULL;
}

/* Returns the size of a refill. An array unused since the last look gets only a few objects. Kernel: the same, and
 * each hit marks the array as used. Here a miss marks the array, and a hit shows by a changed top. */
static unsigned batch_now(struct kmem_cache *cache, void **empty)
{
	unsigned batch = km_load(&cache->tune.batchcount), number = km_cpu();
	struct slab_cpu *cpu = slab_cpu(cache, number);

	if (!cpu || km_load(&cpu->touched))
		return batch;
	uint64_t seen = km_load(&cpu->seen);
	km_store(&cpu->touched, 1u);
	if (seen && empty && seen != (uintptr_t)empty - (uintptr_t)km_area(number))
		return batch;
	return km_min(batch, SLAB_BATCH_UNTOUCHED);
}

void **km_slab_refill(struct kmem_cache *cache, const struct km_request *request, void **empty)
{
	uint64_t old = empty ? *km_sheaf_pad(&cache->fast.pcs, empty) : 0;
	void **bottom = empty ? fit(&cache->fast.pcs, empty, km_load(&cache->tune.pad)) :
				new_sheaf(cache, request->may_wait);

	km_count(cache, KMEM_ALLOCMISS);
	if (!bottom)
		return NULL;
	/* The limit may have changed meanwhile. */
	size_t space = ((uintptr_t)bottom & cache->fast.pcs.sheaf_mask) / sizeof(*bottom);
	unsigned want = km_min(batch_now(cache, empty), (unsigned)space);
	unsigned got = take_some(cache, request, bottom - want, want);
	if (!got) {
		if (empty)
			fit(&cache->fast.pcs, empty, old);
		else
			km_sheaf_free(cache, bottom);
		return NULL;
	}
	if (got < want)
		__builtin_memmove(bottom - got, bottom - want, got * sizeof(*bottom));
	km_sheaf_fetch(bottom - got);
	return bottom - got;
}

/* Closes the gap at the bottom after the oldest objects left. */
static void **close_up(void **top, void **bottom, size_t gone)
{
	km_debug(top + gone <= bottom, "at most the objects of an array leave the array");
	__builtin_memmove(top + gone, top, (char *)(bottom - gone) - (char *)top);
	return top + gone;
}

void **km_slab_give_oldest(struct kmem_cache *cache, void **sheaf, size_t count)
{
	void **bottom = km_sheaf_bottom(&cache->fast.pcs, sheaf);

	km_slab_give(cache, bottom - count, (unsigned)count);
	return close_up(sheaf, bottom, count);
}

void **km_slab_spill(struct kmem_cache *cache, void **full)
{
	if (!full)
		return new_sheaf(cache, true);
	unsigned here = km_node_here(), moved;
	struct slab_node *n = slab_node(cache, here);
	void **bottom = km_sheaf_bottom(&cache->fast.pcs, full);
	unsigned count = (unsigned)km_sheaf_objects(&cache->fast.pcs, full);
	unsigned batch = km_min(count, (unsigned)km_load(&cache->tune.batchcount));

	km_count(cache, KMEM_FREEMISS);
	if (km_unlikely(*km_sheaf_pad(&cache->fast.pcs, full) != km_load(&cache->tune.pad))) {
		/* The sheaf has the pad of an older limit. */
		km_slab_give(cache, full, count);
		return fit(&cache->fast.pcs, full, km_load(&cache->tune.pad));
	}
	if (km_unlikely(km_node_count > 1)) {
		unsigned ours = sort_out(cache, here, bottom - batch, batch);

		moved = to_shared(n, bottom - ours, ours);
		km_slab_give(cache, bottom - ours, ours - moved);
		return close_up(full, bottom, batch);
	}
	moved = to_shared(n, bottom - batch, batch);
	return moved ? close_up(full, bottom, moved) : km_slab_give_oldest(cache, full, batch);
}

void km_slab_retire(struct kmem_cache *cache, void **sheaf)
{
	size_t count = km_sheaf_objects(&cache->fast.pcs, sheaf);

	if (count)
		km_slab_give(cache, sheaf, (unsigned)count);
	km_sheaf_free(cache, sheaf);
}
