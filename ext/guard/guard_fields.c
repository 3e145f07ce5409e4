/*
 * guard_fields.c: field offsets of a guarded object's slot, for readers outside the process, like
 * cache/cache_fields.c for caches. Invariant: see base/fields.h.
 */
#include "guard.h"

_Static_assert(KM_GUARD_TAKEN == KMEM_RECORD_GUARD_TAKEN, "readers know the state");

#define SLOT(member)	KM_FIELD_IN("slot", struct km_guard_slot, member)

const struct kmem_record_field km_guard_fields[] = {
	KM_FIELD_STRUCT("slot", struct km_guard_slot),
	SLOT(state), SLOT(bytes), SLOT(object), SLOT(cache), SLOT(track[0].when),
	KM_FIELD_ARRAY("slot", struct km_guard_slot, track[0].frame),
};
const unsigned km_guard_field_count = km_array_count(km_guard_fields);
