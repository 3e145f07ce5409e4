/*
 * stats_print.c: statistics as text: slabinfo 2.1 and JSON. Invariant: nothing is allocated, and the source of the
 * numbers is unknown here, so the tools use this file too.
 */
#include "stats_print.h"

#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"

#define MOST_AT_ONCE	512u	/* most bytes of one call of km_print */
#define ROW		1280u	/* most bytes of a cache in JSON, with two names of 31 escaped characters */

void km_print_flush(struct km_writer *writer)
{
	km_debug(writer->length <= sizeof(writer->text), "the text fits in the buffer");
	if (writer->length && !writer->error)
		writer->error = (writer->no_signal ? km_os_write_no_signal : km_os_write)(writer->fd, writer->text,
											  writer->length);
	writer->length = 0;
}

bool km_print_has_room(const struct km_writer *writer)
{
	return sizeof(writer->text) - writer->length >= ROW + MOST_AT_ONCE;
}

int km_print_end(struct km_writer *writer)
{
	km_print_flush(writer);
	return writer->error;
}

void km_print(struct km_writer *writer, const char *format, ...)
{
	__builtin_va_list arguments;

	if (sizeof(writer->text) - writer->length < MOST_AT_ONCE)
		km_print_flush(writer);
	__builtin_va_start(arguments, format);
	size_t length = km_vformat(writer->text + writer->length,
				   sizeof(writer->text) - writer->length, format, arguments);
	__builtin_va_end(arguments);
	km_debug(length < MOST_AT_ONCE, "a call prints at most a buffer of text");
	writer->length += length;
}

void km_print_bytes(struct km_writer *writer, const char *bytes, size_t count)
{
	while (count) {
		size_t now = km_min(count, sizeof(writer->text) - writer->length);

		km_debug(now, "a flushed buffer has room");
		__builtin_memcpy(writer->text + writer->length, bytes, now);
		writer->length += now;
		bytes += now;
		count -= now;
		if (writer->length == sizeof(writer->text))
			km_print_flush(writer);
	}
}

/* Names come from the user and are cut at a byte, so invalid UTF-8 and special characters are escaped. */
void km_print_string(struct km_writer *writer, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	km_print(writer, "\"");
	for (unsigned bytes; *at; at += bytes ?: 1) {
		bytes = km_utf8_bytes((const char *)at);
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

/* A number as text, or a dash. */
struct number {
	char text[24];
};

static struct number number(unsigned long n, unsigned long unknown)
{
	struct number number;

	if (n == unknown)
		km_format(number.text, sizeof(number.text), "-");
	else
		km_format(number.text, sizeof(number.text), "%lu", n);
	return number;
}
#define LONG(n) (number(n, KM_UNKNOWN).text)
#define INT(n) (number(n, (unsigned)KM_UNKNOWN).text)

size_t km_slabinfo_row(char *text, size_t bytes, const struct kmem_cache_stats *stats)
{
	size_t length = km_format(text, bytes, "%-17s %6s %6s %6u %4u %4s", stats->name,
				  LONG(stats->active_objects), LONG(stats->total_objects), stats->size,
				  stats->objects_per_slab, INT(stats->pages_per_slab));

	length += km_format(text + length, bytes - length, " : tunables %4s %4s %4s", INT(stats->limit),
			    INT(stats->batchcount), INT(stats->shared_factor));
	return length + km_format(text + length, bytes - length, " : slabdata %6s %6s %6s\n",
				  LONG(stats->active_slabs), LONG(stats->total_slabs),
				  LONG(stats->shared_avail));
}

const char km_slabinfo_head[] =
	"slabinfo - version: 2.1\n"
	"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
	" : tunables <limit> <batchcount> <sharedfactor>"
	" : slabdata <active_slabs> <num_slabs> <sharedavail>\n";

/* Print a key and its number, if known. `before` is the separator in front. */
static void print_long(struct km_writer *writer, const char *before, const char *key, unsigned long n)
{
	if (n != KM_UNKNOWN)
		km_print(writer, "%s \"%s\": %lu", before, key, n);
}

static void print_int(struct km_writer *writer, const char *key, unsigned n)
{
	if (n != (unsigned)KM_UNKNOWN)
		km_print(writer, ", \"%s\": %u", key, n);
}

void km_print_json_head(struct km_writer *writer, const struct km_print_process *process,
			const struct kmem_stats *s)
{
	km_debug(process->version && process->discipline && process->hardened, "each text of the process exists");
	km_print(writer, "{\"version\": ");
	km_print_string(writer, process->version);
	km_print(writer, ", \"pid\": %u, \"discipline\": ", process->pid);
	km_print_string(writer, process->discipline);
	km_print(writer, ", \"reason\": ");
	km_print_string(writer, process->reason);
	km_print(writer, ", \"hardened\": ");
	km_print_string(writer, process->hardened);
	print_long(writer, ",\n", "arena_reserved_bytes", s->arena_reserved_bytes);
	print_long(writer, ",", "arena_committed_bytes", s->arena_committed_bytes);
	print_long(writer, ",", "pages_used", s->pages_used);
	print_long(writer, ",", "pages_free_dirty", s->pages_free_dirty);
	print_long(writer, ",", "pages_free_clean", s->pages_free_clean);
	print_long(writer, ",\n", "large_blocks", s->large_blocks);
	print_long(writer, ",", "large_bytes", s->large_bytes);
	print_long(writer, ",", "mapped_blocks", s->mapped_blocks);
	print_long(writer, ",", "mapped_bytes", s->mapped_bytes);
	print_long(writer, ",", "meta_bytes", s->meta_bytes);
	print_long(writer, ",", "purged_pages", s->purged_pages);
	print_long(writer, ",\n", "slob_pages", s->slob_pages);
	print_long(writer, ",", "slob_bytes", s->slob_bytes);
	print_long(writer, ",\n", "nodes", s->nodes);
	print_long(writer, ",", "bind_failures", s->bind_failures);
	print_long(writer, ",", "mapped_spare_bytes", s->mapped_spare_bytes);
	print_long(writer, ",\n", "guard_objects", process->guard.objects);
	print_long(writer, ",", "guard_live", process->guard.live);
	print_long(writer, ",", "guard_samples", process->guard.samples);
	print_long(writer, ",", "guard_reports", process->guard.reports);
	print_long(writer, ",", "pages_mapped_ready", process->mapped_ready);
	print_long(writer, ",\n", "past_alloc_slab", process->past_new_slabs);
	print_long(writer, ",", "past_free_slab", process->past_freed_slabs);
	km_print(writer, ",\n \"caches\": [");
}

/* Begins an element of a JSON list, on a new line. */
static void begin_named(struct km_writer *writer, const char *name, bool first)
{
	km_print(writer, "%s\n  {\"name\": ", first ? "" : ",");
	km_print_string(writer, name);
}

void km_print_json_cache(struct km_writer *writer, const struct kmem_cache_stats *s, unsigned group, const char *of,
			 bool first)
{
	begin_named(writer, s->name, first);
	km_print(writer, ", \"engine\": ");
	km_print_string(writer, s->engine);
	print_int(writer, "object_size", s->object_size);
	print_int(writer, "size", s->size);
	print_int(writer, "objects_per_slab", s->objects_per_slab);
	print_int(writer, "pages_per_slab", s->pages_per_slab);
	print_int(writer, "sheaf_capacity", s->sheaf_capacity);
	print_long(writer, ",", "active_objects", s->active_objects);
	print_long(writer, ",", "total_objects", s->total_objects);
	print_long(writer, ",", "shelf_objects", s->shelf_objects);
	print_long(writer, ",", "active_slabs", s->active_slabs);
	print_long(writer, ",", "total_slabs", s->total_slabs);
	print_long(writer, ",", "partial_slabs", s->partial_slabs);
	print_long(writer, ",", "min_partial", s->min_partial);
	print_int(writer, "limit", s->limit);
	print_int(writer, "batchcount", s->batchcount);
	print_int(writer, "shared_factor", s->shared_factor);
	print_long(writer, ",", "shared_avail", s->shared_avail);
	print_long(writer, ",", "alloc_slab", s->alloc_slab);
	print_long(writer, ",", "free_slab", s->free_slab);
	if (group)
		km_print(writer, ", \"group\": %u", group);
	if (of) {
		km_print(writer, ", \"of\": ");
		km_print_string(writer, of);
	}
	km_print(writer, "}");
}

/* ------------------------------------------------------------------ groups */

const char *const km_memcg_event_names[MEMCG_NR_MEMORY_EVENTS] = {
	"low", "high", "max", "oom", "oom_kill", "oom_group_kill",
};

static void print_events(struct km_writer *writer, const char *key, const uint64_t *events)
{
	const char *before = "";

	km_print(writer, ", \"%s\": {", key);
	for (int i = 0; i < MEMCG_NR_MEMORY_EVENTS; i++)
		if (events[i] != KM_UNKNOWN) {
			km_print(writer, "%s\"%s\": %lu", before, km_memcg_event_names[i], (unsigned long)events[i]);
			before = ", ";
		}
	km_print(writer, "}");
}

static void print_limit(struct km_writer *writer, const char *key, uint64_t bytes)
{
	if (bytes == MEMCG_NO_LIMIT)
		km_print(writer, ", \"%s\": null", key);
	else if (bytes != KM_UNKNOWN_LIMIT)
		km_print(writer, ", \"%s\": %lu", key, (unsigned long)bytes);
}

void km_print_json_group(struct km_writer *writer, const struct km_group_stats *s, bool first)
{
	begin_named(writer, s->name, first);
	km_print(writer, ", \"depth\": %u", s->depth);
	if (s->number)
		km_print(writer, ", \"number\": %u", s->number);
	print_long(writer, ",", "current", s->current);
	print_long(writer, ",", "peak", s->peak);
	print_limit(writer, "max", s->max);
	print_limit(writer, "high", s->high);
	print_limit(writer, "low", s->low);
	print_limit(writer, "min", s->min);
	print_long(writer, ",", "failcnt", s->failcnt);
	print_long(writer, ",", "kmem", s->kmem);
	print_long(writer, ",", "stock", s->stock);
	print_long(writer, ",", "dying", s->dying);
	print_events(writer, "events", s->events);
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
