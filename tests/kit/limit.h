/* limit.h: sets a resource limit of this process on data or address space, and notifies the library. */
#ifndef TESTS_KIT_LIMIT_H
#define TESTS_KIT_LIMIT_H

#include <sys/resource.h>

#include "check.h"
#include "os/os.h"

#define set_limit(resource, bytes)                                                                 \
	do {                                                                                       \
		struct rlimit limit;                                                               \
                                                                                                   \
		NEED(!getrlimit(resource, &limit));                                                \
		limit.rlim_cur = limit.rlim_max < (bytes) ? limit.rlim_max : (bytes);              \
		NEED(!setrlimit(resource, &limit));                                                \
		km_os_limits_changed();                                                            \
	} while (0)

#endif
