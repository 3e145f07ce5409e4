/*
 * big_blocks_refused: blocks above 4 MiB on a system that refuses calls. A size above all memory, refused as a
 * mapping, is not allocated in another way, nor reached by growth. Memory that the system once refused to take back
 * costs nothing later: a block at this place has as much memory as elsewhere, and reads as zeros. The address space
 * is offered again, with and without a block in it. The next owner of kept memory sees no advice of the last owner,
 * nor, in a region, the last owner's memory node.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "kit/limit.h"
#include "kit/rollup.h"
#include "percpu/node.h"
#include "os/os.h"

#define MIB	((size_t)1 << 20)
#define BYTES	(5 * MIB)
#define ALONE	40u			/* mappings of their own */
#define MANY	60u

static char *block[MANY];
static size_t memory;			/* memory of the system; 0: the real value */

size_t __real_km_os_memory(void);
size_t __wrap_km_os_memory(void)
{
	return memory ? memory : __real_km_os_memory();
}

static const char *refused;

static bool refuse(const char *call)
{
	return refused && !strcmp(refused, call);
}

static size_t resident(void)
{
	return (size_t)rollup_kb("Rss") << 10;
}

static size_t spare(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.mapped_spare_bytes;
}

static void fill(unsigned from)
{
	for (unsigned i = from; i < MANY; i++) {
		NEED((block[i] = kvzalloc(BYTES, GFP_KERNEL)));
		for (size_t at = 0; at < BYTES; at += 4096)
			NEED(!block[i][at] && !block[i][at + 4095], "block %u", i);
		memset(block[i], 1, BYTES);
	}
}

static void let_go(unsigned from)
{
	for (unsigned i = from; i < MANY; i++)
		kvfree(block[i]);
}

/* ------------------------------------------------------------------ more than there is */

static void too_much(bool regions)
{
	memory = 64 * MIB;
	if (regions)
		fill(0);
	refused = "map";
	CHECK(!kvmalloc(100 * MIB, GFP_KERNEL | __GFP_NOWARN) && errno == ENOMEM);
	CHECK(!kvmalloc(1000 * MIB, GFP_KERNEL | __GFP_NOWARN));
	/* A refused mapping does not mean that a region has no memory. */
	char *p = kvmalloc(BYTES, GFP_KERNEL);
	NEED(p);
	memset(p, 7, BYTES);
	CHECK(!kvrealloc(p, 100 * MIB, GFP_KERNEL | __GFP_NOWARN));
	CHECK_EQUAL(ksize(p), BYTES);
	NEED((p = kvrealloc(p, 50 * MIB, GFP_KERNEL)));
	CHECK(p[0] == 7 && p[BYTES - 1] == 7);
	refused = NULL;
	NEED((p = kvrealloc(p, 200 * MIB, GFP_KERNEL)));
	CHECK(p[0] == 7 && p[BYTES - 1] == 7);
	kvfree(p);
	NEED((p = kvmalloc(100 * MIB, GFP_KERNEL)));
	kvfree(p);
}

static void too_much_alone(void)
{
	too_much(false);
}

static void too_much_of_a_region(void)
{
	too_much(true);
}

/* ------------------------------------------------------------------ what was not taken back */

/* once: the next call succeeds. */
static void not_purged(bool once)
{
	fill(0);
	refused = "purge";
	let_go(ALONE + 5);
	kmem_shrink_all();
	if (once)
		refused = NULL;
	size_t before = resident(), most = once ? MIB : (MANY - ALONE - 5) * BYTES;
	for (unsigned i = ALONE + 5; i < MANY; i++)
		NEED((block[i] = kvmalloc(BYTES, GFP_KERNEL)));
	CHECK(resident() < before + most + MIB, "%zu MiB resident of %zu", resident() / MIB, before / MIB);
	for (unsigned i = ALONE + 5; i < MANY; i++) {
		char *p = kvrealloc(block[i], 3 * BYTES, GFP_KERNEL | __GFP_ZERO);

		NEED((block[i] = p));
		for (size_t at = BYTES; at < 3 * BYTES; at += 512)
			NEED(!p[at], "block %u", i);
		memset(p, 2, 3 * BYTES);
	}
	let_go(ALONE + 5);
	fill(ALONE + 5);
}

static void not_purged_once(void)
{
	not_purged(true);
}

static void not_purged_ever(void)
{
	not_purged(false);
}

static void not_unmapped(void)
{
	size_t before = spare();

	fill(0);
	refused = "unmap";
	let_go(0);
	kmem_shrink_all();
	CHECK(spare() > before);
	refused = NULL;
	kmem_shrink_all();
	CHECK_EQUAL(spare(), before);
}

/* An unmapped block would lose the advice with the mapping. */
/* With limited mappings a block is not renewed for the cache. */
static void kept_advice(void)
{
	int status;

	set_limit(RLIMIT_DATA, (size_t)1 << 40);
	block[0] = kvmalloc(BYTES, GFP_KERNEL);
	NEED(block[0] && !madvise(block[0], BYTES, MADV_DONTFORK));
	char *before = block[0];
	refused = "unmap";
	kvfree(block[0]);
	kmem_shrink_all();
	NEED((block[0] = kvzalloc(BYTES, GFP_KERNEL)));
	CHECK(block[0] == before, "it is used again");
	pid_t child = fork();
	if (!child)
		_exit(block[0][0] || block[0][BYTES - 1]);
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(status == 0, "status %#x", (unsigned)status);
}

/* ------------------------------------------------------------------ nodes */

static unsigned unbound;

int __wrap_km_os_prefer_nodes(void *p, size_t bytes, const uint64_t *set, unsigned limit)
{
	(void)limit;
	for (unsigned i = 0; i < MANY; i++)
		unbound += !set && p == block[i] && bytes >= BYTES;
	return 0;
}

/* As on a machine with several nodes. */
static void not_bound_any_more(void)
{
	km_nodes.bind = true;
	for (unsigned i = 0; i < MANY; i++)
		NEED((block[i] = kvmalloc(BYTES, GFP_KERNEL)));
	let_go(0);
	kmem_shrink_all();
	CHECK_EQUAL(unbound, MANY - ALONE);
	km_nodes.bind = false;
}

int main(void)
{
	void (*const runs[])(void) = {
		too_much_alone, too_much_of_a_region, not_purged_once, not_purged_ever, not_unmapped, kept_advice,
		not_bound_any_more,
	};

	NEED(slab_is_available());
	km_os_fault = refuse;
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			alarm(580);
			failures = 0;
			runs[i]();
			NEED(!kmem_check_all());
			_exit(failures != 0);
		}
		NEED(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(status == 0, "run %u: status %#x", i, (unsigned)status);
	}
	return failures != 0;
}
