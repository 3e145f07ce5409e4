/*
 * raised_address_limit.c: a program raises its limit on the address space by half again and again, uses all of it
 * each time, and gets nearly all of it each time, although the number of address ranges is bounded. Not with
 * hardened: the tables of what is out take a fifth of the address space.
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

	/* No page is touched; but a system with strict overcommit ends this early. */
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
