/* os_call.h: the frame of a system call, for the files with services of os.h. Invariant: a call keeps errno. */
#ifndef KM_OS_CALL_H
#define KM_OS_CALL_H

#include <errno.h>

#include "base/cc.h"
#include "os.h"

static inline long km_call_answer(long result, int saved_errno)
{
	result = result == -1 ? -errno : result;
	errno = saved_errno;
	return result;
}

/* Value of a system call made through libc: its result, or -errno. */
#define KM_CALL(expression)                                                                        \
	({                                                                                         \
		const int call_errno = errno;                                                      \
		km_call_answer((long)(expression), call_errno);                                    \
	})

/* Returns: true if a test refuses the service (km_os_fault). */
km_inline bool km_call_fault(const char *service)
{
	return km_unlikely(km_os_fault != NULL) && km_os_fault(service);
}

#endif
