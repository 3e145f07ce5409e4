/*
 * malloc_jemalloc.c: jemalloc's non-standard interface over libkmem's malloc, for programs linked with jemalloc:
 * redis, valkey, bind9, haproxy. Written from jemalloc's manual page. Invariant: blocks of mallocx and blocks of
 * malloc are the same; free, realloc and malloc_usable_size accept both. Arenas and thread caches are numbers without
 * a function: destroying an arena frees nothing.
 */
#include <errno.h>
#include <string.h>

#include <kmem/stats.h>

#include "os/die.h"
#include "os/os.h"
#include "alloc/tracer.h"
#include "os/stderr.h"
#include "page/arena.h"
#include "inspect/stats_print.h"
#include "malloc.h"

/* flags: bits 0 to 5 are the binary logarithm of the alignment. The bits of arenas and thread caches are ignored. */
#define ALIGN(flags)	((size_t)1 << ((flags) & 0x3f))
#define ZERO		0x40

/* ------------------------------------------------------------------ blocks */

/* Zeroes the block unless its pages are fresh. Tells heaptrack, because heaptrack does not wrap these functions. */
static km_noinline void *get(size_t size, int flags)
{
	const bool pages = flags & ZERO && size > KM_MALLOC_MAX_SMALL && ALIGN(flags) <= KM_MALLOC_ALIGN;

	km_malloc_note_site((uintptr_t)__builtin_return_address(0));
	void *p = pages ? km_malloc_calloc(1, size) : km_malloc_aligned(ALIGN(flags), size);
	km_malloc_note_site(0);
	km_debug(!((uintptr_t)p & (ALIGN(flags) - 1)), "a block has the requested alignment, and a failure is NULL");
	if (km_unlikely(km_load(&km_alloc_probing)))
		km_tracer_comes(p, size);
	return p && flags & ZERO && !pages ? memset(p, 0, size) : p;
}

KMEM_API km_hit_path void *mallocx(size_t size, int flags)
{
	void *p = km_malloc_hit(km_malloc_aligned_size(ALIGN(flags), size));

	if (km_unlikely(!p))
		return get(size, flags);
	km_debug(!((uintptr_t)p & (ALIGN(flags) - 1)), "a hit has the requested alignment");
	return flags & ZERO ? memset(p, 0, size) : p;
}

KMEM_API size_t sallocx(const void *p, int flags km_unused)
{
	return km_malloc_usable(p, "sallocx");
}

KMEM_API void dallocx(void *p, int flags km_unused)
{
	if (km_unlikely(!km_free_any(p)))
		km_malloc_free_miss(p, "dallocx");
}

KMEM_API void sdallocx(void *p, size_t size, int flags)
{
	if (km_unlikely(!km_alloc_push_any(p)))
		km_malloc_free_sized_miss(p, ALIGN(flags), size, "sdallocx", __builtin_return_address(0));
}

/* A size of 0 counts as 1, because realloc would free the block. With ZERO, bytes beyond the old size become zeros. */
KMEM_API void *rallocx(void *p, size_t size, int flags)
{
	const bool aligned = ALIGN(flags) > KM_MALLOC_ALIGN;
	const size_t old = aligned || flags & ZERO ? sallocx(p, flags) : 0;
	void *moved = aligned ? get(size ?: 1, flags & ~ZERO) : km_malloc_realloc(p, size ?: 1);

	if (moved && aligned) {
		memcpy(moved, p, km_min(size, old));
		dallocx(p, flags);
	}
	km_debug(!moved || sallocx(moved, flags) >= size, "a block has the requested bytes");
	const size_t have = moved && flags & ZERO ? sallocx(moved, flags) : 0;
	if (have > old)
		memset((char *)moved + old, 0, have - old);
	return moved;
}

/* Blocks are never resized in place, which the interface allows. Returns the usable size. */
KMEM_API size_t xallocx(void *p, size_t size km_unused, size_t extra km_unused, int flags)
{
	return sallocx(p, flags);
}

/* Returns: the size of a block for this request, at least: malloc chooses the cache of a size at the first request. */
KMEM_API size_t nallocx(size_t size, int flags)
{
	return km_max(size, ALIGN(flags)) <= PTRDIFF_MAX ? size : 0;
}

/* ------------------------------------------------------------------ mallctl */

enum value {
	NOTHING,	/* a write is accepted and ignored */
	PURGE,		/* purges the free memory, as kmem_shrink_all */
	VERSION, EPOCH, NONE, ONE, PAGE, ALLOCATED, ACTIVE, ACTIVE_PAGES, RESIDENT
};

/* `name`: # stands for a number. `bytes`: size of the value. */
static const struct control {
	const char *name;
	uint8_t bytes, value;
} controls[] = {
	{ "version", sizeof(char *), VERSION },
	{ "epoch", sizeof(uint64_t), EPOCH },
	{ "arenas.page", sizeof(size_t), PAGE },
	{ "arenas.nbins", sizeof(unsigned), NONE },
	{ "arenas.narenas", sizeof(unsigned), ONE },
	{ "arenas.create", sizeof(unsigned), ONE },
	{ "arenas.dirty_decay_ms", sizeof(ptrdiff_t), NOTHING },
	{ "arenas.muzzy_decay_ms", sizeof(ptrdiff_t), NOTHING },
	{ "arena.#.dirty_decay_ms", sizeof(ptrdiff_t), NOTHING },
	{ "arena.#.muzzy_decay_ms", sizeof(ptrdiff_t), NOTHING },
	{ "arena.#.purge", 0, PURGE },
	{ "arena.#.decay", 0, PURGE },
	{ "arena.#.destroy", 0, NOTHING },
	{ "tcache.create", sizeof(unsigned), NONE },
	{ "tcache.flush", sizeof(unsigned), NOTHING },
	{ "tcache.destroy", sizeof(unsigned), NOTHING },
	{ "thread.tcache.flush", 0, NOTHING },
	{ "stats.allocated", sizeof(size_t), ALLOCATED },
	{ "stats.active", sizeof(size_t), ACTIVE },
	{ "stats.resident", sizeof(size_t), RESIDENT },
	{ "stats.retained", sizeof(size_t), NONE },
	{ "stats.arenas.#.pactive", sizeof(size_t), ACTIVE_PAGES },
	{ "stats.arenas.#.pmuzzy", sizeof(size_t), NONE },
	{ "stats.arenas.#.small.allocated", sizeof(size_t), ALLOCATED },
	{ "stats.arenas.#.large.allocated", sizeof(size_t), NONE },
};
#define MOST_PARTS	5u	/* most parts of a name, separated by dots */
#define ALL_ARENAS	4096u

static size_t figure(enum value value)
{
	struct kmem_stats stats;

	km_debug(value >= ALLOCATED, "the other values are not numbers");
	kmem_get_stats(&stats);
	const size_t active = stats.pages_used * KM_PAGE_SIZE + stats.mapped_bytes;
	if (value == ALLOCATED)
		return km_min(km_malloc_used(&stats) + stats.mapped_bytes, active);
	/* An upper bound, as jemalloc's: parts may never have been touched. */
	if (value == RESIDENT)
		return active + stats.pages_free_dirty * KM_PAGE_SIZE + stats.meta_bytes +
		       stats.arena_committed_bytes / KM_PAGE_SIZE * sizeof(struct km_page);
	return value == ACTIVE ? active : active / KM_PAGE_SIZE;
}

/* Returns: the value of a statistic; all memory counts as arena 0's. */
static size_t answer(enum value value, size_t arena)
{
	switch (value) {
	case VERSION:
		return (size_t)"5.3.0 (libkmem " KMEM_VERSION ")";
	case EPOCH: case ONE:
		return 1;
	case PAGE:
		return KM_PAGE_SIZE;
	case ALLOCATED: case ACTIVE: case ACTIVE_PAGES: case RESIDENT:
		return arena == 0 || arena == ALL_ARENAS ? figure(value) : 0;
	default:
		return 0;
	}
}

/* Returns the number of parts of `name`, and stores the numbers in mib; 0: the name does not match the pattern. */
static size_t match(const char *pattern, const char *name, size_t *mib)
{
	size_t part = 0;

	for (; *pattern; pattern++) {
		km_debug(part < MOST_PARTS, "a name has a few parts");
		if (*pattern == '#') {
			if (*name < '0' || *name > '9')
				return 0;
			for (mib[part] = 0; *name >= '0' && *name <= '9'; name++)
				mib[part] = mib[part] * 10 + (size_t)(*name - '0');
		} else {
			if (*pattern != *name++)
				return 0;
			part += *pattern == '.';
		}
	}
	return *name ? 0 : part + 1;
}

/* Translates a name into mib: mib[0] is the index in `controls`, then the numbers in the name. */
KMEM_API int mallctlnametomib(const char *name, size_t *mib, size_t *length)
{
	size_t found[MOST_PARTS] = { 0 }, parts;

	for (size_t i = 0; i < km_array_count(controls); i++) {
		if (!(parts = match(controls[i].name, name, found)))
			continue;
		found[0] = i;
		*length = km_min(*length, parts);
		memcpy(mib, found, *length * sizeof(*mib));
		return 0;
	}
	return ENOENT;
}

KMEM_API int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_bytes, const void *new,
			  size_t new_bytes)
{
	if (!length || mib[0] >= km_array_count(controls))
		return ENOENT;
	const struct control *control = &controls[mib[0]];
	const bool reads = control->value > PURGE;

	km_debug(control->bytes <= sizeof(size_t), "a value is a word at most");
	if ((old && old_bytes && !reads) || (new && (control->value != EPOCH && (reads || !control->bytes))))
		return EPERM;
	if ((old && old_bytes && *old_bytes != control->bytes) || (new && new_bytes != control->bytes))
		return EINVAL;
	if (control->value == PURGE)
		kmem_shrink_all();
	if (old && old_bytes) {
		const size_t value = answer(control->value, length > 2 ? mib[2] : 0);

		memcpy(old, &value, control->bytes);
	}
	return 0;
}

KMEM_API int mallctl(const char *name, void *old, size_t *old_bytes, const void *new, size_t new_bytes)
{
	size_t mib[MOST_PARTS], parts = MOST_PARTS;
	int error = mallctlnametomib(name, mib, &parts);

	return error ?: mallctlbymib(mib, parts, old, old_bytes, new, new_bytes);
}

/* ------------------------------------------------------------------ statistics as text */

typedef void write_fn(void *opaque, const char *text);

struct printed {
	write_fn *write;
	void *opaque;
};

static void write_stderr(void *opaque km_unused, const char *text)
{
	int fd = km_stderr(true);

	if (fd >= 0)
		km_os_write(fd, text, strlen(text));
}

static void print_row(const struct kmem_cache_stats *stats, void *arg)
{
	const struct printed *printed = arg;
	char text[512];

	km_slabinfo_row(text, sizeof(text), stats);
	printed->write(printed->opaque, text);
}

/* Writes the totals, and the caches in the format of slabinfo. The options are ignored. */
KMEM_API void malloc_stats_print(write_fn *write, void *opaque, const char *options km_unused)
{
	struct printed printed = { .write = write ?: write_stderr, .opaque = opaque };
	char text[256];

	km_format(text, sizeof(text), "libkmem " KMEM_VERSION ": allocated %lu, active %lu, resident %lu\n",
		  figure(ALLOCATED), figure(ACTIVE), figure(RESIDENT));
	printed.write(opaque, text);
	printed.write(opaque, km_slabinfo_head);
	km_malloc_rows(print_row, &printed);
}
