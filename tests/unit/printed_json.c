/*
 * printed_json: the JSON output is valid JSON for all names of caches and groups: names with quotation marks, control
 * characters, bytes outside of UTF-8 or the first half of a character; a valid name is read back unchanged. Unknown
 * values are left out, or a dash in slabinfo; no limit is null. A writer keeps its first error.
 */
#include <stdlib.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/printed.h"
#include "inspect/stats_print.h"

#define TEXT_BYTES ((size_t)1 << 20)
static char *text;

/*
 * ------------------------------------------------------------------ a reader of JSON, as strict as the
 * standard
 */

static void blank(const char **at)
{
	*at += strspn(*at, " \n");
}

/*
 * Returns: the bytes of the UTF-8 character at this place, by the standard's ranges, not by the
 * library's. 0: no character.
 */
static unsigned character(const unsigned char *at)
{
	static const struct {
		unsigned char first, last, second_from, second_to, bytes;
	} forms[] = {
		{ 0x20, 0x7f, 0, 0, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (at[0] < forms[i].first || at[0] > forms[i].last)
			continue;
		if (forms[i].bytes > 1 && (at[1] < forms[i].second_from || at[1] > forms[i].second_to))
			return 0;
		for (unsigned n = 2; n < forms[i].bytes; n++)
			if (at[n] < 0x80 || at[n] > 0xbf)
				return 0;
		return forms[i].bytes;
	}
	return 0;
}

/* Copies the string's value to `to`. */
static void string(const char **at, char *to)
{
	unsigned code;

	NEED(**at == '"', "%.40s", *at);
	for (++*at; **at != '"';) {
		unsigned bytes = character((const unsigned char *)*at);

		NEED(bytes, "%.40s", *at);
		if (**at != '\\') {
			memcpy(to, *at, bytes);
			to += bytes;
			*at += bytes;
		} else if (sscanf(*at, "\\u%4x", &code) == 1) {
			if (code == 0xfffd)
				to = stpcpy(to, "\xef\xbf\xbd");
			else
				*to++ = (char)code;
			NEED(code == 0xfffd || code < 0x20);
			*at += 6;
		} else {
			NEED((*at)[1] == '"' || (*at)[1] == '\\', "%.40s", *at);
			*to++ = (*at)[1];
			*at += 2;
		}
	}
	++*at;
	*to = '\0';
}

static unsigned names_seen;
static const char *looked_for;

static void value(const char **at);

static void members(const char **at, char end)
{
	char key[1024], name[1024];

	++*at;
	for (blank(at); **at != end; blank(at)) {
		if (end == '}') {
			string(at, key);
			blank(at);
			NEED(*(*at)++ == ':');
			blank(at);
		}
		if (end == '}' && !strcmp(key, "name")) {
			string(at, name);
			names_seen += looked_for && !strcmp(name, looked_for);
		} else {
			value(at);
		}
		blank(at);
		NEED(**at == ',' || **at == end, "%.40s", *at);
		if (**at == ',') {
			++*at;
			blank(at);
			NEED(**at != end);
		}
	}
	++*at;
}

static void value(const char **at)
{
	char ignored[1024], *end;

	if (**at == '{' || **at == '[') {
		members(at, **at == '{' ? '}' : ']');
	} else if (**at == '"') {
		string(at, ignored);
	} else if (!strncmp(*at, "null", 4)) {
		*at += 4;
	} else {
		strtoul(*at, &end, 10);
		NEED(end > *at, "%.40s", *at);
		*at = end;
	}
}

/* Reads the whole text. Returns: how often the name is in the text. */
static unsigned names_in_text(const char *name)
{
	const char *at = text;

	names_seen = 0;
	looked_for = name;
	value(&at);
	blank(&at);
	NEED(!*at, "%.40s", at);
	return names_seen;
}

/* ------------------------------------------------------------------ checked outputs */

#define BAD "\xef\xbf\xbd"
#define CONTROL 3

static const struct {
	const char *name, *read;	/* read NULL: unchanged */
} names[] = {
	{ "plain", NULL }, { "quoted\"name", NULL }, { "back\\slash", NULL }, { "a\x01\x1f.b", NULL },
	{ "\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x98", NULL }, { "cut\xe2\x82", "cut" BAD BAD }, { "\x80lone", BAD "lone" },
	{ "over\xc0\xaf", "over" BAD BAD }, { "\xf5\x80\x80\x80", BAD BAD BAD BAD }, { "last\xf0\x9f", "last" BAD BAD },
	{ "\xc3(", BAD "(" },
};

static void strings(void)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct km_writer writer = { .fd = open_file() };
		char read[256];

		km_print_string(&writer, names[i].name);
		NEED(!km_print_end(&writer));
		read_back(writer.fd, text, TEXT_BYTES);
		const char *at = text;
		string(&at, read);
		CHECK(!*at && !strcmp(read, names[i].read ?: names[i].name), "%zu: %s", i, text);
	}
}

/* The name as kept by a cache and a group: an invalid byte is a question mark already. */
static const char *kept(size_t i)
{
	static char to[64];
	const char *from = i == CONTROL ? "a__.b" : names[i].read ?: names[i].name;
	char *end = to;

	while (*from) {
		const bool bad = !strncmp(from, BAD, strlen(BAD));

		*end++ = bad ? '?' : *from;
		from += bad ? strlen(BAD) : 1;
	}
	*end = '\0';
	return to;
}

/* Each name has a cache and a group. */
static void process(void)
{
	struct kmem_cache *cache[sizeof(names) / sizeof(names[0])];
	struct mem_cgroup *group[sizeof(names) / sizeof(names[0])];
	int fd = open_file();

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		cache[i] = kmem_cache_create(names[i].name, 40 + 8 * (unsigned)i, 0, SLAB_NO_MERGE, NULL);
		group[i] = mem_cgroup_create(NULL, names[i].name, i % 2 ? MEM_CGROUP_PRIVATE : 0);
		NEED(cache[i] && group[i]);
		NEED(i % 3 || !mem_cgroup_set_max(group[i], 1 << 20));
	}
	void *p = kmem_cache_alloc_in(cache[1], group[1], GFP_KERNEL);
	NEED(p && !kmem_print_json(fd));
	read_back(fd, text, TEXT_BYTES);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		CHECK(names_in_text(kept(i)) == 2, "%zu: %u", i, names_seen);
	CHECK(strstr(text, "\"max\": 1048576") && strstr(text, "\"max\": null") && strstr(text, ", \"group\": "));
	CHECK(kmem_print_json(-1) == -EBADF && kmem_print_slabinfo(-1) == -EBADF);
	kmem_cache_free(cache[1], p);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		mem_cgroup_put(group[i]);
		kmem_cache_destroy(cache[i]);
	}
}

static void what_is_not_known(void)
{
	struct km_writer writer = { .fd = open_file() };
	struct kmem_cache_stats stats;
	struct km_group_stats group;
	char row[512];

	memset(&stats, 0xff, sizeof(stats));
	stats.size = stats.objects_per_slab = 3;
	stats.engine = "unknown";
	strcpy(stats.name, "unknown");
	km_slabinfo_row(row, sizeof(row), &stats);
	CHECK(!strcmp(row, "unknown                -      -      3    3    - : tunables    -    -    -"
			   " : slabdata      -      -      -\n"), "%s", row);
	memset(&group, 0xff, sizeof(group));
	strcpy(group.name, "unknown");
	group.number = 0;
	group.high = group.low = group.min = group.max = KM_UNKNOWN_LIMIT;
	km_print(&writer, "[");
	km_print_json_cache(&writer, &stats, 0, NULL, true);
	km_print_json_group(&writer, &group, false);
	km_print(&writer, "]");
	NEED(!km_print_end(&writer));
	read_back(writer.fd, text, TEXT_BYTES);
	CHECK(names_in_text("unknown") == 2 && !strstr(text, "active_objects") && !strstr(text, "limit") &&
	      !strstr(text, "\"max\"") && !strstr(text, "number") && strstr(text, "\"events\": {}"), "%s", text);
}

/* The first error stays, though what follows could be written. */
static void errors(void)
{
	struct km_writer writer = { .fd = -1 };

	for (int i = 0; i < 1000; i++)
		km_print(&writer, "%s", "0123456789");
	writer.fd = open_file();
	km_print(&writer, "more");
	CHECK(km_print_end(&writer) == -EBADF && lseek(writer.fd, 0, SEEK_END) == 0);
	close(writer.fd);
}

int main(void)
{
	text = malloc(TEXT_BYTES);
	NEED(text);
	strings();
	process();
	what_is_not_known();
	errors();
	return failures != 0;
}
