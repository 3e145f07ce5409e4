/*
 * die.c: messages without malloc, and the one door through which misuse stops the process. Invariant:
 * nothing here allocates, locks, or changes errno.
 */
#include "die.h"

#include <stdarg.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "os.h"
#include "stderr.h"

static struct {
	enum km_misuse_action action;
} die;

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
	[KM_MISUSE_CHILD] = "the child calls the library, in its parent's memory",
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
