/*
 * text.c: texts of users: UTF-8, plain characters, XML. Invariant: no function reads beyond a NUL, or beyond the given
 * number of bytes, and no function writes a part of a character.
 */
#include "text.h"

#include "bits.h"
#include "format.h"

unsigned km_utf8_bytes(const char *at)
{
	const unsigned char *text = (const unsigned char *)at;
	unsigned bytes = *text < 0x80 ? 1 : *text >= 0xc2 && *text < 0xe0 ? 2 :
			 *text >= 0xe0 && *text < 0xf0 ? 3 : *text >= 0xf0 && *text < 0xf5 ? 4 : 0;

	for (unsigned i = 1; i < bytes; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong form, half of a UTF-16 pair, or beyond the last character. */
	const bool low = text[0] && text[1] < (text[0] == 0xe0 ? 0xa0 : 0x90);
	if (bytes > 2 && ((low && (*text == 0xe0 || *text == 0xf0)) || (*text == 0xed && text[1] >= 0xa0) ||
			  (*text == 0xf4 && !low)))
		return 0;
	return bytes;
}

/* Control characters (some terminals obey U+0080 to U+009F), blanks, marks of direction, characters not in XML. */
static const struct {
	uint16_t first, last;
} odd[] = {
	{ 0, 0x1f }, { 0x7f, 0xa0 }, { 0x1680, 0x1680 }, { 0x2000, 0x200b }, { 0x200e, 0x200f }, { 0x2028, 0x202f },
	{ 0x205f, 0x206f }, { 0x3000, 0x3000 }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xfffe, 0xffff },
};

unsigned km_text_plain(const char *at)
{
	static const uint8_t first[] = { 0xff, 0x7f, 0x1f, 0x0f, 0x07 };
	unsigned bytes = km_utf8_bytes(at);
	uint32_t code = (unsigned char)*at & first[bytes];

	for (unsigned i = 1; i < bytes; i++)
		code = code << 6 | ((unsigned char)at[i] & 0x3f);
	for (unsigned i = 0; i < km_array_count(odd); i++)
		if (code >= odd[i].first && code <= odd[i].last)
			return 0;
	return bytes;
}

void km_text_take(char *to, size_t bytes, const char *from, const char *others, char instead)
{
	const char *end = from;
	size_t length = 0;

	while ((size_t)(end - from) < bytes - 1 && *end)
		end++;
	const bool cut = (size_t)(end - from) == bytes - 1;
	for (unsigned each; from < end; from += each) {
		char ahead[5] = "";
		__builtin_memcpy(ahead, from, km_min((size_t)(end - from), (size_t)4));
		const unsigned char lead = (unsigned char)*ahead;
		const bool control = lead < ' ' || lead == 0x7f || __builtin_strchr(others, lead);
		const unsigned plain = control ? 0 : km_text_plain(ahead);
		each = km_utf8_bytes(ahead);
		/* The end of the text cuts the character. */
		if (cut && !each && end - from < 1 + (lead >= 0xc2) + (lead >= 0xe0) + (lead >= 0xf0))
			break;
		each = each ?: 1;
		if (!plain)
			*ahead = control ? instead : '?';
		__builtin_memcpy(to + length, ahead, plain ?: 1);
		length += plain ?: 1;
	}
	km_debug(length < bytes, "a text has room for its end");
	to[length] = '\0';
}

const char *km_text_xml(const char **at, char one[8])
{
	unsigned plain = km_text_plain(*at);

	km_debug(**at, "a character is left");
	if (plain == 1 && __builtin_strchr("<>&\"'", **at)) {
		km_format(one, 8, "&#%u;", (unsigned)**at);
	} else {
		__builtin_memcpy(one, plain ? *at : "?", plain ?: 1);
		one[plain ?: 1] = '\0';
	}
	*at += km_utf8_bytes(*at) ?: 1;
	return one;
}

bool km_text_number(const char **text, uint64_t most, uint64_t *number)
{
	const char *first = *text;

	for (*number = 0; **text >= '0' && **text <= '9'; ++*text)
		if (__builtin_mul_overflow(*number, 10u, number) ||
		    __builtin_add_overflow(*number, (uint64_t)(**text - '0'), number) || *number > most)
			return false;
	return *text != first;
}
