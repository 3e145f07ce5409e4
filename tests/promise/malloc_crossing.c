/*
 * malloc_crossing.c: blocks of all sizes go from thread to thread; one thread resizes a block, and another frees
 * the block; threads start and end. Written bytes stay until they are read. Disciplines: all
 */
#include <pthread.h>

#include "kit/malloc.h"

#define SLOTS	512
#define THREADS	6
#define ROUNDS	30000

/*
 * A slot holds NULL or a block with the block's length and seed. The thread that swaps the block out
 * owns the block.
 */
struct block {
	size_t bytes;
	unsigned seed;
	unsigned char data[];
};
static struct block *slots[SLOTS];

static struct block *make(unsigned *seed)
{
	unsigned pick = rand_r(seed);
	size_t bytes = pick % 64 == 0 ? pick % 100000 : pick % 1500;
	struct block *block = pick % 3 ? malloc(sizeof(*block) + bytes) :
					 calloc(1, sizeof(*block) + bytes);

	NEED(block);
	block->bytes = bytes;
	block->seed = pick;
	fill(block->data, bytes, pick);
	return block;
}

static struct block *resized(struct block *block, unsigned *seed)
{
	size_t bytes = rand_r(seed) % (block->bytes + 1);

	block = realloc(block, sizeof(*block) + bytes);
	NEED(block);
	block->bytes = bytes;
	return block;
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS / 4; i++) {
		struct block *mine = make(&seed);
		struct block *other = __atomic_exchange_n(&slots[rand_r(&seed) % SLOTS], mine,
							  __ATOMIC_ACQ_REL);

		if (!other)
			continue;
		NEED(is_filled(other->data, other->bytes, other->seed));
		if (seed % 4 == 0) {
			other = resized(other, &seed);
			NEED(is_filled(other->data, other->bytes, other->seed));
		}
		free(other);
	}
	return NULL;
}

int main(void)
{
	check_ours();
	for (int generation = 0; generation < 4; generation++) {
		pthread_t threads[THREADS];

		for (long i = 0; i < THREADS; i++)
			NEED(!pthread_create(&threads[i], NULL, work,
					      (void *)(generation * 100 + i + 1)));
		for (int i = 0; i < THREADS; i++)
			NEED(!pthread_join(threads[i], NULL));
	}
	for (int i = 0; i < SLOTS; i++) {
		NEED(!slots[i] || is_filled(slots[i]->data, slots[i]->bytes, slots[i]->seed));
		free(slots[i]);
	}
	return 0;
}
