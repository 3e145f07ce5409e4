/*
 * obj_cgroups.c: objcg of an object: store, read and clear the objcg words of pages, and the vectors of pages with
 * several objcgs. Invariant: while a page belongs to a slab, its word changes from 0 to an objcg, and from 0 or an
 * objcg to a vector, never back.
 */
#include "obj_cgroups.h"

#include "os/die.h"

#include "metadata.h"
#include "zone.h"

uint64_t *km_owner_of_page(const struct km_page *page)
{
	const struct km_range *range = km_range_of_page(page);

	return range ? &range->owner[page - range->page] : NULL;
}

/* Replace the word `seen` of a page by a vector with `seen` in all words. Returns: false if there is no memory. */
static bool make_vector(uint64_t *word, uint64_t seen, uint32_t shift, bool may_wait)
{
	size_t bytes = km_owner_vector_bytes(shift);
	uint64_t *vector = km_metadata_alloc(bytes, may_wait);

	km_debug(!(seen & KM_OWNER_VECTOR), "the owner vector of a slab is never replaced");

	if (!vector)
		return false;
	for (size_t i = 0; i < bytes / sizeof(*vector); i++)
		vector[i] = seen;
	/* Release pairs with the acquire of the word's readers: a reader sees a filled vector. */
	if (!km_cas_release(word, &seen, (uintptr_t)vector | KM_OWNER_VECTOR))
		km_metadata_free(vector, bytes);
	return true;
}

bool km_owner_set(uint64_t *word, uint64_t owner, size_t offset, uint32_t shift, bool sometimes, bool may_wait)
{
	km_debug(!(owner & KM_OWNER_VECTOR) && offset < KM_PAGE_SIZE,
		 "the owner word is no vector, and the object starts in the page");
	for (;;) {
		uint64_t seen = km_load_acquire(word);

		if (seen & KM_OWNER_VECTOR) {
			km_store(km_owner_in_vector(seen, offset, shift), owner);
			return true;
		}
		if (seen == owner && !(sometimes && owner))
			return true;
		if (!seen && !sometimes) {
			if (km_cas_release(word, &seen, owner))
				return true;
		} else if (!make_vector(word, seen, shift, may_wait)) {
			return false;
		}
	}
}

bool km_owner_any(const uint64_t *word, unsigned order)
{
	uint64_t some = 0;

	/* Acquire pairs with the release in km_owner_set. */
	for (size_t i = 0; i < (size_t)1 << order; i++)
		some |= km_load_acquire(&word[i]);
	return some != 0;
}

/* Follows a vector safely: km_owner_clear() sets the word to 0 before it frees the vector, and this function holds the
 * metadata, so no vector is freed meanwhile. */
void km_owner_read(const uint64_t *word, size_t offset, uint32_t size, uint32_t shift, uint64_t *owners,
		   unsigned count)
{
	km_metadata_hold();
	for (unsigned i = 0; i < count; i++, offset += size) {
		/* Acquire pairs with make_vector: the vector is filled in. */
		uint64_t owner = km_load_acquire(&word[offset >> KM_PAGE_SHIFT]);

		if (owner & KM_OWNER_VECTOR)
			owner = km_load(km_owner_in_vector(owner, offset & (KM_PAGE_SIZE - 1), shift));
		owners[i] = owner & ~KM_OWNER_NOBODY;
	}
	km_metadata_let_go();
}

void km_owner_clear(uint64_t *word, unsigned order, uint32_t shift)
{
	km_debug(shift <= KM_PAGE_SHIFT, "the offsets of objects in a page are multiples of the owner shift");
	for (size_t i = 0; i < (size_t)1 << order; i++) {
		uint64_t seen = km_load(&word[i]);

		if (!seen)
			continue;
		km_store(&word[i], (uint64_t)0);
		if (seen & KM_OWNER_VECTOR)
			km_metadata_free((void *)(uintptr_t)(seen & ~KM_OWNER_VECTOR), km_owner_vector_bytes(shift));
	}
}
