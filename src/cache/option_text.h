/*
 * option_text.h: checks of the texts of options, shared with the command kmem, which checks a text before the text goes
 * to another process. Invariant: this header names no structure of the library.
 */
#ifndef KM_CACHE_OPTION_TEXT_H
#define KM_CACHE_OPTION_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Defined by a program, such as the command kmem, whose environment is meant for another program. If the function
 * returns true, this copy of the library ignores the variables. Context: called at the start; may not allocate. */
bool km_options_for_others(void) __attribute__((weak));
enum km_option_fit { KM_OPTION_FITS, KM_OPTION_BAD, KM_OPTION_UNKNOWN };
/* Apply one option in this process. A NULL value fits no option but help. */
enum km_option_fit km_option_apply(const char *key, const char *value);
/* Parse a number of bytes, with an optional suffix K, M, G or T (either case; powers of 1024), as 1.5G. Returns:
 * false for other text, or 0. */
bool km_parse_bytes(const char *text, uint64_t *bytes);

/* Validate a text for KMEM_FAILSLAB. Returns: false after copying the first bad word to *bad, a buffer of
 * KM_FAILING_WORD bytes. */
#define KM_FAILING_WORD 256u
bool km_failing_fits(const char *text, char *bad);

#endif
