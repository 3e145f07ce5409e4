/*
 * texts.h: for tests that feed texts to a reader of settings. A test defines try_text, uses TEXTS_TEST(NAME, LIKELY),
 * and has a corpus in tests/model/NAME/. Built with -DKM_LIBFUZZER the test is an entry for libFuzzer (FUZZ=NAME
 * tests/model/fuzz.sh). Without, as `make tests` builds it, the test reads the corpus, and each text changed in many
 * ways: bytes change, come and go, and pieces of other texts replace them. SEED=n: the same texts in the same order.
 * Named files are read unchanged. CHECK_LONG=1: an hour for all.
 */
#ifndef MODEL_TEXTS_H
#define MODEL_TEXTS_H

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kit/descriptors.h"
#include "kit/random.h"

#define TEXTS_MOST 599u

/* Ends the process if `truth` is false, with the text in the form of printf(1). */
__attribute__((unused)) static void need(bool truth, const char *text, const char *what)
{
	if (truth)
		return;
	printf("%s: printf '", what);
	for (; *text; text++)
		printf(isalnum((unsigned char)*text) || strchr(",:;=-_*.? ", *text) ? "%c" : "\\%03o",
		       (unsigned char)*text);
	printf("'\n");
	fflush(stdout);
	abort();
}

static void try_text(const char *text);

static void texts_try(const uint8_t *data, size_t bytes)
{
	char text[TEXTS_MOST + 1];

	bytes = bytes < TEXTS_MOST ? bytes : TEXTS_MOST;
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	try_text(text);
}

#ifdef KM_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
#define TEXTS_TEST(name, likely)                                                                   \
	int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)                              \
	{                                                                                          \
		texts_try(data, bytes);                                                            \
		return 0;                                                                          \
	}
#else
#include <glob.h>
#include <time.h>

#define TEXTS_ROUNDS 8000u

struct text {
	uint8_t data[TEXTS_MOST];
	size_t bytes;
};

static void texts_read(const char *path, struct text *text)
{
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		exit(1);
	}
	text->bytes = fread(text->data, 1, sizeof(text->data), file);
	fclose(file);
}

/* A piece of another text replaces the part that begins at `at`, or goes before it. */
static void texts_graft(struct text *text, size_t at, const struct text *other, uint64_t *state)
{
	size_t from = random_next(state) % (other->bytes + 1);
	size_t length = random_next(state) % (other->bytes - from + 1);
	size_t behind = text->bytes - at;

	if (random_next(state) % 2)
		behind -= length < behind ? length : behind;
	if (at + length + behind > TEXTS_MOST)
		return;
	memmove(text->data + at + length, text->data + text->bytes - behind, behind);
	memcpy(text->data + at, other->data + from, length);
	text->bytes = at + length + behind;
}

static void texts_change(struct text *text, const struct text *other, const char *likely, uint64_t *state)
{
	for (uint64_t n = 1 + random_next(state) % 5; n--;) {
		size_t at = random_next(state) % (text->bytes + 1);
		uint64_t how = random_next(state) % 8;
		/* With the character that ends a text. */
		uint8_t c = (uint8_t)likely[random_next(state) % (strlen(likely) + 1)];

		if (!(random_next(state) % 8))
			c = (uint8_t)random_next(state);
		if (how < 3 && at < text->bytes) {
			text->data[at] = c;
		} else if (how < 5 && at < text->bytes) {
			memmove(text->data + at, text->data + at + 1, --text->bytes - at);
		} else if (how == 7) {
			texts_graft(text, at, other, state);
		} else if (text->bytes < TEXTS_MOST) {
			memmove(text->data + at + 1, text->data + at, text->bytes++ - at);
			text->data[at] = c;
		}
	}
}

/* The same texts by the same seed, however many there is time for. */
static unsigned long texts_vary(const glob_t *found, size_t i, const char *likely, uint64_t seed, time_t end)
{
	uint64_t state = seed ^ (uint64_t)i << 32;
	static struct text text, other, changed;
	unsigned long count = 0;

	texts_read(found->gl_pathv[i], &text);
	texts_try(text.data, text.bytes);
	for (; count < TEXTS_ROUNDS || time(NULL) < end; count++) {
		if (count % 64 == 0)
			texts_read(found->gl_pathv[random_next(&state) % found->gl_pathc], &other);
		/* Now and then the next change starts from the last text. */
		if (count % 4 == 0)
			changed = text;
		texts_change(&changed, &other, likely, &state);
		texts_try(changed.data, changed.bytes);
	}
	return count;
}

static int texts_main(int argc, char **argv, const char *name, const char *likely)
{
	const char *seed = getenv("SEED") ?: "20261123";
	unsigned long count = 0;
	static struct text text;
	char pattern[128];
	glob_t found;

	for (int i = 1; i < argc; i++) {
		texts_read(argv[i], &text);
		texts_try(text.data, text.bytes);
	}
	if (argc > 1)
		return 0;
	snprintf(pattern, sizeof(pattern), "tests/model/%s/*", name);
	if (glob(pattern, 0, NULL, &found)) {
		printf("no corpus: start this in the root of the repository\n");
		return 2;
	}
	printf("SEED=%s\n", seed);
	fflush(stdout);
	for (size_t i = 0; i < found.gl_pathc; i++)
		count += texts_vary(&found, i, likely, strtoul(seed, NULL, 0),
				    time(NULL) + (getenv("CHECK_LONG") ? 3600 / (time_t)found.gl_pathc : 0));
	printf("%lu texts, made of %zu\n", count, found.gl_pathc);
	globfree(&found);
	return 0;
}

#define TEXTS_TEST(name, likely)                                                                   \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return texts_main(argc, argv, name, likely);                                       \
	}
#endif

/* ------------------------------------------------------------------ output meanwhile */

static int texts_said_fd = -1;

/* Output before this call does not count. */
__attribute__((unused)) static void said_begin(void)
{
	if (texts_said_fd < 0) {
		texts_said_fd = memfd_create("said", 0);
		dup2(texts_said_fd, 2);
	}
	if (ftruncate(texts_said_fd, 0) || lseek(2, 0, SEEK_SET))
		abort();
}

/* Returns: the lines since then, until the next output. */
__attribute__((unused)) static const char *said(void)
{
	static char text[1 << 16];
	ssize_t bytes = pread(texts_said_fd, text, sizeof(text) - 1, 0);

	text[bytes > 0 ? bytes : 0] = '\0';
	return text;
}

/* Returns: the number of lines that begin with these words. */
__attribute__((unused)) static unsigned said_lines(const char *words)
{
	unsigned count = 0;

	for (const char *at = said(); *at; at = strchr(at, '\n') + 1) {
		count += !strncmp(at, words, strlen(words));
		if (!strchr(at, '\n'))
			break;
	}
	return count;
}

#endif
