/*
 * raised_address_limit.c: a program whose limit on the address space is raised by half again and again, and that uses
 * it up each time, has nearly all of it each time: address space comes in ranges, of which there may be so many and
 * no more.
 * Not with hardened: the tables of what is out take a fifth of the address space.
 */
#define _GNU_SOURCE
#include <sys/resource.h>

#include <kmem/kmem.h>

#include "kit/check.h"

#define MIB	((size_t)1 << 20)
#define QUIET	(GFP_KERNEL | __GFP_NOWARN)

int main(void)
{
	size_t limit = 64 * MIB, have = 0;

	/* Nothing is touched; but a system that grants no more than it has ends this early. */
	for (int i = 0; i < 18; i++, limit += limit / 2) {
		struct rlimit words = { limit, RLIM_INFINITY };
		size_t bytes = limit < 2048 * MIB ? MIB : 4 * MIB;

		NEED(setrlimit(RLIMIT_AS, &words) == 0);
		while (kvmalloc(bytes, QUIET))
			have += bytes;
		if (have < limit / 100 * 60) {
			printf("%zu of %zu MiB, after %d times\n", have / MIB, limit / MIB, i);
			return 1;
		}
	}
	return 0;
}
