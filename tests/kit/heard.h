/* heard.h: what the library says in this thread while a test listens: no misuse that it finds then ends the process. */
#ifndef TESTS_KIT_HEARD_H
#define TESTS_KIT_HEARD_H

#include <string.h>

#include "os/die.h"

static char heard_text[8192];
static struct km_heard heard_record;

static inline void listen_to_library(void)
{
	heard_record = (struct km_heard){ .text = heard_text, .bytes = sizeof(heard_text) - 1 };
	km_heard = &heard_record;
}

/* What was said, and no more is heard. */
static inline const char *heard(void)
{
	km_heard = NULL;
	heard_text[heard_record.length] = '\0';
	return heard_text;
}

/* Of a statement: it is said so, or, with NULL, nothing is. */
#define SAYS(phrase, statement)                                                                    \
	do {                                                                                       \
		const char *phrase_ = (phrase), *text_;                                            \
		listen_to_library();                                                               \
		statement;                                                                         \
		text_ = heard();                                                                   \
		CHECK(phrase_ ? strstr(text_, phrase_) != NULL : !text_[0], "%s: %s", #statement, text_); \
	} while (0)

#endif
