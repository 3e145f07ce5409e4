/*
 * `larson`: sizes 8 to 1000 uniform, 1000 slots a thread, random replacement, first word written. Throughput over a
 * fixed time; resident memory at the end, with all slots full. Included after an interface (api/) for any size.
 */
#ifndef BENCH_WORK_LARSON_H
#define BENCH_WORK_LARSON_H

#define LARSON_SLOTS 1000u
#define LARSON_LOW 8u
#define LARSON_HIGH 1000u

static struct api larson_api;

bench_inline void *larson_alloc(struct api api, uint64_t random)
{
	uint64_t *object = api_alloc_sized(api, rng_between(random, LARSON_LOW, LARSON_HIGH));

	bench_check(object);
	*object = random;
	return object;
}

static void larson_body(struct member *member)
{
	const struct api api = larson_api;
	uint64_t ops = 0, random = 0x1000 + member->id;
	void *slots[LARSON_SLOTS];

	for (unsigned int i = 0; i < LARSON_SLOTS; i++)
		slots[i] = larson_alloc(api, rng_next(&random));
	crew_start(member);
	do {
		for (unsigned int i = 0; i < 64; i++) {
			uint64_t next = rng_next(&random);
			unsigned int slot = rng_index(next, LARSON_SLOTS);

			api_free(api, slots[slot]);
			slots[slot] = larson_alloc(api, next);
		}
		ops += 64;
	} while (!crew_stopped());
	member->ops = ops;
	crew_finish(member);
	for (unsigned int i = 0; i < LARSON_SLOTS; i++)
		api_free(api, slots[i]);
}

static void larson_run(const struct cell *cell)
{
	larson_api = api_open(cell->size);
	crew_run(cell->threads, larson_body, true);
	api_close(larson_api);
}

#endif
