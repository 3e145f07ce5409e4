/*
 * confine.c: wrappers of the functions by which a running program confines itself: filters of system calls (seccomp),
 * limits of address space (RLIMIT_AS) or of mappings (RLIMIT_DATA), and locked memory. Invariant: the program's
 * system call is made unchanged, and its result is returned.
 *
 * Other headers declare these functions with their own types. Here arguments are words, as the kernel takes them.
 */
#include <errno.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <stdarg.h>

#include "cache/cache.h"
#include "page/huge.h"

/* Not in a sanitized build: the sanitizer sets limits at its start, before instrumented code may run. */
#if defined(__LP64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static long answer(long result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

static void show_beyond(bool show)
{
	km_busy_scope(was);

	km_percpu_show_beyond(show);
}

/* An unprivileged program makes this call before it installs a filter; the filter's own call would be too late. */
KMEM_API int prctl(int option, ...);
KMEM_API int prctl(int option, ...)
{
	unsigned long words[4];
	va_list list;

	va_start(list, option);
	for (unsigned i = 0; i < km_array_count(words); i++)
		words[i] = va_arg(list, unsigned long);
	va_end(list);
	if (!km_thread_is_lent() && ((option == PR_SET_NO_NEW_PRIVS && words[0]) || option == PR_SET_SECCOMP)) {
		if (km_options.observed && !km_os_is_shut())
			km_observer_ops->end();
		km_os_shut();
	}
	return (int)answer(km_os_prctl(option, words));
}

/* Apply a new limit. Inside the allocator, also in a signal handler there, no memory is given back. */
static void limited(int resource, const uint64_t *limits)
{
	bool data = resource == RLIMIT_DATA;

	if ((resource != RLIMIT_AS && !data) || !limits || km_thread_is_lent())
		return;
	(data ? km_os_set_data_limit : km_os_set_address_limit)
		(limits[0] == RLIM64_INFINITY ? SIZE_MAX : limits[0]);
	if (limits[0] == RLIM64_INFINITY || !km_load_acquire(&km_ready) || km_thread.busy || km_boot_is_stray())
		return;
	km_busy_scope(was);
	km_reclaim_limited();
}

static long set(int pid, int resource, const uint64_t *limits, void *old)
{
	long result = km_os_prlimit(pid, resource, limits, old);

	if (result == 0 && (!pid || (unsigned)pid == km_os_pid()))
		limited(resource, limits);
	return answer(result);
}

KMEM_API int setrlimit(int resource, const uint64_t *limits);
KMEM_API int setrlimit(int resource, const uint64_t *limits)
{
	return (int)set(0, resource, limits, NULL);
}

KMEM_API int prlimit(int pid, int resource, const uint64_t *limits, void *old);
KMEM_API int prlimit(int pid, int resource, const uint64_t *limits, void *old)
{
	return (int)set(pid, resource, limits, old);
}

/* glibc's other names. */
KMEM_API int setrlimit64(int resource, const uint64_t *limits) __attribute__((alias("setrlimit")));
KMEM_API int prlimit64(int pid, int resource, const uint64_t *limits, void *old) __attribute__((alias("prlimit")));

/* Lock all memory. The kernel populates all readable pages, also 16 GiB of zeros for absent CPUs, so these are hidden.
 * If later mappings are locked as well, cached blocks would count against the limit for the program's own mappings. */
static long lock_all(int flags)
{
	show_beyond(false);
	long result = km_huge_mlockall(flags);
	show_beyond(true);
	return result;
}

/* Shrink reservations below RLIMIT_MEMLOCK: all mappings, reserved addresses too, must fit. False: no limit. */
static bool fit_to_lock(void)
{
	uint64_t limits[2];

	if (km_os_prlimit(0, RLIMIT_MEMLOCK, NULL, limits) || limits[0] == RLIM64_INFINITY)
		return false;
	km_busy_scope(was);
	km_reclaim_fit(limits[0]);
	return true;
}

KMEM_API int mlockall(int flags);
KMEM_API int mlockall(int flags)
{
	bool ours = !km_thread_is_lent() && km_load_acquire(&km_ready) && !km_thread.busy && !km_boot_is_stray();
	bool hide = flags & MCL_CURRENT && ours;

	long result = hide ? lock_all(flags) : km_os_mlockall(flags);
	if (result == -ENOMEM && hide && fit_to_lock())
		result = lock_all(flags);
	if (ours && km_os_locks_all()) {
		km_busy_scope(was);
		km_huge_purge(0);
	}
	return answer(result);
}

static int own_mlockall(int flags) __attribute__((alias("mlockall")));
int (*km_own_mlockall)(int flags) = own_mlockall;

/* New mappings are no longer locked, so blocks may be cached again. */
KMEM_API int munlockall(void);
KMEM_API int munlockall(void)
{
	return (int)answer(km_os_munlockall());
}

#endif
