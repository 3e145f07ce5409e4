/*
 * sanitizer.c: the sanitizers in the process, and the hook of the extension that knows them (sanitizer.h). Invariant:
 * the hook's start writes km_sanitizer, and no other function does.
 */
#include "sanitizer.h"

struct km_sanitizer km_sanitizer;
const struct km_sanitizer_ops *km_sanitizer_ops;
