/*
 * asked_bytes: with red zones, a write of one byte behind the requested bytes is reported at the free, and ends the
 * process, although the size class has room for the byte: for kmalloc, for krealloc and realloc up and down within a
 * class, and for malloc; for each engine without shared pages. With canary:1 and without red zones the last 8 bytes
 * of malloc's class are checked, and kmalloc's bytes are not: the write stays unnoticed (docs/design/hardening.md).
 */
#define _GNU_SOURCE
#define CHECK_FD 2
#include <malloc.h>

#include "kit/api.h"

/* The requested bytes of the last call; the class has more. */
#define ASKED 70u

static void *by_kmalloc(void) { return kmalloc(ASKED, GFP_KERNEL); }
static void *by_krealloc(void) { return krealloc(kmalloc(90, GFP_KERNEL), ASKED, GFP_KERNEL); }
static void *by_krealloc_up(void) { return krealloc(kmalloc(66, GFP_KERNEL), ASKED, GFP_KERNEL); }
static void *by_malloc(void) { return malloc(ASKED); }
static void *by_realloc(void) { return realloc(malloc(ASKED + 2), ASKED); }
static void *by_realloc_up(void) { return realloc(malloc(ASKED - 4), ASKED); }

static const struct door {
	const char *name;
	void *(*get)(void);
	void (*put)(const void *p);
} doors[] = {
	{ "kmalloc", by_kmalloc, kfree }, { "krealloc", by_krealloc, kfree }, { "krealloc up", by_krealloc_up, kfree },
	{ "malloc", by_malloc, (void (*)(const void *))free }, { "realloc", by_realloc, (void (*)(const void *))free },
	{ "realloc up", by_realloc_up, (void (*)(const void *))free },
}, *door;

static size_t at;

static void write_one(void)
{
	unsigned char *p = door->get();

	NEED(p);
	__asm__ volatile("" : "+r"(p));
	p[at] ^= 0x41;
	door->put(p);
}

static void write_none(void)
{
	unsigned char *p = door->get();

	NEED(p);
	memset(p, 0x41, ASKED);
	door->put(p);
}

static void each_door(void)
{
	static char text[4096];
	const char *debug = getenv("KMEM_DEBUG");
	int lines;

	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]) && !slob; i++) {
		door = &doors[i];
		const bool is_malloc = door->put != kfree;
		void *p = door->get();
		/* The canary of the 80-byte class is its last 8 bytes. */
		const size_t last = is_malloc ? 79 : 95;

		NEED(debug || !is_malloc || malloc_usable_size(p) == last - 7);
		door->put(p);
		int status = said(write_none, text, &lines);
		CHECK(!status && !lines, "%s: status %#x, said: %s", door->name, (unsigned)status, text);
		at = debug ? ASKED : last;
		status = said(write_one, text, &lines);
		bool ended = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, "overwritten");
		CHECK(ended == (debug || is_malloc), "%s: status %#x, said: %s", door->name, (unsigned)status, text);
		CHECK(!debug || strstr(text, "kmalloc Redzone"), "%s said: %s", door->name, text);
	}
}

static const struct test_case cases[] = { { "one byte", each_door } };

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc > 1)
		return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), "");
	setenv("KMEM_DEBUG", "Z,kmalloc-*,malloc-*", 1);
	failed |= api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), "");
	unsetenv("KMEM_DEBUG");
	return failed | api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), ",hardened:1,canary:1");
}
