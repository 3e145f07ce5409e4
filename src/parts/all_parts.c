/*
 * all_parts.c: the optional parts in a program linked with an archive: groups, and the extensions of ext/. Options and
 * requests from outside may need each part. Invariant: no code; the table links the parts by the names of what they
 * register, and entry.c links the table. A program without them is linked with -Wl,--defsym=km_all_parts=0.
 *
 * KM_PARTS(part) is part(NAME) for the registration of each built part. meson.build has the list from the folders.
 */
#include "base/cc.h"

#define DECLARED(name)	extern km_hidden const char name[];
#define ADDRESS(name)	name,
KM_PARTS(DECLARED)

extern km_hidden const void *const km_all_parts[];
const void *const km_all_parts[] = { KM_PARTS(ADDRESS) NULL };
