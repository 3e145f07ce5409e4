/*
 * always_huge_pages.c: on a system that makes every mapping of huge pages, a small program does not pay for them: no
 * memory reserved by the library for pages, metadata and CPUs becomes huge pages by itself. The test simulates such a
 * system by an advice for each anonymous mapping; without huge pages there is no effect to test.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "kit/rollup.h"

static unsigned advised;

void *__real_mmap(void *p, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *p, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *got = __real_mmap(p, bytes, protection, flags, fd, offset);

	if (got != MAP_FAILED && flags & MAP_ANONYMOUS)
		advised += madvise(got, bytes, MADV_HUGEPAGE) == 0;
	return got;
}

static unsigned long huge_kb(void)
{
	return rollup_kb("AnonHugePages");
}

int main(void)
{
	for (unsigned i = 0; i < 1000; i++) {
		char *p = kmalloc(64 + i % 500, GFP_KERNEL);

		NEED(p);
		*p = 1;
	}
	char *block = kvmalloc(3 << 20, GFP_KERNEL);
	NEED(block);
	block[0] = block[2 << 20] = 1;
	printf("%u mappings advised, %lu KiB of huge pages\n", advised, huge_kb());
	return huge_kb() != 0;
}
