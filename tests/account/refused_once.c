/*
 * refused_once.c: a realloc of a large block whose group has no room calls the group's out-of-memory callback once,
 * for the additional bytes, and fails with the block unchanged. If another group is active, its callback is called
 * as well, and the moved block is charged to this group; an uncharged realloc moves the block uncharged.
 * Disciplines: all
 */
#include "kit/groups.h"

enum { PAGES = 1126400, MORE = 1691648, MAPPED = 8 << 20, OLD = 4711 };

/* Of one group: how often, and for how much at last. */
struct asked {
	unsigned times;
	uint64_t bytes;
};

static bool last_resort(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	struct asked *asked = arg;

	(void)group;
	asked->times++;
	asked->bytes = bytes;
	return false;
}

static struct mem_cgroup *asking(unsigned flags, struct asked *asked)
{
	struct mem_cgroup *group = group_of(NULL, "asks", flags);

	mem_cgroup_set_oom_callback(group, last_resort, asked);
	return group;
}

/* A block of this group, with no room for more bytes. */
static char *charged(struct mem_cgroup *group, size_t size)
{
	MEMCG_SCOPE(group);
	char *block = kvmalloc(size, GFP_KERNEL_ACCOUNT);

	NEED(block && mem_cgroup_from_obj(block) == group);
	memset(block, 7, size);
	NEED(mem_cgroup_set_max(group, drained(group)) == 0);
	return block;
}

typedef void *(*realloc_t)(void *block, size_t size, gfp_t gfp);

static void by_its_objcg(unsigned flags, size_t size, size_t larger, realloc_t call)
{
	struct asked asked = { 0, 0 };
	struct mem_cgroup *group = asking(flags, &asked);
	char *block = charged(group, size);
	size_t used = drained(group);
	MEMCG_SCOPE(group);

	errno = OLD;
	CHECK(!call(block, larger, GFP_KERNEL_ACCOUNT));
	CHECK_EQUAL(errno, ENOMEM);
	CHECK_EQUAL(asked.times, 1);
	CHECK_EQUAL(asked.bytes, larger - ksize(block));
	CHECK_EQUAL(drained(group), used);
	CHECK(block[size - 1] == 7 && mem_cgroup_from_obj(block) == group);
	/* A request with __GFP_NOFAIL goes above the limit. */
	block = call(block, larger, GFP_KERNEL_ACCOUNT | __GFP_NOFAIL);
	CHECK(block && block[size - 1] == 7 && ksize(block) >= larger);
	kvfree(block);
	CHECK_EQUAL(drained(group), 0);
	mem_cgroup_put(group);
}

/* Another group is active: with room, or with none. */
static void by_another(size_t size, size_t larger, realloc_t call, bool room)
{
	struct asked asked = { 0, 0 }, other_asked = { 0, 0 };
	struct mem_cgroup *group = asking(0, &asked), *other = asking(0, &other_asked);
	char *block = charged(group, size);

	NEED(room || mem_cgroup_set_max(other, 4096) == 0);
	set_active_memcg(other);
	char *moved = call(block, larger, GFP_KERNEL_ACCOUNT);
	set_active_memcg(NULL);
	CHECK_EQUAL(asked.times, 1);
	CHECK_EQUAL(other_asked.times, room ? 0 : 1);
	CHECK(!moved == !room && (room || errno == ENOMEM));
	CHECK(mem_cgroup_from_obj(moved ?: block) == (room ? other : group));
	CHECK((moved ?: block)[size - 1] == 7);
	kvfree(moved ?: block);
	CHECK(drained(group) == 0 && drained(other) == 0);
	mem_cgroup_put(group);
	mem_cgroup_put(other);
}

/* A request without __GFP_ACCOUNT moves the block uncharged. */
static void by_no_group(size_t size, size_t larger, realloc_t call)
{
	struct asked asked = { 0, 0 };
	struct mem_cgroup *group = asking(0, &asked);
	char *block = charged(group, size);
	MEMCG_SCOPE(group);
	char *moved = call(block, larger, GFP_KERNEL);

	CHECK_EQUAL(asked.times, 1);
	CHECK(moved && moved[size - 1] == 7);
	kvfree(moved);
	CHECK_EQUAL(drained(group), 0);
	mem_cgroup_put(group);
}

static void each(size_t size, size_t larger, realloc_t call)
{
	by_its_objcg(0, size, larger, call);
	by_its_objcg(MEM_CGROUP_PRIVATE, size, larger, call);
	by_another(size, larger, call, true);
	by_another(size, larger, call, false);
	by_no_group(size, larger, call);
}

int main(void)
{
	alarm(580);
	each(PAGES, MORE, kvrealloc);
	each(PAGES, MORE, krealloc);
	each(MAPPED, MAPPED * 3 / 2, kvrealloc);
	return failures != 0;
}
