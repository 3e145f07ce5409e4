/*
 * slab_orders.c: the orders of slabs for every option about them, for each engine and many sizes: within bounds, at
 * least the requested order, and no more objects than a slab can count; and the waste of engine sheaf. Runs itself
 * once for each set of options.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"

static int wrong;

static void complain(const struct kmem_cache *cache, const char *what)
{
	if (wrong++ < 10)
		printf("FAIL %s, size %u, order %u, %u objects: %s\n", cache->layout.engine->name, cache->layout.size,
		       cache->layout.order, cache->layout.objects, what);
}

static void look(struct kmem_cache *cache)
{
	const struct km_layout_options *options = &km_layout_options;
	size_t bytes = KM_PAGE_SIZE << cache->layout.order;
	unsigned least = options->min_order;

	/* As far as objects can be counted. */
	while (least && (KM_PAGE_SIZE << least) / cache->layout.size > KM_SLAB_MAX_OBJECTS)
		least--;
	if (cache->layout.order > KM_MAX_ORDER)
		complain(cache, "no such order");
	if (cache->layout.order < least)
		complain(cache, "below slab_min_order");
	if (!cache->layout.objects || cache->layout.objects > KM_SLAB_MAX_OBJECTS ||
	    (size_t)cache->layout.objects * cache->layout.size > bytes)
		complain(cache, "objects");
	if (wrong)
		return;
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);
	struct km_page *slab = object ? km_page_head(km_page_of(object)) : NULL;
	if (!slab || slab->objects != cache->layout.objects || slab->order != cache->layout.order)
		complain(cache, "the slab is another");
	if (object)
		kmem_cache_free(cache, object);
}

/* A slab of engine sheaf below the largest order has little waste, because the waste is resident. */
static void leftover(void)
{
	for (uint32_t size = 32; size <= 1024; size += 16) {
		struct kmem_cache_args args = { .engine = "sheaf" };
		struct kmem_cache *cache = kmem_cache_create("leftover", size, &args, 0);
		size_t bytes = cache ? KM_PAGE_SIZE << cache->layout.order : 1;

		if (!cache || bytes - (size_t)cache->layout.objects * cache->layout.size > bytes / 36)
			complain(cache, "too much is left over");
		kmem_cache_destroy(cache);
	}
}

static int run(void)
{
	static const uint32_t sizes[] = {
		8, 24, 32, 56, 64, 100, 128, 200, 256, 700, 1024, 3000, 4096, 5000, 8192, 20000, 60000,
		100000, 1000000, 2500000, 3145728, 4194304,
	};
	static const char *const engines[] = { "sheaf", "slub" };

	alarm(580);
	for (size_t i = 0; i < 2 * km_array_count(sizes); i++) {
		struct kmem_cache_args args = { .engine = engines[i % 2] };
		struct kmem_cache *cache = kmem_cache_create("layout", sizes[i / 2], &args, 0);

		if (!cache)
			return 1;
		look(cache);
		kmem_cache_destroy(cache);
	}
	return wrong != 0;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {
		"", "slab_min_order:1", "slab_min_order:5", "slab_min_order:10", "slab_max_order:1",
		"slab_max_order:10", "slab_min_order:7,slab_max_order:7", "slab_min_order:10,slab_max_order:10",
		"slab_min_objects:32767", "slab_min_objects:32767,slab_max_order:10",
		"slab_min_order:6,slab_max_order:2",
	};
	int failed = 0;

	if (argc > 1)
		return run();
	leftover();
	failed = wrong != 0;
	for (size_t i = 0; i < km_array_count(options); i++) {
		int status;

		fflush(stdout);
		pid_t child = fork();
		if (!child) {
			setenv("KMEM_OPTIONS", options[i], 1);
			execl("/proc/self/exe", argv[0], "run", (char *)NULL);
			_exit(127);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status) {
			printf("FAIL with %s\n", options[i]);
			failed = 1;
		}
	}
	return failed;
}
