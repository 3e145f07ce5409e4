/*
 * group_texts: the texts of a group's files: a buffer of any length, also zero, gets the text that fits, with its
 * end. The result is the length of the whole text. A file's lines are the numbers of the functions. The root has no
 * numbers and no limits; an offline group keeps its numbers.
 */
#include <stdlib.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>

#include "kit/check.h"

#define MOST 1024u

typedef size_t write_fn(const struct mem_cgroup *group, char *text, size_t bytes);
static write_fn *const files[] = {
	mem_cgroup_write_current, mem_cgroup_write_stat, mem_cgroup_write_events, mem_cgroup_write_events_local,
};

static void every_length(const struct mem_cgroup *group, write_fn *write)
{
	char whole[MOST], part[MOST];
	size_t length = write(group, whole, sizeof(whole));

	NEED(length && length < sizeof(whole) && strlen(whole) == length && whole[length - 1] == '\n');
	CHECK_EQUAL(write(group, NULL, 0), length);
	for (size_t bytes = 1; bytes <= length + 2; bytes++) {
		size_t fits = bytes - 1 < length ? bytes - 1 : length;

		memset(part, '#', sizeof(part));
		CHECK_EQUAL(write(group, part, bytes), length);
		CHECK(!memcmp(part, whole, fits) && !part[fits] && part[bytes] == '#', "%zu bytes", bytes);
	}
}

/* The number behind the key, in a file. */
static unsigned long line(const struct mem_cgroup *group, write_fn *write, const char *key)
{
	char text[MOST], *at = text;

	write(group, text, sizeof(text));
	while (at && (strncmp(at, key, strlen(key)) || (*key && at[strlen(key)] != ' '))) {
		at = strchr(at, '\n');
		at += at != NULL;
	}
	NEED(at, "no %s in %s", key, text);
	return strtoul(at + strlen(key), NULL, 10);
}

static void numbers(struct mem_cgroup *group, struct kmem_cache *cache)
{
	CHECK_EQUAL(line(group, mem_cgroup_write_current, ""), mem_cgroup_current(group));
	CHECK_EQUAL(line(group, mem_cgroup_write_stat, "kernel"), mem_cgroup_current(group));
	CHECK(line(group, mem_cgroup_write_stat, "slab") >= 20 * 200);
	CHECK_EQUAL(line(group, mem_cgroup_write_events, "max"), mem_cgroup_events(group, MEMCG_MAX));
	CHECK(mem_cgroup_events(group, MEMCG_MAX) && mem_cgroup_failcnt(group));
	CHECK_EQUAL(line(group, mem_cgroup_write_events_local, "max"), mem_cgroup_events_local(group, MEMCG_MAX));
	CHECK(!mem_cgroup_events(group, MEMCG_NR_MEMORY_EVENTS) && !mem_cgroup_events_local(group, -1));
	CHECK(mem_cgroup_peak(group) >= mem_cgroup_current(group));
	CHECK_EQUAL(mem_cgroup_kmem(group), 0);
	mem_cgroup_reset_peak(group);
	CHECK_EQUAL(mem_cgroup_peak(group), mem_cgroup_current(group));
}

static void limits(struct mem_cgroup *group)
{
	struct mem_cgroup *root = mem_cgroup_root();

	CHECK(!mem_cgroup_set_high(group, 1 << 20) && !mem_cgroup_set_low(group, 1 << 12) &&
	      !mem_cgroup_set_min(group, 1 << 11));
	CHECK_EQUAL(mem_cgroup_high(group), 1 << 20);
	CHECK_EQUAL(mem_cgroup_low(group), 1 << 12);
	CHECK_EQUAL(mem_cgroup_min(group), 1 << 11);
	CHECK_EQUAL(mem_cgroup_max(group), 30000);
	CHECK(mem_cgroup_margin(group) <= 30000 && mem_cgroup_margin(root) == MEMCG_NO_LIMIT);
	CHECK(mem_cgroup_set_high(root, 1) == -EINVAL && mem_cgroup_set_max(root, 1) == -EINVAL);
	CHECK(!mem_cgroup_current(root) && !mem_cgroup_peak(root) && !mem_cgroup_kmem(root));
}

int main(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "texts", 0), *below;
	struct kmem_cache *cache = kmem_cache_create("texts", 200, 0, SLAB_ACCOUNT, NULL);
	void *objects[200];
	int count = 0;

	NEED(group && cache && !mem_cgroup_set_max(group, 30000));
	while (count < 200 && (objects[count] = kmem_cache_alloc_in(cache, group, GFP_KERNEL | __GFP_NOWARN)))
		count++;
	NEED(count > 20 && count < 200);
	numbers(group, cache);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		every_length(group, files[i]);
		every_length(mem_cgroup_root(), files[i]);
	}
	limits(group);
	/* A group that ends with objects allocated counts as a dying descendant of its parent. */
	below = mem_cgroup_create(group, "below", 0);
	NEED(below);
	kmem_cache_free(cache, objects[--count]);
	objects[count++] = kmem_cache_alloc_in(cache, below, GFP_KERNEL);
	NEED(objects[count - 1] && !mem_cgroup_offline(below));
	CHECK(mem_cgroup_set_high(below, 1) == -ENOENT);
	CHECK_EQUAL(line(group, mem_cgroup_write_stat, "dying"), 1);
	while (count)
		kmem_cache_free(cache, objects[--count]);
	kmem_cache_shrink(cache);
	mem_cgroup_drain(group);
	mem_cgroup_put(below);
	CHECK_EQUAL(line(group, mem_cgroup_write_stat, "dying"), 0);
	mem_cgroup_put(group);
	kmem_cache_destroy(cache);
	return failures != 0;
}
