/*
 * confine.c: a program that confines itself: it installs a filter of system calls (seccomp), limits its address space
 * (RLIMIT_AS) or its mappings (RLIMIT_DATA), or locks its memory, after it began. We stand before the functions by
 * which it does so. Invariant: the system call is the program's own, made as it was asked for, and its answer is what
 * the caller gets.
 *
 * Others' headers declare these with types of their own; here they are words, which is what the kernel takes.
 */
#include <errno.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <stdarg.h>

#include "cache/cache.h"
#include "page/huge.h"
#include "os/os.h"
#include "percpu/pcpu.h"

/* A sanitized build goes without: the sanitizer sets limits at its start, before instrumented code may run. */
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

/* A program without privilege says this before it installs a filter, by whatever call; and it comes too late then. */
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

/* Inside of the allocator, as in a handler that struck there, nothing is given back. */
static void limited(int resource, const uint64_t *limits)
{
	bool data = resource == RLIMIT_DATA;

	if ((resource != RLIMIT_AS && !data) || !limits || km_thread_is_lent())
		return;
	(data ? km_os_set_data_limit : km_os_set_address_limit)
		(limits[0] == RLIM64_INFINITY ? SIZE_MAX : limits[0]);
	if (limits[0] == RLIM64_INFINITY || !km_load_acquire(&km_ready) || km_thread_busy || km_boot_is_stray())
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

/*
 * The kernel fills in whatever can be read, zeros as well, of which we have 16 GiB for CPUs that are not there. Where
 * all that is mapped later is locked, what lies ready may not be, and within a limit it would be withheld from the
 * program's own mappings.
 */
static long lock_all(int flags)
{
	show_beyond(false);
	long result = km_huge_mlockall(flags);
	show_beyond(true);
	return result;
}

/* A process without the right to lock more than RLIMIT_MEMLOCK may lock all only if all its mappings are below the
 * limit, reserved addresses included. False: no limit. */
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
	bool ours = !km_thread_is_lent() && km_load_acquire(&km_ready) && !km_thread_busy && !km_boot_is_stray();
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

/* Memory that is mapped from now on is not locked: it may lie ready again. */
KMEM_API int munlockall(void);
KMEM_API int munlockall(void)
{
	return (int)answer(km_os_munlockall());
}

#endif
