/* helper_thread.h: a thread of ours, begun in the midst of a call of the program's (helper_thread.c). */
#ifndef KM_INSPECT_HELPER_THREAD_H
#define KM_INSPECT_HELPER_THREAD_H

#include "base/cc.h"

/* May this tick begin one? A later one may, where it may not. */
bool km_helper_may(void);
/* It runs the function, and ends. False: there is none to be had. Where km_helper_may says so, with the front busy. */
bool km_helper_begin(void (*function)(void));

#endif
