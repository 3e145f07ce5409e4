/*
 * owner_words.c: a walk over slabs for a group's objects compares their owner words, and follows none, because a word
 * read while its slab is freed may be any value. And all owners are found without memory for a list of them.
 * Disciplines: all.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/memcg.h>

#include "kit/check.h"
#include "page/obj_cgroups.h"
#include "memcg/objcg.h"

#define OBJECTS	40u
#define ORPHANS	200u		/* more than a list without memory takes at once */

/* ------------------------------------------------------------------ metadata, with refused requests */

static bool none_left;

void *__real_km_metadata_alloc(size_t bytes, bool may_wait);
void *__wrap_km_metadata_alloc(size_t bytes, bool may_wait)
{
	return none_left ? NULL : __real_km_metadata_alloc(bytes, may_wait);
}

/* ------------------------------------------------------------------ what a group has */

static struct kmem_cache *cache;

static int add_objects(const char *name, size_t objects, uint64_t bytes, void *count)
{
	(void)bytes;
	if (strcmp(name, kmem_cache_name(cache)) == 0)
		*(size_t *)count += objects;
	return 0;
}

static size_t objects_of(struct mem_cgroup *group)
{
	size_t count = 0;

	NEED(mem_cgroup_walk_caches(group, add_objects, &count) == 0);
	return count;
}

static unsigned long slab_of_stat(struct mem_cgroup *group)
{
	char text[512];

	mem_cgroup_write_stat(group, text, sizeof(text));
	const char *line = strstr(text, "\nslab ");
	NEED(line);
	return strtoul(line + 6, NULL, 10);
}

static struct mem_cgroup *group_below(struct mem_cgroup *parent)
{
	struct mem_cgroup *group = mem_cgroup_create(parent, "one", 0);

	NEED(group);
	return group;
}

static void *alloc_for(struct mem_cgroup *group)
{
	MEMCG_SCOPE(group);
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(object);
	return object;
}

/* The object's word in its page's vector. Returns: NULL if there is none. */
static uint64_t *word_of(const void *object)
{
	uint64_t word = *km_owner_of_page(km_page_of(object));

	if (!(word & KM_OWNER_VECTOR))
		return NULL;
	return km_owner_in_vector(word, (uintptr_t)object & (KM_PAGE_SIZE - 1), cache->memcg.owner_shift);
}

/* ------------------------------------------------------------------ */

static void words_are_compared(void)
{
	struct mem_cgroup *top = group_below(NULL), *a = group_below(top), *b = group_below(top);
	void *object[OBJECTS];

	for (unsigned i = 0; i < OBJECTS; i++)
		object[i] = alloc_for(i % 2 ? a : b);
	size_t one = slab_of_stat(top) / OBJECTS;
	CHECK(objects_of(a) == OBJECTS / 2 && objects_of(b) == OBJECTS / 2);
	/* No address; metadata of another kind; an objcg with a group that does not exist. */
	struct obj_cgroup odd = { .memcg = (struct mem_cgroup *)0x4141414141414140 };
	const uint64_t any[] = { 0x4141414141414140, (uintptr_t)cache, (uintptr_t)&odd };
	const void *some = object[0];
	for (unsigned i = 0; i < OBJECTS && !word_of(some); i++)
		some = object[i];
	for (size_t i = 0; i < sizeof(any) / sizeof(*any); i++) {
		uint64_t *word = word_of(some);

		NEED(word);
		uint64_t was = *word;

		*word = any[i];
		CHECK(objects_of(a) + objects_of(b) == OBJECTS - 1);
		CHECK(slab_of_stat(top) == one * (OBJECTS - 1));
		*word = was;
	}
	CHECK(slab_of_stat(top) == one * OBJECTS);
	for (unsigned i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, object[i]);
	mem_cgroup_put(a);
	mem_cgroup_put(b);
	mem_cgroup_put(top);
}

/* For ended groups, with objects now the parent's; and for child groups. */
static void all_are_found(void)
{
	struct mem_cgroup *top = group_below(NULL), *group[ORPHANS];
	void *object[ORPHANS];

	for (int gone = 0; gone < 2; gone++) {
		for (unsigned i = 0; i < ORPHANS; i++) {
			group[i] = group_below(top);
			object[i] = alloc_for(group[i]);
		}
		size_t bytes = slab_of_stat(top);
		for (unsigned i = 0; i < ORPHANS && gone; i++)
			mem_cgroup_put(group[i]);
		CHECK(slab_of_stat(top) == bytes && bytes);
		CHECK(objects_of(top) == (gone ? ORPHANS : 0));
		none_left = true;
		CHECK(slab_of_stat(top) == bytes);
		CHECK(objects_of(top) == (gone ? ORPHANS : 0));
		none_left = false;
		for (unsigned i = 0; i < ORPHANS; i++) {
			kmem_cache_free(cache, object[i]);
			if (!gone)
				mem_cgroup_put(group[i]);
		}
		CHECK(slab_of_stat(top) == 0);
	}
	mem_cgroup_put(top);
}

int main(void)
{
	cache = kmem_cache_create("words", 100, NULL, SLAB_ACCOUNT);
	if (!cache)
		return 1;
	words_are_compared();
	all_are_found();
	kmem_cache_destroy(cache);
	return failures != 0;
}
