/*
 * debug_options.c: KMEM_DEBUG, in the grammar of the kernel's slab_debug: blocks of letters and a list of names.
 * Invariant: nothing is allocated; the text is stored unchanged and parsed again for each cache, so lists have no
 * size limit of their own.
 */
#include "os/die.h"
#include "debug.h"

#define ALL (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)

static struct {
	char text[512];
	slab_flags_t global;		/* debug flags of caches that no list of the text names */
	bool low;			/* letter O was given: no flags that enlarge slabs */
	bool set;			/* a text of KMEM_DEBUG was given */
	bool leaks;			/* leaks are searched: every cache that may have letter U gets it */
} asked;

static const struct {
	char letter;
	slab_flags_t flag;
	const char *help;
} letters[] = {
	{ 'F', SLAB_CONSISTENCY_CHECKS, "sanity checks: each free is validated at once" },
	{ 'Z', SLAB_RED_ZONE, "red zones to the left and right of each object" },
	{ 'P', SLAB_POISON, "poison: free objects are filled, and checked before the next allocation" },
	{ 'U', SLAB_STORE_USER, "user tracking: stacks of the allocation and the free of each object" },
	{ 'T', SLAB_TRACE, "trace: a line for each allocation and each free" },
	{ 'A', SLAB_FAILSLAB, "failure injection: marks the cache for KMEM_FAILSLAB=cache-filter=Y" },
};

struct block {
	slab_flags_t flags;
	bool low;
	const char *names;		/* list of names in the text; NULL: the block is for all caches */
	size_t length;			/* bytes of the list of names */
	bool missing;			/* the text has no further block */
	char unknown;			/* an unknown letter of the block; 0: none */
};

/* Add one letter to a block. Returns: false if the letter is unknown. */
static bool add_letter(struct block *block, char c)
{
	/* Upper case of a letter: bit 5 is the case. */
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

/* Parse the block at `at`. Returns: the start of the next block, or NULL. tell: warn about unknown letters. */
static const char *read_block(const char *at, struct block *block, bool tell)
{
	const char *begin = at;

	while (*at == ';')
		at++;
	*block = (struct block){ .missing = at > begin && !*at };
	/* A block without letters stands for all letters. */
	if ((!*at && !block->missing) || *at == ',')
		block->flags = ALL;
	for (; *at && *at != ',' && *at != ';'; at++) {
		if (add_letter(block, *at))
			continue;
		block->unknown = *at;
		if (tell)
			km_warn("KMEM_DEBUG: option '%c' unknown. skipped", *at);
	}
	/* A list without a name counts as no list. */
	if (*at == ',' && at[1] && at[1] != ';')
		block->names = at + 1;
	for (at += *at == ','; *at && *at != ';'; at++)
		block->length++;
	return *at ? at + 1 : NULL;
}

/* Match a pattern, from `name` up to `end`, against a cache's name. The first * matches the rest of the name. */
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

	km_debug(end < asked.text + sizeof(asked.text), "a list of names is inside of the text");
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
	km_warn("  the first block that names the cache applies, else the last block without names");
	km_warn("  CACHE may end in *, and matches all names with this beginning");
	km_warn("  no letters: FZPU");
	for (size_t i = 0; i < km_array_count(letters); i++)
		km_warn("  %c %s", letters[i].letter, letters[i].help);
	km_warn("  O no Z, P and U where these letters make the smallest slab longer");
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
	km_debug(length < sizeof(asked.text), "the text fits");
	length = km_min(length, sizeof(asked.text) - 1);
	__builtin_memcpy(asked.text, text, length);
	/* Replace control characters, so that a quoted text stays one line. */
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)asked.text[i] < ' ')
			asked.text[i] = '?';
	asked.text[length] = '\0';
	asked.global = 0;
	asked.low = false;
	at = asked.text;
	/* The last block for all caches wins, as in the kernel. A list alone leaves the default unchanged. */
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
	km_debug(!asked.text[sizeof(asked.text) - 1], "the text has an end");
	do {
		at = read_block(at, &block, false);
		if (block.names && names(&block, name))
			return flags | block.flags;
	} while (at && *at);
	/* Kernel: objects of leak tracers have no tracks by default. */
	if (flags & SLAB_NOLEAKTRACE)
		global &= ~SLAB_STORE_USER;
	return flags | global;
}
