/*
 * die.c: messages without malloc, and the one door through which misuse stops the process. Invariant:
 * nothing here allocates, locks, or changes errno.
 */
#include "die.h"

#include <stdarg.h>

#include "atomic.h"
#include "bits.h"
#include "os.h"
#include "stderr.h"

static struct {
	enum km_misuse_action action;
} die;

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

	if (!spec->left)
		for (size_t i = 0; i < pad; i++)
			put(sink, ' ');
	for (size_t i = 0; i < length; i++)
		put(sink, text[i]);
	if (spec->left)
		for (size_t i = 0; i < pad; i++)
			put(sink, ' ');
}

/* Zeros, up to 40 characters in all, stand behind the sign and the prefix. */
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

		put_number(sink, number < 0 ? -(uint64_t)number : (uint64_t)number, 10, number < 0,
			   "", spec);
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

km_tls struct km_heard *km_heard;

static km_cold void hear(const char *line, size_t length)
{
	struct km_heard *heard = km_heard;

	if (length > heard->bytes - heard->length)
		return;
	__builtin_memcpy(heard->text + heard->length, line, length);
	heard->length += length;
	km_debug(heard->length <= heard->bytes, "no more is heard than there is room for");
}

static void say(const char *format, va_list arguments)
{
	char line[512];
	size_t length = km_format(line, sizeof(line), "libkmem: ");

	length += km_vformat(line + length, sizeof(line) - length - 1, format, arguments);
	line[length++] = '\n';
	if (km_heard)
		hear(line, length);
	int fd = km_stderr(true);
	if (fd >= 0)
		km_os_write(fd, line, length);
}

void km_warn(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
}

#define RATELIMIT_MS	5000u
#define RATELIMIT_BURST	10u

bool km_ratelimit(struct km_ratelimit *limit, char suffix[KM_RATELIMIT_SUFFIX])
{
	uint32_t now = (uint32_t)km_os_now_ms(), begun = km_load(&limit->begun_ms), before = 0;

	if ((!begun || now - begun >= RATELIMIT_MS) && km_cas_acquire(&limit->begun_ms, &begun, now ?: 1))
		before = km_swap_acquire(&limit->said, 0u);
	uint32_t said = km_add(&limit->said, 1u);
	suffix[0] = '\0';
	if (before > RATELIMIT_BURST)
		km_format(suffix, KM_RATELIMIT_SUFFIX, " (%u lines like this were not said)", before - RATELIMIT_BURST);
	else if (said == RATELIMIT_BURST - 1)
		km_format(suffix, KM_RATELIMIT_SUFFIX, " (more of these within %u s are counted)", RATELIMIT_MS / 1000);
	return said < RATELIMIT_BURST;
}

static const char *const phrases[KM_NR_MISUSES] = {
	[KM_MISUSE_FOREIGN] = "pointer is not from this allocator",
	[KM_MISUSE_INTERIOR] = "pointer is not the start of an object",
	[KM_MISUSE_DOUBLE_FREE] = "object already free",
	[KM_MISUSE_WRONG_CACHE] = "object belongs to different cache",
	[KM_MISUSE_NULL_FREE] = "NULL freed",
	[KM_MISUSE_BAD_GFP] = "unexpected gfp bits",
	[KM_MISUSE_DEAD_CACHE] = "cache is destroyed",
	[KM_MISUSE_SHEAF] = "not a prefilled sheaf of this cache",
	[KM_MISUSE_NOT_KMALLOC] = "object is not from kmalloc",
	[KM_MISUSE_HEADER] = "size in front of the object was overwritten",
	[KM_MISUSE_GROUP] = "group is gone",
	[KM_MISUSE_USERCOPY] = "a copy leads out of the object",
	[KM_MISUSE_SIZE] = "freed with another size than it has",
	[KM_MISUSE_SHRINKER] = "called by a shrinker, it would wait for itself",
	[KM_MISUSE_CONSTRUCTOR] = "called by the cache's own constructor",
	[KM_MISUSE_UNCHARGE] = "more uncharged than was charged",
	[KM_MISUSE_OVERWRITTEN] = "object, or what surrounds it, was overwritten",
	[KM_MISUSE_WRITTEN] = "free memory of this page was written to",
};

void km_misuse_set(enum km_misuse_action action)
{
	die.action = action;
}

bool km_misuse_goes_on(void)
{
	return die.action == KM_MISUSE_WARN || km_heard;
}

void km_misuse(enum km_misuse what, const char *function, const void *object, const char *cache)
{
	km_misuse_of(what, function, object, cache, NULL);
}

void km_misuse_of(enum km_misuse what, const char *function, const void *object, const char *cache, const char *owner)
{
	km_debug(what < KM_NR_MISUSES && phrases[what], "a mistake has a phrase");
	if (owner)
		km_warn("%s(%s, %p): %s %s; KMEM_DEBUG=U says who allocated it", function, cache, object, phrases[what],
			owner);
	else if (cache)
		km_warn("%s(%s, %p): %s", function, cache, object, phrases[what]);
	else
		km_warn("%s(%p): %s", function, object, phrases[what]);
	if (km_heard)
		return;
	if (die.action == KM_MISUSE_ABORT)
		km_os_abort();
	if (die.action == KM_MISUSE_TRAP)
		__builtin_trap();
}

void km_panic(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	km_os_abort();
}

void km_assert_failed(const char *condition, const char *sentence, const char *file, int line)
{
	km_panic("%s:%d: assertion failed: %s (%s)", file, line, sentence, condition);
}
