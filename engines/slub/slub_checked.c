/*
 * slub_checked.c: caches of the engine slub that validate each free (SLAB_CONSISTENCY_CHECKS, KMEM_OPTIONS=check:1).
 * Kernel: debug caches have no fast path either. Invariant: every change of a slab happens under its node's lock, so
 * a freelist can be walked before an object is added; per-CPU freelists stay empty. Every link is validated before
 * use, because users may have overwritten the link.
 */
#include "os/die.h"
#include "slub.h"

/* ------------------------------------------------------------------ a freelist that users can write to */

/* A damage of a slab's freelist: recorded under the lock, reported without the lock. */
struct flaw {
	struct km_page *slab;
	void *object;			/* the object with the wrong link; NULL: unknown */
	char what[80];			/* text of the damage; empty: no damage */
	const char *fix;
};

static bool is_object(const struct kmem_cache *cache, const struct km_page *slab, const char *base, const void *p)
{
	return km_chain_tag_fits(slub_tag(slab, base), p) &&
	       km_object_index(cache, slab, km_slab_first(cache, slab), p) >= 0;
}

/* Cuts the freelist after `count` objects, at `last`. A slab without free objects leaves the node's list.
 * Requires: the node's lock, or the slab in hand. */
static void cut(struct kmem_cache *cache, struct km_page *slab, void *last, unsigned count)
{
	struct slub_node *n = slub_node(cache, slab->node);
	uint64_t word = slub_slab(slab)->word;

	km_debug(!last == !count && count <= slab->objects, "a list with a tail has a head");
	if (last)
		km_set_free_next(cache, last, NULL);
	else
		word &= SLUB_COUNTS;
	km_store(&slub_slab(slab)->word, (word & ~SLUB_INUSE) | (slab->objects - count));
	if (!count && slab->flags & KM_SLAB_PARTIAL)
		km_slabs_unlist(&n->slabs, slab);
}

struct walk {
	void *p, *last;
	unsigned count;
	bool met;			/* the searched object was on the list */
};

/* Walks the list while each object is valid and may be free, at most slab->objects steps. */
static struct walk walk(const struct kmem_cache *cache, const struct km_page *slab, const void *object)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);
	char *base = km_page_address(slab);
	struct walk at = { .p = slub_head(slub_slab(slab)->word, base) };

	for (; at.p && at.count < slab->objects; at.count++, at.last = at.p, at.p = km_free_next(cache, at.p)) {
		if (!is_object(cache, slab, base, at.p) ||
		    (hooks && hooks->may_be_free && !hooks->may_be_free(cache, at.p)))
			break;
		at.met |= at.p == object;
	}
	return at;
}

/* Checks that each object of the list may be free, that their number matches the slab's count, and that the list
 * ends. A damaged list is cut at the damage, and the objects behind stay in use, as in the kernel. Returns: true
 * if `object` is on the list. */
static bool mend(struct kmem_cache *cache, struct km_page *slab, const void *object, struct flaw *flaw)
{
	uint64_t word = slub_slab(slab)->word;
	struct walk at = walk(cache, slab, object);

	if (km_likely(!at.p && at.count == slub_free_count(word)))
		return at.met;
	*flaw = (struct flaw){ slab, at.last, "Freechain corrupt", "Freelist cleared" };
	if (!at.p)
		km_format(flaw->what, sizeof(flaw->what), "Wrong object count. Counter is %u but counted were %u",
			  slub_inuse(word), slab->objects - at.count);
	if (at.p && at.count == slab->objects) {
		__builtin_memcpy(flaw->what, "Freelist cycle detected", sizeof("Freelist cycle detected"));
		at = (struct walk){ .met = at.met };
	}
	if (at.count)
		flaw->fix = "Object count adjusted";
	cut(cache, slab, at.last, at.count);
	return at.met;
}

static void tell(struct kmem_cache *cache, const struct flaw *flaw)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);

	if (hooks && hooks->broken)
		hooks->broken(cache, flaw->slab, flaw->object, flaw->what, flaw->fix);
	else
		km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_free", flaw->object ?: km_page_address(flaw->slab),
			  cache->registry.name);
}

bool km_slub_mend_slab(struct kmem_cache *cache, struct km_page *slab)
{
	struct flaw flaw = { .what = "" };

	mend(cache, slab, NULL, &flaw);
	if (km_likely(!*flaw.what))
		return true;
	tell(cache, &flaw);
	return false;
}

/* Repairs and reports the first damage on a node's list. Returns: true on damage. */
static bool mend_one(struct kmem_cache *cache, struct slub_node *n)
{
	struct flaw flaw = { .what = "" };

	km_lock(&n->slabs.lock);
	km_list_for_some_safe(entry, &n->slabs.partial, n->slabs.counts.partial)
		if (!*flaw.what)
			mend(cache, km_container_of(entry, struct km_page, list), NULL, &flaw);
	km_unlock(&n->slabs.lock);
	if (*flaw.what)
		tell(cache, &flaw);
	return *flaw.what;
}

int km_slub_mend(struct kmem_cache *cache)
{
	struct slub_node *n;
	int damages = 0;

	if (!cache->layout.checked)
		return 0;
	km_for_each_node(n, cache)
		for (size_t slabs = km_load(&n->slabs.counts.partial); slabs && mend_one(cache, n); slabs--)
			damages++;
	return damages;
}

/* ------------------------------------------------------------------ objects out */

/* Pops one object. A wrong link marks all other objects as used. Requires: the node's lock, and a free object. */
static void *pop_one(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab, struct flaw *flaw)
{
	char *base = km_page_address(slab);
	void *object = slub_head(slub_slab(slab)->word, base), *next = km_free_next(cache, object);

	km_debug(km_is_locked(&n->slabs.lock) && object, "a slab of a checked cache changes under its node's lock");
	unsigned left = slub_free_count(slub_slab(slab)->word) - 1;
	if (km_unlikely(left ? !is_object(cache, slab, base, next) : next != NULL)) {
		*flaw = (struct flaw){ slab, object, "Freechain corrupt", "Marking all objects used" };
		cut(cache, slab, NULL, 0);
		return object;
	}
	km_store(&slub_slab(slab)->word, slub_with_list(slub_slab(slab)->word + 1, base, next));
	if (!left)
		km_slabs_unlist(&n->slabs, slab);
	return object;
}

/* Damaged slabs in a row after which an allocation fails. */
#define MOST_FLAWS 64u

/* Takes from the first listed slab. With hooks, first checks the whole freelist. Requires: the node's lock. */
static void *take_first(struct kmem_cache *cache, struct slub_node *n, unsigned long keep, struct flaw *flaw)
{
	if (n->slabs.counts.partial <= keep)
		return NULL;
	struct km_page *slab = km_list_first(&n->slabs.partial, struct km_page, list);
	if (km_load(&cache->ext.hooks))
		mend(cache, slab, NULL, flaw);
	return slub_free_count(slub_slab(slab)->word) ? pop_one(cache, n, slab, flaw) : NULL;
}

/* Takes from the node's first partial slab, if more than `keep` are listed. Returns: false if the lock is
 * unavailable; then *object is NULL. */
static bool take_partial(struct kmem_cache *cache, struct slub_node *n, unsigned long keep,
			 const struct km_request *request, void **object)
{
	struct flaw flaw = { .what = "x" };

	*object = NULL;
	for (unsigned i = 0; i < MOST_FLAWS && *flaw.what && !*object; i++) {
		*flaw.what = '\0';
		if (!km_lock_may(&n->slabs.lock, request->may_wait))
			return false;
		if (km_unlikely(request->gfp & __GFP_FULLEST))
			km_slabs_fullest(&n->slabs, slub_free_objects);
		*object = take_first(cache, n, keep, &flaw);
		km_unlock_may(&n->slabs.lock, request->may_wait);
		if (km_unlikely(*flaw.what))
			tell(cache, &flaw);
	}
	if (*object)
		slub_count(cache, KMEM_ALLOC_FROM_PARTIAL);
	return true;
}

static void *take_new(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_page *slab = km_slub_new_slab(cache, request);

	if (!slab)
		return NULL;
	struct slub_node *n = slub_node(cache, slab->node);
	struct km_slab_order order = km_slab_order(slab->objects);
	km_store(&slub_slab(slab)->word, slub_with_head((uint64_t)slab->objects << SLUB_OBJECTS_SHIFT,
					     km_page_address(slab),
					     km_slub_thread_list(cache, slab, &order, slab->objects)));
	if (!km_lock_may(&n->slabs.lock, request->may_wait)) {
		km_slub_free_slab(cache, slab);
		return NULL;
	}
	struct flaw flaw = { .what = "" };
	km_slabs_list(&n->slabs, slab, false);
	void *object = pop_one(cache, n, slab, &flaw);
	km_unlock_may(&n->slabs.lock, request->may_wait);
	if (km_unlikely(*flaw.what))
		tell(cache, &flaw);
	return object;
}

/* Takes an object from the wanted node, else from other nodes, else from a new slab. */
static void *take_one(struct kmem_cache *cache, const struct km_request *request)
{
	unsigned own = km_request_node(request);
	struct slub_node *n;
	void *object;

	slub_count(cache, KMEM_ALLOC_SLOWPATH);
	if (!take_partial(cache, slub_node(cache, own), 0, request, &object))
		return NULL;
	if (!object && km_may_look_elsewhere(cache, request))
		km_for_each_elsewhere(n, cache, own) {
			take_partial(cache, n, km_load(&cache->tune.min_partial), request, &object);
			if (object)
				break;
		}
	return object ?: take_new(cache, request);
}

unsigned km_slub_take_checked(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	unsigned got = 0;

	while (got < want && (objects[got] = take_one(cache, request)))
		got++;
	return got;
}

/* ------------------------------------------------------------------ objects back */

void km_slub_free_checked(struct kmem_cache *cache, void *object)
{
	int index;

	if (!object)
		return;
	struct km_page *slab = km_slab_of(cache, object, &index, "kmem_cache_free");
	if (!slab)
		return;
	struct slub_node *n = slub_node(cache, slab->node);
	char *base = slub_base(slab, object);
	struct flaw flaw = { .what = "" };
	bool go = false;

	slub_count(cache, KMEM_FREE_SLOWPATH);
	km_lock(&n->slabs.lock);
	if (mend(cache, slab, object, &flaw) || !slub_inuse(slub_slab(slab)->word)) {
		km_unlock_quick(&n->slabs.lock);
		/* Report the damage: a damaged list may have led to an object that was not free, and now counts as
		 * free. */
		if (*flaw.what)
			tell(cache, &flaw);
		else
			km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->registry.name);
		return;
	}
	void *head = slub_head(slub_slab(slab)->word, base);
	if (!head) {
		km_slabs_list(&n->slabs, slab, true);
		slub_count(cache, KMEM_FREE_ADD_PARTIAL);
	}
	km_set_free_next(cache, object, head);
	km_store(&slub_slab(slab)->word, slub_with_head(slub_slab(slab)->word - 1, base, object));
	if (!slub_inuse(slub_slab(slab)->word) && slub_may_go(cache, n)) {
		km_slabs_unlist(&n->slabs, slab);
		slub_count(cache, KMEM_FREE_REMOVE_PARTIAL);
		go = true;
	}
	km_unlock_quick(&n->slabs.lock);
	if (km_unlikely(*flaw.what))
		tell(cache, &flaw);
	if (go)
		km_slub_free_slab(cache, slab);
}
