/*
 * fields.h: tables of structures and their fields, for a reader outside of the process, perhaps of another build
 * (cache/process_record.h). A reader finds fields by name, skips unknown names, and must accept missing names.
 * Invariant: a name means the same in every build. A field with a new meaning, bits or unit must get a new name
 * here.
 */
#ifndef KM_BASE_FIELDS_H
#define KM_BASE_FIELDS_H

#include "cc.h"

#define KM_FIELD_NAME_BYTES	32u

/*
 * Entry of a table: for each structure an entry with its name and bytes, followed by an entry for each field; and
 * entries for constants. The name ends with a NUL. This layout never changes: a table of another layout has another
 * KM_ROOT_MAJOR.
 */
struct km_field {
	char name[KM_FIELD_NAME_BYTES];	/* "cache", "cache.size", "const.area_shift" */
	uint64_t offset;		/* structure: bytes; constant: value; field: offset in bytes */
	uint32_t each;			/* bytes of an element; structure, constant: 0 */
	uint32_t count;			/* number of elements; 1: not an array */
};

#define KM_FIELD_STRUCT(kind, type)	{ kind, sizeof(type), 0, 0 }
#define KM_FIELD_CONST(name, value)	{ "const." name, value, 0, 0 }
/* An integer, a boolean or a pointer. */
#define KM_FIELD_AS(name, type, member)	{ name, offsetof(type, member), sizeof(((type *)0)->member), 1 }
#define KM_FIELD_IN(kind, type, member)	KM_FIELD_AS(kind "." #member, type, member)
#define KM_FIELD_ARRAY_AS(name, type, member) \
	{ name, offsetof(type, member), sizeof(((type *)0)->member[0]), km_array_count(((type *)0)->member) }
#define KM_FIELD_ARRAY(kind, type, member)	KM_FIELD_ARRAY_AS(kind "." #member, type, member)

#endif
