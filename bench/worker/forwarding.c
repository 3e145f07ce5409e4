/*
 * The cost of a store that the next load reads, by the form of the address: a measurement of the processor, without an
 * allocator. A hit stores the word `top` and the next hit loads the word, so this chain bounds a loop of hits. Each
 * figure is "cycles/step MEASURE AT". A step is a load, an addition and a store of one word, or one instruction for all
 * three. AT is the address of the load and of the store: (r) one register, lea+(r) one register that is computed each
 * time, (r,i) two registers.
 */
#include "frame/bench.h"

static uint64_t words[512] __attribute__((aligned(4096)));

#define ITERATIONS 1250u	/* of a window ... */
#define STEPS 8u	/* ... and of each repetition */
#define TWICE(step) step step
#define TIMES(step) TWICE(TWICE(TWICE(step)))

/* %[w] is the word at [base] and [index]; [other] holds the computed address. */
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

/* Windows of some microseconds, because short windows often pass without a disturbance. */
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
