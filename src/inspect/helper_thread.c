/*
 * helper_thread.c: a thread of ours, for what a tick may not do itself, since it would wait for the program's own
 * threads, or for others. Invariant: libc may allocate, and take any lock of its own, where it is begun.
 */
#include "helper_thread.h"

#include <link.h>

#include "os/die.h"
#include "os/lock.h"
#include "os/os.h"
#include "percpu/pcpu.h"

extern struct r_debug _r_debug __attribute__((weak));	/* musl does not declare it */

/*
 * Libc allocates as it makes a thread: not while this one is in the linker's midst, or has a lock. A child of vfork's
 * would be gone before its thread is through.
 */
bool km_helper_may(void)
{
	return (!&_r_debug || _r_debug.r_state == RT_CONSISTENT) && !km_locks_held && !km_thread_is_lent();
}

/* Allocations of libc are as the program's. */
bool km_helper_begin(void (*function)(void))
{
	const uint8_t was = km_thread_busy;

	km_debug(!km_locks_held, "a thread that makes another has no lock");
	km_busy_end_clear();
	const bool begun = km_os_run_apart(function);
	km_debug(!km_locks_held, "libc's allocations there leave no lock behind");
	km_busy_begin();
	km_thread_busy = was;
	return begun;
}
