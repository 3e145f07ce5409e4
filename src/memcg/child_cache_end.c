/*
 * child_cache_end.c: the end of private groups: all objects freed at once (mem_cgroup_destroy_all), or orphans looked
 * at until nothing is left. Invariants: a child cache is emptied, attached, detached and destroyed under the registry
 * lock, for at most AT_A_TIME slabs at a time. A child cache reused from another group is kept (child_cache.c).
 */
#include <errno.h>

#include "page/huge.h"
#include "page/metadata.h"
#include "memcg_group.h"
#include "child_cache.h"

#define TOGETHER	128u		/* most child caches drained or destroyed with one fence */
#define LOOKS		4u		/* orphans that the creation or release of a private group tries to release */
#define LOOKS_BY_TICK	64u
#define MOST_SPARES	64u		/* spares kept for later groups; at TOGETHER more, some are destroyed */
#define AT_A_TIME	1024u		/* slabs given back under one hold of the registry lock */

/* Private groups without a reference, but with objects or blocks out. */
static struct km_list orphans = { &orphans, &orphans };
/* All private groups, by the hash of their names. */
static struct km_private *named[1024] km_sparse;

/* ------------------------------------------------------------------ the child caches of a group */

/* Returns the group's next child cache, in no special order; `at` NULL: the first. Context: registry locked, or no
 * thread uses the group. */
static struct km_child *next_child(const struct km_private *private, const struct km_child *at)
{
	unsigned bucket = at ? at->bucket : 0;
	struct km_child *child = at ? at->next : private->bucket[0];

	for (;; child = child->next) {
		while (!child && ++bucket < KM_CHILD_BUCKETS)
			child = private->bucket[bucket];
		if (!child || child->parent)
			return child;
	}
}

#define for_each_child(child, private)                                                               \
	for (struct km_child *child = next_child(private, NULL); child; child = next_child(private, child))

/* The drain's fence follows the two stores: after the fence the slabs of each earlier miss are visible, or the miss
 * finds `touched` clear and sets the bit again. */
void km_private_flush(struct kmem_cache *child)
{
	km_alloc_set_ready(child, false);
	km_store(&child->state.touched, false);
	if (!km_alloc_drain_all(&child, 1) || child->ext.quarantine)
		km_alloc_set_ready(child, true);
	child->layout.engine->shrink(child);
}

/* Child caches detached together, to share the fences of all CPUs. Context: registry locked. */
struct detaching {
	void (*rest)(struct kmem_cache *cache);	/* called for a cache that still has slabs */
	struct km_child *child[TOGETHER];
	struct kmem_cache *cache[TOGETHER];
	size_t count;
};

/* Destroys the gathered child caches. Their links stay in the buckets, without a child cache, because a thread may be
 * following the bucket. Links of spares are in no bucket, and are freed. */
static void detach_gathered(struct detaching *these)
{
	if (these->count)
		km_caches_remove(these->cache, these->count, these->rest);
	for (size_t i = 0; i < these->count; i++) {
		struct km_child *child = these->child[i];

		child->cache = NULL;
		km_private_free_places(&child->slabs);
		if (child->private == &km_private_pool)
			km_metadata_free(child, sizeof(*child));
	}
	these->count = 0;
}

static void detach(struct detaching *these, struct km_child *child)
{
	km_debug(child->parent && these->count < TOGETHER, "a child cache is detached once, and the array has room");
	km_store(&child->parent, NULL);
	km_list_del(&child->same);
	if (child->private == &km_private_pool) {
		km_list_del(&child->spare);
		km_private_spare_count--;
	}
	these->cache[these->count] = child->cache;
	these->child[these->count++] = child;
	if (these->count == TOGETHER)
		detach_gathered(these);
}

/* ------------------------------------------------------------------ a destructor for each object */

/* A walk over the allocated objects of a group, up to 64 at a time: the registry lock is held only while they are
 * gathered, and the destructor is called without the lock. */
struct visiting {
	struct km_private *private;
	struct km_child *child;		/* NULL: before the first child cache, and at the end */
	struct km_child_piece *piece;	/* piece of the child's array of slabs, from the last to the first; NULL: end */
	size_t slab;
	unsigned word;			/* the next objects of the slab: from 64 * word on */
	struct kmem_cache *parent;	/* result: the cache that the destructor is told */
	void *object[64];
	size_t count;
};

/* Drains the group's child caches, so that cached objects are free. Context: registry locked. */
static void drain_children(struct km_private *private)
{
	struct kmem_cache *caches[TOGETHER];
	size_t count = 0;

	for_each_child(child, private) {
		caches[count++] = child->cache;
		if (count == TOGETHER) {
			km_alloc_drain_unused(caches, count);
			count = 0;
		}
	}
	if (count)
		km_alloc_drain_unused(caches, count);
	for_each_child(child, private)
		child->cache->layout.engine->shrink(child->cache);
}

/* Finds the next objects of this child cache. Returns: false if there are none. Context: registry locked. */
static bool look_at_child(struct visiting *at)
{
	struct kmem_cache *cache = at->child->cache;

	at->parent = at->child->parent;
	while (at->parent && at->piece) {
		if (at->slab == at->piece->count) {
			at->piece = at->piece->before;
			at->slab = 0;
			continue;
		}
		struct km_page *slab = at->piece->slab[at->slab];

		for (; at->word * 64 < slab->objects; at->word++) {
			uint64_t taken = cache->layout.engine->taken(cache, slab, at->word);
			char *first = km_slab_first(cache, slab) + (size_t)at->word * 64 * cache->layout.size;

			for (; taken; taken &= taken - 1)
				at->object[at->count++] = first + (size_t)__builtin_ctzll(taken) * cache->layout.size;
			if (at->count) {
				km_debug(at->count <= km_array_count(at->object),
					 "objects are visited in words of bits");
				at->word++;
				return true;
			}
		}
		at->slab++;
		at->word = 0;
	}
	return false;
}

static void go_to(struct visiting *at, struct km_child *child)
{
	at->child = child;
	at->piece = child ? child->slabs.last : NULL;
	at->slab = at->word = 0;
}

/* Finds the next objects of the group. Returns: false at the end. Between two calls the registry is unlocked. */
static bool next_objects(struct visiting *at)
{
	at->count = 0;
	km_registry_scope();
	if (!at->child) {
		drain_children(at->private);
		go_to(at, next_child(at->private, NULL));
	}
	while (at->child && !look_at_child(at))
		go_to(at, next_child(at->private, at->child));
	return at->count != 0;
}

/* Finishes the free of large blocks deferred by signal handlers. */
static void finish_blocks(void)
{
	km_busy_scope(was);

	km_large_finish_deferred();
}

static void visit_all(struct km_private *private, mem_cgroup_dtor dtor, void *arg)
{
	struct visiting at = { .private = private };
	uint32_t search = km_huge_search();
	size_t from = 0;
	void *block;

	finish_blocks();
	while (next_objects(&at))
		for (size_t i = 0; i < at.count; i++)
			dtor(at.parent, at.object[i], arg);
	km_list_for_each(entry, &private->large)
		dtor(NULL, km_page_address(km_container_of(entry, struct km_page, list)), arg);
	while ((block = km_huge_next((uintptr_t)private->objcg, search, &from)))
		dtor(NULL, block, arg);
}

/* ------------------------------------------------------------------ the end of many */

/* Frees at most `most` slabs of a child cache with the objects in them. Returns: the number of slabs. */
static size_t discard_some(struct kmem_cache *cache, size_t most)
{
	struct km_child *child = cache->memcg.kept_by;
	size_t count = 0;

	for (; child->slabs.count && count < most; count++) {
		const struct km_child_piece *last = child->slabs.last;

		cache->layout.engine->discard(cache, last->slab[last->count - 1]);
	}
	return count;
}

static void discard_slabs(struct kmem_cache *cache)
{
	discard_some(cache, SIZE_MAX);
}

/* Returns whether the child cache's slabs must be freed before detach_all: a child cache reused from another group
 * stays, and must have no slab; another may have a few slabs, so that one hold of the lock destroys many caches. */
static bool must_be_emptied(const struct km_child *child)
{
	return child->slabs.count > (child->cache->memcg.handed_on ? 0 : AT_A_TIME / TOGETHER);
}

/* Frees up to AT_A_TIME slabs of child caches with must_be_emptied. Returns: false if there is no such child cache.
 * Requires: no thread uses the group's objects any more (mem_cgroup_destroy_all); so the sheaves may be drained
 * although the system refuses a fence. */
static bool empty_some(struct km_private *private)
{
	struct kmem_cache *caches[TOGETHER];
	size_t count = 0, left = AT_A_TIME;

	for_each_child(child, private)
		if (count < TOGETHER && must_be_emptied(child))
			caches[count++] = child->cache;
	if (!count)
		return false;
	km_alloc_drain_unused(caches, count);
	for (size_t i = 0; i < count; i++) {
		caches[i]->layout.engine->shrink(caches[i]);
		left -= discard_some(caches[i], left);
	}
	return true;
}

/* Destroys the group's child caches. An empty child cache reused from another group stays. */
static void detach_all(struct km_private *private)
{
	struct detaching these = { .rest = discard_slabs };

	for_each_child(child, private)
		if (!child->cache->memcg.handed_on || child->slabs.count)
			detach(&these, child);
	detach_gathered(&these);
}

/* Empties and destroys the group's child caches; unlocks the registry after each part, so that no hold is long. */
static void destroy_children(struct km_private *private)
{
	bool more = true;

	while (more) {
		km_registry_scope();
		more = empty_some(private);
		if (!more)
			detach_all(private);
	}
}

/* Returns a large block of the group: the first block of whole pages, else the next mapping of the search
 * (km_huge_next). Requires: the caller frees each returned block before the next call. */
static void *next_large(struct km_private *private, uint32_t search, size_t *from)
{
	void *block = NULL;

	km_lock(&km_private_lock);
	if (!km_list_empty(&private->large))
		block = km_page_address(km_list_first(&private->large, struct km_page, list));
	km_unlock(&km_private_lock);
	return block ?: km_huge_next((uintptr_t)private->objcg, search, from);
}

static void destroy_large(struct km_private *private)
{
	km_busy_scope(was);
	uint32_t search = km_huge_search();
	size_t from = 0;
	void *block;

	finish_blocks();
	while ((block = next_large(private, search, &from)))
		km_large_free(block);
}

/*
 * Frees all objects and large blocks of a private group. The destructor is called for every object before any object is
 * freed, and so may follow pointers between objects. Then slabs are freed whole: the cost is by the slab.
 */
int mem_cgroup_destroy_all(struct mem_cgroup *group, mem_cgroup_dtor dtor, void *arg)
{
	struct km_private *private = group->objcg->private;

	if (!private)
		return -EINVAL;
	/* Wait for objects of kfree_rcu in a grace period: the destructor must not be called for them. */
	if (km_load_acquire(&km_grace))
		km_grace->wait();
	if (dtor)
		visit_all(private, dtor, arg);
	destroy_children(private);
	destroy_large(private);
	kmem_tick();
	return 0;
}

/* Destroys a cache's child caches together with the cache. */
void km_private_forget(struct kmem_cache *parent)
{
	struct detaching these = { .rest = NULL };

	while (!km_list_empty(&parent->memcg.child_list))
		detach(&these, km_list_first(&parent->memcg.child_list, struct km_child, same));
	detach_gathered(&these);
}

/* ------------------------------------------------------------------ creation and release of groups */

/* Takes the link of an empty child cache out of its bucket (`*child`), and makes the child cache a spare. */
static void spare(struct km_child **at)
{
	struct km_child *child = *at;

	km_debug(child->parent && !child->slabs.count, "a child cache without slabs is handed on");
	*at = child->next;
	child->private = &km_private_pool;
	km_list_del(&child->same);
	km_list_add_head(&child->same, &child->parent->memcg.child_list);
	km_list_add_tail(&child->spare, &km_private_spares);
	km_private_spare_count++;
	km_private_call_after(child);
}

/* Returns whether the child cache may be destroyed: no call is counted, no debug shadow cache exists (its calls are
 * counted there), no object is guarded. Acquire pairs with km_child_leave. */
static bool may_go(const struct kmem_cache *cache)
{
	return !km_load_acquire(&cache->memcg.calls) && !cache->ext.shadows && !km_load(&cache->ext.guarded);
}

/* Destroys spares, the oldest first, until `keep` are left. */
static void destroy_spares(size_t keep)
{
	struct detaching these = { .rest = NULL };

	km_list_for_each_safe(entry, &km_private_spares) {
		struct km_child *child = km_container_of(entry, struct km_child, spare);

		if (km_private_spare_count <= keep)
			break;
		if (may_go(child->cache))
			detach(&these, child);
	}
	detach_gathered(&these);
}

/* Flushes the child cache if no object is allocated. Returns whether the child cache has no slab left. */
static bool is_over(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (!stats.active_objects && km_load(&cache->state.slab_bytes))
		km_private_flush(cache);
	/* Acquire pairs with km_slab_free: `goes` has removed the last slab from the child cache's array. */
	return !km_load_acquire(&cache->state.slab_bytes);
}

/* Returns whether the group has no child caches and no large blocks. */
static bool is_gone(struct km_private *private)
{
	km_lock(&km_private_lock);
	bool gone = km_list_empty(&private->large);
	km_unlock(&km_private_lock);
	for_each_child(child, private)
		gone = false;
	return gone;
}

/* Frees the group's record. Requires: the group has no reference and no objects, so no thread follows the buckets. */
static void free_private(struct km_private *private)
{
	for (unsigned i = 0; i < KM_CHILD_BUCKETS; i++)
		for (struct km_child *child = private->bucket[i], *next; child; child = next) {
			next = child->next;
			km_debug(!child->parent && !child->cache, "a freed link has no child cache");
			km_metadata_free(child, sizeof(*child));
		}
	km_list_del(&private->orphan);
	km_debug(*private->named_by == private, "a private group is on the list of its name");
	*private->named_by = private->next_named;
	if (private->next_named)
		private->next_named->named_by = private->named_by;
	private->objcg->private = NULL;
	km_metadata_free(private, sizeof(*private));
}

/*
 * Makes spares of a released group's empty child caches. Returns: true if nothing of the group is left. The record is
 * freed after the last child cache and the last large block. Only then KM_OBJCG_PRIVATE is subtracted: the objcg's
 * address means this group as long as the record names the objcg.
 */
static bool clear_away(struct km_private *private)
{
	struct obj_cgroup *objcg = private->objcg;

	for (unsigned i = 0; i < KM_CHILD_BUCKETS; i++)
		for (struct km_child **at = &private->bucket[i]; *at;)
			if ((*at)->parent && is_over((*at)->cache))
				spare(at);
			else
				at = &(*at)->next;
	if (!is_gone(private))
		return false;
	free_private(private);
	km_stock_forget(objcg, KM_OBJCG_PRIVATE);
	return true;
}

/* Calls clear_away for the first `looks` orphans; orphans with objects move to the list's end. Destroys spares if there
 * are too many. Context: registry locked. */
static void reap(size_t looks)
{
	bool more = !km_list_empty(&orphans);

	for (const struct km_list *last = orphans.prev; more && looks; looks--) {
		struct km_list *entry = orphans.next;

		more = entry != last;
		if (!clear_away(km_container_of(entry, struct km_private, orphan))) {
			km_list_del(entry);
			km_list_add_tail(entry, &orphans);
		}
	}
	if (km_private_spare_count > MOST_SPARES + TOGETHER)
		destroy_spares(MOST_SPARES);
}

void km_private_reap(void)
{
	/* A visit of all caches by this thread goes on: no cache may be destroyed. */
	if (km_registry_is_mine())
		return;
	km_registry_scope();
	reap(SIZE_MAX);
}

void km_private_tidy(bool all)
{
	if (km_registry_is_mine() || (!all && !km_registry_trylock()))
		return;
	if (all)
		km_registry_lock();
	reap(all ? SIZE_MAX : LOOKS_BY_TICK);
	destroy_spares(all ? 0 : MOST_SPARES);
	km_registry_unlock();
}

/* Returns a name's hash. A collision of different names only adds an unneeded number to a name. */
static uint64_t hash(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
	return hash ^ hash >> 32;
}

/* Enters the group into the hash table `named`, and notes whether another group has the same name. New groups come
 * first in a chain, so the search is short even if all groups have one name. Context: registry locked. */
static void enter_name(struct km_private *private)
{
	struct km_private **first = &named[private->name % km_array_count(named)], *other = *first;

	while (other && other->name != private->name)
		other = other->next_named;
	private->namesake = other != NULL;
	private->next_named = *first;
	private->named_by = first;
	if (*first)
		(*first)->named_by = &private->next_named;
	*first = private;
}

bool km_private_create(struct obj_cgroup *objcg, const struct mem_cgroup *group)
{
	struct km_private *private = km_metadata_alloc(sizeof(*private), true);

	if (!private)
		return false;
	private->objcg = objcg;
	private->number = group->number;
	private->name = hash(group->name);
	km_list_init(&private->large);
	km_list_init(&private->orphan);
	km_registry_lock();
	reap(LOOKS);
	enter_name(private);
	km_registry_unlock();
	objcg->private = private;
	return true;
}

void km_private_drop(struct obj_cgroup *objcg)
{
	km_registry_scope();
	free_private(objcg->private);
}

void km_private_release(struct obj_cgroup *objcg)
{
	km_registry_lock();
	km_list_add_head(&objcg->private->orphan, &orphans);
	for_each_child(child, objcg->private)
		km_store(&child->cache->memcg.orphan, true);
	reap(LOOKS);
	km_registry_unlock();
	/* The freed tables of child caches may leave free metadata pages. */
	km_metadata_trim(false);
}
