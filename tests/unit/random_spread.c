/*
 * random_spread: numbers made from the process's secret are spread, for any secret: call sites at the distance of
 * calls in a row, and consecutive draws, do not share a few of 16 values, and the steps from one to the next vary.
 */
#include "kit/check.h"
#include "kit/random.h"
#include "os/secret.h"

#define SECRETS 3000u
#define PLACES 64u

static unsigned values_of(const uint32_t *number)
{
	uint32_t seen = 0;

	for (unsigned i = 0; i < PLACES; i++)
		seen |= 1u << number[i];
	return (unsigned)__builtin_popcount(seen);
}

static unsigned steps_of(const uint32_t *number)
{
	uint32_t seen = 0;

	for (unsigned i = 1; i < PLACES; i++)
		seen |= 1u << (number[i] - number[i - 1]) % 16;
	return (unsigned)__builtin_popcount(seen);
}

static void look(const char *what, unsigned apart, const uint32_t *number)
{
	/* Of 64 numbers below 16 fewer than 8 are the same ones once in 10^18 times. */
	CHECK(values_of(number) >= 8 && steps_of(number) >= 8, "%s %u apart, secret %#lx: %u values, %u steps", what,
	      apart, km_hardening.secret, values_of(number), steps_of(number));
}

int main(void)
{
	uint32_t number[PLACES];

	for (unsigned i = 0; i < SECRETS && failures < 10; i++) {
		uint64_t place = 0x555555554000u + (random_number() & 0xfffff);

		km_hardening.secret = random_number() | 1;
		for (unsigned apart = 1; apart <= 64; apart = apart * 3 / 2 + 1) {
			for (unsigned j = 0; j < PLACES; j++)
				number[j] = km_random_of(place + apart * j, 16);
			look("places", apart, number);
		}
		for (unsigned j = 0; j < PLACES; j++)
			number[j] = km_random_below(16);
		look("draws", 1, number);
	}
	return failures != 0;
}
