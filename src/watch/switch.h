/*
 * switch.h: may a cache be debugged while it is used? For switch.c and control.c.
 */
#ifndef KM_WATCH_SWITCH_H
#define KM_WATCH_SWITCH_H

#include "../cache/cache.h"

/* 0, or the error of who asks for it. */
int km_switch_refusal(const struct kmem_cache *cache);

#endif
