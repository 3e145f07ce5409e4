/*
 * os_node.c: services of os.h for memory nodes. Invariant: errno does not change. mbind may be outside of a
 * program's filter, and is never called after km_os_shut.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os.h"

/* From <linux/mempolicy.h>. Some enumerators are newer than others. */
#define MPOL_DEFAULT		0
#define MPOL_PREFERRED		1
#define MPOL_LOCAL		4
#define MPOL_PREFERRED_MANY	5
#define MPOL_F_MEMS_ALLOWED	4

static long call(long number, unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e,
		 unsigned long f)
{
	km_errno_scope(saved_errno);
	long result = syscall(number, a, b, c, d, e, f);

	result = result == -1 ? -errno : result;
	return result;
}

static bool fault(const char *service)
{
	return km_unlikely(km_os_fault != NULL) && km_os_fault(service);
}

int km_os_allowed_nodes(uint64_t *set, unsigned limit)
{
	if (fault("allowed nodes"))
		return -EPERM;
	return (int)call(SYS_get_mempolicy, 0, (uintptr_t)set, limit + 1ul, 0, MPOL_F_MEMS_ALLOWED, 0);
}

bool km_os_has_memory_policy(void)
{
	int mode = MPOL_DEFAULT;
	long result = call(SYS_get_mempolicy, (uintptr_t)&mode, 0, 0, 0, 0, 0);

	return !result && mode != MPOL_DEFAULT && mode != MPOL_LOCAL;
}

int km_os_prefer_nodes(void *p, size_t bytes, const uint64_t *set, unsigned limit)
{
	unsigned count = 0;

	if (fault("bind") || km_os_is_shut())
		return -EPERM;
	if (!set)
		return (int)call(SYS_mbind, (uintptr_t)p, bytes, MPOL_DEFAULT, 0, 0, 0);
	for (unsigned i = 0; i < limit / 64; i++)
		count += (unsigned)__builtin_popcountll(set[i]);
	/* MPOL_PREFERRED would take only the first of several nodes. */
	return (int)call(SYS_mbind, (uintptr_t)p, bytes, count > 1 ? MPOL_PREFERRED_MANY : MPOL_PREFERRED,
			 (uintptr_t)set, limit + 1ul, 0);
}
