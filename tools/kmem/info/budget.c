/*
 * budget.c: the budget of a command for one target: bytes to read, bytes to keep, and time. A process states counts
 * and lengths of its structures itself; the kernel states how much memory the process has. Invariant: for any record
 * of a process, a command reads and keeps at most a fixed part and a multiple of the process's private memory, as
 * counted by the kernel; a target above the budget is refused (INFO_INVALID).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"
#include "leaks/core_dump.h"

#define LEAST_ROOM	((uint64_t)64 << 20)	/* bytes kept of a process of any size */
#define LEAST_READ	((uint64_t)1 << 30)	/* bytes read, areas of CPUs included */
#define TIMES_READ	16u			/* ... for each byte of the process */
#define EACH_READ	64u			/* the cost of one read, in bytes */
#define BYTES_PER_MS	65536u			/* bytes that a slow machine reads in a millisecond */

unsigned info_budget_seconds = 20;
const char *info_invalid_why;

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);	/* coarse: called for each read */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Private memory, in memory or swapped out, and address space. Pages of files are not counted: a process can map the
 * same pages a thousand times. */
static uint64_t memory_of_process(pid_t pid, uint64_t *space)
{
	static const char *const own[] = { "RssAnon: %lu", "VmSwap: %lu", "HugetlbPages: %lu" };
	FILE *file = target_proc(pid, "status");
	unsigned long kb, all = 0;
	char line[256];

	*space = 0;
	while (file && fgets(line, sizeof(line), file)) {
		for (size_t i = 0; i < KMEM_COUNT(own); i++)
			all += sscanf(line, own[i], &kb) == 1 ? kb : 0;
		if (sscanf(line, "VmSize: %lu", &kb) == 1)
			*space = (uint64_t)kb * 1024;
	}
	if (file)
		fclose(file);
	return (uint64_t)all * 1024;
}

void target_budget(struct target *target)
{
	struct target_budget *budget = &target->budget;
	uint64_t own = target->core ? target->core->length : memory_of_process(target->pid, &budget->space);

	budget->space = target->core ? UINT64_MAX : budget->space;
	budget->room = LEAST_ROOM + own;
	budget->read = LEAST_READ + TIMES_READ * own;
	if (!budget->end_ms)
		budget->end_ms = now_ms() + info_budget_seconds * 1000u + own / BYTES_PER_MS;
}

bool target_refuse(struct target *target, const char *why)
{
	info_invalid_why = why;
	target->result = INFO_INVALID;
	return false;
}

bool target_too_much(struct target *target)
{
	return target_refuse(target, "its counts exceed the memory of the process");
}

bool target_may_read(struct target *target, uint64_t bytes)
{
	struct target_budget *budget = &target->budget;

	if (!budget->end_ms)
		target_budget(target);
	if (bytes > budget->read || budget->read - bytes < EACH_READ)
		return target_too_much(target);
	budget->read -= bytes + EACH_READ;
	return now_ms() <= budget->end_ms || target_refuse(target, "reading takes too long");
}

/* Read the address space again if the last size is too small: the process may have grown. */
bool target_has_space(struct target *target, uint64_t bytes)
{
	if (bytes > target->budget.space)
		target_budget(target);
	return bytes <= target->budget.space ||
	       target_refuse(target, "a part of it is larger than its address space");
}

void *target_room(struct target *target, size_t count, size_t each)
{
	size_t bytes;

	if (!target->budget.end_ms)
		target_budget(target);
	if (__builtin_mul_overflow(count, each, &bytes) || bytes > target->budget.room) {
		target_too_much(target);
		return NULL;
	}
	return kmem_need(calloc(count + 1, each + !each));
}

void target_charge(struct target *target, uint64_t bytes)
{
	struct target_budget *budget = &target->budget;

	budget->read = bytes > budget->room ? 0 : budget->read;
	budget->room -= bytes > budget->room ? budget->room : bytes;
}

void *target_keep(struct target *target, size_t count, size_t each)
{
	void *room = target_room(target, count, each);

	if (room)
		target_charge(target, (uint64_t)count * each);
	return room;
}

void info_limit_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	const rlim_t half = (rlim_t)sysconf(_SC_PHYS_PAGES) / 2 * (rlim_t)sysconf(_SC_PAGESIZE);
	struct rlimit limit;

	if (getrlimit(RLIMIT_DATA, &limit) || (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= half))
		return;
	limit.rlim_cur = half;
	setrlimit(RLIMIT_DATA, &limit);
#endif
}
