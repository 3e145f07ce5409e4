/*
 * fixture_chain.h: the per-CPU operations of a chain (percpu/cpu_freelist.h) under test, each by itself,
 * independent of engines. The model: two slabs of eight objects and four links; each object is in the model's hand,
 * or on a chain, exactly once.
 */
#ifndef TESTS_RSEQ_FIXTURE_CHAIN_H
#define TESTS_RSEQ_FIXTURE_CHAIN_H

#include "fixture.h"
#include "percpu/cpu_freelist_hit.h"

enum { SLABS = 2, OBJECTS = 8, LINKS = 4, SLAB_BITS = 12, OBJECT_SPAN = 512, LINK_AT = 16 };

static struct {
	struct km_chain chain;
	char memory[SLABS][1 << SLAB_BITS] __attribute__((aligned(1 << SLAB_BITS)));
	struct km_chain_link links[LINKS];
	volatile bool held[SLABS][OBJECTS];	/* objects in the model's hand */
	volatile bool link_held[LINKS];
} chain;

static void *chain_object(unsigned slab, unsigned index)
{
	return chain.memory[slab] + index * OBJECT_SPAN;
}

static volatile bool *held_of(const void *p)
{
	size_t offset = (size_t)((const char *)p - chain.memory[0]);

	need(offset < sizeof(chain.memory) && offset % OBJECT_SPAN == 0, "%p is no object", p);
	return &chain.held[offset >> SLAB_BITS][offset % (1 << SLAB_BITS) / OBJECT_SPAN];
}

static void **next_of(void *p)
{
	return (void **)((char *)p + LINK_AT);
}

static void chain_adopt(void *p)
{
	need(!*held_of(p), "%p given twice", p);
	*held_of(p) = true;
}

static void chain_adopt_list(void *head)
{
	for (void *next; head; head = next) {
		next = *next_of(head);
		chain_adopt(head);
	}
}

static void adopt_links(struct km_chain_link *link, bool many)
{
	for (struct km_chain_link *next; link; link = many ? next : NULL) {
		next = link->next;
		need(link >= chain.links && link < chain.links + LINKS, "%p is no link", (void *)link);
		need(!chain.link_held[link - chain.links], "link %p given twice", (void *)link);
		chain.link_held[link - chain.links] = true;
	}
}

/* Takes an object of the slab out of the model's hand. Returns: NULL if there is none. */
static void *chain_part(unsigned slab)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		if (chain.held[slab][i]) {
			chain.held[slab][i] = false;
			return chain_object(slab, i);
		}
	return NULL;
}

/* ------------------------------------------------------------------ per-CPU operations, with the model kept */

/* One copy of each inline function, so that the sequences are few. */
static __attribute__((noinline)) void *operation_pop(void)
{
	return km_chain_pop(&chain.chain);
}

static __attribute__((noinline)) enum km_chain_push operation_push(void *p)
{
	return km_chain_push(&chain.chain, p);
}

static void chain_pop(void)
{
	void *p = operation_pop();

	if (p)
		chain_adopt(p);
}

static void chain_pop_some(size_t count)
{
	void *objects[OBJECTS];
	size_t got = km_chain_pop_n(&chain.chain, objects, count);

	need(got <= count, "pop_n gave %zu of %zu", got, count);
	for (size_t i = 0; i < got; i++)
		chain_adopt(objects[i]);
}

static void chain_push_of(unsigned slab)
{
	void *p = chain_part(slab);

	if (!p)
		return;
	enum km_chain_push pushed = operation_push(p);
	need(pushed != KM_CHAIN_TWICE, "%p is not on the chain, and was ours", p);
	if (pushed == KM_CHAIN_MISS)
		chain_adopt(p);
}

/* Pushes the topmost object again: a double free found by the operation. An aborted push may miss instead. */
static void chain_push_again(void)
{
	void *p = chain_part(0);

	if (!p)
		return;
	if (operation_push(p) != KM_CHAIN_PUSHED)
		chain_adopt(p);
	else
		need(operation_push(p) != KM_CHAIN_PUSHED, "%p pushed twice", p);
}

static void chain_push_two(unsigned slab)
{
	void *head = chain_part(slab), *tail = chain_part(slab);

	if (tail) {
		*next_of(head) = tail;
		enum km_chain_push pushed = km_chain_push_list(&chain.chain, head, tail);
		need(pushed != KM_CHAIN_TWICE, "%p is not on the chain, and was ours", head);
		if (pushed == KM_CHAIN_PUSHED)
			return;
		chain_adopt(tail);
	}
	if (head)
		chain_adopt(head);
}

/*
 * Removes the CPU's slab, and puts `slab` there with the first `count` of its objects in hand; SLABS: puts
 * none.
 */
static void chain_swap_to(unsigned slab, unsigned count)
{
	struct km_chain_top top = { NULL, 0 }, old = { NULL, 0 };

	if (slab < SLABS)
		top.slab = km_chain_tag(chain.memory[slab], SLAB_BITS);
	for (void *p; slab < SLABS && count && (p = chain_part(slab)); count--) {
		*next_of(p) = top.freelist;
		top.freelist = p;
	}
	if (km_chain_swap(&chain.chain, top, &old))
		chain_adopt_list(old.freelist);
	else
		chain_adopt_list(top.freelist);
}

static void chain_partial_take(void)
{
	adopt_links(km_chain_partial_pop(&chain.chain), false);
}

static void chain_partial_add(uint64_t most)
{
	struct km_chain_link *drained = NULL;

	for (unsigned i = 0; i < LINKS; i++)
		if (chain.link_held[i]) {
			chain.link_held[i] = false;
			if (!km_chain_partial_push(&chain.chain, &chain.links[i], most, &drained))
				chain.link_held[i] = true;
			break;
		}
	adopt_links(drained, true);
}

static void chain_drain(void)
{
	km_chain_close(&chain.chain);
	need(km_pcs_fence(), "no fence");
	km_for_each_cpu(cpu) {
		struct km_chain_top top;
		struct km_chain_link *partial;

		km_chain_take_cpu(&chain.chain, cpu, &top, &partial);
		chain_adopt_list(top.freelist);
		adopt_links(partial, true);
	}
	km_chain_open(&chain.chain);
}

/* ------------------------------------------------------------------ adversaries */

static void chain_push(void)
{
	chain_push_of(0);
}

static void chain_pop_three(void)
{
	chain_pop_some(3);
}

static void chain_push_list(void)
{
	chain_push_two(0);
}

static void chain_pop_push(void)
{
	chain_pop();
	chain_push_of(0);
}

static void chain_swap_out(void)
{
	chain_swap_to(SLABS, 0);
}

/* Takes the slab off and puts the slab back: the same words, other links. */
static void chain_swap_back(void)
{
	chain_swap_to(SLABS, 0);
	chain_swap_to(0, 3);
}

static void chain_swap_other(void)
{
	chain_swap_to(1, 3);
}

static void chain_partial_both(void)
{
	chain_partial_take();
	chain_partial_add(LINKS);
	chain_partial_add(1);
}

static void chain_drain_elsewhere(void)
{
	elsewhere(chain_drain, true);
}

static void chain_migrate_use(void)
{
	migrate();
	chain_swap_to(1, 4);
	chain_pop();
}

static void chain_nothing(void)
{
}

static const struct adversary chain_adversaries[] = {
	{ "nothing", chain_nothing },
	{ "pop", chain_pop },
	{ "push", chain_push },
	{ "pop, push", chain_pop_push },
	{ "bulk alloc", chain_pop_three },
	{ "bulk free", chain_push_list },
	{ "swap out", chain_swap_out },
	{ "swap out and back", chain_swap_back },
	{ "swap for another", chain_swap_other },
	{ "partial take", chain_partial_take },
	{ "partial both", chain_partial_both },
	{ "drain", chain_drain },
	{ "drain from another thread", chain_drain_elsewhere },
	{ "migrate", migrate },
	{ "migrate and use", chain_migrate_use },
	{ "fork", fork_now },
};

static bool is_dear_chain(const struct adversary *adversary)
{
	return adversary->act == fork_now || adversary->act == chain_drain_elsewhere;
}

/* ------------------------------------------------------------------ states and drivers */

enum { CHAIN_TOPS = 4, CHAIN_PARTIALS = 3, CHAIN_OPERATIONS = 13 };
static const char *const chain_operation_names[CHAIN_OPERATIONS] = {
	"pop", "pop_n 1", "pop_n 3", "pop_n 8", "push", "push of another slab", "push_list",
	"swap out", "swap in", "partial_pop", "partial_push", "partial_push, full",
	"push twice",
};

static void operate_chain(unsigned driver)
{
	switch (driver % CHAIN_OPERATIONS) {
	case 0: chain_pop(); break;
	case 1: chain_pop_some(1); break;
	case 2: chain_pop_some(3); break;
	case 3: chain_pop_some(8); break;
	case 4: chain_push_of(0); break;
	case 5: chain_push_of(1); break;
	case 6: chain_push_two(0); break;
	case 7: chain_swap_to(SLABS, 0); break;
	case 8: chain_swap_to(1, 2); break;
	case 9: chain_partial_take(); break;
	case 10: chain_partial_add(LINKS); break;
	case 11: chain_partial_add(1); break;
	default: chain_push_again();
	}
}

static void describe_chain(unsigned driver, char *text, size_t bytes)
{
	unsigned state = driver / CHAIN_OPERATIONS;

	snprintf(text, bytes, "%s, slab %u, %u partial",
		 chain_operation_names[driver % CHAIN_OPERATIONS], state % CHAIN_TOPS,
		 state / CHAIN_TOPS);
}

static bool prepare_chain_operations(unsigned driver)
{
	unsigned state = driver / CHAIN_OPERATIONS, top = state % CHAIN_TOPS;

	/* No slab; one without, with one, with five free objects. */
	if (top)
		chain_swap_to(0, (unsigned[]){ 0, 0, 1, 5 }[top]);
	for (unsigned i = 0; i < state / CHAIN_TOPS; i++)
		chain_partial_add(LINKS);
	return true;
}

static void verify_chain(void)
{
	wait_for_helper();
	chain_drain();
	for (unsigned slab = 0; slab < SLABS; slab++)
		for (unsigned i = 0; i < OBJECTS; i++)
			need(chain.held[slab][i], "object %u of slab %u is lost", i, slab);
	for (unsigned i = 0; i < LINKS; i++)
		need(chain.link_held[i], "link %u is lost", i);
}

static bool start_chain(void)
{
	for (unsigned slab = 0; slab < SLABS; slab++)
		for (unsigned i = 0; i < OBJECTS; i++)
			chain.held[slab][i] = true;
	for (unsigned i = 0; i < LINKS; i++)
		chain.link_held[i] = true;
	need(km_chain_init(&chain.chain, LINK_AT), "km_chain_init");
	return true;
}

#define CHAIN_FIXTURE                                                                              \
	{ "chain", start_chain, CHAIN_TOPS * CHAIN_PARTIALS * CHAIN_OPERATIONS,              \
	  prepare_chain_operations, operate_chain, verify_chain, describe_chain, chain_adversaries,     \
	  sizeof(chain_adversaries) / sizeof(chain_adversaries[0]), is_dear_chain }

#endif
