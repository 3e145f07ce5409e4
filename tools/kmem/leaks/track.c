/*
 * track.c: finds an object's allocation stack, allocation time and memory group. Sources of the stack: the track next
 * to a debugged object, the slot of a guarded object, or the profile sample of an object while a profile runs.
 * Invariant: all data read from the process is checked before use.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "leaks/heap.h"

static bool guarded_track(const struct heap *heap, const struct heap_piece *piece, struct heap_track *track)
{
	const struct info_root *root = piece->cache == HEAP_NO_CACHE ? heap->roots :
					heap->caches[piece->cache].root;
	struct rec_slot slot;

	if (!layout_has(&root->layout, "slot.track[0].when slot.track[0].frame") ||
	    !target_struct(heap->target, &root->layout, INFO_SLOT, &slot, (const void *)piece->track))
		return false;
	memcpy(track->frame, slot.track[0].frame, sizeof(track->frame));
	track->when = slot.track[0].when;
	return true;
}

/* Reads a debug mark and the stack with the mark's stack number. Number 0 or out of range: the stack is unknown. */
static bool read_mark(const struct heap *heap, const struct info_root *root, uintptr_t at, struct rec_track *track)
{
	const struct kmem_record_stack *stacks;
	struct kmem_record_stack first;
	struct kmem_record_mark mark;

	if (!target_read(heap->target, &mark, (void *)at, sizeof(mark)) ||
	    !layout_has(&root->layout, "root.stacks") || !root->record.stacks ||
	    !target_read(heap->target, &stacks, root->record.stacks, sizeof(stacks)) ||
	    !target_read(heap->target, &first, stacks, sizeof(first)))
		return false;
	const uint32_t number = (uint32_t)mark.who;
	*track = (struct rec_track){
		.when = mark.when & (((uint64_t)1 << KMEM_RECORD_CPU_SHIFT) - 1), .thread = (uint32_t)(mark.who >> 32),
		.cpu = (uint32_t)(mark.when >> KMEM_RECORD_CPU_SHIFT),
	};
	return track->when && (!number || number >= first.room ||
			       target_read(heap->target, track->frame, stacks[number].frame, sizeof(track->frame)));
}

/* ------------------------------------------------------------------ samples of a profile */

/* Live samples of the running profile: copies of the process's tables. */
struct heap_samples {
	struct kmem_profile_record record;
	struct kmem_profile_slot *slot;	/* sorted by address; NULL: no samples */
};

static int by_address(const void *a, const void *b)
{
	const struct kmem_profile_slot *x = a, *y = b;

	return (x->p > y->p) - (x->p < y->p);
}

/* Copies the samples, sorted by address. Returns: false if no profile runs or the record is invalid. */
static bool read_samples(const struct heap *heap, struct heap_samples *samples)
{
	const struct info_root *root = &heap->roots[0];
	struct kmem_profile_record *record = &samples->record;

	if (!layout_has(&root->layout, "root.profile") || !root->record.profile ||
	    !target_read(heap->target, record, root->record.profile, sizeof(*record)) ||
	    record->version != KMEM_PROFILE_VERSION || record->state != KMEM_PROFILE_ON || !record->slot ||
	    record->slot_bytes != sizeof(*samples->slot) || record->slots > KMEM_PROFILE_SLOTS * 16 ||
	    record->site_bytes < sizeof(struct kmem_profile_site))
		return false;
	samples->slot = target_keep(heap->target, record->slots, sizeof(*samples->slot));
	if (!samples->slot ||
	    !target_read(heap->target, samples->slot, record->slot, record->slots * sizeof(*samples->slot)))
		return false;
	qsort(samples->slot, record->slots, sizeof(*samples->slot), by_address);
	return true;
}

void heap_samples_clear(struct heap *heap)
{
	if (heap->samples)
		free(heap->samples->slot);
	free(heap->samples);
}

static bool sampled_track(struct heap *heap, uintptr_t object, struct heap_track *track)
{
	struct kmem_profile_site site;

	if (!heap->samples) {
		heap->samples = kmem_need(calloc(1, sizeof(*heap->samples)));
		if (!read_samples(heap, heap->samples))
			heap->samples->record.slots = 0;
	}
	const struct kmem_profile_record *record = &heap->samples->record;
	const struct kmem_profile_slot key = { .p = object };
	const struct kmem_profile_slot *slot = !record->slots ? NULL :
		bsearch(&key, heap->samples->slot, record->slots, sizeof(key), by_address);
	uint64_t number = slot ? slot->what >> 48 : record->sites;

	if (number >= record->sites || !target_read(heap->target, &site, (const char *)record->site +
						    number * record->site_bytes, sizeof(site)))
		return false;
	memcpy(track->frame, site.frame, sizeof(track->frame));
	track->when = 0;
	return track->frame[0];
}

/* ------------------------------------------------------------------ tracks */

bool heap_debug_track(const struct heap *heap, const struct heap_piece *piece, uintptr_t object, unsigned which,
		      struct rec_track *track)
{
	if (piece->kind != HEAP_OF_SLAB || !heap->caches[piece->cache].tracked)
		return false;
	const struct rec_cache *cache = &heap->caches[piece->cache].copy;
	const size_t mark = sizeof(struct kmem_record_mark);
	uintptr_t at = object + cache->freeptr + sizeof(void *) + KMEM_RECORD_DEBUG_WORD + which * mark;

	return at + mark <= object + cache->size &&
	       read_mark(heap, heap->caches[piece->cache].root, at, track);
}

bool heap_track(struct heap *heap, const struct heap_piece *piece, uintptr_t object, struct heap_track *track)
{
	struct rec_track there;

	if (piece->track)
		return guarded_track(heap, piece, track);
	if (piece->kind != HEAP_OF_SLAB || !heap->caches[piece->cache].tracked)
		return sampled_track(heap, object, track);
	if (!heap_debug_track(heap, piece, object, 0, &there))
		return false;
	memcpy(track->frame, there.frame, sizeof(track->frame));
	track->when = there.when;
	return true;
}

/* ------------------------------------------------------------------ the group charged */

/* Returns: the shift from an object's offset in the page to the object's word in the vector. */
static unsigned owner_shift(size_t size)
{
	unsigned shift = 0;

	while (shift < KMEM_PAGE_SHIFT && size >> (shift + 1))
		shift++;
	return shift;
}

/* Returns: the objcg of an object, read from the word of the page or large block; 0: uncharged. */
static uint64_t owner_of(const struct heap *heap, const struct heap_piece *piece, uintptr_t object)
{
	if (piece->kind == HEAP_OF_BIG)
		return piece->owner & ~KMEM_RECORD_UNCHARGED;
	for (size_t i = 0; i < heap->range_count; i++) {
		const struct heap_range *range = &heap->ranges[i];
		size_t index = (object - range->start) >> KMEM_PAGE_SHIFT;
		uint64_t word;

		if (object < range->start || object >= range->end || !range->copy.owner)
			continue;
		if (!target_read(heap->target, &word, range->copy.owner + index, sizeof(word)))
			return 0;
		if (word & KMEM_RECORD_VECTOR) {
			unsigned shift = piece->kind == HEAP_OF_SLAB ? owner_shift(piece->each) : KMEM_PAGE_SHIFT;
			uint64_t *vector = (uint64_t *)(uintptr_t)(word - KMEM_RECORD_VECTOR);

			if (!target_read(heap->target, &word, vector + ((object & (KMEM_PAGE_BYTES - 1)) >> shift),
					 sizeof(word)))
				return 0;
		}
		return word & ~KMEM_RECORD_UNCHARGED;
	}
	return 0;
}

bool heap_group(const struct heap *heap, const struct heap_piece *piece, uintptr_t object, char *name, size_t bytes)
{
	struct info_root *root = &heap->roots[0];
	uint64_t owner = owner_of(heap, piece, object);
	struct rec_objcg objcg;
	struct rec_group group;

	for (size_t i = 0; piece->cache != HEAP_NO_CACHE && i < heap->root_count; i++)
		if (&heap->roots[i] == heap->caches[piece->cache].root)
			root = &heap->roots[i];
	if (!owner || !layout_has(&root->layout, "root.memcg") || !root->record.memcg ||
	    !groups_load(heap->target, root) || !layout_has(&root->layout, "objcg.home group.name") ||
	    !target_struct(heap->target, &root->layout, INFO_OBJCG, &objcg, (const void *)(uintptr_t)owner) ||
	    !objcg.home || !target_struct(heap->target, &root->layout, INFO_GROUP, &group, objcg.home))
		return false;
	group.name[sizeof(group.name) - 1] = '\0';
	info_printable(name, group.name, bytes);
	return true;
}
