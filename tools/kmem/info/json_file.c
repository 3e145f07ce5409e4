/*
 * json_file.c: read the library's JSON into a snapshot. The parser accepts any JSON and skips unknown keys, so that
 * files of later versions can be read as well. Invariant: the file is not trusted. Depth, size and counts have
 * limits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "info/info.h"
#include "command.h"

#define MAX_DEPTH 16u
#define MAX_BYTES ((size_t)256 << 20)

struct json {
	const char *text, *at;
	bool bad, too_many;
	struct snapshot *snapshot;
	bool has_caches, has_version;
};

/* Handle one member of an object. The function must consume the member's value. */
typedef void member_fn(struct json *json, const char *key, void *arg, unsigned depth);

static void skip_value(struct json *json, unsigned depth);

static void space(struct json *json)
{
	json->at += strspn(json->at, " \t\r\n");
}

static bool take(struct json *json, char c)
{
	space(json);
	if (*json->at != c)
		return false;
	json->at++;
	return true;
}

static void want(struct json *json, char c)
{
	if (!take(json, c))
		json->bad = true;
}

/* Parse four hexadecimal digits. Returns: false on any other character. */
static bool four_digits(struct json *json, unsigned *code)
{
	*code = 0;
	for (unsigned i = 0; i < 4; i++) {
		char c = json->at[i];

		if (c >= '0' && c <= '9')
			*code = *code << 4 | (unsigned)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			*code = *code << 4 | (unsigned)((c | 0x20) - 'a' + 10);
		else
			return false;
	}
	json->at += 4;
	return true;
}

/* Parse one escape, after the backslash. Characters outside printable ASCII become '?'. */
static char unescape(struct json *json)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char c = *json->at++;
	const char *known = c ? strchr(from, c) : NULL;
	unsigned code;

	if (known)
		return to[known - from];
	if (c == 'u' && four_digits(json, &code))
		return code >= 0x20 && code < 0x7f ? (char)code : '?';
	json->bad = true;
	json->at--;
	return '?';
}

/* Parse a string, cut to fit, and make all characters printable: a hostile file must not control the terminal. `to`
 * may be NULL with bytes 0. */
static void string(struct json *json, char *to, size_t bytes)
{
	size_t length = 0;

	want(json, '"');
	while (!json->bad && *json->at && *json->at != '"') {
		char c = *json->at++;

		if (c == '\\')
			c = unescape(json);
		if (length + 1 < bytes)
			to[length++] = c;
	}
	if (bytes) {
		to[length] = '\0';
		info_printable(to, to, bytes);
	}
	want(json, '"');
}

static unsigned long number(struct json *json)
{
	char *end;

	space(json);
	if (*json->at < '0' || *json->at > '9') {
		json->bad = true;
		return 0;
	}
	errno = 0;
	unsigned long n = strtoul(json->at, &end, 10);
	if (errno || strchr(".eE", *end ? *end : ' '))
		json->bad = true;
	json->at = end;
	return n;
}

static void object(struct json *json, member_fn *member, void *arg, unsigned depth)
{
	char key[64];

	want(json, '{');
	if (json->bad || take(json, '}'))
		return;
	do {
		string(json, key, sizeof(key));
		want(json, ':');
		if (!json->bad)
			member(json, key, arg, depth);
	} while (!json->bad && take(json, ','));
	want(json, '}');
}

static void skip_member(struct json *json, const char *key, void *arg, unsigned depth)
{
	(void)key;
	(void)arg;
	skip_value(json, depth);
}

static void skip_value(struct json *json, unsigned depth)
{
	space(json);
	if (depth >= MAX_DEPTH) {
		json->bad = true;
	} else if (*json->at == '{') {
		object(json, skip_member, NULL, depth + 1);
	} else if (*json->at == '"') {
		string(json, NULL, 0);
	} else if (take(json, '[')) {
		if (take(json, ']'))
			return;
		do
			skip_value(json, depth + 1);
		while (!json->bad && take(json, ','));
		want(json, ']');
	} else {
		size_t length = strspn(json->at, "+-.0123456789eEtruefalsn");

		json->bad = !length;
		json->at += length;
	}
}

/* ------------------------------------------------------------------ known keys */

struct field {
	const char *key;
	size_t offset;
	bool is_int;
};

static bool take_field(struct json *json, const char *key, const struct field *fields, size_t count,
		       void *into)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(fields[i].key, key))
			continue;
		unsigned long n = number(json);
		if (fields[i].is_int)
			*(unsigned *)((char *)into + fields[i].offset) = (unsigned)n;
		else
			*(unsigned long *)((char *)into + fields[i].offset) = n;
		return true;
	}
	return false;
}

static void cache_member(struct json *json, const char *key, void *arg, unsigned depth)
{
#define LONG(name) { #name, offsetof(struct kmem_cache_stats, name), false }
#define INT(name) { #name, offsetof(struct kmem_cache_stats, name), true }
	static const struct field fields[] = {
		INT(object_size), INT(size), INT(objects_per_slab), INT(pages_per_slab),
		INT(sheaf_capacity), LONG(active_objects), LONG(total_objects),
		LONG(shelf_objects), LONG(active_slabs), LONG(total_slabs), LONG(partial_slabs),
		LONG(min_partial),
		LONG(alloc_slab), LONG(free_slab), INT(limit), INT(batchcount), INT(shared_factor),
		LONG(shared_avail),
	};
#undef LONG
#undef INT
	struct info_cache *cache = arg;

	if (!strcmp(key, "name"))
		string(json, cache->stats.name, sizeof(cache->stats.name));
	else if (!strcmp(key, "engine"))
		string(json, cache->engine, sizeof(cache->engine));
	else if (!strcmp(key, "of"))
		string(json, cache->of, sizeof(cache->of));
	else if (!strcmp(key, "group"))
		cache->group = (unsigned)number(json);
	else if (!take_field(json, key, fields, sizeof(fields) / sizeof(*fields), &cache->stats))
		skip_value(json, depth);
}

/* Returns: false if the file has too many caches or groups. */
static bool has_room(struct json *json, size_t count)
{
	if (count >= INFO_MAX_CACHES)
		json->bad = json->too_many = true;
	return !json->bad;
}

/* Set all numbers of a cache to unknown, because a file may lack keys. size and objects_per_slab become 0. */
static void forget_cache(struct kmem_cache_stats *stats)
{
	memset(stats, 0xff, sizeof(*stats));
	stats->engine = NULL;
	*stats->name = '\0';
	stats->size = stats->objects_per_slab = 0;
}

static void caches(struct json *json, unsigned depth)
{
	json->has_caches = true;
	want(json, '[');
	if (json->bad || take(json, ']'))
		return;
	do {
		if (!has_room(json, json->snapshot->count))
			return;
		struct info_cache *cache = snapshot_grow(json->snapshot);

		forget_cache(&cache->stats);
		object(json, cache_member, cache, depth + 1);
	} while (!json->bad && take(json, ','));
	want(json, ']');
}

/* Parse a limit; null is MEMCG_NO_LIMIT. */
static uint64_t limit(struct json *json)
{
	space(json);
	if (strncmp(json->at, "null", 4))
		return number(json);
	json->at += 4;
	return MEMCG_NO_LIMIT;
}

static void event_member(struct json *json, const char *key, void *arg, unsigned depth)
{
	uint64_t *events = arg;
	int i = 0;

	while (i < MEMCG_NR_MEMORY_EVENTS && strcmp(km_memcg_event_names[i], key))
		i++;
	if (i < MEMCG_NR_MEMORY_EVENTS)
		events[i] = number(json);
	else
		skip_value(json, depth);
}

static void group_member(struct json *json, const char *key, void *arg, unsigned depth)
{
#define LONG(name) { #name, offsetof(struct km_group_stats, name), false }
	static const struct field fields[] = {
		{ "depth", offsetof(struct km_group_stats, depth), true },
		{ "number", offsetof(struct km_group_stats, number), true },
		LONG(current), LONG(peak), LONG(failcnt), LONG(kmem), LONG(stock), LONG(dying),
	};
	static const struct field limits[] = { LONG(max), LONG(high), LONG(low), LONG(min) };
#undef LONG
	struct km_group_stats *group = arg;

	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		if (!strcmp(limits[i].key, key)) {
			*(uint64_t *)((char *)group + limits[i].offset) = limit(json);
			return;
		}
	if (!strcmp(key, "name"))
		string(json, group->name, sizeof(group->name));
	else if (!strcmp(key, "events"))
		object(json, event_member, group->events, depth + 1);
	else if (!strcmp(key, "events_local"))
		object(json, event_member, group->local, depth + 1);
	else if (!take_field(json, key, fields, sizeof(fields) / sizeof(*fields), group))
		skip_value(json, depth);
}

static void forget_group(struct km_group_stats *group)
{
	memset(group, 0xff, sizeof(*group));
	*group->name = '\0';
	group->depth = group->number = 0;
	group->max = group->high = group->low = group->min = KM_UNKNOWN_LIMIT;
}

/* Parse the tree of groups, in order. A group's depth is at most the depth of the previous group plus one. */
static void groups(struct json *json, unsigned depth)
{
	unsigned deepest = 1;

	want(json, '[');
	if (json->bad || take(json, ']'))
		return;
	do {
		if (!has_room(json, json->snapshot->group_count))
			return;
		struct km_group_stats *group = snapshot_grow_groups(json->snapshot);

		forget_group(group);
		object(json, group_member, group, depth + 1);
		if (!group->depth || group->depth > deepest || group->depth > MEMCG_DEPTH_MAX)
			json->bad = true;
		deepest = group->depth + 1;
	} while (!json->bad && take(json, ','));
	want(json, ']');
}

static void process_member(struct json *json, const char *key, void *arg, unsigned depth)
{
#define LONG(name) { #name, offsetof(struct kmem_stats, name), false }
	static const struct field fields[] = {
		LONG(arena_reserved_bytes), LONG(arena_committed_bytes), LONG(pages_used),
		LONG(pages_free_dirty), LONG(pages_free_clean), LONG(large_blocks),
		LONG(large_bytes), LONG(mapped_blocks), LONG(mapped_bytes), LONG(meta_bytes),
		LONG(purged_pages), LONG(slob_pages), LONG(slob_bytes), LONG(nodes), LONG(bind_failures),
		LONG(mapped_spare_bytes),
	};
#undef LONG
#define LONG(name) { "guard_" #name, offsetof(struct km_print_guard, name), false }
	static const struct field guard[] = { LONG(objects), LONG(live), LONG(samples), LONG(reports) };
#undef LONG
	struct snapshot *snapshot = json->snapshot;

	(void)arg;
	if (!strcmp(key, "version")) {
		string(json, snapshot->version, sizeof(snapshot->version));
		json->has_version = true;
	} else if (!strcmp(key, "discipline")) {
		string(json, snapshot->discipline, sizeof(snapshot->discipline));
	} else if (!strcmp(key, "reason")) {
		string(json, snapshot->reason, sizeof(snapshot->reason));
	} else if (!strcmp(key, "hardened")) {
		string(json, snapshot->hardened, sizeof(snapshot->hardened));
	} else if (!strcmp(key, "pid")) {
		snapshot->pid = (unsigned)number(json);
	} else if (!strcmp(key, "pages_mapped_ready")) {
		snapshot->mapped_ready = number(json);
	} else if (!strcmp(key, "past_alloc_slab")) {
		snapshot->past_new_slabs = number(json);
	} else if (!strcmp(key, "past_free_slab")) {
		snapshot->past_freed_slabs = number(json);
	} else if (!strcmp(key, "caches")) {
		caches(json, depth + 1);
	} else if (!strcmp(key, "groups")) {
		groups(json, depth + 1);
	} else if (!take_field(json, key, guard, sizeof(guard) / sizeof(*guard), &snapshot->guard) &&
		   !take_field(json, key, fields, sizeof(fields) / sizeof(*fields), &snapshot->stats)) {
		skip_value(json, depth + 1);
	}
}

/* Read the whole file, with a NUL at the end. Returns: NULL after one line on stderr. */
static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	struct stat stat_of;
	char *text = NULL;
	size_t bytes = 0, room = 0;

	if (!file || fstat(fileno(file), &stat_of))
		goto failed;
	if (S_ISDIR(stat_of.st_mode)) {
		errno = EISDIR;
		goto failed;
	}
	do {
		if (bytes + 2 > room) {
			room = room ? room * 2 : 65536;
			if (room > MAX_BYTES) {
				errno = EFBIG;
				goto failed;
			}
			char *larger = realloc(text, room);
			if (!larger)
				goto failed;
			text = larger;
		}
		bytes += fread(text + bytes, 1, room - bytes - 1, file);
	} while (!feof(file) && !ferror(file));
	if (ferror(file))
		goto failed;
	fclose(file);
	text[bytes] = '\0';
	return text;
failed:
	kmem_failed(1, kmem_command, "%s: %s", path, strerror(errno));
	if (file)
		fclose(file);
	free(text);
	return NULL;
}

bool info_of_file(const char *path, struct snapshot *snapshot)
{
	char *text = read_file(path);
	struct json json = { .text = text, .at = text, .snapshot = snapshot };

	if (!text)
		return false;
	memset(&snapshot->stats, 0xff, sizeof(snapshot->stats));
	memset(&snapshot->guard, 0xff, sizeof(snapshot->guard));
	snapshot->past_new_slabs = snapshot->past_freed_slabs = INFO_UNKNOWN;
	object(&json, process_member, NULL, 0);
	space(&json);
	if (*json.at)
		json.bad = true;
	if (json.too_many)
		kmem_failed(1, kmem_command, "%s: more than %zu caches or groups", path, INFO_MAX_CACHES);
	else if (json.bad)
		kmem_failed(1, kmem_command, "%s: not JSON of libkmem, at byte %zu", path,
			    (size_t)(json.at - json.text));
	else if (!json.has_caches || !json.has_version)
		kmem_failed(1, kmem_command, "%s: JSON, but not of libkmem", path);
	free(text);
	snapshot->stats.caches = snapshot->count;
	return !json.bad && json.has_caches && json.has_version;
}
