/*
 * plain_texts: a name is copied by whole characters of UTF-8, with any contents and any cut: the copy is plain, fits
 * its room, and is unchanged by a second copy; no byte behind the permitted ones is read. The copy has no mark of
 * XML. Texts are random, the same each time.
 */
#include <stdlib.h>

#include "kit/check.h"
#include "kit/random.h"
#include "base/text.h"

static const char *const pieces[] = {
	"a", "z", " ", "/", "<", ">", "&", "\"", "'", "\\", "\n", "\x1b", "\x7f", "\xc3\xa4", "\xe2\x82\xac",
	"\xf0\x9f\x98\x80",
	"\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xae", "\xef\xbf\xbe", "\xff", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98",
	"\xc0\xaf",
	"\xed\xa0\x80", "\xf4\x90\x80\x80", "\xef\xbb\xbf",
};

static bool is_plain(const char *text)
{
	for (unsigned bytes; *text; text += bytes)
		if (!(bytes = km_text_plain(text)))
			return false;
	return true;
}

static void each_room(const char *text)
{
	for (size_t room = 1; room < strlen(text) + 3; room++) {
		/* Exactly as long as may be read. */
		size_t bytes = strnlen(text, room - 1) + (strlen(text) < room - 1);
		char *from = malloc(bytes ?: 1), *to = malloc(room), again[256], shorter[256];

		memcpy(from, text, bytes);
		km_text_take(to, room, bytes ? from : "", " /", '_');
		NEED(strlen(to) < room && is_plain(to) && !strpbrk(to, " /"), "(room %zu: %s)", room, to);
		km_text_take(again, sizeof(again), to, " /", '_');
		NEED(!strcmp(again, to));
		/* The copy differs from a longer one only in its end. */
		km_text_take(shorter, sizeof(shorter), text, " /", '_');
		NEED(!strncmp(shorter, to, strlen(to)), "(room %zu: %s, %s)", room, to, shorter);
		NEED(room <= strlen(text) + 1 || !strcmp(shorter, to));
		memcpy(again, to, strlen(to) + 1);
		km_text_take(again, sizeof(again), again, " /", '_');
		NEED(!strcmp(again, to));
		free(from), free(to);
	}
}

static void as_xml(const char *text)
{
	char one[8];

	for (const char *at = text; *at;) {
		const char *before = at;

		NEED(km_text_xml(&at, one) == one && at > before && *one && is_plain(one));
		NEED(*one == '&' ? one[1] == '#' && one[strlen(one) - 1] == ';' : !strpbrk(one, "<>&\"'"));
	}
}

int main(void)
{
	for (int round = 0; round < 3000; round++) {
		char text[128] = "";

		for (unsigned left = (unsigned)random_below(20) + 1; left--;)
			strcat(text, pieces[random_below(sizeof(pieces) / sizeof(*pieces))]);
		each_room(text);
		as_xml(text);
	}
	return 0;
}
