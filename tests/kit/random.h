/* random.h: reproducible random numbers: equal initial states give equal sequences. */
#ifndef TESTS_KIT_RANDOM_H
#define TESTS_KIT_RANDOM_H

#include <stdint.h>

/* SplitMix64: all bits of a number are equally random, and any state is valid. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Returns: the next number of the program's own sequence. */
static inline uint64_t random_number(void)
{
	static uint64_t state;

	return random_next(&state);
}

static inline uint64_t random_below(uint64_t n)
{
	return random_number() % n;
}

#endif
