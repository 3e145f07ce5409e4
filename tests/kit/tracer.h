/*
 * tracer.h: simulates a tracer that attaches to the probes of the fast path, or detaches. The library notices on the
 * slow path.
 */
#ifndef TESTS_KIT_TRACER_H
#define TESTS_KIT_TRACER_H

#include "alloc/fast_path.h"
#include "kit/check.h"
#include "ext/usdt/usdt.h"

static void tracer_is(bool there)
{
	static void *kept[200000];
	unsigned count = 0;

	km_probe_counts.of.kmem_cache_alloc = there;
	while (!(km_load(&km_alloc_probing) & KM_PROBING_TRACER) == there) {
		NEED(count < sizeof(kept) / sizeof(*kept));
		NEED((kept[count++] = kmalloc(64, GFP_KERNEL)));
	}
	while (count)
		kfree(kept[--count]);
}

#endif
