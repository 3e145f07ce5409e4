/*
 * debug_letters.h: KMEM_DEBUG texts (debug_options.c), shared with the command kmem, which checks a text before the
 * text goes to another process. Invariant: this header names no structure of the library.
 */
#ifndef KM_DEBUG_LETTERS_H
#define KM_DEBUG_LETTERS_H

#include <kmem/kmem.h>
#include <stdbool.h>

/* Read a KMEM_DEBUG text; the new text replaces the previous one. "help" only prints the list of letters. */
void km_debug_read(const char *text);
/* Returns: true if every letter of `text` is known; else false, with the unknown letter in *letter. */
bool km_debug_fits(const char *text, char *letter);
/* Add SLAB_STORE_USER to every cache created from now on, except caches with SLAB_NOLEAKTRACE or SLAB_NO_USER_FLAGS. */
void km_debug_track_all(void);
/* Translate letters without a list of names into flags. Returns: false if a letter is unknown, or is O. */
bool km_debug_letters(const char *text, slab_flags_t *flags);
/* Compute the flags of a new cache from its name and `flags`. *low: letter O was given; layout flags must not raise the
 * order of the slab. */
slab_flags_t km_debug_flags_of(const char *name, slab_flags_t flags, bool *low);

#endif
