/*
 * helper_thread.c: a helper thread for work not allowed in a tick, because the work would wait for threads of the
 * program or of other processes. Invariant: at the point of creation libc may allocate and take any of its locks.
 */
#include "helper_thread.h"

#include <link.h>

#include "os/die.h"
#include "os/lock.h"
#include "os/os.h"
#include "percpu/pcpu.h"

extern struct r_debug _r_debug __attribute__((weak));	/* not declared by musl */

/*
 * libc allocates while creating a thread, so creation is not allowed inside the dynamic linker or with a lock held. A
 * vfork child would be gone before the thread finishes.
 */
bool km_helper_may(void)
{
	return (!&_r_debug || _r_debug.r_state == RT_CONSISTENT) && !km_thread.locks_held && !km_thread_is_lent();
}

/* Allocations by libc during creation count as the program's own. */
bool km_helper_begin(void (*function)(void))
{
	const uint8_t was = km_thread.busy;

	km_debug(!km_thread.locks_held, "a thread holds no lock while it creates a thread");
	km_busy_end_clear();
	const bool begun = km_os_run_apart(function);
	km_debug(!km_thread.locks_held, "libc's allocations release all locks");
	km_busy_begin();
	km_thread.busy = was;
	return begun;
}
