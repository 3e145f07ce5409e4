/*
 * failslab_grammar: feeds texts to the reader of KMEM_FAILSLAB and kmem_failslab (texts.h), beside a reader of the
 * test's own. A text with a wrong word is refused with one line; any other text is accepted, and the numbers are the
 * text's.
 */
#define _GNU_SOURCE
#include <errno.h>

#include <kmem/stats.h>

#include "cache/cache.h"
#include "model/texts.h"
#include "os/die.h"
#include "ext/debug/debug.h"

#define WORD KM_FAILING_WORD	/* bytes of a word, and of the words of one key together */

enum { INTERVAL, PROBABILITY, SPACE, TIMES, VERBOSE, NTH, START, END, SEED, NUMBERS };
static const struct {
	const char *key;
	uint64_t usual, most;
} numbers[NUMBERS] = {
	[INTERVAL] = { "interval", 1, UINT32_MAX }, [PROBABILITY] = { "probability", 0, 100 },
	[SPACE] = { "space", 0, UINT64_MAX }, [TIMES] = { "times", 1, UINT64_MAX }, [VERBOSE] = { "verbose", 1, 2 },
	[NTH] = { "fail-nth", 0, UINT64_MAX }, [START] = { "require-start", 0, UINT64_MAX },
	[END] = { "require-end", UINT64_MAX, UINT64_MAX }, [SEED] = { "seed", 0, UINT64_MAX },
};

struct model {
	uint64_t number[NUMBERS];
	bool seeded;
	size_t caches, callers;		/* bytes used by their patterns, each with its comma */
};

static bool read_number(const char *text, uint64_t *number)
{
	bool hex = !strncasecmp(text, "0x", 2);
	const char *digits = hex ? "0123456789abcdefABCDEF" : "0123456789";
	char *end;

	text += 2 * hex;
	if (!*text || strspn(text, digits) != strlen(text))
		return false;
	errno = 0;
	*number = strtoull(text, &end, hex ? 16 : 10);
	return !errno;
}

static bool add_pattern(size_t *bytes, const char *pattern)
{
	size_t more = strlen(pattern) + 1;

	if (more == 1 || *bytes + more + 1 > WORD)
		return false;
	*bytes += more;
	return true;
}

static bool set(struct model *model, const char *key, const char *value)
{
	for (unsigned i = 0; i < NUMBERS; i++)
		if (!strcmp(key, numbers[i].key)) {
			model->seeded |= i == SEED;
			if (i == TIMES && !strcmp(value, "-1"))
				model->number[i] = UINT64_MAX;
			else if (!read_number(value, &model->number[i]) || model->number[i] > numbers[i].most)
				return false;
			return true;
		}
	if (!strcmp(key, "cache"))
		return add_pattern(&model->caches, value);
	if (!strcmp(key, "caller"))
		return add_pattern(&model->callers, value);
	return (!strcmp(key, "ignore-gfp-wait") || !strcmp(key, "cache-filter")) && strlen(value) == 1 &&
	       strchr("01yYnN", *value);
}

static bool read_text(struct model *model, char *text)
{
	unsigned place = 0;
	char *word;

	*model = (struct model){ 0 };
	for (unsigned i = 0; i < NUMBERS; i++)
		model->number[i] = numbers[i].usual;
	while ((word = strsep(&text, ","))) {
		char *value = strchr(word, '=');

		if (!*word)
			continue;
		if (strlen(word) >= WORD)
			return false;
		if (value)
			*value++ = '\0';
		if (value ? !set(model, word, value) : place > TIMES || !set(model, numbers[place++].key, word))
			return false;
	}
	return true;
}

/* The expected line to repeat the run; "": no call can fail, or no line is due. */
static void line_of(const struct model *model, const char *really, char *line, size_t bytes)
{
	const uint64_t *number = model->number;
	char seed[32] = "";

	if (model->seeded)
		snprintf(seed, sizeof(seed), "%lu", number[SEED]);
	else
		sscanf(really, "libkmem: failslab: seed=%31[0-9]", seed);
	*line = '\0';
	if (number[VERBOSE] && (number[NTH] || (number[PROBABILITY] && number[TIMES])))
		snprintf(line, bytes, "libkmem: failslab: seed=%s,interval=%lu,probability=%lu,space=%lu,times=%ld\n",
			 seed, number[INTERVAL], number[PROBABILITY], number[SPACE], (long)number[TIMES]);
}

static void try_text(const char *given)
{
	char text[TEXTS_MOST + 1], copy[TEXTS_MOST + 1], bad[WORD], line[256];
	struct model model;

	/* The text is a variable's, in one line. */
	snprintf(text, sizeof(text), "%.511s", given);
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ')
			*at = '?';
	strcpy(copy, text);
	bool fits = read_text(&model, copy);
	need(km_failing_fits(text, bad) == fits, text, "it fits, or does not");
	said_begin();
	need(kmem_failslab(text) == (fits ? 0 : -EINVAL), text, "it is taken, or refused");
	if (!fits) {
		need(said_lines("libkmem: kmem_failslab: bad setting: ") == 1 && said_lines("") == 1, text,
		     "one line says which word");
		return;
	}
	line_of(&model, said(), line, sizeof(line));
	need(!strcmp(said(), line), text, "the numbers are others");
	need(kmem_failslab("") == 0, text, "nothing may fail again");
}

TEXTS_TEST("failslab_grammar", "0123456789-1xXaAfF:=,yYnN*ceimnorstuv?\n")
