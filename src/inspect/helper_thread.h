/* helper_thread.h: a helper thread, started inside of a program's call (helper_thread.c). */
#ifndef KM_INSPECT_HELPER_THREAD_H
#define KM_INSPECT_HELPER_THREAD_H

#include "base/cc.h"

/* Returns: true if the current tick may start a helper thread. A later tick may succeed after false. */
bool km_helper_may(void);
/*
 * Start a thread that runs `function` and ends. Returns: false if no thread can be created. Requires: km_helper_may()
 * returned true. Context: km_thread.busy is set.
 */
bool km_helper_begin(void (*function)(void));

#endif
