/*
 * Mixed arrays: the worst case of a detached freelist. 4096 objects lie in 16 buckets, hashed by their slab. Each
 * iteration takes a batch of 64, every match-th object from the bucket of the first and the others from random buckets,
 * frees the batch, allocates as many objects and files the new objects. The time includes all of this, as in the
 * published module; the row `nothing` has the cost of the filing. The first word of each object is written (the
 * bucket's link). Included after an interface (api/).
 */
#ifndef BENCH_WORK_WORST_H
#define BENCH_WORK_WORST_H

#define WORST_OBJECTS 4096u
#define WORST_BUCKETS 16u

struct worst_link {
	struct worst_link *next;
};

static struct {
	struct api api;
	unsigned int slab_shift;
	uint64_t random;
	struct worst_link *buckets[WORST_BUCKETS];
} worst;

bench_inline void worst_file(void *object)
{
	uint64_t slab = (uint64_t)(uintptr_t)object >> worst.slab_shift;
	struct worst_link **bucket =
		&worst.buckets[slab * 0x9e3779b97f4a7c15ull >> 60 & (WORST_BUCKETS - 1)];
	struct worst_link *link = object;

	link->next = *bucket;
	*bucket = link;
}

/* Takes from the wanted bucket, or from the next filled bucket: 64 of 4096 objects are always available. */
bench_inline void *worst_take(unsigned int bucket)
{
	struct worst_link *link;

	while (!worst.buckets[bucket])
		bucket = (bucket + 1) & (WORST_BUCKETS - 1);
	link = worst.buckets[bucket];
	worst.buckets[bucket] = link->next;
	return link;
}

/* Takes element 0 and every match-th element after it from one bucket, the others from any bucket. */
bench_inline void worst_pick(const struct cell *cell, void **objects)
{
	unsigned int first = (unsigned int)(rng_next(&worst.random) >> 60), until = 0;

	for (unsigned int k = 0; k < cell->batch; k++) {
		if (!until) {
			objects[k] = worst_take(first);
			until = cell->match;
		} else {
			objects[k] = worst_take((unsigned int)(rng_next(&worst.random) >> 60));
		}
		until--;
	}
}

static void worst_open(const struct cell *cell, void *(*first)(size_t index))
{
	bench_pin();
	worst.api = api_open(cell->size);
	worst.slab_shift = api_slab_shift(worst.api);
	worst.random = 1;
	for (size_t i = 0; i < WORST_BUCKETS; i++)
		worst.buckets[i] = NULL;
	for (size_t i = 0; i < WORST_OBJECTS; i++) {
		void *object = first(i);

		bench_check(object);
		worst_file(object);
	}
}

bench_noinline void *worst_first(size_t index)
{
	(void)index;
	return api_alloc(worst.api);
}

/* Frees all objects, because the cache must be destroyed. */
static void worst_close(void)
{
	for (size_t i = 0; i < WORST_OBJECTS; i++)
		api_free(worst.api, worst_take(0));
	api_close(worst.api);
}

bench_noinline uint64_t worst_loop_window(const struct cell *cell, uint64_t count)
{
	const struct api api = worst.api;
	const size_t batch = cell->batch;
	void *objects[BENCH_MAX_BATCH];
	uint64_t start = clock_start();

	for (uint64_t i = 0; i < count; i++) {
		worst_pick(cell, objects);
		for (size_t k = 0; k < batch; k++)
			api_free(api, objects[k]);
		bench_use(objects);
		for (size_t k = 0; k < batch; k++) {
			objects[k] = api_alloc(api);
			bench_check(objects[k]);
		}
		for (size_t k = 0; k < batch; k++)
			worst_file(objects[k]);
	}
	return clock_stop() - start;
}

static void worst_cell(const struct cell *cell, bench_window *window)
{
	worst_open(cell, worst_first);
	bench_print("cycles/object", "-", "-", bench_cost(window, cell, cell->batch));
	worst_close();
}

static void worst_loop(const struct cell *cell)
{
	worst_cell(cell, worst_loop_window);
}

#endif
