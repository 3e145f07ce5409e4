/*
 * huge_block_advice.c: a reused block above 4 MiB has no advice of its former owner: a child of fork has its contents,
 * core dumps contain the block, and the block is not locked, in a mapping or in a region. Nor is a cached block
 * locked. If the system refuses the reset, the block goes back. Not with nodes: large blocks begin as the system
 * makes them, and none is cached.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "kit/refuse.h"
#include "page/huge.h"
#include "page/huge_cache.h"
#include "os/os.h"

#define MIB	((size_t)1 << 20)
#define BYTES	(8 * MIB)
#define PART	(64 << 10)		/* what may be locked without a privilege */

static bool refuse;

static bool refused(const char *call)
{
	return refuse && !strcmp(call, "renew");
}

/* The flags of the address's mapping in /proc; "" without such a line. */
static void flags_of(const void *p, char *flags)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	bool inside = false;
	char line[512];

	flags[0] = '\0';
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (unsigned long)p >= from && (unsigned long)p < to;
		if (inside && !strncmp(line, "VmFlags:", 8))
			strcpy(flags, line + 8);
	}
	if (file)
		fclose(file);
}

/* Checks every part of the block, in a child, too. */
static void is_new(char *p, size_t bytes)
{
	int status;
	char flags[512];

	for (size_t at = 0; at < bytes; at += MIB) {
		flags_of(p + at, flags);
		CHECK(!strstr(flags, " dc ") && !strstr(flags, " wf ") && !strstr(flags, " dd ") &&
		      !strstr(flags, " lo "), "%zu MiB: %s", at / MIB, flags);
		p[at] = 5;
	}
	pid_t child = fork();
	NEED(child >= 0);
	for (size_t at = 0; !child && at < bytes; at += MIB)
		if (p[at] != 5)
			_exit(1);
	if (!child)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && status == 0, "status %x", status);
}

/* Gives advice for a block, frees the block, and allocates again; cached: the block is cached between. */
static void *again(char *p, int advice, bool cached)
{
	bool zero;
	size_t before = km_huge_cache.pages;

	memset(p, 1, BYTES);
	if (advice)
		NEED(!madvise(p + MIB, 5 * MIB, advice));
	else
		NEED(!mlock(p + 2 * MIB, PART));
	NEED(km_huge_free(p));
	CHECK_EQUAL(km_huge_cache.pages != before, cached);
	char *next = km_huge_alloc(BYTES, 1, &zero);
	NEED(next);
	CHECK(!cached || next == p);
	is_new(next, BYTES);
	return next;
}

static void in_turn(char *p, bool cached)
{
	bool zero;

	NEED(p);
	p = again(p, MADV_DONTFORK, cached);
	p = again(p, MADV_WIPEONFORK, cached);
	p = again(p, MADV_DONTDUMP, cached);
	/* A locked block is not cached. */
	p = again(p, 0, false);
	NEED(km_huge_free(p));
	/* The whole block is one mapping again. */
	NEED((p = km_huge_alloc(BYTES + MIB, 1, &zero)) && km_huge_free(p));
}

static void refusing(void)
{
	bool zero;
	char *p = km_huge_alloc(BYTES, 1, &zero);
	size_t before = km_huge_cache.pages;

	NEED(p);
	refuse = true;
	NEED(km_huge_free(p) && km_huge_cache.pages == before);
	refuse = false;
}

/* As in a container with a filter unaware of the call that finds locks: blocks are cached all the same. */
static void filtered(void)
{
	static const unsigned errors[] = { EPERM, ENOSYS };
	bool zero;

	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		pid_t child = fork();
		int status;

		NEED(child >= 0);
		if (!child && !refuse_unseen(SYS_msync, errors[i]))
			_exit(0);
		if (!child) {
			size_t before = km_huge_cache.pages;

			_exit(!km_huge_free(km_huge_alloc(BYTES, 1, &zero)) || km_huge_cache.pages == before);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0, "%s: status %x", strerror(errors[i]), status);
	}
}

int main(void)
{
	enum { ALONE = 100 };
	static char *alone[ALONE];
	bool zero;

	NEED(slab_is_available());
	km_os_fault = refused;
	/* Enough memory is in use for cached blocks. */
	NEED((alone[0] = km_huge_alloc(64 * BYTES, 1, &zero)));
	in_turn(km_huge_alloc(BYTES, 1, &zero), true);
	refusing();
	filtered();
	for (unsigned i = 1; i < ALONE; i++)
		NEED((alone[i] = km_huge_alloc(5 * MIB, 1, &zero)));
	/* From here on they come from a region. */
	char *other = km_huge_alloc(BYTES, 1, &zero);
	NEED(other);
	in_turn(km_huge_alloc(BYTES, 1, &zero), true);
	return failures != 0;
}
