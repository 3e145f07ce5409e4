/*
 * owned_operations.c: the per-CPU operations of an owned sheaf and of a byte stock, one after the other. Disciplines:
 * all. Operations on a closed, offline, empty, full or otherwise owned sheaf fail without a change; a drain takes all
 * objects, with the owner; a late operation with an offset closed meanwhile changes nothing.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <kmem/kmem.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "percpu/owned_sheaf.h"
#include "percpu/pcpu.h"
#include "percpu/stock_word.h"
#include "kit/cpus.h"
#include "kit/inside.h"

TEST_IS_INSIDE

enum { WORDS = 64, ROOM = WORDS - 2, OWNER = 0x1000, OTHER = 0x2000 };

static unsigned wrong;
#define expect(truth)                                                                              \
	do {                                                                                       \
		if (!(truth)) {                                                                    \
			printf("FAIL line %d: %s\n", __LINE__, #truth);                            \
			wrong++;                                                                   \
		}                                                                                  \
	} while (0)

/* An interruption counts as a miss: what must succeed may need some tries. */
#define eventually(truth)                                                                          \
	({                                                                                         \
		bool succeeded_ = false;                                                           \
		for (int try_ = 0; try_ < 100 && !succeeded_; try_++)                              \
			succeeded_ = (truth);                                                      \
		expect(succeeded_ && #truth);                                                      \
	})

static struct km_pcs pcs;
static void *blocks[2][WORDS] __attribute__((aligned(WORDS * sizeof(void *))));
static char objects[ROOM + 1];
static unsigned home;

/* All objects: `count` of them, topmost first, from objects[first] on, up or down. */
static void drain(size_t count, uintptr_t owner, size_t first, int step)
{
	void *out[ROOM];
	uintptr_t whose;

	km_pcs_close(&pcs);
	expect(km_pcs_fence());
	km_for_each_cpu(cpu) {
		memset(out, 0, sizeof(out));
		size_t got = km_owned_take_cpu(&pcs, cpu, out, &whose);

		expect(got == (cpu == home ? count : 0));
		expect(whose == (cpu == home ? owner : 0));
		for (size_t i = 0; i < got; i++)
			expect(out[i] == &objects[first] + (int)i * step);
	}
	km_pcs_open(&pcs, false);
}

static void fill(uintptr_t owner, size_t count)
{
	for (size_t i = 0; i < count; i++)
		eventually(km_owned_push(&pcs, owner, &objects[i]));
}

static void refused(uintptr_t owner)
{
	void *out[2] = { blocks, blocks };

	expect(!km_owned_pop(&pcs, owner));
	expect(!km_owned_push(&pcs, owner, &objects[ROOM]));
	expect(!km_owned_pop_n(&pcs, owner, out, 2));
	expect(out[0] == blocks && out[1] == blocks);
	expect(!km_owned_push_n(&pcs, owner, out, 2));
}

static void try_birth(void)
{
	void **block = km_owned_prepare(&pcs, blocks[0]), **second = km_owned_prepare(&pcs, blocks[1]);

	/* Closed, then open with no block on any CPU. */
	refused(OWNER);
	expect(!km_owned_pop(&pcs, 0));
	expect(!km_owned_adopt(&pcs, OWNER) && !km_owned_install(&pcs, block, 0));
	expect(!km_owned_owner(&pcs));
	km_pcs_open(&pcs, false);
	refused(OWNER);
	expect(!km_owned_adopt(&pcs, OWNER) && !km_owned_owner(&pcs));

	eventually(km_owned_install(&pcs, block, 0));
	expect(!km_owned_install(&pcs, second, 0));
	expect(!km_owned_owner(&pcs));
	refused(OWNER);
	expect(!km_owned_pop(&pcs, 0));
	expect(km_pcs_count_cpu(&pcs, home) == 0);
	expect(km_owned_capacity(&pcs) == ROOM);
}

static void try_owners(void)
{
	eventually(km_owned_adopt(&pcs, OWNER));
	expect(km_owned_owner(&pcs) == OWNER);
	refused(OTHER);
	expect(!km_owned_pop(&pcs, OWNER));
	fill(OWNER, ROOM);
	expect(!km_owned_push(&pcs, OWNER, &objects[ROOM]));
	expect(km_pcs_count_cpu(&pcs, home) == ROOM);
	refused(OTHER);
	expect(!km_owned_adopt(&pcs, OTHER) && !km_owned_adopt(&pcs, OWNER));
	for (size_t i = ROOM; i-- > 0;) {
		void *object = NULL;

		eventually((object = km_owned_pop(&pcs, OWNER)) != NULL);
		expect(object == &objects[i]);
		refused(OTHER);
	}
	expect(!km_owned_pop(&pcs, OWNER));
	/* From one to the other, and what the first frees now goes elsewhere. */
	eventually(km_owned_adopt(&pcs, OTHER));
	expect(km_owned_owner(&pcs) == OTHER);
	refused(OWNER);
	fill(OTHER, 3);
	drain(3, OTHER, 2, -1);
	expect(!km_owned_owner(&pcs));
	refused(OTHER);
	drain(0, 0, 0, 1);
}

/* Each count with each number of objects in the sheaf. */
static void try_many(void)
{
	for (size_t there = 0; there <= ROOM; there++)
		for (size_t count = 1; count <= ROOM; count++) {
			size_t most = count < there ? count : there, got = 0;
			void *array[ROOM];

			eventually(km_owned_adopt(&pcs, OWNER));
			for (size_t i = 0; i < there; i++)
				array[i] = &objects[i];
			eventually(!there || km_owned_push_n(&pcs, OWNER, array, there) == there);
			memset(array, 0, sizeof(array));
			eventually(!most || (got = km_owned_pop_n(&pcs, OWNER, array, count)));
			expect(got == most);
			/* At the end of the array, the topmost first; pushed, the array's first is topmost. */
			for (size_t i = 0; i < count; i++)
				expect(array[i] == (i < count - got ? NULL : &objects[i - (count - got)]));
			drain(there - got, OWNER, got, 1);
		}
}

/* The order after a push of many; objects without room are the array's first part. */
static void try_room(void)
{
	void *array[ROOM], *out[ROOM];
	size_t got = 0;

	for (size_t i = 0; i < ROOM; i++)
		array[i] = &objects[i];
	for (size_t there = 0; there <= ROOM; there++) {
		eventually(km_owned_adopt(&pcs, OWNER));
		fill(OWNER, there);
		eventually(there == ROOM || (got = km_owned_push_n(&pcs, OWNER, array, ROOM)));
		expect(there == ROOM || got == ROOM - there);
		for (size_t i = there; i < ROOM; i++) {
			void *object = NULL;

			eventually((object = km_owned_pop(&pcs, OWNER)) != NULL);
			expect(object == array[i]);
		}
		eventually(!there || (got = km_owned_pop_n(&pcs, OWNER, out, ROOM)));
		expect(!there || got == there);
	}
	/* A smaller mask: full earlier. */
	pcs.inner.mask = WORDS * sizeof(void *) / 4 - 1;
	fill(OWNER, ROOM - WORDS * 3 / 4);
	expect(!km_owned_push(&pcs, OWNER, &objects[ROOM]));
	pcs.inner.mask = pcs.sheaf_mask;
	eventually(km_owned_pop_n(&pcs, OWNER, out, ROOM) == ROOM - WORDS * 3 / 4);
}

/* Where the owner is written of what lies here. */
static uintptr_t *owner_word(void)
{
	char *word = km_area(home) + pcs.slot;

	return (uintptr_t *)word + (km_percpu.discipline == KM_DISCIPLINE_RSEQ ? 1 :
				    offsetof(struct km_soft, owner) / sizeof(uintptr_t));
}

static void try_release(void)
{
	void **first;

	eventually(km_owned_adopt(&pcs, OWNER));
	fill(OWNER, 1);
	km_pcs_close(&pcs);
	expect(km_pcs_fence());
	expect(!km_owned_release_cpu(&pcs, home));
	km_pcs_open(&pcs, false);
	drain(1, OWNER, 0, 1);
	eventually(km_owned_adopt(&pcs, OWNER));
	km_pcs_close(&pcs);
	expect(km_pcs_fence());
	first = km_owned_release_cpu(&pcs, home);
	expect(first == &blocks[0][ROOM]);
	expect(!km_owned_release_cpu(&pcs, home));
	km_pcs_open(&pcs, false);
	expect(!km_owned_owner(&pcs) && !km_owned_adopt(&pcs, OWNER));
	refused(OWNER);
	eventually(km_owned_install(&pcs, first, 0));
	drain(0, 0, 0, 1);
	/* Owned from the beginning. */
	km_pcs_close(&pcs);
	expect(km_pcs_fence());
	first = km_owned_release_cpu(&pcs, home);
	km_pcs_open(&pcs, false);
	eventually(km_owned_install(&pcs, first, OWNER));
	expect(km_owned_owner(&pcs) == OWNER);
	refused(OTHER);
	fill(OWNER, 1);
	drain(1, OWNER, 0, 1);
	/* The owner is written before the sheaf exists: a thread interrupted in between has no sheaf. */
	km_pcs_close(&pcs);
	expect(km_pcs_fence());
	first = km_owned_release_cpu(&pcs, home);
	km_pcs_open(&pcs, false);
	*owner_word() = OWNER;
	expect(!km_owned_owner(&pcs) && km_owned_owner_cpu(&pcs, home) == OWNER);
	refused(OWNER);
	eventually(km_owned_install(&pcs, first, OTHER));
	expect(km_owned_owner(&pcs) == OTHER);
	refused(OWNER);
	drain(0, OTHER, 0, 1);
}

/* ------------------------------------------------------------------ stocks */

static uint64_t take_everywhere(uint32_t offset)
{
	uint64_t sum = 0;

	km_for_each_cpu(cpu)
		sum += km_stock_take_cpu(offset, cpu);
	return sum;
}

static void try_stock(void)
{
	uint32_t word = km_percpu_alloc(km_stock_word_bytes()), other = km_percpu_alloc(km_stock_word_bytes());
	static uint32_t slot, neighbour, later;

	expect(!km_stock_take(&slot, 1) && !km_stock_put(&slot, 1, 100) && !km_stock_empty(&slot));
	km_stock_open(&slot, word);
	km_stock_open(&neighbour, other);
	expect(!km_stock_take(&slot, 1) && !km_stock_empty(&slot));
	expect(!km_stock_put(&slot, 101, 100));
	eventually(km_stock_put(&slot, 100, 100));
	expect(!km_stock_put(&slot, 1, 100));
	expect(!km_stock_take(&slot, 101));
	eventually(km_stock_put(&neighbour, 7, 10));
	eventually(km_stock_take(&slot, 60));
	expect(!km_stock_take(&slot, 41));
	eventually(km_stock_take(&slot, 40));
	expect(!km_stock_take(&slot, 1));
	eventually(km_stock_put(&slot, 1ull << 40, UINT64_MAX));
	uint64_t all = 0;
	eventually((all = km_stock_empty(&slot)) != 0);
	expect(all == 1ull << 40);
	expect(!km_stock_empty(&slot));
	eventually(km_stock_put(&slot, 33, 100));
	km_stock_close(&slot);
	expect(km_pcs_fence());
	expect(!km_stock_take(&slot, 1) && !km_stock_put(&slot, 1, 100) && !km_stock_empty(&slot));
	expect(take_everywhere(word) == 33 && take_everywhere(word) == 0);

	/* The word belongs to another owner now. Without a fence a thread may have read the offset before. */
	km_stock_open(&later, word);
	eventually(km_stock_put(&later, 5, 100));
	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ) {
		slot = word;
		expect(!km_stock_take(&slot, 1) && !km_stock_put(&slot, 1, 100) && !km_stock_empty(&slot));
	}
	km_stock_close(&later);
	km_stock_close(&neighbour);
	expect(km_pcs_fence());
	expect(take_everywhere(word) == 5 && take_everywhere(other) == 7);
	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ)
		expect(!km_stock_take(&slot, 1) && !km_stock_put(&slot, 1, 100));
	/* As before: neither word has contents left. */
	km_percpu_free(word, km_stock_word_bytes());
	km_percpu_free(other, km_stock_word_bytes());
}

/* ------------------------------------------------------------------ a thread without a CPU */

static void *without_registration(void *stock)
{
	extern const ptrdiff_t __rseq_offset __attribute__((weak));
	uint32_t *slot = stock;

	if (&__rseq_offset && syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset, 32, 1,
				      0x53053053) == 0) {
		refused(OWNER);
		expect(!km_owned_adopt(&pcs, OWNER));
		expect(!km_owned_install(&pcs, km_owned_prepare(&pcs, blocks[1]), 0));
		expect(!km_stock_put(slot, 1, 100) && !km_stock_take(slot, 1) && !km_stock_empty(slot));
	} else {
		printf("rseq can't be taken off a thread here\n");
	}
	return NULL;
}

static void try_unregistered(void)
{
	static uint32_t slot;
	pthread_t thread;

	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ)
		return;
	km_stock_open(&slot, km_percpu_alloc(km_stock_word_bytes()));
	expect(pthread_create(&thread, NULL, without_registration, &slot) == 0);
	pthread_join(thread, NULL);
	km_stock_close(&slot);
}

int main(void)
{
	home = (unsigned)sched_getcpu();
	go_to_cpu((int)home);
	printf("%s\n", kmem_percpu_discipline());
	km_cpu_begin();
	pcs.sheaf_mask = pcs.inner.mask = sizeof(blocks[0]) - 1;
	pcs.slot = km_percpu_alloc(km_owned_word_bytes());
	try_birth();
	try_owners();
	try_many();
	try_room();
	try_release();
	try_stock();
	try_unregistered();
	return wrong != 0;
}
