/*
 * debug_options: the grammar of KMEM_DEBUG: letters, blocks, lists, globs, the deciding block, and flags of a cache
 * against the option.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>

#include "kit/check.h"
#include "ext/debug/debug.h"

#define F SLAB_CONSISTENCY_CHECKS
#define Z SLAB_RED_ZONE
#define P SLAB_POISON
#define U SLAB_STORE_USER
#define T SLAB_TRACE
#define A SLAB_FAILSLAB
#define ALL (F | Z | P | U)

static const struct {
	const char *text, *name;
	slab_flags_t own, flags;
	bool low;
} cases[] = {
	{ "", "any", 0, ALL, false },
	{ "FZPU", "any", 0, ALL, false },
	{ "fzpu", "any", 0, ALL, false },
	{ "F", "any", 0, F, false },
	{ "TA", "any", 0, T | A, false },
	{ "-", "any", 0, 0, false },
	{ "-", "any", Z, Z, false },
	{ "-P", "any", 0, P, false },
	{ "O", "any", 0, 0, true },
	{ "ZO", "any", 0, Z, true },
	{ "FQZ", "any", 0, F | Z, false },
	/* A list names caches, and no others. */
	{ ",dentry", "dentry", 0, ALL, false },
	{ ",dentry", "dentry2", 0, 0, false },
	{ ",dentry", "dentr", 0, 0, false },
	{ "Z,a,b,c", "b", 0, Z, false },
	{ "Z,a,b,c", "d", 0, 0, false },
	{ "Z,,a", "a", 0, Z, false },
	{ "Z,kmalloc-*", "kmalloc-64", 0, Z, false },
	{ "Z,kmalloc-*", "kmalloc-", 0, Z, false },
	{ "Z,kmalloc-*", "kmalloc", 0, 0, false },
	{ "Z,*", "whatever", 0, Z, false },
	/* The first star ends a name. */
	{ "Z,k*c", "kxc", 0, Z, false },
	{ "Z,k*c", "k", 0, Z, false },
	{ "Z,k*c*", "kx", 0, Z, false },
	{ "Z,k*c", "xkc", 0, 0, false },
	{ "Z,*c,b", "a", 0, Z, false },
	{ "Z,**", "a", 0, Z, false },
	{ "Z,k*,a;P", "a", 0, Z, false },
	/* The first list decides; its flags join the cache's own, and the flags for all caches do not. */
	{ "Z,a;P,a", "a", 0, Z, false },
	{ "P;Z,a", "a", 0, Z, false },
	{ "P;Z,a", "b", 0, P, false },
	{ "Z,a;P", "a", 0, Z, false },
	{ "Z,a;P", "b", 0, P, false },
	{ "Z,a;P", "b", U, P | U, false },
	{ "Z,a", "a", U, Z | U, false },
	{ "-,a;FZ", "a", 0, 0, false },
	{ "-,a;FZ", "b", 0, F | Z, false },
	/* The last block for all. */
	{ "F;Z", "a", 0, Z, false },
	/* Empty blocks are none. */
	{ ";F", "a", 0, F, false },
	{ "F;", "a", 0, F, false },
	{ "F;;Z,a", "a", 0, Z, false },
	{ "F;;", "a", 0, F, false },
	{ ";", "a", 0, 0, false },
	/* A list without a name is for all. */
	{ "F,", "a", 0, F, false },
	{ "F,;Z,b", "a", 0, F, false },
	/* Flags of the cache. */
	{ "FZ", "a", SLAB_NO_USER_FLAGS, SLAB_NO_USER_FLAGS, false },
	{ "FZ,a", "a", SLAB_NO_USER_FLAGS, SLAB_NO_USER_FLAGS, false },
	{ "", "a", SLAB_NOLEAKTRACE, SLAB_NOLEAKTRACE | F | Z | P, false },
	{ ",a", "a", SLAB_NOLEAKTRACE, SLAB_NOLEAKTRACE | ALL, false },
};

static char said[4096];

/* Reads the lines back from a file in the place of standard error. */
static const char *lines_of(const char *text)
{
	int file = open("/tmp", O_TMPFILE | O_RDWR, 0600), kept = dup(2);

	NEED(file >= 0 && kept >= 0);
	dup2(file, 2);
	km_debug_read(text);
	dup2(kept, 2);
	close(kept);
	ssize_t n = pread(file, said, sizeof(said) - 1, 0);
	close(file);
	CHECK(n >= 0);
	said[n] = '\0';
	return said;
}

int main(void)
{
	bool low;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		km_debug_read(cases[i].text);
		slab_flags_t flags = km_debug_flags_of(cases[i].name, cases[i].own, &low);

		if (flags != cases[i].flags || low != cases[i].low)
			printf("\"%s\", %s, 0x%x: 0x%x, not 0x%x\n", cases[i].text, cases[i].name, cases[i].own, flags,
			       cases[i].flags);
		CHECK(flags == cases[i].flags && low == cases[i].low);
	}
	CHECK(strcmp(lines_of("FQZ,a;z?"), "libkmem: KMEM_DEBUG: option 'Q' unknown. skipped\n"
					   "libkmem: KMEM_DEBUG: option '?' unknown. skipped\n") == 0);
	CHECK(strcmp(lines_of("FZPUTAO-,a,b*;-"), "") == 0);
	/* help changes nothing. */
	km_debug_read("Z");
	CHECK(strstr(lines_of("help"), "  F sanity checks") != NULL);
	CHECK(km_debug_flags_of("a", 0, &low) == Z);
	return failures != 0;
}
