/*
 * sheaf_holes.c: the engine sheaf's slabs have sixteen objects or more, up to 32 pages of them, and a slab goes when
 * all of its objects are free. Of one that stays, pages in which nobody has anything give their memory back: those that
 * were so at two looks of reclaim's, or all where somebody asks for it.
 *
 * Invariants, under the node's lock: a page that is marked has free objects only; who takes one of them takes the mark
 * off. While the system is called no lock is held: the page's objects are out then, in our hand, so that neither they
 * nor their slab can go to anybody. The content of a free object is lost: a cache for which that counts has no marks.
 */
#include "../port/bits.h"
#include "../port/die.h"
#include "../port/os.h"
#include "sheaf.h"

enum mark {
	HOLE_NONE,	/* something is out, or was since the last look */
	HOLE_SEEN,	/* all free at the last look */
	HOLE_GONE,	/* its memory is the system's */
};

/* One look of reclaim's, of one cache's slabs of one node: so many slabs and calls of the system, and a part of those
 * that there are. A call is some microseconds. */
#define LOOKS		256u
#define CALLS		64u
#define PART		32u
/* ... for which a lock is held at most; and holes of one slab, the others are for the next look. */
#define LOOKS_AT_ONCE	64u
#define MAX_HOLES	16u

/* Pages of a slab, side by side. */
struct hole {
	unsigned first, count;
};

/* Neither an object's user nor anybody who watches minds that it reads as zeros; and its page is the system's. */
static bool may_be_hollow(const struct kmem_cache *cache)
{
	return cache->slab_pages > 1 && !cache->tail_bits && !cache->ctor && !cache->hooks && !cache->first &&
	       !cache->keeper && !(cache->flags & SLAB_TYPESAFE_BY_RCU) && !km_is_watched(cache) &&
	       !km_load(&cache->reserved_pages) && km_os_page_bytes() == KM_PAGE_SIZE;
}

/* Of the objects that lie in the hole, in part or whole, those of a word of the slab's bits; 0: there are no more. */
static uint64_t mask_in(const struct kmem_cache *cache, const struct km_page *slab, struct hole hole, unsigned word)
{
	size_t first = hole.first * KM_PAGE_SIZE / cache->size;
	size_t end = ((hole.first + hole.count) * KM_PAGE_SIZE + cache->size - 1) / cache->size;
	size_t from = km_max(first, (size_t)word * 64);
	size_t to = km_min(km_min(end, (size_t)slab->objects), from / 64 * 64 + 64);

	if (from >= to || from / 64 != word)
		return 0;
	return (~0ull >> (64 - (to - from))) << from % 64;
}

static unsigned first_word(const struct kmem_cache *cache, struct hole hole)
{
	return (unsigned)(hole.first * KM_PAGE_SIZE / cache->size / 64);
}

static bool is_free(const struct kmem_cache *cache, struct km_page *slab, unsigned page)
{
	const struct hole hole = { page, 1 };
	unsigned word = first_word(cache, hole);
	uint64_t mask = mask_in(cache, slab, hole, word);

	/* Behind the last object. */
	if (!mask)
		return false;
	for (; mask; mask = mask_in(cache, slab, hole, ++word))
		if (~km_load(sheaf_bits(cache, slab, NULL, word)) & mask)
			return false;
	return true;
}

/* Mark what is free; up to MAX_HOLES that may go are found. Lock held. */
static unsigned look_at(const struct kmem_cache *cache, struct km_page *slab, bool all, struct hole *holes)
{
	unsigned count = 0, marks = 0;

	/* There is less than a page of it. */
	if ((size_t)km_slab_free_objects(slab) * cache->size < KM_PAGE_SIZE)
		return 0;
	for (unsigned page = 0; page < 1u << slab->order; page++) {
		uint8_t *mark = &sheaf_page(&slab[page])->hole;

		if (!is_free(cache, slab, page))
			continue;
		marks++;
		if (*mark == HOLE_GONE)
			continue;
		if (!all && *mark == HOLE_NONE) {
			km_store(mark, (uint8_t)HOLE_SEEN);
		} else if (count && holes[count - 1].first + holes[count - 1].count == page) {
			holes[count - 1].count++;
		} else if (count < MAX_HOLES) {
			holes[count++] = (struct hole){ page, 1 };
		}
	}
	slab->flags = (uint8_t)((slab->flags & ~KM_SLAB_HOLES) | (marks ? KM_SLAB_HOLES : 0));
	return count;
}

/* The objects of these holes are out, or back in the slab. How many that were not so. */
static unsigned move(const struct kmem_cache *cache, struct km_page *slab, const struct hole *holes, unsigned count,
		     bool out)
{
	unsigned moved = 0;

	for (unsigned i = 0; i < count; i++) {
		unsigned word = first_word(cache, holes[i]);

		for (uint64_t mask; (mask = mask_in(cache, slab, holes[i], word)); word++) {
			uint64_t *bits = sheaf_bits(cache, slab, NULL, word);

			moved += (unsigned)__builtin_popcountll((out ? *bits : ~*bits) & mask);
			km_store(bits, out ? *bits & ~mask : *bits | mask);
		}
	}
	return moved;
}

static void take_out(const struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab,
		     const struct hole *holes, unsigned count)
{
	unsigned moved = move(cache, slab, holes, count, true);

	slab->inuse = (uint16_t)(slab->inuse + moved);
	km_bump(&n->slabs.counts.taken, moved);
	km_debug(moved && slab->inuse <= slab->objects, "no more objects are taken than a slab has");
	if (slab->inuse == slab->objects)
		km_sheaf_unlist(n, slab);
}

/* It comes to the end of the list: others have memory for whoever takes next. */
static void put_back(const struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab,
		     const struct hole *holes, unsigned count)
{
	unsigned moved = move(cache, slab, holes, count, false);

	km_debug(moved && moved <= slab->inuse, "what comes back was taken");
	slab->inuse = (uint16_t)(slab->inuse - moved);
	km_bump(&n->slabs.counts.taken, -(long)moved);
	if (!(slab->flags & KM_SLAB_PARTIAL))
		km_slabs_list(&n->slabs, slab, true);
}

/* Lock held, but not meanwhile. How many pages it was; 0: the system refuses. */
static size_t empty(const struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab,
		    const struct hole *holes, unsigned count)
{
	size_t pages = 0;
	unsigned gone = 0;

	take_out(cache, n, slab, holes, count);
	km_unlock(&n->slabs.lock);
	while (gone < count && km_pages_hollow(&slab[holes[gone].first], holes[gone].count))
		pages += holes[gone++].count;
	km_lock(&n->slabs.lock);
	put_back(cache, n, slab, holes, count);
	for (unsigned i = 0; i < gone; i++)
		for (unsigned page = 0; page < holes[i].count; page++)
			km_store(&sheaf_page(&slab[holes[i].first + page])->hole, (uint8_t)HOLE_GONE);
	return gone < count ? 0 : pages;
}

/* The slab to look at; the one in front of it is the next. */
static struct km_page *next_slab(struct sheaf_node *n)
{
	struct km_page *slab = n->looked;

	if (km_list_empty(&n->slabs.partial))
		return NULL;
	if (!slab)
		slab = km_list_last(&n->slabs.partial, struct km_page, list);
	km_debug(slab->flags & KM_SLAB_PARTIAL, "a look goes on at a slab of the list");
	n->looked = km_sheaf_before(n, slab);
	return slab;
}

size_t km_sheaf_hollow(struct kmem_cache *cache, struct sheaf_node *n, bool all)
{
	struct hole holes[MAX_HOLES];
	struct km_page *slab;
	size_t pages = 0;

	if (!may_be_hollow(cache) || !km_load(&n->slabs.counts.partial))
		return 0;
	km_lock(&n->slabs.lock);
	const size_t partial = n->slabs.counts.partial;
	size_t looks = all ? partial : km_min(partial, LOOKS + partial / PART);
	size_t calls = all ? SIZE_MAX : CALLS + partial / PART;
	if (all)
		n->looked = NULL;
	for (size_t seen = 1; looks && (slab = next_slab(n)); looks--, seen++) {
		unsigned count = look_at(cache, slab, all, holes);
		size_t now = count ? empty(cache, n, slab, holes, count) : 0;

		if ((count && !now) || calls < count)
			break;
		calls -= count;
		pages += now;
		if (seen % LOOKS_AT_ONCE == 0) {
			km_unlock(&n->slabs.lock);
			km_lock(&n->slabs.lock);
		}
	}
	km_unlock(&n->slabs.lock);
	return pages;
}

void km_sheaf_unmark(const struct kmem_cache *cache, struct km_page *slab, void *const *objects, unsigned count)
{
	const char *address = km_page_address(slab);

	for (unsigned i = 0; i < count; i++) {
		size_t at = (size_t)((const char *)objects[i] - address);

		for (size_t page = at >> KM_PAGE_SHIFT; page <= (at + cache->size - 1) >> KM_PAGE_SHIFT; page++)
			km_store(&sheaf_page(&slab[page])->hole, (uint8_t)HOLE_NONE);
	}
}

int km_sheaf_check_holes(struct kmem_cache *cache, struct km_page *slab)
{
	for (unsigned page = 0; slab->flags & KM_SLAB_HOLES && page < 1u << slab->order; page++)
		if (sheaf_page(&slab[page])->hole != HOLE_NONE && !is_free(cache, slab, page)) {
			km_warn("check: %s: page %u of slab %p has an object that is out, and a mark", cache->name,
				page, km_page_address(slab));
			return 1;
		}
	return 0;
}
