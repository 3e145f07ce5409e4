/*
 * huge_region.c: regions of huge blocks. A region is one reservation, accessible from its start to a mark that only
 * rises: two mappings. A block freed below the mark stays accessible, without memory, so that the mapping around the
 * block stays whole. Invariants: the first and the last granule of each run have a record that describes the run. Two
 * free runs are never adjacent. Free memory reads as zeros, unless the run is dirty because the system refused the
 * purge. The spare room of a block reads as zeros. A region without blocks is unmapped, or kept if the system refuses.
 */
#include <errno.h>

#include "huge_region.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/die.h"
#include "base/list.h"
#include "percpu/node.h"
#include "os/os.h"
#include "metadata.h"

/* Granules. Blocks have more than 4 MiB, so rounding costs a third of address space at most. A transparent huge page
 * lies in one granule and so in one block. Where address space or committed memory is limited, rounding costs a
 * sixteenth at most. */
#define GRANULE		((size_t)2 << 20)
#define SMALL_GRANULE	((size_t)256 << 10)
#define FIRST_BYTES	((size_t)1 << 30)
/* Granules of the largest region: its records have 4 MiB, the largest piece of metadata.c. */
#define MOST_GRANULES	((size_t)128 << 10)
#define MAX_REGIONS	4096u		/* most regions: with small granules they may cover the whole address space of a
					 * process */
#define CLASSES		72u		/* classes of free runs by length: four for each doubling */
#define LOOKS		32		/* runs tried in a class whose runs may be too small */

/* Record of the first and the last granule of a run. Records in between are stale. */
struct run {
	struct km_list list;		/* free: link in the list of its class; only in the first record */
	uint32_t granules;
	uint16_t region;		/* free: number of the region; only in the first record */
	bool free, dirty;		/* free: no block is in the run; dirty: the run's memory may be resident, with
					 * any content */
};
_Static_assert(MOST_GRANULES * sizeof(struct run) <= (size_t)4 << 20, "metadata.c gives no more at once");

struct region {
	char *base;			/* address of the region; NULL: the entry is free */
	uint16_t number;
	struct run *run;
	uint32_t granules, ready, used;	/* number of granules: reserved; accessible; in blocks */
};

static struct {
	struct region *at[MAX_REGIONS / 64];	/* pointers to arrays of 64 regions, allocated on demand */
	unsigned count, newest;		/* entries ever used; number of the newest region */
	size_t granule;			/* bytes of a granule */
	bool scarce;			/* address space or committed memory is limited */
	size_t bytes;			/* reserved bytes of all regions */
	struct km_list free[CLASSES];
} regions;
size_t km_region_spare;

static struct region *region_at(unsigned i)
{
	km_debug(i < MAX_REGIONS && regions.at[i / 64], "a region has an index");
	return &regions.at[i / 64][i % 64];
}

static size_t granules_of(size_t bytes)
{
	return (bytes + regions.granule - 1) / regions.granule;
}

static char *address_of(const struct region *region, size_t i)
{
	return region->base + i * regions.granule;
}

/* Returns: the class of a size. Sizes of a class differ by less than a quarter. */
static unsigned class_of(size_t granules)
{
	unsigned log2 = km_ilog2(granules);

	return log2 < 2 ? (unsigned)granules : log2 * 4 + (unsigned)(granules >> (log2 - 2) & 3);
}

/* ------------------------------------------------------------------ runs */

static void describe(struct region *region, size_t i, size_t granules, bool free, bool dirty)
{
	struct run *first = &region->run[i], *last = first + granules - 1;

	km_debug(granules && i + granules <= region->ready, "a run is in the accessible part of the region");

	first->granules = last->granules = (uint32_t)granules;
	first->free = last->free = free;
	first->dirty = last->dirty = dirty;
}

static void take(struct run *run)
{
	km_debug(run->free && run->list.next, "a run removed from its list is free");
	km_list_del(&run->list);
}

/* Add a free run to its list, joined with free runs on both sides. */
static void put(struct region *region, size_t i, size_t granules, bool dirty)
{
	struct run *next = &region->run[i + granules];

	if (i + granules < region->ready && next->free) {
		take(next);
		granules += next->granules;
		dirty |= next->dirty;
	}
	if (i && region->run[i - 1].free) {
		i -= region->run[i - 1].granules;
		take(&region->run[i]);
		km_debug(region->run[i].free, "the last granule of a run has the start of the run");
		granules += region->run[i].granules;
		dirty |= region->run[i].dirty;
	}
	km_debug(!i || !region->run[i - 1].free, "two free runs never touch");
	km_debug(i + granules >= region->ready || !region->run[i + granules].free, "two free runs never touch");
	describe(region, i, granules, true, dirty);
	region->run[i].region = region->number;
	km_list_add_head(&region->run[i].list, &regions.free[class_of(granules)]);
}

static void count_used(struct region *region, long granules)
{
	region->used += (uint32_t)granules;
	km_bump(&km_region_spare, -(size_t)granules * regions.granule);
	km_debug(region->used <= region->ready && (long)km_region_spare >= 0, "a region has no more blocks than room");
}

/* Purge memory, and reset protections, locks and advice of the user, so that the range has the flags of the mapping
 * around. The reset merges mappings and needs no new mapping, so the system has no reason to refuse. Returns: true if
 * the memory reads as zeros now. */
bool km_region_clean_part(void *p, size_t bytes)
{
	(void)km_os_unprotect(p, bytes);
	if (km_nodes.bind)
		km_node_unbind(p, bytes);
	if (km_os_renew(p, bytes) == -EBUSY)
		(void)km_os_lock(p, bytes, false);
	if (km_likely(!km_os_purge(p, bytes)))
		return true;
	/* Undo a lock of mlockall: km_os_renew() does not report this lock. */
	(void)km_os_lock(p, bytes, false);
	return km_os_purge(p, bytes) == 0;
}

bool km_region_clean(void *p, size_t bytes)
{
	return km_region_clean_part(p, granules_of(bytes) * regions.granule);
}

/* ------------------------------------------------------------------ regions */

static bool reserve(unsigned number, size_t bytes)
{
	size_t run_bytes = bytes / regions.granule * sizeof(struct run);
	struct run *run = km_metadata_alloc(run_bytes, true);
	char *base = run ? km_os_reserve_whole(bytes, regions.granule) : NULL;

	if (!base) {
		km_metadata_free(run, run_bytes);
		return false;
	}
	km_os_name(base, bytes, "libkmem: large blocks");
	*region_at(number) = (struct region){
		.base = base, .run = run, .granules = (uint32_t)(bytes / regions.granule), .number = (uint16_t)number,
	};
	regions.bytes += bytes;
	km_bump(&km_region_spare, bytes);
	return true;
}

/* Returns: a free entry of the table. MAX_REGIONS: the table is full, or has no memory. */
static unsigned unused_region(void)
{
	unsigned i = 0;

	while (i < regions.count && region_at(i)->base)
		i++;
	if (i == MAX_REGIONS || (i == regions.count && i % 64 == 0 && !regions.at[i / 64] &&
				 !(regions.at[i / 64] = km_metadata_alloc(64 * sizeof(struct region), true))))
		return MAX_REGIONS;
	regions.count = km_max(regions.count, i + 1);
	return i;
}

/* Reserve a new region, as large as all regions together, so that regions stay few. Where the system refuses, try a
 * quarter of the size, and so on. */
static struct region *new_region(size_t granules)
{
	size_t limit = km_os_address_room(), least = granules * regions.granule;
	size_t bytes = km_min(km_max(FIRST_BYTES, regions.bytes), MOST_GRANULES * regions.granule);
	unsigned i = granules <= MOST_GRANULES ? unused_region() : MAX_REGIONS;

	if (i == MAX_REGIONS)
		return NULL;
	if (limit != SIZE_MAX)
		bytes = km_min(bytes, km_align_down(limit / 16, regions.granule));
	for (bytes = km_max(bytes, least); !reserve(i, bytes);
	     bytes = km_max(km_align_down(bytes / 4, regions.granule), least))
		if (bytes == least)
			return NULL;
	regions.newest = i;
	return region_at(i);
}

/* Unmap a region without blocks. The mapping may have merged with two neighbours: a split that exceeds the limit of
 * mappings makes munmap fail, and the region is kept. */
static void release(struct region *region)
{
	km_debug(!region->used, "a released region has no block");
	if (region->ready && region->run[0].free && region->run[0].granules == region->ready)
		take(&region->run[0]);
	if (km_os_try_unmap(region->base, region->granules * regions.granule)) {
		if (region->ready)
			km_list_add_head(&region->run[0].list, &regions.free[class_of(region->ready)]);
		return;
	}
	km_debug(regions.bytes >= region->granules * regions.granule, "a released region was counted");
	km_metadata_free(region->run, region->granules * sizeof(struct run));
	regions.bytes -= region->granules * regions.granule;
	km_bump(&km_region_spare, -(region->granules * regions.granule));
	region->base = NULL;
}

void km_region_offer(void)
{
	for (unsigned number = 0; number < regions.count; number++)
		if (region_at(number)->base && !region_at(number)->used)
			release(region_at(number));
}

/* ------------------------------------------------------------------ blocks */

/* Check if a run of `have` granules at i holds `granules` aligned granules. *skip: granules before the aligned
 * start. */
static bool fits(const struct region *region, size_t i, size_t have, size_t granules, size_t align, size_t *skip)
{
	uintptr_t at = (uintptr_t)address_of(region, i);

	*skip = (km_align_up(at, align) - at) / regions.granule;
	return *skip + granules <= have;
}

/* Find a free run in the existing regions. At most LOOKS runs of each class are tried. Only runs of the lowest class
 * may be too small. */
static struct region *find(size_t granules, size_t align, size_t *first, size_t *skip)
{
	for (unsigned class = class_of(granules); class < CLASSES; class++) {
		int looks = LOOKS;

		km_list_for_each_entry(struct run, run, &regions.free[class], list) {
			if (!looks--)
				break;
			struct region *region = region_at(run->region);

			*first = (size_t)(run - region->run);
			if (fits(region, *first, run->granules, granules, align, skip))
				return region;
		}
	}
	return NULL;
}

/* Raise the mark of the region, so that the free run below the mark holds `granules` aligned granules. */
static bool extend(struct region *region, size_t granules, size_t align, size_t *first, size_t *skip)
{
	size_t top = region->ready && region->run[region->ready - 1].free ? region->run[region->ready - 1].granules : 0;

	*first = region->ready - top;
	if (!fits(region, *first, region->granules - *first, granules, align, skip))
		return false;
	size_t more = *skip + granules - top;
	if (km_os_commit(address_of(region, region->ready), more * regions.granule))
		return false;
	size_t at = region->ready;
	region->ready += (uint32_t)more;
	km_debug(region->ready <= region->granules, "the mark stays in the region");
	put(region, at, more, false);
	return true;
}

/* Make the whole region accessible, where its inaccessible end is too short for a block: this saves a mapping. */
static void finish(struct region *region)
{
	size_t at = region->ready, more = region->granules - at;

	if (!more || regions.scarce || km_os_commit(address_of(region, at), more * regions.granule))
		return;
	region->ready = region->granules;
	put(region, at, more, false);
}

static struct region *find_or_extend(size_t granules, size_t align, size_t *first, size_t *skip)
{
	struct region *region = find(granules, align, first, skip);

	if (region)
		return region;
	region = regions.count ? region_at(regions.newest) : NULL;
	if (region && region->base) {
		if (extend(region, granules, align, first, skip))
			return region;
		finish(region);
	}
	region = new_region(granules + (align > regions.granule ? align / regions.granule : 0));
	if (!region || extend(region, granules, align, first, skip))
		return region;
	release(region);
	return NULL;
}

/* Make a block of `granules` granules in the free run at `first`, from first + skip on. */
static void carve(struct region *region, size_t first, size_t skip, size_t granules)
{
	struct run *run = &region->run[first];
	size_t have = run->granules;
	bool dirty = run->dirty;

	km_debug(run->free && skip + granules <= have, "a block is cut from a free run with enough room");

	take(run);
	describe(region, first + skip, granules, false, dirty);
	count_used(region, (long)granules);
	if (skip)
		put(region, first, skip, dirty);
	if (have > skip + granules)
		put(region, first + skip + granules, have - skip - granules, dirty);
}

/* Returns: the granules to reserve for a block: four times its size, unless address space is limited. A block in a
 * region is copied if the block cannot grow in place. */
static size_t room_of(size_t granules)
{
	return !regions.scarce && granules <= MOST_GRANULES / 16 ? granules * 4 : granules;
}

/* Lock memory of a block if the program called mlockall(MCL_FUTURE). Free parts are never locked, so that nothing
 * fills them in. Returns: false if the system refuses, as for a new mapping. */
static bool lock_if_all(void *p, size_t bytes)
{
	return km_likely(!km_os_locks_all()) || !bytes || !km_os_lock(p, bytes, true);
}

/* Shrink a block from `have` granules to `want` and its spare room. zero: the rest reads as zeros; else the block
 * keeps no spare room, and the rest is dirty. */
static void cut(struct region *region, size_t i, size_t have, size_t want, bool zero)
{
	size_t keep = zero ? km_min(have, room_of(want)) : want;

	km_debug(want <= have && keep >= want, "a shortened block keeps the granules in use");
	if (keep == have)
		return;
	describe(region, i, keep, false, false);
	count_used(region, -(long)(have - keep));
	put(region, i + keep, have - keep, !zero);
}

/* Make a block on dirty memory read as zeros: purge again. If the system refuses again, the block gets no spare room,
 * because spare room must read as zeros. */
static void make_zero(struct region *region, size_t i, size_t have, size_t want)
{
	char *p = address_of(region, i);

	if (km_region_clean_part(p, have * regions.granule))
		return;
	cut(region, i, have, want, false);
	__builtin_memset(p, 0, want * regions.granule);
}

void *km_region_alloc(size_t bytes, size_t align, bool scarce, uint32_t *number)
{
	size_t first, skip;

	if (!regions.granule) {
		regions.granule = scarce ? SMALL_GRANULE : GRANULE;
		for (unsigned class = 0; class < CLASSES; class++)
			km_list_init(&regions.free[class]);
	}
	regions.scarce = scarce;
	size_t granules = granules_of(bytes);
	if (granules > MOST_GRANULES)
		return NULL;
	size_t room = room_of(granules);
	struct region *region = find_or_extend(room, align, &first, &skip);
	if (!region && room > granules)
		region = find_or_extend(room = granules, align, &first, &skip);
	if (!region)
		return NULL;
	bool dirty = region->run[first].dirty;
	carve(region, first, skip, room);
	char *p = address_of(region, first + skip);
	if (km_unlikely(dirty))
		make_zero(region, first + skip, room, granules);
	*number = region->number + 1u;
	if (km_likely(lock_if_all(p, granules * regions.granule)))
		return p;
	km_region_free(*number, p, km_region_clean(p, bytes));
	return NULL;
}

void km_region_free(uint32_t number, void *p, bool clean)
{
	struct region *region = region_at(number - 1);
	size_t i = (size_t)((char *)p - region->base) / regions.granule, granules = region->run[i].granules;

	km_debug(!region->run[i].free && region->run[i + granules - 1].granules == granules,
		 "the first and last granule of a run describe the run");
	km_debug(address_of(region, i) == p, "a block begins with a granule");

	count_used(region, -(long)granules);
	put(region, i, granules, !clean);
	if (!region->used)
		release(region);
}

static bool grow(struct region *region, size_t i, size_t have, size_t want)
{
	struct run *next = &region->run[i + have];
	size_t first, skip, more = want - have;

	if (i + have == region->ready || (next->free && i + have + next->granules == region->ready &&
					  next->granules < more)) {
		if (!extend(region, more, regions.granule, &first, &skip))
			return false;
	}
	if (!next->free || next->granules < more)
		return false;
	bool dirty = next->dirty;
	carve(region, i + have, 0, more);
	describe(region, i, want, false, false);
	if (km_unlikely(dirty))
		make_zero(region, i + have, more, more);
	return true;
}

/* Zero a block behind its first new_bytes, up to the end of its granules. Returns: true if the memory behind
 * new_bytes was purged. */
static bool clear_end(char *p, size_t had, size_t new_bytes, size_t want)
{
	size_t whole = km_align_up(new_bytes, km_os_page_bytes());
	bool zero = whole == had || km_region_clean_part(p + whole, had - whole);
	size_t end = zero ? whole : want * regions.granule;

	__builtin_memset(p + new_bytes, 0, end - new_bytes);
	return zero;
}

bool km_region_resize(uint32_t number, void *p, size_t old_bytes, size_t new_bytes)
{
	struct region *region = region_at(number - 1);
	size_t i = (size_t)((char *)p - region->base) / regions.granule;
	size_t have = region->run[i].granules, want = granules_of(new_bytes);
	km_debug(!region->run[i].free && have >= granules_of(old_bytes), "a block has enough granules for its bytes");

	if (new_bytes >= old_bytes) {
		if (want > have && !grow(region, i, have, want))
			return false;
		size_t used = granules_of(old_bytes);
		return lock_if_all(address_of(region, i + used), (want - used) * regions.granule);
	}
	cut(region, i, have, want, clear_end(p, granules_of(old_bytes) * regions.granule, new_bytes, want));
	return true;
}

/* Remove access to a part (hidden), or restore access, and undo the lock of mlockall. */
static void hide(char *p, size_t granules, bool hidden)
{
	size_t bytes = granules * regions.granule;

	if (!bytes)
		return;
	if (hidden) {
		(void)km_os_protect(p, bytes, false);
		return;
	}
	(void)km_os_lock(p, bytes, false);
	if (km_os_unprotect(p, bytes))
		(void)km_os_commit(p, bytes);
}

void km_region_hide_room(uint32_t number, void *p, size_t bytes, bool hidden)
{
	struct region *region = region_at(number - 1);
	size_t i = (size_t)((char *)p - region->base) / regions.granule, used = granules_of(bytes);

	hide(address_of(region, i + used), region->run[i].granules - used, hidden);
}

void km_region_hide_free(bool hidden, unsigned *left)
{
	for (unsigned number = 0; number < regions.count; number++) {
		struct region *region = region_at(number);

		if (!region->base)
			continue;
		for (size_t i = 0; i < region->ready && *left; i += region->run[i].granules)
			if (region->run[i].free) {
				hide(address_of(region, i), region->run[i].granules, hidden);
				--*left;
			}
		/* Unlock the inaccessible end of the region: otherwise the kernel would fill the end in as soon as
		 * the mark rises. */
		if (!hidden && region->ready < region->granules)
			(void)km_os_lock(address_of(region, region->ready), (region->granules - region->ready) *
					 regions.granule, false);
	}
}
