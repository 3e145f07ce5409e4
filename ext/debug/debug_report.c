/*
 * debug_report.c: reports about damage and bad calls of debugged caches, in the kernel's format and words, line by
 * line. Invariant: nothing is allocated. One thread owns the output from the first line of a report to the last, but
 * another thread waits at most 2 seconds.
 */
#include <stdarg.h>

#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "debug.h"

#define DUMPED	128u			/* most bytes dumped of an object */
#define LINE	16u
#define PATIENT	1000u			/* number of waits of 2 ms */

static uint32_t speaking;
static bool reported;

static void dump(const char *what, const unsigned char *at, size_t bytes)
{
	for (size_t line = 0; line < bytes; line += LINE) {
		char hex[3 * LINE + 1], text[LINE + 1];
		size_t n = km_min(bytes - line, (size_t)LINE);

		for (size_t i = 0; i < LINE; i++) {
			unsigned char c = i < n ? at[line + i] : ' ';

			km_format(hex + 3 * i, 4, i < n ? "%02x " : "   ", c);
			text[i] = c >= ' ' && c < 0x7f ? (char)c : '.';
		}
		text[n] = '\0';
		km_warn("%-9s%p: %s %s", what, (const void *)(at + line), hex, text);
	}
}

static void say_track(const char *what, const struct kmem_record_mark *mark)
{
	uint64_t now = km_os_now_ms();
	struct km_stack_track track;
	char place[320];

	km_debug_read_mark(mark, &track);
	/* The remaining content may still help the reader. */
	if (!km_debug_is_sealed(mark))
		km_warn("%s: the track was overwritten; its content is", what);
	else if (!track.when)
		return;
	km_warn("%s in %s age=%lu cpu=%u pid=%u", what, km_stack_place(track.frame[0], place, sizeof(place)),
		(unsigned long)(now - track.when), track.cpu, track.thread);
	for (unsigned i = 0; i < KM_STACK_FRAMES && track.frame[i]; i++)
		km_warn(" %p %s", (void *)track.frame[i], km_stack_place(track.frame[i], place, sizeof(place)));
}

static void begin(const char *name, const char *title)
{
	for (unsigned i = 0; i < PATIENT && km_swap_acquire(&speaking, 1u); i++)
		km_os_wait(&speaking, 1, 2);
	km_warn("=============================================================================");
	km_warn("BUG %s (%s): %s", name, km_load(&reported) ? "Tainted: B" : "Not tainted", title);
	km_warn("-----------------------------------------------------------------------------");
	km_store(&reported, true);
}

static void end(void)
{
	km_store_release(&speaking, 0u);
	km_os_wake(&speaking);
}

void km_debug_report_begin(const struct km_debug_about *about, const char *title)
{
	begin(about->cache->registry.name, title);
}

/* start: address of the slab or block, for the offset. */
static void say_region(const struct km_debug_region *region, const void *start)
{
	unsigned char *from, *to;

	if (!km_debug_differs(region, &from, &to))
		return;
	km_debug(from < to && from >= region->at && to <= region->at + region->bytes,
		 "a damage is inside of its region");
	unsigned long offset = (unsigned long)(from - (const unsigned char *)start);
	if (region->wanted)
		km_warn("[%s overwritten] %p-%p @offset=%lu. 0x%lx instead of 0x%lx", region->what, (void *)from,
			(void *)(to - 1), offset, region->found, region->wanted);
	else if (region->unsealed)
		km_warn("[%s overwritten] %p-%p @offset=%lu", region->what, (void *)from, (void *)(to - 1), offset);
	else
		km_warn("[%s overwritten] %p-%p @offset=%lu. First byte 0x%x instead of 0x%x", region->what,
			(void *)from, (void *)(to - 1), offset, *from, region->value);
}

void km_debug_report_region(const struct km_debug_about *about, const struct km_debug_region *region)
{
	say_region(region, km_page_address(about->slab));
}

void km_debug_report_track(const struct km_debug_about *about, bool alloc)
{
	if (about->object && about->cache->layout.flags & SLAB_STORE_USER)
		say_track(alloc ? "Allocated" : "Freed", &km_debug_marks(about->cache, about->object)[!alloc]);
}

static void say_tracks(const struct km_debug_about *about)
{
	km_debug_report_track(about, true);
	km_debug_report_track(about, false);
}

void km_debug_report_object(const struct km_debug_about *about)
{
	km_warn("Object %p @offset=%lu", (void *)about->object,
		(unsigned long)(about->object - (char *)km_page_address(about->slab)));
	say_tracks(about);
}

static void say_object(const struct km_debug_about *about)
{
	struct kmem_cache *cache = about->cache;
	unsigned char *object = (unsigned char *)about->object, *end = object + cache->layout.size - cache->ext.left;
	size_t tracks = cache->layout.flags & SLAB_STORE_USER ? 2 * sizeof(struct kmem_record_mark) : 0;
	unsigned char *padding = object + cache->layout.freeptr + sizeof(void *) + KM_DEBUG_WORD + tracks;

	uintptr_t link = *(uintptr_t *)(object + cache->layout.freeptr);

	km_debug(padding <= end && cache->layout.object_size <= cache->layout.freeptr,
		 "the surroundings of an object are inside of its place");
	km_warn("Object %p @offset=%lu fp=%p", (void *)object,
		(unsigned long)(about->object - (char *)km_page_address(about->slab)),
		link == KM_DEBUG_NO_LINK ? NULL : (void *)link);
	if (cache->ext.left)
		dump("Redzone", object - km_min(cache->ext.left, LINE), km_min(cache->ext.left, LINE));
	dump("Object", object, km_min(cache->layout.object_size, DUMPED));
	if (cache->layout.flags & SLAB_RED_ZONE)
		dump("Redzone", object + cache->layout.object_size, cache->layout.freeptr - cache->layout.object_size);
	dump("Padding", padding, km_min((size_t)(end - padding), (size_t)DUMPED));
}

void km_debug_report_end(const struct km_debug_about *about)
{
	struct kmem_cache *cache = about->cache;
	struct km_page *slab = about->slab;

	unsigned used;
	const void *free = km_debug_first_free(cache, slab, &used);

	say_tracks(about);
	km_warn("Slab %p objects=%u used=%u fp=%p flags=0x%x", km_page_address(slab), slab->objects, used, free,
		slab->flags);
	if (about->object)
		say_object(about);
	end();
}

void km_debug_report_block(const struct km_debug_block *block, const struct km_debug_region *region, const char *title)
{
	begin("large", title);
	if (region)
		say_region(region, block->at);
	if (block->marks) {
		say_track("Allocated", &block->marks[0]);
		say_track("Freed", &block->marks[1]);
	}
	km_warn("Block %p pages=%lu", block->at, (unsigned long)(block->bytes >> KM_PAGE_SHIFT));
	dump("Object", block->at, km_min(block->bytes, (size_t)DUMPED));
	if (region && region->bytes)
		dump("Redzone", region->at, km_min(region->bytes, (size_t)DUMPED));
	end();
}

void km_debug_report_restored(const struct kmem_cache *cache, const struct km_debug_region *region)
{
	unsigned char *from, *to;

	if (!km_debug_differs(region, &from, &to))
		return;
	if (region->unsealed)
		km_warn("FIX %s: Restoring %s %p-%p", cache->registry.name, region->what,
			(void *)from, (void *)(to - 1));
	else
		km_warn("FIX %s: Restoring %s %p-%p=0x%x", cache->registry.name, region->what,
			(void *)from, (void *)(to - 1), region->value);
}

void km_debug_report_fix(const struct kmem_cache *cache, const char *format, ...)
{
	va_list arguments;
	char fix[96];

	va_start(arguments, format);
	km_vformat(fix, sizeof(fix), format, arguments);
	va_end(arguments);
	km_warn("FIX %s: %s", cache->registry.name, fix);
}
