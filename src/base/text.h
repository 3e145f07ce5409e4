/*
 * text.h: names and other texts of users. Invariant: the library stores plain names only: km_text_take makes a name
 * plain when the library takes the name. Each output format has one more function for the format's own characters.
 */
#ifndef KM_BASE_TEXT_H
#define KM_BASE_TEXT_H

#include "cc.h"

/* Returns the bytes of the UTF-8 character at `at`; 0: no valid character begins there. */
unsigned km_utf8_bytes(const char *at);
/* Returns: the bytes of a plain character; 0 for control characters, for blanks other than ' ', and for characters of
 * writing direction. */
unsigned km_text_plain(const char *at);
/* Copy whole characters up to a NUL, or to bytes - 1; `to` and `from` may be equal. C0, DEL and the ASCII characters of
 * `others` become `instead`. All other characters and bytes that are not plain become '?'. */
void km_text_take(char *to, size_t bytes, const char *from, const char *others, char instead);
/* Reads the decimal digits at *text, and moves *text behind them. False: no digit, or a number above `most`. */
bool km_text_number(const char **text, uint64_t most, uint64_t *number);
/* Write the next character to `one`, escaped for XML, and move *at past the character. Returns `one`. */
const char *km_text_xml(const char **at, char one[8]);

#endif
