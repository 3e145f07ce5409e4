/* heard.h: captures the library's messages in this thread. While captured, a misuse does not end the process. */
#ifndef TESTS_KIT_HEARD_H
#define TESTS_KIT_HEARD_H

#include <string.h>

#include "os/die.h"

static char heard_text[8192];
static struct km_heard heard_record;

static inline void listen_to_library(void)
{
	heard_record = (struct km_heard){ .text = heard_text, .bytes = sizeof(heard_text) - 1 };
	km_thread.heard = &heard_record;
}

/* Ends the capture. Returns: the captured text. */
static inline const char *heard(void)
{
	km_thread.heard = NULL;
	heard_text[heard_record.length] = '\0';
	return heard_text;
}

/* Checks that the statement prints the phrase, or, with NULL, nothing. */
#define SAYS(phrase, statement)                                                                    \
	do {                                                                                       \
		const char *phrase_ = (phrase), *text_;                                            \
		listen_to_library();                                                               \
		statement;                                                                         \
		text_ = heard();                                                                   \
		CHECK(phrase_ ? strstr(text_, phrase_) != NULL : !text_[0], "%s: %s", #statement, text_); \
	} while (0)

#endif
