/*
 * big_blocks_table.c: mem_cgroup_destroy_all visits each block above 4 MiB of a private group once, although
 * other threads allocate so many blocks meanwhile that the table of such blocks is replaced.
 */
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/check.h"

#define BLOCKS	40u
#define OTHERS	400u		/* the table grows more than once */
#define BYTES	((size_t)5 << 20)

static void *block[BLOCKS], *other[OTHERS];
static unsigned seen[BLOCKS], strangers, visits;

static void visit(struct kmem_cache *cache, void *object, void *arg)
{
	unsigned i = 0;

	(void)cache, (void)arg;
	while (i < BLOCKS && block[i] != object)
		i++;
	if (i < BLOCKS)
		seen[i]++;
	else
		strangers++;
	if (++visits == BLOCKS / 2)
		for (i = 0; i < OTHERS; i++)
			NEED((other[i] = kvmalloc(BYTES, GFP_KERNEL)));
}

int main(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "big", MEM_CGROUP_PRIVATE);
	struct kmem_stats stats;

	NEED(group);
	{
		MEMCG_SCOPE(group);
		for (unsigned i = 0; i < BLOCKS; i++)
			NEED((block[i] = kvmalloc(BYTES, GFP_KERNEL_ACCOUNT)));
	}
	CHECK(mem_cgroup_destroy_all(group, visit, NULL) == 0);
	for (unsigned i = 0; i < BLOCKS; i++)
		CHECK(seen[i] == 1);
	kmem_get_stats(&stats);
	CHECK(!strangers && stats.mapped_blocks == OTHERS);
	for (unsigned i = 0; i < OTHERS; i++)
		kvfree(other[i]);
	mem_cgroup_drain(group);
	CHECK(mem_cgroup_current(group) == 0 && kmem_check_all() == 0);
	mem_cgroup_put(group);
	return failures != 0;
}
