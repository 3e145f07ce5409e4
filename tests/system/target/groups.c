/*
 * A program with groups, read from another process. groups quiet|churn FILE: makes a tree with limits,
 * objects, stocks, events and an orphan, writes the program's own figures as JSON into FILE and the texts of
 * the groups into FILE.texts, prints "ready" and waits to be killed (churn: groups come and go meanwhile).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct kmem_cache *cache;

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

static void charge(struct mem_cgroup *group, int objects)
{
	MEMCG_SCOPE(group);
	for (int i = 0; i < objects; i++)
		want(kmem_cache_alloc(cache, GFP_KERNEL));
}

static void populate(void)
{
	struct mem_cgroup *tenants = want(mem_cgroup_create(NULL, "tenants", 0));
	struct mem_cgroup *small = want(mem_cgroup_create(tenants, "sm\"all", 0));
	struct mem_cgroup *gone = want(mem_cgroup_create(tenants, "gone", 0));
	struct mem_cgroup *deep = small;

	mem_cgroup_set_max(tenants, 64 << 20);
	mem_cgroup_set_high(tenants, 48 << 20);
	mem_cgroup_set_low(small, 4096);
	mem_cgroup_set_min(small, 1024);
	mem_cgroup_set_max(small, 100000);
	for (int i = 0; i < 5; i++)
		deep = want(mem_cgroup_create(deep, "deep", 0));
	want(mem_cgroup_create(NULL, "other \177 \303\244", 0));
	/* Two tenants with equal names, each with slabs of its own. */
	charge(want(mem_cgroup_create(NULL, "same", MEM_CGROUP_PRIVATE)), 5);
	charge(want(mem_cgroup_create(NULL, "same", MEM_CGROUP_PRIVATE)), 7);
	charge(tenants, 777);
	charge(deep, 55);
	charge(gone, 333);
	if (!mem_cgroup_charge(small, GFP_KERNEL, 1 << 20) || !mem_cgroup_charge(small, GFP_NOWAIT, 1 << 20))
		exit(4);
	mem_cgroup_put(gone);
	/* The refusals have emptied the stocks. */
	charge(tenants, 100);
}

/* ------------------------------------------------------------------ the program's own figures */

static FILE *texts;
static char path[65][64];

static void text(unsigned depth, const char *file, size_t (*write)(const struct mem_cgroup *, char *, size_t),
		 const struct mem_cgroup *group)
{
	char buffer[1000];

	if (write(group, buffer, sizeof(buffer)) >= sizeof(buffer))
		exit(5);
	fprintf(texts, "==> ");
	for (unsigned i = 1; i <= depth; i++)
		fprintf(texts, "%s/", path[i]);
	fprintf(texts, "memory.%s <==\n%s\n", file, buffer);
}

static int say_group(struct mem_cgroup *group, unsigned depth, void *arg)
{
	static unsigned seen;

	(void)arg;
	if (!depth) {
		seen = 0;
		return 0;
	}
	/* In the order of creation; and before the last, another has ended. */
	bool same = strcmp(mem_cgroup_name(group), "same") == 0;

	seen++;
	snprintf(path[depth], sizeof(path[depth]), same ? "%s~%u" : "%s", mem_cgroup_name(group), seen + 1);
	text(depth, "current", mem_cgroup_write_current, group);
	text(depth, "stat", mem_cgroup_write_stat, group);
	text(depth, "events", mem_cgroup_write_events, group);
	text(depth, "events.local", mem_cgroup_write_events_local, group);
	return 0;
}

static void say(const char *file)
{
	char name[4096];
	int fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0644);

	/* memory.stat drains stocks: once before, so that no bytes move between the two. */
	texts = want(fopen("/dev/null", "w"));
	mem_cgroup_walk(NULL, say_group, NULL);
	fclose(texts);
	if (fd < 0 || kmem_print_json(fd) || close(fd))
		exit(6);
	snprintf(name, sizeof(name), "%s.texts", file);
	texts = want(fopen(name, "w"));
	mem_cgroup_walk(NULL, say_group, NULL);
	if (fclose(texts))
		exit(6);
}

static void *churn(void *arg)
{
	(void)arg;
	for (unsigned i = 0;; i++) {
		struct mem_cgroup *group = want(mem_cgroup_create(NULL, i & 1 ? "odd" : "even", 0));
		struct mem_cgroup *below = want(mem_cgroup_create(group, "below", 0));

		charge(below, 1);
		mem_cgroup_put(below);
		mem_cgroup_put(group);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc != 3)
		return 2;
	cache = want(kmem_cache_create("paid", 100, NULL, SLAB_ACCOUNT));
	populate();
	say(argv[2]);
	if (!strcmp(argv[1], "churn"))
		for (int i = 0; i < 2; i++)
			if (pthread_create(&thread, NULL, churn, NULL))
				return 7;
	if (write(1, "ready\n", 6) != 6)
		return 8;
	for (;;)
		pause();
}
