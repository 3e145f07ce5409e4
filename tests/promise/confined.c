/*
 * confined.c: programs that confine themselves after the start. With a filter that permits only the system calls of
 * libc's malloc, all use, drains, frees and destruction go on, and free objects on other CPUs stay unused. With a
 * limit on the address space, the program and the library share the rest. The test sets the clock. Disciplines: all
 * Not with hardened: the tables of allocated objects take a fifth of the address space. Not with nodes: large blocks
 * begin as the system makes them, and none is cached.
 */
#define _GNU_SOURCE
#include <kmem/memcg.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "kit/cpus.h"
#include "kit/api.h"
#include "kit/clock.h"
#include "alloc/fast_path.h"
#include "page/arena.h"
#include "page/huge_cache.h"

#define MIB ((size_t)1 << 20)

/* ------------------------------------------------------------------ a filter */

static void on_refused(int number, siginfo_t *info, void *context)
{
	char digits[] = "     a system call: 000\n";

	(void)number;
	(void)context;
	for (int i = 22, left = info->si_syscall; i >= 20; i--, left /= 10)
		digits[i] = (char)('0' + left % 10);
	_exit(write(1, digits, sizeof(digits) - 1) > 0 ? 3 : 4);
}

#define ALLOW(call)                                                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* System calls of libc's malloc and of this program itself. */
static struct sock_filter filter[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	ALLOW(SYS_brk),
	ALLOW(SYS_mmap),
	ALLOW(SYS_munmap),
	ALLOW(SYS_mremap),
	ALLOW(SYS_mprotect),
	ALLOW(SYS_madvise),
	ALLOW(SYS_futex),
	ALLOW(SYS_clock_gettime),
	ALLOW(SYS_write),
	ALLOW(SYS_exit),
	ALLOW(SYS_exit_group),
	ALLOW(SYS_rt_sigreturn),
	ALLOW(SYS_mlockall),
	ALLOW(SYS_munlockall),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
};
static struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

/*
 * by_name: by prctl; else by a raw system call, unseen by the library; an unprivileged program first sets
 * no_new_privs.
 */
static void shut_in(bool by_name)
{
	struct sigaction refused = { .sa_sigaction = on_refused, .sa_flags = SA_SIGINFO };
	static char buffer[BUFSIZ];

	/*
	 * Makes failures printable: at the first line libc would call fstat of standard output, and
	 * the filter refuses the call.
	 */
	fflush(stdout);
	setvbuf(stdout, buffer, _IOLBF, sizeof(buffer));
	sigaction(SIGSYS, &refused, NULL);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    (by_name ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) :
		       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))) {
		printf("     no filter to be had (errno %d): nothing was looked at\n", errno);
		fflush(stdout);
		_exit(0);
	}
}

static void use(struct kmem_cache *cache)
{
	enum { MANY = 2000 };
	static void *objects[MANY];

	for (int i = 0; i < MANY; i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (int i = 0; i < MANY; i++)
		kmem_cache_free(cache, objects[i]);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, MANY, objects));
	kmem_cache_free_bulk(cache, MANY, objects);
}

/* Ticks, a second apart: by then everything is idle. */
static void grow_old(void)
{
	for (int i = 0; i < 20; i++) {
		ahead_ms += 3000;
		struct km_busy_was was = km_busy_begin();
		km_alloc_tick();
		km_busy_end(was);
		kfree(kmalloc(64, GFP_KERNEL));
	}
}

static size_t slabs_of(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return stats.total_slabs;
}

static int count_group(struct mem_cgroup *group, unsigned depth, void *arg)
{
	(void)group;
	*(unsigned *)arg += depth > 0;
	return 0;
}

/* Destroyed groups leave only their per-CPU words, and the objects still allocated. */
static void tenants_come_and_go(struct kmem_cache *charged, unsigned flags)
{
	struct kmem_stats stats;
	unsigned left = 0;
	size_t records = 0, pages = 0;
	void *object;

	for (unsigned i = 0; i < 3000; i++) {
		struct mem_cgroup *group = mem_cgroup_create(NULL, "visitor", flags);

		NEED(group && (object = kmem_cache_alloc_in(charged, group, GFP_KERNEL)));
		kmem_cache_free(charged, object);
		mem_cgroup_put(group);
		/* Not the first: some are kept. */
		if (i == 1000) {
			kmem_get_stats(&stats);
			records = stats.meta_bytes;
			pages = km_pages_used();
		}
	}
	mem_cgroup_walk(NULL, count_group, &left);
	NEED(!left);
	kmem_get_stats(&stats);
	NEED(stats.meta_bytes - records <= MIB / 2);
	NEED(km_pages_used() <= pages + (MIB / 2 >> KM_PAGE_SHIFT));
}

static void shut_and_go_on(bool by_name)
{
	struct kmem_cache *before = make("before", 200), *charged;
	struct mem_cgroup *group;

	stay_here();
	use(before);
	shut_in(by_name);
	use(before);
	/*
	 * All sources of memory work: the arena, separate mappings, cached blocks; blocks grow,
	 * move, and are freed.
	 */
	char *blocks[40];
	for (int i = 0; i < 40; i++)
		NEED((blocks[i] = kmalloc(MIB, GFP_KERNEL)));
	for (int i = 0; i < 40; i++)
		kfree(blocks[i]);
	char *big = kvmalloc(12 * MIB, GFP_KERNEL);
	NEED(big);
	big = kvrealloc(big, 64 * MIB, GFP_KERNEL);
	NEED(big);
	kvfree(big);
	struct kmem_cache *later = make("later", 3000);
	use(later);
	grow_old();
	/* Caches of slob share pages. */
	if (!slob)
		NEED(slabs_of(before) == 0 && slabs_of(later) == 0);
	kmem_shrink_all();
	use(later);
	if (!slob) {
		charged = kmem_cache_create("charged", 100, 8, SLAB_ACCOUNT, NULL);
		group = mem_cgroup_create(NULL, "tenant", 0);
		NEED(charged && group);
		struct mem_cgroup *was = set_active_memcg(group);
		use(charged);
		set_active_memcg(was);
		mem_cgroup_drain(group);
		mem_cgroup_put(group);
		tenants_come_and_go(charged, 0);
		tenants_come_and_go(charged, MEM_CGROUP_PRIVATE);
		grow_old();
	}
	use(before);
	kmem_cache_destroy(before);
	NEED(kmem_check_all() == 0);
}

static void by_prctl(void)
{
	shut_and_go_on(true);
}

static void by_seccomp(void)
{
	shut_and_go_on(false);
}

/* ------------------------------------------------------------------ objects cached on other CPUs */

static size_t destroyed;

static void on_object(struct kmem_cache *cache, void *object, void *arg)
{
	(void)cache;
	(void)object;
	(void)arg;
	destroyed++;
}

/*
 * Free objects are not leaks on any CPU: the end of a cache or of a group reports none, calls no destructor for
 * one, and returns all memory.
 */
static void takes_down(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "tenant", 0), *own = NULL;
	struct kmem_cache *cache, *charged, *parent;

	if (!go_to_cpu(1) || !go_to_cpu(0)) {
		printf("     one CPU: nothing was looked at\n");
		return;
	}
	make("keeps memory of ours", 8);
	parent = kmem_cache_create("parent", 120, 8, SLAB_ACCOUNT, NULL);
	if (!slob)
		own = mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE);
	NEED(parent && group && (slob || own));
	size_t before = km_pages_used();
	cache = make("free", 200);
	charged = kmem_cache_create("charged", 200, 8, SLAB_ACCOUNT, NULL);
	NEED(charged);
	for (unsigned cpu = 0; cpu < 2; cpu++) {
		NEED(go_to_cpu(!cpu));
		use(cache);
		set_active_memcg(group);
		use(charged);
		set_active_memcg(own);
		if (own)
			use(parent);
		set_active_memcg(NULL);
	}
	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	kmem_cache_destroy(cache);
	kmem_cache_destroy(charged);
	if (own) {
		NEED(mem_cgroup_destroy_all(own, on_object, NULL) == 0);
		NEED(destroyed == 0);
		kmem_cache_destroy(parent);
	}
	NEED(km_pages_used() == before);
	NEED(kmem_check_all() == 0);
}

/* ------------------------------------------------------------------ a limit */

static void *nothing(void *arg)
{
	return arg;
}

/* Allocates until failure, at most `most` MiB, and frees all blocks. Returns: the MiB allocated. */
static size_t get_all(size_t most)
{
	char *last = NULL;
	size_t got = 0;

	while (got < most) {
		char *block = kmalloc(MIB, GFP_KERNEL | __GFP_NOWARN);

		if (!block)
			break;
		*(char **)block = last;
		last = block;
		got++;
	}
	while (last) {
		char *next = *(char **)last;

		kfree(last);
		last = next;
	}
	return got;
}

/*
 * The limit comes by a call of libc replaced in libkmem-malloc, or unseen: from another process, or in a program
 * linked with libkmem alone. Then kmem_shrink_all or a tick finds the limit.
 */
enum way { BY_SETRLIMIT, BY_PRLIMIT, UNSEEN_BEFORE_SHRINK, UNSEEN_BEFORE_TICK };

static void limit_address_space(size_t bytes, enum way way)
{
	struct rlimit limit = { bytes, RLIM_INFINITY };

	if (way == BY_SETRLIMIT)
		NEED(setrlimit(RLIMIT_AS, &limit) == 0);
	else if (way == BY_PRLIMIT)
		NEED(prlimit(0, RLIMIT_AS, &limit, NULL) == 0);
	else
		NEED(syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL) == 0);
	if (way == UNSEEN_BEFORE_SHRINK)
		kmem_shrink_all();
	ahead_ms += 1000;
	if (way == UNSEEN_BEFORE_TICK)
		kmem_tick();
}

static void needs_room(void)
{
	pthread_t thread;
	void *mapped = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(mapped != MAP_FAILED && munmap(mapped, 65536) == 0);
	NEED(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void limited(enum way way)
{
	struct kmem_cache *cache = make("before", 200);

	use(cache);
	kfree(kmalloc(64, GFP_KERNEL));
	/* A block allocated and freed in turns stays cached. */
	for (unsigned i = 0; i < 4; i++)
		kvfree(kvmalloc(1000 * MIB, GFP_KERNEL));
	limit_address_space(1024 * MIB, way);
	needs_room();
	size_t first = get_all(4096), second = get_all(4096);
	printf("     %zu MiB, then %zu MiB\n", first, second);
	fflush(stdout);
	NEED(first >= 768 && first < 1024 && second >= 768);
	NEED(kmem_check_all() == 0);
	use(cache);
	/* The limit may be raised again. */
	limit_address_space(RLIM_INFINITY, way);
	NEED(get_all(2048) == 2048);
	use(cache);
	NEED(kmem_check_all() == 0);
}

static void by_setrlimit(void)
{
	limited(BY_SETRLIMIT);
}

static void by_prlimit(void)
{
	limited(BY_PRLIMIT);
}

static void before_shrink(void)
{
	limited(UNSEEN_BEFORE_SHRINK);
}

static void before_tick(void)
{
	limited(UNSEEN_BEFORE_TICK);
}

static size_t cached_huge(void)
{
	return km_huge_cache.pages << KM_PAGE_SHIFT;
}

/* A block freed and allocated in turns is a cached huge block. */
static void swing(void)
{
	/* The block stays cached for any time. */
	km_arena_set(false, 3600000);
	for (int i = 0; i < 4; i++) {
		char *p = kvmalloc(64 * MIB, GFP_KERNEL);
		NEED(p);
		kvfree(p);
	}
}

/*
 * Cached memory never counts against the limits of the program's own mappings: with a limit, no huge block is
 * cached.
 */
static void caches_nothing(int resource)
{
	struct rlimit limit = { 4096 * MIB, RLIM_INFINITY };

	swing();
	NEED(cached_huge() >= 64 * MIB);
	NEED(setrlimit((__rlimit_resource_t)resource, &limit) == 0 && cached_huge() == 0);
	swing();
	NEED(cached_huge() == 0);
	limit.rlim_cur = RLIM_INFINITY;
	NEED(setrlimit((__rlimit_resource_t)resource, &limit) == 0);
	swing();
	NEED(cached_huge() >= 64 * MIB);
}

static void cached_huge_blocks(void)
{
	caches_nothing(RLIMIT_AS);
	kmem_shrink_all();
	caches_nothing(RLIMIT_DATA);
}

/* Nor with locked mappings and a limit on locked memory. */
static void locked_blocks(void)
{
	struct rlimit limit;

	swing();
	NEED(cached_huge() >= 64 * MIB && getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	limit.rlim_cur = limit.rlim_max < 1024 * MIB ? limit.rlim_max : 1024 * MIB;
	if (limit.rlim_cur < 256 * MIB || setrlimit(RLIMIT_MEMLOCK, &limit) || mlockall(MCL_FUTURE))
		return;
	NEED(cached_huge() == 0);
	swing();
	NEED(cached_huge() == 0);
	/* Without a limit there is nothing to withhold. */
	limit.rlim_cur = limit.rlim_max;
	if (limit.rlim_max != RLIM_INFINITY)
		return;
	NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && mlockall(MCL_FUTURE) == 0);
	swing();
	NEED(cached_huge() >= 64 * MIB);
}

/* Caching resumes after munlockall. The program maps nothing meanwhile, so any limit will do. */
static void unlocked_blocks(void)
{
	struct rlimit limit;

	NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	if (limit.rlim_cur == RLIM_INFINITY)
		limit.rlim_cur = 1024 * MIB;
	swing();
	if (setrlimit(RLIMIT_MEMLOCK, &limit) || mlockall(MCL_FUTURE))
		return;
	NEED(cached_huge() == 0);
	NEED(munlockall() == 0);
	swing();
	NEED(cached_huge() >= 64 * MIB);
}

/* Other limits, other processes, and refused calls: unchanged. */
static void not_ours(void)
{
	struct rlimit limit = { 64 * MIB, RLIM_INFINITY }, old;
	size_t before = km_arena_range(0)->pages;

	NEED(setrlimit(RLIMIT_CORE, &limit) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child)
		for (;;)
			pause();
	NEED(prlimit(child, RLIMIT_AS, &limit, NULL) == 0);
	NEED(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	errno = 0;
	NEED(setrlimit((__rlimit_resource_t)1000, &limit) == -1 && errno == EINVAL);
	errno = 0;
	NEED(prctl(-1, 0, 0, 0, 0) == -1 && errno == EINVAL);
	NEED(prlimit(0, RLIMIT_AS, NULL, &old) == 0 && old.rlim_cur == RLIM_INFINITY);
	NEED(km_arena_range(0)->pages == before && get_all(256) == 256);
}

/*
 * The filter permits the program's own call and no call of the library. The thread stays on one CPU: behind the
 * filter, cached objects of another CPU cannot be drained.
 */
static void locks_behind_a_filter(void)
{
	static const int flags[] = { MCL_CURRENT | MCL_ONFAULT, MCL_FUTURE | MCL_ONFAULT, MCL_FUTURE };
	struct kmem_cache *cache = make("locked", 100);

	stay_here();
	shut_in(true);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (mlockall(flags[i]))
			continue;
		use(cache);
		void *large = kvmalloc(6 * MIB, GFP_KERNEL | __GFP_NOWARN);
		kvfree(large);
		kmem_shrink_all();
		NEED(munlockall() == 0);
	}
	gone(cache);
}

static const struct test_case cases[] = {
	{ "a filter, by prctl", by_prctl },
	{ "a filter, by seccomp", by_seccomp },
	{ "cached on other CPUs", takes_down },
	{ "a limit, by setrlimit", by_setrlimit },
	{ "a limit, by prlimit", by_prlimit },
	{ "a limit unseen, before a shrink", before_shrink },
	{ "a limit unseen, before a tick", before_tick },
	{ "cached huge blocks, under a limit", cached_huge_blocks },
	{ "cached huge blocks, locked", locked_blocks },
	{ "cached huge blocks, unlocked again", unlocked_blocks },
	{ "locks behind a filter", locks_behind_a_filter },
	{ "not ours", not_ours },
};

API_MAIN(cases)
