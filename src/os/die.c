/*
 * die.c: messages without malloc, and the end of the process on misuse. Invariant: no function here allocates,
 * locks, or changes errno.
 */
#include "die.h"

#include <stdarg.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "os.h"
#include "stderr.h"

enum km_misuse_action km_misuse_action;

static km_cold void hear(const char *line, size_t length)
{
	struct km_heard *heard = km_thread.heard;

	if (length > heard->bytes - heard->length)
		return;
	__builtin_memcpy(heard->text + heard->length, line, length);
	heard->length += length;
	km_debug(heard->length <= heard->bytes, "the copied lines fit in the buffer");
}

static void say(const char *format, va_list arguments)
{
	char line[512];
	size_t length = km_format(line, sizeof(line), "libkmem: ");

	length += km_vformat(line + length, sizeof(line) - length - 1, format, arguments);
	line[length++] = '\n';
	if (km_thread.heard)
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
		km_format(suffix, KM_RATELIMIT_SUFFIX, " (%u similar lines were suppressed)", before - RATELIMIT_BURST);
	else if (said == RATELIMIT_BURST - 1)
		km_format(suffix, KM_RATELIMIT_SUFFIX, " (further lines within %u s are only "
						       "counted)", RATELIMIT_MS / 1000);
	return said < RATELIMIT_BURST;
}

static const struct {
	const char *phrase, *next;
} misuses[] = {
#define TEXTS(name, phrase, next) { phrase, next },
	KM_MISUSES(TEXTS)
};

bool km_misuse_goes_on(void)
{
	return km_misuse_action == KM_MISUSE_WARN || km_thread.heard;
}

void km_misuse(enum km_misuse what, const char *function, const void *object, const char *cache)
{
	km_misuse_of(what, function, object, cache, NULL, false);
}

void km_misuse_of(enum km_misuse what, const char *function, const void *object, const char *cache, const char *owner,
		  bool told)
{
	km_debug(what < KM_NR_MISUSES, "a misuse has a phrase");
	km_warn("%s(%s%s%p): %s%s%s; %s", function, cache ?: "", cache ? ", " : "", object, misuses[what].phrase,
		owner ? " " : "", owner ?: "", told ? KM_MISUSE_TOLD : misuses[what].next);
	if (km_thread.heard)
		return;
	if (km_misuse_action == KM_MISUSE_ABORT)
		km_os_abort();
	if (km_misuse_action == KM_MISUSE_TRAP)
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
