/*
 * debug_grammar: feeds texts to the reader of KMEM_DEBUG (texts.h). A cache's flags are its own and known ones; a
 * block that only adds a list of other names has no effect.
 */
#define _GNU_SOURCE

#include "model/texts.h"
#include "os/die.h"
#include "ext/debug/debug.h"

#define MOST 511u	/* the variable's */

static const char *const names[] = { "a", "kmalloc-64", "kmalloc-cg-8k", "malloc-64", "*", "b_c" };

static void try_text(const char *given)
{
	slab_flags_t flags[sizeof(names) / sizeof(names[0])];
	char text[MOST + 1], longer[MOST + 1];
	bool low;

	snprintf(text, sizeof(text), "%s", given);
	said_begin();
	km_debug_read(text);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		flags[i] = km_debug_flags_of(names[i], SLAB_PANIC, &low);
		need(flags[i] & SLAB_PANIC && !(flags[i] & ~(KM_DEBUG_FLAGS | SLAB_FAILSLAB | SLAB_PANIC)), text,
		     "flags that there are not");
	}
	if (!strcmp(text, "help") || !*text || strlen(text) > MOST - 8)
		return;
	snprintf(longer, sizeof(longer), "%s;FZ,zz", text);
	km_debug_read(longer);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		need(km_debug_flags_of(names[i], SLAB_PANIC, &low) == flags[i], text,
		     "a list of others' names matters");
}

TEXTS_TEST("debug_grammar", "FZPUTAO-,;*ab\n?")
