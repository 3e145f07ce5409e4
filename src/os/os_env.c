/*
 * os_env.c: environment variables of the program, and random bytes. Invariant: a program with the rights of its file's
 * owner (AT_SECURE) has no variables here, random bytes never fail, and errno does not change.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "die.h"
#include "os_call.h"

bool km_os_secure(void)
{
	return getauxval(AT_SECURE) != 0;
}

/* Read the kernel's copy of the environment, before libc has set environ (an allocation by the dynamic loader). */
static int getenv_early(const char *name, char *value, size_t bytes)
{
	size_t length = __builtin_strlen(name), at = 0;
	bool matches = true, in_value = false;
	char text[512];
	int found = -1;
	long fd = KM_CALL(syscall(SYS_openat, AT_FDCWD, "/proc/self/environ", O_RDONLY | O_CLOEXEC)), count;

	if (fd < 0)
		return -1;
	for (size_t i = 0; found < 0;) {
		count = KM_CALL(syscall(SYS_read, fd, text, sizeof(text)));
		if (count <= 0)
			break;
		for (long j = 0; j < count && found < 0; j++) {
			if (in_value && at < bytes)
				value[at++] = text[j];
			else if (!in_value && matches && i < length)
				matches = text[j] == name[i++];
			else if (!in_value && matches)
				in_value = (matches = text[j] == '=');
			if (!text[j]) {
				if (in_value)
					found = (int)at - !value[at - 1];
				matches = true;
				in_value = false;
				i = at = 0;
			}
		}
	}
	km_os_close((int)fd);
	return found;
}

int km_os_getenv(const char *name, char *value, size_t bytes)
{
	extern char **environ;

	if (km_os_secure())
		return -1;
	if (!environ)
		return getenv_early(name, value, bytes);
	const char *found = getenv(name);
	size_t length = found ? __builtin_strlen(found) : 0;

	if (length < bytes && found)
		__builtin_memcpy(value, found, length + 1);
	return found ? (int)km_min(length, bytes) : -1;
}

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
