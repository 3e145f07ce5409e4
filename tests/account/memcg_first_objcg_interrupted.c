/*
 * memcg_first_objcg_interrupted.c: the first charged call on a CPU may be interrupted in each of its sequences, and
 * the CPU may be new to the process. The decision then lasts: a pair of calls never misses, and never decides
 * again. Here: hits reach the CPU's charged sheaf all the same. (When hits may: memcg_one_objcg.c.) Disciplines:
 * all.
 */
#define _GNU_SOURCE
#include "kit/charged_cpus.h"

#include <ucontext.h>

enum { SOME = 4 };

static void *objects[SOME];

static void alloc_one(struct kmem_cache *cache)
{
	NEED((objects[0] = kmem_cache_alloc(cache, GFP_KERNEL)));
}

static void free_one(struct kmem_cache *cache)
{
	kmem_cache_free(cache, objects[0]);
}

static void kfree_one(struct kmem_cache *cache)
{
	(void)cache;
	kfree(objects[0]);
}

static void alloc_some(struct kmem_cache *cache)
{
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, SOME, objects));
}

static void free_some(struct kmem_cache *cache)
{
	kmem_cache_free_bulk(cache, SOME, objects);
}

static const struct way {
	void (*alloc)(struct kmem_cache *cache), (*free)(struct kmem_cache *cache);
	size_t count;
} ways[] = {
	{ alloc_one, free_one, 1 }, { alloc_one, kfree_one, 1 }, { alloc_some, free_some, SOME },
};

/*
 * Interrupts the first call in the group's name; `late`: hits may use the charged sheaf only after the first
 * free.
 */
static void strike_first(void (*begin)(void), void (*end)(void), bool late)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		const struct way *way = &ways[i];
		struct mem_cgroup *group = group_below(NULL, "struck");
		struct kmem_cache *cache = charged("struck", 200);

		set_active_memcg(group);
		begin();
		way->alloc(cache);
		end();
		const enum back back = has_blocks(cache) ? CHARGED : NOWHERE;
		NEED(late || back_of(cache) == back);
		way->free(cache);
		way->alloc(cache);
		way->free(cache);
		set_active_memcg(NULL);
		NEED(back_of(cache) == back && (!has_blocks(cache) || lies_charged(cache) >= way->count));
		NEED(drained(group) == 0);
		mem_cgroup_put(group);
		gone(cache);
	}
}

/* ------------------------------------------------------------------ a CPU new to the process */

static void forget_cpu(void)
{
	unsigned cpu = km_cpu();

	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ)
		return;
	km_percpu.live[cpu / 64] &= ~((uint64_t)1 << cpu % 64);
	*(uint64_t *)(km_area(cpu) + KM_AREA_MARK) = 0;
}

static void know_cpu(void)
{
	NEED(km_thread_has_cpu());
}

static void on_a_new_cpu(void)
{
	strike_first(forget_cpu, know_cpu, false);
}

/* ------------------------------------------------------------------ interrupted sequences */

/* Under AddressSanitizer the test would step through the sanitizer's own work. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define STEPS
#define TRAP_FLAG 0x100l

static struct {
	unsigned strikes;		/* sequences still to be interrupted */
	unsigned struck;
	bool on;
} steps;

/* Each signal in a sequence aborts the sequence, and the thread goes on behind the signature. */
static void step(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	uint32_t before;

	(void)signal, (void)info;
	memcpy(&before, (const char *)registers[REG_RIP] - sizeof(before), sizeof(before));
	if (before == KMEM_RSEQ_SIGNATURE) {
		steps.struck++;
		steps.on = steps.on && --steps.strikes;
	}
	registers[REG_EFL] = steps.on ? registers[REG_EFL] | TRAP_FLAG : registers[REG_EFL] & ~TRAP_FLAG;
}

static unsigned strikes;

static void begin_steps(void)
{
	steps.strikes = strikes;
	steps.struck = 0;
	/* In the other disciplines a signal interrupts no sequence. */
	steps.on = km_percpu.discipline == KM_DISCIPLINE_RSEQ;
	raise(SIGTRAP);
}

static void end_steps(void)
{
	steps.on = false;
	raise(SIGTRAP);
	NEED(km_percpu.discipline != KM_DISCIPLINE_RSEQ || steps.struck);
}

/*
 * The first few sequences, perhaps with the one that sets the sheaf's owner; and so many that all tries
 * fail.
 */
static void interrupted(void)
{
	struct sigaction action = { .sa_sigaction = step, .sa_flags = SA_SIGINFO };

	sigaction(SIGTRAP, &action, NULL);
	for (strikes = 1; strikes <= 8; strikes++)
		strike_first(begin_steps, end_steps, false);
	strikes = 12;
	strike_first(begin_steps, end_steps, true);
}
#endif

static const struct test_case cases[] = {
	{ "on a new CPU", on_a_new_cpu },
#ifdef STEPS
	{ "interrupted", interrupted },
#endif
};

CHARGED_MAIN(cases)
