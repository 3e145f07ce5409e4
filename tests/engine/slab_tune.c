/*
 * slab_tune: limit, batchcount and shared factor of the engine slab, read and written while a cache is used: as a call,
 * in the words of /proc/slabinfo, and as slabinfo and JSON show them. Disciplines: all.
 * Not with hardened: objects pass from the engine's own functions to callers, unproved.
 * Not with nodes: limits and lists are those of one node.
 */
#include "slab.h"

static void tunables(struct kmem_cache *cache, unsigned limit, unsigned batchcount, unsigned shared)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	CHECK_EQUAL(stats.limit, limit);
	CHECK_EQUAL(stats.sheaf_capacity, limit);
	CHECK_EQUAL(stats.batchcount, batchcount);
	CHECK_EQUAL(stats.shared_factor, shared);
}

/* An array takes exactly the limit, for any power of two of its memory. */
static void case_every_limit(void)
{
	struct kmem_cache *cache = fresh();
	void *objects[SLAB_MOST_LIMIT + 1];

	for (unsigned limit = 1; limit <= SLAB_MOST_LIMIT; limit++) {
		unsigned batch = limit / 3 + 1;

		if (batch > limit)
			batch = limit;
		CHECK_EQUAL(kmem_cache_tune(cache, limit, batch, 0), 0);
		tunables(cache, limit, batch, 0);
		CHECK_EQUAL(km_alloc_pcs_objects(cache), 0);
		take(cache, objects, limit + 1);
		for (unsigned i = 0; i < limit; i++) {
			put(cache, objects[i]);
			CHECK_EQUAL(km_alloc_pcs_objects(cache), i + 1);
		}
		unsigned long misses = kmem_cache_event(cache, KMEM_FREEMISS);
		put(cache, objects[limit]);
		CHECK_EQUAL(kmem_cache_event(cache, KMEM_FREEMISS), misses + 1);
		CHECK_EQUAL(km_alloc_pcs_objects(cache), limit + 1 - batch);
		CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	}
	done(cache);
}

/* Arrays of an old limit: full, half full and empty, in a thread's hand during the change. */
static void case_old_blocks(void)
{
	static const unsigned limits[] = { 120, 10, 62, 1, 126, 30, 54, 6 };
	struct kmem_cache *cache = fresh();
	struct km_request request = km_request_of(GFP_KERNEL, NUMA_NO_NODE);

	for (unsigned i = 0; i < km_array_count(limits); i++)
		for (unsigned j = 0; j < km_array_count(limits); j++)
			for (unsigned count = 0; count <= limits[i]; count += limits[i] / 2 + (limits[i] < 2)) {
				void **evicted, **block;

				CHECK_EQUAL(kmem_cache_tune(cache, limits[i], limits[i], 1), 0);
				enter();
				block = cache->layout.engine->array.spill(cache, NULL) - count;
				cache->layout.engine->take(cache, &request, block, count);
				CHECK_EQUAL(km_sheaf_objects(&cache->fast.pcs, block), count);
				leave();
				CHECK_EQUAL(kmem_cache_tune(cache, limits[j], (limits[j] + 1) / 2, 1), 0);
				CHECK_EQUAL(km_sheaf_objects(&cache->fast.pcs, block), count);
				enter();
				if (count % 3 == 0) {
					/* Back onto the CPU, and used up or filled there. */
					CHECK(km_pcs_install(&cache->fast.pcs, block, &evicted) && !evicted);
					block = NULL;
				} else if (count == limits[i]) {
					block = cache->layout.engine->array.spill(cache, block);
					CHECK_EQUAL(*km_sheaf_pad(&cache->fast.pcs, block), cache->tune.pad);
				}
				if (block)
					cache->layout.engine->array.retire(cache, block);
				leave();
				void *objects[300];
				for (unsigned k = 0; k < 300; k++)
					objects[k] = get(cache);
				for (unsigned k = 0; k < 300; k++)
					put(cache, objects[k]);
				CHECK_EQUAL(cache->layout.engine->check(cache), 0);
				CHECK(km_alloc_pcs_objects(cache) <= limits[j]);
				struct kmem_cache_stats stats;
				kmem_cache_get_stats(cache, &stats);
				CHECK_EQUAL(stats.active_objects, 0);
			}
	done(cache);
}

/* Objects on CPUs and in the shared array go to the slabs; the node keeps fewer objects, or more. */
static void case_new_arrays(void)
{
	struct kmem_cache *cache = small(2);
	struct slab_node *n = node_of(cache);
	void *objects[32];

	take(cache, objects, 32);
	for (unsigned i = 0; i < 14; i++)
		put(cache, objects[i]);
	CHECK_EQUAL(n->slabs.counts.shared, 4);
	CHECK_EQUAL(n->shared_limit, 8);
	CHECK_EQUAL(kmem_cache_tune(cache, 20, 5, 3), 0);
	CHECK_EQUAL(n->slabs.counts.shared, 0);
	CHECK_EQUAL(n->ready, 0);
	CHECK_EQUAL(n->shared_limit, 15);
	CHECK_EQUAL(n->free_limit, (1 + km_percpu.cpus) * 5 + 16);
	CHECK_EQUAL(n->slabs.counts.taken, 18);
	CHECK_EQUAL(km_alloc_pcs_objects(cache), 0);
	for (unsigned i = 14; i < 32; i++)
		put(cache, objects[i]);
	done(cache);
}

/* ------------------------------------------------------------------ rules, and the words of slabinfo */

static void case_rules(void)
{
	struct kmem_cache_args args = { .engine = "slab", .sheaf_capacity = 500 };
	struct kmem_cache *cache = fresh(), *large, *other, *bare;

	CHECK_EQUAL(kmem_cache_tune(cache, 0, 1, 1), -EINVAL);
	CHECK_EQUAL(kmem_cache_tune(cache, 10, 0, 1), -EINVAL);
	CHECK_EQUAL(kmem_cache_tune(cache, 10, 11, 1), -EINVAL);
	CHECK_EQUAL(kmem_cache_tune(cache, 127, 1, 1), -ERANGE);
	CHECK_EQUAL(kmem_cache_tune(cache, 10, 1, 65536), -ERANGE);
	CHECK_EQUAL(kmem_cache_tune(cache, 126, 126, 65535), -ENOMEM);
	tunables(cache, n_limit, n_batch, cache->tune.shared);
	CHECK_EQUAL(cache->tune.shared, n_shared / n_batch);
	CHECK_EQUAL(kmem_cache_tune(cache, 126, 126, 0), 0);
	tunables(cache, 126, 126, 0);
	/* A cache created with larger arrays may be tuned up to their size. */
	large = kmem_cache_create("slab-large", 64, &args, 0);
	tunables(large, 500, 250, large->tune.shared);
	CHECK_EQUAL(kmem_cache_tune(large, 501, 1, 1), -ERANGE);
	CHECK_EQUAL(kmem_cache_tune(large, 300, 100, 1), 0);
	tunables(large, 300, 100, 1);
	args = (struct kmem_cache_args){ .engine = "sheaf" };
	other = kmem_cache_create("no-slab", 64, &args, 0);
	CHECK_EQUAL(kmem_cache_tune(other, 10, 5, 1), -EOPNOTSUPP);
	CHECK_EQUAL(kmem_slabinfo_write("no-slab 10 5 1"), -EOPNOTSUPP);
	bare = fresh_with(64, SLAB_NO_SHEAVES, NULL);
	CHECK_EQUAL(kmem_cache_tune(bare, 10, 5, 1), -EOPNOTSUPP);
	done(bare);
	done(other);
	done(large);
	done(cache);
}

static void case_words(void)
{
	struct kmem_cache_args args = { .engine = "slab" };
	struct kmem_cache *cache = kmem_cache_create("words", 256, &args, 0);
	static const struct {
		const char *words;
		int result;
		unsigned limit, batchcount, shared;
	} rows[] = {
		{ "words 30 10 2", 0, 30, 10, 2 },
		{ "words 31 11 3\n", 0, 31, 11, 3 },
		{ "words\t32 11 3\n", -EINVAL, 31, 11, 3 },
		{ "words  33   12   0  ", 0, 33, 12, 0 },
		{ "words 34 12 2 and more", 0, 34, 12, 2 },
		/* Passed over, as the kernel does. */
		{ "words 0 12 2", 0, 34, 12, 2 },
		{ "words 35 0 2", 0, 34, 12, 2 },
		{ "words 35 36 2", 0, 34, 12, 2 },
		{ "words 35 12 -1", 0, 34, 12, 2 },
		{ "words -35 12 1", 0, 34, 12, 2 },
		/* Refused. */
		{ "wordy 35 12 1", -EINVAL, 34, 12, 2 },
		{ "word 35 12 1", -EINVAL, 34, 12, 2 },
		{ "wordy 0 0 0", -EINVAL, 34, 12, 2 },
		{ "words 35 12", -EINVAL, 34, 12, 2 },
		{ "words", -EINVAL, 34, 12, 2 },
		{ "", -EINVAL, 34, 12, 2 },
		{ "words 35 x 1", -EINVAL, 34, 12, 2 },
		{ "words 3000000000 12 1", -EINVAL, 34, 12, 2 },
		{ "words 127 12 1", -ERANGE, 34, 12, 2 },
	};
	char text[160];

	for (size_t i = 0; i < km_array_count(rows); i++) {
		CHECK_EQUAL(kmem_slabinfo_write(rows[i].words), rows[i].result);
		tunables(cache, rows[i].limit, rows[i].batchcount, rows[i].shared);
	}
	memset(text, ' ', sizeof(text));
	memcpy(text, "words 40 20 1", 13);
	text[128] = '\0';
	CHECK_EQUAL(kmem_slabinfo_write(text), 0);
	tunables(cache, 40, 20, 1);
	text[7] = '3';
	text[128] = ' ';
	text[129] = '\0';
	CHECK_EQUAL(kmem_slabinfo_write(text), -EINVAL);
	tunables(cache, 40, 20, 1);
	done(cache);
}

/*
 * ------------------------------------------------------------------ as slabinfo and statistics
 * show the figures
 */

static void printed(int (*print)(int fd), char *text, size_t bytes)
{
	FILE *file = tmpfile();

	CHECK(file && print(fileno(file)) == 0);
	rewind(file);
	size_t length = fread(text, 1, bytes - 1, file);
	text[length] = '\0';
	fclose(file);
}

static void case_printed(void)
{
	static char text[65536];
	struct kmem_cache_args args = { .engine = "slab" };
	struct kmem_cache *cache = kmem_cache_create("printed", 256, &args, 0);
	void *objects[16];

	CHECK_EQUAL(kmem_cache_tune(cache, 10, 4, 2), 0);
	take(cache, objects, 16);
	for (unsigned i = 0; i < 12; i++)
		put(cache, objects[i]);
	printed(kmem_print_slabinfo, text, sizeof(text));
	CHECK(strstr(text, "\nprinted                4     16    256   16    1 : tunables   10    4    2"
			   " : slabdata      1      1      4\n"));
	printed(kmem_print_json, text, sizeof(text));
	CHECK(strstr(text, "\"limit\": 10, \"batchcount\": 4, \"shared_factor\": 2, \"shared_avail\": 4"));
	for (unsigned i = 12; i < 16; i++)
		put(cache, objects[i]);
	done(cache);
}

/* ------------------------------------------------------------------ with other threads at work */

static struct {
	struct kmem_cache *cache;
	uint32_t over;
	uint32_t failed;
} busy;

static void *use(void *arg)
{
	void *objects[150];
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!__atomic_load_n(&busy.over, __ATOMIC_RELAXED)) {
		unsigned count = rand_r(&seed) % 150 + 1;

		if (rand_r(&seed) % 2) {
			if (!kmem_cache_alloc_bulk(busy.cache, GFP_KERNEL, count, objects))
				count = 0;
		} else {
			for (unsigned i = 0; i < count; i++)
				objects[i] = kmem_cache_alloc(busy.cache, GFP_KERNEL);
		}
		for (unsigned i = 0; i < count; i++)
			*(void **)objects[i] = &objects[i];
		for (unsigned i = 0; i < count; i++)
			if (*(void **)objects[i] != &objects[i])
				__atomic_store_n(&busy.failed, 1u, __ATOMIC_RELAXED);
		if (rand_r(&seed) % 2)
			kmem_cache_free_bulk(busy.cache, count, objects);
		else
			for (unsigned i = 0; i < count; i++)
				kmem_cache_free(busy.cache, objects[i]);
	}
	return NULL;
}

static void tune_while_used(bool counted)
{
	pthread_t threads[4];
	unsigned seed = 7;

	/* On all CPUs, and with the public fast path open: hits are not counted. */
	km_layout_options.count_events = counted;
	busy.cache = fresh();
	__atomic_store_n(&busy.over, 0u, __ATOMIC_RELAXED);
	go_anywhere();
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, use, (void *)(i + 1));
	for (unsigned i = 0; i < 600; i++) {
		unsigned limit = rand_r(&seed) % SLAB_MOST_LIMIT + 1, batch = rand_r(&seed) % limit + 1;

		CHECK_EQUAL(kmem_cache_tune(busy.cache, limit, batch, rand_r(&seed) % 5), 0);
		if (i % 50 == 0)
			look(busy.cache, 1);
		usleep(rand_r(&seed) % 500);
	}
	__atomic_store_n(&busy.over, 1u, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	km_layout_options.count_events = true;
	CHECK_EQUAL(busy.failed, 0);
	/*
	 * A race may leave a spare of an older limit on a CPU; the newer limit counts the spare, and the spare
	 * goes.
	 */
	CHECK_EQUAL(kmem_cache_tune(busy.cache, 10, 4, 0), 0);
	done(busy.cache);
}

static void case_while_used(void)
{
	tune_while_used(false);
	tune_while_used(true);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "every limit", case_every_limit },
		{ "blocks of an old limit", case_old_blocks },
		{ "new arrays", case_new_arrays },
		{ "rules", case_rules },
		{ "the words of slabinfo", case_words },
		{ "as it is printed", case_printed },
		{ "while it is used", case_while_used },
	};

	return counted_run(cases, km_array_count(cases), 20);
}
