/*
 * huge.c: the hash table of huge blocks, above 4 MiB. The first forty blocks are mappings of their own; the others
 * share regions (huge_region.c), because the kernel allows 65530 mappings, and a freed block between two others may
 * cost a mapping. Invariants, while the lock is free: the table holds exactly the allocated blocks. An entry leaves
 * the table before its range is unmapped, and enters after its range is mapped, so a foreign mapping is never taken
 * for a block. Ranges refused by munmap are kept and counted. A freed block may keep its memory for a while
 * (huge_cache.c), and is in no table then.
 */
#include "huge.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/lock.h"
#include "percpu/node.h"
#include "os/os.h"
#include "os/sanitizer.h"
#include "arena.h"
#include "metadata.h"
#include "huge_cache.h"
#include "huge_region.h"

/* Blocks with a mapping of their own. Together with the other mappings of the library there are about a hundred. A
 * block in a region is copied if realloc cannot grow the block in place. Free parts of a region count against an
 * address space limit, and against overcommit_memory 2: there regions start at MOST_LIMITED blocks. */
#define MOST_ALONE	40u
#define MOST_LIMITED	1024u

/* A range that munmap refused. Its first bytes hold this record. */
struct kept {
	struct kept *next;
	size_t bytes;
	bool dirty;		/* the system also refused to purge the range */
};

struct km_huge km_huge;
static struct {
	struct km_lock lock;
	size_t used, deleted;	/* entries of the table */
	uintptr_t view;		/* for readers without the lock: address of the table | log2 of slots */
	uint32_t searches;
	unsigned alone;		/* number of blocks with a mapping of their own, with those being mapped */
	uint32_t in_hand;	/* blocks on their way between user, table and cache; a fork waits until this is 0 */
	bool strict, asked;	/* strict: overcommit_memory is 2; asked: strict is known */
	struct kept *kept;
} big = { .lock = KM_LOCK_INIT(KM_RANK_BIG) };

static struct km_busy_was lock_table(void)
{
	struct km_busy_was was = km_busy_begin();

	km_lock(&big.lock);
	return was;
}

static void unlock_table(const struct km_busy_was *was)
{
	km_debug(big.used == km_huge.blocks, "the table holds exactly the allocated blocks");
	km_debug(big.used + big.deleted <= km_huge.slots, "no table entry is counted twice");
	km_unlock(&big.lock);
	km_busy_end(*was);
}

/* Hold the lock until the end of the block, with the thread busy: a signal handler must find the thread busy while the
 * lock is held. */
#define table_scope() struct km_busy_was was_here km_scoped(unlock_table) = lock_table()

#define FIRST_SLOTS	64u
#define DELETED		1u
#define VIEW_SLOTS	((uintptr_t)63)
#define FORK_TRIES	1000	/* a fork waits at most so many ms for `in_hand` to become 0 */
#define HIDDEN_MOST	4096u	/* most parts of regions hidden from one mlockall: each may be a mapping */
#define METADATA_MOST	((size_t)4 << 20)	/* bytes of the largest table in metadata; a larger table is a
						 * mapping */

static size_t hash(uintptr_t start)
{
	return (size_t)((start >> KM_PAGE_SHIFT) * 0x9e3779b97f4a7c15ull >> 20);
}

static struct km_huge_entry *find(uintptr_t start)
{
	km_debug(km_is_locked(&big.lock), "the table is read under its lock");
	for (size_t i = hash(start), probes = 0; start > DELETED && probes < km_huge.slots; i++, probes++) {
		struct km_huge_entry *entry = &km_huge.table[i & (km_huge.slots - 1)];

		if (entry->start == start)
			return entry;
		if (!entry->start)
			break;
	}
	return NULL;
}

static void insert(struct km_huge_entry entry)
{
	size_t i = hash(entry.start) & (km_huge.slots - 1);

	km_debug(entry.start > DELETED && !(entry.start & (KM_PAGE_SIZE - 1)) && entry.bytes,
		 "a block begins with a page");
	km_debug(big.used < km_huge.slots, "the table has room for an insertion");
	km_debug(!find(entry.start), "a block is in the table once");

	while (km_huge.table[i].start > DELETED)
		i = (i + 1) & (km_huge.slots - 1);
	if (km_huge.table[i].start == DELETED)
		big.deleted--;
	/* Write the entry's start last: km_huge_inside reads the table without the lock. */
	struct km_huge_entry *at = &km_huge.table[i];
	const uintptr_t start = entry.start;
	entry.start = at->start;
	*at = entry;
	km_store_release(&at->start, start);
	big.used++;
}

static void remove_entry(struct km_huge_entry *entry)
{
	km_debug(entry->start > DELETED && big.used, "an entry leaves the table once");
	entry->start = DELETED;
	big.used--;
	big.deleted++;
}

/* ------------------------------------------------------------------ mappings of their own */

/* Returns: bytes rounded up to pages of the system. The rest of the last page reads as zeros. */
static size_t whole_pages(size_t bytes)
{
	return km_align_up(bytes, km_max(KM_PAGE_SIZE, km_os_page_bytes()));
}

static void clear_behind(void *p, size_t bytes)
{
	__builtin_memset((char *)p + bytes, 0, whole_pages(bytes) - bytes);
}

/* Unmap a range that is in no table. If the system refuses, keep the range (`kept`). Requires: the lock is held. */
static void hand_over(void *p, size_t bytes)
{
	km_debug(km_is_locked(&big.lock) && big.alone, "an unmapped block was counted");
	km_debug(!find((uintptr_t)p), "an entry leaves the table before its range is unmapped");
	if (!km_os_try_unmap(p, bytes)) {
		big.alone--;
		return;
	}
	struct kept *kept = p;
	bool dirty = !km_region_clean_part(p, whole_pages(bytes));

	/* A range that cannot be made writable cannot hold the record, and is lost. */
	if (km_os_unprotect(p, bytes))
		return;

	*kept = (struct kept){ big.kept, bytes, dirty };
	big.kept = kept;
	km_bump(&km_huge.kept_bytes, bytes);
}

/* Make room for one more entry, so that an insertion after a system call cannot fail. Returns: false if there is no
 * memory. */
static bool reserve_entry(void)
{
	if (km_huge.table && (big.used + big.deleted + 1) * 4 <= km_huge.slots * 3)
		return true;
	size_t old_slots = km_huge.slots;
	size_t slots = !old_slots ? FIRST_SLOTS :
		       (big.used + 1) * 2 > old_slots ? old_slots * 2 : old_slots;
	km_debug(km_is_pow2(slots), "the number of table entries is a power of two");
	struct km_huge_entry *old = km_huge.table, *table;
	const size_t bytes = slots * sizeof(*table);

	table = bytes <= METADATA_MOST ? km_metadata_alloc(bytes, true) : km_os_map(bytes, KM_PAGE_SIZE);
	big.alone += table && bytes > METADATA_MOST;
	if (!table)
		return km_huge.table && big.used + big.deleted + 1 < km_huge.slots;
	/* Set slots to 0 between the tables: a reader in another process must never combine the slots of one table
	 * with the other table. */
	km_store(&km_huge.slots, (size_t)0);
	km_store_release(&km_huge.table, table);
	km_store_release(&km_huge.slots, slots);
	big.used = big.deleted = 0;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i].start > DELETED)
			insert(old[i]);
	km_debug(big.used == km_huge.blocks && !big.deleted, "a new table has the entries of the old one");
	km_store_release(&big.view, (uintptr_t)table | km_ilog2(slots));
	/* A reader without the lock may still read the old table. Metadata stays readable, and an old table with a
	 * mapping of its own is never unmapped. */
	if (old_slots * sizeof(*old) <= METADATA_MOST)
		km_metadata_free(old, old_slots * sizeof(*old));
	return true;
}

/* Remove a kept range from its list. Requires: the lock is held. */
static struct kept *take_kept(struct kept **at)
{
	struct kept *kept = *at;

	km_debug(km_huge.kept_bytes >= kept->bytes, "a kept mapping is counted");

	*at = kept->next;
	km_bump(&km_huge.kept_bytes, -kept->bytes);
	return kept;
}

void km_huge_offer(void)
{
	table_scope();
	struct kept *kept = big.kept, *next;
	big.kept = NULL;
	km_store(&km_huge.kept_bytes, (size_t)0);
	for (; kept; kept = next) {
		next = kept->next;
		hand_over(kept, kept->bytes);
	}
	km_region_offer();
}

/* Returns: memory from a kept range that is large enough, as zeros; the rest of the range stays kept. Requires: the
 * lock is held. */
static void *reuse_kept(size_t bytes, size_t align)
{
	for (struct kept **at = &big.kept; *at; at = &(*at)->next) {
		if ((*at)->bytes < bytes || (uintptr_t)*at & (align - 1))
			continue;
		struct kept *kept = take_kept(at);
		size_t whole = whole_pages(bytes), rest = whole_pages(kept->bytes) - whole;

		if (rest) {
			big.alone++;
			hand_over((char *)kept + whole, rest);
		}
		__builtin_memset(kept, 0, kept->dirty ? whole : sizeof(*kept));
		return kept;
	}
	return NULL;
}

/* Map a new block. Unlocks during the system call; in_hand counts the block meanwhile. Requires: the lock is held. */
static void *map_alone(size_t bytes, size_t align)
{
	big.alone++;
	big.in_hand++;
	km_unlock(&big.lock);
	void *p = km_os_map(bytes, align);
	if (p)
		km_os_name(p, bytes, "libkmem: large block");
	km_lock(&big.lock);
	km_debug(!p || !((uintptr_t)p & (align - 1)), "a mapping has the requested alignment");
	big.in_hand -= big.in_hand != 0;
	if (!p)
		big.alone--;
	return p;
}

/* Unmap the range of a block that is in no table, or free its part of a region. Unlocks during the system call.
 * Requires: the lock is held. */
static void let_go(void *p, size_t bytes, uint32_t region)
{
	km_debug(km_is_locked(&big.lock) && !find((uintptr_t)p),
		 "an entry leaves the table before its range is unmapped");
	big.in_hand++;
	km_unlock(&big.lock);
	bool gone = region ? km_region_clean(p, bytes) : km_os_try_unmap(p, bytes) == 0;
	km_lock(&big.lock);
	big.in_hand -= big.in_hand != 0;
	if (region)
		km_region_free(region, p, gone);
	else if (km_likely(gone))
		big.alone--;
	else
		hand_over(p, bytes);
}

/* ------------------------------------------------------------------ freed ones that keep their memory */

size_t km_huge_pages(void)
{
	return km_load(&km_huge.bytes) >> KM_PAGE_SHIFT;
}

/* Returns: bytes in huge blocks and slabs. The cached blocks are bounded in proportion to this number. */
static size_t in_use(void)
{
	return km_huge.bytes + (km_pages_there() << KM_PAGE_SHIFT);
}

/* Fit a cached block to `bytes` bytes. The block belongs to the caller. Drops the lock during system calls. Requires:
 * the lock is held. Returns: NULL if the system refuses or the space behind the block is taken; then the block is
 * freed. */
static void *fit(struct km_huge_cached cached, size_t bytes)
{
	size_t whole = whole_pages(bytes), had = whole_pages(cached.bytes);
	bool grows = cached.bytes < bytes;
	void *p = cached.p;

	km_debug(!find((uintptr_t)p), "a cached huge block is not in the table");

	if (cached.region) {
		if (!km_region_resize(cached.region, p, cached.bytes, bytes))
			p = NULL;
	} else if (grows) {
		big.in_hand++;
		km_unlock(&big.lock);
		p = km_os_remap(p, had, whole, true);
		km_lock(&big.lock);
		big.in_hand -= big.in_hand != 0;
	}
	if (grows && (p || !cached.region))
		km_huge_cache_miss(bytes - cached.bytes, in_use() + bytes);
	if (!p) {
		let_go(cached.p, cached.bytes, cached.region);
		return NULL;
	}
	if (cached.region)
		return p;
	if (cached.bytes > bytes)
		clear_behind(p, bytes);
	if (had > whole) {
		big.alone++;
		let_go((char *)p + whole, had - whole, 0);
	}
	return p;
}

/* Put a freed block into the cache, with the state of a fresh mapping: the last user's advice for forks and core dumps,
 * and protections, are undone. This happens at the free and not at reuse, because locked memory counts against a limit,
 * and different flags split the mapping. No block is cached with several nodes or under a sanitizer, where a block must
 * begin fresh; nor under a limit, where cached blocks would take address space from the program's mappings. Drops the
 * lock during system calls. Requires: the lock is held. Returns: false if the system refuses, the block is locked, or
 * the cache is full. */
static bool park(void *p, size_t bytes, uint32_t region)
{
	if (km_node_count > 1 || km_sanitizer.any || km_os_is_limited())
		return false;
	big.in_hand++;
	km_unlock(&big.lock);
	bool renewed = !km_os_renew(p, whole_pages(bytes)) && !km_os_unprotect(p, whole_pages(bytes));
	km_lock(&big.lock);
	big.in_hand -= big.in_hand != 0;
	return renewed && km_huge_cache_put(p, bytes, region, in_use());
}

/* Give cached blocks back: those beyond the bound, or those older than decay_ms. At most as many as are cached at the
 * start, because threads that free meanwhile trim the cache themselves. Drops the lock during system calls. Requires:
 * the lock is held. Returns: bytes. */
static size_t shed(bool beyond, unsigned decay_ms)
{
	struct km_huge_cached gone;
	size_t bytes = 0;

	for (unsigned most = km_huge_cache.count; most; most--) {
		if (!(beyond ? km_huge_cache_beyond(in_use(), &gone) : km_huge_cache_old(decay_ms, &gone)))
			break;
		let_go(gone.p, gone.bytes, gone.region);
		bytes += gone.bytes;
	}
	return bytes;
}

/* For a request of `bytes` refused by the system: unmap the oldest cached block. Requires: the lock is held. Returns:
 * false if no block is cached, or the request is larger than could ever be mapped. */
static bool shed_for(size_t bytes)
{
	size_t idle = km_huge_cache.pages << KM_PAGE_SHIFT;
	struct km_huge_cached gone;

	if (!idle || (bytes > idle && km_os_refuses(bytes - idle)) || !km_huge_cache_old(0, &gone))
		return false;
	let_go(gone.p, gone.bytes, gone.region);
	return true;
}

size_t km_huge_purge(unsigned decay_ms)
{
	/* Usually there never was a huge block: take no lock. */
	if (!km_load(&km_huge.table))
		return 0;
	table_scope();
	km_huge_cache_fade(in_use(), !decay_ms);
	return shed(false, decay_ms);
}

void km_huge_trim(void)
{
	table_scope();

	shed(true, 0);
}

/* ------------------------------------------------------------------ blocks */

/* Returns: true if address space or committed memory is limited, or all memory is locked (mlockall). Reads
 * overcommit_memory once. Requires: the lock is held. */
static bool is_scarce(void)
{
	char mode[8] = "";

	if (!big.asked && !km_os_is_shut()) {
		big.asked = true;
		big.strict = km_os_read("/proc/sys/vm/overcommit_memory", mode, sizeof(mode)) > 0 && mode[0] == '2';
	}
	return big.strict || km_os_is_limited() || km_os_locks_all();
}

/* Get memory for a new block: a mapping, or a part of a region. A region may have room after a refused mapping.
 * Requires: the lock is held. */
static void *get_new(size_t bytes, size_t align, uint32_t *region)
{
	bool scarce = big.alone >= MOST_ALONE && is_scarce();
	bool alone = big.alone < (scarce ? MOST_LIMITED : MOST_ALONE);
	void *p = alone ? map_alone(bytes, align) : NULL;

	if (!p)
		p = km_region_alloc(bytes, align, scarce, region);
	/* A block larger than a region gets a mapping: only a few such blocks fit into the address space. */
	if (!p && !alone)
		p = map_alone(bytes, align);
	return p;
}

/* Get memory for a block: a kept range, a cached block or new memory. *zero: the memory reads as zeros. Requires: the
 * lock is held. */
static void *get(size_t bytes, size_t align, uint32_t *region, bool *zero)
{
	void *p = km_unlikely(big.kept != NULL) ? reuse_kept(bytes, align) : NULL;
	struct km_huge_cached cached;

	*region = 0;
	*zero = true;
	if (p)
		return p;
	if (km_huge_cache_take(bytes, align, &cached) && (p = fit(cached, bytes))) {
		*region = cached.region;
		*zero = false;
		return p;
	}
	km_huge_cache_miss(bytes, in_use() + bytes);
	p = get_new(bytes, align, region);
	/* The cached blocks may occupy the missing memory. */
	while (km_unlikely(!p) && shed_for(bytes))
		p = get_new(bytes, align, region);
	return p;
}

void *km_huge_alloc(size_t bytes, size_t align, bool *zero)
{
	uint32_t region;

	bytes = km_align_up(bytes, KM_PAGE_SIZE);
	if (!bytes)
		return NULL;
	table_scope();
	void *p = get(bytes, km_max(align, KM_PAGE_SIZE), &region, zero);
	/* Reserve the entry only now: other threads may have inserted while the lock was dropped. */
	if (p && reserve_entry()) {
		km_debug(!((uintptr_t)p & (km_max(align, KM_PAGE_SIZE) - 1)), "a block has the requested alignment");
		insert((struct km_huge_entry){ (uintptr_t)p, bytes, 0, region, 0 });
		km_bump(&km_huge.blocks, 1);
		km_bump(&km_huge.bytes, bytes);
	} else if (p) {
		let_go(p, bytes, region);
		p = NULL;
	}
	return p;
}

static size_t bytes_of(const void *p)
{
	struct km_huge_entry *entry = find((uintptr_t)p);

	return entry ? entry->bytes : 0;
}

size_t km_huge_bytes(const void *p)
{
	table_scope();

	return bytes_of(p);
}

size_t km_huge_try_bytes(const void *p)
{
	km_busy_scope(was);
	size_t bytes = SIZE_MAX;

	if (km_lock_nowait(&big.lock)) {
		km_lock_note(&big.lock, KM_LOCK_TRIED);
		bytes = bytes_of(p);
		km_unlock(&big.lock);
	}
	return bytes;
}

bool km_huge_free(const void *p)
{
	table_scope();
	struct km_huge_entry *entry = find((uintptr_t)p);
	if (!entry)
		return false;
	const struct km_huge_entry gone = *entry;
	km_debug(gone.bytes <= km_huge.bytes, "the sum of bytes is right");
	remove_entry(entry);
	km_bump(&km_huge.blocks, -1);
	km_bump(&km_huge.bytes, -gone.bytes);
	/* Offer one kept range to the system again. */
	struct kept *kept = km_unlikely(big.kept != NULL) ? take_kept(&big.kept) : NULL;
	if (kept)
		hand_over(kept, kept->bytes);
	if (!park((void *)p, gone.bytes, gone.region))
		let_go((void *)p, gone.bytes, gone.region);
	shed(true, 0);
	return true;
}

/* Resize a block. A moved block's old range is unmapped before its entry goes; the lock hides this. Requires: the
 * lock is held. */
static void *resize(struct km_huge_entry *entry, size_t bytes)
{
	void *p = (void *)entry->start;

	if (bytes == entry->bytes)
		return p;
	/* The system does not check commits of a region. So a growth by more than the machine's memory fails here,
	 * and the caller asks the system for a mapping. */
	if (entry->region)
		return (bytes <= entry->bytes || bytes - entry->bytes <= km_os_memory()) &&
		       km_region_resize(entry->region, p, entry->bytes, bytes) ? p : NULL;
	km_debug(big.alone, "a block outside of regions is a mapping of its own");
	bool cut = bytes < entry->bytes;
	p = km_os_remap(p, whole_pages(entry->bytes), whole_pages(bytes), true);
	if (p && cut)
		clear_behind(p, bytes);
	return p;
}

void *km_huge_resize(void *p, size_t bytes)
{
	bytes = km_align_up(bytes, KM_PAGE_SIZE);
	table_scope();
	struct km_huge_entry *entry = find((uintptr_t)p);
	void *moved = entry && bytes ? resize(entry, bytes) : NULL;
	/* After a failure unmap cached blocks, which may have the missing memory, and find the entry again: other
	 * threads may have changed the table. */
	while (km_unlikely(!moved && entry && bytes && !entry->region) &&
	       shed_for(bytes - km_min(bytes, entry->bytes))) {
		entry = find((uintptr_t)p);
		moved = resize(entry, bytes);
	}
	if (moved) {
		struct km_huge_entry now = { (uintptr_t)moved, bytes, entry->owner, entry->region, entry->found };

		km_bump(&km_huge.bytes, bytes - entry->bytes);
		remove_entry(entry);
		insert(now);
		/* The bound of cached blocks falls with the bytes in use. */
		shed(true, 0);
	}
	return moved;
}

uint64_t km_huge_owner(const void *p)
{
	table_scope();
	const struct km_huge_entry *entry = find((uintptr_t)p);

	return entry ? entry->owner : 0;
}

void km_huge_set_owner(const void *p, uint64_t owner)
{
	table_scope();
	struct km_huge_entry *entry = find((uintptr_t)p);

	if (entry)
		entry->owner = owner;
}

uint32_t km_huge_search(void)
{
	table_scope();

	return ++big.searches;
}

/* Find the next block of owner from *from on. Requires: the lock is held. */
static void *find_next(uint64_t owner, uint32_t search, size_t *from)
{
	while (*from < km_huge.slots) {
		struct km_huge_entry *entry = &km_huge.table[(*from)++];

		if (entry->start > DELETED && entry->owner == owner && entry->found != search) {
			entry->found = search;
			return (void *)entry->start;
		}
	}
	return NULL;
}

/* A replaced table has another order, so a last pass covers the whole table. */
void *km_huge_next(uint64_t owner, uint32_t search, size_t *from)
{
	table_scope();
	void *found = find_next(owner, search, from);
	if (!found) {
		*from = 0;
		found = find_next(owner, search, from);
	}
	return found;
}

/* The search is repeated if the table was replaced meanwhile: the memory of the old table may have been reused. */
bool km_huge_inside(const void *p)
{
	for (;;) {
		const uintptr_t view = km_load_acquire(&big.view);
		const struct km_huge_entry *table = (void *)(view & ~VIEW_SLOTS);
		size_t left = table ? (size_t)1 << (view & VIEW_SLOTS) : 0;
		bool inside = false;

		for (; left && !inside; left--, table++) {
			uintptr_t start = km_load_acquire(&table->start);

			inside = start > DELETED && (uintptr_t)p - start < km_load(&table->bytes);
		}
		if (km_load_acquire(&big.view) == view)
			return inside;
	}
}

/* Before a fork, wait until in_hand is 0: the child would lose a block counted there. In the child of a signal
 * handler's fork the interrupted code may own the block. */
void km_huge_fork(bool before, bool child)
{
	uint32_t never = 0;

	km_lock_around_fork(&big.lock, before, child);
	/* Do not wait in a signal handler: the block may belong to the interrupted code. */
	for (unsigned tries = km_fork_is_nested() ? 0 : FORK_TRIES; before && big.in_hand && tries; tries--) {
		km_unlock_fork(&big.lock);
		km_os_wait(&never, 0, 1);
		km_lock_around_fork(&big.lock, true, false);
	}
	if (child)
		big.in_hand = 0;
}

/* ------------------------------------------------------------------ mlockall */

/* Around mlockall: make free parts and spare room of regions inaccessible (hidden), or accessible again. The lock stays
 * held from one call to the other. */
static void hide_all(bool hidden)
{
	unsigned left = HIDDEN_MOST;

	km_debug(km_is_locked(&big.lock), "the table is locked while free memory is hidden");
	km_region_hide_free(hidden, &left);
	for (size_t i = 0; i < km_huge.slots && left; i++) {
		const struct km_huge_entry *entry = &km_huge.table[i];

		if (entry->start <= DELETED || !entry->region)
			continue;
		km_region_hide_room(entry->region, (void *)entry->start, entry->bytes, hidden);
		left--;
	}
}

long km_huge_mlockall(int flags)
{
	table_scope();
	shed(false, 0);
	hide_all(true);
	long result = km_os_mlockall(flags);
	hide_all(false);
	return result;
}

size_t km_huge_spare(void)
{
	return km_load(&km_huge.kept_bytes) + km_load(&km_region_spare);
}

size_t km_huge_idle(void)
{
	return km_huge_spare() + (km_load(&km_huge_cache.pages) << KM_PAGE_SHIFT);
}
