/*
 * fixture_owned.h: the per-CPU operations of an owned sheaf (percpu/owned_sheaf.h) under test. The model: objects
 * with one of two permanent owners, and three sheaves; each is in the model's hand, or on a CPU, exactly once, and an
 * object only ever with its owner. Behind it a CPU's stock of bytes (percpu/stock_word.h): two owners, with bytes in
 * the model's hand or in a stock.
 */
#ifndef TESTS_RSEQ_FIXTURE_OWNED_H
#define TESTS_RSEQ_FIXTURE_OWNED_H

#include "fixture.h"
#include "percpu/owned_sheaf.h"
#include "percpu/stock_word.h"

enum { OWNED_WORDS = 16, OWNED_ROOM = OWNED_WORDS - 2, OWNED_OBJECTS = 2 * OWNED_ROOM, OWNED_BLOCKS = 3 };

static struct {
	struct km_pcs pcs;
	void *memory[OWNED_BLOCKS][OWNED_WORDS] __attribute__((aligned(OWNED_WORDS * sizeof(void *))));
	void **blocks[OWNED_BLOCKS];		/* prepared, in the model's hand; NULL: on a CPU */
	char objects[OWNED_OBJECTS];		/* the first half is owner 0's */
	volatile bool held[OWNED_OBJECTS];
	/* As a word, this looks like an owner. */
	char owners[2];
} owned;

static uintptr_t owner_word(unsigned owner)
{
	return (uintptr_t)&owned.owners[owner];
}

static void owned_adopt_object(void *p, uintptr_t owner)
{
	size_t i = (size_t)((char *)p - owned.objects);

	need(i < OWNED_OBJECTS, "%p is no object", p);
	need(!owned.held[i], "%p given twice", p);
	need(owner == owner_word(i / OWNED_ROOM), "object %zu given as another owner's", i);
	owned.held[i] = true;
}

/* Up to count objects of the owner leave the model's hand. */
static size_t owned_part(unsigned owner, void **objects, size_t count)
{
	size_t found = 0;

	for (unsigned i = owner * OWNED_ROOM; i < (owner + 1) * OWNED_ROOM && found < count; i++)
		if (owned.held[i]) {
			owned.held[i] = false;
			objects[found++] = &owned.objects[i];
		}
	return found;
}

/* ------------------------------------------------------------------ per-CPU operations, with the model kept */

static void owned_pop_of(unsigned owner)
{
	void *p = km_owned_pop(&owned.pcs, owner_word(owner));

	if (p)
		owned_adopt_object(p, owner_word(owner));
}

static void owned_push_of(unsigned owner)
{
	void *p;

	if (owned_part(owner, &p, 1) && !km_owned_push(&owned.pcs, owner_word(owner), p))
		owned_adopt_object(p, owner_word(owner));
}

static void owned_pop_some(unsigned owner, size_t count)
{
	void *objects[OWNED_ROOM];
	size_t got = km_owned_pop_n(&owned.pcs, owner_word(owner), objects, count);

	need(got <= count, "pop_n gave %zu of %zu", got, count);
	for (size_t i = count - got; i < count; i++)
		owned_adopt_object(objects[i], owner_word(owner));
}

static void owned_push_some(unsigned owner, size_t count)
{
	void *objects[OWNED_ROOM];

	count = owned_part(owner, objects, count);
	size_t taken = count ? km_owned_push_n(&owned.pcs, owner_word(owner), objects, count) : 0;
	need(taken <= count, "push_n took %zu of %zu", taken, count);
	for (size_t i = 0; i < count - taken; i++)
		owned_adopt_object(objects[i], owner_word(owner));
}

static void owned_adopt_by(unsigned owner)
{
	km_owned_adopt(&owned.pcs, owner_word(owner));
}

static void owned_install_by(uintptr_t owner)
{
	for (unsigned i = 0; i < OWNED_BLOCKS; i++)
		if (owned.blocks[i]) {
			void **block = owned.blocks[i];

			owned.blocks[i] = NULL;
			if (!km_owned_install(&owned.pcs, block, owner))
				owned.blocks[i] = block;
			return;
		}
}

static void owned_install(void)
{
	owned_install_by(0);
}

static void owned_drain_and(bool release)
{
	km_pcs_close(&owned.pcs);
	need(km_pcs_fence(), "no fence");
	km_for_each_cpu(cpu) {
		void *objects[OWNED_ROOM], **block;
		uintptr_t owner;
		size_t count = km_owned_take_cpu(&owned.pcs, cpu, objects, &owner);

		for (size_t i = 0; i < count; i++)
			owned_adopt_object(objects[i], owner);
		block = release ? km_owned_release_cpu(&owned.pcs, cpu) : NULL;
		if (!block)
			continue;
		size_t index = (size_t)(block - owned.memory[0]) / OWNED_WORDS;
		need(index < OWNED_BLOCKS && block == &owned.memory[index][OWNED_ROOM],
		     "%p is no empty block", (void *)block);
		need(!owned.blocks[index], "block %zu given twice", index);
		owned.blocks[index] = block;
	}
	km_pcs_open(&owned.pcs, false);
}

/* ------------------------------------------------------------------ adversaries */

static void owned_pop(void)
{
	owned_pop_of(0);
}

static void owned_push(void)
{
	owned_push_of(0);
}

static void owned_pop_push(void)
{
	owned_pop_of(0);
	owned_push_of(0);
}

static void owned_pop_three(void)
{
	owned_pop_some(0, 3);
}

static void owned_push_three(void)
{
	owned_push_some(0, 3);
}

/* The sheaf changes its owner, with as many objects as before. */
static void owned_give_away(void)
{
	owned_pop_some(0, OWNED_ROOM);
	owned_adopt_by(1);
	owned_push_some(1, 5);
}

/* And back: the same words, other objects. */
static void owned_give_and_take(void)
{
	owned_give_away();
	owned_pop_some(1, OWNED_ROOM);
	owned_adopt_by(0);
	owned_push_some(0, 5);
}

static void owned_drain(void)
{
	owned_drain_and(false);
}

static void owned_replace(void)
{
	owned_drain_and(true);
	owned_install();
}

/* The objects there belong to the other owner, in another sheaf. */
static void owned_replace_other(void)
{
	owned_replace();
	owned_adopt_by(1);
	owned_push_some(1, 5);
}

static void owned_drain_elsewhere(void)
{
	elsewhere(owned_drain, true);
}

static void owned_migrate_use(void)
{
	migrate();
	owned_install();
	owned_adopt_by(1);
	owned_push_some(1, 2);
	owned_adopt_by(0);
	owned_push_some(0, 2);
}

static void owned_nothing(void)
{
}

static const struct adversary owned_adversaries[] = {
	{ "nothing", owned_nothing },
	{ "pop", owned_pop },
	{ "push", owned_push },
	{ "pop, push", owned_pop_push },
	{ "bulk alloc", owned_pop_three },
	{ "bulk free", owned_push_three },
	{ "another owner", owned_give_away },
	{ "another owner and back", owned_give_and_take },
	{ "install", owned_install },
	{ "drain", owned_drain },
	{ "another block", owned_replace },
	{ "another block and owner", owned_replace_other },
	{ "drain from another thread", owned_drain_elsewhere },
	{ "migrate", migrate },
	{ "migrate and use", owned_migrate_use },
	{ "fork", fork_now },
};

static bool is_dear_owned(const struct adversary *adversary)
{
	return adversary->act == fork_now || adversary->act == owned_drain_elsewhere;
}

/* ------------------------------------------------------------------ states and drivers */

enum { OWNED_STATES = 7, OWNED_OPERATIONS = 18 };
static const char *const owned_operation_names[OWNED_OPERATIONS] = {
	"pop", "pop of another owner", "push", "push of another owner", "pop_n 1", "pop_n 3", "pop_n 7",
	"pop_n all", "pop_n of another owner", "push_n 1", "push_n 3", "push_n 7", "push_n all",
	"push_n of another owner", "adopt", "adopt by another owner", "install by an owner", "install",
};

static void operate_owned(unsigned driver)
{
	switch (driver % OWNED_OPERATIONS) {
	case 0: owned_pop_of(0); break;
	case 1: owned_pop_of(1); break;
	case 2: owned_push_of(0); break;
	case 3: owned_push_of(1); break;
	case 4: owned_pop_some(0, 1); break;
	case 5: owned_pop_some(0, 3); break;
	case 6: owned_pop_some(0, 7); break;
	case 7: owned_pop_some(0, OWNED_ROOM); break;
	case 8: owned_pop_some(1, 2); break;
	case 9: owned_push_some(0, 1); break;
	case 10: owned_push_some(0, 3); break;
	case 11: owned_push_some(0, 7); break;
	case 12: owned_push_some(0, OWNED_ROOM); break;
	case 13: owned_push_some(1, 2); break;
	case 14: owned_adopt_by(0); break;
	case 15: owned_adopt_by(1); break;
	case 16:
		owned_install_by(owner_word(1));
		owned_push_some(1, 2);
		break;
	default: owned_install();
	}
}

static void describe_owned(unsigned driver, char *text, size_t bytes)
{
	static const char *const states[OWNED_STATES] = {
		"no block", "no owner", "empty", "1 object", "7 objects", "full", "another owner's",
	};

	snprintf(text, bytes, "%s, %s", owned_operation_names[driver % OWNED_OPERATIONS],
		 states[driver / OWNED_OPERATIONS]);
}

static bool prepare_owned(unsigned driver)
{
	static const size_t counts[OWNED_STATES] = { 0, 0, 0, 1, 7, OWNED_ROOM, 3 };
	unsigned state = driver / OWNED_OPERATIONS, owner = state == OWNED_STATES - 1;

	if (state > 0)
		owned_install();
	if (state > 1)
		owned_adopt_by(owner);
	owned_push_some(owner, counts[state]);
	return true;
}

static void verify_owned(void)
{
	wait_for_helper();
	owned_drain_and(true);
	for (unsigned i = 0; i < OWNED_OBJECTS; i++)
		need(owned.held[i], "object %u is lost", i);
	for (unsigned i = 0; i < OWNED_BLOCKS; i++)
		need(owned.blocks[i], "block %u is lost", i);
}

static bool start_owned(void)
{
	owned.pcs.sheaf_mask = owned.pcs.inner.mask = sizeof(owned.memory[0]) - 1;
	owned.pcs.slot = km_percpu_alloc(km_owned_word_bytes());
	need(owned.pcs.slot, "no words");
	for (unsigned i = 0; i < OWNED_OBJECTS; i++)
		owned.held[i] = true;
	for (unsigned i = 0; i < OWNED_BLOCKS; i++)
		owned.blocks[i] = km_owned_prepare(&owned.pcs, owned.memory[i]);
	km_pcs_open(&owned.pcs, false);
	return true;
}

#define OWNED_FIXTURE                                                                              \
	{ "owned", start_owned, OWNED_STATES * OWNED_OPERATIONS, prepare_owned, operate_owned,     \
	  verify_owned, describe_owned, owned_adversaries,                                         \
	  sizeof(owned_adversaries) / sizeof(owned_adversaries[0]), is_dear_owned }

/* ------------------------------------------------------------------ stocks of bytes */

enum { STOCK_ALL = 1000, STOCK_LIMIT = 100, STOCK_OPERATIONS = 6, STOCK_STATES = 4 };

static struct {
	uint32_t offset[2], slot[2];
	volatile uint64_t held[2];		/* bytes in the model's hand */
} stock;

static void stock_take(unsigned owner, uint64_t bytes)
{
	if (km_stock_take(&stock.slot[owner], bytes))
		stock.held[owner] += bytes;
}

/* The bytes leave the model's hand first: an interrupting adversary must not find them twice. */
static void stock_put(unsigned owner, uint64_t bytes)
{
	stock.held[owner] -= bytes;
	if (!km_stock_put(&stock.slot[owner], bytes, STOCK_LIMIT))
		stock.held[owner] += bytes;
}

static void stock_empty_of(unsigned owner)
{
	uint64_t all = km_stock_empty(&stock.slot[owner]);

	stock.held[owner] += all;
}

static void stock_drain(void)
{
	for (unsigned owner = 0; owner < 2; owner++) {
		km_stock_close(&stock.slot[owner]);
		need(km_pcs_fence(), "no fence");
		km_for_each_cpu(cpu) {
			uint64_t bytes = km_stock_take_cpu(stock.offset[owner], cpu);

			need(bytes <= STOCK_LIMIT, "%llu bytes in a stock", (unsigned long long)bytes);
			stock.held[owner] += bytes;
		}
		km_stock_open(&stock.slot[owner], stock.offset[owner]);
	}
}

/* The two words change places: a late operation would find the other owner's word. */
static void stock_swap_words(void)
{
	uint32_t first = stock.offset[0];

	stock_drain();
	for (unsigned owner = 0; owner < 2; owner++)
		km_stock_close(&stock.slot[owner]);
	need(km_pcs_fence(), "no fence");
	km_for_each_cpu(cpu)
		for (unsigned owner = 0; owner < 2; owner++)
			stock.held[owner] += km_stock_take_cpu(stock.offset[owner], cpu);
	stock.offset[0] = stock.offset[1];
	stock.offset[1] = first;
	for (unsigned owner = 0; owner < 2; owner++) {
		km_stock_open(&stock.slot[owner], stock.offset[owner]);
		stock_put(owner, 50);
	}
}

static void stock_take_some(void)
{
	stock_take(0, 30);
}

static void stock_put_some(void)
{
	stock_put(0, 30);
}

static void stock_take_put(void)
{
	stock_take(0, 30);
	stock_put(0, 30);
}

static void stock_empty(void)
{
	stock_empty_of(0);
}

static void stock_other(void)
{
	stock_put(1, 30);
	stock_take(1, 10);
}

static void stock_drain_elsewhere(void)
{
	elsewhere(stock_drain, true);
}

static void stock_migrate_use(void)
{
	migrate();
	stock_put(0, 40);
	stock_take(0, 10);
}

static const struct adversary stock_adversaries[] = {
	{ "nothing", owned_nothing },
	{ "take", stock_take_some },
	{ "put", stock_put_some },
	{ "take, put", stock_take_put },
	{ "empty", stock_empty },
	{ "another owner", stock_other },
	{ "drain", stock_drain },
	{ "words exchanged", stock_swap_words },
	{ "drain from another thread", stock_drain_elsewhere },
	{ "migrate", migrate },
	{ "migrate and use", stock_migrate_use },
	{ "fork", fork_now },
};

static bool is_dear_stock(const struct adversary *adversary)
{
	return adversary->act == fork_now || adversary->act == stock_drain_elsewhere;
}

static void operate_stock(unsigned driver)
{
	switch (driver % STOCK_OPERATIONS) {
	case 0: stock_take(0, 30); break;
	case 1: stock_take(0, STOCK_LIMIT); break;
	case 2: stock_put(0, 30); break;
	case 3: stock_put(0, STOCK_LIMIT); break;
	case 4: stock_empty_of(0); break;
	default: stock_take(1, 30);
	}
}

static void describe_stock(unsigned driver, char *text, size_t bytes)
{
	static const char *const names[STOCK_OPERATIONS] = {
		"take some", "take all", "put some", "put all", "empty", "take of another owner",
	};

	snprintf(text, bytes, "%s, state %u", names[driver % STOCK_OPERATIONS], driver / STOCK_OPERATIONS);
}

static bool prepare_stock(unsigned driver)
{
	/* Nothing; some; all; nothing, and closed. */
	static const uint64_t bytes[STOCK_STATES] = { 0, 50, STOCK_LIMIT, 0 };
	unsigned state = driver / STOCK_OPERATIONS;

	if (bytes[state])
		stock_put(0, bytes[state]);
	if (state == STOCK_STATES - 1)
		km_stock_close(&stock.slot[0]);
	return true;
}

static void verify_stock(void)
{
	wait_for_helper();
	stock_drain();
	for (unsigned owner = 0; owner < 2; owner++)
		need(stock.held[owner] == STOCK_ALL, "%llu bytes of %d",
		     (unsigned long long)stock.held[owner], STOCK_ALL);
}

static bool start_stock(void)
{
	for (unsigned owner = 0; owner < 2; owner++) {
		stock.offset[owner] = km_percpu_alloc(km_stock_word_bytes());
		need(stock.offset[owner], "no words");
		km_stock_open(&stock.slot[owner], stock.offset[owner]);
		stock.held[owner] = STOCK_ALL;
	}
	return true;
}

#define STOCK_FIXTURE                                                                              \
	{ "stock", start_stock, STOCK_STATES * STOCK_OPERATIONS, prepare_stock, operate_stock,     \
	  verify_stock, describe_stock, stock_adversaries,                                         \
	  sizeof(stock_adversaries) / sizeof(stock_adversaries[0]), is_dear_stock }

#endif
