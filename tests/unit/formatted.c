/*
 * formatted: km_format agrees with libc's snprintf, for all conversions listed in die.h, with widths, zeros and left
 * alignment; a buffer of any length gets the text that fits, with its end. Unknown conversions are skipped.
 */
#include <limits.h>
#include <stdint.h>

#include "kit/check.h"
#include "os/die.h"

#define BOTH(...)                                                                                  \
	do {                                                                                       \
		char ours[128], libcs[128];                                                        \
		size_t length = km_format(ours, sizeof(ours), __VA_ARGS__);                        \
		int wanted = snprintf(libcs, sizeof(libcs), __VA_ARGS__);                          \
                                                                                                   \
		CHECK(!strcmp(ours, libcs), "'%s', not '%s'", ours, libcs);                         \
		CHECK_EQUAL(length, wanted);                                                       \
	} while (0)

static void conversions(void)
{
	static const long numbers[] = { 0, 1, -1, 9, 10, -10, 4711, INT_MAX, INT_MIN, LONG_MAX, LONG_MIN };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		int n = (int)numbers[i];

		BOTH("%d|%i|%u|%x", n, n, (unsigned)n, (unsigned)n);
		BOTH("%3d|%12d|%-12d|%012d|%02d|%-6u|%08x", n, n, n, n, n, (unsigned)n, (unsigned)n);
		BOTH("%ld|%24ld|%-24ld|%024ld", numbers[i], numbers[i], numbers[i], numbers[i]);
		BOTH("%lu|%lx|%024lu|%zu", (unsigned long)numbers[i], (unsigned long)numbers[i],
		     (unsigned long)numbers[i], (size_t)numbers[i]);
	}
	BOTH("%p %20p %-20p|", (void *)conversions, (void *)conversions, (void *)conversions);
	BOTH("%s|%10s|%-10s|%2s|%c%c", "text", "text", "text", "text", 'a', 'b');
	BOTH("no conversion, and 100%%");
}

/* A wrong format of a warning: the call returns, and reads no missing argument. */
static void unknown(void)
{
	char text[32];
	const char *bad = "%q|%", *volatile none = NULL;

	km_format(text, sizeof(text), "%s", none);
	CHECK(!strcmp(text, "(null)"), "%s", text);
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
	km_format(text, sizeof(text), bad);
	CHECK(!strcmp(text, "q|"), "%s", text);
}

static void every_length(void)
{
	const char *whole = "a name of 4711 bytes at 0x10";
	char text[64];

	for (size_t bytes = 1; bytes + 1 < sizeof(text); bytes++) {
		size_t fits = bytes - 1 < strlen(whole) ? bytes - 1 : strlen(whole);

		memset(text, '#', sizeof(text));
		CHECK_EQUAL(km_format(text, bytes, "a %s of %d bytes at %p", "name", 4711, (void *)0x10), fits);
		CHECK(!memcmp(text, whole, fits) && !text[fits] && text[bytes] == '#', "%zu bytes", bytes);
	}
}

int main(void)
{
	conversions();
	unknown();
	every_length();
	return failures != 0;
}
