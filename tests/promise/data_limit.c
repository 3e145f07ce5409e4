/*
 * data_limit: with a limit on data, free memory counts against the limit no longer. After a peak of large blocks the
 * limit has room for small objects and for the metadata of their slabs. After kmem_shrink_all the limit has room for
 * the program's own mappings.
 * Not with hardened: the addresses of a freed slab are kept for its name.
 * Tier: full.
 */
#include <errno.h>
#include <sys/mman.h>

#include "kit/api.h"

#define LIMIT (192ul << 20)

/* How many blocks there are until one is refused; all go back. */
static size_t most(size_t bytes)
{
	size_t count = 0;
	void **list = NULL, **block;

	while ((block = kmalloc(bytes, GFP_KERNEL | __GFP_NOWARN))) {
		*block = list;
		list = block;
		count++;
	}
	NEED(errno == ENOMEM);
	for (; list; list = block) {
		block = *list;
		kfree(list);
	}
	return count;
}

static void limit_data(void)
{
	struct rlimit limit = { LIMIT, LIMIT };

	NEED(setrlimit(RLIMIT_DATA, &limit) == 0);
}

static void small_after_large(void)
{
	limit_data();
	size_t large = most(3 << 20), small = most(100), again = most(3 << 20);
	printf("%zu of 3 MiB, %zu of 100 bytes, %zu of 3 MiB\n", large, small, again);
	NEED(large > 20 && small * 100 > LIMIT / 2);
	/* Metadata stays, and keeps a part of a block. */
	NEED(again >= large - large / 8);
	NEED(kmem_check_all() == 0);
}

static void programs_own(void)
{
	limit_data();
	NEED(most(2000) * 2000 > LIMIT / 2);
	kmem_shrink_all();
	void *p = mmap(NULL, LIMIT / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(p != MAP_FAILED && munmap(p, LIMIT / 2) == 0);
	NEED(most(2000) * 2000 > LIMIT / 2);
	NEED(kmem_check_all() == 0);
}

static const struct test_case cases[] = {
	{ "small objects after large blocks", small_after_large },
	{ "the program's own mapping", programs_own },
};
API_MAIN(cases)
