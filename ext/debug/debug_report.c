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

#define DUMPED	128u			/* most bytes of an object in a dump */
#define LINE	16u
#define PATIENT	1000u			/* waits of 2 ms for another thread's report */

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
	/* Say that the mark is overwritten, and print it: its content may still help. */
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

void km_debug_misuse(const struct km_debug_about *about, const char *function)
{
	km_misuse_of(KM_MISUSE_OVERWRITTEN, function, about->object ?: km_page_address(about->slab),
		     about->cache->registry.name, NULL, about->cache->layout.flags & SLAB_STORE_USER);
}

void km_debug_report_begin(const struct km_debug_about *about, const char *title)
{
	begin(about->cache->registry.name, title);
}

void km_debug_report_region(const struct km_debug_region *region, const void *start)
{
	unsigned char *from, *to;
	char found[64] = "";

	if (!km_debug_differs(region, &from, &to))
		return;
	km_debug(from < to && from >= region->at && to <= region->at + region->bytes,
		 "a damage is inside of its region");
	unsigned long offset = (unsigned long)(from - (const unsigned char *)start);
	if (region->wanted)
		km_format(found, sizeof(found), ". 0x%lx instead of 0x%lx", region->found, region->wanted);
	else if (!region->unsealed)
		km_format(found, sizeof(found), ". First byte 0x%x instead of 0x%x", *from, region->value);
	km_warn("[%s overwritten] %p-%p @offset=%lu%s", region->what, (void *)from, (void *)(to - 1), offset, found);
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
	const unsigned tracks = cache->layout.flags & SLAB_STORE_USER ? 2 : 0;
	unsigned char *padding = (unsigned char *)(km_debug_marks(cache, object) + tracks);
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
	struct km_page *slab = about->slab;
	unsigned used;
	const void *free = km_debug_first_free(about->cache, slab, &used);

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
		km_debug_report_region(region, block->at);
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
	char value[8] = "";

	if (!km_debug_differs(region, &from, &to))
		return;
	if (!region->unsealed)
		km_format(value, sizeof(value), "=0x%x", region->value);
	km_warn("FIX %s: Restoring %s %p-%p%s", cache->registry.name, region->what,
		(void *)from, (void *)(to - 1), value);
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
