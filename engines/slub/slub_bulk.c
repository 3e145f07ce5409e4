/*
 * slub_bulk.c: bulk free of the engine slub, slab by slab. A mixed array is freed in one of two ways:
 *
 *	lookahead	Kernel: the detached freelist. Links the last object with others of its slab, looking back
 *			past a few objects of other slabs; then continues with the next last object.
 *	group		Not in the kernel. Sorts a part of the array by slab, in any order.
 *
 * lookahead costs least where neighbours are of one slab. group costs least where neighbours are not: each slab's
 * word changes once, not once per object (docs/theory.md). Invariant: an object is linked into one batch or still in
 * the array; a batch is of one slab, and each of its objects was validated as the start of an object.
 */
#include "base/bits.h"
#include "os/die.h"
#include "slub.h"

/* GROUP: objects grouped at once, 2.5 KiB of stack. HASHES: hashes of slabs, more than GROUP to avoid collisions. */
#define GROUP 64u
#define HASHES 256u
/* If fewer objects than this were linked by a look back, the array is freed by group(). */
#define POOR 4u

/* Linked objects of one slab: the kernel's detached freelist. The tail's link is not set. */
struct batch {
	struct km_page *slab;
	char *base;
	void *head, *tail;
	unsigned count;
};

/* Links the last object with others of its slab, looking back past at most `lookahead` objects of other slabs.
 * Each linked object is replaced in the array by the object at the end. Returns: number of objects left. */
km_inline unsigned gather(struct kmem_cache *cache, void **objects, unsigned left, struct batch *batch)
{
	void *object = objects[--left];
	unsigned strangers = 0;

	batch->tail = object;
	batch->slab = object ? slub_slab_of(cache, object) : NULL;
	if (km_unlikely(!batch->slab))
		return left;
	struct km_page *slab = batch->slab;
	char *base = slub_base(slab, object);
	bool usual = slab->order == cache->layout.order;
	/* Copies, because for the compiler a store into an object may change the originals. */
	const uint64_t factor = slub_node(cache, 0)->factor, bound = slub_node(cache, 0)->bound;
	const uint32_t freeptr = cache->layout.freeptr;
	const unsigned lookahead = km_layout_options.lookahead;
	uint64_t tag = slub_tag(slab, base);
	void *head = object;
	unsigned taken = 1;
	for (unsigned i = left; i-- > 0;) {
		object = objects[i];
		if (km_likely(km_chain_tag_fits(tag, object) && object != head &&
			      (usual ? slub_aligned(factor, bound, (uint64_t)((char *)object - base)) :
				       km_object_index(cache, slab, base, object) >= 0))) {
			km_set_free_next_at(object, freeptr, head);
			head = object;
			taken++;
			objects[i] = objects[--left];
		} else if (++strangers >= lookahead) {
			break;
		}
	}
	km_debug(taken <= slab->objects, "a batch has no more objects than its slab");
	*batch = (struct batch){ slab, base, head, batch->tail, taken };
	return left;
}

km_inline void give_batch(struct kmem_cache *cache, const struct batch *batch)
{
	km_debug(km_chain_tag_fits(slub_tag(batch->slab, batch->base), batch->head) &&
		 km_chain_tag_fits(slub_tag(batch->slab, batch->base), batch->tail), "a batch is of one slab");
	switch (km_chain_push_list(&cache->fast.chain, batch->head, batch->tail)) {
	case KM_CHAIN_PUSHED:
		if (km_unlikely(km_layout_options.count_events))
			slub_count_n(cache, KMEM_FREE_FASTPATH, batch->count);
		break;
	case KM_CHAIN_TWICE:
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", batch->head, cache->registry.name);
		break;
	case KM_CHAIN_MISS:
		km_slub_free_to_slab(cache, batch->slab, batch->base, batch->head, batch->tail, batch->count);
	}
}

/* Links up to GROUP objects by slab. A slab is found by the lowest bits of its number. When two slabs share these
 * bits, the first slab's batch is closed, and may be opened again. Objects of a slab below cache->layout.order are
 * freed singly, because masking their address does not give the slab's. */
static void group(struct kmem_cache *cache, void *const *objects, unsigned count)
{
	struct batch batches[GROUP + 1];	/* batches[0] has an impossible address, no slab */
	uint8_t latest[HASHES];
	const uint64_t factor = slub_node(cache, 0)->factor, bound = slub_node(cache, 0)->bound;
	const uintptr_t mask = slub_node(cache, 0)->slab_mask;
	const uint32_t freeptr = cache->layout.freeptr;
	const unsigned shift = KM_PAGE_SHIFT + cache->layout.order;
	unsigned used = 1;

	batches[0] = (struct batch){ .base = (char *)1 };
	__builtin_memset(latest, 0, sizeof(latest));
	for (unsigned i = 0; i < count; i++) {
		char *object = objects[i], *base = (char *)((uintptr_t)object & ~mask);
		uint8_t *hash = &latest[(uintptr_t)object >> shift & (HASHES - 1)];
		struct batch *batch = &batches[*hash];

		if (batch->base == base && object != batch->head &&
		    km_likely(slub_aligned(factor, bound, (uintptr_t)object & mask))) {
			km_set_free_next_at(object, freeptr, batch->head);
			batch->head = object;
			batch->count++;
			continue;
		}
		struct km_page *slab = object ? slub_slab_of(cache, object) : NULL;
		if (km_unlikely(!slab))
			continue;
		if (km_likely(slab->order == cache->layout.order))
			*hash = (uint8_t)used;
		km_debug(used <= GROUP, "the number of batches is at most the number of objects");
		batches[used++] = (struct batch){ slab, slub_base(slab, object), object, object, 1 };
	}
	for (unsigned i = 1; i < used; i++)
		give_batch(cache, &batches[i]);
}

unsigned km_slub_give_last(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct batch batch;

	if (km_unlikely(cache->layout.checked)) {
		km_slub_free_checked(cache, objects[count - 1]);
		return count - 1;
	}
	count = gather(cache, objects, count, &batch);
	if (km_likely(batch.slab))
		give_batch(cache, &batch);
	return count;
}

void km_slub_give(struct kmem_cache *cache, void **objects, unsigned count)
{
	const bool may_group = km_layout_options.bulk_free != KM_BULK_FREE_LOOKAHEAD && !cache->layout.checked;
	const unsigned poor = km_layout_options.bulk_free == KM_BULK_FREE_GROUP ? UINT32_MAX : POOR;

	while (count) {
		unsigned left = poor == UINT32_MAX && may_group ? count : km_slub_give_last(cache, objects, count);

		if (may_group && left && count - left < poor) {
			unsigned now = km_min(left, GROUP);

			left -= now;
			group(cache, objects + left, now);
		}
		count = left;
	}
}
