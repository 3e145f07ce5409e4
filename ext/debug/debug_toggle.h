/*
 * debug_toggle.h: may a cache be debugged while it is used? And requests from outside.
 */
#ifndef KM_DEBUG_DEBUG_TOGGLE_H
#define KM_DEBUG_DEBUG_TOGGLE_H

#include "cache/cache.h"

/* 0, or the error of who asks for it. */
int km_switch_refusal(const struct kmem_cache *cache);

/* mailbox.c: what was asked from outside, and what drains, is looked at. */
void km_control_tick(void);
extern km_hidden struct km_mail_report km_control_report;

#endif
