/* random.h: numbers that are the same each time: whoever begins with the same state gets the same ones. */
#ifndef TESTS_KIT_RANDOM_H
#define TESTS_KIT_RANDOM_H

#include <stdint.h>

#define RANDOM_SEED 88172645463325252u

/* Marsaglia's xorshift; a state that is zero begins as the seed. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t number = *state ? *state : RANDOM_SEED;

	number ^= number << 13;
	number ^= number >> 7;
	number ^= number << 17;
	return *state = number;
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
