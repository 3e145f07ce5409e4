/*
 * failslab.c: injected allocation failures, by KMEM_FAILSLAB and kmem_failslab: the kernel's failslab, with the
 * kernel's names, order and defaults. A cache that may fail has no per-CPU sheaves (alloc/observed_ops.c), so each
 * allocation asks here. Whether a cache may fail is decided once, at creation. Invariants: nothing is allocated. A
 * decision depends only on the seed, the settings and the number of the call, so a program with the same calls gets
 * the same failures. A request with __GFP_NOFAIL never fails.
 *
 * Calls are counted after all filters: gfp, caller. The first calls are spared until `space` bytes were requested.
 * Every interval-th call after these fails with the given probability, at most `times` times.
 */
#include <errno.h>
#include <sys/auxv.h>

#include <kmem/stats.h>

#include "base/bits.h"
#include "os/os.h"
#include "cache/cache.h"
#include "inspect/stack.h"

#define FOREVER		UINT64_MAX
#define TEXT		KM_FAILING_WORD

/* Settings that may change at run time, and the kernel's defaults. */
struct settings {
	uint64_t interval, probability, space, times, nth, verbose, seed;
	uint64_t start, end;		/* some return address of the call must be in this range */
	bool spare_waiting;		/* ignore-gfp-wait */
	bool filter;			/* cache-filter: marked caches only; read at cache creation */
	bool seeded;
	char caches[TEXT], caller[TEXT];	/* patterns, each followed by a comma; empty: all */
};
static const struct settings defaults = {
	.interval = 1, .times = 1, .verbose = 1, .end = UINTPTR_MAX, .spare_waiting = true,
};
static struct settings now;

static struct {
	/* KMEM_FAILSLAB was given. Matching caches created now may fail, or with `filter` only marked caches. */
	bool on, filter;
	char caches[TEXT];
	uint64_t space, times;		/* remaining bytes and failures */
	uint64_t calls, failures;
} state;

/* ------------------------------------------------------------------ the settings */

static bool read_number(const char *text, uint64_t *number)
{
	const bool hex = text[0] == '0' && (text[1] | 0x20) == 'x';
	const unsigned base = hex ? 16 : 10;
	const char *at = text + 2 * hex;
	uint64_t value = 0;

	if (!*at)
		return false;
	for (; *at; at++) {
		char c = hex && *at >= 'A' ? (char)(*at | 0x20) : *at;
		/* Any other character counts as a digit out of range. */
		unsigned digit = c >= 'a' ? (unsigned)(c - 'a') + 10 : c <= '9' ? (unsigned)(c - '0') : base;

		if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return false;
	}
	*number = value;
	return true;
}

/* Parse the kernel's Y and N, or 1 and 0. */
static bool read_truth(const char *text, bool *truth)
{
	*truth = *text == '1' || *text == 'y' || *text == 'Y';
	return (*truth || *text == '0' || *text == 'n' || *text == 'N') && !text[1];
}

static bool read_times(const char *text, uint64_t *times)
{
	if (__builtin_strcmp(text, "-1") != 0)
		return read_number(text, times);
	*times = FOREVER;
	return true;
}

static bool add_pattern(char *list, const char *pattern)
{
	size_t length = __builtin_strlen(list), more = __builtin_strlen(pattern);

	if (!more || length + more + 2 > TEXT)
		return false;
	__builtin_memcpy(list + length, pattern, more);
	__builtin_memcpy(list + length + more, ",", 2);
	return true;
}

static bool set(struct settings *to, const char *key, const char *value)
{
	const struct {
		const char *key;
		uint64_t *number;
		uint64_t most;
	} numbers[] = {
		{ "interval", &to->interval, UINT32_MAX }, { "probability", &to->probability, 100 },
		{ "space", &to->space, FOREVER }, { "verbose", &to->verbose, 2 },
		{ "fail-nth", &to->nth, FOREVER }, { "require-start", &to->start, UINTPTR_MAX },
		{ "require-end", &to->end, UINTPTR_MAX },
	};

	for (size_t i = 0; i < km_array_count(numbers); i++)
		if (__builtin_strcmp(key, numbers[i].key) == 0)
			return read_number(value, numbers[i].number) && *numbers[i].number <= numbers[i].most;
	if (__builtin_strcmp(key, "times") == 0)
		return read_times(value, &to->times);
	if (__builtin_strcmp(key, "seed") == 0)
		return to->seeded = read_number(value, &to->seed);
	if (__builtin_strcmp(key, "cache") == 0)
		return add_pattern(to->caches, value);
	if (__builtin_strcmp(key, "caller") == 0)
		return add_pattern(to->caller, value);
	if (__builtin_strcmp(key, "ignore-gfp-wait") == 0)
		return read_truth(value, &to->spare_waiting);
	return __builtin_strcmp(key, "cache-filter") == 0 && read_truth(value, &to->filter);
}

/* Parse one word: KEY=VALUE, or a bare number, with the meaning of its position as in the kernel. */
static bool set_word(struct settings *to, char *word, unsigned *place)
{
	static const char *const places[] = { "interval", "probability", "space", "times" };
	char *equals = word;

	while (*equals && *equals != '=')
		equals++;
	if (!*equals)
		return *place < km_array_count(places) && set(to, places[(*place)++], word);
	*equals = '\0';
	bool fits = set(to, word, equals + 1);
	*equals = '=';
	return fits;
}

/* Parse all words. Returns: false with the bad word in *bad. */
static bool parse(const char *text, struct settings *to, char *bad)
{
	unsigned place = 0;

	while (*text) {
		size_t length = 0;

		while (text[length] && text[length] != ',')
			length++;
		km_format(bad, TEXT, "%s", text);
		bad[km_min(length, (size_t)TEXT - 1)] = '\0';
		if (length >= TEXT || (length && !set_word(to, bad, &place)))
			return false;
		text += length + (text[length] == ',');
	}
	km_debug(to->probability <= 100, "a probability is a part of a hundred");
	return true;
}

bool km_failing_fits(const char *text, char *bad)
{
	struct settings unused = defaults;

	return parse(text, &unused, bad);
}

static uint64_t mixed(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Choose a seed of at most six digits, short enough to type. */
static uint64_t some_seed(void)
{
	const void *bytes = (const void *)getauxval(AT_RANDOM);
	uint64_t random = 0;

	/* The bytes may be unaligned. */
	if (bytes)
		__builtin_memcpy(&random, bytes, sizeof(random));
	return mixed(random ^ km_os_now_ms() << 20 ^ km_os_pid()) % 1000000;
}

static bool is_active(void)
{
	return now.nth || (now.probability && now.times);
}

/* Print the settings needed to repeat the run. */
static void say_seed(void)
{
	if (is_active() && now.verbose)
		km_warn("failslab: seed=%lu,interval=%lu,probability=%lu,space=%lu,times=%ld", now.seed, now.interval,
			now.probability, now.space, (long)now.times);
}

/* Apply new settings. Returns: false with the bad word in *bad. */
static bool begin(const char *text, char *bad)
{
	struct settings next = defaults;

	if (!parse(text, &next, bad))
		return false;
	if (!next.seeded)
		next.seed = some_seed();
	km_store(&state.times, (uint64_t)0);	/* no failure while the settings are mixed */
	now = next;
	km_store(&state.space, next.space);
	km_store(&state.calls, (uint64_t)0);
	km_store_release(&state.times, next.times);
	return true;
}

/* ------------------------------------------------------------------ the filters */

/* Match a text against a pattern, up to `end`. A star matches any number of characters. */
static bool fits(const char *pattern, const char *end, const char *text)
{
	const char *star = NULL, *from = NULL;

	while (*text || pattern < end) {
		if (pattern < end && *pattern == '*') {
			star = ++pattern;
			from = text;
		} else if (pattern < end && *pattern == *text) {
			pattern++;
			text++;
		} else if (star && *from) {
			pattern = star;
			text = ++from;
		} else {
			return false;
		}
	}
	return true;
}

/* Match a text against a list of patterns. An empty list matches everything. */
static bool fits_some(const char *patterns, const char *text)
{
	if (!*patterns)
		return true;
	while (*patterns) {
		const char *end = patterns;

		while (*end != ',')
			end++;
		if (fits(patterns, end, text))
			return true;
		patterns = end + 1;
	}
	return false;
}

static bool may_fail(const char *name, slab_flags_t flags)
{
	if (flags & SLAB_FAILSLAB)
		return true;
	return state.on && !state.filter && fits_some(state.caches, name);
}

static const char *last_part(const char *path)
{
	const char *name = path;

	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	return name;
}

/* Parse a sign, 0x and a number, and advance *at. Returns: false if there is none. */
static bool read_offset(const char **at, char sign, uintptr_t *offset)
{
	const char *digit = *at + 3;

	if ((*at)[0] != sign || (*at)[1] != '0' || (*at)[2] != 'x')
		return false;
	for (*offset = 0; (*digit >= '0' && *digit <= '9') || (*digit >= 'a' && *digit <= 'f'); digit++)
		*offset = *offset << 4 | (uintptr_t)(*digit <= '9' ? *digit - '0' : *digit - 'a' + 10);
	*at = digit;
	return true;
}

/* Match FILE+0xFROM-0xTO: a range of a file, for functions unknown to the dynamic linker (tools/kmem/fail_caller.c). */
static bool is_in_part(const char *patterns, const char *file, uintptr_t offset)
{
	size_t length = __builtin_strlen(file);

	for (const char *next; *patterns; patterns = next) {
		const char *at = patterns + length;
		uintptr_t from, to;

		next = patterns;
		while (*next++ != ',')
			;
		if (length < (size_t)(next - patterns) && __builtin_memcmp(patterns, file, length) == 0 &&
		    read_offset(&at, '+', &from) && read_offset(&at, '-', &to) && *at == ',' && offset >= from &&
		    offset < to)
			return true;
	}
	return false;
}

static bool fits_caller(const char *name)
{
	return fits_some(now.caller, name);
}

/* Match a return address by function name, if the dynamic linker knows the function, or by file. */
static bool is_caller(uintptr_t address)
{
	char path[256];
	uintptr_t start;

	if (address < now.start || address >= now.end)
		return false;
	if (!*now.caller)
		return true;
	/* The call instruction is before the return address. */
	if (km_stack_find_name(address - 1, fits_caller))
		return true;
	if (!km_stack_find_file(address - 1, path, sizeof(path), &start))
		return false;
	const char *file = last_part(path);
	return fits_caller(file) || is_in_part(now.caller, file, address - 1 - start);
}

static bool has_filter(void)
{
	return *now.caller || now.start || now.end != UINTPTR_MAX;
}

static km_noinline bool has_caller(void)
{
	struct km_stack_track track;

	if (!has_filter())
		return true;
	km_stack_track(&track);
	for (unsigned i = 0; i < KM_STACK_FRAMES && track.frame[i]; i++)
		if (is_caller(track.frame[i]))
			return true;
	return false;
}

/* ------------------------------------------------------------------ the decision */

/* Take bytes from the spared space. Returns: true if the call is spared. */
static bool is_spared(size_t bytes)
{
	uint64_t left = km_load(&state.space);

	while (left > bytes)
		if (km_cas_both(&state.space, &left, left - bytes))
			return true;
	return false;
}

/* Take one of the remaining failures. Returns: false if none remains. */
static bool take_one(void)
{
	uint64_t left = km_load(&state.times);

	while (left && left != FOREVER)
		if (km_cas_both(&state.times, &left, left - 1))
			return true;
	return left != 0;
}

/* Returns: true if no call can fail any more. A cheap check, made before the stack walk. */
static bool is_over(void)
{
	return now.nth ? km_load(&state.calls) >= now.nth : !now.probability || !km_load(&state.times);
}

static bool is_due(size_t bytes)
{
	if (now.nth)
		return km_add(&state.calls, (uint64_t)1) + 1 == now.nth;
	if (!now.probability || !km_load(&state.times) || is_spared(bytes))
		return false;
	uint64_t call = km_add(&state.calls, (uint64_t)1) + 1;
	if (now.interval > 1 && call % now.interval)
		return false;
	return mixed(now.seed ^ mixed(call)) % 100 < now.probability && take_one();
}

static km_cold void say(const char *name, size_t bytes, gfp_t gfp)
{
	struct km_stack_track track;
	char place[512];

	km_warn("FAULT_INJECTION: forcing a failure. name failslab, cache %s, %lu bytes, gfp=0x%x, call %lu, seed %lu",
		name, (unsigned long)bytes, gfp, km_load(&state.calls), now.seed);
	if (now.verbose < 2)
		return;
	km_stack_track(&track);
	for (unsigned i = 0; i < KM_STACK_FRAMES && track.frame[i]; i++)
		km_warn("  %s", km_stack_place(track.frame[i], place, sizeof(place)));
}

static bool fails(const char *name, size_t bytes, gfp_t gfp)
{
	int saved_errno = errno;

	if (gfp & __GFP_NOFAIL || (now.spare_waiting && km_gfp_may_wait(gfp)) || is_over())
		return false;
	bool failed = fits_some(now.caches, name) && has_caller() && is_due(bytes);
	if (km_unlikely(failed)) {
		km_add(&state.failures, (uint64_t)1);
		if (now.verbose)
			say(name, bytes, gfp);
	}
	errno = saved_errno;
	return failed;
}

/* ------------------------------------------------------------------ setup */

static void read_text(const char *text)
{
	char bad[TEXT];

	if (!begin(text, bad)) {
		km_warn("KMEM_FAILSLAB: bad setting: %s", bad);
		return;
	}
	state.on = true;
	state.filter = now.filter;
	__builtin_memcpy(state.caches, now.caches, sizeof(state.caches));
	km_large_fails = !now.filter && fits_some(now.caches, "large");
	say_seed();
}

const struct km_failure_ops km_failing = { .read = read_text, .may_fail = may_fail, .fails = fails };
KM_REGISTER(km_failure_ops, km_failing);

int kmem_failslab(const char *settings)
{
	char bad[TEXT];

	if (!begin(settings ?: "", bad)) {
		km_warn("kmem_failslab: bad setting: %s", bad);
		return -EINVAL;
	}
	say_seed();
	return 0;
}

unsigned long kmem_failslab_failures(void)
{
	return km_load(&state.failures);
}
