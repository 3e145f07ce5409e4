/*
 * os_node.c: services of os.h for memory nodes. Invariant: errno does not change. mbind may be outside of a
 * program's filter, and is never called after km_os_shut.
 */
#include <sys/syscall.h>
#include <unistd.h>

#include "os_call.h"

/* From <linux/mempolicy.h>. Some enumerators are newer than others. */
#define MPOL_DEFAULT		0l
#define MPOL_PREFERRED		1l
#define MPOL_LOCAL		4
#define MPOL_PREFERRED_MANY	5l
#define MPOL_F_MEMS_ALLOWED	4l

int km_os_allowed_nodes(uint64_t *set, unsigned limit)
{
	if (km_call_fault("allowed nodes"))
		return -EPERM;
	return (int)KM_CALL(syscall(SYS_get_mempolicy, NULL, set, limit + 1ul, NULL, MPOL_F_MEMS_ALLOWED));
}

bool km_os_has_memory_policy(void)
{
	int mode = MPOL_DEFAULT;
	const bool known = !KM_CALL(syscall(SYS_get_mempolicy, &mode, NULL, 0ul, NULL, 0ul));

	return known && mode != MPOL_DEFAULT && mode != MPOL_LOCAL;
}

int km_os_prefer_nodes(void *p, size_t bytes, const uint64_t *set, unsigned limit)
{
	unsigned count = 0;

	if (km_call_fault("bind") || km_os_is_shut())
		return -EPERM;
	if (!set)
		return (int)KM_CALL(syscall(SYS_mbind, p, bytes, MPOL_DEFAULT, NULL, 0ul, 0));
	for (unsigned i = 0; i < limit / 64; i++)
		count += (unsigned)__builtin_popcountll(set[i]);
	/* MPOL_PREFERRED would take only the first of several nodes. */
	return (int)KM_CALL(syscall(SYS_mbind, p, bytes, count > 1 ? MPOL_PREFERRED_MANY : MPOL_PREFERRED, set,
				    limit + 1ul, 0));
}
