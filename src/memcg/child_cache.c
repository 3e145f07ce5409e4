/*
 * child_cache.c: private groups: groups whose objects lie in slabs of their own. For each cache used by a private group
 * there is a child cache with the same layout. The child cache serves the group's requests on its ordinary fast path,
 * with no owner words: the group is charged for whole slabs.
 *
 *	group -- buckets by the cache's id -> link (struct km_child): cache, its child cache, the child cache's slabs
 *	object -- page map -> the child cache; kmem_cache_free of the cache reads the page map once a child cache exists
 *
 * Invariants. Child caches are created and destroyed under the registry lock. A link of a bucket stays while its group
 * has a reference, and is reused: readers of the bucket need no lock. All slabs of a child cache are in its array; the
 * owner word of a slab's first page has the address of the slab's entry; and the group's objcg is charged for each
 * slab. A child cache reused from another group is emptied and kept while its cache lives. A late free by the former
 * group's threads may still run, so the child cache must not be destroyed.
 */
#include <errno.h>

#include "page/huge.h"
#include "page/metadata.h"
#include "page/obj_cgroups.h"
#include "os/die.h"
#include "base/text.h"
#include "charged_sheaf.h"
#include "memcg_group.h"
#include "child_cache.h"

#define FIRST_PIECE	((size_t)512)	/* bytes of the first, and at most of a further piece of an array of slabs */
#define MOST_PIECE	((size_t)32 << 10)
#define TRIES		4		/* attempts to allocate the prepaid slab: a handler may take the slab */
#define MOST_OF_CACHE	16u		/* bytes of the cache's name, with a NUL, in a child cache's shortened name */

/*
 * Spares: empty child caches of released groups, in no bucket, for the next private group that needs a child cache of
 * the same cache. The free of the last object may still run: a spare is destroyed only if no free is counted
 * (memcg.calls), or together with the cache, because then no call may use the cache any more.
 */
struct km_list km_private_spares = { &km_private_spares, &km_private_spares };
size_t km_private_spare_count;
struct km_private km_private_pool = { .objcg = &km_objcg_root };
struct km_lock km_private_lock = KM_LOCK_INIT(KM_RANK_PRIVATE);

/*
 * One call's request to a child cache, on the stack, with the slab charges made for the request. km_thread.child is the
 * innermost request: a handler may interrupt a request, and begin its own.
 */
struct km_child_request {
	const struct kmem_cache *child;
	struct km_child_request *outer;
	size_t prepaid;			/* bytes charged by alloc_harder for the next slab */
	size_t admitted;		/* bytes charged by admit, without waiting */
	bool refused;			/* the charge of the last slab was refused */
};

km_inline void begin(struct km_child_request *request, const struct kmem_cache *child)
{
	*request = (struct km_child_request){ .child = child, .outer = km_thread.child };
	km_thread.child = request;
}

/* ------------------------------------------------------------------ slab charge hooks */

/*
 * Slab charge hook: charges a slab to the group before the slab is created. Callers hold locks, so the charge must not
 * wait, and a refusal is only noted in the thread's request: alloc_harder then charges a slab (`prepaid`), and waits.
 */
static bool admit(struct kmem_cache *cache, size_t bytes)
{
	struct km_child *child = cache->memcg.kept_by;
	struct km_child_request *request = km_thread.child;
	const bool asked = request && request->child == cache, prepaid = asked && request->prepaid >= bytes;

	if (!prepaid && !km_objcg_charge(child->private->objcg, bytes, GFP_NOWAIT)) {
		if (asked)
			request->refused = true;
		return false;
	}
	if (!asked)
		return true;
	request->refused = false;
	if (prepaid)
		request->prepaid -= bytes;
	else
		request->admitted += bytes;
	return true;
}

static void dismiss(struct kmem_cache *cache, size_t bytes)
{
	struct km_child *child = cache->memcg.kept_by;

	km_objcg_uncharge(child->private->objcg, bytes);
}

static size_t piece_bytes(const struct km_child_piece *piece)
{
	return sizeof(*piece) + piece->room * sizeof(piece->slab[0]);
}

/* Adds a piece to a child cache's array of slabs. The array is in pieces, so that no metadata allocation is large. */
static bool grow(struct km_child_slabs *slabs, bool may_wait)
{
	struct km_child_piece *last = slabs->last, *piece = last ? last->after : NULL;
	const size_t bytes = last ? km_min(piece_bytes(last) * 2, MOST_PIECE) : FIRST_PIECE;

	if (!piece) {
		piece = km_metadata_alloc(bytes, may_wait);
		if (!piece)
			return false;
		*piece = (struct km_child_piece){
			.before = last, .room = (uint32_t)((bytes - sizeof(*piece)) / sizeof(piece->slab[0])),
		};
		if (last)
			last->after = piece;
	}
	slabs->last = piece;
	return true;
}

void km_private_free_places(struct km_child_slabs *slabs)
{
	struct km_child_piece *piece = slabs->last, *before;

	while (piece && piece->after)
		piece = piece->after;
	for (; piece; piece = before) {
		before = piece->before;
		km_metadata_free(piece, piece_bytes(piece));
	}
	*slabs = (struct km_child_slabs){ 0 };
}

static void put_at(struct km_page **entry, struct km_page *slab)
{
	km_debug(km_is_locked(&km_private_lock), "the slabs of a child cache are in its array");
	*entry = slab;
	km_store(km_owner_of_page(slab), (uint64_t)(uintptr_t)entry);
}

/* Slab charge hook: enters a new slab into the child cache's array, and stores the entry's address in the owner word of
 * the slab's first page. Returns: false without memory; `dismiss` then uncharges the slab. */
static bool came(struct kmem_cache *cache, struct km_page *slab, bool may_wait)
{
	struct km_child *child = cache->memcg.kept_by;

	km_debug(child->private != &km_private_pool, "a spare child cache gets no slab");
	if (!km_lock_may(&km_private_lock, may_wait))
		return false;
	struct km_child_slabs *slabs = &child->slabs;
	bool noted = (slabs->last && slabs->last->count < slabs->last->room) || grow(slabs, may_wait);
	if (noted) {
		put_at(&slabs->last->slab[slabs->last->count++], slab);
		slabs->count++;
	}
	km_unlock_may(&km_private_lock, may_wait);
	return noted;
}

/* Reports to the profile that sampled objects are freed, for objects freed together with their slab. */
static km_cold void end_samples(const struct kmem_cache *cache, const struct km_page *slab)
{
	const char *first = km_slab_first(cache, slab);

	for (size_t i = 0; i < cache->layout.objects; i++)
		km_profile_ops->goes(first + i * cache->layout.size);
}

/* Slab charge hook: removes a slab about to be freed from the child cache's array, and uncharges the slab's pages. The
 * last slab moves to the free entry, so that the array has no holes. The uncharge comes last, after the unlock: after
 * the last byte the objcg and `private` may end. */
static void goes(struct kmem_cache *cache, struct km_page *slab)
{
	struct km_child *child = cache->memcg.kept_by;

	if (km_unlikely(km_load(&km_alloc_probing) & KM_PROBING_PROFILE))
		end_samples(cache, slab);

	km_lock(&km_private_lock);
	uint64_t *word = km_owner_of_page(slab);
	struct km_page **entry = (struct km_page **)(uintptr_t)km_load(word);
	struct km_child_piece *last = child->slabs.last;
	km_debug(last->count && *entry == slab, "a slab's owner word leads to its entry in the array");
	km_store(word, (uint64_t)0);
	child->slabs.count--;
	if (entry != &last->slab[--last->count])
		put_at(entry, last->slab[last->count]);
	if (!last->count && last->before)
		child->slabs.last = last->before;
	km_unlock(&km_private_lock);
	km_objcg_uncharge(child->private->objcg, KM_PAGE_SIZE << slab->order);
}

static const struct km_slab_charge slab_charge = { admit, dismiss, came, goes };

/* ------------------------------------------------------------------ child caches */

/* Sets a child cache's name: "cache:group"; "cache:group~number" if another private group has the same name. A name too
 * long becomes "cache:roup~number": names with equal beginnings mostly differ at the end. */
static void set_name(char *name, const struct km_child *child, const struct kmem_cache *parent)
{
	const char *group = child->private->objcg->home->name;
	size_t length = __builtin_strlen(group), room = KM_NAME_BYTES - 1;
	char cache[KM_NAME_BYTES], number[16];
	size_t digits = km_format(number, sizeof(number), "~%u", child->private->number);

	if (__builtin_strlen(parent->registry.name) + 1 + length + child->private->namesake * digits <= room) {
		km_format(name, KM_NAME_BYTES, "%s:%s%s", parent->registry.name, group,
			  child->private->namesake ? number : "");
		return;
	}
	km_text_take(cache, MOST_OF_CACHE, parent->registry.name, "", '_');
	room -= digits + __builtin_strlen(cache) + 1;
	group += length - km_min(room, length);
	/* Do not begin inside a UTF-8 character. */
	while (((unsigned char)*group & 0xc0) == 0x80)
		group++;
	km_format(name, KM_NAME_BYTES, "%s:%s%s", cache, group, number);
}

static struct kmem_cache *create_cache(struct km_child *child, struct kmem_cache *parent)
{
	struct km_creation creation = {
		.internal = true, .engine = parent->layout.engine, .child_of = parent, .tuned_with = parent,
		.slab_charge = &slab_charge, .kept_by = child,
		.args = {
			.align = parent->form.align, .ctor = parent->form.ctor,
			.useroffset = parent->ext.useroffset, .usersize = parent->ext.usersize,
		},
	};
	bool keeps_content = parent->form.ctor || parent->layout.flags & SLAB_TYPESAFE_BY_RCU;
	char name[KM_NAME_BYTES];

	set_name(name, child, parent);
	if (keeps_content && parent->layout.freeptr < parent->layout.object_size) {
		creation.args.use_freeptr_offset = true;
		creation.args.freeptr_offset = parent->layout.freeptr;
	}
	return km_cache_create_locked(name, parent->layout.object_size,
				      parent->layout.flags & ~SLAB_ACCOUNT, &creation);
}

/* Returns an unused link of the bucket, or a new link. */
static struct km_child *get_link(struct km_private *private, const struct kmem_cache *parent)
{
	struct km_child **first = &private->bucket[parent->fast.id % KM_CHILD_BUCKETS], *child = *first;

	while (child && child->parent)
		child = child->next;
	if (child)
		return child;
	child = km_metadata_alloc(sizeof(*child), true);
	if (!child)
		return NULL;
	km_debug(!child->cache && !child->parent, "a new link has no child cache");
	child->private = private;
	child->bucket = (uint8_t)(first - private->bucket);
	child->next = *first;
	km_store_release(first, child);
	return child;
}

void km_private_call_after(struct km_child *child)
{
	struct kmem_cache *cache = child->cache;
	char name[KM_NAME_BYTES];

	set_name(name, child, cache->memcg.child_of);
	km_cache_rename(cache, name);
	cache->memcg.kept_by = child;
	km_store(&cache->memcg.orphan, false);
	km_store(&cache->memcg.group, child->private->number);
	km_store(&cache->tune.limit, UINT64_MAX);
}

/* Reuses a spare child cache of the parent; spares are first on the list. Returns: false if there is no spare. Context:
 * registry locked, as in the functions below. */
static bool take_spare(struct km_child *to, struct kmem_cache *parent)
{
	struct km_child *from = km_is_parent(parent) && !km_list_empty(&parent->memcg.child_list) ?
				       km_list_first(&parent->memcg.child_list, struct km_child, same) : NULL;

	if (!from || from->private != &km_private_pool)
		return false;
	km_debug(!from->slabs.count && from->cache->memcg.child_of == parent,
		 "a spare child cache is empty, and has the same root cache");
	to->cache = from->cache;
	to->cache->memcg.handed_on = true;
	to->slabs = from->slabs;
	km_list_del(&from->same);
	km_list_del(&from->spare);
	km_private_spare_count--;
	km_private_call_after(to);
	/* Reset the child cache's statistics, which count the former group's requests. */
	km_cache_tune_again(to->cache);
	kmem_cache_clear_events(to->cache);
	km_metadata_free(from, sizeof(*from));
	return true;
}

static bool make_cache(struct km_child *child, struct kmem_cache *parent)
{
	child->cache = create_cache(child, parent);
	if (!child->cache)
		return false;
	km_debug(child->cache->memcg.child_of == parent && child->cache->memcg.kept_by == child,
		 "a child cache has a root cache and a group");
	km_store(&child->cache->memcg.group, child->private->number);
	if (!km_is_parent(parent))
		km_list_init(&parent->memcg.child_list);
	/* From now on a free must look whether the object is of the parent or of a child cache. */
	km_charged_differ(parent, KM_CHARGING_PARENT, true);
	return true;
}

/* Adds a child cache to the group. Readers of the bucket, without a lock, compare `parent`, stored last. */
static struct km_child *attach(struct km_private *private, struct kmem_cache *parent)
{
	struct km_child *child = get_link(private, parent);

	if (!child || !(take_spare(child, parent) || make_cache(child, parent)))
		return NULL;
	km_list_add_tail(&child->same, &parent->memcg.child_list);
	km_store_release(&child->parent, parent);
	return child;
}

/* Returns the child cache. A missing child cache is created, if gfp allows waiting. */
static struct km_child *get(struct km_private *private, struct kmem_cache *parent, gfp_t gfp)
{
	struct km_child *child = km_private_find(private, parent);

	/* Large blocks have no slabs, and so no child caches. */
	if (km_likely(child) || !(gfp & __GFP_DIRECT_RECLAIM) || km_thread.busy || parent->layout.engine->whole_pages)
		return child;
	km_registry_scope();
	child = km_private_find(private, parent) ?: attach(private, parent);
	return child;
}

/* ------------------------------------------------------------------ objects in */

km_inline void *from_child(struct kmem_cache *cache, gfp_t gfp, int node)
{
	return km_likely(node == NUMA_NO_NODE) ? kmem_cache_alloc(cache, gfp) :
						 km_alloc_miss_node(cache, gfp, node);
}

static bool may_wait(gfp_t gfp)
{
	return (gfp & __GFP_DIRECT_RECLAIM) && !km_thread.busy;
}

/* Ends the request. Where admit charged slabs and the group is over `high`, delays the thread; a call that must not
 * wait leaves the delay to the thread's next charge that may wait. */
static void end(const struct km_child_request *request, struct obj_cgroup *objcg, gfp_t gfp)
{
	size_t bytes = request->admitted;

	km_debug(!request->prepaid, "a charge ahead has a slab, or was refunded");
	km_thread.child = request->outer;
	if (km_likely(!bytes))
		return;
	if (may_wait(gfp))
		km_objcg_settle(objcg, bytes);
	else
		km_objcg_owe(objcg, bytes);
}

/* Allocates after alloc_missed failed. If admit's charge of a slab was refused, charges the smallest slab here with all
 * steps that gfp allows, and tries again; TRIES times, because a handler's request may take the charged slab. */
static km_noinline void *alloc_harder(struct km_child_request *request, struct kmem_cache *cache, gfp_t gfp, int node,
				      struct obj_cgroup *objcg)
{
	const gfp_t gently = (gfp & ~__GFP_NOFAIL) | __GFP_NOWARN;
	const size_t bytes = KM_PAGE_SIZE << cache->layout.min_order;
	void *object = NULL;

	for (int tries = TRIES; tries && !object && request->refused; tries--) {
		if (!km_objcg_charge(objcg, bytes, gfp))
			return km_alloc_failed(cache->registry.name, cache->layout.object_size,
					       gfp | __GFP_NOWARN, ENOMEM);
		request->prepaid = bytes;
		object = from_child(cache, gently, node);
		size_t left = request->prepaid;
		km_debug(left <= bytes && km_thread.child == request, "a slab is charged once");
		request->prepaid = 0;
		km_objcg_uncharge(objcg, left);
	}
	if (km_likely(object))
		return object;
	return gfp & __GFP_NOFAIL ? from_child(cache, gfp, node) :
				    km_alloc_failed(cache->registry.name, cache->layout.object_size, gfp, ENOMEM);
}

/* Allocates after a miss. The first attempt is made without __GFP_NOFAIL and without a message, because admit's charge
 * cannot wait. After a refusal alloc_harder takes all steps allowed by gfp. */
static km_noinline void *alloc_missed(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	struct km_child *child = get(objcg->private, cache, gfp);
	int saved_errno = errno;

	if (km_unlikely(!child))
		return km_alloc_failed(cache->registry.name, cache->layout.object_size, gfp, ENOMEM);
	gfp &= ~__GFP_ACCOUNT;
	struct km_child_request request;
	begin(&request, child->cache);
	void *object = from_child(child->cache, (gfp & ~__GFP_NOFAIL) | __GFP_NOWARN, node);
	if (km_unlikely(!object))
		object = alloc_harder(&request, child->cache, gfp, node, objcg);
	end(&request, objcg, gfp);
	if (km_likely(object))
		errno = saved_errno;
	return object;
}

/* Pops an object from the CPU's sheaf of the child cache. Returns: NULL on a miss; always without rseq, and for a child
 * cache with a layer above BASE. */
km_inline void *child_pop(const struct obj_cgroup *objcg, const struct kmem_cache *parent)
{
#ifdef KMEM_HAVE_RSEQ
	const struct km_child *child = km_private_find(objcg->private, parent);

	if (km_likely(child))
		return kmem_pcs_pop(&child->cache->fast.pcs.front.open, km_hot.percpu, km_rseq);
#else
	(void)objcg, (void)parent;
#endif
	return NULL;
}

km_noinline void *km_private_alloc(struct kmem_cache *cache, gfp_t gfp, int node, struct obj_cgroup *objcg)
{
	const gfp_t no_pop = __GFP_ZERO | __GFP_THISNODE | __GFP_FULLEST | ~__GFP_BITS_MASK;
	void *object = km_likely(!(gfp & no_pop) && node == NUMA_NO_NODE) ? child_pop(objcg, cache) : NULL;

	return km_likely(object) ? object : alloc_missed(cache, gfp, node, objcg);
}

bool km_private_alloc_bulk(struct kmem_cache *cache, gfp_t gfp, size_t n, void **objects, struct obj_cgroup *objcg)
{
	struct km_child *child = get(objcg->private, cache, gfp);
	gfp_t plain = gfp & ~__GFP_ACCOUNT;
	int saved_errno = errno;
	size_t left = n;

	if (km_likely(child)) {
		struct km_child_request request;

		begin(&request, child->cache);
		if (km_alloc_bulk(child->cache, (plain & ~__GFP_NOFAIL) | __GFP_NOWARN, n, objects))
			left = 0;
		end(&request, objcg, gfp);
	}
	/* The bulk request failed: allocate one by one, because near the limit a slab may be refused. */
	while (left && (objects[left - 1] = km_private_alloc(cache, gfp, NUMA_NO_NODE, objcg)))
		left--;
	/* The child cache may have been created after the first look-up. */
	if (km_unlikely(left && left < n))
		km_free_bulk(km_private_find(objcg->private, cache)->cache, n - left, objects + left);
	if (km_likely(!left))
		errno = saved_errno;
	return !left;
}

/* ------------------------------------------------------------------ objects out */

km_inline struct kmem_cache *cache_of(const void *object)
{
	return km_quick_cache(object) ?: km_cache_of(object);
}

bool km_private_free(struct kmem_cache *cache, void *object)
{
	struct kmem_cache *actual = cache_of(object);
	int index;

	if (actual == cache || !object)
		return false;
	if (km_likely(actual && actual->memcg.child_of == cache))
		kmem_cache_free(actual, object);
	else
		km_slab_of(cache, object, &index, "kmem_cache_free");
	return true;
}

size_t km_private_free_last(struct kmem_cache *cache, size_t *n, void **objects)
{
	struct kmem_cache *actual = cache_of(objects[*n - 1]);
	size_t run = 1;

	while (run < *n && actual && cache_of(objects[*n - 1 - run]) == actual)
		run++;
	if (actual == cache)
		return run;
	km_debug(run && run <= *n, "at most n objects belong to one child cache");
	*n -= run;
	if (km_likely(actual && actual->memcg.child_of == cache))
		km_free_bulk(actual, run, objects + *n);
	else
		while (run--)
			km_private_free(cache, objects[*n + run]);
	return 0;
}

struct obj_cgroup *km_private_owner(const struct kmem_cache *child)
{
	km_debug(child->memcg.child_of && child->memcg.kept_by, "a child cache has a group");
	return ((struct km_child *)child->memcg.kept_by)->private->objcg;
}

/* ------------------------------------------------------------------ large blocks */

/*
 * Links a block of whole pages into the private group's list `large` (`begins`), or unlinks the block, by its page
 * descriptor, for mem_cgroup_destroy_all. Called between the creation of a block and the return to the user, or between
 * the user's free and the release of the pages.
 */
void km_charge_large(uint64_t owner, struct km_page *page, bool begins)
{
	struct km_private *private = ((struct obj_cgroup *)(uintptr_t)owner)->private;

	if (km_likely(!private))
		return;
	km_busy_scope(was);
	km_lock_scope(&km_private_lock);
	if (begins)
		km_list_add_tail(&page->list, &private->large);
	else
		km_list_del(&page->list);
}
