/*
 * slub_checked.c: caches of the engine slub that validate each free (SLAB_CONSISTENCY_CHECKS, KMEM_OPTIONS=check:1).
 * Kernel: debug caches have no fast path either. Invariant: every change of a slab happens under its node's lock,
 * so that a freelist can be walked before an object is put on it; the CPUs' chains stay empty.
 */
#include "../port/die.h"
#include "slub.h"

/* Pop one object; lock held, something is free. */
static void *pop_one(struct kmem_cache *cache, struct slub_node *n, struct km_page *slab)
{
	char *base = km_page_address(slab);
	void *object = slub_head(slub_slab(slab)->word, base);

	km_debug(km_is_locked(&n->slabs.lock) && object, "a slab of a checked cache changes under its node's lock");
	km_store(&slub_slab(slab)->word, slub_with_list(slub_slab(slab)->word + 1, base, km_free_next(cache, object)));
	if (!slub_free_count(slub_slab(slab)->word))
		km_slabs_unlist(&n->slabs, slab);
	return object;
}

/* The node's first partial slab, if it has more than `keep`. False: its lock can't be had, and *object is NULL. */
static bool take_partial(struct kmem_cache *cache, struct slub_node *n, unsigned long keep,
			 const struct km_request *request, void **object)
{
	*object = NULL;
	if (!km_lock_may(&n->slabs.lock, request->may_wait))
		return false;
	if (n->slabs.counts.partial > keep) {
		*object = pop_one(cache, n, km_list_first(&n->slabs.partial, struct km_page, list));
		slub_count(cache, KMEM_ALLOC_FROM_PARTIAL);
	}
	km_unlock_may(&n->slabs.lock, request->may_wait);
	return true;
}

static void *take_new(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_page *slab = km_slub_new_slab(cache, request);

	if (!slab)
		return NULL;
	struct slub_node *n = slub_node(cache, slab->node);
	km_store(&slub_slab(slab)->word, slub_with_head((uint64_t)slab->objects << SLUB_OBJECTS_SHIFT,
					     km_page_address(slab),
					     km_slub_thread_list(cache, slab, 0)));
	if (!km_lock_may(&n->slabs.lock, request->may_wait)) {
		km_slub_free_slab(cache, slab);
		return NULL;
	}
	km_slabs_list(&n->slabs, slab, false);
	void *object = pop_one(cache, n, slab);
	km_unlock_may(&n->slabs.lock, request->may_wait);
	return object;
}

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
			take_partial(cache, n, km_load(&cache->min_partial), request, &object);
			if (object)
				break;
		}
	return object ?: take_new(cache, request);
}

unsigned km_slub_take_checked(struct kmem_cache *cache, const struct km_request *request,
			      void **objects, unsigned want)
{
	unsigned got = 0;

	while (got < want && (objects[got] = take_one(cache, request)))
		got++;
	return got;
}

/* Is it on the slab's freelist, or is that list damaged, so that nobody can say? Lock held. */
static bool is_free(const struct kmem_cache *cache, const struct km_page *slab, char *base,
		    const void *object)
{
	unsigned left = slub_free_count(slub_slab(slab)->word);
	const char *first = km_slab_first(cache, slab);
	const void *p = slub_head(slub_slab(slab)->word, base);

	for (; p && left; left--, p = km_free_next(cache, p))
		if (p == object || !km_chain_tag_fits(slub_tag(slab, base), p) ||
		    km_object_index(cache, slab, first, p) < 0)
			return true;
	return p || left || !slub_inuse(slub_slab(slab)->word);
}

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
	bool go = false;

	slub_count(cache, KMEM_FREE_SLOWPATH);
	km_lock(&n->slabs.lock);
	if (is_free(cache, slab, base, object)) {
		km_unlock_quick(&n->slabs.lock);
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", object, cache->name);
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
	if (go)
		km_slub_free_slab(cache, slab);
}
