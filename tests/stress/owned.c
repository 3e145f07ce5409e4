/*
 * owned: threads push to and pop from an owned sheaf and a CPU's stocks of bytes (percpu/owned_sheaf.h,
 * percpu/stock_word.h), for some owners at once. Another thread drains them all the time, takes sheaves off, and lets
 * the stocks' words change owners. At the end every object is there once, was never popped for another owner nor
 * popped twice, and every owner has its bytes. SECONDS=n. Disciplines: all.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kmem/kmem.h>

#include "percpu/owned_sheaf.h"
#include "percpu/stock_word.h"
#include "kit/inside.h"
#include "kit/random.h"

TEST_IS_INSIDE

enum { THREADS = 4, OWNERS = 3, OBJECTS = 240, HAND = 24, WORDS = 32, ROOM = WORDS - 2, BLOCKS = 64 };
enum { BYTES = 100000, LIMIT = 9000 };

struct object {
	unsigned owner;
	int out;		/* in a thread's hand, or in the heap */
	struct object *next;
};

static struct {
	struct km_pcs pcs;
	void *memory[BLOCKS][WORDS] __attribute__((aligned(WORDS * sizeof(void *))));
	struct object objects[OBJECTS];
	uint32_t slot[OWNERS], word[OWNERS];
	int64_t bytes[OWNERS];			/* what the threads have at their ends, and drains took */
	unsigned long wrong, taken, drained, adopted, stocked;
	pthread_mutex_t lock;			/* the heap, and the sheaves on no CPU */
	struct object *heap;
	void **blocks[BLOCKS];
	unsigned block_count;
	int stop;
} world = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uintptr_t owner_word(unsigned owner)
{
	return (uintptr_t)(owner + 1) << 20;
}

static void count(unsigned long *what, unsigned long by)
{
	__atomic_fetch_add(what, by, __ATOMIC_RELAXED);
}

/* Checks an object popped as `owner`'s. */
static void receive(struct object *object, uintptr_t owner)
{
	if (owner != owner_word(object->owner) || __atomic_exchange_n(&object->out, 1, __ATOMIC_RELAXED))
		count(&world.wrong, 1);
}

static void give_up(struct object *object)
{
	pthread_mutex_lock(&world.lock);
	object->next = world.heap;
	world.heap = object;
	pthread_mutex_unlock(&world.lock);
}

static struct object *from_heap(void)
{
	pthread_mutex_lock(&world.lock);
	struct object *object = world.heap;
	if (object)
		world.heap = object->next;
	pthread_mutex_unlock(&world.lock);
	return object;
}

static void need_block(void)
{
	pthread_mutex_lock(&world.lock);
	void **block = world.block_count ? world.blocks[--world.block_count] : NULL;
	pthread_mutex_unlock(&world.lock);
	km_cpu_begin();
	if (!block || km_owned_install(&world.pcs, block, 0))
		return;
	pthread_mutex_lock(&world.lock);
	world.blocks[world.block_count++] = block;
	pthread_mutex_unlock(&world.lock);
}

struct hand {
	struct object *objects[HAND];
	unsigned count;
	int64_t bytes[OWNERS];
	uint64_t seed;
};

static unsigned draw(struct hand *hand, unsigned below)
{
	return random_next(&hand->seed) % below;
}

static void get_some(struct hand *hand, unsigned owner)
{
	void *out[8];
	size_t wanted = 1 + draw(hand, 8), got = 0;

	if (hand->count + wanted > HAND)
		return;
	if (wanted == 1)
		got = (out[0] = km_owned_pop(&world.pcs, owner_word(owner))) != NULL;
	else
		got = km_owned_pop_n(&world.pcs, owner_word(owner), out, wanted);
	for (size_t i = wanted - got; i < wanted; i++) {
		receive(out[i], owner_word(owner));
		hand->objects[hand->count++] = out[i];
	}
	count(&world.taken, got);
	struct object *object = got ? NULL : from_heap();
	if (object)
		hand->objects[hand->count++] = object;
}

/* Pushes objects of one owner from the end of the hand. */
static void put_some(struct hand *hand)
{
	void *in[8];
	size_t many = 0, left;
	unsigned owner;

	if (!hand->count)
		return;
	owner = hand->objects[hand->count - 1]->owner;
	for (; hand->count && many < 8 && hand->objects[hand->count - 1]->owner == owner; many++) {
		in[many] = hand->objects[--hand->count];
		__atomic_store_n(&((struct object *)in[many])->out, 0, __ATOMIC_RELAXED);
	}
	if (many == 1)
		left = !km_owned_push(&world.pcs, owner_word(owner), in[0]);
	else
		left = many - km_owned_push_n(&world.pcs, owner_word(owner), in, many);
	for (size_t i = 0; i < left; i++) {
		__atomic_store_n(&((struct object *)in[i])->out, 1, __ATOMIC_RELAXED);
		give_up(in[i]);
	}
}

static void use_stock(struct hand *hand, unsigned owner)
{
	int64_t bytes = 1 + draw(hand, 3000), all;

	switch (draw(hand, 5)) {
	case 0:
	case 1:
		if (!km_stock_take(&world.slot[owner], (uint64_t)bytes))
			return;
		hand->bytes[owner] += bytes;
		break;
	case 2:
	case 3:
		if (hand->bytes[owner] < bytes || !km_stock_put(&world.slot[owner], (uint64_t)bytes, LIMIT))
			return;
		hand->bytes[owner] -= bytes;
		break;
	default:
		all = (int64_t)km_stock_empty(&world.slot[owner]);
		if (all > LIMIT)
			count(&world.wrong, 1);
		hand->bytes[owner] += all;
	}
	count(&world.stocked, 1);
}

static void *work(void *number)
{
	struct hand hand = { .seed = (uintptr_t)number + 1, .bytes = { BYTES, BYTES, BYTES } };

	while (!__atomic_load_n(&world.stop, __ATOMIC_RELAXED)) {
		unsigned owner = draw(&hand, OWNERS);

		switch (draw(&hand, 16)) {
		case 0:
			count(&world.adopted, km_owned_adopt(&world.pcs, owner_word(owner)));
			break;
		case 1:
			need_block();
			break;
		case 2:
			sched_yield();
			break;
		case 3: case 4: case 5: case 6:
			use_stock(&hand, owner);
			break;
		case 7: case 8: case 9: case 10:
			put_some(&hand);
			break;
		default:
			/* Mostly the owner of the objects here. */
			if (draw(&hand, 4) && km_owned_owner(&world.pcs))
				owner = (unsigned)(km_owned_owner(&world.pcs) >> 20) - 1;
			get_some(&hand, owner % OWNERS);
		}
	}
	while (hand.count)
		give_up(hand.objects[--hand.count]);
	for (unsigned owner = 0; owner < OWNERS; owner++)
		__atomic_fetch_add(&world.bytes[owner], hand.bytes[owner], __ATOMIC_RELAXED);
	return NULL;
}

static void drain_pcs(bool release)
{
	km_pcs_close(&world.pcs);
	if (!km_pcs_fence())
		abort();
	km_for_each_cpu(cpu) {
		void *out[ROOM];
		uintptr_t owner;
		size_t got = km_owned_take_cpu(&world.pcs, cpu, out, &owner);

		for (size_t i = 0; i < got; i++) {
			receive(out[i], owner);
			give_up(out[i]);
		}
		world.drained += got;
		void **block = release ? km_owned_release_cpu(&world.pcs, cpu) : NULL;
		if (!block)
			continue;
		pthread_mutex_lock(&world.lock);
		world.blocks[world.block_count++] = block;
		pthread_mutex_unlock(&world.lock);
	}
	km_pcs_open(&world.pcs, false);
}

/* Each owner's word is the next one's from now on. */
static void drain_stocks(void)
{
	for (unsigned owner = 0; owner < OWNERS; owner++)
		km_stock_close(&world.slot[owner]);
	if (!km_pcs_fence())
		abort();
	for (unsigned owner = 0; owner < OWNERS; owner++)
		km_for_each_cpu(cpu)
			__atomic_fetch_add(&world.bytes[owner],
					   (int64_t)km_stock_take_cpu(world.word[owner], cpu),
					   __ATOMIC_RELAXED);
	uint32_t first = world.word[0];
	for (unsigned owner = 0; owner < OWNERS; owner++) {
		world.word[owner] = owner + 1 < OWNERS ? world.word[owner + 1] : first;
		km_stock_open(&world.slot[owner], world.word[owner]);
	}
}

static void start(void)
{
	kmem_percpu_discipline();
	world.pcs.sheaf_mask = world.pcs.inner.mask = sizeof(world.memory[0]) - 1;
	world.pcs.slot = km_percpu_alloc(km_owned_word_bytes());
	for (unsigned i = 0; i < BLOCKS; i++)
		world.blocks[world.block_count++] = km_owned_prepare(&world.pcs, world.memory[i]);
	for (unsigned i = 0; i < OBJECTS; i++) {
		world.objects[i] = (struct object){ .owner = i % OWNERS, .out = 1 };
		give_up(&world.objects[i]);
	}
	for (unsigned owner = 0; owner < OWNERS; owner++) {
		world.word[owner] = km_percpu_alloc(km_stock_word_bytes());
		km_stock_open(&world.slot[owner], world.word[owner]);
	}
	km_pcs_open(&world.pcs, false);
}

int main(void)
{
	const char *wanted = getenv("SECONDS");
	long seconds = wanted ? atol(wanted) : 2;
	pthread_t threads[THREADS];
	unsigned long drains = 0, there = 0;

	start();
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			return 1;
	for (time_t end = time(NULL) + seconds; time(NULL) < end; drains++) {
		drain_pcs(drains % 8 == 0);
		drain_stocks();
		/* Now and then time for a sheaf to fill. */
		for (unsigned i = drains % 64; i < 16; i++)
			sched_yield();
	}
	__atomic_store_n(&world.stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	drain_pcs(true);
	drain_stocks();
	while (from_heap())
		there++;
	printf("%s: %lu drains took %lu objects, %lu from sheaves, %lu adoptions, %lu changes of stocks, %lu wrong\n",
	       kmem_percpu_discipline(), drains, world.drained, world.taken, world.adopted, world.stocked,
	       world.wrong);
	printf("%lu of %d objects, %u of %d blocks\n", there, OBJECTS, world.block_count, BLOCKS);
	bool right = !world.wrong && there == OBJECTS && world.block_count == BLOCKS;
	for (unsigned owner = 0; owner < OWNERS; owner++) {
		printf("%lld of %d bytes\n", (long long)world.bytes[owner], THREADS * BYTES);
		right &= world.bytes[owner] == THREADS * BYTES;
	}
	return !right;
}
