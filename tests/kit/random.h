/* random.h: numbers that are the same each time: whoever begins with the same state gets the same ones. */
#ifndef TESTS_KIT_RANDOM_H
#define TESTS_KIT_RANDOM_H

#include <stdint.h>

/* SplitMix64: each bit of the number is as good as another, and any state will do. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* The next of the program's own. */
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
