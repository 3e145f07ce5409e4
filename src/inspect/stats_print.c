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

/* Print members of the structure `s`: a key is the member's name. LINE begins a line of the text. */
#define LINE_OF(member)	 print_long(writer, ",\n", #member, s->member);
#define LONG_OF(member)	 print_long(writer, ",", #member, s->member);
#define INT_OF(member)	 print_int(writer, #member, s->member);
#define LIMIT_OF(member) print_limit(writer, #member, s->member);

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
	LINE_OF(arena_reserved_bytes) LONG_OF(arena_committed_bytes)
	LONG_OF(pages_used) LONG_OF(pages_free_dirty) LONG_OF(pages_free_clean)
	LINE_OF(large_blocks) LONG_OF(large_bytes) LONG_OF(mapped_blocks) LONG_OF(mapped_bytes)
	LONG_OF(meta_bytes) LONG_OF(purged_pages)
	LINE_OF(slob_pages) LONG_OF(slob_bytes)
	LINE_OF(nodes) LONG_OF(bind_failures) LONG_OF(mapped_spare_bytes)
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
	INT_OF(object_size) INT_OF(size) INT_OF(objects_per_slab) INT_OF(pages_per_slab) INT_OF(sheaf_capacity)
	LONG_OF(active_objects) LONG_OF(total_objects) LONG_OF(shelf_objects)
	LONG_OF(active_slabs) LONG_OF(total_slabs) LONG_OF(partial_slabs) LONG_OF(min_partial)
	INT_OF(limit) INT_OF(batchcount) INT_OF(shared_factor) LONG_OF(shared_avail)
	LONG_OF(alloc_slab) LONG_OF(free_slab)
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
	LONG_OF(current) LONG_OF(peak)
	LIMIT_OF(max) LIMIT_OF(high) LIMIT_OF(low) LIMIT_OF(min)
	LONG_OF(failcnt) LONG_OF(kmem) LONG_OF(stock) LONG_OF(dying)
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
