/*
 * os_random.c: random bytes. Invariant: the service never fails; without the kernel's help the bytes are the random
 * bytes of the process's start.
 */
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "die.h"
#include "os_call.h"

#define NONBLOCK 1	/* GRND_NONBLOCK of <linux/random.h>: early after boot there may be no bytes */

void km_os_random(void *p, size_t bytes, bool fresh)
{
	const char *given = (const char *)getauxval(AT_RANDOM);

	km_debug(p && bytes, "random bytes have a destination");
	for (size_t i = 0; i < bytes; i++)
		((char *)p)[i] = given ? given[i % 16] : 0;
	if (fresh && !km_os_is_shut())
		KM_CALL(syscall(SYS_getrandom, p, bytes, NONBLOCK));
}
