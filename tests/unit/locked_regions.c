/*
 * locked_regions: mlockall makes the program's blocks above 4 MiB resident, and not the free memory beside them in
 * regions, nor their room to grow; nor does an unlimited RLIMIT_MEMLOCK make more resident. Freed memory goes back,
 * under any lock, and with MCL_FUTURE a block is locked from each source: a region, on fault as all memory
 * (MCL_ONFAULT), a cached block, or, after a refused lock, a mapping. The library never calls mlock under a program's
 * filter without mlock.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "os/os.h"

#define MIB	((size_t)1 << 20)
#define BLOCKS	70u		/* forty are mappings of their own */
#define BYTES	(5 * MIB)
#define ALL	(BLOCKS * BYTES)

static bool unlimited;
static char *block[BLOCKS];

/* As with an unlimited RLIMIT_MEMLOCK; the real limit needs a privilege. */
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

static void grow_all(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		NEED((block[i] = kvrealloc(block[i], 2 * BYTES, GFP_KERNEL)));
}

static void all_locked(size_t bytes)
{
	for (unsigned i = 5; i < BLOCKS; i += 20)
		CHECK(is_locked(block[i]) && is_locked(block[i] + bytes - 1), "block %u is locked", i);
}

/* Memory added after the call is locked, and not resident before the first touch. */
static void on_fault(int flags)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		NEED((block[i] = kvmalloc(BYTES, GFP_KERNEL)));
	lock(flags);
	size_t before = resident();
	grow_all();
	CHECK(resident() < before + ALL / 4, "%zu MiB resident of %zu", resident() / MIB, before / MIB);
	all_locked(2 * BYTES);
}

static bool refuse_lock(const char *call)
{
	return !strcmp(call, "lock");
}

/* A block that cannot be locked in place moves to a mapping; the system locks or refuses the mapping. */
static void lock_refused(int flags)
{
	fill(0, 1);
	lock(flags);
	km_os_fault = refuse_lock;
	grow_all();
	all_locked(2 * BYTES);
	for (unsigned i = 0; i < BLOCKS; i++)
		CHECK(block[i][0] == 1 && block[i][BYTES - 1] == 1, "block %u holds what it held", i);
	km_os_fault = NULL;
}

/* Blocks cached before were not locked. A first free may run a tick, and release all of them. */
static void cache_blocks(int flags)
{
	fill(0, 1);
	kvfree(block[6]);
	kvfree(block[5]);
	kvfree(block[65]);
	lock(flags);
	for (unsigned i = 5; i <= 65; i += i == 6 ? 59 : 1) {
		NEED((block[i] = kvmalloc(BYTES, GFP_KERNEL)));
		CHECK(is_locked(block[i]), "block %u is locked", i);
	}
}

/* From here on mlock and munlock end the process; the library knows about the filter. */
static void confine(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mlock, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mlock2, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munlock, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return;
	printf("no filter is to be had\n");
	fflush(stdout);
	_exit(77);
}

static void behind_a_filter(int flags)
{
	fill(0, 1);
	lock(flags);
	confine();
	grow_all();
	all_locked(2 * BYTES);
	for (unsigned i = 0; i < BLOCKS; i++)
		kvfree(block[i]);
	kmem_shrink_all();
	fill(0, 1);
	all_locked(BYTES);
}

/* In a process of its own. Returns: 77 if the system locks no memory. */
static bool run(void (*load)(int flags), int flags, bool without_limit)
{
	int status;
	pid_t child = fork();

	NEED(child >= 0);
	if (!child) {
		alarm(580);
		failures = 0;
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
	refused |= run(on_fault, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT, true);
	refused |= run(lock_refused, MCL_CURRENT | MCL_FUTURE, true);
	refused |= run(cache_blocks, MCL_FUTURE, true);
	refused |= run(behind_a_filter, MCL_CURRENT | MCL_FUTURE, true);
	return failures ? 1 : refused ? 77 : 0;
}
