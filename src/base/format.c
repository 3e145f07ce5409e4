/*
 * format.c: formatted text in a buffer of the caller's. Invariant: no function here allocates, locks, changes errno or
 * writes beyond the buffer, and the text ends with a NUL.
 */
#include "format.h"

#include <stdarg.h>

#include "bits.h"

struct sink {
	char *at, *end;
};

static void put(struct sink *sink, char c)
{
	if (sink->at < sink->end)
		*sink->at++ = c;
}

struct spec {
	bool left, zero, is_long;
	int width;
};

static void put_padded(struct sink *sink, const char *text, size_t length, const struct spec *spec)
{
	size_t pad = spec->width > (int)length ? (size_t)spec->width - length : 0;

	for (size_t i = 0; !spec->left && i < pad; i++)
		put(sink, ' ');
	for (size_t i = 0; i < length; i++)
		put(sink, text[i]);
	for (size_t i = 0; spec->left && i < pad; i++)
		put(sink, ' ');
}

/* Put a number. Zeros for the width, up to 40 characters in all, follow the sign and the prefix. */
static void put_number(struct sink *sink, uint64_t number, unsigned base, bool negative,
		       const char *prefix, const struct spec *spec)
{
	char digits[40];
	size_t n = sizeof(digits), most = n - 3, zeros = spec->zero && !spec->left ? (size_t)spec->width : 0;

	do
		digits[--n] = "0123456789abcdef"[number % base];
	while (number /= base);
	for (size_t extra = negative + __builtin_strlen(prefix); sizeof(digits) - n + extra < km_min(zeros, most);)
		digits[--n] = '0';
	for (size_t i = __builtin_strlen(prefix); i--;)
		digits[--n] = prefix[i];
	if (negative)
		digits[--n] = '-';
	put_padded(sink, digits + n, sizeof(digits) - n, spec);
}

static const char *parse_spec(const char *f, struct spec *spec)
{
	*spec = (struct spec){ 0 };
	for (; *f == '-' || *f == '0'; f++)
		*(*f == '-' ? &spec->left : &spec->zero) = true;
	for (; *f >= '0' && *f <= '9'; f++)
		spec->width = spec->width * 10 + (*f - '0');
	for (; *f == 'l' || *f == 'z'; f++)
		spec->is_long = true;
	return f;
}

static void put_argument(struct sink *sink, char kind, const struct spec *spec, va_list *arguments)
{
	switch (kind) {
	case 's': {
		const char *text = va_arg(*arguments, const char *);
		size_t length = 0;

		for (text = text ? text : "(null)"; text[length]; length++)
			;
		put_padded(sink, text, length, spec);
		break;
	}
	case 'c':
		put(sink, (char)va_arg(*arguments, int));
		break;
	case 'd':
	case 'i': {
		int64_t number = spec->is_long ? va_arg(*arguments, long) : va_arg(*arguments, int);

		put_number(sink, number < 0 ? -(uint64_t)number : (uint64_t)number, 10, number < 0, "", spec);
		break;
	}
	case 'u':
	case 'x': {
		uint64_t number = spec->is_long ? va_arg(*arguments, unsigned long) :
						  va_arg(*arguments, unsigned int);

		put_number(sink, number, kind == 'x' ? 16 : 10, false, "", spec);
		break;
	}
	case 'p':
		put_number(sink, (uintptr_t)va_arg(*arguments, void *), 16, false, "0x", spec);
		break;
	default:
		put(sink, kind);
	}
}

size_t km_vformat(char *buffer, size_t bytes, const char *format, va_list arguments)
{
	struct sink sink = { buffer, buffer + bytes - 1 };
	va_list copy;

	va_copy(copy, arguments);
	for (const char *f = format; *f; f++) {
		struct spec spec;

		if (*f != '%') {
			put(&sink, *f);
			continue;
		}
		f = parse_spec(f + 1, &spec);
		if (!*f)
			break;
		put_argument(&sink, *f, &spec, &copy);
	}
	va_end(copy);
	*sink.at = '\0';
	return (size_t)(sink.at - buffer);
}

size_t km_format(char *buffer, size_t bytes, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	size_t length = km_vformat(buffer, bytes, format, arguments);
	va_end(arguments);
	return length;
}
