/*
 * errors: each error of a function in the manual is returned by the function: a line for each pair. `errors --list`
 * prints the pairs; tests/tidy/prototypes compares them with the ERRORS of the pages.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/inline.h>
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/mempool.h>
#include <kmem/rcu.h>
#include <kmem/stats.h>

#include "os/os.h"

#define QUIET	(GFP_KERNEL | __GFP_NOWARN)
#define MANY	100000

static bool listing;
static int failed;

/* `expression` is the error returned by `function`, not negative: of(), or the negated result. */
#define IS(function, error, expression)                                                            \
	do {                                                                                       \
		if (listing) {                                                                     \
			puts(#function " " #error);                                                \
			break;                                                                     \
		}                                                                                  \
		errno = 0;                                                                         \
		int got_ = (expression);                                                           \
		if (got_ != (error)) {                                                             \
			printf("FAIL %s: %s, not " #error "\n", #function, strerror(got_));       \
			failed = 1;                                                                \
		}                                                                                  \
	} while (0)

static int of(const void *result)
{
	return result ? 0 : errno;
}

static int of_bool(bool result)
{
	return result ? 0 : errno;
}

static int destroy_with_object(void)
{
	struct kmem_cache *cache = kmem_cache_create("left", 64, NULL, 0);

	if (!kmem_cache_alloc(cache, QUIET))
		return 0;
	kmem_cache_destroy(cache);
	return errno;
}

/* ------------------------------------------------------------------ the system refuses memory */

static bool refuse(const char *call)
{
	return strcmp(call, "fence") != 0;
}

/* The errno of the first failed try, while the system refuses: committed memory is used up first. */
#define WHEN_SHORT(expression)                                                                     \
	({                                                                                         \
		int left_ = MANY;                                                                  \
		km_os_fault = refuse;                                                              \
		while (left_ && (expression))                                                      \
			left_--;                                                                   \
		km_os_fault = NULL;                                                                \
		left_ ? errno : 0;                                                                 \
	})

/* The same in a process of its own, because the process keeps its memory. */
#define WHEN_SHORT_APART(expression)                                                               \
	({                                                                                         \
		int status_ = 0;                                                                   \
		fflush(stdout);                                                                    \
		pid_t pid_ = fork();                                                               \
		if (!pid_)                                                                         \
			_exit(WHEN_SHORT(expression));                                             \
		waitpid(pid_, &status_, 0);                                                        \
		WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;                                    \
	})

/* Before the library's start in a constructor: with this variable set the start fails. */
static void before_start(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	for (; *environment; environment++)
		if (strcmp(*environment, "ERRORS_NO_START=1") == 0)
			km_os_fault = refuse;
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_start;

/* ------------------------------------------------------------------ groups */

static uint64_t shrink_nothing(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	(void)group, (void)bytes, (void)arg;
	return 0;
}

static int without_descriptors(struct mem_cgroup *group)
{
	struct rlimit before, none;

	getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	int error = mem_cgroup_eventfd(group, 1 << MEMCG_MAX) < 0 ? errno : 0;
	setrlimit(RLIMIT_NOFILE, &before);
	return error;
}

static int account_inside(struct kmem_cache *cache, void *arg)
{
	(void)cache, (void)arg;
	return mem_cgroup_account_malloc(true);
}

static void groups(void)
{
	struct mem_cgroup *root = mem_cgroup_root(), *group = mem_cgroup_create(NULL, "group", 0);
	struct mem_cgroup *below = mem_cgroup_create(group, "below", 0), *gone = mem_cgroup_create(NULL, "gone", 0);

	mem_cgroup_offline(gone);
	IS(mem_cgroup_create, EINVAL, of(mem_cgroup_create(NULL, NULL, 0)));
	IS(mem_cgroup_create, ENOENT, of(mem_cgroup_create(gone, "x", 0)));
	IS(mem_cgroup_create, ENOMEM, WHEN_SHORT_APART(mem_cgroup_create(group, "x", 0)));
	IS(mem_cgroup_offline, EBUSY, -mem_cgroup_offline(group));
	IS(mem_cgroup_offline, ENOENT, -mem_cgroup_offline(gone));
	IS(mem_cgroup_destroy_all, EINVAL, -mem_cgroup_destroy_all(group, NULL, NULL));
	IS(mem_cgroup_set_max, EINVAL, -mem_cgroup_set_max(root, 1));
	IS(mem_cgroup_set_high, EINVAL, -mem_cgroup_set_high(root, 1));
	IS(mem_cgroup_set_low, EINVAL, -mem_cgroup_set_low(root, 1));
	IS(mem_cgroup_set_min, EINVAL, -mem_cgroup_set_min(root, 1));
	IS(mem_cgroup_set_max, ENOENT, -mem_cgroup_set_max(gone, 1));
	IS(mem_cgroup_set_high, ENOENT, -mem_cgroup_set_high(gone, 1));
	IS(mem_cgroup_set_low, ENOENT, -mem_cgroup_set_low(gone, 1));
	IS(mem_cgroup_set_min, ENOENT, -mem_cgroup_set_min(gone, 1));
	IS(mem_cgroup_eventfd, EINVAL, mem_cgroup_eventfd(group, 0) < 0 ? errno : 0);
	IS(mem_cgroup_eventfd, EMFILE, without_descriptors(group));
	IS(mem_cgroup_add_shrinker, EINVAL, of(mem_cgroup_add_shrinker(group, 0, NULL, NULL)));
	IS(mem_cgroup_add_shrinker, ENOENT, of(mem_cgroup_add_shrinker(gone, 0, shrink_nothing, NULL)));
	IS(mem_cgroup_add_shrinker, ENOMEM,
	   WHEN_SHORT_APART(mem_cgroup_add_shrinker(group, 0, shrink_nothing, NULL)));
	IS(mem_cgroup_account_malloc, EOPNOTSUPP, -mem_cgroup_account_malloc(true));
	IS(mem_cgroup_account_malloc, EBUSY, -kmem_for_each_cache(account_inside, NULL));
	IS(mem_cgroup_set_mode, EINVAL, -mem_cgroup_set_mode(MEM_CGROUP_NR_MODES, true));
	IS(mem_cgroup_set_mode, EBUSY, -mem_cgroup_set_mode(MEM_CGROUP_V1, true));
	mem_cgroup_set_max(below, 0);
	IS(mem_cgroup_charge, ENOMEM, -mem_cgroup_charge(below, GFP_KERNEL, 1));
	IS(kmalloc_in, ENOMEM, of(kmalloc_in(below, 100, QUIET)));
	IS(kmalloc_in, EINVAL, of(kmalloc_in(below, KMALLOC_MAX_SIZE + 1, QUIET)));
	struct kmem_cache *cache = kmem_cache_create("charged", 64, NULL, 0);
	IS(kmem_cache_alloc_in, ENOMEM, of(kmem_cache_alloc_in(cache, below, QUIET)));
}

/* ------------------------------------------------------------------ memory by size */

static void sizes(void)
{
	const size_t most = KMALLOC_MAX_SIZE, big = 64 << 20;
	char *string = kvmalloc(most + 1, GFP_KERNEL);
	void *none[1];

	memset(string, 'x', most);
	string[most] = '\0';
	IS(kmalloc, EINVAL, of(kmalloc(most + 1, QUIET)));
	IS(kmalloc_account, EINVAL, of(kmalloc_account(most + 1, QUIET | __GFP_ACCOUNT)));
	IS(kzalloc, EINVAL, of(kzalloc(most + 1, QUIET)));
	IS(kmalloc_node, EINVAL, of(kmalloc_node(most + 1, QUIET, 0)));
	IS(kzalloc_node, EINVAL, of(kzalloc_node(most + 1, QUIET, 0)));
	IS(kmalloc_array, EINVAL, of(kmalloc_array(most, 2, QUIET)));
	IS(kcalloc, EINVAL, of(kcalloc(most, 2, QUIET)));
	IS(krealloc, EINVAL, of(krealloc(NULL, most + 1, QUIET)));
	IS(krealloc_array, EINVAL, of(krealloc_array(NULL, most, 2, QUIET)));
	IS(kmemdup, EINVAL, of(kmemdup(string, most + 1, QUIET)));
	IS(kstrdup, EINVAL, of(kstrdup(string, QUIET)));
	IS(kstrndup, EINVAL, of(kstrndup(string, most, QUIET)));
	IS(kmem_cache_destroy, EBUSY, destroy_with_object());
	IS(kmalloc_bulk, EINVAL, of_bool(kmalloc_bulk(most + 1, QUIET, 1, none)));
	IS(kvmalloc, EINVAL, of(kvmalloc((size_t)INT_MAX + 1, QUIET)));
	IS(kvzalloc, EINVAL, of(kvzalloc((size_t)INT_MAX + 1, QUIET)));
	IS(kvmalloc_node, EINVAL, of(kvmalloc_node((size_t)INT_MAX + 1, QUIET, 0)));
	IS(kvmalloc_array, EINVAL, of(kvmalloc_array((size_t)INT_MAX, 2, QUIET)));
	IS(kvcalloc, EINVAL, of(kvcalloc((size_t)INT_MAX, 2, QUIET)));
	IS(kvrealloc, EINVAL, of(kvrealloc(NULL, (size_t)INT_MAX + 1, QUIET)));
	IS(kmalloc_array, ENOMEM, of(kmalloc_array(SIZE_MAX, 2, GFP_KERNEL)));
	IS(kcalloc, ENOMEM, of(kcalloc(SIZE_MAX, 2, GFP_KERNEL)));
	IS(krealloc_array, ENOMEM, of(krealloc_array(NULL, SIZE_MAX, 2, GFP_KERNEL)));
	IS(kvmalloc_array, ENOMEM, of(kvmalloc_array(SIZE_MAX, 2, GFP_KERNEL)));
	IS(kvcalloc, ENOMEM, of(kvcalloc(SIZE_MAX, 2, GFP_KERNEL)));
	IS(kmalloc, ENOMEM, WHEN_SHORT(kmalloc(most, QUIET)));
	IS(kmalloc_account, ENOMEM, WHEN_SHORT(kmalloc_account(most, QUIET | __GFP_ACCOUNT)));
	IS(kzalloc, ENOMEM, WHEN_SHORT(kzalloc(most, QUIET)));
	IS(kmalloc_node, ENOMEM, WHEN_SHORT(kmalloc_node(most, QUIET, 0)));
	IS(kzalloc_node, ENOMEM, WHEN_SHORT(kzalloc_node(most, QUIET, 0)));
	IS(krealloc, ENOMEM, WHEN_SHORT(krealloc(NULL, most, QUIET)));
	IS(kmemdup, ENOMEM, WHEN_SHORT(kmemdup(string, most, QUIET)));
	IS(kstrdup, ENOMEM, WHEN_SHORT(kstrdup(string + 1, QUIET)));
	IS(kstrndup, ENOMEM, WHEN_SHORT(kstrndup(string, most - 1, QUIET)));
	IS(kmalloc_bulk, ENOMEM, WHEN_SHORT(kmalloc_bulk(most, QUIET, 1, none)));
	IS(kvmalloc, ENOMEM, WHEN_SHORT(kvmalloc(big, QUIET)));
	IS(kvzalloc, ENOMEM, WHEN_SHORT(kvzalloc(big, QUIET)));
	IS(kvmalloc_node, ENOMEM, WHEN_SHORT(kvmalloc_node(big, QUIET, 0)));
	IS(kvrealloc, ENOMEM, WHEN_SHORT(kvrealloc(NULL, big, QUIET)));
}

/* An overflow leaves the block, its contents and its size. */
static void overflow_keeps_the_block(void)
{
	char *block = kmalloc(100, GFP_KERNEL);

	memset(block, 'x', 100);
	if (krealloc_array(block, SIZE_MAX / 8, 16, GFP_KERNEL) || ksize(block) < 100 || block[0] != 'x' ||
	    block[99] != 'x') {
		puts("FAIL krealloc_array: an overflow does not leave the block as it was");
		failed = 1;
	}
	kfree(block);
}

/* ------------------------------------------------------------------ caches */

static struct kmem_cache *cache_by(const char *name, const char *engine, unsigned capacity)
{
	struct kmem_cache_args args = { .engine = engine, .sheaf_capacity = capacity };

	return kmem_cache_create(name, 64, &args, 0);
}

/* A new name for each, or there would be a line for each. */
static const char *next_name(void)
{
	static char name[16];
	static unsigned count;

	snprintf(name, sizeof(name), "x%u", count++);
	return name;
}

static void caches(void)
{
	IS(kmem_cache_create, EINVAL, of(kmem_cache_create(NULL, 64, NULL, 0)));
	IS(kmem_cache_create_args, EINVAL, of(kmem_cache_create_args("x", 0, NULL, 0)));
	IS(kmem_cache_create_legacy, EINVAL, of(kmem_cache_create_legacy("x", 64, 3, 0, NULL)));
	IS(kmem_cache_create_usercopy, EINVAL, of(kmem_cache_create_usercopy("x", 0, 0, 0, 0, 0, NULL)));
	IS(kmem_cache_create, ENOMEM, WHEN_SHORT_APART(kmem_cache_create(next_name(), 64, NULL, 0)));
	IS(kmem_cache_create_args, ENOMEM, WHEN_SHORT_APART(kmem_cache_create_args(next_name(), 64, NULL, 0)));
	IS(kmem_cache_create_legacy, ENOMEM, WHEN_SHORT_APART(kmem_cache_create_legacy(next_name(), 64, 0, 0, NULL)));
	IS(kmem_cache_create_usercopy, ENOMEM,
	   WHEN_SHORT_APART(kmem_cache_create_usercopy(next_name(), 64, 0, 0, 0, 0, NULL)));
}

static void objects(void)
{
	struct kmem_cache *cache = cache_by("limited", NULL, 0);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, 1), *none = NULL;
	void *many[2];

	while (kmem_cache_sheaf_size(sheaf))
		kmem_cache_free(cache, kmem_cache_alloc_from_sheaf(cache, GFP_KERNEL, sheaf));
	IS(kmem_cache_alloc_from_sheaf, ENOMEM, of(kmem_cache_alloc_from_sheaf(cache, QUIET, sheaf)));
	IS(kmem_cache_alloc_from_sheaf_inline, ENOMEM, of(kmem_cache_alloc_from_sheaf_inline(cache, QUIET, sheaf)));
	kmem_cache_shrink(cache);
	kmem_cache_set_limit(cache, 0);
	IS(kmem_cache_alloc, ENOMEM, of(kmem_cache_alloc(cache, QUIET)));
	IS(kmem_cache_zalloc, ENOMEM, of(kmem_cache_zalloc(cache, QUIET)));
	IS(kmem_cache_alloc_nolock, ENOMEM, WHEN_SHORT_APART(kmem_cache_alloc_nolock(cache, 0, NUMA_NO_NODE)));
	IS(kmem_cache_alloc_nolock, EINVAL, of(kmem_cache_alloc_nolock(cache, GFP_KERNEL, NUMA_NO_NODE)));
	IS(kmalloc_nolock, ENOMEM, WHEN_SHORT_APART(kmalloc_nolock(8000, 0, NUMA_NO_NODE)));
	IS(kmalloc_nolock, EINVAL, of(kmalloc_nolock(8193, 0, NUMA_NO_NODE)));
	IS(kmem_cache_alloc_node, ENOMEM, of(kmem_cache_alloc_node(cache, QUIET, 0)));
	IS(kmem_cache_alloc_inline, ENOMEM, of(kmem_cache_alloc_inline(cache, QUIET)));
	IS(kmem_cache_alloc_bulk, ENOMEM, of_bool(kmem_cache_alloc_bulk(cache, QUIET, 2, many)));
	IS(kmem_cache_prefill_sheaf, ENOMEM, of(kmem_cache_prefill_sheaf(cache, QUIET, 1)));
	IS(kmem_cache_prefill_sheaf, EINVAL, of(kmem_cache_prefill_sheaf(cache, QUIET, 0)));
	IS(kmem_cache_refill_sheaf, ENOMEM, -kmem_cache_refill_sheaf(cache, QUIET, &sheaf, 2));
	IS(kmem_cache_refill_sheaf, EINVAL, -kmem_cache_refill_sheaf(cache, QUIET, &none, 1));
	IS(kmem_reserve, ENOMEM, -kmem_reserve(cache, SIZE_MAX));
	IS(kmem_malloc_fullest, ENOSYS, of(kmem_malloc_fullest(8)));
}

/* ------------------------------------------------------------------ numbers */

static int set_rule(struct kmem_cache *cache, void *arg)
{
	(void)cache, (void)arg;
	return kmem_set_min_partial_rule("static");
}

static int debug_it(struct kmem_cache *cache, void *arg)
{
	(void)arg;
	return kmem_cache_set_debug(cache, "Z");
}

static int visit_nothing(void *object, void *arg)
{
	(void)object, (void)arg;
	return 0;
}

/* Each new cache is tuned to the largest arrays, until metadata runs out. */
static int tune_next(bool words)
{
	const char *name = next_name();
	char text[64];

	km_os_fault = NULL;
	struct kmem_cache *cache = cache_by(name, "slab", 1000);
	km_os_fault = refuse;
	snprintf(text, sizeof(text), "%s 1000 500 500", name);
	errno = words ? -kmem_slabinfo_write(text) : -kmem_cache_tune(cache, 1000, 500, 500);
	return !errno;
}

static void start_anew(void);
/* The same: each cache anew is debugged. */
static int debug_next(void)
{
	km_os_fault = NULL;
	struct kmem_cache *cache = cache_by(next_name(), "sheaf", 0);
	km_os_fault = refuse;
	errno = -kmem_cache_set_debug(cache, "Z");
	return !errno;
}

/*
 * Free objects are cleared, and so are the links of the slab's freelist: the list is shorter than the slab's
 * count.
 */
static int damaged(void)
{
	struct kmem_cache *cache = cache_by("damaged", "slub", 0);
	void *object[64];

	for (int i = 0; i < 64; i++)
		object[i] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (int i = 1; i < 64; i++)
		kmem_cache_free(cache, object[i]);
	kmem_cache_shrink(cache);
	for (int i = 1; i < 64; i++)
		memset(object[i], 0, 64);
	return -kmem_check_all();
}

static void no_grace(struct kmem_rcu_head *head, void (*func)(struct kmem_rcu_head *head))
{
	func(head);
}
static void no_wait(void)
{
}
static const struct kmem_rcu rcu = { no_grace, no_wait, no_wait }, half = { .call = no_grace };

static int set_another(void)
{
	struct kmem_rcu other = rcu;

	other.barrier = start_anew;
	kmem_set_rcu(&rcu);
	return -kmem_set_rcu(&other);
}

static int metrics_inside(struct kmem_cache *cache, void *arg)
{
	(void)cache, (void)arg;
	return kmem_metrics(1);
}

/* Pipes without a reader, and full pipes without a wait. */
static void printers(void)
{
	int broken[2], full[2];

	if (pipe(broken) || close(broken[0]) || pipe2(full, O_NONBLOCK) || fcntl(full[1], F_SETPIPE_SZ, 4096) < 0)
		failed = 1;
	while (write(full[1], "x", 1) == 1)
		;
	IS(kmem_print_slabinfo, EPIPE, -kmem_print_slabinfo(broken[1]));
	IS(kmem_print_json, EPIPE, -kmem_print_json(broken[1]));
	IS(kmem_metrics, EPIPE, -kmem_metrics(broken[1]));
	IS(kmem_print_slabinfo, EAGAIN, -kmem_print_slabinfo(full[1]));
	IS(kmem_print_json, EAGAIN, -kmem_print_json(full[1]));
	IS(kmem_metrics, EAGAIN, -kmem_metrics(full[1]));
	IS(kmem_metrics, EBUSY, -kmem_for_each_cache(metrics_inside, NULL));
	close(broken[1]);
	close(full[0]);
	close(full[1]);
}

/* Of a tracked cache: without one, no leaks are known. */
static void tracks(void)
{
	struct kmem_cache *tracked = kmem_cache_create(next_name(), 64, NULL, SLAB_STORE_USER);
	void *object = tracked ? kmem_cache_alloc(tracked, GFP_KERNEL) : NULL;
	int broken[2];

	if (!object || pipe(broken) || close(broken[0]))
		failed = 1;
	IS(kmem_cache_print_traces, EPIPE, -kmem_cache_print_traces(tracked, broken[1]));
	IS(kmem_print_leaks, EPIPE, -kmem_print_leaks(broken[1]));
	close(broken[1]);
	kmem_cache_free(tracked, object);
	kmem_cache_destroy(tracked);
}

static void numbers(void)
{
	struct kmem_cache *slab = cache_by("slab", "slab", 0), *sheaf = cache_by("sheaf", "sheaf", 0);
	struct kmem_cache *slob = cache_by("slob", "slob", 0);

	IS(kmem_cache_set_min_partial, EINVAL, -kmem_cache_set_min_partial(slab, 1048577));
	IS(kmem_set_min_partial_rule, EINVAL, -kmem_set_min_partial_rule("other"));
	IS(kmem_set_min_partial_rule, EBUSY, -kmem_for_each_cache(set_rule, NULL));
	IS(kmem_cache_set_limit, EOPNOTSUPP, -kmem_cache_set_limit(slob, 1));
	IS(kmem_cache_set_remote_node_defrag_ratio, EINVAL, -kmem_cache_set_remote_node_defrag_ratio(slab, 101));
	IS(kmem_cache_set_debug, EINVAL, -kmem_cache_set_debug(slab, "?"));
	IS(kmem_cache_set_debug, EOPNOTSUPP,
	   -kmem_cache_set_debug(kmem_cache_create(next_name(), 64, NULL, SLAB_NO_USER_FLAGS), "Z"));
	IS(kmem_cache_set_debug, EBUSY, -kmem_for_each_cache(debug_it, NULL));
	IS(kmem_cache_set_debug, ENOMEM, WHEN_SHORT_APART(debug_next()));
	IS(kmem_cache_tune, EINVAL, -kmem_cache_tune(slab, 1, 2, 1));
	IS(kmem_cache_tune, ERANGE, -kmem_cache_tune(slab, 1000, 1, 1));
	IS(kmem_cache_tune, ENOMEM, WHEN_SHORT_APART(tune_next(false)));
	IS(kmem_cache_tune, EOPNOTSUPP, -kmem_cache_tune(sheaf, 2, 1, 1));
	IS(kmem_slabinfo_write, EINVAL, -kmem_slabinfo_write("slab"));
	IS(kmem_slabinfo_write, ERANGE, -kmem_slabinfo_write("slab 1000 1 1"));
	IS(kmem_slabinfo_write, ENOMEM, WHEN_SHORT_APART(tune_next(true)));
	IS(kmem_slabinfo_write, EOPNOTSUPP, -kmem_slabinfo_write("sheaf 2 1 1"));
	IS(kmem_cache_walk, EOPNOTSUPP, -kmem_cache_walk(slob, visit_nothing, NULL));
	IS(kmem_cache_print_traces, EINVAL, -kmem_cache_print_traces(sheaf, 1));
	IS(kmem_print_leaks, EINVAL, -kmem_print_leaks(1));
	tracks();
	IS(kmem_failslab, EINVAL, -kmem_failslab("probability=101"));
	IS(kmem_set_rcu, EINVAL, -kmem_set_rcu(&half));
	IS(kmem_set_rcu, EBUSY, set_another());
	IS(kmem_print_slabinfo, EBADF, -kmem_print_slabinfo(-1));
	IS(kmem_print_json, EBADF, -kmem_print_json(-1));
	IS(kmem_metrics, EBADF, -kmem_metrics(-1));
	printers();
}

static bool no_element;
static void *element(gfp_t gfp, void *data)
{
	return no_element ? NULL : kmalloc(64, gfp);
}
static void no_more(void *element, void *data)
{
	kfree(element);
}

static void pools(void)
{
	struct kmem_cache *none = cache_by("none", "sheaf", 0);
	mempool_t pool, other;

	kmem_cache_set_limit(none, 0);
	IS(mempool_init, EINVAL, -mempool_init(&pool, -1, element, no_more, NULL));
	IS(mempool_init_node, EINVAL, -mempool_init_node(&pool, 1, NULL, no_more, NULL, GFP_KERNEL, 0));
	IS(mempool_create, EINVAL, of(mempool_create(1, element, NULL, NULL)));
	IS(mempool_create_node, EINVAL, of(mempool_create_node(-1, element, no_more, NULL, GFP_KERNEL, 0)));
	if (mempool_init(&pool, 1, element, no_more, NULL))
		failed = 1;
	IS(mempool_resize, EINVAL, -mempool_resize(&pool, -1));
	IS(mempool_resize, ENOMEM, -mempool_resize(&pool, INT_MAX));
	no_element = true;
	IS(mempool_init, ENOMEM, -mempool_init(&other, 1, element, no_more, NULL));
	IS(mempool_init_node, ENOMEM, -mempool_init_node(&other, 1, element, no_more, NULL, GFP_KERNEL, 0));
	IS(mempool_create, ENOMEM, of(mempool_create(1, element, no_more, NULL)));
	IS(mempool_create_node, ENOMEM, of(mempool_create_node(1, element, no_more, NULL, GFP_KERNEL, 0)));
	kfree(mempool_alloc(&pool, GFP_NOWAIT));
	IS(mempool_alloc, ENOMEM, of(mempool_alloc(&pool, GFP_NOWAIT)));
	IS(mempool_alloc_preallocated, ENOMEM, of(mempool_alloc_preallocated(&pool)));
	IS(mempool_alloc_slab, ENOMEM, of(mempool_alloc_slab(QUIET, none)));
	IS(mempool_kmalloc, EINVAL, of(mempool_kmalloc(QUIET, (void *)(KMALLOC_MAX_SIZE + 1))));
	IS(mempool_kmalloc, ENOMEM, WHEN_SHORT(mempool_kmalloc(QUIET, (void *)KMALLOC_MAX_SIZE)));
	IS(mempool_alloc_pages, EINVAL, of(mempool_alloc_pages(QUIET, (void *)11)));
	IS(mempool_alloc_pages, ENOMEM, WHEN_SHORT(mempool_alloc_pages(QUIET, (void *)10)));
	mempool_exit(&pool);
}

/* In a process whose library cannot start. */
static void not_started(void)
{
	IS(kmem_set_min_partial_rule, ENOMEM, -kmem_set_min_partial_rule("size"));
	IS(kmem_set_rcu, ENOMEM, -kmem_set_rcu(&rcu));
	IS(kmem_print_slabinfo, ENOMEM, -kmem_print_slabinfo(1));
	IS(kmem_print_json, ENOMEM, -kmem_print_json(1));
	IS(kmem_metrics, ENOMEM, -kmem_metrics(1));
}

static void start_anew(void)
{
	int status = 0;

	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		setenv("ERRORS_NO_START", "1", 1);
		execl("/proc/self/exe", "errors", NULL);
		_exit(4);
	}
	waitpid(pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		printf("FAIL where the library can't start: status %#x\n", (unsigned)status);
		failed = 1;
	}
}

int main(int argc, char **argv)
{
	listing = argc > 1 && strcmp(argv[1], "--list") == 0;
	if (getenv("ERRORS_NO_START")) {
		not_started();
		return failed;
	}
	groups();
	sizes();
	caches();
	objects();
	numbers();
	pools();
	if (listing)
		not_started();
	else
		start_anew();
	overflow_keeps_the_block();
	/* Last: the state is damaged afterwards. */
	IS(kmem_check_all, EIO, damaged());
	return failed;
}
