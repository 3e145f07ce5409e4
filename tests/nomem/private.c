/*
 * private: the nth call to the system fails, n = 1, 2, 3 ..., while private groups are made, used and emptied, by each
 * engine: once with one failure, once with all further calls failing. Afterwards nothing is charged, nothing is lost,
 * and it all works again. Disciplines: all.
 */
#include "nomem.h"

#include <kmem/memcg.h>
#include <sys/wait.h>

#include "port/os.h"

static struct {
	unsigned long calls, fail_at;	/* fail_at 0: count only */
	bool for_ever;
} fault;

static bool refuse(const char *call)
{
	(void)call;
	unsigned long n = ++fault.calls;

	return fault.fail_at && (fault.for_ever ? n >= fault.fail_at : n == fault.fail_at);
}

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
		/* To drain takes a fence, which the system may refuse like anything. */
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

static int run(unsigned long n, bool for_ever)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(60);
		fault.calls = 0;
		fault.fail_at = n;
		fault.for_ever = for_ever;
		km_os_fault = refuse;
		use_all();
		bool reached = fault.calls >= n;
		fault.fail_at = 0;
		km_os_fault = NULL;
		nothing_lost();
		use_all();
		NEED(refused == 0);
		nothing_lost();
		_exit(reached ? 0 : 9);
	}
	waitpid(pid, &status, 0);
	return status;
}

int main(void)
{
	for (int for_ever = 0; for_ever < 2; for_ever++) {
		unsigned long n = 1;
		int status;

		while ((status = run(n, for_ever)) == 0)
			n++;
		printf("call n fails %s: n = 1 to %lu\n", for_ever ? "for ever" : "once", n - 1);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 9 || n < 5) {
			printf("call %lu: status 0x%x\n", n, (unsigned)status);
			return 1;
		}
	}
	return 0;
}
