/*
 * mailbox: requests written to the mailbox by another process are served by a miss, answered once, and never trusted:
 * a validation of a cache, reporting damage to the client and ending no process; writes to the files of a cache or a
 * group; requests of random bytes, names and letters without an end, repeated numbers, while threads allocate and
 * free, and in the child of a fork. SEED=n; with CHECK_LONG=1 for an hour. Disciplines: all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "memcg/memcg_group.h"
#include "cache/cache.h"
#include "cache/mailbox.h"
#include "engines/slub/slub.h"
#include "kit/check.h"

#define ROUNDS 800u

static struct kmem_cache *cache;
static int stop;

/* Calls the engine, and so the tick. */
static void miss(void)
{
	void *objects[600];

	for (size_t i = 0; i < km_array_count(objects); i++)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	for (size_t i = 0; i < km_array_count(objects); i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_shrink(cache);
}

/* As another process does. */
static void write_there(void *to, const void *from, size_t bytes)
{
	struct iovec local = { (void *)(uintptr_t)from, bytes }, remote = { to, bytes };

	if (process_vm_writev(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)bytes)
		memcpy(to, from, bytes);
}

/* Returns: the result, served within a few misses. */
static int ask(uint32_t number, const struct kmem_mail_request *request)
{
	write_there(&km_mail.request, request, sizeof(*request));
	write_there(&km_mail.asked, &number, sizeof(number));
	for (int i = 0; i < 1000 && km_load_acquire(&km_mail.answered) != number; i++)
		miss();
	NEED(km_mail.answered == number && !memcmp(&km_mail.done, request, sizeof(*request)));
	return km_mail.result;
}

static int ask_for(uint32_t number, const char *name, const char *letters)
{
	struct kmem_mail_request request = { .command = KMEM_MAIL_DEBUG };

	memcpy(request.cache, name, strnlen(name, sizeof(request.cache)));
	memcpy(request.letters, letters, strnlen(letters, sizeof(request.letters)));
	return ask(number, &request);
}

static void shrinks(void)
{
	struct kmem_mail_request shrink = { .command = KMEM_MAIL_SHRINK, .cache = "mailbox" };

	NEED(ask(51, &shrink) == 0);
	strcpy(shrink.cache, "nobody");
	NEED(ask(52, &shrink) == -ENOENT);
	memset(shrink.cache, 'x', sizeof(shrink.cache));
	NEED(ask(53, &shrink) == -EINVAL);
	memset(shrink.cache, 0, sizeof(shrink.cache));
	NEED(ask(54, &shrink) == 0);
}

static int validated(uint32_t number, const char *name)
{
	struct kmem_mail_request request = { .command = KMEM_MAIL_VALIDATE };

	memcpy(request.cache, name, strnlen(name, sizeof(request.cache)));
	return ask(number, &request);
}

/* Damage is reported to the client, and repaired; the process goes on, although misuse ends the process. */
static void looked_at(void)
{
	const struct kmem_mail_report *report = &km_control_report;

	NEED(ask_for(30, "mailbox", "FZPU") == 0);
	unsigned char *p = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(p && validated(31, "mailbox") == 0 && report->number == 31 && !report->damages);
	p[kmem_cache_size(cache)] ^= 1;
	NEED(validated(32, "mailbox") == 0 && report->number == 32 && report->damages == 1);
	NEED(memmem(report->text, report->length, "Right Redzone overwritten", 25));
	NEED(validated(33, "mailbox") == 0 && report->number == 33 && !report->damages && !report->length);
	p[kmem_cache_size(cache)] ^= 1;
	NEED(validated(34, "*") == 0 && report->damages == 1 && report->length);
	NEED(report->length <= sizeof(report->text));
	kmem_cache_free(cache, p);
	NEED(ask_for(35, "mailbox", "-") == 0);
}

/* ------------------------------------------------------------------ what is written */

static uint32_t written = 100;

static int write_to(uint32_t command, const char *name, const char *letters)
{
	struct kmem_mail_request request = { .command = command };

	memcpy(request.cache, name, strnlen(name, sizeof(request.cache)));
	memcpy(request.letters, letters, strnlen(letters, sizeof(request.letters)));
	return ask(written++, &request);
}

static void to_caches(void)
{
	static const char *const none[] = { "", "x", "-1", "7 8", " 7", "7 ", "99999999999", "0x7" };
	struct kmem_cache *slub = kmem_cache_create("by-slub", 100, &(struct kmem_cache_args){ .engine = "slub" }, 0);
	struct kmem_cache *slab = kmem_cache_create("by-slab", 100, &(struct kmem_cache_args){ .engine = "slab" }, 0);
	struct kmem_cache_stats stats;

	NEED(slub && slab);
	for (size_t i = 0; i < km_array_count(none); i++)
		NEED(write_to(KMEM_MAIL_MIN_PARTIAL, "mailbox", none[i]) == -EINVAL);
	NEED(write_to(KMEM_MAIL_MIN_PARTIAL, "mailbox", "7") == 0 && kmem_cache_min_partial(cache) == 7);
	NEED(write_to(KMEM_MAIL_MIN_PARTIAL, "mailbox", "1048577") == -EINVAL && kmem_cache_min_partial(cache) == 7);
	NEED(write_to(KMEM_MAIL_MIN_PARTIAL, "nobody", "7") == -ENOENT);
	NEED(write_to(KMEM_MAIL_MIN_PARTIAL, "", "7") == -EINVAL);
	NEED(write_to(KMEM_MAIL_MIN_PARTIAL, "a name of thirty-two characters.", "7") == -EINVAL);
	NEED(write_to(KMEM_MAIL_MIN_PARTIAL, "mailbox", "1234567890123456") == -EINVAL);
	NEED(write_to(KMEM_MAIL_DEFRAG_RATIO, "mailbox", "30") == 0);
	NEED(kmem_cache_remote_node_defrag_ratio(cache) == 30);
	NEED(write_to(KMEM_MAIL_DEFRAG_RATIO, "mailbox", "101") == -EINVAL);
	NEED(write_to(KMEM_MAIL_SHEAF_CAPACITY, "mailbox", "20") == 0);
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.sheaf_capacity == 30);
	NEED(write_to(KMEM_MAIL_SHEAF_CAPACITY, "mailbox", "0") == -EINVAL);
	NEED(write_to(KMEM_MAIL_SHEAF_CAPACITY, "mailbox", "60000") == -ERANGE);
	NEED(write_to(KMEM_MAIL_SHEAF_CAPACITY, "by-slub", "20") == -EOPNOTSUPP);
	NEED(write_to(KMEM_MAIL_CPU_PARTIAL, "mailbox", "0") == 0);
	NEED(write_to(KMEM_MAIL_CPU_PARTIAL, "mailbox", "5") == -EINVAL);
	NEED(write_to(KMEM_MAIL_CPU_PARTIAL, "by-slub", "5") == 0 && slub_node(slub, 0)->cpu_partial == 5);
	NEED(write_to(KMEM_MAIL_CPU_PARTIAL, "by-slub", "1048577") == -EINVAL && slub_node(slub, 0)->cpu_partial == 5);
	NEED(write_to(KMEM_MAIL_TUNE, "by-slab", "50 20 3") == 0);
	kmem_cache_get_stats(slab, &stats);
	NEED(stats.limit == 50 && stats.batchcount == 20 && stats.shared_factor == 3);
	/* Kernel: impossible numbers are ignored. */
	NEED(write_to(KMEM_MAIL_TUNE, "by-slab", "5 20 3") == 0 && write_to(KMEM_MAIL_TUNE, "by-slab", "0 1 1") == 0);
	NEED(write_to(KMEM_MAIL_TUNE, "by-slab", "50 20") == -EINVAL);
	NEED(write_to(KMEM_MAIL_TUNE, "by-slab", "60000 20 3") == -ERANGE);
	NEED(write_to(KMEM_MAIL_TUNE, "mailbox", "50 20 3") == -EOPNOTSUPP);
	kmem_cache_get_stats(slab, &stats);
	NEED(stats.limit == 50 && stats.batchcount == 20 && stats.shared_factor == 3);
	NEED(kmem_cache_event(cache, KMEM_ALLOC_SLAB) > 0 && write_to(KMEM_MAIL_CLEAR, "mailbox", "0") == -EINVAL);
	kmem_cache_free(slub, kmem_cache_alloc(slub, GFP_KERNEL));
	NEED(kmem_cache_event(slub, KMEM_ALLOC_SLAB) > 0 && write_to(KMEM_MAIL_CLEAR, "by-slub", "") == 0);
	NEED(kmem_cache_event(slub, KMEM_ALLOC_SLAB) == 0);
	kmem_cache_destroy(slub);
	kmem_cache_destroy(slab);
}

static unsigned asked;

static uint64_t shrink_tenant(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	asked++;
	return 0;
}

static int write_group(const struct mem_cgroup *group, const char *file, const char *value)
{
	char text[KMEM_MAIL_NAME + 1];

	snprintf(text, sizeof(text), "%u %s", group->number, value);
	return write_to(KMEM_MAIL_GROUP, text, file);
}

/* A callback runs at the next charge, not at a free. */
static void to_groups(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "tenant", 0);
	struct mem_cgroup_shrinker *shrinker = mem_cgroup_add_shrinker(group, 0, shrink_tenant, NULL);

	NEED(group && shrinker && mem_cgroup_charge(group, GFP_KERNEL, 1 << 20) == 0);
	NEED(write_group(group, "max", "4096") == 0 && mem_cgroup_max(group) == 4096 && !asked);
	NEED(mem_cgroup_charge(group, GFP_KERNEL, 4096) == -ENOMEM && asked);
	NEED(write_group(group, "max", "18446744073709551615") == 0 && mem_cgroup_max(group) == MEMCG_NO_LIMIT);
	NEED(write_group(group, "high", "8192000") == 0 && mem_cgroup_high(group) == 8192000);
	NEED(write_group(group, "low", "4096") == 0 && mem_cgroup_low(group) == 4096);
	NEED(write_group(group, "min", "0") == 0 && mem_cgroup_min(group) == 0);
	NEED(mem_cgroup_charge(group, GFP_KERNEL, 1 << 20) == 0);
	mem_cgroup_uncharge(group, 1 << 20);
	mem_cgroup_drain(group);
	NEED(mem_cgroup_peak(group) > 1 << 20 && write_group(group, "peak", "0") == 0);
	NEED(mem_cgroup_peak(group) == 1 << 20);
	asked = 0;
	NEED(write_group(group, "reclaim", "65536") == 0 && !asked);
	NEED(mem_cgroup_charge(group, GFP_KERNEL, 1 << 20) == 0 && asked);
	NEED(write_group(group, "current", "0") == -EINVAL && write_group(group, "max", "-1") == -EINVAL);
	NEED(write_group(group, "max", "18446744073709551616") == -EINVAL && write_group(group, "max", "") == -EINVAL);
	NEED(write_to(KMEM_MAIL_GROUP, "", "max") == -EINVAL && write_to(KMEM_MAIL_GROUP, "0 4096", "max") == -EINVAL);
	NEED(write_to(KMEM_MAIL_GROUP, "1", "max") == -EINVAL);
	NEED(write_to(KMEM_MAIL_GROUP, "999999 0", "max") == -ENOENT);
	NEED(mem_cgroup_max(group) == MEMCG_NO_LIMIT);
	mem_cgroup_uncharge(group, 2 << 20);
	mem_cgroup_remove_shrinker(shrinker);
	mem_cgroup_put(group);
}

/*
 * Without malloc's functions no malloc block can be charged, and the answer says so; other words are no
 * request.
 */
static void to_malloc(void)
{
	NEED(write_to(KMEM_MAIL_ACCOUNT, "", "on") == -EOPNOTSUPP);
	NEED(write_to(KMEM_MAIL_ACCOUNT, "", "off") == -EOPNOTSUPP);
	NEED(write_to(KMEM_MAIL_ACCOUNT, "", "") == -EINVAL && write_to(KMEM_MAIL_ACCOUNT, "", "one") == -EINVAL);
	NEED(write_to(KMEM_MAIL_ACCOUNT, "", "ON") == -EINVAL && write_to(KMEM_MAIL_ACCOUNT, "", "off ") == -EINVAL);
	NEED(write_to(KMEM_MAIL_ACCOUNT, "", "on on on on on o") == -EINVAL);
	NEED(write_to(KMEM_MAIL_ACCOUNT, "a name of thirty-two characters.", "on") == -EINVAL);
}

static void by_the_book(void)
{
	NEED(km_mail.version == KMEM_MAIL_VERSION);
	NEED(ask_for(1, "mailbox", "FZ") == 0);
	NEED(kmem_cache_debug_flags(cache) == (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE));
	NEED(ask_for(2, "mailbox", "-") == 0 && kmem_cache_debug_flags(cache) == 0);
	NEED(ask_for(3, "nobody", "F") == -ENOENT);
	NEED(ask_for(4, "mailbox", "X") == -EINVAL);
	NEED(ask_for(5, "", "F") == -EINVAL);
	/* No NUL within what there is room for. */
	NEED(ask_for(6, "a name of thirty-two characters.", "F") == -EINVAL);
	NEED(ask_for(7, "mailbox", "FZPUFZPUFZPUFZPU") == -EINVAL);
	NEED(ask(8, &(struct kmem_mail_request){ .command = 77, .cache = "mailbox", .letters = "F" }) == -EINVAL);
	NEED(ask(9, &(struct kmem_mail_request){ .command = KMEM_MAIL_LEAKS }) == -ENODATA);
	NEED(ask_for(10, "mailbox", "U") == 0);
	NEED(ask(11, &(struct kmem_mail_request){ .command = KMEM_MAIL_LEAKS }) == 0);
	NEED(ask_for(12, "mailbox", "-") == 0 && kmem_cache_debug_flags(cache) == 0);
	NEED(validated(20, "nobody") == -ENOENT && validated(21, "") == -EINVAL);
	NEED(validated(22, "a name of thirty-two characters.") == -EINVAL);
	/* The same number is no new request. */
	struct kmem_mail_request again = { .command = KMEM_MAIL_DEBUG, .cache = "mailbox", .letters = "F" };
	write_there(&km_mail.request, &again, sizeof(again));
	miss();
	NEED(kmem_cache_debug_flags(cache) == 0);
	/* Nor the number before; this number is there if a request was withdrawn while served. */
	const uint32_t before = 61;
	NEED(ask_for(before, "mailbox", "-") == 0 && ask_for(62, "mailbox", "-") == 0);
	write_there(&km_mail.request, &again, sizeof(again));
	write_there(&km_mail.asked, &before, sizeof(before));
	miss();
	NEED(kmem_cache_debug_flags(cache) == 0 && km_mail.answered == 62 && km_mail.asked == 62);
}

static void *churn(void *unused)
{
	void *held[64] = { NULL };

	for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		void **slot = &held[i * 7 % 64];

		if (*slot)
			kmem_cache_free(cache, *slot);
		*slot = kmem_cache_alloc(cache, GFP_KERNEL);
	}
	for (unsigned i = 0; i < 64; i++)
		if (held[i])
			kmem_cache_free(cache, held[i]);
	return unused;
}

static void fill(struct kmem_mail_request *request)
{
	static const char *const names[] = { "mailbox", "kmalloc-64", "kmalloc-1k", "", "large-16384" };
	static const char letters[] = "FZPU-fzpX";
	static const char *const numbers[] = {
		"0", "1", "7", "62", "255", "4294967295", "50 20 3", "max", "on", "off", "",
	};

	for (size_t i = 0; i < sizeof(*request); i++)
		((char *)request)[i] = (char)random();
	if (random() % 4)
		request->command = random() % 4 ? KMEM_MAIL_DEBUG : KMEM_MAIL_VALIDATE;
	if (random() % 4)
		strcpy(request->cache, names[random() % 5]);
	if (random() % 4) {
		size_t i = 0;

		while (i < KMEM_MAIL_LETTERS - 1 && random() % 4)
			request->letters[i++] = letters[random() % 9];
		request->letters[i] = '\0';
	}
	/* A write to a file. */
	if (random() % 2) {
		request->command = KMEM_MAIL_MIN_PARTIAL + random() % (KMEM_MAIL_GROUP - KMEM_MAIL_MIN_PARTIAL + 2);
		strcpy(request->letters, numbers[random() % km_array_count(numbers)]);
		if (random() % 4 == 0)
			snprintf(request->cache, sizeof(request->cache), "%ld %ld", random() % 4, random());
	}
}

static void fuzz(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&threads[i], NULL, churn, NULL) == 0);
	/* The objects in these threads' hands would look like damage. */
	NEED(validated(40, "mailbox") == -EBUSY && validated(41, "*") == -EBUSY);
	time_t end = time(NULL) + (getenv("CHECK_LONG") ? 3600 : 0);

	for (unsigned i = 0; i < ROUNDS || time(NULL) < end; i++) {
		struct kmem_mail_request request;
		uint32_t number = (uint32_t)random();

		fill(&request);
		/* The request's parts in any order, and sometimes incomplete. */
		write_there(&km_mail.asked, &number, sizeof(number));
		write_there((char *)&km_mail.request + random() % sizeof(request), &request, 1);
		write_there(&km_mail.request, &request, sizeof(request) - (size_t)random() % 8);
		if (random() % 16 == 0)
			write_there(&km_mail.answered, &number, sizeof(number));
		if (random() % 4 == 0)
			miss();
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	const char *wanted = getenv("SEED");
	unsigned seed = wanted ? (unsigned)atoi(wanted) : (unsigned)getpid();
	int status;

	printf("SEED=%u\n", seed);
	fflush(stdout);
	srandom(seed);
	cache = kmem_cache_create("mailbox", 64, NULL, 0);
	by_the_book();
	shrinks();
	looked_at();
	to_caches();
	to_groups();
	to_malloc();
	/* A request open at a fork belongs to the parent. */
	const struct kmem_mail_request open = { .command = KMEM_MAIL_DEBUG, .cache = "mailbox", .letters = "Z" };
	const uint32_t number = 98;
	write_there(&km_mail.request, &open, sizeof(open));
	write_there(&km_mail.asked, &number, sizeof(number));
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		miss();
		NEED(kmem_cache_debug_flags(cache) == 0 && km_mail.answered != number);
		NEED(ask_for(99, "mailbox", "P") == 0 && kmem_cache_debug_flags(cache) == SLAB_POISON);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	NEED(ask_for(number, "mailbox", "Z") == 0 && ask_for(97, "mailbox", "-") == 0);
	fuzz();
	NEED(ask_for(12345, "mailbox", "-") == 0);
	kmem_cache_shrink(cache);
	NEED(!cache->ext.shadows->out && kmem_check_all() == 0);
	kmem_cache_destroy(cache);
	return 0;
}
