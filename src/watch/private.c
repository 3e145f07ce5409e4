/*
 * private.c: groups whose objects lie in slabs of their own. For each cache that is used in its name such a group has a
 * twin, a cache of the same layout; what is asked of the cache is served by the twin, by its ordinary front, and
 * nobody looks who pays for an object: the group pays for the twin's slabs as a whole.
 *
 *	group -- buckets by the cache's id -> twin: (cache, its twin, the twin's slabs)
 *	object -- page map -> the twin; and kmem_cache_free of the cache looks there, once a cache has twins
 *
 * Invariants. Twins come and go under the registry's lock; a link of a bucket stays as long as its group has a
 * reference, and is used again, so that who follows the bucket needs no lock. A twin's slabs are all in its array, each
 * says at which place in the owner word of its first page, and its group's objcg was charged for each.
 */
#include <errno.h>

#include "../page/big.h"
#include "../page/meta.h"
#include "../page/owner.h"
#include "../port/die.h"
#include "group.h"
#include "private.h"

#define FIRST_ROOM	64u		/* slabs */
#define TOGETHER	128u		/* twins that share a fence */
#define LOOKS		4u		/* orphans that are looked at for each group that comes or goes */

/* Private groups that have a reference, and those that have none, but something that is out. */
static struct km_list living = { &living, &living }, orphans = { &orphans, &orphans };

/*
 * Home of the spares: twins of groups that are gone, empty, on no bucket: the next private group that wants one takes
 * it. They are not destroyed, for who freed the last object may not be through yet; with mem_cgroup_destroy_all and
 * kmem_cache_destroy nobody may be.
 */
static struct km_private pool = { .objcg = &km_objcg_root, .lock = KM_LOCK_INIT(KM_RANK_PRIVATE) };

/* What befell this thread's last request at the level of slabs. */
static km_tls struct {
	struct kmem_cache *prepaid_for;
	size_t prepaid;			/* bytes of slabs that are paid for already */
	size_t admitted;		/* bytes that were charged without waiting */
	bool refused;
} here;

/* ------------------------------------------------------------------ slabs come and go: the keeper */

static bool admit(struct kmem_cache *cache, size_t bytes)
{
	struct km_twin *twin = cache->kept_by;

	if (here.prepaid_for == cache && here.prepaid >= bytes) {
		here.prepaid -= bytes;
		return true;
	}
	if (!km_objcg_charge(twin->home->objcg, bytes, GFP_NOWAIT)) {
		here.refused = true;
		return false;
	}
	here.admitted += bytes;
	return true;
}

static void dismiss(struct kmem_cache *cache, size_t bytes)
{
	struct km_twin *twin = cache->kept_by;

	km_objcg_uncharge(twin->home->objcg, bytes);
}

static bool grow(struct km_twin *twin, bool may_wait)
{
	size_t room = twin->room ? twin->room * 2 : FIRST_ROOM;
	struct km_page **slabs = km_meta_alloc(room * sizeof(*slabs), may_wait);

	if (!slabs)
		return false;
	if (twin->room) {
		__builtin_memcpy(slabs, twin->slabs, twin->count * sizeof(*slabs));
		km_meta_free(twin->slabs, twin->room * sizeof(*slabs));
	}
	twin->slabs = slabs;
	twin->room = room;
	return true;
}

static void put_at(struct km_twin *twin, size_t place, struct km_page *slab)
{
	twin->slabs[place] = slab;
	km_store(km_owner_of_page(slab), (uint64_t)place);
}

static bool came(struct kmem_cache *cache, struct km_page *slab, bool may_wait)
{
	struct km_twin *twin = cache->kept_by;

	if (!km_lock_may(&twin->home->lock, may_wait))
		return false;
	bool noted = twin->count < twin->room || grow(twin, may_wait);
	if (noted)
		put_at(twin, twin->count++, slab);
	km_unlock_may(&twin->home->lock, may_wait);
	return noted;
}

static void goes(struct kmem_cache *cache, struct km_page *slab)
{
	struct km_twin *twin = cache->kept_by;

	km_lock(&twin->home->lock);
	uint64_t *word = km_owner_of_page(slab);
	size_t place = (size_t)km_load(word);
	km_store(word, (uint64_t)0);
	if (place != --twin->count)
		put_at(twin, place, twin->slabs[twin->count]);
	km_unlock(&twin->home->lock);
	km_objcg_uncharge(twin->home->objcg, KM_PAGE_SIZE << slab->order);
}

static const struct km_keeper keeper = { admit, dismiss, came, goes };

/* ------------------------------------------------------------------ twins */

static void set_name(char *name, const struct km_twin *twin, const struct kmem_cache *parent)
{
	km_format(name, KM_NAME_BYTES, "%s:%s", parent->name, twin->home->objcg->home->name);
}

static struct kmem_cache *create_cache(struct km_twin *twin, struct kmem_cache *parent)
{
	struct km_creation creation = {
		.internal = true, .engine = parent->engine, .twin_of = parent, .tuned_with = parent,
		.keeper = &keeper, .kept_by = twin,
		.args = {
			.align = parent->align, .ctor = parent->ctor,
			.useroffset = parent->useroffset, .usersize = parent->usersize,
		},
	};
	bool keeps_content = parent->ctor || parent->flags & SLAB_TYPESAFE_BY_RCU;
	char name[KM_NAME_BYTES];
	int error;

	set_name(name, twin, parent);
	if (keeps_content && parent->freeptr < parent->object_size) {
		creation.args.use_freeptr_offset = true;
		creation.args.freeptr_offset = parent->freeptr;
	}
	return km_cache_create_locked(name, parent->object_size, parent->flags & ~SLAB_ACCOUNT, &creation, &error);
}

/* A link for it in its bucket: one that is free, or a new one. */
static struct km_twin *get_link(struct km_private *private, const struct kmem_cache *parent)
{
	struct km_twin **first = &private->bucket[parent->id % KM_TWIN_BUCKETS], *twin = *first;

	while (twin && twin->parent)
		twin = twin->next;
	if (twin)
		return twin;
	twin = km_meta_alloc(sizeof(*twin), true);
	if (!twin)
		return NULL;
	twin->home = private;
	twin->next = *first;
	km_store_release(first, twin);
	return twin;
}

/* With the registry locked, as what follows. A twin without slabs belongs to this one now. */
static void call_after(struct km_twin *twin)
{
	struct kmem_cache *cache = twin->cache;
	char name[KM_NAME_BYTES];

	set_name(name, twin, cache->twin_of);
	km_cache_rename(cache, name);
	cache->kept_by = twin;
	km_store(&cache->limit, UINT64_MAX);
}

/* An empty twin of an orphan, the one that `at` of its bucket points to. */
static void spare(struct km_twin **at)
{
	struct km_twin *twin = *at;

	*at = twin->next;
	twin->home = &pool;
	km_list_del(&twin->same);
	km_list_add_head(&twin->same, &twin->parent->twin_list);
	call_after(twin);
}

/* Spares are the first on their list. */
static bool take_spare(struct km_twin *to, struct kmem_cache *parent)
{
	struct km_twin *from = parent->twins && !km_list_empty(&parent->twin_list) ?
				       km_list_first(&parent->twin_list, struct km_twin, same) : NULL;

	if (!from || from->home != &pool)
		return false;
	to->cache = from->cache;
	to->slabs = from->slabs;
	to->room = from->room;
	km_list_del(&from->same);
	call_after(to);
	km_meta_free(from, sizeof(*from));
	return true;
}

/*
 * From now on who frees an object of the cache must look where it lies: charge.c's payer says so before there is one to
 * be freed.
 */
static bool make_cache(struct km_twin *twin, struct kmem_cache *parent)
{
	twin->cache = create_cache(twin, parent);
	if (!twin->cache)
		return false;
	if (!parent->twins) {
		km_list_init(&parent->twin_list);
		km_store(&parent->twins, true);
	}
	km_charge_look(parent);
	return true;
}

static struct km_twin *attach(struct km_private *private, struct kmem_cache *parent)
{
	struct km_twin *twin = get_link(private, parent);

	if (!twin || !(take_spare(twin, parent) || make_cache(twin, parent)))
		return NULL;
	km_list_add_tail(&twin->same, &parent->twin_list);
	km_store_release(&twin->parent, parent);
	return twin;
}

/* The twin, made now where there is none, which takes who may wait. */
static struct km_twin *get(struct km_private *private, struct kmem_cache *parent, gfp_t gfp)
{
	struct km_twin *twin = km_private_find(private, parent);

	if (km_likely(twin) || !(gfp & __GFP_DIRECT_RECLAIM) || km_front_busy)
		return twin;
	km_registry_lock();
	twin = km_private_find(private, parent) ?: attach(private, parent);
	km_registry_unlock();
	return twin;
}

/* Twins that go together, for the fences that stop all CPUs. With the registry locked. */
struct detaching {
	void (*rest)(struct kmem_cache *cache);	/* what becomes of slabs with objects */
	struct km_twin *twin[TOGETHER];
	struct kmem_cache *cache[TOGETHER];
	size_t count;
};

static void detach_gathered(struct detaching *these)
{
	if (these->count)
		km_caches_remove(these->cache, these->count, these->rest);
	for (size_t i = 0; i < these->count; i++) {
		struct km_twin *twin = these->twin[i];

		twin->cache = NULL;
		if (twin->room)
			km_meta_free(twin->slabs, twin->room * sizeof(*twin->slabs));
		twin->slabs = NULL;
		twin->count = twin->room = 0;
		if (twin->home == &pool)
			km_meta_free(twin, sizeof(*twin));
	}
	these->count = 0;
}

static void detach(struct detaching *these, struct km_twin *twin)
{
	km_store(&twin->parent, NULL);
	km_list_del(&twin->same);
	these->cache[these->count] = twin->cache;
	these->twin[these->count++] = twin;
	if (these->count == TOGETHER)
		detach_gathered(these);
}

/* Each twin of a group, with the registry locked, or while nobody uses the group. */
#define for_each_twin(twin, private)                                                               \
	for (unsigned bucket_ = 0; bucket_ < KM_TWIN_BUCKETS; bucket_++)                                   \
		for (struct km_twin *twin = (private)->bucket[bucket_]; twin; twin = twin->next)      \
			if (twin->parent)

/* ------------------------------------------------------------------ objects in */

km_inline void *from_twin(struct kmem_cache *cache, gfp_t gfp, int node)
{
	return km_likely(node == NUMA_NO_NODE) ? (kmem_cache_alloc)(cache, gfp) :
						 km_alloc_miss_node(cache, gfp, node);
}

static bool may_wait(gfp_t gfp)
{
	return (gfp & __GFP_DIRECT_RECLAIM) && !km_front_busy;
}

/* A slab was charged on the way: what else a charge does. */
static km_noinline void settle(struct obj_cgroup *objcg, gfp_t gfp)
{
	size_t bytes = here.admitted;

	here.admitted = 0;
	if (may_wait(gfp))
		km_objcg_settle(objcg, bytes);
	else
		km_objcg_owe(objcg, bytes);
}

/*
 * It failed. Where the group was refused a slab, which happened where nobody may wait: pay for the smallest one here,
 * with all that may be done for it, and try again.
 */
static km_noinline void *alloc_harder(struct km_twin *twin, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	struct kmem_cache *cache = twin->cache;
	size_t bytes = KM_PAGE_SIZE << cache->min_order;

	if (!here.refused)
		return gfp & __GFP_NOFAIL ? from_twin(cache, gfp, node) :
					    km_front_failed(cache->name, cache->object_size, gfp, ENOMEM);
	if (!km_objcg_charge(objcg, bytes, gfp))
		return km_front_failed(cache->name, cache->object_size, gfp | __GFP_NOWARN, ENOMEM);
	here.prepaid_for = cache;
	here.prepaid = bytes;
	void *object = from_twin(cache, gfp, node);
	bytes = here.prepaid;
	here.prepaid_for = NULL;
	here.prepaid = 0;
	km_objcg_uncharge(objcg, bytes);
	return object;
}

static km_noinline void *alloc_missed(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	struct km_twin *twin = get(objcg->private, cache, gfp);
	int saved_errno = errno;

	if (km_unlikely(!twin))
		return km_front_failed(cache->name, cache->object_size, gfp, ENOMEM);
	gfp &= ~__GFP_ACCOUNT;
	here.refused = false;
	void *object = from_twin(twin->cache, (gfp & ~__GFP_NOFAIL) | __GFP_NOWARN, node);
	if (km_unlikely(!object))
		object = alloc_harder(twin, gfp, node, objcg);
	if (km_unlikely(here.admitted))
		settle(objcg, gfp);
	if (km_likely(object))
		errno = saved_errno;
	return object;
}

/* A hit: of the twin's public shelf, which is closed to who watches, checks or has no rseq. NULL: a miss. */
km_inline void *twin_pop(const struct obj_cgroup *objcg, const struct kmem_cache *parent)
{
#ifdef KMEM_HAVE_RSEQ
	const struct km_twin *twin = km_private_find(objcg->private, parent);

	if (km_likely(twin))
		return kmem_shelf_pop(&twin->cache->shelf.front.open, km_hot.percpu, km_rseq);
#else
	(void)objcg, (void)parent;
#endif
	return NULL;
}

void *km_private_alloc(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	const gfp_t odd = __GFP_ZERO | __GFP_THISNODE | ~__GFP_BITS_MASK;
	void *object = km_likely(!(gfp & odd) && node == NUMA_NO_NODE) ? twin_pop(objcg, cache) : NULL;

	return km_likely(object) ? object : alloc_missed(cache, gfp, node, objcg);
}

bool km_private_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects, struct obj_cgroup *objcg)
{
	struct km_twin *twin = get(objcg->private, cache, gfp);
	gfp_t plain = gfp & ~__GFP_ACCOUNT;
	int saved_errno = errno;
	size_t left = n;

	if (km_likely(twin) &&
	    km_front_alloc_bulk(twin->cache, (plain & ~__GFP_NOFAIL) | __GFP_NOWARN, n, objects))
		left = 0;
	/* Near the limit, one by one. */
	while (left && (objects[left - 1] = km_private_alloc(cache, gfp, NUMA_NO_NODE, objcg)))
		left--;
	if (km_unlikely(here.admitted))
		settle(objcg, gfp);
	/* The twin may have come after the first look. */
	if (km_unlikely(left && left < n))
		km_front_free_bulk(km_private_find(objcg->private, cache)->cache, n - left, objects + left);
	if (km_likely(!left))
		errno = saved_errno;
	return !left;
}

/* ------------------------------------------------------------------ objects out */

km_inline struct kmem_cache *home_of(const void *object)
{
	return km_quick_cache(object) ?: kmem_cache_of(object);
}

bool km_private_free(struct kmem_cache *cache, void *object)
{
	struct kmem_cache *home = home_of(object);
	int index;

	if (home == cache || !object)
		return false;
	if (km_likely(home && home->twin_of == cache))
		(kmem_cache_free)(home, object);
	else
		km_slab_of(cache, object, &index, "kmem_cache_free");
	return true;
}

size_t km_private_free_last(struct kmem_cache *cache, size_t *n, void **objects)
{
	struct kmem_cache *home = home_of(objects[*n - 1]);
	size_t run = 1;

	while (run < *n && home && home_of(objects[*n - 1 - run]) == home)
		run++;
	if (home == cache)
		return run;
	*n -= run;
	if (km_likely(home && home->twin_of == cache))
		km_front_free_bulk(home, run, objects + *n);
	else
		while (run--)
			km_private_free(cache, objects[*n + run]);
	return 0;
}

struct obj_cgroup *km_private_owner(const struct kmem_cache *twin)
{
	return ((struct km_twin *)twin->kept_by)->home->objcg;
}

/* What lies ready on shelves, and empty slabs. */
static void empty(struct kmem_cache *cache)
{
	if (!km_load(&cache->slab_bytes))
		return;
	/* A fence stops all CPUs: not for nothing. */
	if (cache->engine->drain || km_load(&cache->deferred) || km_front_shelf_objects(cache))
		km_front_drain(cache);
	cache->engine->shrink(cache);
}

void km_private_flush(struct kmem_cache *twin, struct mem_cgroup *root)
{
	if (km_memcg_below(km_private_owner(twin), root))
		empty(twin);
}

/* ------------------------------------------------------------------ large blocks */

void km_charge_large(uint64_t owner, struct km_page *page, bool begins)
{
	struct km_private *private = ((struct obj_cgroup *)(uintptr_t)owner)->private;

	if (km_likely(!private))
		return;
	bool was = km_busy_begin();
	km_lock(&private->lock);
	if (begins)
		km_list_add_tail(&page->list, &private->large);
	else
		km_list_del(&page->list);
	km_unlock(&private->lock);
	km_busy_end(was);
}

/* The first block of whole pages, else the next mapping. The one before was freed, or only the next mappings count. */
static void *next_large(struct km_private *private, size_t *from)
{
	void *block = NULL;

	km_lock(&private->lock);
	if (!km_list_empty(&private->large))
		block = km_page_address(km_list_first(&private->large, struct km_page, list));
	km_unlock(&private->lock);
	return block ?: km_big_next((uintptr_t)private->objcg, from);
}

/* ------------------------------------------------------------------ the end of many */

static void discard_slabs(struct kmem_cache *cache)
{
	struct km_twin *twin = cache->kept_by;

	while (twin->count) {
		struct km_page *slab = twin->slabs[twin->count - 1];

		if (cache->engine->discard)
			cache->engine->discard(cache, slab);
		else
			km_slab_free(cache, slab);
	}
}

static bool is_taken(struct kmem_cache *cache, struct km_page *slab, unsigned i)
{
	bool was = km_busy_begin();
	bool taken = cache->engine->is_taken(cache, slab, i);

	km_busy_end(was);
	return taken;
}

/* What lies on shelves is free. */
static void drain_twins(struct km_private *private)
{
	struct kmem_cache *caches[TOGETHER];
	bool was = km_busy_begin();
	size_t count = 0;

	for_each_twin(twin, private) {
		caches[count++] = twin->cache;
		if (count == TOGETHER) {
			km_front_drain_all(caches, count);
			count = 0;
		}
	}
	if (count)
		km_front_drain_all(caches, count);
	for_each_twin(twin, private)
		twin->cache->engine->shrink(twin->cache);
	km_busy_end(was);
}

static void visit_twin(struct km_twin *twin, mem_cgroup_dtor dtor, void *arg)
{
	struct kmem_cache *cache = twin->cache;

	for (size_t at = 0; at < twin->count; at++) {
		struct km_page *slab = twin->slabs[at];
		char *object = km_slab_first(cache, slab);

		for (unsigned i = 0; i < slab->objects; i++, object += cache->size)
			if (is_taken(cache, slab, i))
				dtor(twin->parent, object, arg);
	}
}

static void visit_all(struct km_private *private, mem_cgroup_dtor dtor, void *arg)
{
	size_t from = 0;
	void *block;

	drain_twins(private);
	for_each_twin(twin, private)
		visit_twin(twin, dtor, arg);
	km_list_for_each(entry, &private->large)
		dtor(NULL, km_page_address(km_container_of(entry, struct km_page, list)), arg);
	while ((block = km_big_next((uintptr_t)private->objcg, &from)))
		dtor(NULL, block, arg);
}

int mem_cgroup_destroy_all(struct mem_cgroup *group, mem_cgroup_dtor dtor, void *arg)
{
	struct km_private *private = group->objcg->private;
	struct detaching these = { .rest = discard_slabs };
	size_t from = 0;
	void *block;

	if (!private)
		return -EINVAL;
	if (dtor)
		visit_all(private, dtor, arg);
	km_registry_lock();
	for_each_twin(twin, private)
		detach(&these, twin);
	detach_gathered(&these);
	/* What handlers freed and nobody finished. */
	km_large_finish_deferred();
	while ((block = next_large(private, &from)))
		km_large_free(block);
	km_registry_unlock();
	return 0;
}

/* The cache goes, and its twins with it, as if they were one. */
void km_private_forget(struct kmem_cache *parent)
{
	struct detaching these = { .rest = NULL };

	while (!km_list_empty(&parent->twin_list))
		detach(&these, km_list_first(&parent->twin_list, struct km_twin, same));
	detach_gathered(&these);
}

/* ------------------------------------------------------------------ groups come and go */

/* No object of it is out: its slabs are given back. */
static bool is_over(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	if (!stats.active_objects)
		empty(cache);
	/* Acquire pairs with km_slab_free: the last slab is out of the twin's array. */
	return !km_load_acquire(&cache->slab_bytes);
}

/* Nothing of it is left. A block that goes is off the list when the lock is free. */
static bool is_gone(struct km_private *private)
{
	km_lock(&private->lock);
	bool gone = km_list_empty(&private->large);
	km_unlock(&private->lock);
	for_each_twin(twin, private)
		gone = false;
	return gone;
}

static void free_private(struct km_private *private)
{
	for (unsigned i = 0; i < KM_TWIN_BUCKETS; i++)
		for (struct km_twin *twin = private->bucket[i], *next; twin; twin = next) {
			next = twin->next;
			km_meta_free(twin, sizeof(*twin));
		}
	km_list_del(&private->all);
	private->objcg->private = NULL;
	km_meta_free(private, sizeof(*private));
}

/* What is left of a group that is gone, as far as it has come to be empty. True: that was all. */
static bool clear_away(struct km_private *private)
{
	struct obj_cgroup *objcg = private->objcg;

	for (unsigned i = 0; i < KM_TWIN_BUCKETS; i++)
		for (struct km_twin **at = &private->bucket[i]; *at;)
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
}

void km_private_reap(void)
{
	km_registry_lock();
	reap(SIZE_MAX);
	km_registry_unlock();
}

bool km_private_create(struct obj_cgroup *objcg)
{
	struct km_private *private = km_meta_alloc(sizeof(*private), true);

	if (!private)
		return false;
	private->objcg = objcg;
	km_lock_init(&private->lock, KM_RANK_PRIVATE);
	km_list_init(&private->large);
	km_registry_lock();
	reap(LOOKS);
	km_list_add_tail(&private->all, &living);
	km_registry_unlock();
	objcg->private = private;
	return true;
}

void km_private_drop(struct obj_cgroup *objcg)
{
	km_registry_lock();
	free_private(objcg->private);
	km_registry_unlock();
}

void km_private_release(struct obj_cgroup *objcg)
{
	struct km_list *entry = &objcg->private->all;

	km_registry_lock();
	km_list_del(entry);
	km_list_add_head(entry, &orphans);
	reap(LOOKS);
	km_registry_unlock();
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
