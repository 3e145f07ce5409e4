/*
 * debug_options.c: KMEM_DEBUG, in the grammar of the kernel's slab_debug: blocks of letters and a list of names.
 * Invariant: allocates nothing; the text is kept as it was given, and asked anew for each cache, so that no list has a
 * bound.
 */
#include "os/die.h"
#include "debug.h"

#define ALL (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)

static struct {
	char text[512];
	slab_flags_t global;		/* of caches that no list names */
	bool low;			/* O: no flag that makes slabs longer */
	bool set;			/* there is a text */
	bool leaks;			/* all that may have U have it */
} asked;

static const struct {
	char letter;
	slab_flags_t flag;
	const char *help;
} letters[] = {
	{ 'F', SLAB_CONSISTENCY_CHECKS, "sanity checks: each free is validated at once" },
	{ 'Z', SLAB_RED_ZONE, "red zones to the left and right of each object" },
	{ 'P', SLAB_POISON, "poison: free objects are filled, and looked at before they are given out" },
	{ 'U', SLAB_STORE_USER, "user tracking: by whom an object was allocated, and freed" },
	{ 'T', SLAB_TRACE, "trace: a line for each object that comes or goes" },
	{ 'A', SLAB_FAILSLAB, "failing on purpose: a mark for KMEM_FAILSLAB=cache-filter=Y" },
};

struct block {
	slab_flags_t flags;
	bool low;
	const char *names;		/* NULL: it is for all caches */
	size_t length;			/* of the names */
	bool missing;			/* the text ends with semicolons: there is none */
	char unknown;			/* a letter that is none; 0: all are */
};

/* False: there is no such letter. */
static bool add_letter(struct block *block, char c)
{
	/* One bit is the difference between a small letter and a large one. */
	char letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (char)(c & ~0x20) : c;

	if (letter == '-')
		block->flags = 0;
	if (letter == 'O')
		block->low = true;
	for (size_t i = 0; i < km_array_count(letters); i++)
		if (letters[i].letter == letter) {
			block->flags |= letters[i].flag;
			return true;
		}
	return letter == '-' || letter == 'O';
}

/* The block that begins there; returns where the next one does, or NULL. tell: unknown letters are said. */
static const char *read_block(const char *at, struct block *block, bool tell)
{
	const char *begin = at;

	while (*at == ';')
		at++;
	*block = (struct block){ .missing = at > begin && !*at };
	/* Without a letter it is all of them. */
	if ((!*at && !block->missing) || *at == ',')
		block->flags = ALL;
	for (; *at && *at != ',' && *at != ';'; at++) {
		if (add_letter(block, *at))
			continue;
		block->unknown = *at;
		if (tell)
			km_warn("KMEM_DEBUG: option '%c' unknown. skipped", *at);
	}
	/* A list without a name is none. */
	if (*at == ',' && at[1] && at[1] != ';')
		block->names = at + 1;
	for (at += *at == ','; *at && *at != ';'; at++)
		block->length++;
	return *at ? at + 1 : NULL;
}

/* Does the name, which ends at `end`, stand for this cache? Its first * ends it, and then it begins the cache's. */
static bool fits(const char *name, const char *end, const char *cache)
{
	for (; name < end; name++, cache++) {
		if (*name == '*')
			return true;
		if (*name != *cache || !*cache)
			return false;
	}
	return !*cache;
}

static bool names(const struct block *block, const char *cache)
{
	const char *at = block->names, *end = at + block->length;

	km_debug(end < asked.text + sizeof(asked.text), "a list of names lies in the text that was given");
	while (at < end) {
		const char *comma = at;

		while (comma < end && *comma != ',')
			comma++;
		if (comma > at && fits(at, comma, cache))
			return true;
		at = comma + 1;
	}
	return false;
}

static km_cold void help(void)
{
	km_warn("KMEM_DEBUG=LETTERS[,CACHE...][;LETTERS[,CACHE...]]...");
	km_warn("  the first block decides that names a cache, else the last one without names");
	km_warn("  CACHE may end in *, which stands for all that begin so");
	km_warn("  no letters: FZPU");
	for (size_t i = 0; i < km_array_count(letters); i++)
		km_warn("  %c %s", letters[i].letter, letters[i].help);
	km_warn("  O none of Z, P and U where they would make the smallest slab longer");
	km_warn("  - none");
}

void km_debug_read(const char *text)
{
	const char *at = text;
	struct block block;

	if (__builtin_strcmp(text, "help") == 0) {
		help();
		return;
	}
	size_t length = __builtin_strlen(text);
	km_debug(length < sizeof(asked.text), "a text is read that fits");
	length = km_min(length, sizeof(asked.text) - 1);
	__builtin_memcpy(asked.text, text, length);
	/* A text that is quoted in a message is one line. */
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)asked.text[i] < ' ')
			asked.text[i] = '?';
	asked.text[length] = '\0';
	asked.global = 0;
	asked.low = false;
	at = asked.text;
	/* The last block for all counts. Kernel: the same; and a list alone leaves all others as they were. */
	do {
		at = read_block(at, &block, true);
		asked.low |= block.low;
		if (!block.names && !block.missing)
			asked.global = block.flags;
	} while (at && *at);
	asked.set = true;
	km_debug_blocks_start();
}

bool km_debug_fits(const char *text, char *letter)
{
	struct block block = { .unknown = '\0' };

	for (const char *at = text; at && *at && !block.unknown;)
		at = read_block(at, &block, false);
	*letter = block.unknown;
	return !block.unknown || __builtin_strcmp(text, "help") == 0;
}

void km_debug_track_all(void)
{
	asked.leaks = true;
	km_debug_blocks_start();
}

bool km_debug_letters(const char *text, slab_flags_t *flags)
{
	struct block block = { .flags = 0 };

	for (const char *at = text; *at; at++)
		if (!add_letter(&block, *at) || block.low)
			return false;
	*flags = *text ? block.flags : ALL;
	return true;
}

slab_flags_t km_debug_flags_of(const char *name, slab_flags_t flags, bool *low)
{
	const char *at = asked.text;
	slab_flags_t global = asked.global;
	struct block block;

	*low = asked.low;
	if (flags & SLAB_NO_USER_FLAGS)
		return flags;
	if (asked.leaks && !(flags & SLAB_NOLEAKTRACE))
		flags |= SLAB_STORE_USER;
	if (!asked.set)
		return flags;
	km_debug(!asked.text[sizeof(asked.text) - 1], "the text that was given has an end");
	do {
		at = read_block(at, &block, false);
		if (block.names && names(&block, name))
			return flags | block.flags;
	} while (at && *at);
	/* Kernel: leak tracers' own objects have no tracks by default. */
	if (flags & SLAB_NOLEAKTRACE)
		global &= ~SLAB_STORE_USER;
	return flags | global;
}
