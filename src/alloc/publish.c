/*
 * publish.c: publishes a cache's per-CPU sheaves to the fast path: the cache's own words, the word of the cache's id,
 * and the cache's entries in a table of sizes. Invariant: after each change of the open sheaves km_alloc_show
 * computes all these words again, with km_drain_lock held. Other files only clear a word.
 */
#include "page/guard_range.h"
#include "alloc_ops.h"

static bool public_pcs(const struct kmem_cache *cache)
{
	return km_alloc_ops(cache)->pcs && !(km_layout_options.count_events && cache->layout.engine->hit);
}

/* Returns: true if one objcg is charged for all allocated objects, so that a free need not read the object's owner
 * word. */
static bool has_one_owner(const struct kmem_cache *cache)
{
	return cache->memcg.word_is_charged && cache->memcg.charged.inner.pcs &&
	       km_objcg_is_known(km_load(&cache->memcg.objcg));
}

/* Publishes the offset and the mask of the sheaves to which frees push: in the cache, and in the tables by id. */
static void show_back(struct kmem_cache *cache)
{
	struct kmem_cache_front *front = &cache->fast.pcs.front;
	struct kmem_pcs back = front->open.pcs ? front->open :
				 has_one_owner(cache) ? cache->memcg.charged.inner : cache->memcg.charged.front.back;

	km_store(&front->back.mask, back.mask);
	km_store_release(&front->back.pcs, back.pcs);
	if (cache->fast.id >= KM_MAP_FIRST)
		km_store_release(&km_id_masks(cache->fast.id)->sheaf,
				 back.pcs && back.pcs == cache->state.word && km_hot.caches[cache->fast.id] ?
				 back.mask : 0u);
}

/* The table of sizes that is hidden from the fast path (km_alloc_shut_sizes). Caches write their ids to `kept` instead.
 * Guarded by km_drain_lock. */
static struct { const uint16_t *ids; uint16_t *kept; size_t count; } shut;

static uint16_t *entries_of(const struct kmem_cache *cache)
{
	size_t at = (size_t)(cache->registry.size_ids - shut.ids);

	return at < shut.count ? shut.kept + at : cache->registry.size_ids;
}

/* Writes the cache's entries in its table of sizes. A cache writes only empty entries and its own, so the entries of
 * an open part (KM_CACHE_SIZE_PART) stay. A closed part leaves its entries empty, and the sizes are served as before
 * the part. Exception: while an object of a debug shadow cache is allocated, the entries of a closed part hold
 * KM_MAP_DESC. No cache has this id, so the entries miss as id 0 does. */
void km_alloc_show_entries(struct kmem_cache *cache, bool open)
{
	const bool part = km_cache_is(cache, KM_CACHE_SIZE_PART);
	const uint16_t closed = part && km_alloc_has_out(cache) ? KM_MAP_DESC : KM_MAP_NONE;
	uint16_t *ids = entries_of(cache);

	km_debug(!open || cache->fast.id >= KM_MAP_FIRST, "a table of sizes has ids of caches");
	for (uint32_t i = 0; i < cache->registry.size_count; i++) {
		uint16_t shown = km_load(&ids[i]);

		if (!shown || shown == cache->fast.id || part)
			km_store_release(&ids[i], open ? cache->fast.id : closed);
	}
}

/* Computes all words for the fast path from the open sheaves. A drain writes all of them before the fence. */
void km_alloc_show(struct kmem_cache *cache)
{
	const struct kmem_cache_front *front = &cache->fast.pcs.front;

	show_back(cache);
	if (cache->fast.id < KM_MAP_FIRST)
		return;
	if (km_cache_is(cache, KM_CACHE_SIZE_CHARGED))
		km_alloc_show_entries(cache, front->back.pcs && front->back.pcs == cache->state.word &&
					     cache->memcg.word_is_charged);
	else
		km_alloc_show_entries(cache, front->open.pcs != 0);
}

/* Gives a cache its entries in a table of sizes, once: several threads may call. kind: enum km_cache_trait, or 0. */
static void show_sizes_as(struct kmem_cache *cache, uint16_t *ids, size_t count, uint8_t kind)
{
	km_lock_scope(&km_drain_lock);
	km_debug(!cache->registry.size_ids || cache->registry.size_ids == ids, "a cache has one run of entries");
	km_store(&cache->layout.traits, (uint8_t)(cache->layout.traits | kind));
	cache->registry.size_ids = ids;
	cache->registry.size_count = (uint32_t)count;
	km_alloc_show(cache);
}

void km_alloc_show_sizes(struct kmem_cache *cache, uint16_t *ids, size_t count)
{
	show_sizes_as(cache, ids, count, 0);
}

void km_alloc_show_part(struct kmem_cache *cache, uint16_t *ids, size_t count)
{
	show_sizes_as(cache, ids, count, KM_CACHE_SIZE_PART);
}

void km_alloc_show_charged(struct kmem_cache *cache, uint16_t *ids, size_t count)
{
	show_sizes_as(cache, ids, count, KM_CACHE_SIZE_CHARGED);
}

void km_alloc_shut_sizes(uint16_t *ids, uint16_t *kept, size_t count, bool now)
{
	km_lock_scope(&km_drain_lock);
	km_debug(!shut.count || shut.ids == ids, "one table of sizes is closed at a time");
	for (size_t i = 0; now != (shut.count != 0) && i < count; i++) {
		uint16_t *from = now ? &ids[i] : &kept[i], *to = now ? &kept[i] : &ids[i];

		/* Release, as in km_alloc_show_entries: the cache is complete before its id is visible. */
		km_store_release(to, km_load(from));
		km_store(from, (uint16_t)KM_MAP_NONE);
	}
	shut.ids = ids;
	shut.kept = kept;
	shut.count = now ? count : 0;
}

void km_alloc_close_pcs(struct kmem_cache *cache)
{
	km_debug(km_is_locked(&km_drain_lock), "per-CPU sheaves closed here are opened again here");
	km_pcs_close(&cache->fast.pcs);
	km_alloc_show(cache);
}

void km_alloc_open_pcs(struct kmem_cache *cache)
{
	km_pcs_open(&cache->fast.pcs, public_pcs(cache));
	km_alloc_show(cache);
}

/* Makes no fence; sampled_ops.c and debug_shadow.c have the reasons why none is needed. */
bool km_alloc_change_layer(struct kmem_cache *cache, enum km_layer layer, const struct km_alloc_ops *from,
			   const struct km_alloc_ops *to, bool may_wait)
{
	km_busy_scope(was);

	if (!km_lock_may(&km_drain_lock, may_wait))
		return false;
	const bool changes = km_layer(cache, layer) == (from ?: km_layer_below(cache, layer));
	if (changes)
		km_layer_set_locked(cache, layer, to);
	if (changes && cache->fast.pcs.slot) {
		km_store(&cache->fast.pcs.front.open.pcs, 0u);
		km_alloc_open_pcs(cache);
	}
	km_unlock_may(&km_drain_lock, may_wait);
	return changes;
}

/* ------------------------------------------------------------------ what can be seen at rest */

/* Prints a damage, if there is one. Returns: 1, or 0 without damage. */
static int damaged(const struct kmem_cache *cache, bool damage, const char *what)
{
	if (damage)
		km_warn("check: %s: %s", cache->registry.name, what);
	return damage;
}

/* Returns: true if the sheaf has only objects of the cache from its top to its NULL, and no more than fit. */
static bool sheaf_is_right(const struct kmem_cache *cache, void *const *top)
{
	size_t count = km_sheaf_objects(&cache->fast.pcs, top);

	if (count > km_mask_capacity(cache->fast.pcs.sheaf_mask) || top[count])
		return false;
	for (size_t i = 0; i < count; i++) {
		struct km_page *page = km_page_of(top[i]);
		struct km_guarded_object seen;

		/* A guarded object may be here, freed by a fast path (sampled_ops.c). */
		if (km_is_guarded(top[i]) && km_guarded_at(top[i], &seen) && seen.cache == cache)
			continue;
		page = page ? km_page_head(page) : NULL;
		if (!page || page->cache != cache)
			return false;
	}
	return true;
}

static bool sheaves_are_right(const struct kmem_cache *cache)
{
	bool right = true;

	km_for_each_cpu(cpu) {
		uintptr_t top = km_pcs_top_cpu(&cache->fast.pcs, cpu), spare;
		void *const *sheaf = (void *const *)(km_area(cpu) + top);

		if (!top)
			continue;
		spare = *km_sheaf_header(&cache->fast.pcs, sheaf);
		right &= spare != top && sheaf_is_right(cache, sheaf) &&
			 (!spare || sheaf_is_right(cache, (void *const *)(km_area(cpu) + spare)));
	}
	return right;
}

/* Checks an idle cache. The lock keeps other threads from closing sheaves meanwhile. Sheaves with per-CPU words must be
 * open, and open to the fast path only if no layer must see each request. */
int km_alloc_check(struct kmem_cache *cache)
{
	const struct km_pcs *pcs = &cache->fast.pcs;
	uint32_t open = km_load(&pcs->front.open.pcs);
	int damages = 0;

	km_lock_scope(&km_drain_lock);
	damages += damaged(cache, pcs->inner.pcs != pcs->slot, "its per-CPU sheaves were left closed");
	damages += damaged(cache, open && (open != pcs->slot || !public_pcs(cache)),
			   "the fast path finds per-CPU sheaves, but a layer must see each request");
	damages += damaged(cache, pcs->slot && (pcs->inner.mask > pcs->sheaf_mask ||
						  pcs->front.open.mask != pcs->inner.mask),
			   "the mask of its per-CPU sheaves does not fit the size of a sheaf");
	damages += damaged(cache, pcs->slot && !sheaves_are_right(cache),
			   "a per-CPU sheaf holds a pointer that is not an object of the cache");
	damages += damaged(cache, cache->memcg.charged.inner.pcs && cache->memcg.mixed.inner.pcs,
			   "two sets of charged per-CPU sheaves are open");
	return damages;
}
