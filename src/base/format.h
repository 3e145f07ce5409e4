/* format.h: formatted text in a buffer, without malloc. */
#ifndef KM_BASE_FORMAT_H
#define KM_BASE_FORMAT_H

#include "cc.h"

/* Format into buffer, always terminated: %s %c %d %i %u %x %lu %ld %lx %zu %p and widths. Returns: the length. */
size_t km_format(char *buffer, size_t bytes, const char *format, ...) km_printf(3, 4);
size_t km_vformat(char *buffer, size_t bytes, const char *format, __builtin_va_list arguments);

#endif
