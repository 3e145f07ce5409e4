/*
 * big_blocks.c: very many blocks above 4 MiB. The number of mappings stays low with many blocks allocated and freed.
 * The table has room for all of them. Each block keeps its contents and its zeros while the block and its neighbours
 * change, and is writable after any mprotect or advice of the last user. Memory that the system refused to take back
 * is counted, reused and offered again. Tier: full.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/mappings.h"
#include "kit/random.h"
#include "page/huge.h"
#include "os/os.h"

#define MIB	((size_t)1 << 20)
#define PAGE	4096u
#define LEAST	(4 * MIB + PAGE)
#define MANY	132000u		/* the table grows beyond 4 MiB */
#define FEW	100u		/* mappings, at any load */

static void *blocks[MANY];

static size_t statm(int field)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages[2];

	NEED(file && fscanf(file, "%zu %zu", &pages[0], &pages[1]) == 2);
	fclose(file);
	return pages[field] * PAGE;
}

static struct kmem_stats stats(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats;
}

/* True without a limit on the address space. */
static bool plenty(void)
{
	char mode[8] = "";
	struct rlimit limit;

	km_os_read("/proc/sys/vm/overcommit_memory", mode, sizeof(mode));
	return !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur == RLIM_INFINITY && mode[0] != '2';
}

/* Every second block is freed; then the blocks between, one after the other. */
static void many(void)
{
	size_t before = mappings_of_all(), space = statm(0);
	unsigned count = 0;

	while (count < MANY && (blocks[count] = kvmalloc(LEAST, GFP_KERNEL | __GFP_NOWARN)))
		count++;
	if (count < MANY) {
		printf("only %u blocks\n", count);
		NEED(!plenty());
	} else {
		NEED(mappings_of_all() < before + FEW);
		for (unsigned i = 0; i < count; i += 2)
			kfree(blocks[i]);
		NEED(mappings_of_all() < before + FEW);
		NEED(stats().mapped_blocks == count / 2);
		NEED(stats().mapped_spare_bytes);
		/* Freed address space is reused. */
		size_t now = statm(0);
		for (unsigned i = 0; i < count; i += 2)
			NEED((blocks[i] = kvmalloc(LEAST, GFP_KERNEL)));
		NEED(statm(0) < now + 8192 * MIB);
		NEED(mappings_of_all() < before + FEW);
	}
	while (count)
		kfree(blocks[--count]);
	NEED(!stats().mapped_blocks && !stats().mapped_bytes && !stats().mapped_spare_bytes);
	/* The tables of blocks and regions are the library's, and stay. */
	NEED(mappings_of_all() < before + 20 && statm(0) < space + 256 * MIB);
}

/* ------------------------------------------------------------------ what is in them */

#define SOME	3000u
static struct { unsigned char *p; size_t bytes; } some[SOME];

static size_t random_bytes(void)
{
	return LEAST + random_below(random_below(8) ? 512 : 4096) * PAGE;
}

/* The first and the last byte are the block's mark; all bytes between are zero. */
static void look_at(unsigned i)
{
	unsigned char *p = some[i].p, mark = (unsigned char)(i | 1);
	size_t bytes = some[i].bytes;

	NEED(p[0] == mark && p[bytes - 1] == mark);
	NEED(!p[1] && !p[bytes - 2] && !p[PAGE + random_below(bytes - 2 * PAGE)]);
	NEED(ksize(p) == bytes);
}

static void mark(unsigned i, bool set)
{
	some[i].p[0] = some[i].p[some[i].bytes - 1] = set ? (unsigned char)(i | 1) : 0;
}

static void get(unsigned i, size_t align)
{
	bool zero;

	some[i].bytes = random_bytes();
	some[i].p = km_huge_alloc(some[i].bytes, align, &zero);
	NEED(some[i].p && !((uintptr_t)some[i].p & (align - 1)));
	/* A caller that wants zeros clears used memory itself. */
	if (!zero)
		memset(some[i].p, 0, some[i].bytes);
	mark(i, true);
	look_at(i);
}

static void let_go(unsigned i)
{
	look_at(i);
	NEED(km_huge_free(some[i].p));
	NEED(!km_huge_free(some[i].p));
}

/* In place or moved; or not at all. */
static void resize(unsigned i)
{
	size_t bytes = random_bytes();

	look_at(i);
	some[i].p[some[i].bytes - 1] = 0;
	unsigned char *p = km_huge_resize(some[i].p, bytes);
	if (p) {
		some[i].p = p;
		some[i].bytes = bytes;
	}
	mark(i, true);
	look_at(i);
}

static void contents(void)
{
	size_t before = mappings_of_all();

	for (unsigned i = 0; i < SOME; i++)
		get(i, PAGE);
	for (unsigned turn = 0; turn < 4 * SOME; turn++) {
		unsigned i = (unsigned)random_below(SOME);

		switch (random_below(4)) {
		case 0:
		case 1:
			resize(i);
			break;
		case 2:
			look_at(i);
			break;
		case 3:
			/* The next owner may write to the block. */
			if (random_below(2))
				NEED(mprotect(some[i].p, 2 * MIB, PROT_READ) == 0);
			let_go(i);
			get(i, (size_t)PAGE << random_below(13));
		}
	}
	NEED(mappings_of_all() < before + FEW);
	for (unsigned i = 0; i < SOME; i++)
		let_go(i);
	kmem_shrink_all();
	NEED(!stats().mapped_blocks && !stats().mapped_spare_bytes);
}

static bool is_filled(const unsigned char *p, size_t from, size_t to, unsigned char with)
{
	while (from < to && p[from] == with)
		from++;
	return from == to;
}

static bool refuse_purge(const char *call)
{
	return strcmp(call, "purge") == 0;
}

/*
 * A shrunk block grows by zeros, after any action of the user on the removed part: in its room, or at the place of
 * other blocks; also if the system took no memory back.
 */
static void cut_and_grown(bool (*fault)(const char *call))
{
	bool zero;

	for (unsigned i = 0; i < SOME / 10; i++)
		get(i, PAGE);
	for (unsigned turn = 0; turn < 40; turn++) {
		size_t bytes = LEAST + random_below(2000) * PAGE, less = LEAST + random_below(bytes - LEAST + 1);
		size_t more = LEAST + random_below(4000) * PAGE;
		unsigned char *p = km_huge_alloc(bytes, PAGE, &zero), *q;

		less &= -(size_t)PAGE;
		NEED(p);
		memset(p, 1, bytes);
		if (random_below(2) && less < bytes)
			NEED(mprotect(p + less, bytes - less, PROT_READ) == 0);
		km_os_fault = fault;
		NEED(km_huge_resize(p, less) == p && is_filled(p, 0, less, 1));
		km_os_fault = NULL;
		q = km_huge_resize(p, more);
		size_t both = less < more ? less : more;
		NEED(!q || (is_filled(q, 0, both, 1) && is_filled(q, both, more, 0)));
		p = q ?: p;
		memset(p, 2, q ? more : less);
		NEED(km_huge_free(p));
	}
	for (unsigned i = 0; i < SOME / 10; i++)
		let_go(i);
	kmem_shrink_all();
	NEED(!stats().mapped_blocks);
}

/* ------------------------------------------------------------------ the system refuses */

static bool refuse_unmap(const char *call)
{
	return strcmp(call, "unmap") == 0;
}

static bool refuse_both(const char *call)
{
	return strcmp(call, "unmap") == 0 || strcmp(call, "purge") == 0;
}

static void refused(bool (*fault)(const char *call), bool alone)
{
	size_t bytes = 16 * MIB, spare, resident;
	bool zero;

	kmem_shrink_all();
	char *p = km_huge_alloc(bytes, PAGE, &zero);

	NEED(p);
	spare = stats().mapped_spare_bytes;
	memset(p, 1, bytes);
	km_os_fault = fault;
	resident = statm(1);
	NEED(km_huge_free(p));
	/* Nor is the block cached. */
	km_huge_purge(0);
	NEED(!km_huge_bytes(p) && stats().mapped_spare_bytes >= spare + bytes);
	NEED(fault == refuse_both || statm(1) + bytes / 2 < resident);
	/* A smaller block, and the rest. */
	char *q = km_huge_alloc(LEAST, PAGE, &zero);
	NEED(q && (!alone || (q >= p && q < p + bytes)));
	for (size_t i = 0; i < LEAST; i++)
		NEED(!q[i]);
	NEED(km_huge_free(q));
	km_huge_purge(0);
	NEED(stats().mapped_spare_bytes >= spare + bytes);
	km_os_fault = NULL;
	kmem_shrink_all();
	NEED(!alone || stats().mapped_spare_bytes == spare);
}

int main(void)
{
	NEED(slab_is_available());
	many();
	contents();
	cut_and_grown(NULL);
	cut_and_grown(refuse_purge);
	refused(refuse_unmap, true);
	refused(refuse_both, true);
	/* The same after all separate mappings are in use. */
	for (unsigned i = 0; i < SOME; i++)
		get(i, PAGE);
	refused(refuse_unmap, false);
	refused(refuse_both, false);
	for (unsigned i = 0; i < SOME; i++)
		let_go(i);
	kmem_shrink_all();
	NEED(!stats().mapped_blocks && !stats().mapped_spare_bytes);
	return 0;
}
