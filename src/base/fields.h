/*
 * fields.h: entries of the tables of fields in the record of the process (<kmem/record.h>). Invariant: a name means
 * the same in every build. A field with a new meaning, bits or unit must get a new name here.
 */
#ifndef KM_BASE_FIELDS_H
#define KM_BASE_FIELDS_H

#include <kmem/record.h>

#include "cc.h"

#define KM_FIELD_STRUCT(kind, type)	{ kind, sizeof(type), 0, 0 }
#define KM_FIELD_CONST(name, value)	{ "const." name, value, 0, 0 }
/* An integer, a boolean or a pointer. */
#define KM_FIELD_AS(name, type, member)	{ name, offsetof(type, member), sizeof(((type *)0)->member), 1 }
#define KM_FIELD_IN(kind, type, member)	KM_FIELD_AS(kind "." #member, type, member)
#define KM_FIELD_ARRAY_AS(name, type, member) \
	{ name, offsetof(type, member), sizeof(((type *)0)->member[0]), km_array_count(((type *)0)->member) }
#define KM_FIELD_ARRAY(kind, type, member)	KM_FIELD_ARRAY_AS(kind "." #member, type, member)

#endif
