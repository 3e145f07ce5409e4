/* sanitize.h: declarations shared by the sanitizer extension. */
#ifndef KM_SANITIZE_H
#define KM_SANITIZE_H

#include "slab/engine.h"

extern km_hidden const struct km_sanitizer_ops km_sanitizing;
extern km_hidden const struct km_hooks km_sanitizer_hooks;	/* sanitize_cache.c */

#endif
