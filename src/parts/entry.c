/*
 * entry.c: the reference by which a program linked with an archive has all parts (all_parts.c). Invariant: no code. In
 * the archives this object and cache/boot.c's are one, which each program has, and no lower floor names a part.
 */
#include "base/cc.h"

extern km_hidden const void *const km_all_parts[];
static const void *const *const all_parts __attribute__((used)) = km_all_parts;
