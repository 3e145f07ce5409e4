/*
 * Throughput over a fixed time, threads not pinned: `producer-consumer` (objects of 256 bytes through a bounded ring of
 * 1024, first word written and read) and `threads-4k` (each thread allocates and frees 4096 bytes, first word written).
 * Included after an interface (api/).
 */
#ifndef BENCH_WORK_THREADS_H
#define BENCH_WORK_THREADS_H

#include <sched.h>

#define RING_SLOTS 1024u
#define RING_PAUSES 32u		/* about 0.5 us without a read of the other side's line */
#define RING_LOOKS 64u		/* then this side yields the CPU */

static struct {
	struct api api;
	/* The producer's line, and the consumer's line; each side keeps the last value read from the other side. */
	_Atomic(uint64_t) head __attribute__((aligned(64)));
	uint64_t tail_seen;
	_Atomic(uint64_t) tail __attribute__((aligned(64)));
	uint64_t head_seen;
	void *slots[RING_SLOTS] __attribute__((aligned(64)));
} ring;

static struct api threads_api;

/*
 * Waits for the other side. A constant read would take the line from the other side at every object, and the row would
 * show the price of these reads, not of the allocator.
 */
bench_noinline void ring_wait(unsigned int *looks)
{
	if (++*looks % RING_LOOKS == 0)
		sched_yield();
	for (unsigned int i = 0; i < RING_PAUSES; i++)
		clock_pause();
}

/* Puts one pointer into the ring; NULL ends the stream. */
bench_inline void ring_put(void *object)
{
	uint64_t head = atomic_load_explicit(&ring.head, memory_order_relaxed);
	unsigned int looks = 0;

	while (head - ring.tail_seen == RING_SLOTS) {
		/* Pairs with the release in ring_get: ring_get has read the slot before this write. */
		ring.tail_seen = atomic_load_explicit(&ring.tail, memory_order_acquire);
		if (head - ring.tail_seen == RING_SLOTS)
			ring_wait(&looks);
	}
	ring.slots[head % RING_SLOTS] = object;
	/* Pairs with the acquire in ring_get: slot and object are visible before the count. */
	atomic_store_explicit(&ring.head, head + 1, memory_order_release);
}

bench_inline void *ring_get(void)
{
	uint64_t tail = atomic_load_explicit(&ring.tail, memory_order_relaxed);
	unsigned int looks = 0;
	void *object;

	while (tail == ring.head_seen) {
		ring.head_seen = atomic_load_explicit(&ring.head, memory_order_acquire);
		if (tail == ring.head_seen)
			ring_wait(&looks);
	}
	object = ring.slots[tail % RING_SLOTS];
	atomic_store_explicit(&ring.tail, tail + 1, memory_order_release);
	return object;
}

static void pass_body(struct member *member)
{
	const struct api api = ring.api;
	uint64_t ops = 0, *object;

	crew_start(member);
	if (member->id) {
		while (!crew_stopped()) {
			object = api_alloc(api);
			bench_check(object);
			*object = ops++;
			ring_put(object);
		}
		ring_put(NULL);
		ops = 0;	/* the consumer counts */
	} else {
		while ((object = ring_get())) {
			if (*object != ops++)
				bench_die("an object arrived changed");
			api_free(api, object);
		}
	}
	member->ops = ops;
	crew_finish(member);
}

static void threads_pass(const struct cell *cell)
{
	ring.api = api_open(cell->size);
	crew_run(2, pass_body, false);
	api_close(ring.api);
}

/* The body of a thread of threads-4k. Returns: the number of pairs. */
bench_inline uint64_t threads_work(const struct api api)
{
	uint64_t ops = 0;

	do {
		for (unsigned int i = 0; i < 64; i++) {
			uint64_t *object = api_alloc(api);

			bench_check(object);
			*object = ops;
			bench_use(object);
			api_free(api, object);
		}
		ops += 64;
	} while (!crew_stopped());
	return ops;
}

static void threads_body(struct member *member)
{
	const struct api api = threads_api;

	crew_start(member);
	member->ops = threads_work(api);
	crew_finish(member);
}

static void threads_pairs(const struct cell *cell)
{
	threads_api = api_open(cell->size);
	crew_run(cell->threads, threads_body, false);
	api_close(threads_api);
}

#endif
