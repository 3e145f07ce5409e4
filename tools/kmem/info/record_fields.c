/*
 * record_fields.c: convert structures of a process to the command's copies (info/record_copies.h), field by field.
 * Names in the process's own table (struct kmem_record_field) match the fields. Unknown fields are skipped. Missing
 * fields are zero, and layout_has reports them. Invariant: the target's table is not trusted.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "info/info.h"
#include "command.h"

#define MAX_FIELDS	4096u		/* in a target's table */
#define MAX_BYTES	65536u		/* of a target's structure */
#define AT_ONCE		((size_t)1 << 20)	/* bytes read at a time */

static const char *const ops_names[INFO_OPS] = {
	[INFO_ROOT] = "root", [INFO_PERCPU] = "percpu", [INFO_RANGE] = "range", [INFO_PAGE] = "page",
	[INFO_ZONE] = "zone", [INFO_ENGINE] = "engine", [INFO_NODE] = "node", [INFO_CHAIN] = "chain",
	[INFO_CACHE] = "cache", [INFO_BIG] = "big", [INFO_CACHED_ENTRY] = "parked", [INFO_SPAN] = "span",
	[INFO_VIEW] = "view", [INFO_GROUP] = "group", [INFO_OBJCG] = "objcg", [INFO_STOCK] = "stock",
	[INFO_POOL] = "pool", [INFO_SHEAF] = "sheaf", [INFO_REMOTE] = "remote", [INFO_SLAB] = "slab",
	[INFO_ALIEN] = "alien", [INFO_SLUB] = "slub", [INFO_SLOT] = "slot", [INFO_EVENTS] = "events",
	[INFO_GRACE] = "grace", [INFO_WAITING] = "waiting", [INFO_RCU_BLOCK] = "rcublock",
};

/* ------------------------------------------------------------------ the table */

static const struct kmem_record_field *find(const struct kmem_record_field *fields, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(fields[i].name, name))
			return &fields[i];
	return NULL;
}

/* Returns: length of the name before the dot; 0: the name of a structure, without a dot. */
static size_t kind_bytes(const char *name)
{
	const char *dot = strchr(name, '.');

	return dot ? (size_t)(dot - name) : 0;
}

/* Returns: true if the field is readable: inside its structure, and made of integers of 1, 2, 4 or 8 bytes. */
static bool is_sane(const struct kmem_record_field *field, size_t bytes)
{
	bool integer = field->each == 1 || field->each == 2 || field->each == 4 || field->each == 8;

	return integer && field->count && field->count <= MAX_BYTES && field->offset <= bytes &&
	       (uint64_t)field->each * field->count <= bytes - field->offset;
}

static struct ops *ops_called(struct layout *layout, const char *name)
{
	unsigned which = 0;

	while (strcmp(ops_names[which], name))
		which++;
	return &layout->ops[which];
}

/* Find the target's place of each field that the command reads. */
static void place(struct layout *layout, const struct rec_table *table, const struct kmem_record_field *theirs,
		  size_t their_count)
{
	const struct kmem_record_field *ours = table->fields;
	struct ops *ops = NULL;

	for (size_t i = 0; i < table->count && layout->places < INFO_MAX_PLACES; i++) {
		const struct kmem_record_field *field = find(theirs, their_count, ours[i].name);
		struct info_place *at = &layout->place[layout->places];

		if (!kind_bytes(ours[i].name)) {
			ops = ops_called(layout, ours[i].name);
			*ops = (struct ops){
				.ours = ours[i].offset, .first = layout->places, .end = layout->places,
			};
			if (field && field->offset && field->offset <= MAX_BYTES)
				ops->theirs = field->offset;
			ops->same = ops->ours == ops->theirs;
			continue;
		}
		*at = (struct info_place){ .ours = &ours[i] };
		layout->places++;
		if (!ours[i].each) {
			at->has = field != NULL;
			at->theirs.offset = field ? field->offset : 0;
			continue;
		}
		at->has = field && is_sane(field, ops->theirs);
		if (at->has)
			at->theirs = *field;
		ops->same &= at->has && field->offset == ours[i].offset && field->each == ours[i].each &&
			       field->count == ours[i].count;
		ops->end = layout->places;
	}
}

bool layout_load(struct target *target, struct layout *layout, const struct rec_table *ours,
		 const struct kmem_record_field *from, size_t count)
{
	if (!count || count > MAX_FIELDS)
		return target_torn(target);
	struct kmem_record_field *theirs = kmem_need(calloc(count, sizeof(*theirs)));
	bool ok = target_read(target, theirs, from, count * sizeof(*theirs));
	for (size_t i = 0; i < count; i++)
		theirs[i].name[KMEM_RECORD_FIELD_BYTES - 1] = '\0';
	if (ok)
		place(layout, ours, theirs, count);
	free(theirs);
	return ok;
}

bool layout_load_engine(struct target *target, struct layout *layout, const char *name, const struct rec_engine *engine)
{
	const struct rec_table *ours = rec_engine_table(name);

	if (!ours || !engine->fields || ops_called(layout, name)->theirs)
		return true;
	return layout_load(target, layout, ours, engine->fields, engine->field_count);
}

static const struct info_place *find_place(const struct layout *layout, const char *name, size_t bytes)
{
	for (unsigned i = 0; i < layout->places; i++) {
		const struct info_place *at = &layout->place[i];

		if (!strncmp(at->ours->name, name, bytes) && !at->ours->name[bytes])
			return at;
	}
	return NULL;
}

bool layout_has(const struct layout *layout, const char *names)
{
	for (size_t bytes; *names; names += bytes + (names[bytes] == ' ')) {
		bytes = strcspn(names, " ");
		const struct info_place *at = find_place(layout, names, bytes);

		if (!at || !at->has)
			return false;
	}
	return true;
}

uint64_t layout_offset(const struct layout *layout, const char *name)
{
	const struct info_place *at = find_place(layout, name, strlen(name));

	return at && at->has ? at->theirs.offset : 0;
}

/* ------------------------------------------------------------------ structures */

static uint64_t load(const char *from, size_t bytes)
{
	uint64_t n = 0;

	memcpy(&n, from, bytes);	/* all supported machines are little-endian */
	return n;
}

/* Convert a field's integers to the command's width. A number too large for the width becomes all ones. */
static void move_field(const struct info_place *at, char *to, const char *from)
{
	size_t count = at->theirs.count < at->ours->count ? at->theirs.count : at->ours->count;

	if (at->theirs.each == at->ours->each) {
		memcpy(to + at->ours->offset, from + at->theirs.offset, count * at->ours->each);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t n = load(from + at->theirs.offset + i * at->theirs.each, at->theirs.each);

		if (at->ours->each < 8 && n >> (8 * at->ours->each))
			n = UINT64_MAX;
		memcpy(to + at->ours->offset + i * at->ours->each, &n, at->ours->each);
	}
}

void layout_take(const struct layout *layout, enum info_ops which, void *to, const void *from)
{
	const struct ops *ops = &layout->ops[which];

	memset(to, 0, ops->ours);
	for (unsigned i = ops->first; i < ops->end; i++)
		if (layout->place[i].has)
			move_field(&layout->place[i], to, from);
}

size_t layout_bytes(const struct layout *layout, enum info_ops which)
{
	return layout->ops[which].theirs;
}

bool target_structs(struct target *target, const struct layout *layout, enum info_ops which, void *to,
		    const void *from, size_t count)
{
	const struct ops *ops = &layout->ops[which];

	if (!ops->theirs || ops->same) {
		if (!ops->theirs)
			memset(to, 0, count * ops->ours);
		return !ops->theirs || target_read(target, to, from, count * ops->ours);
	}
	const size_t most = AT_ONCE / ops->theirs;
	char *raw = kmem_need(malloc((count < most ? count : most) * ops->theirs + 1));
	bool ok = true;
	for (size_t at = 0; ok && at < count; at += most) {
		size_t now = count - at < most ? count - at : most;

		ok = target_read(target, raw, (const char *)from + at * ops->theirs, now * ops->theirs);
		for (size_t i = 0; ok && i < now; i++)
			layout_take(layout, which, (char *)to + (at + i) * ops->ours, raw + i * ops->theirs);
	}
	free(raw);
	return ok;
}

bool target_struct(struct target *target, const struct layout *layout, enum info_ops which, void *to,
		   const void *from)
{
	return target_structs(target, layout, which, to, from, 1);
}
