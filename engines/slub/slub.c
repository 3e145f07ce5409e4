/*
 * slub.c: SLUB as in Linux 2.6.22 to 6.19: each CPU owns a slab and allocates from its freelist, a list through the
 * free objects. Objects of other slabs are freed to their slab without a lock.
 *
 *	CPU: freelist, slab, partial slabs  <->  node: partial slabs  <->  pages
 *
 * This file has allocation and free, and the moves of slabs. slub_bulk.c has bulk free, slub_cache.c the functions on
 * caches (layout, drain, shrink, statistics), slub_checked.c caches with SLAB_CONSISTENCY_CHECKS.
 *
 * A slab is in one of five places; only its word (slub.h) and its node's lock move a slab:
 *	CPU slab	frozen; the CPU has the freelist, and other CPUs' frees go to the slab's own list
 *	in hand		frozen; owned by a slow path that took the slab off a CPU or a list
 *	CPU partial	frozen; linked from a CPU
 *	node partial	not frozen, on the list, some objects free
 *	full		not frozen, on no list, no object free
 * Invariants: whenever the node's lock is free, a slab is on the node's list iff the slab is not frozen and has free
 * objects. Only the owner takes objects from a frozen slab's freelist. A full slab becomes partial by the free that
 * finds an empty freelist.
 */
#include "base/bits.h"
#include "os/die.h"
#include "slub.h"

/* A slab in hand, with its freelist. */
struct hold {
	struct km_page *slab;
	char *base;		/* address of the slab */
	void *freelist;
	unsigned count;		/* number of objects on the freelist, where known */
	bool keep;		/* the slab is still frozen, and goes on a CPU with the remaining objects */
};

/* ------------------------------------------------------------------ slabs */

struct km_page *km_slub_new_slab(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_page *slab = km_slab_new(cache, request);

	if (slab) {
		struct slub_node *n = slub_node(cache, slab->node);

		km_add(&n->slabs.counts.slabs, 1ul);
		km_add(&n->slabs.counts.objects, (size_t)slab->objects);
		km_add(&n->slabs.counts.new_slabs, 1ul);
	}
	return slab;
}

void km_slub_free_slab(struct kmem_cache *cache, struct km_page *slab)
{
	struct slub_node *n = slub_node(cache, slab->node);

	km_debug(!(slab->flags & KM_SLAB_PARTIAL) && n->slabs.counts.slabs, "a freed slab is on no list");

	km_sub(&n->slabs.counts.slabs, 1ul);
	km_sub(&n->slabs.counts.objects, (size_t)slab->objects);
	km_add(&n->slabs.counts.freed_slabs, 1ul);
	km_slab_free(cache, slab);
}

void *km_slub_thread_list(struct kmem_cache *cache, struct km_page *slab, struct km_slab_order *order, unsigned count)
{
	char *first = km_slab_first(cache, slab), *head, *object;

	if (!count)
		return NULL;
	head = object = first + (size_t)km_order_next(order) * cache->layout.size;
	while (--count) {
		char *next = first + (size_t)km_order_next(order) * cache->layout.size;

		km_set_free_next(cache, object, next);
		object = next;
	}
	km_set_free_next(cache, object, NULL);
	return head;
}

/* Takes the whole freelist of an owned slab. The slab stays frozen to go on a CPU, unless no object was free or
 * more than all are wanted; then the slab is full and on no list. Returns: false if no object was free. */
static bool grab(struct kmem_cache *cache, struct km_page *slab, unsigned want, struct hold *hold)
{
	uint64_t seen = slub_look(slab), next;

	for (;;) {
		hold->count = slub_free_count(seen);
		hold->keep = hold->count && hold->count >= want;
		next = slub_full(seen);
		if (hold->keep)
			next |= SLUB_FROZEN;
		if (km_likely(slub_change(slab, &seen, next)))
			break;
		slub_count(cache, KMEM_CMPXCHG_DOUBLE_FAIL);
	}
	hold->slab = slab;
	hold->base = km_page_address(slab);
	hold->freelist = slub_head(seen, hold->base);
	km_debug(!hold->count == !hold->freelist, "the length of a freelist equals the counts");
	return hold->count != 0;
}

/* Sets the slab's word to "all objects in use", with no freelist. Returns: the word before. */
static uint64_t make_full(struct km_page *slab)
{
	uint64_t seen = slub_look(slab);

	while (!slub_change(slab, &seen, slub_full(seen)))
		;
	return seen;
}

/* Sets or clears the bit `frozen` of the slab's word. Returns: the new word. */
static uint64_t change_frozen(struct kmem_cache *cache, struct km_page *slab, bool frozen)
{
	uint64_t seen = slub_look(slab), next;

	for (;;) {
		km_debug(!(seen & SLUB_FROZEN) == frozen, "a slab is frozen by one owner");
		next = frozen ? seen | SLUB_FROZEN : seen & ~SLUB_FROZEN;
		if (km_likely(slub_change(slab, &seen, next)))
			return next;
		slub_count(cache, KMEM_CMPXCHG_DOUBLE_FAIL);
	}
}

/* Returns the last object of a list that only this thread can reach. Reports and returns NULL for a list that leaves
 * the slab (written over by a user) or has more than `most` objects (a circle, after a double free); the objects of
 * such a list stay in use for ever. Kernel: only debugged caches check. */
static void *tail_of(struct kmem_cache *cache, const struct km_page *slab, void *freelist, unsigned most,
		     unsigned *count)
{
	char *base = freelist ? slub_base(slab, freelist) : NULL;
	void *tail = NULL, *object = freelist;

	for (*count = 0; object; object = km_free_next(cache, object), ++*count) {
		bool outside = slub_base(slab, object) != base;

		if (km_unlikely(outside || *count == most)) {
			void *twice = outside ? NULL : km_cut_circle(freelist, cache->layout.freeptr);

			km_misuse(outside ? KM_MISUSE_WRITTEN : KM_MISUSE_DOUBLE_FREE, "kmem_cache_free",
				  twice ?: tail, cache->registry.name);
			*count = 0;
			return NULL;
		}
		tail = object;
	}
	return tail;
}

/* Is each object of a slab on its freelist once? If so, each object is the head or in one link, and one link is
 * NULL. The links and the head then have the same sum as the objects, and the same sum of squares. Sums need no load
 * to wait for another: 30 cycles for 16 objects, where a walk along the list takes 80 to 180. After one double free
 * two terms differ, and the double object is neither of the two missing objects, so the two sums can't both match. */
static bool all_listed(const struct kmem_cache *cache, const struct km_page *slab, uint64_t word)
{
	char *base = km_page_address(slab), *object = km_slab_first(cache, slab);
	uintptr_t sum = (uintptr_t)slub_head(word, base), squares = sum * sum;

	for (unsigned i = 0; i < slab->objects; i++, object += cache->layout.size) {
		uintptr_t link = (uintptr_t)km_free_next(cache, object), at = (uintptr_t)object;

		sum += link - at;
		squares += (link - at) * (link + at);
	}
	return !(sum | squares);
}

/* A double free has counted an object twice, so another object is still in use. Keeps the slab for ever, as a full
 * slab. */
km_cold static void keep_for_ever(struct kmem_cache *cache, struct km_page *slab, uint64_t word)
{
	unsigned count;
	void *tail = tail_of(cache, slab, slub_head(word, km_page_address(slab)), slab->objects, &count);

	/* The freelist is shorter than its count: a link was overwritten. */
	if (tail)
		km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_free", tail, cache->registry.name);
	make_full(slab);
}

bool km_slub_discard(struct kmem_cache *cache, struct km_page *slab)
{
	uint64_t word = slub_look(slab);

	/* After a repair some objects may still be in use, so the slab is never used again. */
	if (km_unlikely(km_load(&cache->ext.hooks)) && km_is_debugged(cache) && !km_slub_mend_slab(cache, slab))
		return false;
	if (km_unlikely(!all_listed(cache, slab, word))) {
		keep_for_ever(cache, slab, word);
		return false;
	}
	km_debug(!slub_inuse(word) && !(word & SLUB_FROZEN), "a freed slab has no allocated object");
	km_slub_free_slab(cache, slab);
	return true;
}

/* ------------------------------------------------------------------ from CPU to node */

/* Puts `count` objects from `freelist` to `tail` back into a slab in hand, and leaves the slab frozen or not.
 * *remote: other threads freed objects of the slab meanwhile. Returns: the new word. */
static uint64_t splice(struct kmem_cache *cache, struct km_page *slab, void *freelist, void *tail,
		       unsigned count, bool frozen, bool *remote)
{
	uint64_t seen = slub_look(slab), next;
	char *base = km_page_address(slab);

	for (;;) {
		next = seen;
		km_debug(!tail || slub_inuse(seen) >= count, "at most the allocated objects are freed");
		km_debug(seen & SLUB_FROZEN, "a detached slab is frozen");
		if (tail) {
			km_set_free_next(cache, tail, slub_head(seen, base));
			next = slub_with_head(seen - count, base, freelist);
		}
		if (!frozen)
			next &= ~SLUB_FROZEN;
		if (km_likely(slub_change(slab, &seen, next)))
			break;
		slub_count(cache, KMEM_CMPXCHG_DOUBLE_FAIL);
	}
	*remote = seen >> SLUB_HEAD_SHIFT != 0;
	return next;
}

/* Puts the slab on the CPU's partial list, for a caller that must not wait for the node's lock, taken by another
 * thread. */
static bool stash(struct kmem_cache *cache, struct km_page *slab, void *freelist)
{
	struct km_chain_link *drained;
	unsigned count;
	bool remote;
	void *tail = tail_of(cache, slab, freelist, slub_inuse(slub_look(slab)), &count);

	if (tail)
		splice(cache, slab, freelist, tail, count, true, &remote);
	return km_chain_partial_push(&cache->fast.chain, &slub_slab(slab)->link, UINT64_MAX, &drained);
}

/* Leaves the slab's free objects to the next miss, one by one: the slab counts as full until then. */
static void defer_free(struct kmem_cache *cache, struct km_page *slab)
{
	uint64_t seen = make_full(slab);

	km_debug(seen & SLUB_FROZEN, "a detached slab is frozen");
	for (void *object = slub_head(seen, km_page_address(slab)), *following; object; object = following) {
		following = km_free_next(cache, object);
		km_defer(cache, object);
	}
}

void km_slub_deactivate(struct kmem_cache *cache, struct km_page *slab, void *freelist, bool may_wait)
{
	struct slub_node *n = slub_node(cache, slab->node);
	unsigned count;
	bool remote, go = false;

	if (!km_lock_may(&n->slabs.lock, may_wait)) {
		/* stash has put the freelist back, but found no CPU's list: defer the frees. */
		if (!stash(cache, slab, freelist))
			defer_free(cache, slab);
		return;
	}
	void *tail = tail_of(cache, slab, freelist, slub_inuse(slub_look(slab)), &count);
	uint64_t word = splice(cache, slab, freelist, tail, count, false, &remote);
	if (!slub_free_count(word)) {
		slub_count(cache, KMEM_DEACTIVATE_FULL);
	} else if (!slub_inuse(word) && may_wait && slub_may_go(cache, n)) {
		slub_count(cache, KMEM_DEACTIVATE_EMPTY);
		go = true;
	} else {
		if (remote)
			slub_count(cache, KMEM_DEACTIVATE_REMOTE_FREES);
		slub_count(cache, remote ? KMEM_DEACTIVATE_TO_TAIL : KMEM_DEACTIVATE_TO_HEAD);
		km_debug(!(word & SLUB_FROZEN) && slub_free_count(word),
			 "a listed slab has a free object and is not frozen");
		km_slabs_list(&n->slabs, slab, remote);
	}
	km_unlock_may(&n->slabs.lock, may_wait);
	if (go)
		km_slub_discard(cache, slab);
}

void km_slub_put_partials(struct kmem_cache *cache, struct km_chain_link *link)
{
	struct km_chain_link *empty = NULL, *next;
	struct slub_node *locked = NULL;

	for (; link; link = next) {
		struct km_page *slab = slub_linked(link);
		struct slub_node *n = slub_node(cache, slab->node);

		next = link->next;
		if (n != locked) {
			if (locked)
				km_unlock(&locked->slabs.lock);
			locked = n;
			km_lock(&n->slabs.lock);
		}
		uint64_t word = change_frozen(cache, slab, false);
		if (km_unlikely(!slub_free_count(word)))
			continue;	/* was full when stashed, and still is */
		if (!slub_inuse(word) && slub_may_go(cache, n)) {
			km_store(&link->next, empty);
			empty = link;
		} else {
			km_debug(!(word & SLUB_FROZEN), "a listed slab is not frozen");
			km_slabs_list(&n->slabs, slab, true);
			slub_count(cache, KMEM_FREE_ADD_PARTIAL);
		}
	}
	if (locked)
		km_unlock(&locked->slabs.lock);
	for (; empty; empty = next) {
		next = empty->next;
		slub_count(cache, KMEM_DEACTIVATE_EMPTY);
		km_slub_discard(cache, slub_linked(empty));
	}
}

/* ------------------------------------------------------------------ allocating: where a slab comes from */

static bool node_fits(const struct km_page *slab, const struct km_request *request)
{
	return km_likely(request->node < 0) || slab->node == request->node;
}

/* Takes a slab of this CPU in hand, with the freelist that the CPU had of the slab, else with the slab's own. Returns:
 * false if the slab is of another node, and goes there, or no object is free. */
static bool hold_own(struct kmem_cache *cache, struct km_page *slab, void *freelist,
		     const struct km_request *request, unsigned want, struct hold *hold)
{
	km_debug(slab && slab->cache == cache && slub_look(slab) & SLUB_FROZEN,
		 "a CPU's slab belongs to its cache and is frozen");
	if (km_unlikely(!node_fits(slab, request))) {
		slub_count(cache, KMEM_ALLOC_NODE_MISMATCH);
		km_slub_deactivate(cache, slab, freelist, request->may_wait);
		return false;
	}
	if (freelist) {
		*hold = (struct hold){ slab, slub_base(slab, freelist), freelist, 0, true };
		return true;
	}
	const bool found = grab(cache, slab, want, hold);
	slub_count(cache, found ? KMEM_ALLOC_REFILL : KMEM_DEACTIVATE_BYPASS);
	return found;
}

/* Source 1: the CPU's slab, with objects freed by other threads. The CPU has a freelist only if the fast path was
 * interrupted, or another thread refilled this CPU. */
static bool hold_cpu_slab(struct kmem_cache *cache, const struct km_request *request, unsigned want, struct hold *hold)
{
	struct km_chain_top top;

	return km_chain_swap(&cache->fast.chain, (struct km_chain_top){ NULL, 0 }, &top) && top.slab &&
	       hold_own(cache, slub_tagged(top.slab), top.freelist, request, want, hold);
}

/* Source 2: takes the first of the CPU's partial slabs in hand. */
static bool hold_cpu_partial(struct kmem_cache *cache, const struct km_request *request,
			     unsigned want, struct hold *hold)
{
	struct km_chain_link *link;

	while ((link = km_chain_partial_pop(&cache->fast.chain))) {
		slub_count(cache, KMEM_CPU_PARTIAL_ALLOC);
		if (hold_own(cache, slub_linked(link), NULL, request, want, hold))
			return true;
	}
	return false;
}

/* Moves a slab to the CPU's partial list. Requires: the node's lock. */
static bool move_to_cpu(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab)
{
	struct km_chain_link *drained;

	km_slabs_unlist(&n->slabs, slab);
	change_frozen(cache, slab, true);
	if (km_likely(km_chain_partial_push(&cache->fast.chain, &slub_slab(slab)->link, UINT64_MAX, &drained))) {
		slub_count(cache, KMEM_CPU_PARTIAL_NODE);
		return true;
	}
	change_frozen(cache, slab, false);
	km_slabs_list(&n->slabs, slab, false);
	return false;
}

/* Source 3: a node's partial slabs, while more than `keep` are listed. Takes the first slab in hand, and moves
 * further slabs to the CPU, up to half of a CPU's partial list. */
static bool hold_partial(struct kmem_cache *cache, struct slub_node *n, unsigned long keep,
			 const struct km_request *request, unsigned want, struct hold *hold)
{
	unsigned more = cache->fast.chain.slot ? km_load(&slub_node(cache, 0)->cpu_partial_slabs) / 2 : 0;
	bool found = false;

	/* A racy look: an empty list does not justify the lock. */
	if (km_load(&n->slabs.counts.partial) <= keep || !km_lock_may(&n->slabs.lock, request->may_wait))
		return false;
	km_list_for_each_safe(entry, &n->slabs.partial) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);

		if (n->slabs.counts.partial <= keep)
			break;
		if (!found) {
			km_slabs_unlist(&n->slabs, slab);
			found = grab(cache, slab, want, hold);
			km_debug(found, "a listed slab has an object");
			slub_count(cache, KMEM_ALLOC_FROM_PARTIAL);
		} else if (!move_to_cpu(cache, n, slab)) {
			break;
		} else {
			more--;
		}
		if (!more)
			break;
	}
	km_unlock_may(&n->slabs.lock, request->may_wait);
	return found;
}

/* Source 3, for all nodes: the wanted node first, then nodes with slabs to spare, nearest first, if the request may
 * use them. Kernel: get_any_partial. */
static bool hold_any_partial(struct kmem_cache *cache, const struct km_request *request,
			     unsigned want, struct hold *hold)
{
	unsigned own = km_request_node(request);
	struct slub_node *n;

	if (hold_partial(cache, slub_node(cache, own), 0, request, want, hold))
		return true;
	if (km_may_look_elsewhere(cache, request))
		km_for_each_elsewhere(n, cache, own)
			if (hold_partial(cache, n, km_load(&cache->tune.min_partial), request, want, hold))
				return true;
	return false;
}

/* Source 4: a new slab. The wanted objects are taken directly, and only the rest is linked. */
static unsigned from_new_slab(struct kmem_cache *cache, const struct km_request *request,
			      void **out, unsigned want, struct hold *hold)
{
	struct km_page *slab = km_slub_new_slab(cache, request);

	if (!slab)
		return 0;
	char *base = km_page_address(slab), *first = km_slab_first(cache, slab);
	unsigned objects = slab->objects, got = km_min(objects, want);
	struct km_slab_order order = km_slab_order(objects);
	for (unsigned i = 0; i < got; i++)
		out[i] = first + (size_t)km_order_next(&order) * cache->layout.size;
	/* Each object gets a valid link for the checks at allocation. */
	for (unsigned i = 0; cache->layout.live_shift && i < got; i++)
		km_set_free_next(cache, out[i], NULL);
	*hold = (struct hold){ slab, base, km_slub_thread_list(cache, slab, &order, objects - got), 0,
			       objects >= want };
	/* Release pairs with slub_look at a free of one of these objects. */
	km_store_release(&slub_slab(slab)->word, (uint64_t)objects << SLUB_OBJECTS_SHIFT | objects |
					      (hold->keep ? SLUB_FROZEN : 0));
	return got;
}

/* ------------------------------------------------------------------ allocating */

/* Takes up to `want` objects off the freelist in hand. */
static unsigned consume(const struct kmem_cache *cache, struct hold *hold, void **out, unsigned want)
{
	void *object = hold->freelist;
	unsigned got = 0;

	for (; object && got < want; object = km_free_next(cache, object))
		out[got++] = object;
	hold->freelist = object;
	return got;
}

/* Puts the rest on this CPU, which may have changed; the displaced slab goes to its node. */
static void settle(struct kmem_cache *cache, const struct hold *hold, bool may_wait)
{
	struct km_chain_top old, top = { hold->freelist, slub_tag(hold->slab, hold->base) };

	if (!hold->keep) {
		slub_count(cache, KMEM_DEACTIVATE_BYPASS);
		return;
	}
	km_debug(slub_look(hold->slab) & SLUB_FROZEN, "a slab of a CPU is frozen");
	if (km_unlikely(!km_chain_swap(&cache->fast.chain, top, &old))) {
		km_slub_deactivate(cache, hold->slab, hold->freelist, may_wait);
	} else if (km_unlikely(old.slab)) {
		slub_count(cache, KMEM_CPUSLAB_FLUSH);
		km_slub_deactivate(cache, slub_tagged(old.slab), old.freelist, may_wait);
	}
}

/* Takes an object of a slab that stays on its node's list. Requires: the node's lock. Other threads may push to the
 * freelist, and only this thread pops, so a link is valid while the word is unchanged. With the last free object the
 * slab leaves the list before the word changes, because the next free then finds a full slab and takes the slab. */
static void *pop_listed(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab)
{
	char *base = km_page_address(slab);
	uint64_t seen = slub_look(slab);
	void *object, *next;

	km_debug(km_is_locked(&n->slabs.lock) && slab->flags & KM_SLAB_PARTIAL, "a slab of an allocation is listed");
	do {
		object = slub_head(seen, base);
		next = km_free_next(cache, object);
		if (!next != !(slab->flags & KM_SLAB_PARTIAL)) {
			if (next)
				km_slabs_list(&n->slabs, slab, false);
			else
				km_slabs_unlist(&n->slabs, slab);
		}
		if (km_unlikely(next && slub_base(slab, next) != base)) {
			/* The link leads out of the slab: the freelist is given up, and its objects are lost. */
			km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", object, cache->registry.name);
			make_full(slab);
			km_slabs_unlist(&n->slabs, slab);
			return object;
		}
	} while (!slub_change(slab, &seen, slub_with_list(seen + 1, base, next)));
	km_debug(!!next == !!(slab->flags & KM_SLAB_PARTIAL), "a slab is listed if and only if an object is free");
	return object;
}

/* Serves __GFP_FULLEST, bypassing the CPU's slabs. NULL: no slab is listed. */
km_cold static void *take_fullest(struct kmem_cache *cache, const struct km_request *request)
{
	struct slub_node *n = slub_node(cache, km_request_node(request));

	if (!km_load(&n->slabs.counts.partial) || !km_lock_may(&n->slabs.lock, request->may_wait))
		return NULL;
	struct km_page *slab = km_slabs_fullest(&n->slabs, slub_free_objects);
	void *object = slab ? pop_listed(cache, n, slab) : NULL;
	km_unlock_may(&n->slabs.lock, request->may_wait);
	if (object)
		slub_count(cache, KMEM_ALLOC_FROM_PARTIAL);
	return object;
}

/* Returns fewer than `want` objects if memory, or a lock that must not be waited for, is unavailable. */
static unsigned slow_take(struct kmem_cache *cache, const struct km_request *request, void **out, unsigned want)
{
	unsigned got = 0;
	bool look_at_cpu = true;

	slub_touch(slub_node(cache, 0));
	if (km_unlikely(request->gfp & __GFP_FULLEST))
		while (got < want && (out[got] = take_fullest(cache, request)))
			got++;
	while (got < want) {
		struct hold hold;
		unsigned now, left = want - got;

		slub_count(cache, KMEM_ALLOC_SLOWPATH);
		if ((look_at_cpu && hold_cpu_slab(cache, request, left, &hold)) ||
		    hold_cpu_partial(cache, request, left, &hold) ||
		    hold_any_partial(cache, request, left, &hold))
			now = consume(cache, &hold, out + got, left);
		else
			now = from_new_slab(cache, request, out + got, left, &hold);
		if (km_unlikely(!now))
			break;
		if (km_unlikely(km_layout_options.count_events))
			slub_count_n(cache, KMEM_ALLOC_FASTPATH, now - 1);
		settle(cache, &hold, request->may_wait);
		look_at_cpu = hold.keep;
		got += now;
	}
	return got;
}

/* The fast path has emptied the CPU's freelist; objects found there now were added since. */
unsigned km_slub_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	if (km_unlikely(cache->layout.checked))
		return km_slub_take_checked(cache, request, objects, want);
	return slow_take(cache, request, objects, want);
}

void *km_slub_alloc(struct kmem_cache *cache, const struct km_request *request)
{
	void *object;

	return km_slub_take(cache, request, &object, 1) ? object : NULL;
}

/* ------------------------------------------------------------------ freeing */

static bool has_cpu_partial(const struct kmem_cache *cache)
{
	return cache->fast.chain.slot && km_load(&slub_node(cache, 0)->cpu_partial_slabs);
}

/* Puts a slab that was full and is now frozen on this CPU's partial list. */
km_noinline static void keep_on_cpu(struct kmem_cache *cache, struct km_page *slab)
{
	struct km_chain_link *drained;

	if (km_unlikely(!km_chain_partial_push(&cache->fast.chain, &slub_slab(slab)->link,
					       km_load(&slub_node(cache, 0)->cpu_partial_slabs),
					       &drained))) {
		km_store(&slub_slab(slab)->link.next, NULL);
		km_slub_put_partials(cache, &slub_slab(slab)->link);
		return;
	}
	km_debug(drained != &slub_slab(slab)->link, "a slab is on a CPU's list once");
	slub_count(cache, KMEM_CPU_PARTIAL_FREE);
	if (km_unlikely(drained)) {
		km_slub_put_partials(cache, drained);
		slub_count(cache, KMEM_CPU_PARTIAL_DRAIN);
	}
}

/* Puts a slab on its node's list or takes it off, after a free, and unlocks the node. Requires: the node's lock. The
 * slab was on the list iff an object was free before. */
km_noinline static void relist(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab,
		   bool was_full, bool is_empty)
{
	bool go = is_empty && slub_may_go(cache, n);

	km_debug(km_is_locked(&n->slabs.lock) && was_full == !(slab->flags & KM_SLAB_PARTIAL),
		 "a slab was listed if and only if an object was free");

	if (was_full && !go) {
		km_slabs_list(&n->slabs, slab, true);
		slub_count(cache, KMEM_FREE_ADD_PARTIAL);
	} else if (!was_full && go) {
		km_slabs_unlist(&n->slabs, slab);
		slub_count(cache, KMEM_FREE_REMOVE_PARTIAL);
	}
	km_unlock_quick(&n->slabs.lock);
	if (go)
		km_slub_discard(cache, slab);
}

km_noinline void km_slub_free_to_slab(struct kmem_cache *cache, struct km_page *slab, char *base, void *head,
				      void *tail, unsigned count)
{
	struct slub_node *locked = NULL;
	uint64_t seen = slub_look(slab), next;

	slub_touch(slub_node(cache, 0));
	for (;;) {
		void *prior = slub_head(seen, base);

		if (km_unlikely(prior == head || prior == tail || slub_inuse(seen) < count)) {
			if (locked)
				km_unlock(&locked->slabs.lock);
			km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", head, cache->registry.name);
			return;
		}
		km_set_free_next(cache, tail, prior);
		next = slub_with_head(seen - count, base, head);
		if (!(seen & SLUB_FROZEN) && (!prior || !slub_inuse(next))) {
			if (!prior && has_cpu_partial(cache)) {
				next |= SLUB_FROZEN;
			} else if (!locked) {
				locked = slub_node(cache, slab->node);
				km_lock(&locked->slabs.lock);
			}
		}
		if (km_likely(slub_change(slab, &seen, next)))
			break;
		if (locked)
			km_unlock(&locked->slabs.lock);
		locked = NULL;
		slub_count(cache, KMEM_CMPXCHG_DOUBLE_FAIL);
	}
	if (seen & SLUB_FROZEN) {
		slub_count(cache, KMEM_FREE_FROZEN);
		return;
	}
	slub_count(cache, KMEM_FREE_SLOWPATH);
	if (locked)
		relist(cache, locked, slab, !(seen >> SLUB_HEAD_SHIFT), !slub_inuse(next));
	else if (next & SLUB_FROZEN)
		keep_on_cpu(cache, slab);
}

/* The common case, a free to a frozen slab, comes first, and does not test for the rare cases. */
void km_slub_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(cache->layout.checked)) {
		km_slub_free_checked(cache, object);
		return;
	}
	struct km_page *slab = slub_slab_of(cache, object);
	if (km_unlikely(!slab))
		return;
	char *base = slub_base(slab, object);
	uint64_t seen = slub_look(slab);
	void *prior = slub_head(seen, base);
	if (km_likely((seen & SLUB_FROZEN) && prior != object && slub_inuse(seen))) {
		km_set_free_next(cache, object, prior);
		if (km_likely(slub_change(slab, &seen, slub_with_head(seen - 1, base, object)))) {
			slub_count(cache, KMEM_FREE_FROZEN);
			return;
		}
	}
	km_slub_free_to_slab(cache, slab, base, object, object, 1);
}
