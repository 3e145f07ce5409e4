/*
 * malloc_info.c: malloc's own statistics, and the accepted parameters of mallopt. Invariant: no allocation depends on
 * this file; the figures are those of the statistics, in the forms of glibc's manual.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <kmem/stats.h>

#include "os/die.h"
#include "os/os.h"
#include "os/stderr.h"
#include "base/text.h"
#include "malloc.h"

static int add_used(struct kmem_cache *cache, void *arg)
{
	struct kmem_cache_stats stats;
	size_t *bytes = arg;

	kmem_cache_get_stats(cache, &stats);
	/* Skip a cache in shared pages: the shared pages are counted elsewhere, to the byte. */
	if (!cache->layout.engine->shared_pages || stats.total_slabs)
		*bytes += stats.active_objects * stats.size;
	return 0;
}

size_t km_malloc_used(const struct kmem_stats *stats)
{
	size_t bytes = stats->large_bytes - stats->mapped_bytes + stats->slob_bytes;

	kmem_for_each_cache(add_used, &bytes);
	return bytes;
}

/* Collect the rows first: `see` may allocate, and an allocation may need the registry's lock, held during a visit. */
struct rows {
	struct kmem_cache_stats *row;
	size_t count, room;
};

static int collect_row(struct kmem_cache *cache, void *arg)
{
	struct rows *rows = arg;

	if (rows->count < rows->room)
		kmem_cache_get_stats(cache, &rows->row[rows->count++]);
	return 0;
}

void km_malloc_rows(void (*see)(const struct kmem_cache_stats *row, void *arg), void *arg)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	struct rows rows = { .room = stats.caches + KM_MALLOC_CLASSES };
	rows.row = calloc(rows.room, sizeof(*rows.row));
	if (!rows.row)
		return;
	/* Free the rows also if the thread is cancelled while it prints. */
	pthread_cleanup_push(free, rows.row);
	kmem_for_each_cache(collect_row, &rows);
	for (size_t i = 0; i < rows.count; i++)
		see(&rows.row[i], arg);
	pthread_cleanup_pop(true);
}

/* The functions below are glibc's only. */
#ifdef __GLIBC__

/* arena: pages in use, or free and not yet given back, touched or not; uordblks: bytes of them held by users;
 * hblk*: separate mappings. */
KMEM_API struct mallinfo2 mallinfo2(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	size_t arena = (stats.pages_used + stats.pages_free_dirty) * KM_PAGE_SIZE;
	size_t used = km_min(km_malloc_used(&stats), arena);

	return (struct mallinfo2){
		.arena = arena,
		.ordblks = stats.caches,
		.hblks = stats.mapped_blocks,
		.hblkhd = stats.mapped_bytes,
		.uordblks = used,
		.fordblks = arena - used,
		.keepcost = stats.pages_free_dirty * KM_PAGE_SIZE,
	};
}

KMEM_API struct mallinfo mallinfo(void)
{
	struct mallinfo2 info = mallinfo2();

#define AS_INT(member) .member = (int)km_min(info.member, (size_t)INT_MAX)
	return (struct mallinfo){
		AS_INT(arena), AS_INT(ordblks), AS_INT(hblks), AS_INT(hblkhd),
		AS_INT(uordblks), AS_INT(fordblks), AS_INT(keepcost),
	};
}

static void print_size(const struct kmem_cache_stats *s, void *stream)
{
	char one[8];

	if (!s->total_slabs && !s->active_objects)
		return;
	fputs("  <size name=\"", stream);
	for (const char *at = s->name; *at;)
		fputs(km_text_xml(&at, one), stream);
	fprintf(stream, "\" bytes=\"%u\" active=\"%lu\" total=\"%lu\" slabs=\"%lu\"/>\n", s->size, s->active_objects,
		s->total_objects, s->total_slabs);
}

KMEM_API int malloc_info(int options, FILE *stream)
{
	struct mallinfo2 info = mallinfo2();

	if (options)
		return EINVAL;
	fprintf(stream, "<malloc version=\"libkmem-%s\">\n<heap nr=\"0\">\n<sizes>\n", KMEM_VERSION);
	km_malloc_rows(print_size, stream);
	fprintf(stream,
		"</sizes>\n<system type=\"current\" size=\"%zu\"/>\n<total type=\"rest\" size=\"%zu\"/>\n"
		"<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n</heap>\n</malloc>\n",
		info.arena, info.fordblks, info.hblks, info.hblkhd);
	return 0;
}

KMEM_API void malloc_stats(void)
{
	struct mallinfo2 info = mallinfo2();
	char text[256];
	size_t length = km_format(text, sizeof(text),
				  "libkmem: system bytes %lu, in use bytes %lu, mapped bytes %lu\n",
				  info.arena + info.hblkhd, info.uordblks + info.hblkhd,
				  info.hblkhd);

	/* Writes to the standard error of the process's start, never into a data file under descriptor 2. */
	int fd = km_stderr(true);

	if (fd < 0)
		return;
	km_os_write(fd, text, length);
	kmem_print_slabinfo(fd);
}

/* Free memory goes back to the system; there is no heap top to leave `pad` bytes at. */
KMEM_API int malloc_trim(size_t pad km_unused)
{
	return kmem_shrink_all() > 0;
}

/* Accept parameters that may be ignored without harm: libkmem does not depend on them. */
KMEM_API int mallopt(int parameter, int value km_unused)
{
	switch (parameter) {
	case M_MXFAST: case M_TRIM_THRESHOLD: case M_TOP_PAD: case M_MMAP_THRESHOLD:
	case M_MMAP_MAX: case M_ARENA_TEST: case M_ARENA_MAX: case M_CHECK_ACTION:
		return 1;
	default:
		return 0;
	}
}

#endif
