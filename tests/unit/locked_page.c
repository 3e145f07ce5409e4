/*
 * locked_page.c: a page that the program locked and freed stays. All other free pages go to the system, also
 * pages behind it in the same run, and the next purge makes only a few calls for the remaining pages.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>

#include "kit/engine.h"

enum { BLOCKS = 16, BYTES = 256 << 10, PAGES = BYTES / KM_PAGE_SIZE };

static char *blocks[BLOCKS];

static unsigned resident(void)
{
	unsigned char is[PAGES];
	unsigned count = 0;

	for (unsigned i = 0; i < BLOCKS; i++) {
		NEED(!mincore(blocks[i], BYTES, is));
		for (unsigned page = 0; page < PAGES; page++)
			count += is[page] & 1;
	}
	return count;
}

static unsigned calls;

static bool count_purges(const char *call)
{
	calls += !strcmp(call, "purge");
	return false;
}

/* Refused pages count as new from this moment. */
static void purge(void)
{
	ahead_ms += 10;
	kmem_shrink_all();
}

/* The free pages that stay, with `many` locked pages far from each other. */
static void locked(unsigned many)
{
	km_alloc_tick = NULL;
	kmem_shrink_all();
	for (unsigned i = 0; i < BLOCKS; i++) {
		NEED((blocks[i] = kmalloc(BYTES, GFP_KERNEL)));
		memset(blocks[i], 1, BYTES);
	}
	/* Sanitizers make nothing of mlock. */
	for (unsigned i = 0; i < many; i++)
		if (syscall(SYS_mlock, blocks[(i * 5 + 3) % BLOCKS] + KM_PAGE_SIZE * 7, (size_t)KM_PAGE_SIZE)) {
			printf("no page may be locked here\n");
			exit(77);
		}
	for (unsigned i = 0; i < BLOCKS; i++)
		kfree(blocks[i]);
	purge();
	CHECK_EQUAL(resident(), many);
	CHECK_EQUAL(kmem_check_all(), 0);
	calls = 0;
	km_os_fault = count_purges;
	purge();
	km_os_fault = NULL;
	CHECK(calls <= 2 * many, "(%u calls)", calls);
	CHECK_EQUAL(resident(), many);
	for (unsigned i = 0; i < BLOCKS; i++)
		syscall(SYS_munlock, blocks[i], (size_t)BYTES);
	purge();
	CHECK_EQUAL(resident(), 0);
	struct kmem_stats stats;
	kmem_get_stats(&stats);
	CHECK_EQUAL(stats.pages_free_dirty, 0);
	CHECK_EQUAL(kmem_check_all(), 0);
}

static void one(void)
{
	locked(1);
}

static void some(void)
{
	locked(3);
}

int main(void)
{
	static const struct test_case cases[] = { { "one", one }, { "some", some } };

	return run_in_turn(cases, km_array_count(cases), 1);
}
