/*
 * debug_large.c: debugging of large blocks (whole pages), named "large" in KMEM_DEBUG: the metadata behind a block,
 * and the quarantine of freed blocks.
 *
 *	bytes asked for | red zone, a page and more | two tracks | seal | bytes asked for
 *
 * Nothing lies in front of a block: the page before belongs to another user. With P, a freed block is filled and kept
 * until a later free needs its place in the quarantine, or until settle(); then the block is checked and released.
 *
 * Invariants: the seal says TAKEN or FREE for this address and size; any other value means an overwritten seal, and
 * the tracks are not trusted. A quarantined block is in one place of `waiting`, and only the thread that removes the
 * block releases the block. A quarantined block is uncharged.
 */
#include <errno.h>

#include "base/bits.h"
#include "os/os.h"
#include "debug.h"

#define ZONE		0xccu
#define POISON		0x6bu
#define POISON_END	0xa5u

/* values of the seal, SLUB's red-zone words, to make dumps readable */
#define TAKEN		0xd84156c5635688c0ul
#define FREE		0x09f911029d74e35bul

/* Quarantine: at most 16 MiB of small blocks, and 32 MiB of longer ones. */
#define SMALL		(256ul << 10)
#define LONGEST		(16ul << 20)
#define SMALL_PLACES	64u
#define LONG_PLACES	2u

struct record {
	struct kmem_record_mark marks[2];
	uint64_t seal;
	size_t asked;			/* requested bytes, at the place where a sanitizer stores them, too
					 * (km_large_asked) */
};

static struct {
	slab_flags_t flags;
	uint32_t next;
	void *small[SMALL_PLACES], *longer[LONG_PLACES];
} waiting;

static struct record *record_of(const void *p, size_t bytes)
{
	return (struct record *)((char *)p + bytes) - 1;
}

static uint64_t sealed(const void *p, const struct record *record, uint64_t state)
{
	return (uintptr_t)p ^ record->asked ^ state;
}

/* Returns: true if the block has a record. A block of the maximum size may have none: there the seal decides. */
static bool has_record(const void *p, size_t bytes)
{
	const struct record *record = record_of(p, bytes);
	uint64_t seal = km_load_acquire(&record->seal);

	return bytes != KMALLOC_MAX_SIZE || seal == sealed(p, record, TAKEN) || seal == sealed(p, record, FREE);
}

/* ------------------------------------------------------------------ checks */

static struct km_debug_region zone_of(const void *p, const struct record *record)
{
	unsigned char *at = (unsigned char *)p + record->asked;

	return (struct km_debug_region){ .what = "kmalloc Redzone", .at = at, .value = ZONE,
					 .bytes = (size_t)((unsigned char *)record - at) };
}

static unsigned regions_of(const void *p, const struct record *record, bool taken, struct km_debug_region *regions)
{
	unsigned n = 0;

	if (waiting.flags & SLAB_RED_ZONE)
		regions[n++] = zone_of(p, record);
	if (!taken && waiting.flags & SLAB_POISON && record->asked) {
		regions[n++] = (struct km_debug_region){ .what = "Poison", .at = (unsigned char *)p,
							 .bytes = record->asked - 1, .value = POISON };
		regions[n++] = (struct km_debug_region){ .what = "End Poison", .bytes = 1, .value = POISON_END,
							 .at = (unsigned char *)p + record->asked - 1 };
	}
	return n;
}

static void fill(const struct km_debug_region *regions, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		__builtin_memset(regions[i].at, (int)regions[i].value, regions[i].bytes);
}

static void tell(const void *p, size_t bytes, const struct km_debug_region *region, const char *title)
{
	const struct record *record = record_of(p, bytes);
	const struct km_debug_block block = {
		.at = p, .bytes = bytes, .marks = waiting.flags & SLAB_STORE_USER && region ? record->marks : NULL,
	};

	km_debug_report_block(&block, region, title);
}

/* Prints the line of a misuse, below the report. */
static void bad(enum km_misuse what, const char *function, const void *p)
{
	km_misuse_of(what, function, p, "large", NULL, waiting.flags & SLAB_STORE_USER);
}

/* Report the damage of a block, and refill damaged regions. A report may end the process. Returns: the damages. */
static unsigned look_at(void *p, size_t bytes, bool taken, const char *function)
{
	struct record *record = record_of(p, bytes);
	struct km_debug_region regions[3];
	unsigned char *from, *to;
	unsigned damages = 0;

	/* With a broken seal the requested size is not trusted, so no region can be checked or refilled. */
	if (km_load(&record->seal) != sealed(p, record, taken ? TAKEN : FREE)) {
		tell(p, bytes, NULL, "kmalloc Redzone overwritten");
		bad(KM_MISUSE_OVERWRITTEN, function, p);
		return 1;
	}
	unsigned n = regions_of(p, record, taken, regions);
	for (unsigned i = 0; i < n; i++) {
		char title[48];

		if (!km_debug_differs(&regions[i], &from, &to))
			continue;
		km_format(title, sizeof(title), "%s overwritten", regions[i].what);
		tell(p, bytes, &regions[i], title);
		bad(KM_MISUSE_OVERWRITTEN, function, p);
		fill(&regions[i], 1);
		damages++;
	}
	return damages;
}

/* ------------------------------------------------------------------ allocation and resizing */

/* Write the red zone of a block, then the seal. Release: a reader of TAKEN also sees the red zone. */
static void seal(void *p, struct record *record)
{
	const struct km_debug_region zone = zone_of(p, record);

	if (waiting.flags & SLAB_RED_ZONE)
		fill(&zone, 1);
	km_store_release(&record->seal, sealed(p, record, TAKEN));
}

static void comes(void *p, size_t asked, size_t bytes)
{
	struct record *record = record_of(p, bytes);

	/* A block of the maximum size has no room for a record. */
	if (bytes - asked < sizeof(*record))
		return;
	*record = (struct record){ .asked = asked };
	if (waiting.flags & SLAB_STORE_USER)
		km_debug_mark(&record->marks[0]);
	record->marks[1].seal = km_debug_mark_seal(&record->marks[1]);
	seal(p, record);
	km_debug(has_record(p, bytes), "an allocated block is marked");
}

/* Shrink a block in place to its first `asked` bytes. */
static void shrinks(void *p, size_t asked, size_t bytes)
{
	struct record *record = record_of(p, bytes);

	if (!has_record(p, bytes) || km_load(&record->seal) != sealed(p, record, TAKEN) || asked >= record->asked)
		return;
	look_at(p, bytes, true, "krealloc");
	km_store(&record->seal, 0ul);
	record->asked = asked;
	seal(p, record);
}

/* Returns: the requested bytes, or 0 for a free block in quarantine. */
static size_t asked_of(const void *p, size_t bytes)
{
	const struct record *record = record_of(p, bytes);

	if (km_load(&record->seal) == sealed(p, record, FREE))
		return 0;
	return has_record(p, bytes) && record->asked <= bytes - sizeof(*record) ? record->asked : bytes;
}

/* ------------------------------------------------------------------ free */

static void let_go(void *p)
{
	size_t bytes = km_large_bytes(p);

	if (!bytes)
		return;
	if (has_record(p, bytes)) {
		look_at(p, bytes, false, "kfree");
		/* Clear the seal: the pages may be reused for other data and then be checked. */
		km_store(&record_of(p, bytes)->seal, 0ul);
	}
	km_large_let_go(p);
}

/* Puts a block into the quarantine. The oldest block there, or nearly the oldest, is checked and freed. */
static void wait_there(void *p, size_t bytes)
{
	uint32_t turn = km_add(&waiting.next, 1u);
	void **place = bytes <= SMALL ? &waiting.small[turn % SMALL_PLACES] : &waiting.longer[turn % LONG_PLACES];
	/* Acquire: see all writes to the old block made before quarantine. */
	void *before = km_swap_acquire(place, p);

	km_debug(before != p, "a delayed block is in one place");
	if (before)
		let_go(before);
}

/* Release the blocks of some places of the quarantine. Returns: false if there were none. */
static bool release(void **places, unsigned count)
{
	bool any = false;

	for (unsigned i = 0; i < count; i++) {
		/* Acquire as in wait_there. */
		void *p = km_load(&places[i]) ? km_swap_acquire(&places[i], NULL) : NULL;

		if (p)
			let_go(p);
		any |= p != NULL;
	}
	return any;
}

static bool settle(void)
{
	return release(waiting.small, SMALL_PLACES) + release(waiting.longer, LONG_PLACES);
}

/* Make a block readable and writable. The user may have changed the protection of the block, or the advice for
 * children of fork. A free must undo both before the free completes (kmalloc(3)). A child cannot check a block
 * excluded from children. Returns: false if no check is possible. */
static bool can_be_looked_at(void *p, size_t bytes)
{
	return bytes <= KMALLOC_MAX_SIZE || (!km_os_unprotect(p, bytes) && km_os_renew(p, bytes) != -ENOMEM);
}

/* Returns: true if the caller must release the block; false for a quarantined or refused block. */
static bool goes(void *p, size_t bytes)
{
	struct record *record = record_of(p, bytes);
	uint64_t taken = sealed(p, record, TAKEN), freed = sealed(p, record, FREE);
	struct km_debug_region regions[3];

	if (!can_be_looked_at(p, bytes) || !has_record(p, bytes))
		return true;
	bool twice = km_load(&record->seal) == freed;
	bool damaged = !twice && look_at(p, bytes, true, "kfree") && km_load(&record->seal) != taken;
	/* If two threads free the block at once, one wins the compare-and-swap. */
	if (twice || (!damaged && !km_cas_both(&record->seal, &taken, freed))) {
		tell(p, bytes, &(struct km_debug_region){ .bytes = 0 }, "Object already free");
		bad(KM_MISUSE_DOUBLE_FREE, "kfree", p);
		return false;
	}
	if (damaged || !(waiting.flags & SLAB_POISON) || bytes > LONGEST) {
		km_store(&record->seal, 0ul);
		return true;
	}
	if (waiting.flags & SLAB_STORE_USER)
		km_debug_mark(&record->marks[1]);
	fill(regions, regions_of(p, record, false, regions));
	/* Uncharge before another thread can remove the block from quarantine. */
	km_large_disown(p);
	wait_there(p, bytes);
	return false;
}

/* ------------------------------------------------------------------ requests */

static int check_block(struct km_page *page, void *arg)
{
	int *damages = arg;
	void *p = km_page_address(page);

	if (page->type != KM_PAGE_LARGE || !page->pages)
		return 0;
	size_t bytes = page->pages << KM_PAGE_SHIFT;
	const struct record *record = record_of(p, bytes);
	uint64_t seal = km_load_acquire(&record->seal);
	/* Any other seal: the block is changing now, or the damage is reported at its free. */
	if (seal == sealed(p, record, TAKEN) || seal == sealed(p, record, FREE))
		*damages += (int)look_at(p, bytes, seal == sealed(p, record, TAKEN), "kmem_check_all");
	return 0;
}

static int check(void)
{
	int damages = 0;

	km_pages_walk(check_block, &damages);
	return damages;
}

bool km_debug_blocks_have_tracks(void)
{
	return km_block_hooks && waiting.flags & SLAB_STORE_USER;
}

const struct kmem_record_mark *km_debug_block_mark(const struct km_page *page, size_t *asked)
{
	size_t bytes = page->pages << KM_PAGE_SHIFT;
	void *p = km_page_address(page);

	if (page->type != KM_PAGE_LARGE || !bytes || !(waiting.flags & SLAB_STORE_USER))
		return NULL;
	const struct record *record = record_of(p, bytes);
	if (km_load_acquire(&record->seal) != sealed(p, record, TAKEN))
		return NULL;
	*asked = record->asked;
	km_debug(*asked <= bytes - sizeof(*record), "a track follows the requested bytes");
	return &record->marks[0];
}

static const struct km_block_hooks hooks = {
	.comes = comes, .shrinks = shrinks, .goes = goes, .asked = asked_of, .check = check,
	.settle = settle,
};

void km_debug_blocks_start(void)
{
	bool low;

	waiting.flags = km_debug_flags_of("large", 0, &low) & (SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER);
	if (waiting.flags & SLAB_STORE_USER)
		km_debug_stacks_start();
	if (waiting.flags && !km_sanitizer.objects) {
		km_block_hooks = &hooks;
		km_observed_sizes = true;
	}
}
