/*
 * large_system_pages.c: on a system with pages of 64 KiB, as on some aarch64 kernels, the library makes no call
 * that the system would refuse, and releases no bytes beyond free memory. The test simulates such a system by
 * wrapped system calls: they place, refuse and release as the real system.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "page/metadata.h"

#define PAGE	((uintptr_t)64 << 10)
#define BLOCKS	3000u

static unsigned refused, purged;

unsigned long __real_getauxval(unsigned long type);
void *__real_mmap(void *p, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *p, size_t bytes);
int __real_mprotect(void *p, size_t bytes, int protection);
int __real_madvise(void *p, size_t bytes, int advice);
void *__real_mremap(void *p, size_t old_bytes, size_t new_bytes, int flags, ...);

static size_t whole(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

static int refuse(void *p)
{
	if (!((uintptr_t)p & (PAGE - 1)))
		return 0;
	refused++;
	errno = EINVAL;
	return -1;
}

unsigned long __wrap_getauxval(unsigned long type)
{
	return type == AT_PAGESZ ? PAGE : __real_getauxval(type);
}

void *__wrap_mmap(void *p, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	char *got = __real_mmap(p, whole(bytes) + PAGE, protection, flags, fd, offset);

	if (got == MAP_FAILED)
		return got;
	char *start = (char *)whole((uintptr_t)got);
	if (start > got)
		__real_munmap(got, (size_t)(start - got));
	__real_munmap(start + whole(bytes), (size_t)(got + PAGE - start));
	return start;
}

int __wrap_munmap(void *p, size_t bytes)
{
	return refuse(p) ?: __real_munmap(p, whole(bytes));
}

int __wrap_mprotect(void *p, size_t bytes, int protection)
{
	return refuse(p) ?: __real_mprotect(p, whole(bytes), protection);
}

int __wrap_madvise(void *p, size_t bytes, int advice)
{
	purged += advice == MADV_DONTNEED;
	return refuse(p) ?: __real_madvise(p, whole(bytes), advice);
}

/* In place, or, if permitted, at an address possible on such a system. */
void *__wrap_mremap(void *p, size_t old_bytes, size_t new_bytes, int flags, ...)
{
	if (refuse(p))
		return MAP_FAILED;
	void *got = __real_mremap(p, whole(old_bytes), whole(new_bytes), 0);
	if (got != MAP_FAILED || !(flags & MREMAP_MAYMOVE))
		return got;
	void *to = __wrap_mmap(NULL, new_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return to == MAP_FAILED ? to : __real_mremap(p, whole(old_bytes), whole(new_bytes),
						     MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

/* Blocks of a few pages, each filled with its number; many are freed, and their memory is released. */
static unsigned spoilt(void)
{
	static unsigned char *block[BLOCKS];
	unsigned wrong = 0;

	for (unsigned i = 0; i < BLOCKS; i++) {
		size_t bytes = 4096u << i % 3;

		block[i] = kvmalloc(bytes + 4096, GFP_KERNEL);
		if (!block[i])
			return 1;
		memset(block[i], (int)(i % 251), bytes + 4096);
	}
	for (unsigned i = 0; i < BLOCKS; i += i % 400 < 200 ? 1 : 2) {
		kvfree(block[i]);
		block[i] = NULL;
	}
	kmem_shrink_all();
	for (unsigned i = 0; i < BLOCKS; i++) {
		size_t bytes = (4096u << i % 3) + 4096;

		for (size_t at = 0; block[i] && at < bytes; at += 512)
			wrong += block[i][at] != i % 251;
		kvfree(block[i]);
	}
	return wrong;
}

/* The same for metadata: pieces of up to a page beside others in use; reused memory is zeros. */
static unsigned spoilt_records(void)
{
	static unsigned char *piece[BLOCKS];
	unsigned wrong = 0;

	for (unsigned i = 0; i < BLOCKS; i++) {
		piece[i] = km_metadata_alloc(64u << i % 7, true);
		if (!piece[i])
			return 1;
		memset(piece[i], (int)(i % 251), 64u << i % 7);
	}
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < BLOCKS; i++)
			if (i % 40 > 4 + 10 * round) {
				km_metadata_free(piece[i], 64u << i % 7);
				piece[i] = NULL;
			}
		km_metadata_trim(true);
		for (unsigned i = 0; i < BLOCKS; i++) {
			unsigned char value = piece[i] ? (unsigned char)(i % 251) : 0;

			if (!piece[i] && !(piece[i] = km_metadata_alloc(64u << i % 7, true)))
				return 1;
			for (size_t at = 0; at < 64u << i % 7; at++)
				wrong += piece[i][at] != value;
			memset(piece[i], (int)(i % 251), 64u << i % 7);
		}
	}
	for (unsigned i = 0; i < BLOCKS; i++)
		km_metadata_free(piece[i], 64u << i % 7);
	return wrong;
}

#define BIG(mib, pages)	(((size_t)(mib) << 20) + (pages) * 4096u)

static unsigned not_zero(const unsigned char *p, size_t from, size_t to)
{
	unsigned count = 0;

	for (; from < to; from++)
		count += p[from] != 0;
	return count;
}

/*
 * Large blocks with sizes between whole system pages: a cached block is cut for the next block, and the cut leaves
 * the neighbours unchanged; a block's rest of its last page is zeros when the block grows again.
 */
static unsigned spoilt_big(void)
{
	unsigned char *others = kvmalloc(BIG(200, 0), GFP_KERNEL), *p = kvmalloc(BIG(20, 1), GFP_KERNEL), *q, *r;
	unsigned wrong = 0;

	if (!others || !p)
		return 1;
	memset(p, 1, BIG(20, 1));
	kvfree(p);
	p = kvmalloc(BIG(14, 2), GFP_KERNEL | __GFP_ZERO);
	q = kvmalloc(BIG(5, 0), GFP_KERNEL);
	r = kvmalloc(BIG(5, 0), GFP_KERNEL);
	if (!p || !q || !r)
		return 1;
	memset(q, 2, BIG(5, 0));
	memset(r, 3, BIG(5, 0));
	p = kvrealloc(p, BIG(14, 9), GFP_KERNEL | __GFP_ZERO);
	wrong += !p ? 1 : not_zero(p, 0, BIG(14, 9));
	memset(p, 4, BIG(14, 9));
	p = kvrealloc(p, BIG(13, 1), GFP_KERNEL | __GFP_ZERO);
	p = p ? kvrealloc(p, BIG(13, 12), GFP_KERNEL | __GFP_ZERO) : NULL;
	wrong += !p ? 1 : not_zero(p, BIG(13, 1), BIG(13, 12));
	kvfree(p);
	kmem_shrink_all();
	for (size_t at = 0; at < BIG(5, 0); at++)
		wrong += (q[at] != 2) + (r[at] != 3);
	kvfree(q);
	kvfree(r);
	kvfree(others);
	return wrong;
}

/* The same in a region: the first forty are mappings of their own. */
static unsigned spoilt_region(void)
{
	enum { MANY = 60 };
	static unsigned char *block[MANY];
	unsigned wrong = 0;

	for (unsigned i = 0; i < MANY; i++) {
		if (!(block[i] = kvmalloc(BIG(13, 5), GFP_KERNEL)))
			return 1;
		memset(block[i], (int)i + 1, BIG(13, 5));
	}
	for (unsigned i = 0; i < MANY; i++) {
		block[i] = kvrealloc(block[i], BIG(5, i), GFP_KERNEL);
		block[i] = block[i] ? kvrealloc(block[i], BIG(14, i), GFP_KERNEL | __GFP_ZERO) : NULL;
		if (!block[i])
			return 1;
		wrong += not_zero(block[i], BIG(5, i), BIG(14, i));
		for (size_t at = 0; at < BIG(5, i); at += 512)
			wrong += block[i][at] != i + 1;
	}
	for (unsigned i = 0; i < MANY; i++)
		kvfree(block[i]);
	return wrong;
}

int main(void)
{
	void *large = kvmalloc((5u << 20) + 4096, GFP_KERNEL);
	unsigned wrong = spoilt() + spoilt_records() + spoilt_big() + spoilt_region();
	int damages = kmem_check_all();

	kvfree(large);
	printf("%s: %u ranges given back, %u calls refused, %u bytes spoilt, %d damages\n",
	       kmem_percpu_discipline(), purged, refused, wrong, damages);
	return !large || !purged || refused || wrong || damages;
}
