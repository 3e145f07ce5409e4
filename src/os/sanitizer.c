/*
 * sanitizer.c: the sanitizers in the process, and the hook of their extension (sanitizer.h). Invariant: only the
 * hook's start writes km_sanitizer.
 */
#include "sanitizer.h"

struct km_sanitizer km_sanitizer;
const struct km_sanitizer_ops *km_sanitizer_ops;
