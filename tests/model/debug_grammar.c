/*
 * debug_grammar: feeds texts to the reader of KMEM_DEBUG. Built with -DKM_LIBFUZZER it is an entry for libFuzzer
 * (FUZZ=debug_grammar tests/model/fuzz.sh); without, as `make check` builds it, a driver that reads the corpus in
 * tests/model/debug_grammar, and each text of it changed in many ways, the same by the same SEED=n. A cache's flags are
 * its own and known ones; a block that only adds a list of other names changes nothing.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/die.h"
#include "watch/debug.h"

#define MOST 511

static const char *const names[] = { "a", "kmalloc-64", "kmalloc-cg-8k", "malloc-64", "*", "b_c" };

static void need(bool truth, const char *text, const char *what)
{
	if (truth)
		return;
	printf("\"%s\": %s\n", text, what);
	fflush(stdout);
	abort();
}

static void try_text(const uint8_t *data, size_t bytes)
{
	char text[MOST + 1], longer[MOST + 16];
	slab_flags_t flags[sizeof(names) / sizeof(names[0])];
	bool low;

	bytes = bytes < MOST ? bytes : MOST;
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	km_debug_read(text);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		flags[i] = km_debug_flags_of(names[i], SLAB_PANIC, &low);
		need(flags[i] & SLAB_PANIC && !(flags[i] & ~(KM_DEBUG_FLAGS | SLAB_FAILSLAB | SLAB_PANIC)), text,
		     "flags that there are not");
	}
	if (!strcmp(text, "help") || !*text || strlen(text) > MOST - 8)
		return;
	snprintf(longer, sizeof(longer), "%s;FZ,zz", text);
	km_debug_read(longer);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		need(km_debug_flags_of(names[i], SLAB_PANIC, &low) == flags[i], text,
		     "a list of others' names matters");
}

#ifdef KM_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	try_text(data, bytes);
	return 0;
}
#else
#include <glob.h>
#include <time.h>

static uint64_t state = 88172645463325252u;
static time_t end;

static size_t below(size_t most)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (size_t)(state % most);
}

/* A few bytes become others, go, or come. */
static size_t change(uint8_t *data, size_t bytes)
{
	static const char likely[] = "FZPUTAO-,;*ab\0\n?";

	for (size_t n = below(5); n--;) {
		size_t at = below(bytes + 1);
		uint8_t c = (uint8_t)likely[below(sizeof(likely))];

		if (at < bytes && below(2)) {
			data[at] = c;
		} else if (at < bytes && below(2)) {
			memmove(data + at, data + at + 1, --bytes - at);
		} else if (bytes < MOST) {
			memmove(data + at + 1, data + at, bytes++ - at);
			data[at] = c;
		}
	}
	return bytes;
}

static void try_file(const char *path)
{
	uint8_t text[MOST], changed[MOST];
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		exit(1);
	}
	size_t bytes = fread(text, 1, sizeof(text), file);
	fclose(file);
	try_text(text, bytes);
	for (int i = 0; i < 20000 || time(NULL) < end; i++) {
		memcpy(changed, text, bytes);
		try_text(changed, change(changed, bytes));
	}
}

int main(int argc, char **argv)
{
	int nowhere = open("/dev/null", O_WRONLY);
	glob_t found;

	/* Unknown letters are told. */
	dup2(nowhere, 2);
	for (int i = 1; i < argc; i++)
		try_file(argv[i]);
	if (argc > 1)
		return 0;
	if (glob("tests/model/debug_grammar/*", 0, NULL, &found)) {
		printf("no corpus: start this in the root of the repository\n");
		return 2;
	}
	const char *seed = getenv("SEED");
	printf("SEED=%s\n", seed ? seed : "0");
	fflush(stdout);
	state ^= seed ? strtoul(seed, NULL, 0) << 8 : 0;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		/* With CHECK_LONG all of them an hour. */
		end = time(NULL) + (getenv("CHECK_LONG") ? 3600 / (time_t)found.gl_pathc : 0);
		try_file(found.gl_pathv[i]);
	}
	printf("%zu texts\n", found.gl_pathc);
	globfree(&found);
	return 0;
}
#endif
