/*
 * nowait.c: GFP_NOWAIT and GFP_ATOMIC make no system call: here a filter of the kernel refuses all, while other
 * threads compete for the same caches, also with all objects charged, and by every function. And exhausted memory:
 * NULL with ENOMEM and few lines, or, with __GFP_NOFAIL, one line and the end; bulk gets all or nothing.
 * Disciplines: all.
 */
#include <kmem/memcg.h>
#include <kmem/mempool.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "kit/api.h"
#include "page/metadata.h"
#include "os/lock.h"

#define MIB ((size_t)1 << 20)

/* ------------------------------------------------------------------ no system call */

static void on_refused(int number, siginfo_t *info, void *context)
{
	static const char text[] = "     a system call: ";
	char digits[8] = "000\n";

	for (int i = 2, left = info->si_syscall; i >= 0; i--, left /= 10)
		digits[i] = (char)('0' + left % 10);
	if (write(1, text, sizeof(text) - 1) > 0 && write(1, digits, 4) > 0)
		_exit(3);
	_exit(4);
}

static bool charged;	/* all allocations are charged to a group */
static bool used_up;	/* the library's metadata is used up: only cached memory is available, and may have
			 * gone back */

/* From here on this thread may write and exit, and nothing else. */
static void refuse_calls(void)
{
#define ALLOW(call)                                                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1),                                         \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_write),
		ALLOW(SYS_exit),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_rt_sigreturn),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	struct sigaction refused = { .sa_sigaction = on_refused, .sa_flags = SA_SIGINFO };

	/* Nor does the library have metadata available without a system call. */
	while (used_up && km_metadata_alloc(64, false))
		;
	sigaction(SIGSYS, &refused, NULL);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		printf("     no filter to be had (errno %d): nothing was looked at\n", errno);
		fflush(stdout);
		_exit(0);
	}
	/* A lock given back by this thread might always have a sleeper: debug builds make sure of one. */
#ifdef KM_DEBUG
	km_lock_always_wakes = true;
#endif
}

static struct kmem_cache *small, *large;
static void *mapping;

static void make_caches(void)
{
	small = kmem_cache_create("small", 64, NULL, charged ? SLAB_ACCOUNT : 0);
	large = kmem_cache_create("large", 3000, NULL, charged ? SLAB_ACCOUNT : 0);
	NEED(small && large);
	/*
	 * Some memory is available, and the per-CPU sheaves exist. With this gfp no object is guarded, because a
	 * guarded object would not reach the engine.
	 */
	void *p = kmem_cache_alloc(small, GFP_KERNEL | __GFP_THISNODE);
	void *q = kmem_cache_alloc(large, GFP_KERNEL | __GFP_THISNODE);
	mapping = kvmalloc(16 * MIB, GFP_KERNEL);
	NEED(p && q && mapping);
	kmem_cache_free(small, p);
	kmem_cache_free(large, q);
	fflush(stdout);
}

static void *volatile sink;

/* krealloc and kvrealloc, from sizes of all kinds to others. */
static void reallocate(gfp_t gfp, unsigned i)
{
	static const size_t sizes[] = { 40, 500, 5000, 9000, 70000, MIB };
	void *p = kvmalloc(sizes[i % 6], gfp), *q;

	if (p && (q = krealloc(p, sizes[(i / 6) % 6], gfp)))
		p = q;
	if (p && (q = kvrealloc(p, sizes[(i / 36) % 6], gfp)))
		p = q;
	if (p && (q = kvrealloc(p, 8 * MIB, gfp)))
		p = q;
	/* Not freed: a free promises only a short sleep, and may wake a thread that waits for a lock. */
	sink = p;
}

static void resize_mapping(gfp_t gfp)
{
	NEED(!kvrealloc(mapping, 64 * MIB, gfp));
	NEED(kvrealloc(mapping, 5 * MIB, gfp) == mapping);
	NEED(kvrealloc(mapping, 1000, gfp) == mapping && krealloc(mapping, 1000, gfp) == mapping);
	/* The whole mapping is still allocated. */
	NEED(kvrealloc(mapping, 16 * MIB, gfp) == mapping);
}

static unsigned allocate_all_ways(gfp_t gfp, unsigned rounds)
{
	static void *objects[100];
	unsigned got = 0;

	gfp |= charged ? __GFP_ACCOUNT : 0;
	for (unsigned i = 0; i < rounds; i++) {
		/* Neither charged nor uncharged objects need a system call. */
		set_active_memcg(charged && i % 64 == 0 ? mem_cgroup_root() : NULL);
		sink = kmem_cache_alloc(small, gfp);
		got += sink != NULL;
		sink = kmem_cache_alloc(large, gfp);
		got += sink != NULL;
		sink = kmem_cache_zalloc(small, gfp);
		sink = kmem_cache_alloc_inline(small, gfp);
		sink = kmem_cache_alloc_node(small, gfp, 0);
		sink = kmalloc(i % 9000, gfp | __GFP_NOWARN);
		got += sink != NULL;
		sink = kmem_cache_alloc(small, gfp | __GFP_THISNODE);
		if (i % 50 == 0) {
			got += kmem_cache_alloc_bulk(small, gfp | __GFP_NOWARN, 100, objects);
			got += kmalloc_bulk(i % 9000, gfp | __GFP_NOWARN, 100, objects);
			sink = kvmalloc(i * 10, gfp | __GFP_NOWARN);
			sink = kmalloc(16384, gfp | __GFP_NOWARN);
			sink = kmalloc(MIB, gfp | __GFP_NOWARN);
			sink = kvmalloc(8 * MIB, gfp | __GFP_NOWARN);
			sink = kzalloc(300, gfp | __GFP_NOWARN);
			reallocate(gfp | __GFP_NOWARN, i / 50);
		}
	}
	return got;
}

static void alone(void)
{
	make_caches();
	/* A handler's free waits for a call that may make system calls, because unmapping is a system call. */
	void *freed = kvmalloc(8 * MIB, GFP_KERNEL);
	struct km_busy_was was = km_busy_begin();
	kfree(freed);
	km_busy_end(was);
	void *block = kmalloc(2 * MIB, GFP_KERNEL);
	NEED(block);
	refuse_calls();
	NEED(krealloc(block, 100, GFP_NOWAIT));
	resize_mapping(GFP_NOWAIT);
	unsigned got = allocate_all_ways(GFP_NOWAIT, 3000);
	got += allocate_all_ways(GFP_ATOMIC | __GFP_NOWARN, 3000);
	/* The requests may fail, but not at once. */
	NEED(got > 10 || used_up, "(%u)", got);
}

/*
 * A failed bulk request takes the available objects and gives them back, without a system call: also for the sheaves
 * needed.
 */
static void give_back(void)
{
	enum { MANY = 200000, CACHES = 40 };
	static void *objects[MANY];
	struct kmem_cache *caches[CACHES];

	for (int i = 0; i < CACHES; i++) {
		caches[i] = make("give back", 2000);
		void *p = kmem_cache_alloc(caches[i], GFP_KERNEL);
		NEED(p);
		kmem_cache_free(caches[i], p);
	}
	/* As much free memory as a bulk of one cache. */
	kfree(kmalloc(4 * MIB, GFP_KERNEL));
	make_caches();
	refuse_calls();
	for (int i = 0; i < CACHES; i++)
		NEED(!kmem_cache_alloc_bulk(caches[i], GFP_NOWAIT, MANY, objects));
}

/* The point of a prefilled sheaf: so many are sure where nothing else is. */
static void prefilled(void)
{
	const gfp_t gfp = GFP_NOWAIT;
	struct slab_sheaf *sheaf, *array;

	make_caches();
	sheaf = kmem_cache_prefill_sheaf(small, GFP_KERNEL, 40);
	array = kmem_cache_prefill_sheaf(large, GFP_KERNEL, 1000);
	NEED(sheaf && array);
	refuse_calls();
	while (kmem_cache_alloc(small, gfp))
		;
	while (kmem_cache_alloc(large, gfp))
		;
	for (int i = 0; i < 40; i++)
		NEED((sink = kmem_cache_alloc_from_sheaf(small, gfp | __GFP_ZERO, sheaf)));
	for (int i = 0; i < 990; i++)
		NEED((sink = kmem_cache_alloc_from_sheaf(large, gfp, array)));
	kmem_cache_return_sheaf(small, gfp, sheaf);
	kmem_cache_return_sheaf(large, gfp, array);
	sheaf = NULL;
	/* Where there are blocks, what was returned can be had again. */
	if (kmem_cache_event(small, KMEM_SHEAF_PREFILL_SLOW))
		NEED((sheaf = kmem_cache_prefill_sheaf(small, gfp, 20)));
	NEED(!kmem_cache_prefill_sheaf(small, gfp, 50000));
	for (unsigned n = 1; sheaf && n < 60; n++)
		kmem_cache_refill_sheaf(small, gfp, &sheaf, n);
	kmem_cache_return_sheaf(small, gfp, sheaf);
}

/* Caches of all kinds, and what lies before a cache. */
static void other_doors(void)
{
	static const slab_flags_t kinds[] = {
		SLAB_NODUMP, SLAB_FAILSLAB, SLAB_TYPESAFE_BY_RCU, SLAB_CONSISTENCY_CHECKS, SLAB_RED_ZONE | SLAB_POISON,
		0, 0,
	};
	enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), SWITCHED = KINDS - 2, POOLED = KINDS - 1 };
	struct kmem_cache *caches[KINDS];
	static void *objects[100];
	mempool_t pool;

	for (int i = 0; i < KINDS; i++) {
		NEED((caches[i] = kmem_cache_create("kind", 200, NULL, kinds[i] | SLAB_NO_MERGE)));
		if (i == SWITCHED)
			NEED(kmem_cache_set_debug(caches[i], "FZP") == 0);
		void *p = kmem_cache_alloc(caches[i], GFP_KERNEL);
		NEED(p);
		kmem_cache_free(caches[i], p);
	}
	NEED(mempool_init_slab_pool(&pool, 20, caches[POOLED]) == 0);
	kfree(kmalloc(4 * MIB, GFP_KERNEL));
	refuse_calls();
	for (int i = 0; i < KINDS; i++)
		for (int round = 0; round < 300; round++) {
			sink = kmem_cache_alloc(caches[i], GFP_NOWAIT);
			sink = kmem_cache_zalloc(caches[i], GFP_NOWAIT);
			sink = kmem_cache_alloc_nolock(caches[i], 0, NUMA_NO_NODE);
			kmem_cache_alloc_bulk(caches[i], GFP_NOWAIT, 100, objects);
			sink = kmalloc_nolock((size_t)round * 10 + 1, 0, NUMA_NO_NODE);
		}
	for (int i = 0; i < 20; i++)
		NEED((sink = mempool_alloc(&pool, GFP_NOWAIT)));
	for (int i = 0; i < 100; i++)
		sink = mempool_alloc(&pool, GFP_NOWAIT);
}

static volatile bool stop;

static void *compete(void *unused)
{
	void *objects[64];

	while (!stop) {
		for (int i = 0; i < 64; i++)
			objects[i] = i % 2 ? kmem_cache_alloc(small, GFP_KERNEL) :
					     kmalloc((size_t)i * 50, GFP_KERNEL);
		for (int i = 0; i < 64; i++)
			if (slob && i % 2)
				kmem_cache_free(small, objects[i]);
			else
				kfree(objects[i]);
		if (kmem_cache_alloc_bulk(large, GFP_KERNEL, 64, objects))
			kmem_cache_free_bulk(large, 64, objects);
		kmem_cache_shrink(small);
	}
	return unused;
}

static void in_a_crowd(void)
{
	pthread_t threads[3];

	make_caches();
	for (int i = 0; i < 3; i++)
		NEED(pthread_create(&threads[i], NULL, compete, NULL) == 0);
	usleep(10000);
	refuse_calls();
	/* The objects stay allocated, and other threads commit more. */
	unsigned got = 0;
	for (int turn = 0; turn < 100 && got < 20000; turn++)
		got += allocate_all_ways(GFP_NOWAIT, 1000);
	NEED(got > 10 || used_up, "(%u)", got);
	_exit(0);
}

static void pay_for_all(uint64_t max)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "nowait", 0);

	NEED(group && mem_cgroup_set_max(group, max) == 0);
	/* The event of the limit must be deferred. */
	NEED(mem_cgroup_eventfd(group, 1 << MEMCG_MAX) >= 0);
	mem_cgroup_set_default(group);
	charged = true;
}

static void alone_and_charged(void)
{
	pay_for_all(MIB);
	alone();
}

static void in_a_crowd_and_charged(void)
{
	pay_for_all(MEMCG_NO_LIMIT);
	in_a_crowd();
}

static void alone_and_used_up(void)
{
	used_up = true;
	alone_and_charged();
}

static void in_a_crowd_and_used_up(void)
{
	used_up = true;
	in_a_crowd_and_charged();
}

/* ------------------------------------------------------------------ exhausted */

static void limit_memory(size_t more)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	NEED(file && fscanf(file, "%lu", &pages) == 1);
	fclose(file);
	struct rlimit limit = { pages * 4096 + more, pages * 4096 + more };
	NEED(setrlimit(RLIMIT_AS, &limit) == 0);
	/* Reserved pages can still be committed; committed pages count as data. */
	limit.rlim_cur = limit.rlim_max = 24 * MIB;
	NEED(setrlimit(RLIMIT_DATA, &limit) == 0);
}

/* Until there is nothing left: 64 MiB at most, or the limit does not bind here. */
static size_t exhaust(struct kmem_cache *cache, gfp_t gfp)
{
	size_t got = 0;

	while (got < 64 * MIB / 3000) {
		char *p = kmem_cache_alloc(cache, gfp);

		if (!p)
			break;
		*p = 1;
		got++;
	}
	return got;
}

/*
 * With guard:each, a quarter of the guard pages is for calls without guarded objects: such a call is served although
 * the engine has no memory left. Objects of this cache are never guarded.
 */
static struct kmem_cache *unguarded(const char *name)
{
	struct kmem_cache *cache = kmem_cache_create(name, 3000, NULL, SLAB_SKIP_KFENCE);

	NEED(cache);
	return cache;
}

static void exhaust_quietly(void)
{
	struct kmem_cache *cache = unguarded("quiet");

	limit_memory(MIB);
	errno = 0;
	size_t got = exhaust(cache, GFP_KERNEL | __GFP_NOWARN);
	if (got >= 64 * MIB / 3000)
		_exit(77);
	NEED(errno == ENOMEM && got > 100);
	for (int i = 0; i < 20; i++)
		NEED(!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN));
	NEED(!kmem_cache_alloc(cache, GFP_NOWAIT));
	NEED(kmem_check_all() == 0);
}

static void exhaust_aloud(void)
{
	struct kmem_cache *cache = unguarded("aloud");

	limit_memory(MIB);
	exhaust(cache, GFP_KERNEL | __GFP_NOWARN);
	/* As many lines as said() can hold. */
	for (int i = 0; i < 25; i++)
		if (kmem_cache_alloc(cache, GFP_KERNEL))
			_exit(77);
}

static void exhaust_for_good(void)
{
	struct kmem_cache *cache = unguarded("for good");

	limit_memory(MIB);
	exhaust(cache, GFP_KERNEL | __GFP_NOFAIL);
	_exit(77);
}

static void exhaustion(void)
{
	char text[4096];
	int lines, status = said(exhaust_quietly, text, &lines);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("     memory can't be limited here: nothing was looked at\n");
		return;
	}
	NEED(status == 0 && lines == 0);
	status = said(exhaust_aloud, text, &lines);
	/* How many at most depends on the clock (unit/refused_lines). */
	NEED(status == 0 && lines >= 1 && strstr(text, "aloud"));
	status = said(exhaust_for_good, text, &lines);
	NEED(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1);
	NEED(strstr(text, "for_good") && strstr(text, "__GFP_NOFAIL"));
}

static unsigned long active(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.active_objects;
}

/* All or nothing: a failed bulk request leaves the number of taken objects unchanged. */
static void bulk_exhausted(void)
{
	struct kmem_cache *cache = make("bulk", 3000);
	static void *objects[30000];
	size_t n = sizeof(objects) / sizeof(objects[0]);

	limit_memory(MIB);
	void *first = kmem_cache_alloc(cache, GFP_KERNEL);
	errno = 0;
	if (kmem_cache_alloc_bulk(cache, GFP_KERNEL | __GFP_NOWARN, n, objects))
		return;
	NEED(errno == ENOMEM && active(cache) == 1);
	NEED(!kmem_cache_alloc_bulk(cache, GFP_NOWAIT, n, objects) && active(cache) == 1);
	NEED(!kmalloc_bulk(3000, GFP_KERNEL | __GFP_NOWARN, n, objects));
	/*
	 * With so little left under RLIMIT_AS, Linux does not charge mprotect of 4 MiB to RLIMIT_DATA: above,
	 * metadata ran out, and whole pages need none.
	 */
	NEED(slob || !kmalloc_bulk(30000, GFP_KERNEL | __GFP_NOWARN, n, objects));
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 100, objects) && active(cache) == 101);
	kmem_cache_free_bulk(cache, 100, objects);
	kmem_cache_free(cache, first);
	gone(cache);
}

static const struct test_case cases[] = {
	{ "no system call", alone },
	{ "no system call in a crowd", in_a_crowd },
	{ "no system call, and charged", alone_and_charged },
	{ "no system call in a crowd, and charged", in_a_crowd_and_charged },
	{ "no system call, and no records", alone_and_used_up },
	{ "no system call in a crowd, and no records", in_a_crowd_and_used_up },
	{ "no system call to give back", give_back },
	{ "from a prefilled sheaf", prefilled }, { "by other doors", other_doors },
	{ "exhausted", exhaustion },
	{ "bulk when exhausted", bulk_exhausted },
};

API_MAIN(cases)
