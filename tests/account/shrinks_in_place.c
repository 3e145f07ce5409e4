/*
 * shrinks_in_place.c: a block that shrinks while no smaller block can be allocated stays in place, and the call
 * succeeds: errno is unchanged, no line is written, no out-of-memory callback is called, and no bytes are charged
 * above the limit. Disciplines: all
 */
#include "kit/groups.h"

enum { OLD = 4711, LARGE = 100000, MAPPED = 8 << 20, PAGE = 4096 };

static unsigned asked;		/* the out-of-memory callback */

static bool last_resort(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)group, (void)bytes, (void)arg;
	asked++;
	return false;
}

static void shrink(struct mem_cgroup *group, gfp_t gfp)
{
	void *block = kmalloc(LARGE, gfp), *mapped = kvmalloc(MAPPED, gfp);

	NEED(block && mapped);
	memset(block, 7, LARGE);
	mem_cgroup_set_max(group, PAGE);
	uint64_t used = drained(group);
	errno = OLD;
	CHECK(krealloc(block, 100, gfp) == block);
	CHECK_EQUAL(errno, OLD);
	CHECK(kvrealloc(mapped, 100, gfp) == mapped);
	CHECK_EQUAL(errno, OLD);
	CHECK(((char *)block)[99] == 7);
	CHECK_EQUAL(drained(group), used);
	CHECK_EQUAL(asked, 0);
	/* A failure to grow is reported. */
	if (!(gfp & __GFP_NOFAIL)) {
		CHECK(!krealloc(block, 2 * LARGE, gfp | __GFP_NOWARN));
		CHECK_EQUAL(errno, ENOMEM);
	}
	kfree(block);
	kvfree(mapped);
	mem_cgroup_set_max(group, MEMCG_NO_LIMIT);
	asked = 0;
}

int main(void)
{
	struct mem_cgroup *group = group_below(NULL, "group");

	mem_cgroup_set_oom_callback(group, last_resort, NULL);
	MEMCG_SCOPE(group);
	shrink(group, GFP_KERNEL_ACCOUNT);
	shrink(group, GFP_KERNEL_ACCOUNT | __GFP_NOFAIL);
	return failures != 0;
}
