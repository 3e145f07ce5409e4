/*
 * `adrift`: each thread keeps a fixed number of objects and replaces the objects in turn, whole object written. One
 * more thread frees the replaced objects and never allocates, so each object ends far from its origin. The allocated
 * bytes are bounded all the time: by the kept objects and by the queues, one for each producer. Reported: replacements
 * a second, and resident memory at the end, with empty queues and stopped producers, without the worker's tables.
 * Included after an interface (api/) and works/threads.h.
 *
 * The work of mimalloc's thread 1364 (16 producers, 592 bytes, 370 MiB allocated), written anew.
 */
#ifndef BENCH_WORK_ADRIFT_H
#define BENCH_WORK_ADRIFT_H

#include <string.h>
#include <sys/mman.h>

#define ADRIFT_QUEUE 256u
#define ADRIFT_MOST 64u		/* producers */
#define ADRIFT_OBJECTS 655360u	/* kept: 370 MiB of 592 bytes */
#define ADRIFT_MS 30000u	/* with this many objects; with fewer objects, less */

static struct adrift_queue {
	_Atomic(uint64_t) head __attribute__((aligned(64)));	/* written by the producer */
	_Atomic(uint64_t) tail __attribute__((aligned(64)));	/* written by the freeing thread */
	void *slots[ADRIFT_QUEUE];
} adrift_queues[ADRIFT_MOST];

static struct {
	struct api api;
	size_t size;
	unsigned int producers;
	uint32_t each;		/* kept objects of one producer */
	void **objects;		/* of all producers */
	_Atomic(unsigned int) done;
} adrift;

static void *adrift_alloc(uint64_t fill)
{
	void *object = api_alloc(adrift.api);

	bench_check(object);
	memset(object, (int)fill, adrift.size);
	return object;
}

static void adrift_put(struct adrift_queue *queue, void *object)
{
	uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
	unsigned int looks = 0;

	/* Pairs with the release in adrift_take: adrift_take has read the slot before this write. */
	while (head - atomic_load_explicit(&queue->tail, memory_order_acquire) == ADRIFT_QUEUE)
		ring_wait(&looks);
	queue->slots[head % ADRIFT_QUEUE] = object;
	/* Pairs with the acquire in adrift_take: slot and object are visible before the count. */
	atomic_store_explicit(&queue->head, head + 1, memory_order_release);
}

/* Frees all objects in the queue. Returns: their number. */
static uint64_t adrift_take(struct adrift_queue *queue)
{
	uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed), first = tail;
	uint64_t head = atomic_load_explicit(&queue->head, memory_order_acquire);

	for (; tail != head; tail++)
		api_free(adrift.api, queue->slots[tail % ADRIFT_QUEUE]);
	atomic_store_explicit(&queue->tail, tail, memory_order_release);
	return tail - first;
}

static void adrift_produce(struct member *member)
{
	struct adrift_queue *queue = &adrift_queues[member->id - 1];
	void **mine = adrift.objects + (size_t)(member->id - 1) * adrift.each;
	uint64_t turn = 0;

	for (uint32_t i = 0; i < adrift.each; i++)
		mine[i] = adrift_alloc(i);
	crew_start(member);
	for (; !crew_stopped(); turn++) {
		void **slot = &mine[turn % adrift.each];

		adrift_put(queue, *slot);
		*slot = adrift_alloc(turn);
	}
	atomic_fetch_add(&adrift.done, 1);
	crew_finish(member);
}

static void adrift_reclaim(struct member *member)
{
	unsigned int looks = 0, done;

	crew_start(member);
	do {
		uint64_t before = member->ops;

		done = atomic_load(&adrift.done);
		for (unsigned int i = 0; i < adrift.producers; i++)
			member->ops += adrift_take(&adrift_queues[i]);
		if (member->ops == before)
			ring_wait(&looks);
	} while (done < adrift.producers);
	bench_print_memory("end", (double)(adrift.producers * sizeof(*adrift_queues)) +
			   (double)adrift.producers * adrift.each * sizeof(void *));
	crew_finish(member);
}

static void adrift_body(struct member *member)
{
	if (member->id)
		adrift_produce(member);
	else
		adrift_reclaim(member);
}

static void adrift_run(const struct cell *cell)
{
	size_t bytes;

	if (!cell->threads || cell->threads > ADRIFT_MOST)
		bench_die("too many producers");
	adrift.producers = cell->threads;
	adrift.size = cell->size;
	adrift.each = bench_amounts.live_objects / cell->threads;
	bytes = (size_t)adrift.each * cell->threads * sizeof(void *);
	adrift.objects = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (adrift.objects == MAP_FAILED)
		bench_die("no memory for the table of live objects");
	memset(adrift_queues, 0, sizeof(adrift_queues));
	adrift.api = api_open(cell->size);
	bench_amounts.run_ms = (unsigned int)((uint64_t)ADRIFT_MS * bench_amounts.live_objects / ADRIFT_OBJECTS);
	crew_run(cell->threads + 1, adrift_body, false);
	for (size_t i = 0; i < bytes / sizeof(void *); i++)
		api_free(adrift.api, adrift.objects[i]);
	api_close(adrift.api);
}

#endif
