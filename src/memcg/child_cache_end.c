/*
 * child_cache_end.c: private groups: what becomes of what they have: all of it freed at once
 * (mem_cgroup_destroy_all), or looked at until nothing is left. Invariants: a twin is emptied, attached, detached and
 * destroyed under the registry's lock, which is never held for more than AT_A_TIME slabs; one that was another
 * group's is kept (child_cache.c).
 */
#include <errno.h>

#include "page/huge.h"
#include "page/metadata.h"
#include "memcg_group.h"
#include "child_cache.h"

#define TOGETHER	128u		/* twins that share a fence */
#define LOOKS		4u		/* orphans that are looked at for each group that comes or goes */
#define LOOKS_BY_TICK	64u
#define MOST_SPARES	64u		/* twins kept for later groups; at TOGETHER more, some are destroyed */
#define AT_A_TIME	1024u		/* slabs that are given back while the registry is locked */

/* Private groups that have a reference, and those that have none, but something that is out. */
static struct km_list living = { &living, &living }, orphans = { &orphans, &orphans };
/* Both, by the hash of their names. */
static struct km_private *named[1024] km_sparse;

/* ------------------------------------------------------------------ the twins of a group */

/* The next twin of a group, in no special order; NULL in: the first. With the registry locked, or while nobody uses
 * the group. */
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

/* The drain's fence follows the two stores: a miss that began before the fence is seen behind the fence, or finds
 * `touched` clear and sets the bit again. */
void km_private_flush(struct kmem_cache *child)
{
	km_alloc_set_ready(child, false);
	km_store(&child->touched, false);
	if (!km_alloc_drain_all(&child, 1) || child->quarantine)
		km_alloc_set_ready(child, true);
	child->engine->shrink(child);
}

/* Twins that go together, for the fences that stop all CPUs. With the registry locked. */
struct detaching {
	void (*rest)(struct kmem_cache *cache);	/* what becomes of slabs with objects */
	struct km_child *child[TOGETHER];
	struct kmem_cache *cache[TOGETHER];
	size_t count;
};

/*
 * The fences of km_caches_remove serve all that were gathered. Links stay in their buckets, empty, because a thread may
 * be following them; those of spares are in no bucket and go.
 */
static void detach_gathered(struct detaching *these)
{
	if (these->count)
		km_caches_remove(these->cache, these->count, these->rest);
	for (size_t i = 0; i < these->count; i++) {
		struct km_child *child = these->child[i];

		child->cache = NULL;
		km_private_free_places(&child->slabs);
		if (child->private == &km_private_pool)
			km_meta_free(child, sizeof(*child));
	}
	these->count = 0;
}

static void detach(struct detaching *these, struct km_child *child)
{
	km_debug(child->parent && these->count < TOGETHER, "a twin is detached once, and there is room for it");
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

/* 64 objects at a time, so that it runs with no lock held. */
struct visiting {
	struct km_private *private;
	struct km_child *child;		/* NULL: before the first */
	size_t slab;
	unsigned word;			/* of 64 objects */
	struct kmem_cache *parent;	/* out: whose they are */
	void *object[64];
	size_t count;
};

/* The objects on shelves are free. With the registry locked. */
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
		child->cache->engine->shrink(child->cache);
}

/* The next of this twin; false: there are none. With the registry locked. */
static bool look_at_child(struct visiting *at)
{
	struct kmem_cache *cache = at->child->cache;

	for (at->parent = at->child->parent; at->parent && at->slab < at->child->slabs.count;
	     at->slab++, at->word = 0) {
		struct km_page *slab = *km_child_slab(at->child, at->slab);

		for (; at->word * 64 < slab->objects; at->word++) {
			uint64_t taken = cache->engine->taken(cache, slab, at->word);
			char *first = km_slab_first(cache, slab) + (size_t)at->word * 64 * cache->size;

			for (; taken; taken &= taken - 1)
				at->object[at->count++] = first + (size_t)__builtin_ctzll(taken) * cache->size;
			if (at->count) {
				km_debug(at->count <= km_array_count(at->object),
					 "objects are looked at a word at a time");
				at->word++;
				return true;
			}
		}
	}
	return false;
}

/* The next objects of the group; false: that were all. A cache of which it has no object may be destroyed meanwhile. */
static bool next_objects(struct visiting *at)
{
	at->count = 0;
	km_registry_scope();
	if (!at->child) {
		drain_children(at->private);
		at->child = next_child(at->private, NULL);
	}
	while (at->child && !look_at_child(at)) {
		at->child = next_child(at->private, at->child);
		at->slab = at->word = 0;
	}
	return at->count != 0;
}

/* The blocks that handlers freed and nobody finished: they are free. */
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

/* So many at most; how many there were. */
static size_t discard_some(struct kmem_cache *cache, size_t most)
{
	struct km_child *child = cache->kept_by;
	size_t count = 0;

	for (; child->slabs.count && count < most; count++)
		cache->engine->discard(cache, *km_child_slab(child, child->slabs.count - 1));
	return count;
}

static void discard_slabs(struct kmem_cache *cache)
{
	discard_some(cache, SIZE_MAX);
}

/* It stays, empty; or it has more slabs than it may have when it is destroyed with others. */
static bool must_be_emptied(const struct km_child *child)
{
	return child->slabs.count > (child->cache->handed_on ? 0 : AT_A_TIME / TOGETHER);
}

/*
 * Empty some twins, or a part of one. False: there is nothing to be done. Between two calls of this the registry is
 * free for others, and the group has fewer slabs: so it ends. Nobody may be using the group's objects any more, as
 * mem_cgroup_destroy_all demands, so the shelves are drained without regard to a fence that the system refuses.
 */
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
		caches[i]->engine->shrink(caches[i]);
		left -= discard_some(caches[i], left);
	}
	return true;
}

/* Twins go that were nobody's before; and those that could not be emptied. */
static void detach_all(struct km_private *private)
{
	struct detaching these = { .rest = discard_slabs };

	for_each_child(child, private)
		if (!child->cache->handed_on || child->slabs.count)
			detach(&these, child);
	detach_gathered(&these);
}

/* The registry is never locked for long. */
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

/* The first block of whole pages, else the next mapping. The one before was freed, or only the next mappings count. */
static void *next_large(struct km_private *private, uint32_t search, size_t *from)
{
	void *block = NULL;

	km_lock(&private->lock);
	if (!km_list_empty(&private->large))
		block = km_page_address(km_list_first(&private->large, struct km_page, list));
	km_unlock(&private->lock);
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
 * The destructor sees every object before any is freed: so it may follow pointers from one to another. After that slabs
 * go whole, without looking at objects, which is what makes it fast: the cost is by the slab.
 */
int mem_cgroup_destroy_all(struct mem_cgroup *group, mem_cgroup_dtor dtor, void *arg)
{
	struct km_private *private = group->objcg->private;

	if (!private)
		return -EINVAL;
	/* They are free already, but for their grace period. */
	if (km_load_acquire(&km_grace))
		km_grace->wait();
	if (dtor)
		visit_all(private, dtor, arg);
	destroy_children(private);
	destroy_large(private);
	kmem_tick();
	return 0;
}

/* The cache goes, and its twins with it, as if they were one. */
void km_private_forget(struct kmem_cache *parent)
{
	struct detaching these = { .rest = NULL };

	while (!km_list_empty(&parent->child_list))
		detach(&these, km_list_first(&parent->child_list, struct km_child, same));
	detach_gathered(&these);
}

/* ------------------------------------------------------------------ groups come and go */

/* An empty twin of an orphan, the one that `at` of its bucket points to. */
static void spare(struct km_child **at)
{
	struct km_child *child = *at;

	km_debug(child->parent && !child->slabs.count, "a twin is handed on empty");
	*at = child->next;
	child->private = &km_private_pool;
	km_list_del(&child->same);
	km_list_add_head(&child->same, &child->parent->child_list);
	km_list_add_tail(&child->spare, &km_private_spares);
	km_private_spare_count++;
	km_private_call_after(child);
}

/* True if no call uses the twin. Calls by a debug sibling count for the sibling. Acquire pairs with km_child_leave. */
static bool may_go(const struct kmem_cache *cache)
{
	return !km_load_acquire(&cache->calls) && !cache->shadows && !km_load(&cache->guarded);
}

/* Destroy spare twins, the oldest first, until `keep` are left. */
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

/* No object of it is out: its slabs are given back. */
static bool is_over(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (!stats.active_objects && km_load(&cache->slab_bytes))
		km_private_flush(cache);
	/* Acquire pairs with km_slab_free: the last slab is out of the twin's array. */
	return !km_load_acquire(&cache->slab_bytes);
}

/* Nothing of it is left. A block that goes is off the list when the lock is free. */
static bool is_gone(struct km_private *private)
{
	km_lock(&private->lock);
	bool gone = km_list_empty(&private->large);
	km_unlock(&private->lock);
	for_each_child(child, private)
		gone = false;
	return gone;
}

/* Nobody follows the buckets any more: the group has no reference, and nothing of it is out. */
static void free_private(struct km_private *private)
{
	for (unsigned i = 0; i < KM_CHILD_BUCKETS; i++)
		for (struct km_child *child = private->bucket[i], *next; child; child = next) {
			next = child->next;
			km_debug(!child->parent && !child->cache, "a link goes when it leads to no twin");
			km_meta_free(child, sizeof(*child));
		}
	km_list_del(&private->all);
	km_debug(*private->named_by == private, "who has a name is found by it");
	*private->named_by = private->next_named;
	if (private->next_named)
		private->next_named->named_by = private->named_by;
	private->objcg->private = NULL;
	km_meta_free(private, sizeof(*private));
}

/*
 * The twins of a group that is gone, as far as they have come to be empty. True: that was all. Twins become spares one
 * by one, as their last objects come back; the record goes when the last twin and the last large block have. Only then
 * the objcg forgets that it is private: until that it is not over, though no byte may be out, so that its address
 * means this group for as long as the record names it.
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

/* The first orphans, so many at most; those that stay come last then. With the registry locked. */
static void reap(size_t looks)
{
	bool more = !km_list_empty(&orphans);

	for (const struct km_list *last = orphans.prev; more && looks; looks--) {
		struct km_list *entry = orphans.next;

		more = entry != last;
		if (!clear_away(km_container_of(entry, struct km_private, all))) {
			km_list_del(entry);
			km_list_add_tail(entry, &orphans);
		}
	}
	if (km_private_spare_count > MOST_SPARES + TOGETHER)
		destroy_spares(MOST_SPARES);
}

void km_private_reap(void)
{
	/* In a visit none goes. */
	if (km_registry_visiting())
		return;
	km_registry_scope();
	reap(SIZE_MAX);
}

void km_private_tidy(bool all)
{
	if (km_registry_visiting() || (!all && !km_registry_trylock()))
		return;
	if (all)
		km_registry_lock();
	reap(all ? SIZE_MAX : LOOKS_BY_TICK);
	destroy_spares(all ? 0 : MOST_SPARES);
	km_registry_unlock();
}

/* Equal names have equal hashes; other names that have costs a number, where none were needed. */
static uint64_t hash(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
	return hash ^ hash >> 32;
}

/* The latest of a name is the first of those, so that a name that all have takes no time. With the registry locked. */
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
	struct km_private *private = km_meta_alloc(sizeof(*private), true);

	if (!private)
		return false;
	private->objcg = objcg;
	private->number = group->number;
	private->name = hash(group->name);
	km_lock_init(&private->lock, KM_RANK_PRIVATE);
	km_list_init(&private->large);
	km_registry_lock();
	reap(LOOKS);
	enter_name(private);
	km_list_add_tail(&private->all, &living);
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
	struct km_list *entry = &objcg->private->all;

	km_registry_lock();
	km_list_del(entry);
	km_list_add_head(entry, &orphans);
	for_each_child(child, objcg->private)
		km_store(&child->cache->orphan, true);
	reap(LOOKS);
	km_registry_unlock();
	/* The table that held its twins. */
	km_meta_trim(false);
}

static void fork_these(const struct km_list *these, bool before, bool child)
{
	km_list_for_each(entry, these)
		km_lock_around_fork(&km_container_of(entry, struct km_private, all)->lock, before, child);
}

/* The registry is locked meanwhile. */
void km_private_fork(bool before, bool child)
{
	fork_these(&living, before, child);
	fork_these(&orphans, before, child);
}
