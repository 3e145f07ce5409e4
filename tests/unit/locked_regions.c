/*
 * locked_regions: mlockall fills in what the program's blocks above 4 MiB have, and not what is free beside them in
 * regions, nor their room to grow; nor does a limit of none on locked memory make more of it resident. What is freed
 * goes back, whatever locks it, and with MCL_FUTURE a block is locked wherever it comes from.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <kmem/kmem.h>

#include "kit/check.h"

#define MIB	((size_t)1 << 20)
#define BLOCKS	70u		/* forty are mappings of their own */
#define BYTES	(5 * MIB)
#define ALL	(BLOCKS * BYTES)

static bool unlimited;
static char *block[BLOCKS];

/* As where RLIMIT_MEMLOCK is none, which needs a privilege. */
#ifdef __GLIBC__
int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
#else
int getrlimit(int resource, struct rlimit *limit)
#endif
{
	long result = syscall(SYS_prlimit64, 0, resource, NULL, limit);

	if (!result && resource == RLIMIT_MEMLOCK && unlimited)
		limit->rlim_cur = RLIM_INFINITY;
	return (int)result;
}

static size_t resident(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	size_t kib = 0;

	NEED(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "VmRSS:", 6))
			kib = strtoul(line + 6, NULL, 10);
	fclose(file);
	return kib << 10;
}

static bool is_locked(const char *p)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long from, to;
	bool inside = false, locked = false;
	char line[512];

	NEED(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (unsigned long)p >= from && (unsigned long)p < to;
		if (inside && !strncmp(line, "VmFlags:", 8))
			locked = strstr(line, " lo") != NULL;
	}
	fclose(file);
	return locked;
}

static void fill(unsigned from, unsigned step)
{
	for (unsigned i = from; i < BLOCKS; i += step) {
		block[i] = kvzalloc(BYTES, GFP_KERNEL);
		NEED(block[i]);
		for (size_t at = 0; at < BYTES; at += MIB / 2)
			CHECK(!block[i][at] && !block[i][at + MIB / 2 - 1], "block %u is zeros", i);
		memset(block[i], 1, BYTES);
	}
}

static void lock(int flags)
{
	if (!mlockall(flags))
		return;
	printf("mlockall is refused\n");
	fflush(stdout);
	_exit(77);
}

static void blocks_first(int flags)
{
	fill(0, 1);
	size_t before = resident();
	lock(flags);
	CHECK(resident() < before + ALL / 4, "%zu MiB resident of %zu", resident() / MIB, before / MIB);
	for (unsigned i = 5; i < BLOCKS; i += 20)
		CHECK(is_locked(block[i]) && is_locked(block[i] + BYTES - 1), "block %u is locked", i);
	for (unsigned i = 1; i < BLOCKS; i += 2)
		kvfree(block[i]);
	kmem_shrink_all();
	CHECK(resident() < before - ALL / 2 + ALL / 4, "%zu MiB resident of %zu", resident() / MIB, before / MIB);
	fill(1, 2);
	CHECK(resident() < before + ALL / 4, "%zu MiB resident of %zu", resident() / MIB, before / MIB);
	for (unsigned i = 0; i < BLOCKS; i++) {
		block[i] = kvrealloc(block[i], BYTES + BYTES / 2, GFP_KERNEL);
		NEED(block[i]);
		memset(block[i] + BYTES, 2, BYTES / 2);
		for (size_t at = 0; at < BYTES + BYTES / 2; at += MIB / 4)
			CHECK(block[i][at] == 1 + (at >= BYTES), "block %u holds what it held", i);
		CHECK(i % 20 != 5 || !(flags & MCL_FUTURE) || is_locked(block[i] + BYTES), "block %u is locked", i);
	}
}

static void lock_first(int flags)
{
	lock(flags);
	size_t before = resident();
	fill(0, 1);
	CHECK(resident() < before + ALL + ALL / 4, "%zu MiB resident of %zu", resident() / MIB, before / MIB);
	for (unsigned i = 5; i < BLOCKS; i += 20)
		CHECK(!(flags & MCL_FUTURE) || is_locked(block[i]), "block %u is locked", i);
}

/* In a process of its own: 77 where the system locks nothing. */
static bool run(void (*load)(int flags), int flags, bool without_limit)
{
	int status;
	pid_t child = fork();

	NEED(child >= 0);
	if (!child) {
		alarm(60);
		unlimited = without_limit;
		load(flags);
		_exit(failures != 0);
	}
	NEED(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == 77), "status %#x", status);
	return WIFEXITED(status) && WEXITSTATUS(status) == 77;
}

int main(void)
{
	bool refused = run(blocks_first, MCL_CURRENT, false);

	refused |= run(blocks_first, MCL_CURRENT | MCL_FUTURE, false);
	refused |= run(blocks_first, MCL_CURRENT | MCL_FUTURE, true);
	refused |= run(lock_first, MCL_CURRENT | MCL_FUTURE, true);
	return failures ? 1 : refused ? 77 : 0;
}
