/*
 * private: private groups are created, used and emptied, for each engine, with each system call failing in turn
 * (each_call.h). Afterwards no charge is left either. And a bulk request whose child cache comes at the second
 * try. With hardened: own_addresses:0, because here pages go from one name to another.
 */
#include "each_call.h"

#include <kmem/memcg.h>

#include "page/metadata.h"

static void took(const void *p)
{
	NEED(p || errno == ENOMEM);
	refused += !p;
}

static void use_in_name(const char *engine)
{
	struct kmem_cache_args args = { .engine = engine };
	struct kmem_cache *small = kmem_cache_create("small", 56, &args, SLAB_ACCOUNT);
	struct kmem_cache *big = kmem_cache_create("big", 4096, &args, SLAB_ACCOUNT);
	struct mem_cgroup *group = small && big ? mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE) : NULL;
	void *objects[100];

	took(group);
	for (int round = 0; group && round < 3; round++) {
		struct mem_cgroup *before = set_active_memcg(group);

		for (int i = 0; i < 900; i++) {
			took(kmem_cache_alloc(small, GFP_KERNEL | __GFP_NOWARN));
			/* Several of the largest blocks of pages. */
			for (int k = 0; k < 4; k++)
				took(kmem_cache_alloc(big, GFP_KERNEL | __GFP_NOWARN));
		}
		if (kmem_cache_alloc_bulk(small, GFP_KERNEL | __GFP_NOWARN, 100, objects))
			kmem_cache_free_bulk(small, 100, objects);
		else
			refused++;
		took(kmalloc(100, GFP_KERNEL_ACCOUNT | __GFP_NOWARN));
		took(kmalloc(100000, GFP_KERNEL_ACCOUNT | __GFP_NOWARN));
		took(kvmalloc(10 << 20, GFP_KERNEL_ACCOUNT | __GFP_NOWARN));
		set_active_memcg(before);
		NEED(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
		/* A drain needs a fence, and the system may refuse the fence. */
		unsigned long fail_at = fault.fail_at;
		fault.fail_at = 0;
		mem_cgroup_drain(group);
		NEED(mem_cgroup_current(group) == 0);
		fault.fail_at = fail_at;
	}
	mem_cgroup_put(group);
	kmem_cache_destroy(small);
	kmem_cache_destroy(big);
}

static void use_all(void)
{
	refused = 0;
	use_in_name("sheaf");
	use_in_name("slub");
	use_in_name("slab");
}

/*
 * First without memory for the child cache, then with memory; then the limit ends the bulk request half-way: the
 * request gives all objects back.
 */
static void child_comes_late(const char *engine)
{
	struct kmem_cache_args args = { .engine = engine };
	struct kmem_cache *cache = kmem_cache_create("late", 100, &args, SLAB_ACCOUNT);
	struct mem_cgroup *group = mem_cgroup_create(NULL, "late", MEM_CGROUP_PRIVATE);
	static void *objects[2000];

	NEED(cache && group && mem_cgroup_set_max(group, 64 << 10) == 0);
	/* All metadata available without a system call. */
	for (size_t bytes = (size_t)4 << 20; bytes >= 64; bytes /= 2)
		while (km_metadata_alloc(bytes, false))
			;
	fault.calls = 0;
	fault.fail_at = 1;
	fault.for_ever = false;
	km_os_fault = refuse;
	set_active_memcg(group);
	NEED(!kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, 2000, objects));
	NEED(fault.calls > 1);
	km_os_fault = NULL;
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 300, objects));
	set_active_memcg(NULL);
	kmem_cache_free_bulk(cache, 300, objects);
	mem_cgroup_drain(group);
	NEED(mem_cgroup_current(group) == 0);
	mem_cgroup_put(group);
	kmem_cache_destroy(cache);
	nothing_lost();
}

static int run_late(const char *engine)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(580);
		child_comes_late(engine);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (status)
		printf("a child cache made late, %s: status 0x%x\n", engine, (unsigned)status);
	return status;
}

int main(void)
{
	if (run_late("sheaf") || run_late("slub") || run_late("slab"))
		return 1;
	fault.fences = true;
	return each_call("private groups", run_forked, use_all);
}
