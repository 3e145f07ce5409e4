/*
 * secret.c: the process's secret, and numbers made from the secret. Invariant: to compute the secret from any
 * output is at least as much work as to guess the secret.
 */
#include "secret.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "die.h"
#include "os.h"

struct km_hardening km_hardening;
static uint64_t drawn;			/* state of the generator; races draw a number twice, without harm */

/* Returns: both halves of a 128-bit product, folded, so that the operands can't be computed. */
static uint64_t fold(uint64_t a, uint64_t b)
{
	__extension__ unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Write the names of the parts in force, for readers outside of the process. */
static void name_parts(void)
{
	const struct {
		bool on;
		const char *name;
	} parts[] = {
		{ km_hardening.live, "prove_frees" },
		{ km_hardening.zero_on_free, "zero_on_free" },
		{ km_hardening.zero_on_alloc, "zero_on_alloc" },
		{ km_hardening.random_order, "random_order" },
		{ km_hardening.canary, "canary" },
		{ km_hardening.quarantine, "quarantine" },
		{ km_hardening.own_addresses, "own_addresses" },
		{ km_hardening.guard_slabs, "guard_slabs" },
		{ km_hardening.random_caches, "random_caches" },
	};
	size_t length = 0;

	for (size_t i = 0; i < km_array_count(parts); i++)
		if (parts[i].on)
			length += km_format(km_hardening.parts + length, sizeof(km_hardening.parts) - length, "%s%s",
					    length ? " " : "", parts[i].name);
}

void km_hardening_start(void)
{
	uint64_t bytes[2];

	name_parts();
	km_os_random(bytes, sizeof(bytes), km_hardening.level);
	/* Fold, because libc's canary uses the same bytes: the canary must not be readable from the secret. */
	km_hardening.secret = fold(bytes[0] ^ 0xa0761d6478bd642full, bytes[1] ^ 0xe7037ed1a0b428dbull) | 1;
	km_debug(km_hardening.secret, "the secret is initialised");
}

uint32_t km_random_of(uint64_t number, uint32_t bound)
{
	km_debug(bound, "a random number has a positive bound");
	const uint64_t secret = km_hardening.secret;
	/* Fold twice: one product of equidistant numbers has equal steps. With some secrets it would repeat a few
	 * numbers only. */
	const uint64_t folded = fold(fold(number ^ secret, secret + 0x8ebc6af09c88c6e3ull), 0x589965cc75374cc3ull);

	return (uint32_t)((folded & UINT32_MAX) * bound >> 32);
}

uint32_t km_random_below(uint32_t bound)
{
	uint64_t n = km_load(&drawn) + 0x9e3779b97f4a7c15ull;

	km_store(&drawn, n);
	return km_random_of(n, bound);
}
