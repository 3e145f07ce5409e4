/*
 * text.h: texts of users, names above all, on their way into the library and out of it. A name is made plain once, when
 * it is taken; each format has one function more, which writes what the format would take for its own.
 */
#ifndef KM_PORT_TEXT_H
#define KM_PORT_TEXT_H

#include "cc.h"

/* Bytes of the UTF-8 character that begins here; 0: none does. */
unsigned km_utf8_bytes(const char *at);
/* The same of a character that every reader shows as itself: no control character, no blank but ' ', none that turns
 * the direction of a line. */
unsigned km_text_plain(const char *at);
/*
 * Copy whole characters up to a NUL, or to bytes - 1, perhaps in place. C0, DEL and characters of `others`, which are
 * ASCII, become `instead`; what else is not plain becomes '?'.
 */
void km_text_take(char *to, size_t bytes, const char *from, const char *others, char instead);
/* The next character as XML has it, in `one`; *at moves behind it. Returns `one`. */
const char *km_text_xml(const char **at, char one[8]);

#endif
