/*
 * debug_large.c: debugging of blocks of whole pages, which KMEM_DEBUG names "large": what lies behind one, and how long
 * one that was freed is kept.
 *
 *	bytes asked for | red zone, a page and more | two tracks | seal | bytes asked for
 *
 * There is nothing in front: that page is another's. With P, a block that was freed is filled, and waits until as many
 * others were freed; then it is looked at, and goes.
 *
 * Invariants: the seal says TAKEN or FREE of this address and these bytes, or somebody overwrote it: then no track is
 * believed. A block that waits stands in one place of `waiting`, and whoever takes it from there lets it go. Nobody
 * pays for a block that waits.
 */
#include <errno.h>

#include "base/bits.h"
#include "os/os.h"
#include "debug.h"

#define ZONE		0xccu
#define POISON		0x6bu
#define POISON_END	0xa5u

/* Slab's red words, so that a dump can be read. */
#define TAKEN		0xd84156c5635688c0ul
#define FREE		0x09f911029d74e35bul

/* Blocks that wait: at most 16 MiB of small ones, and 32 of others. */
#define SMALL		(256ul << 10)
#define LONGEST		(16ul << 20)
#define SMALL_PLACES	64u
#define LONG_PLACES	2u

struct record {
	struct km_debug_mark marks[2];
	uint64_t seal;
	size_t asked;			/* where a sanitizer has it as well: km_large_asked() */
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

/* A block of the longest length that pages have may be one that nothing could be added to. */
static bool has_record(const void *p, size_t bytes)
{
	const struct record *record = record_of(p, bytes);
	uint64_t seal = km_load_acquire(&record->seal);

	return bytes != KMALLOC_MAX_SIZE || seal == sealed(p, record, TAKEN) || seal == sealed(p, record, FREE);
}

/* ------------------------------------------------------------------ looking */

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

/* The line of the misuse, below the report. */
static void bad(enum km_misuse what, const char *function, const void *p)
{
	km_misuse_of(what, function, p, "large", NULL, waiting.flags & SLAB_STORE_USER);
}

/* The damages are told, and mended unless that ends the process. Returns how many there are. */
static unsigned look_at(void *p, size_t bytes, bool taken, const char *function)
{
	struct record *record = record_of(p, bytes);
	struct km_debug_region regions[3];
	unsigned char *from, *to;
	unsigned damages = 0;

	/* Bytes that were asked for are not believed where the seal is broken: nothing more can be said. */
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

/* ------------------------------------------------------------------ coming, changing */

static void comes(void *p, size_t asked, size_t bytes)
{
	struct record *record = record_of(p, bytes);
	struct km_debug_region zone;

	/* Nothing could be added to the longest that pages have. */
	if (bytes - asked < sizeof(*record))
		return;
	*record = (struct record){ .asked = asked };
	zone = zone_of(p, record);
	if (waiting.flags & SLAB_RED_ZONE)
		fill(&zone, 1);
	if (waiting.flags & SLAB_STORE_USER)
		km_debug_mark(&record->marks[0]);
	record->marks[1].seal = km_debug_mark_seal(&record->marks[1]);
	/* Release: whoever sees that it is taken sees the zone. */
	km_store_release(&record->seal, sealed(p, record, TAKEN));
	km_debug(has_record(p, bytes), "a block that has come says so");
}

/* It keeps its first `asked` bytes. */
static void shrinks(void *p, size_t asked, size_t bytes)
{
	struct record *record = record_of(p, bytes);

	if (!has_record(p, bytes) || km_load(&record->seal) != sealed(p, record, TAKEN) || asked >= record->asked)
		return;
	look_at(p, bytes, true, "krealloc");
	km_store(&record->seal, 0ul);
	record->asked = asked;
	struct km_debug_region zone = zone_of(p, record);
	if (waiting.flags & SLAB_RED_ZONE)
		fill(&zone, 1);
	km_store_release(&record->seal, sealed(p, record, TAKEN));
}

/* 0: it is free, and waits. */
static size_t asked_of(const void *p, size_t bytes)
{
	const struct record *record = record_of(p, bytes);

	if (km_load(&record->seal) == sealed(p, record, FREE))
		return 0;
	return has_record(p, bytes) && record->asked <= bytes - sizeof(*record) ? record->asked : bytes;
}

/* ------------------------------------------------------------------ going */

static void let_go(void *p)
{
	size_t bytes = km_large_bytes(p);

	if (!bytes)
		return;
	if (has_record(p, bytes)) {
		look_at(p, bytes, false, "kfree");
		/* The pages may come again as something else, and be looked at. */
		km_store(&record_of(p, bytes)->seal, 0ul);
	}
	km_large_let_go(p);
}

/* It waits in the place of one that has waited longest, or nearly. */
static void wait_there(void *p, size_t bytes)
{
	uint32_t turn = km_add(&waiting.next, 1u);
	void **place = bytes <= SMALL ? &waiting.small[turn % SMALL_PLACES] : &waiting.longer[turn % LONG_PLACES];
	/* Acquire: what was written to it before it waited. */
	void *before = km_swap_acquire(place, p);

	km_debug(before != p, "a block waits in one place");
	if (before)
		let_go(before);
}

/* Its user may have protected it, and advised what a child of fork has of it: before the free is through that is undone
 * (kmalloc(3)), and the child of a user who keeps it from children has nothing to look at. */
static bool can_be_looked_at(void *p, size_t bytes)
{
	return bytes <= KMALLOC_MAX_SIZE || (!km_os_unprotect(p, bytes) && km_os_renew(p, bytes) != -ENOMEM);
}

/* False: it waits, or is none that may go. */
static bool goes(void *p, size_t bytes)
{
	struct record *record = record_of(p, bytes);
	uint64_t taken = sealed(p, record, TAKEN), freed = sealed(p, record, FREE);
	struct km_debug_region regions[3];

	if (!can_be_looked_at(p, bytes) || !has_record(p, bytes))
		return true;
	if (km_load(&record->seal) == freed) {
		tell(p, bytes, &(struct km_debug_region){ .bytes = 0 }, "Object already free");
		bad(KM_MISUSE_DOUBLE_FREE, "kfree", p);
		return false;
	}
	bool damaged = look_at(p, bytes, true, "kfree") && km_load(&record->seal) != taken;
	/* Of two threads that free it at once one has it. */
	if (!damaged && !km_cas_both(&record->seal, &taken, freed)) {
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
	/* Before another thread can take it from its place. */
	km_large_disown(p);
	wait_there(p, bytes);
	return false;
}

/* ------------------------------------------------------------------ whoever asks */

static int check_block(struct km_page *page, void *arg)
{
	int *damages = arg;
	void *p = km_page_address(page);

	if (page->type != KM_PAGE_LARGE || !page->pages)
		return 0;
	size_t bytes = page->pages << KM_PAGE_SHIFT;
	const struct record *record = record_of(p, bytes);
	uint64_t seal = km_load_acquire(&record->seal);
	/* Where it says neither, the block comes or goes just now, or is found when it goes. */
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

const struct km_debug_mark *km_debug_block_mark(const struct km_page *page, size_t *asked)
{
	size_t bytes = page->pages << KM_PAGE_SHIFT;
	void *p = km_page_address(page);

	if (page->type != KM_PAGE_LARGE || !bytes || !(waiting.flags & SLAB_STORE_USER))
		return NULL;
	const struct record *record = record_of(p, bytes);
	if (km_load_acquire(&record->seal) != sealed(p, record, TAKEN))
		return NULL;
	*asked = record->asked;
	km_debug(*asked <= bytes - sizeof(*record), "a track lies behind what was asked for");
	return &record->marks[0];
}

static const struct km_block_hooks hooks = {
	.comes = comes, .shrinks = shrinks, .goes = goes, .asked = asked_of, .check = check,
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
