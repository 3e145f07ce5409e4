/*
 * What a store costs that the next load reads, by the form of the address: no allocator, the processor alone. A hit
 * stores the shelf's word and the next hit loads it, so this is the chain that a loop of hits hangs on. Each figure is
 * "cycles/step MEASURE AT": a step is a load, an addition and a store of one word, or one instruction that does all
 * three; AT is how the load and the store address it: (r) by one register, lea+(r) by one that is computed anew each
 * time, (r,i) by two.
 */
#include "frame/bench.h"

static uint64_t words[512] __attribute__((aligned(4096)));

#define ITERATIONS 1250u	/* of a window ... */
#define STEPS 8u	/* ... and of each of these */
#define TWICE(step) step step
#define TIMES(step) TWICE(TWICE(TWICE(step)))

/* The word is %[w] from [base] and [index]; [other] holds the address that is computed. */
#define FORWARDING(name, step)                                                                     \
	bench_noinline uint64_t name(const struct cell *cell, uint64_t count)                      \
	{                                                                                          \
		uint64_t *base = words, index = 0, *other, value;                                  \
		uint64_t start = clock_start();                                                    \
                                                                                                   \
		(void)cell;                                                                        \
		for (uint64_t i = 0; i < count; i++)                                               \
			__asm__ __volatile__(TIMES(step)                                           \
					     : [other] "=&r"(other), [value] "=&r"(value)          \
					     : [base] "r"(base), [index] "r"(index)                \
					     : "memory", "cc");                                    \
		return clock_stop() - start;                                                       \
	}

#if defined(__x86_64__)
#define ADD(load, store) "movq " load ", %[value]\n\taddq $8, %[value]\n\tmovq %[value], " store "\n\t"
#define ONE "(%[base])"
#define TWO "(%[base], %[index])"
#define COMPUTED "leaq (%[base], %[index]), %[other]\n\t"
FORWARDING(one, ADD(ONE, ONE))
FORWARDING(computed, COMPUTED ADD("(%[other])", "(%[other])"))
FORWARDING(two, ADD(TWO, TWO))
FORWARDING(one_two, ADD(ONE, TWO))
FORWARDING(two_one, ADD(TWO, ONE))
FORWARDING(whole_one, "addq $8, " ONE "\n\t")
FORWARDING(whole_computed, COMPUTED "addq $8, (%[other])\n\t")
FORWARDING(whole_two, "addq $8, " TWO "\n\t")
#elif defined(__aarch64__)
#define ADD(load, store) "ldr %[value], " load "\n\tadd %[value], %[value], #8\n\tstr %[value], " store "\n\t"
#define ONE "[%[base]]"
#define TWO "[%[base], %[index]]"
FORWARDING(one, ADD(ONE, ONE))
FORWARDING(computed, "add %[other], %[base], %[index]\n\t" ADD("[%[other]]", "[%[other]]"))
FORWARDING(two, ADD(TWO, TWO))
FORWARDING(one_two, ADD(ONE, TWO))
FORWARDING(two_one, ADD(TWO, ONE))
#endif

static const struct form {
	const char *measure, *at;
	bench_window *window;
} forms[] = {
#if defined(__x86_64__) || defined(__aarch64__)
	{ "load-add-store", "(r)", one },
	{ "load-add-store", "lea+(r)", computed },
	{ "load-add-store", "(r,i)", two },
	{ "load-add-store", "(r)-(r,i)", one_two },
	{ "load-add-store", "(r,i)-(r)", two_one },
#endif
#if defined(__x86_64__)
	{ "read-modify-write", "(r)", whole_one },
	{ "read-modify-write", "lea+(r)", whole_computed },
	{ "read-modify-write", "(r,i)", whole_two },
#endif
	{ NULL, NULL, NULL },
};

/* Windows of some microseconds: where others are at work most of these are still whole. */
static double cost(const struct cell *cell, const struct form *form)
{
	const uint64_t nothing = bench_clock_cost(), end = bench_now_ns() + bench_amounts.cell_us * 1000ull;
	uint64_t least = UINT64_MAX;

	do {
		uint64_t cycles = form->window(cell, ITERATIONS);

		least = cycles < least ? cycles : least;
	} while (bench_now_ns() < end);
	return (double)(least > nothing ? least - nothing : 0) / (ITERATIONS * STEPS);
}

static void forwarding(const struct cell *cell)
{
	bench_pin();
	for (const struct form *form = forms; form->measure; form++)
		bench_print("cycles/step", form->measure, form->at, cost(cell, form));
}

const struct work bench_works[] = {
	{ "forwarding", forwarding },
	{ NULL, NULL },
};
