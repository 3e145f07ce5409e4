/*
 * print.c: numbers as text: slabinfo 2.1 and JSON. Invariant: allocates nothing, and knows nothing
 * of where the numbers come from, so the tools use it too.
 */
#include "print.h"

#include "../port/die.h"
#include "../port/os.h"

static void flush(struct km_writer *writer)
{
	if (writer->length && !writer->error)
		writer->error = km_os_write(writer->fd, writer->text, writer->length);
	writer->length = 0;
}

int km_print_end(struct km_writer *writer)
{
	flush(writer);
	return writer->error;
}

void km_print(struct km_writer *writer, const char *format, ...)
{
	__builtin_va_list arguments;

	if (sizeof(writer->text) - writer->length < 512)
		flush(writer);
	__builtin_va_start(arguments, format);
	writer->length += km_vformat(writer->text + writer->length,
				     sizeof(writer->text) - writer->length, format, arguments);
	__builtin_va_end(arguments);
}

/* Bytes of the UTF-8 sequence that begins here; 0: none does. */
static unsigned utf8_bytes(const unsigned char *text)
{
	unsigned bytes = *text < 0x80 ? 1 : *text >= 0xc2 && *text < 0xe0 ? 2 :
			 *text >= 0xe0 && *text < 0xf0 ? 3 : *text >= 0xf0 && *text < 0xf5 ? 4 : 0;

	for (unsigned i = 1; i < bytes; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	return bytes;
}

/* Names are the user's, and cut at a byte: what JSON does not take as it is becomes an escape. */
void km_print_string(struct km_writer *writer, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	km_print(writer, "\"");
	for (unsigned bytes; *at; at += bytes ?: 1) {
		bytes = utf8_bytes(at);
		if (*at < 0x20)
			km_print(writer, "\\u00%u%c", *at >> 4, "0123456789abcdef"[*at & 15]);
		else if (*at == '"' || *at == '\\')
			km_print(writer, "\\%c", *at);
		else if (!bytes)
			km_print(writer, "\\ufffd");
		else
			for (unsigned i = 0; i < bytes; i++)
				km_print(writer, "%c", at[i]);
	}
	km_print(writer, "\"");
}

size_t km_slabinfo_row(char *text, size_t bytes, const struct kmem_cache_stats *stats)
{
	return km_format(text, bytes,
			 "%-17s %6lu %6lu %6u %4u %4u : tunables %4u %4u %4u"
			 " : slabdata %6lu %6lu %6lu\n",
			 stats->name, stats->active_objects, stats->total_objects, stats->size,
			 stats->objects_per_slab, stats->pages_per_slab, stats->limit,
			 stats->batchcount, stats->shared_factor, stats->active_slabs,
			 stats->total_slabs, stats->shared_avail);
}

const char km_slabinfo_head[] =
	"slabinfo - version: 2.1\n"
	"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
	" : tunables <limit> <batchcount> <sharedfactor>"
	" : slabdata <active_slabs> <num_slabs> <sharedavail>\n";

void km_print_json_head(struct km_writer *writer, const struct km_print_process *process,
			const struct kmem_stats *s)
{
	km_print(writer, "{\"version\": ");
	km_print_string(writer, process->version);
	km_print(writer, ", \"pid\": %u, \"discipline\": ", process->pid);
	km_print_string(writer, process->discipline);
	km_print(writer, ", \"reason\": ");
	km_print_string(writer, process->reason);
	km_print(writer, ",\n \"arena_reserved_bytes\": %lu, \"arena_committed_bytes\": %lu,",
		 s->arena_reserved_bytes, s->arena_committed_bytes);
	km_print(writer,
		 " \"pages_used\": %lu, \"pages_free_dirty\": %lu, \"pages_free_clean\": %lu,\n",
		 s->pages_used, s->pages_free_dirty, s->pages_free_clean);
	km_print(writer, " \"large_blocks\": %lu, \"large_bytes\": %lu, \"mapped_blocks\": %lu,",
		 s->large_blocks, s->large_bytes, s->mapped_blocks);
	km_print(writer,
		 " \"mapped_bytes\": %lu, \"meta_bytes\": %lu, \"purged_pages\": %lu,\n",
		 s->mapped_bytes, s->meta_bytes, s->purged_pages);
	km_print(writer, " \"slob_pages\": %lu, \"slob_bytes\": %lu,\n", s->slob_pages, s->slob_bytes);
	km_print(writer, " \"nodes\": %lu, \"bind_failures\": %lu,\n \"caches\": [", s->nodes,
		 s->bind_failures);
}

void km_print_json_cache(struct km_writer *writer, const struct kmem_cache_stats *s, bool first)
{
	km_print(writer, "%s\n  {\"name\": ", first ? "" : ",");
	km_print_string(writer, s->name);
	km_print(writer, ", \"engine\": ");
	km_print_string(writer, s->engine);
	km_print(writer, ", \"object_size\": %u, \"size\": %u,", s->object_size, s->size);
	km_print(writer,
		 " \"objects_per_slab\": %u, \"pages_per_slab\": %u, \"sheaf_capacity\": %u,",
		 s->objects_per_slab, s->pages_per_slab, s->sheaf_capacity);
	km_print(writer,
		 " \"active_objects\": %lu, \"total_objects\": %lu, \"shelf_objects\": %lu,",
		 s->active_objects, s->total_objects, s->shelf_objects);
	km_print(writer, " \"active_slabs\": %lu, \"total_slabs\": %lu, \"partial_slabs\": %lu, \"min_partial\": %lu,",
		 s->active_slabs, s->total_slabs, s->partial_slabs, s->min_partial);
	km_print(writer, " \"limit\": %u, \"batchcount\": %u, \"shared_factor\": %u, \"shared_avail\": %lu,",
		 s->limit, s->batchcount, s->shared_factor, s->shared_avail);
	km_print(writer, " \"alloc_slab\": %lu, \"free_slab\": %lu}", s->alloc_slab, s->free_slab);
}

/* ------------------------------------------------------------------ groups */

const char *const km_memcg_event_names[MEMCG_NR_MEMORY_EVENTS] = {
	"low", "high", "max", "oom", "oom_kill", "oom_group_kill",
};

static void print_events(struct km_writer *writer, const char *key, const uint64_t *events)
{
	km_print(writer, " \"%s\": {", key);
	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++)
		km_print(writer, "%s\"%s\": %lu", i ? ", " : "", km_memcg_event_names[i],
			 (unsigned long)events[i]);
	km_print(writer, "}");
}

static void print_limit(struct km_writer *writer, const char *key, uint64_t bytes)
{
	if (bytes == MEMCG_NO_LIMIT)
		km_print(writer, " \"%s\": null,", key);
	else
		km_print(writer, " \"%s\": %lu,", key, (unsigned long)bytes);
}

void km_print_json_group(struct km_writer *writer, const struct km_group_stats *s, bool first)
{
	km_print(writer, "%s\n  {\"name\": ", first ? "" : ",");
	km_print_string(writer, s->name);
	km_print(writer, ", \"depth\": %u, \"current\": %lu, \"peak\": %lu,", s->depth,
		 (unsigned long)s->current, (unsigned long)s->peak);
	print_limit(writer, "max", s->max);
	print_limit(writer, "high", s->high);
	print_limit(writer, "low", s->low);
	print_limit(writer, "min", s->min);
	km_print(writer, " \"failcnt\": %lu, \"kmem\": %lu, \"stock\": %lu, \"dying\": %lu,",
		 (unsigned long)s->failcnt, (unsigned long)s->kmem, (unsigned long)s->stock,
		 (unsigned long)s->dying);
	print_events(writer, "events", s->events);
	km_print(writer, ",");
	print_events(writer, "events_local", s->local);
	km_print(writer, "}");
}

void km_print_json_groups(struct km_writer *writer)
{
	km_print(writer, "\n ],\n \"groups\": [");
}

void km_print_json_tail(struct km_writer *writer)
{
	km_print(writer, "\n ]}\n");
}
