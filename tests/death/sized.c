/*
 * sized: a hardened free with the block's size: sized delete, free_sized, free_aligned_sized and jemalloc's sdallocx
 * end the process with one line if no request of this size and alignment can have returned the block. Every requested
 * size and alignment is permitted, also after a realloc that left the block in place, for lack of memory too. realloc
 * and the size of a freed block are refused as well.
 */
#define _GNU_SOURCE
#define CHECK_FD 2
#include <malloc.h>
#include <sys/resource.h>

#include "kit/api.h"

#define SIZE_LINE "freed with a wrong size; KMEM_OPTIONS=check_sizes:0 disables this check"

void *cxx_new(size_t size) __asm__("_Znwm");
void *cxx_new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
void cxx_delete(void *p, size_t size) __asm__("_ZdlPvm");
void cxx_delete_array(void *p, size_t size) __asm__("_ZdaPvm");
void cxx_delete_aligned(void *p, size_t size, size_t align) __asm__("_ZdlPvmSt11align_val_t");
void cxx_delete_array_aligned(void *p, size_t size, size_t align) __asm__("_ZdaPvmSt11align_val_t");
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);
void *mallocx(size_t size, int flags);
void sdallocx(void *p, size_t size, int flags);
#define ALIGNED_64	6	/* jemalloc's form: the logarithm */

static size_t size, named;

static void *blind(void *p)
{
	NEED(p);
	__asm__ volatile("" : "+r"(p));
	return p;
}

static void by_delete(void) { cxx_delete(blind(cxx_new(size)), named); }
static void by_delete_array(void) { cxx_delete_array(blind(cxx_new(size)), named); }
static void by_delete_aligned(void) { cxx_delete_aligned(blind(cxx_new_aligned(size, 64)), named, 64); }
static void by_delete_array_aligned(void) { cxx_delete_array_aligned(blind(cxx_new_aligned(size, 64)), named, 64); }
static void by_free_sized(void) { free_sized(blind(malloc(size)), named); }
static void by_free_aligned_sized(void) { free_aligned_sized(blind(aligned_alloc(64, size)), 64, named); }
static void by_sdallocx(void) { sdallocx(blind(mallocx(size, 0)), named, 0); }
static void by_sdallocx_aligned(void) { sdallocx(blind(mallocx(size, ALIGNED_64)), named, ALIGNED_64); }

static const struct {
	const char *name;
	void (*run)(void);
	bool of_c;
} doors[] = {
	{ "operator delete", by_delete, false }, { "operator delete", by_delete_array, false },
	{ "operator delete", by_delete_aligned, false }, { "operator delete", by_delete_array_aligned, false },
	{ "free_sized", by_free_sized, true }, { "free_aligned_sized", by_free_aligned_sized, true },
	{ "sdallocx", by_sdallocx, true }, { "sdallocx", by_sdallocx_aligned, true },
};

static void ends(void (*run)(void), const char *phrase)
{
	static char text[4096];
	int lines, status = said(run, text, &lines);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1 && strstr(text, phrase),
	      "%zu bytes freed as %zu: status %#x, said: %s", size, named, (unsigned)status, text);
}

static void wrong_sizes_end(void)
{
	static const size_t sizes[] = { 128, 512, 4096, 30000, 300000, 8388608 };
	char phrase[128];

	for (size_t d = 0; d < sizeof(doors) / sizeof(doors[0]); d++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			size = sizes[i];
			named = size * 4;
			snprintf(phrase, sizeof(phrase), "%s of %zu bytes, called from 0x", doors[d].name, named);
			ends(doors[d].run, phrase);
			ends(doors[d].run, SIZE_LINE);
			named = size / 4;
			if (!doors[d].of_c || size < (slob ? 2048u : 30000u))
				ends(doors[d].run, SIZE_LINE);
		}
}

/* Beyond: mappings and long blocks are few. */
static size_t next(size_t at)
{
	return at < 2048 ? at + 1 : at + at / 7;
}

static void right_sizes_go_on(void)
{
	for (size = 0; size < 20000000; size = next(size)) {
		cxx_delete(blind(cxx_new(size)), size);
		cxx_delete_array(blind(cxx_new(size)), size);
		free_sized(blind(malloc(size)), size);
		free_sized(blind(calloc(1, size)), size);
		sdallocx(blind(mallocx(size, 0)), size, 0);
		sdallocx(blind(mallocx(size, ALIGNED_64)), size, ALIGNED_64);
		for (size_t align = 16; align <= 16384 && size; align *= 4) {
			cxx_delete_aligned(blind(cxx_new_aligned(size, align)), size, align);
			free_aligned_sized(blind(aligned_alloc(align, size)), align, size);
		}
	}
	free_sized(NULL, 100);
	cxx_delete(NULL, 100);
}

static void resized_go_on(void)
{
	for (size = 1; size < 20000000; size = next(size) * 3 / 2) {
		size_t last = size > 1 ? size / 2 : 1;

		for (named = size; named >= last; named -= (size - last) / 10 + 1)
			free_sized(blind(realloc(blind(malloc(size)), named)), named);
		free_sized(blind(realloc(blind(malloc(size)), size * 3)), size * 3);
	}
}

/* As a realloc to fewer bytes does without memory: the block is unchanged, and so is its free_sized. */
static void left_ones_go_on(void)
{
	static const size_t few[] = { 24, 100, 1000, 3000 };
	enum { FEW = sizeof(few) / sizeof(few[0]) };
	const struct rlimit none = { 1 << 20, 1 << 20 };
	void *left[FEW];
	unsigned same = 0;

	for (unsigned i = 0; i < FEW; i++)
		left[i] = blind(malloc(few[i] * 8));
	NEED(!setrlimit(RLIMIT_AS, &none));
	for (unsigned i = 0; i < FEW; i++) {
		void *before = left[i];

		for (void *p = &size; p;) {
			p = malloc(few[i]);
			__asm__ volatile("" : "+r"(p));
		}
		left[i] = blind(realloc(before, few[i]));
		same += left[i] == before;
	}
	CHECK(same > 0, "each was moved");
	for (unsigned i = 0; i < FEW; i++)
		free_sized(left[i], few[i]);
}

/* A kmalloc's block, and a cache's, by their own sizes. */
static void others_go_on(void)
{
	for (size = 1; size < 8192; size = next(size))
		free_sized(blind(kmalloc(size, GFP_KERNEL)), size);
	if (slob)
		return;
	struct kmem_cache *cache = make("own", 100);
	free_sized(blind(kmem_cache_alloc(cache, GFP_KERNEL)), 100);
	gone(cache);
}

static void *freed(void)
{
	void *p = blind(malloc(size)), *q = blind(malloc(size));

	free(p);
	free(q);
	return blind(p);
}

static void sized_after_free(void) { malloc_usable_size(freed()); }
static void ksized_after_free(void) { ksize(freed()); }
static void grown_after_free(void) { blind(realloc(freed(), size * 10)); }
static void kept_after_free(void) { blind(realloc(freed(), size)); }

static void freed_ones_end(void)
{
	named = 0;
	for (size = 16; size < 20000; size = size * 3 / 2) {
		ends(sized_after_free, "malloc_usable_size");
		ends(ksized_after_free, "ksize");
		ends(grown_after_free, "realloc");
		ends(kept_after_free, "realloc");
	}
}

static const struct test_case cases[] = {
	{ "wrong sizes end", wrong_sizes_end }, { "right sizes go on", right_sizes_go_on },
	{ "resized blocks go on", resized_go_on }, { "others' blocks go on", others_go_on },
	{ "left ones go on", left_ones_go_on }, { "freed ones have no size", freed_ones_end },
};
API_MAIN_OPTIONS(cases, ",hardened:1")
