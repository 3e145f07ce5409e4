/* apart.h: a thread of ours, begun in the midst of a call of the program's (apart.c). */
#ifndef KM_INSPECT_APART_H
#define KM_INSPECT_APART_H

#include "base/cc.h"

/* May this tick begin one? A later one may, where it may not. */
bool km_apart_may(void);
/* It runs the function, and ends. False: there is none to be had. Where km_apart_may says so, with the front busy. */
bool km_apart_begin(void (*function)(void));

#endif
