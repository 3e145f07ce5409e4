/*
 * malloc_aligned.c: every alignment up to two pages, with every size, by each aligning function, many blocks at a
 * time: each block begins at the alignment, has room for the requested bytes, and overlaps no other block. An
 * invalid alignment is refused. calloc returns zeros over used memory. For each engine, unless the caller names one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slab/engines.h"
#include "kit/malloc.h"
#include "kit/options.h"

/* With LD_PRELOAD of the library other objects may lack these functions. */
#pragma weak _ZnwmSt11align_val_t
#pragma weak _ZnwmSt11align_val_tRKSt9nothrow_t
#pragma weak _ZnamSt11align_val_t
#pragma weak _ZdlPvSt11align_val_t
void *_ZnwmSt11align_val_t(size_t size, size_t align);
void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t align, const void *nothrow);
void *_ZnamSt11align_val_t(size_t size, size_t align);
void _ZdlPvSt11align_val_t(void *p, size_t align);

enum { LIVE = 64, WAYS = 6 };

static struct block {
	unsigned char *p;
	size_t size;
	unsigned seed;
} live[LIVE];

static void *get(unsigned way, size_t align, size_t size)
{
	void *p = NULL;

	switch (way) {
	case 0: return aligned_alloc(align, size);
	case 1: return memalign(align, size);
	case 2: return _ZnwmSt11align_val_t ? _ZnwmSt11align_val_t(size, align) : aligned_alloc(align, size);
	case 3:
		if (_ZnwmSt11align_val_tRKSt9nothrow_t)
			return _ZnwmSt11align_val_tRKSt9nothrow_t(size, align, "");
		/* Fall through. */
	case 4: return _ZnamSt11align_val_t ? _ZnamSt11align_val_t(size, align) : memalign(align, size);
	default: NEED(posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, size) == 0);
	}
	return p;
}

/* The first and the last bytes are unchanged, so no other block overlaps. */
static void leave(struct block *block)
{
	size_t edge = block->size < 16 ? block->size : 16;

	if (!block->p)
		return;
	NEED(is_filled(block->p, edge, block->seed), "(size %zu)", block->size);
	NEED(is_filled(block->p + block->size - edge, edge, block->seed + 1) || block->size < 32);
	if (block->seed % 2 || !_ZdlPvSt11align_val_t)
		free(block->p);
	else
		_ZdlPvSt11align_val_t(block->p, 1);
	block->p = NULL;
}

static void enter(struct block *block, size_t align, size_t size, unsigned seed)
{
	size_t edge = size < 16 ? size : 16;
	unsigned char *p = get(seed % WAYS, align, size);

	NEED(p && (uintptr_t)p % align == 0 && (uintptr_t)p % 16 == 0, "(%p: size %zu, alignment %zu)", (void *)p,
	      size, align);
	NEED(malloc_usable_size(p) >= size);
	if (size >= 32)
		fill(p + size - edge, edge, seed + 1);
	fill(p, edge, seed);
	*block = (struct block){ p, size, seed };
}

static void test_pairs(void)
{
	unsigned seed = 0;

	for (size_t align = 1; align <= 8192; align *= 2)
		for (size_t size = 0; size <= 40000; size += size < 4200 ? 1 : 97) {
			struct block *block = &live[seed * 7 % LIVE];

			leave(block);
			errno = 5;
			enter(block, align, size, seed++);
			NEED(errno == 5);
		}
	for (unsigned i = 0; i < LIVE; i++)
		leave(&live[i]);
}

/* One slab of each class, and more: every object is aligned, not only the first. */
static void test_whole_slabs(void)
{
	static void *many[600];

	for (size_t align = 32; align <= 4096; align *= 2)
		for (size_t size = 1; size <= 20000; size = size * 9 / 8 + 1) {
			unsigned count = size < 500 ? 600 : 40;

			for (unsigned i = 0; i < count; i++) {
				many[i] = aligned_alloc(align, size);
				NEED(many[i] && (uintptr_t)many[i] % align == 0, "(size %zu, alignment %zu)", size,
				      align);
			}
			for (unsigned i = 0; i < count; i++)
				free(many[i]);
		}
}

static void test_refused(void)
{
	static const size_t no_multiple[] = { 0, 1, 2, 4 };
	static const size_t no_power[] = { 12, 20, 24, 40, 48, 96, 1000, 4095, 4097, 12288 };
	void *p = (void *)-1;

	/* Caches objects of each class. */
	for (size_t size = 16; size <= 8192; size *= 2)
		free(malloc(size));
	errno = 9;
	for (unsigned i = 0; i < sizeof(no_multiple) / sizeof(no_multiple[0]); i++)
		NEED(posix_memalign(&p, no_multiple[i], 64) == EINVAL && p == (void *)-1 && errno == 9);
	for (unsigned i = 0; i < sizeof(no_power) / sizeof(no_power[0]); i++) {
		errno = 9;
		NEED(posix_memalign(&p, no_power[i], 64) == EINVAL && p == (void *)-1 && errno == 9);
		NEED(!aligned_alloc(no_power[i], 64) && errno == EINVAL);
	}
	volatile size_t none = 0;	/* clang 14 crashes at a constant 0 */
	NEED(!aligned_alloc(none, 64) && errno == EINVAL);
	for (size_t align = 16; align <= 4096; align *= 2) {
		volatile size_t most = SIZE_MAX;

		for (size_t less = 0; less < 64; less++)
			NEED(!aligned_alloc(align, most - less) && errno == ENOMEM);
	}
}

static void test_zeros(void)
{
	static unsigned char *many[32];

	for (size_t size = 1; size <= 40000; size = size * 17 / 16 + 1)
		for (int round = 0; round < 2; round++) {
			for (unsigned i = 0; i < 32; i++) {
				many[i] = round ? calloc(i % 2 ? 1 : size, i % 2 ? size : 1) : malloc(size);
				NEED(many[i]);
				for (size_t at = 0; round && at < size; at++)
					NEED(many[i][at] == 0, "(byte %zu of %zu)", at, size);
			}
			/* All blocks hold dirt; calloc clears bytes of its own block only. */
			for (unsigned i = 0; i < 32; i++)
				memset(HELD(many[i]), 0xee, malloc_usable_size(many[i]));
			for (unsigned i = 0; i < 32; i += 2) {
				free(many[i]);
				many[i] = calloc(1, size);
				NEED(many[i]);
			}
			for (unsigned i = 1; i < 32; i += 2)
				for (size_t at = 0; at < size; at++)
					NEED(many[i][at] == 0xee, "(byte %zu of %zu)", at, size);
			for (unsigned i = 0; i < 32; i++)
				free(many[i]);
		}
}

static int run_engine(const char *program, const char *engine)
{
	char options[32];
	int status = 1;
	pid_t child = fork();

	if (!child) {
		snprintf(options, sizeof(options), "engine:%s", engine);
		set_options(options);
		execl(program, program, engine, (char *)NULL);
		_exit(127);
	}
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	return WEXITSTATUS(status) | WTERMSIG(status);
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	int failed = 0;

	check_ours();
	if (argc < 2 && !getenv("KMEM_OPTIONS")) {
		for (unsigned i = 0; i < 4; i++)
			failed |= run_engine("/proc/self/exe", engines[i]);
		return failed;
	}
	test_pairs();
	test_whole_slabs();
	test_refused();
	test_zeros();
	return 0;
}
