/*
 * malloc_canary: with canary:1 each block of malloc, calloc, realloc, aligned_alloc and new has 8 bytes behind the
 * block, checked at the free: a write to any of them ends the process with one line. All bytes of malloc_usable_size
 * belong to the user, and alignment and sizes are unchanged.
 */
#define _GNU_SOURCE
#define CHECK_FD 2
#include <malloc.h>

#include "kit/api.h"

void *cxx_new(size_t size) __asm__("_Znwm");
void *cxx_new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
void cxx_delete(void *p, size_t size) __asm__("_ZdlPvm");
void cxx_delete_aligned(void *p, size_t size, size_t align) __asm__("_ZdlPvmSt11align_val_t");

static size_t size, beyond;

static void *by_malloc(void) { return malloc(size); }
static void *by_calloc(void) { return calloc(1, size); }
static void *by_realloc(void) { return realloc(malloc(1), size); }
static void *by_align(void) { return aligned_alloc(64, size); }
static void *by_new(void) { return cxx_new(size); }
static void *(*const doors[])(void) = { by_malloc, by_calloc, by_realloc, by_align, by_new };
static void *(*door)(void);

static void overflows(void)
{
	unsigned char *p = door();

	NEED(p);
	__asm__ volatile("" : "+r"(p));
	p[malloc_usable_size(p) + beyond] ^= 1;
	free(p);
}

static void ends(void)
{
	static char text[4096];
	int lines, status = said(overflows, text, &lines);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1 &&
	      strstr(text, "object or its surroundings were overwritten"),
	      "%zu bytes, %zu behind: status %#x, said: %s", size, beyond, (unsigned)status, text);
}

static void each_byte_is_looked_at(void)
{
	/* Objects in shared pages have no canary. */
	if (slob)
		return;
	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++) {
		door = doors[i];
		/* A large block after growth is a block of pages without a canary. */
		for (size = 1; size < (door == by_realloc ? 5000u : 32000u); size = size * 5 + 3)
			for (beyond = 0; beyond < 8; beyond += 7)
				ends();
		size = 200;
		for (beyond = 0; beyond < 8; beyond++)
			ends();
	}
}

static void all_of_it_is_the_users(void)
{
	for (size = 0; size < 40000; size += size / 9 + 1) {
		for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++) {
			unsigned char *p = doors[i]();
			size_t have = p ? malloc_usable_size(p) : 0;

			if (!size && doors[i] == by_realloc)
				continue;
			NEED(p && have >= size && !((uintptr_t)p & (doors[i] == by_align ? 63 : 15)));
			NEED(doors[i] != by_calloc || all(p, 0, size));
			memset(HELD(p), 0xff, have);
			NEED((p = realloc(p, have / 2 + 1)) && (p = realloc(p, have * 2)) && p[have / 2] == 0xff);
			memset(HELD(p), 0xff, malloc_usable_size(p));
			free(p);
		}
		cxx_delete(cxx_new(size), size);
		for (size_t align = 32; align <= 8192; align *= 4)
			cxx_delete_aligned(cxx_new_aligned(size, align), size, align);
	}
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "each byte is looked at", each_byte_is_looked_at }, { "all of it is the user's", all_of_it_is_the_users },
};
API_MAIN_OPTIONS(cases, ",hardened:1,canary:1")
