/*
 * A model of the published table of 96 threads: virtual CPUs, each a coroutine, run the library's charging code in a
 * loop of one alloc+free of 4 KiB; only time is simulated. The worker replaces two functions: the number of CPUs, and
 * the number of this CPU. So each virtual CPU has stocks, and all rules are the rules of src/memcg.
 *
 * The model has contention only: before each atomic operation on a shared line (KM_SHARED) the library reports the
 * line. A line is at one CPU at a time and moves in the order of requests. A CPU with the line pays ATOMIC; another CPU
 * waits for its turn and pays the transfer, too.
 *
 * Invariant: the CPU with the earliest clock runs, so lines see operations in the order of virtual time. The same
 * parameters and seed give the same figures on any machine.
 */
#include <kmem/memcg.h>
#include <kmem/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "api/account.h"
#include "alloc/fast_path.h"
#include "memcg/counter.h"

/* Picoseconds, on a virtual clock. */
#define NS		1000ull
#define ATOMIC		(8 * NS)	/* a locked instruction on a line at hand: 20 cycles at 2.5 GHz */
#define ALLOC_FREE	(65 * NS)	/* without accounting: 96 CPUs / 1,481,291 kilo-ops/s, published */
#define CHARGING	(80 * NS)	/* the rest of charge and uncharge: docs/design/accounting.md */
#define WARM		(4000000 * NS)	/* at first all CPUs fetch pages, and raise the peak */
#define MEASURED	(2000000 * NS)

#define MODEL_CPUS	1024u
#define MODEL_LINES	64u
#define STACK_BYTES	(64u << 10)
#define CHARGE_BYTES	4104u		/* 4 KiB and the owner word: more than a page */
#define SEED		96u

struct model_line {
	uintptr_t number;	/* address / 64; 0: free */
	uint64_t free_at;
	unsigned int holder;
};

struct model_cpu {
	ucontext_t context;
	uint64_t clock, random;
	bool busy;		/* the library's mark of a busy thread */
	bool ended;
};

static struct {
	struct model_cpu cpus[MODEL_CPUS];
	struct model_line lines[MODEL_LINES];
	struct mem_cgroup *group;
	ucontext_t main;
	unsigned int count, here;
	uint64_t transfer, ops, atomics, transfers;
} model;

unsigned __wrap_km_cpu(void);
unsigned __wrap_km_os_possible_cpus(void);

unsigned __wrap_km_cpu(void)
{
	return model.here;
}

unsigned __wrap_km_os_possible_cpus(void)
{
	return MODEL_CPUS;
}

static bool is_measured(uint64_t clock)
{
	return clock >= WARM && clock < WARM + MEASURED;
}

/* Runs the CPU with the earliest clock: this CPU, or another until the end of its turn; without a CPU left, main. */
static void give_way(void)
{
	struct model_cpu *self = &model.cpus[model.here];
	unsigned int first = model.count;

	for (unsigned int i = 0; i < model.count; i++)
		if (!model.cpus[i].ended &&
		    (first == model.count || model.cpus[i].clock < model.cpus[first].clock))
			first = i;
	if (first == model.here && !self->ended)
		return;
	self->busy = km_thread.busy;
	model.here = first < model.count ? first : 0;
	km_thread.busy = first < model.count && model.cpus[first].busy;
	swapcontext(&self->context, first < model.count ? &model.cpus[first].context : &model.main);
}

static struct model_line *find_line(const void *address)
{
	uintptr_t number = (uintptr_t)address / 64;

	for (unsigned int i = 0; i < MODEL_LINES; i++) {
		struct model_line *line = &model.lines[i];

		if (line->number == number)
			return line;
		if (!line->number) {
			line->number = number;
			line->holder = MODEL_CPUS;
			return line;
		}
	}
	bench_die("more shared lines than the model knows");
}

/* Reports that this CPU is about to change a shared line. */
static void touched(const void *address)
{
	struct model_cpu *self = &model.cpus[model.here];

	give_way();
	struct model_line *line = find_line(address);
	bool measured = is_measured(self->clock);

	if (line->free_at > self->clock)
		self->clock = line->free_at;
	if (line->holder != model.here) {
		line->holder = model.here;
		self->clock += model.transfer;
		model.transfers += measured;
	}
	self->clock += ATOMIC;
	line->free_at = self->clock;
	model.atomics += measured;
}

/* Simulates work on private memory: `mean`, give or take an eighth, so the CPUs do not run in step. */
static void work(struct model_cpu *self, uint64_t mean)
{
	self->clock += mean - mean / 8 + rng_between(rng_next(&self->random), 0, (uint32_t)(mean / 4));
}

static void run_cpu(void)
{
	struct model_cpu *self = &model.cpus[model.here];

	while (self->clock < WARM + MEASURED) {
		work(self, (ALLOC_FREE + CHARGING) / 2);
		if (mem_cgroup_charge(model.group, GFP_KERNEL, CHARGE_BYTES))
			bench_die("a charge was refused");
		work(self, (ALLOC_FREE + CHARGING) / 2);
		mem_cgroup_uncharge(model.group, CHARGE_BYTES);
		model.ops += is_measured(self->clock);
		give_way();
	}
	self->ended = true;
	give_way();
}

static void start_cpu(unsigned int number)
{
	struct model_cpu *cpu = &model.cpus[number];
	void *stack = malloc(STACK_BYTES);

	bench_check(stack);
	cpu->random = SEED + number;
	cpu->clock = rng_between(rng_next(&cpu->random), 0, ALLOC_FREE);
	getcontext(&cpu->context);
	cpu->context.uc_stack.ss_sp = stack;
	cpu->context.uc_stack.ss_size = STACK_BYTES;
	makecontext(&cpu->context, run_cpu, 0);
}

static void simulation(const struct cell *cell)
{
	if (cell->threads > MODEL_CPUS)
		bench_die("too many CPUs");
	account_start();
	model.group = account.group;
	model.count = cell->threads;
	model.transfer = cell->transfer * NS;
	for (unsigned int i = 0; i < model.count; i++)
		start_cpu(i);
	km_counter_touched = touched;
	model.here = 0;
	swapcontext(&model.main, &model.cpus[0].context);
	km_counter_touched = NULL;

	double ops = (double)model.ops;

	bench_print("ops/s", "-", "-", ops * 1e12 / (double)MEASURED);
	bench_print("atomics/op", "-", "-", (double)model.atomics / ops);
	bench_print("transfers/op", "-", "-", (double)model.transfers / ops);
}

void bench_print_subject(void)
{
	/* Only the other disciplines call km_cpu for the number of this CPU. */
	kmem_cache_destroy(kmem_cache_create("probe", 64, NULL, 0));
	if (strcmp(kmem_percpu_discipline(), "cmpxchg"))
		bench_die("the model needs KMEM_PERCPU=cmpxchg");
	printf("info version %s\n", kmem_version());
}

const struct work bench_works[] = {
	{ "simulation", simulation },
	{ NULL, NULL },
};
