/*
 * slub.c: SLUB as it was from Linux 2.6.22 to 6.19: each CPU owns a slab and allocates from its freelist, a chain
 * through the free objects; objects of other slabs are freed to their slab without a lock.
 *
 *	CPU: freelist, slab, partial slabs  <->  node: partial slabs  <->  pages
 *
 * Here is what objects do: allocate, free, and what becomes of slabs meanwhile. slub_bulk.c frees many, slub_cache.c
 * has what a cache does (layout, drain, shrink, statistics), slub_checked.c caches with SLAB_CONSISTENCY_CHECKS.
 *
 * A slab is in one of five places, and only its word (slub.h) and its node's lock move it:
 *	CPU slab	frozen; the CPU has its freelist, others' frees gather on the slab's own
 *	in hand		frozen; a slow path that took it off a CPU or a list owns it
 *	CPU partial	frozen; linked from a CPU
 *	node partial	not frozen, on the list, something free
 *	full		not frozen, on no list, nothing free
 * Invariants: not frozen and something free iff on the node's list, once the node's lock is free; only the owner
 * takes from a frozen slab's freelist; a full slab becomes partial by the free that finds its freelist empty.
 */
#include "base/bits.h"
#include "os/die.h"
#include "slub.h"

/* A slab in hand. */
struct hold {
	struct km_page *slab;
	char *base;		/* its address */
	void *freelist;
	unsigned count;		/* objects on it, where known */
	bool keep;		/* still frozen: goes on a CPU with what is left */
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

	km_debug(!(slab->flags & KM_SLAB_PARTIAL) && n->slabs.counts.slabs, "a slab that goes is on no list");

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
	head = object = first + (size_t)km_order_next(order) * cache->size;
	while (--count) {
		char *next = first + (size_t)km_order_next(order) * cache->size;

		km_set_free_next(cache, object, next);
		object = next;
	}
	km_set_free_next(cache, object, NULL);
	return head;
}

/*
 * Take the whole freelist off a slab that is ours. It stays frozen, to go on a CPU, unless nothing was free or
 * more than all is wanted: then it is full, and on no list. False: nothing was free.
 */
static bool grab(struct kmem_cache *cache, struct km_page *slab, unsigned want, struct hold *hold)
{
	uint64_t seen = slub_look(slab), next;

	for (;;) {
		hold->count = slub_free_count(seen);
		hold->keep = hold->count && hold->count >= want;
		next = (seen & SLUB_OBJECTS) | slub_objects(seen);
		if (hold->keep)
			next |= SLUB_FROZEN;
		if (km_likely(slub_change(slab, &seen, next)))
			break;
		slub_count(cache, KMEM_CMPXCHG_DOUBLE_FAIL);
	}
	hold->slab = slab;
	hold->base = km_page_address(slab);
	hold->freelist = slub_head(seen, hold->base);
	km_debug(!hold->count == !hold->freelist, "a freelist is as long as the counts say");
	return hold->count != 0;
}

/* Set or clear frozen, nothing else; returns the word as it is then. */
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

/*
 * The last object of a list that nobody else can reach. One that leaves its slab was written over by a user, one with
 * more objects than `most` is a circle, of an object freed twice: it is said, and the answer is NULL. Kernel: only
 * caches that are debugged look.
 */
static void *tail_of(struct kmem_cache *cache, const struct km_page *slab, void *freelist, unsigned most,
		     unsigned *count)
{
	char *base = freelist ? slub_base(slab, freelist) : NULL;
	void *tail = NULL, *object = freelist;

	for (*count = 0; object; object = km_free_next(cache, object), ++*count) {
		bool outside = slub_base(slab, object) != base;

		if (km_unlikely(outside || *count == most)) {
			void *twice = outside ? NULL : km_cut_circle(freelist, cache->freeptr);

			km_misuse(outside ? KM_MISUSE_WRITTEN : KM_MISUSE_DOUBLE_FREE, "kmem_cache_free",
				  twice ?: tail, cache->name);
			*count = 0;
			return NULL;
		}
		tail = object;
	}
	return tail;
}

/*
 * Is each object of a slab on its list, once? Then each is the head or in one link, and one link is NULL: links and
 * head have the objects' sum, and their squares that of the squares. Sums, because no load waits for another: 30 cycles
 * for 16 objects, where a walk along the list takes 80 to 180. After one double free two terms differ, and the double
 * one is neither of the two that are missing: not both sums can be right.
 */
static bool all_listed(const struct kmem_cache *cache, const struct km_page *slab, uint64_t word)
{
	char *base = km_page_address(slab), *object = km_slab_first(cache, slab);
	uintptr_t sum = (uintptr_t)slub_head(word, base), squares = sum * sum;

	for (unsigned i = 0; i < slab->objects; i++, object += cache->size) {
		uintptr_t link = (uintptr_t)km_free_next(cache, object), at = (uintptr_t)object;

		sum += link - at;
		squares += (link - at) * (link + at);
	}
	return !(sum | squares);
}

/* An object that was freed twice was counted twice, so that an object is in use yet: the slab stays, as one that is
 * full. */
km_cold static void keep_for_ever(struct kmem_cache *cache, struct km_page *slab, uint64_t word)
{
	uint64_t full = (uint64_t)slab->objects << SLUB_OBJECTS_SHIFT | slab->objects;
	unsigned count;
	void *tail = tail_of(cache, slab, slub_head(word, km_page_address(slab)), slab->objects, &count);

	/* It ends too soon: a link was written over. */
	if (tail)
		km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_free", tail, cache->name);
	while (!slub_change(slab, &word, full))
		;
}

bool km_slub_discard(struct kmem_cache *cache, struct km_page *slab)
{
	uint64_t word = slub_look(slab);

	/* Of a list that was mended something stays in use, as far as anybody knows: its slab is never used again. */
	if (km_unlikely(km_load(&cache->hooks)) && km_is_debugged(cache) && !km_slub_mend_slab(cache, slab))
		return false;
	if (km_unlikely(!all_listed(cache, slab, word))) {
		keep_for_ever(cache, slab, word);
		return false;
	}
	km_debug(!slub_inuse(word) && !(word & SLUB_FROZEN), "a slab that goes is all free");
	km_slub_free_slab(cache, slab);
	return true;
}

/* ------------------------------------------------------------------ from CPU to node */

/* Give `count` objects from `freelist` to `tail` back to a slab in hand, leaving it frozen or not; returns the word
 * as it is then, and whether others had freed objects of it meanwhile. */
static uint64_t splice(struct kmem_cache *cache, struct km_page *slab, void *freelist, void *tail,
		       unsigned count, bool frozen, bool *remote)
{
	uint64_t seen = slub_look(slab), next;
	char *base = km_page_address(slab);

	for (;;) {
		next = seen;
		km_debug(!tail || slub_inuse(seen) >= count, "no more objects come back than were taken");
		km_debug(seen & SLUB_FROZEN, "a slab in hand is frozen");
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

/* Of what was taken off a CPU; where it is damaged its objects stay in use for ever. */
static void *cpu_tail(struct kmem_cache *cache, const struct km_page *slab, void *freelist,
		      unsigned *count)
{
	return tail_of(cache, slab, freelist, slub_inuse(slub_look(slab)), count);
}

/* Where the node's lock can't be had and waiting is not allowed: the CPU's partial list takes the slab. */
static bool stash(struct kmem_cache *cache, struct km_page *slab, void *freelist)
{
	struct km_chain_link *drained;
	unsigned count;
	bool remote;
	void *tail = cpu_tail(cache, slab, freelist, &count);

	if (tail)
		splice(cache, slab, freelist, tail, count, true, &remote);
	return km_chain_partial_push(&cache->chain, &slub_slab(slab)->link, UINT64_MAX, &drained);
}

/* ... then its objects are all in use, as far as the slab knows, and come back one by one with the next miss. */
static void defer_free(struct kmem_cache *cache, struct km_page *slab)
{
	uint64_t seen = slub_look(slab), next;

	do
		next = (seen & SLUB_OBJECTS) | slub_objects(seen);
	while (!slub_change(slab, &seen, next));
	km_debug(seen & SLUB_FROZEN, "a slab in hand is frozen");
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
		/* Not even a CPU to put it on, or another thread is at it: stash has put back what was in hand. */
		if (!stash(cache, slab, freelist))
			defer_free(cache, slab);
		return;
	}
	void *tail = cpu_tail(cache, slab, freelist, &count);
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
			 "a slab that is listed has something free, and is not frozen");
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
			continue;	/* stashed when it was full: full it is */
		if (!slub_inuse(word) && slub_may_go(cache, n)) {
			km_store(&link->next, empty);
			empty = link;
		} else {
			km_debug(!(word & SLUB_FROZEN), "a slab that is listed is not frozen");
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

/* 1: the CPU's slab, where others freed objects of it. */
static bool hold_cpu_slab(struct kmem_cache *cache, const struct km_request *request,
			  unsigned want, struct hold *hold)
{
	struct km_chain_top top;

	if (!km_chain_swap(&cache->chain, (struct km_chain_top){ NULL, 0 }, &top) || !top.slab)
		return false;
	struct km_page *slab = slub_tagged(top.slab);
	km_debug(slab && slab->cache == cache && slub_look(slab) & SLUB_FROZEN,
		 "a CPU's slab is its cache's, and frozen");
	if (km_unlikely(!node_fits(slab, request))) {
		slub_count(cache, KMEM_ALLOC_NODE_MISMATCH);
		km_slub_deactivate(cache, slab, top.freelist, request->may_wait);
		return false;
	}
	if (top.freelist) {
		/* The hit was interrupted, or another thread was here since. */
		*hold = (struct hold){ slab, km_chain_tag_address(top.slab), top.freelist, 0, true };
		return true;
	}
	if (grab(cache, slab, want, hold)) {
		slub_count(cache, KMEM_ALLOC_REFILL);
		return true;
	}
	slub_count(cache, KMEM_DEACTIVATE_BYPASS);
	return false;
}

/* 2: the CPU's partial slabs. */
static bool hold_cpu_partial(struct kmem_cache *cache, const struct km_request *request,
			     unsigned want, struct hold *hold)
{
	struct km_chain_link *link;

	while ((link = km_chain_partial_pop(&cache->chain))) {
		struct km_page *slab = slub_linked(link);

		km_debug(slab->cache == cache && slub_look(slab) & SLUB_FROZEN,
			 "a CPU's partial slab is its cache's, and frozen");
		slub_count(cache, KMEM_CPU_PARTIAL_ALLOC);
		if (km_unlikely(!node_fits(slab, request))) {
			slub_count(cache, KMEM_ALLOC_NODE_MISMATCH);
			km_slub_deactivate(cache, slab, NULL, request->may_wait);
			continue;
		}
		if (km_likely(grab(cache, slab, want, hold))) {
			slub_count(cache, KMEM_ALLOC_REFILL);
			return true;
		}
		slub_count(cache, KMEM_DEACTIVATE_BYPASS);
	}
	return false;
}

/* One more slab for the CPU's partial list; node's lock held. */
static bool move_to_cpu(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab)
{
	struct km_chain_link *drained;

	km_slabs_unlist(&n->slabs, slab);
	change_frozen(cache, slab, true);
	if (km_likely(km_chain_partial_push(&cache->chain, &slub_slab(slab)->link, UINT64_MAX, &drained))) {
		slub_count(cache, KMEM_CPU_PARTIAL_NODE);
		return true;
	}
	change_frozen(cache, slab, false);
	km_slabs_list(&n->slabs, slab, false);
	return false;
}

/*
 * 3: a node's partial slabs, as long as it has more than `keep`: the first one in hand, and up to half of a CPU's
 * partial list of others.
 */
static bool hold_partial(struct kmem_cache *cache, struct slub_node *n, unsigned long keep,
			 const struct km_request *request, unsigned want, struct hold *hold)
{
	unsigned more = cache->chain.slot ? km_load(&slub_node(cache, 0)->cpu_partial_slabs) / 2 : 0;
	bool found = false;

	/* A racy look: an empty list is not worth its lock. */
	if (km_load(&n->slabs.counts.partial) <= keep || !km_lock_may(&n->slabs.lock, request->may_wait))
		return false;
	km_list_for_each_safe(entry, &n->slabs.partial) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);

		if (n->slabs.counts.partial <= keep)
			break;
		if (!found) {
			km_slabs_unlist(&n->slabs, slab);
			found = grab(cache, slab, want, hold);
			km_debug(found, "a slab that is on a list has an object");
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

/* Those that can spare some, the nearest first. Kernel: get_any_partial. */
km_cold static bool hold_elsewhere(struct kmem_cache *cache, const struct km_request *request,
				   unsigned want, struct hold *hold)
{
	struct slub_node *n;

	km_for_each_elsewhere(n, cache, km_request_node(request))
		if (hold_partial(cache, n, km_load(&cache->min_partial), request, want, hold))
			return true;
	return false;
}

static bool hold_any_partial(struct kmem_cache *cache, const struct km_request *request,
			     unsigned want, struct hold *hold)
{
	return hold_partial(cache, slub_node(cache, km_request_node(request)), 0, request, want, hold) ||
	       (km_may_look_elsewhere(cache, request) && hold_elsewhere(cache, request, want, hold));
}

/* 4: a new slab; the wanted objects come straight out of it, only the rest is threaded. */
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
		out[i] = first + (size_t)km_order_next(&order) * cache->size;
	/* Each has a link, for who looks at it as it is handed out. */
	for (unsigned i = 0; cache->live_shift && i < got; i++)
		km_set_free_next(cache, out[i], NULL);
	*hold = (struct hold){ slab, base, km_slub_thread_list(cache, slab, &order, objects - got), 0,
			       objects >= want };
	/* Release pairs with slub_look of whoever frees one of these objects. */
	km_store_release(&slub_slab(slab)->word, (uint64_t)objects << SLUB_OBJECTS_SHIFT | objects |
					      (hold->keep ? SLUB_FROZEN : 0));
	return got;
}

/* ------------------------------------------------------------------ allocating */

/* Up to `want` objects off the freelist in hand. */
static unsigned consume(const struct kmem_cache *cache, struct hold *hold, void **out,
			unsigned want)
{
	void *object = hold->freelist;
	unsigned got = 0;

	for (; object && got < want; object = km_free_next(cache, object))
		out[got++] = object;
	hold->freelist = object;
	return got;
}

/* The rest goes on this CPU, whichever that is now; the slab that it displaces goes to its node. */
static void settle(struct kmem_cache *cache, const struct hold *hold, bool may_wait)
{
	struct km_chain_top old, top = { hold->freelist, slub_tag(hold->slab, hold->base) };

	if (!hold->keep) {
		slub_count(cache, KMEM_DEACTIVATE_BYPASS);
		return;
	}
	km_debug(slub_look(hold->slab) & SLUB_FROZEN, "a slab that goes on a CPU is frozen");
	if (km_unlikely(!km_chain_swap(&cache->chain, top, &old))) {
		km_slub_deactivate(cache, hold->slab, hold->freelist, may_wait);
	} else if (km_unlikely(old.slab)) {
		slub_count(cache, KMEM_CPUSLAB_FLUSH);
		km_slub_deactivate(cache, slub_tagged(old.slab), old.freelist, may_wait);
	}
}

/* A list whose link leads out of the slab is lost: the slab is full from now on. Lock held. */
km_cold static void lose_list(struct kmem_cache *cache, struct km_page *slab, void *object)
{
	uint64_t seen = slub_look(slab);

	km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_alloc", object, cache->name);
	while (!slub_change(slab, &seen, (seen & SLUB_OBJECTS) | slub_objects(seen)))
		;
}

/*
 * An object of a slab that stays on its node's list, whose lock is held. Others push to it meanwhile, and nobody else
 * pops: a link that was read is right as long as the word is the same. With its last free object it leaves the list
 * before the word says so: whoever frees one then finds a full slab, and takes it as its own.
 */
static void *pop_listed(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab)
{
	char *base = km_page_address(slab);
	uint64_t seen = slub_look(slab);
	void *object, *next;

	km_debug(km_is_locked(&n->slabs.lock) && slab->flags & KM_SLAB_PARTIAL, "a slab that is popped from is listed");
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
			lose_list(cache, slab, object);
			km_slabs_unlist(&n->slabs, slab);
			return object;
		}
	} while (!slub_change(slab, &seen, slub_with_list(seen + 1, base, next)));
	km_debug(!!next == !!(slab->flags & KM_SLAB_PARTIAL), "a slab is on the list iff something is free");
	return object;
}

/* With __GFP_FULLEST: past what the CPU has. NULL: nothing is listed. */
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

/* Fewer than wanted: no memory, or a lock that may not be waited for. */
static unsigned slow_take(struct kmem_cache *cache, const struct km_request *request, void **out,
			  unsigned want)
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

void *km_slub_alloc(struct kmem_cache *cache, const struct km_request *request)
{
	void *object = NULL;

	if (km_unlikely(cache->checked))
		km_slub_take_checked(cache, request, &object, 1);
	else
		slow_take(cache, request, &object, 1);
	return object;
}

/* The front had what was on the CPU's freelist; what is there now came since. */
unsigned km_slub_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		      unsigned want)
{
	if (km_unlikely(cache->checked))
		return km_slub_take_checked(cache, request, objects, want);
	return slow_take(cache, request, objects, want);
}

/* ------------------------------------------------------------------ freeing */

km_cold void km_slub_report_double(struct kmem_cache *cache, void *object)
{
	km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->name);
}

static bool has_cpu_partial(const struct kmem_cache *cache)
{
	return cache->chain.slot && km_load(&slub_node(cache, 0)->cpu_partial_slabs);
}

/* The slab was full, and is frozen now: it goes to this CPU's partial slabs. */
km_noinline static void keep_on_cpu(struct kmem_cache *cache, struct km_page *slab)
{
	struct km_chain_link *drained;

	if (km_unlikely(!km_chain_partial_push(&cache->chain, &slub_slab(slab)->link,
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

/* The lock is held; the slab was on the list iff it had a free object before. */
km_noinline static void relist(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab,
		   bool was_full, bool is_empty)
{
	bool go = is_empty && slub_may_go(cache, n);

	km_debug(km_is_locked(&n->slabs.lock) && was_full == !(slab->flags & KM_SLAB_PARTIAL),
		 "a slab is on the list iff something was free");

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
			km_slub_report_double(cache, head);
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

/* To a frozen slab, as most slow frees are: a try without anything that is rare. */
void km_slub_free(struct kmem_cache *cache, void *object)
{
	if (km_unlikely(cache->checked)) {
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
