/*
 * fields.h: structures that say where their fields are, for readers outside of the process that may be of another
 * build (cache/process_record.h). A reader goes by names: it passes over those that it does not know, and does
 * without those that are missing. Invariant: a name means the same in every build. A field whose meaning changes,
 * bits or unit, gets another name here.
 */
#ifndef KM_BASE_FIELDS_H
#define KM_BASE_FIELDS_H

#include "cc.h"

#define KM_FIELD_NAME_BYTES	32u

/*
 * The content of a table: for each structure a line with its name and its bytes, behind it a line for each of its
 * fields; and constants. The name is ended by a NUL. This drawing never changes: a table of another one has another
 * KM_ROOT_MAJOR.
 */
struct km_field {
	char name[KM_FIELD_NAME_BYTES];	/* "cache", "cache.size", "const.area_shift" */
	uint64_t offset;		/* structure: its bytes; constant: its value */
	uint32_t each;			/* bytes of an element; structure, constant: 0 */
	uint32_t count;			/* elements; 1: it is no array */
};

#define KM_FIELD_STRUCT(kind, type)	{ kind, sizeof(type), 0, 0 }
#define KM_FIELD_CONST(name, value)	{ "const." name, value, 0, 0 }
/* An integer, a truth value or a pointer. */
#define KM_FIELD_AS(name, type, member)	{ name, offsetof(type, member), sizeof(((type *)0)->member), 1 }
#define KM_FIELD_IN(kind, type, member)	KM_FIELD_AS(kind "." #member, type, member)
#define KM_FIELD_ARRAY(kind, type, member) \
	{ kind "." #member, offsetof(type, member), sizeof(((type *)0)->member[0]), \
	  km_array_count(((type *)0)->member) }

#endif
