/*
 * sheaf_holes.c: reclaim's looks at a node's partial slabs. A look frees empty slabs beyond the number to keep. In a
 * slab that stays, a look releases the memory of pages without live objects: of pages found so at two looks, or of
 * all such pages on demand. Slabs of the engine sheaf have sixteen objects or more, and up to 32 pages.
 *
 * Invariants under the node's lock: a marked page has only free objects, and taking an object clears the mark. The
 * lock is not held during system calls. The slab is off the list then, in hand of the one thread that holds `look`,
 * so no thread takes its objects. The slab returns with the same bits and counts, except for objects freed meanwhile.
 * Released memory loses the content of free objects. A cache that needs the content has no marks; nor has a cache
 * with reserved memory, whose released memory is restored.
 */
#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "sheaf.h"

enum mark {
	HOLE_NONE,	/* the page has an allocated object, or had one since the last look */
	HOLE_SEEN,	/* all objects of the page were free at the last look */
	HOLE_GONE,	/* the page is purged */
	HOLE_PARTLY,	/* a restore failed or is in progress: any part may be purged, and all counts as present */
	HOLE_KEPT,	/* the system refused to purge (mlock): tried again only on demand */
};

/* Limits of one look at a cache's slabs of one node: slabs that stay, system calls, and a part of all slabs. A slab
 * outside of the CPU's cache costs 0.1 us or more, a system call several. */
#define LOOKS		256u
#define MORE_LOOKS	3840u
#define CALLS		64u
#define PART		32u
/* Slabs looked at under one hold of the lock; holes purged of one slab at a time, the rest at the next look. */
#define LOOKS_AT_ONCE	64u
#define MAX_HOLES	16u

/* Adjacent pages of a slab to purge, or purged. */
struct hole {
	unsigned first, count;
};

/* Returns whether pages may be purged: no user or observer depends on the content of free objects, and the system's
 * pages have 4 KiB. */
static bool may_be_hollow(const struct kmem_cache *cache)
{
	return cache->form.slab_pages > 1 && !cache->layout.tail_bits && !cache->form.ctor &&
	       !km_load(&cache->ext.hooks) && !cache->form.first && !cache->memcg.slab_charge &&
	       !(cache->layout.flags & SLAB_TYPESAFE_BY_RCU) && !km_is_observed(cache) &&
	       !km_load(&cache->state.reserved_pages) && !km_thread.no_calls &&
	       km_os_page_bytes() == KM_PAGE_SIZE;
}

/* Returns whether the page has objects, and all of them are free. */
static bool is_free(const struct kmem_cache *cache, struct km_page *slab, unsigned page)
{
	const size_t size = cache->layout.size, first = page * KM_PAGE_SIZE / size;
	const size_t end = km_min(((page + 1) * KM_PAGE_SIZE + size - 1) / size, (size_t)slab->objects);

	for (size_t at = first, next; at < end; at = next) {
		next = km_min(end, at / 64 * 64 + 64);
		uint64_t mask = ~0ull >> (64 - (next - at)) << at % 64;

		if (~km_load(sheaf_bits(cache, slab, NULL, (unsigned)(at / 64))) & mask)
			return false;
	}
	return first < end;
}

/* Marks pages whose objects are all free, and finds up to MAX_HOLES runs of pages to purge. Requires: the node's
 * lock. */
static unsigned look_at(const struct kmem_cache *cache, struct km_page *slab, bool all, struct hole *holes)
{
	unsigned count = 0, marks = 0;

	/* Skip a slab whose free objects have less than a page. */
	if ((size_t)km_slab_free_objects(slab) * cache->layout.size < KM_PAGE_SIZE)
		return 0;
	for (unsigned page = 0; page < 1u << slab->order; page++) {
		uint8_t *mark = &sheaf_page(&slab[page])->hole;

		if (!is_free(cache, slab, page))
			continue;
		marks++;
		if (*mark == HOLE_GONE || (*mark == HOLE_KEPT && !all))
			continue;
		if (!all && *mark == HOLE_NONE) {
			km_store(mark, (uint8_t)HOLE_SEEN);
		} else if (count && holes[count - 1].first + holes[count - 1].count == page) {
			holes[count - 1].count++;
		} else if (count < MAX_HOLES) {
			holes[count++] = (struct hole){ page, 1 };
		}
	}
	km_store(&slab->flags, (uint8_t)((slab->flags & ~KM_SLAB_HOLES) | (marks ? KM_SLAB_HOLES : 0)));
	return count;
}

/* State of one look at a node's slabs, by one thread. */
struct looking {
	struct kmem_cache *cache;
	struct sheaf_node *n;
	size_t calls, pages;		/* number of system calls made; pages purged */
	bool packed;			/* the slab taken off the list was the node's `packed` slab */
	bool holes;			/* purge pages; else only count and free empty slabs */
	bool any;			/* this pass has found purged pages */
};

/* Takes the slab off the list, and releases the lock: no thread takes objects from the slab or frees the slab. */
static void take_in_hand(struct looking *looking, struct km_page *slab)
{
	struct sheaf_node *n = looking->n;

	km_debug(km_is_locked(&n->look) && !n->in_hand && n->slabs.looked != slab,
		 "one slab of a node at a time is scanned");
	looking->packed = n->slabs.packed == slab;
	km_slabs_unlist(&n->slabs, slab);
	km_store(&n->in_hand, slab);
	km_unlock(&n->slabs.lock);
}

/* Queues an unlisted, empty slab, to be freed without the lock. The count is raised first: end() corrects a count too
 * high, but a count too low would hide a slab in the child of a fork by a signal handler. */
static void add_going(struct sheaf_node *n, struct km_page *slab)
{
	km_store(&n->going_count, n->going_count + 1);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	km_list_add_tail(&slab->list, &n->going);
}

/* Ends take_in_hand: takes the node's lock, and puts the slab on the list again. */
static void put_back(struct looking *looking, struct km_page *slab)
{
	struct sheaf_node *n = looking->n;

	km_lock(&n->slabs.lock);
	km_debug(n->in_hand == slab && slab->inuse < slab->objects, "the scanned slab is not allocated from");
	km_sheaf_list_again(n, slab);
	if (looking->packed && !n->slabs.packed)
		km_store(&n->slabs.packed, slab);
	if (km_sheaf_drop_if_empty(looking->cache, n, slab, km_load(&looking->cache->tune.min_partial)))
		add_going(n, slab);
}

static void mark(struct km_page *slab, struct hole hole, enum mark as)
{
	for (unsigned page = hole.first; page < hole.first + hole.count; page++)
		km_store(&sheaf_page(&slab[page])->hole, (uint8_t)as);
	if (as != HOLE_GONE)
		km_pages_fill(&slab[hole.first], hole.count);
}

/* Purges the pages of a hole. If the system refuses the hole, perhaps for some pages, tries each page. */
static void offer(struct looking *looking, struct km_page *slab, struct hole hole)
{
	looking->calls++;
	if (km_pages_hollow(&slab[hole.first], hole.count)) {
		mark(slab, hole, HOLE_GONE);
		looking->pages += hole.count;
		return;
	}
	mark(slab, hole, HOLE_KEPT);
	for (unsigned i = 0; hole.count > 1 && i < hole.count; i++)
		offer(looking, slab, (struct hole){ hole.first + i, 1 });
}

/* Releases the node's lock for a moment, so that other threads can take it. */
static void breathe(struct sheaf_node *n)
{
	km_unlock(&n->slabs.lock);
	km_lock(&n->slabs.lock);
}

/* Looks at one slab, and purges its holes without the node's lock. With `all`, repeats until no holes are left.
 * Returns: false if more than `calls` system calls would be made. */
static bool look_into(struct looking *looking, struct km_page *slab, bool all, size_t calls)
{
	struct hole holes[MAX_HOLES];
	unsigned count;
	size_t before;

	do {
		before = looking->pages;
		count = look_at(looking->cache, slab, all, holes);
		if (looking->calls + count > calls)
			return false;
		if (count)
			take_in_hand(looking, slab);
		for (unsigned i = 0; i < count; i++)
			offer(looking, slab, holes[i]);
		if (count)
			put_back(looking, slab);
	} while (all && looking->pages > before && count == MAX_HOLES && slab->flags & KM_SLAB_PARTIAL);
	return true;
}

/* Visits all slabs of the list, until visit returns false. Returns: false then. */
static bool visit_all(struct looking *looking, bool (*visit)(struct looking *looking, struct km_page *slab))
{
	struct sheaf_node *n = looking->n;
	struct km_page *slab;
	bool goes_on = true;

	km_lock_scope(&n->slabs.lock);
	n->slabs.looked = NULL;
	size_t looks = n->slabs.counts.partial;
	for (size_t seen = 1; goes_on && looks && (slab = km_slabs_next(&n->slabs)); looks--, seen++) {
		goes_on = visit(looking, slab);
		if (seen % LOOKS_AT_ONCE == 0)
			breathe(n);
	}
	return goes_on;
}

static bool hollow_slab(struct looking *looking, struct km_page *slab)
{
	return look_into(looking, slab, true, SIZE_MAX);
}

/* Looks at some slabs, starting where the last look ended. Returns: number of slabs queued to be freed. */
static size_t look_at_some(struct looking *looking, bool idle, bool cold)
{
	struct sheaf_node *n = looking->n;
	struct km_page *slab;
	size_t gone = 0;

	km_lock_scope(&n->slabs.lock);
	const size_t partial = n->slabs.counts.partial;
	const size_t more = cold ? MORE_LOOKS : km_min(partial / PART, (size_t)MORE_LOOKS);
	const unsigned long keep = idle ? 0 : km_load(&looking->cache->tune.min_partial);
	size_t looks = LOOKS + more;
	for (size_t seen = 1; seen <= partial && looks && (slab = km_slabs_next(&n->slabs)); seen++) {
		if (km_sheaf_drop_if_empty(looking->cache, n, slab, keep)) {
			add_going(n, slab);
			gone++;
		} else if (looking->holes && !look_into(looking, slab, cold, CALLS + more)) {
			break;
		} else {
			looks--;
		}
		if (seen % LOOKS_AT_ONCE == 0)
			breathe(n);
	}
	return gone;
}

/* In the child of a signal handler's fork: puts a slab that another thread had taken off the list on the list again.
 * Requires: the node's lock. */
static void adopt(struct sheaf_node *n)
{
	km_debug(km_is_locked(&n->look), "the scanned slab changes under the scan lock");
	if (km_likely(!km_load(&n->in_hand)))
		return;
	km_lock_scope(&n->slabs.lock);
	km_sheaf_list_again(n, n->in_hand);
}

/* Ends a look: frees the queued slabs. After a fork, also the slabs queued by a thread that the child lacks. */
static void end(struct kmem_cache *cache, struct sheaf_node *n)
{
	km_debug(km_is_locked(&n->look), "one thread at a time frees released pages");
	while (km_load(&n->going_count)) {
		km_lock(&n->slabs.lock);
		/* A signal handler may have forked between the count and the list. */
		struct km_page *slab = km_list_empty(&n->going) ? NULL : km_list_first(&n->going, struct km_page, list);
		km_store(&n->going_count, slab ? n->going_count - 1 : 0);
		if (slab)
			km_list_del(&slab->list);
		km_unlock(&n->slabs.lock);
		if (slab)
			km_slab_free(cache, slab);
	}
	km_unlock(&n->look);
}

/* Returns: true if a slab is in hand or queued, by a running look or by a thread that the child lacks. */
static bool is_left(const struct sheaf_node *n)
{
	return km_load(&n->in_hand) || km_load(&n->going_count);
}

void km_sheaf_adopt(struct kmem_cache *cache, struct sheaf_node *n)
{
	if (km_likely(!is_left(n)) || !km_trylock(&n->look))
		return;
	adopt(n);
	end(cache, n);
}

/* Returns: true if the node's list is empty, and no slab is off the list or queued. */
static bool is_bare(const struct sheaf_node *n)
{
	return !km_load(&n->slabs.counts.partial) && !is_left(n);
}

size_t km_sheaf_hollow(struct kmem_cache *cache, struct sheaf_node *n)
{
	struct looking looking = { .cache = cache, .n = n };

	if (!may_be_hollow(cache) || is_bare(n))
		return 0;
	km_lock(&n->look);
	adopt(n);
	/* Look again: the cache may have been given a reserve meanwhile. */
	if (may_be_hollow(cache))
		visit_all(&looking, hollow_slab);
	end(cache, n);
	return looking.pages;
}

size_t km_sheaf_reap(struct kmem_cache *cache, struct sheaf_node *n, bool idle, bool cold)
{
	struct looking looking = { .cache = cache, .n = n };

	if (is_bare(n) || !km_trylock(&n->look))
		return 0;
	adopt(n);
	looking.holes = may_be_hollow(cache);
	size_t slabs = look_at_some(&looking, idle, cold);
	end(cache, n);
	return slabs;
}

static bool has_gone(struct km_page *page)
{
	const uint8_t mark = sheaf_page(page)->hole;

	return mark == HOLE_GONE || mark == HOLE_PARTLY;
}

/* Returns the next purged pages from `page` on; count 0: none. */
static struct hole next_gone(struct km_page *slab, unsigned page)
{
	struct hole hole = { page, 0 };
	const unsigned end = slab->flags & KM_SLAB_HOLES ? 1u << slab->order : 0;

	while (hole.first < end && !has_gone(&slab[hole.first]))
		hole.first++;
	while (hole.first + hole.count < end && has_gone(&slab[hole.first + hole.count]))
		hole.count++;
	return hole;
}

/* Restores the purged pages of the slab. Requires: the node's lock, which the function releases and takes again.
 * Returns: false if the system has no memory; pages marked HOLE_PARTLY, also after a fork, may be present or not. */
static bool restore_pages(struct looking *looking, struct km_page *slab, struct hole hole)
{
	bool there = true;

	take_in_hand(looking, slab);
	for (; there && hole.count; hole = next_gone(slab, hole.first + hole.count)) {
		mark(slab, hole, HOLE_PARTLY);
		there = !km_pages_fault_in(&slab[hole.first], hole.count, looking->cache->layout.live_shift);
		if (there)
			mark(slab, hole, HOLE_NONE);
	}
	put_back(looking, slab);
	return there;
}

static bool fill_slab(struct looking *looking, struct km_page *slab)
{
	struct hole hole = next_gone(slab, 0);

	if (!hole.count)
		return true;
	looking->any = true;
	return restore_pages(looking, slab, hole);
}

bool km_sheaf_fill(struct kmem_cache *cache, struct sheaf_node *n)
{
	struct looking looking = { .cache = cache, .n = n };
	bool there;

	km_lock(&n->look);
	adopt(n);
	/* Repeat the pass until no purged page is found: other threads may reorder the list during a pass, but none
	 * purges pages meanwhile. */
	do {
		looking.any = false;
		there = visit_all(&looking, fill_slab);
	} while (there && looking.any);
	end(cache, n);
	return there;
}

void km_sheaf_fork_holes(struct sheaf_node *n, bool child)
{
	/* In the child no look runs: put a slab that another thread had taken off the list on the list again. */
	if (child && n->in_hand && km_fork_has(&n->slabs.lock) && !km_lock_is_own(&n->look))
		km_sheaf_list_again(n, n->in_hand);
	if (child)
		km_lock_around_fork(&n->look, false, true);
}

void km_sheaf_unmark(const struct kmem_cache *cache, struct km_page *slab, void *const *objects, unsigned count)
{
	const char *address = km_page_address(slab);

	for (unsigned i = 0; i < count; i++) {
		size_t at = (size_t)((const char *)objects[i] - address);

		unsigned first = (unsigned)(at >> KM_PAGE_SHIFT);
		unsigned last = (unsigned)((at + cache->layout.size - 1) >> KM_PAGE_SHIFT);

		mark(slab, (struct hole){ first, last - first + 1 }, HOLE_NONE);
	}
}

int km_sheaf_check_holes(struct kmem_cache *cache, struct km_page *slab)
{
	for (unsigned page = 0; slab->flags & KM_SLAB_HOLES && page < 1u << slab->order; page++)
		if (sheaf_page(&slab[page])->hole != HOLE_NONE && !is_free(cache, slab, page)) {
			km_warn("check: %s: page %u of slab %p is marked as a hole, but has an allocated object",
				cache->registry.name, page, km_page_address(slab));
			return 1;
		}
	return 0;
}
