/*
 * options.c: read KMEM_OPTIONS=key:value,... once, before the rest of the start. An unknown key or value is reported
 * in one line on stderr and ignored. The options of set-uid programs are ignored. Invariants: the code allocates
 * nothing; a bad value leaves its setting unchanged.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "base/text.h"
#include "cache.h"

struct km_options km_options = {
	.engine = &KM_ENGINE_DEFAULT, .percpu = "auto", .index = "cpu", .huge = true, .sanitize = true, .control = true,
	.check_sizes = true, .decay_ms = 1000,
	.guard = { .objects = 255 },
};

bool km_memcg_modes[MEM_CGROUP_NR_MODES] = { [MEM_CGROUP_SHELF] = true };

static bool parse_number(const char *value, unsigned long most, unsigned long *number)
{
	return km_text_number(&value, most, number) && !*value;
}

/* Six decimal digits are 20 bits: with suffix T the fraction still fits. */
static bool parse_fraction(const char **text, uint64_t *fraction, uint64_t *parts)
{
	const char *at = *text + 1;

	for (; *at >= '0' && *at <= '9' && *parts < 1000000; at++, *parts *= 10)
		*fraction = *fraction * 10 + (uint64_t)(*at - '0');
	*text = at;
	return *parts > 1;
}

bool km_parse_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "kmgt";
	uint64_t number = 0, fraction = 0, parts = 1, whole;
	unsigned shift = 0;

	if (!km_text_number(&text, UINT64_MAX, &number))
		return false;
	if (*text == '.' && !parse_fraction(&text, &fraction, &parts))
		return false;
	for (unsigned i = 0; *text && units[i] && !shift; i++)
		if ((*text | 0x20) == units[i])
			shift = 10 * (i + 1);
	/* Refuse a fraction of a byte, and an overflow. */
	if (number << shift >> shift != number || text[shift != 0] || (parts > 1 && !shift))
		return false;
	whole = (number << shift) + (fraction << shift) / parts;
	if (whole)
		*bytes = whole;
	return whole;
}

static bool set_engine(const char *value)
{
	const struct km_engine *engine = km_engine_find(value);

	km_options.engine = engine ?: km_options.engine;
	return engine;
}

/* Returns: the index of `value` in a list that ends with NULL; -1 if absent. */
static int which(const char *value, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (__builtin_strcmp(names[i], value) == 0)
			return i;
	return -1;
}

static bool set_min_partial(const char *value)
{
	int rule = km_min_partial_rule(value);

	if (rule >= 0)
		km_layout_options.rule = (enum km_min_partial)rule;
	return rule >= 0;
}

/* Set all parts of hardening. Later options in the text may reset single parts. */
static bool set_hardened(const char *value)
{
	const bool on = *value == '1';

	if (value[0] != '0' + on || value[1])
		return false;
	km_hardening.level = km_hardening.live = km_hardening.random_order = km_hardening.zero_on_free = on;
	km_hardening.own_addresses = on;
	return true;
}

/* Option `observer`: a user id. All ones is no user, and 65534 stands for every user without a number in this
 * namespace. */
static bool set_observer(const char *value)
{
	unsigned long user = 0;

	if (!parse_number(value, UINT32_MAX - 1, &user) || user == 65534)
		return false;
	km_options.observer = (unsigned)user;
	km_options.observed = true;
	return true;
}

/* Option `arena`: the bytes to reserve for pages: an eighth of the address space room, so the room is set to eight
 * times as much. */
static bool set_arena(const char *value)
{
	uint64_t bytes = 0;

	if (!km_parse_bytes(value, &bytes) || bytes > SIZE_MAX / 8)
		return false;
	km_os_set_address_room(bytes * 8);
	return true;
}

static bool set_reserve(const char *value)
{
	uint64_t bytes;

	if (!km_parse_bytes(value, &bytes) || bytes > (uint64_t)PTRDIFF_MAX)
		return false;
	km_options.reserve = bytes;
	return true;
}

static bool set_profile(const char *value)
{
	if (value[0] == '0' && !value[1]) {
		km_options.profile = 0;
		return true;
	}
	return km_parse_bytes(value, &km_options.profile);
}

/* Option `guard`: milliseconds between samples, or "each" to guard every request, for tests and debugging. */
static bool set_guard(const char *value)
{
	const bool each = __builtin_strcmp(value, "each") == 0;
	unsigned long ms = 0;

	if (!each && !parse_number(value, 3600000, &ms))
		return false;
	km_options.guard.each = each;
	km_options.guard.ms = (unsigned)ms;
	return true;
}

/* Option `account`: 1 charges all allocations to one group; "malloc" charges malloc to each thread's group. */
static bool set_account(const char *value)
{
	static const char *const names[] = { "0", "1", "malloc", NULL };
	int i = which(value, names);

	if (i >= 0) {
		km_options.account = i == 1;
		km_options.account_malloc = i == 2;
	}
	return i >= 0;
}

static bool set_memcg_limit(const char *value) { return km_parse_bytes(value, &km_options.limit); }
static bool set_memcg_group(const char *value)
{
	size_t length = __builtin_strlen(value);

	if (!length || length >= sizeof(km_options.group))
		return false;
	__builtin_memcpy(km_options.group, value, length + 1);
	return true;
}

/* The table of options. An option sets a flag or a number, chooses one of some names, or calls a function. */
static const struct option {
	const char *key, *help;
	bool *flag;
	unsigned *number;
	unsigned long most;		/* greatest value of the number */
	const char **word;		/* one of the names */
	const char *const *names;	/* the flag or number is the index of the value among the names */
	bool (*set)(const char *value);
#define NAMES(...) .names = (const char *const[]){ __VA_ARGS__, NULL }
} options[] = {
	{ "engine", KM_ENGINE_CHOICE ": engine of caches without an explicit engine (sheaf)", .set = set_engine },
	{ "percpu", "auto|rseq|cmpxchg|lock: per-CPU discipline (auto)",
	  .word = &km_options.percpu, NAMES("auto", "rseq", "cmpxchg", "lock") },
	{ "index", "cpu|cid|auto: a thread's area is chosen by CPU or by concurrency id (cpu)",
	  .word = &km_options.index, NAMES("cpu", "cid", "auto") },
	{ "misuse", "abort|warn|trap: action on a misuse, for example a bad free (abort)",
	  .number = (unsigned *)&km_misuse_action, NAMES("abort", "warn", "trap") },
	{ "check", "0|1: validate every free, also on the fast path (0)", .flag = &km_options.check },
	{ "hardened", "0|1: detect every bad free at once, and default of the options with (hardened) (0)",
	  .set = set_hardened },
	{ "prove_frees", "0|1: detect every bad free at once (hardened)", .flag = &km_hardening.live },
	{ "check_sizes", "0|1: report a validated free with a wrong size (1)",
	  .flag = &km_options.check_sizes },
	{ "zero_on_free", "0|1: fill freed objects with zeros (hardened)", .flag = &km_hardening.zero_on_free },
	{ "zero_on_alloc", "0|1: fill allocated objects with zeros, unless the free has filled them (0)",
	  .flag = &km_hardening.zero_on_alloc },
	{ "random_order", "0|1: allocate the objects of new slabs in random order (hardened)",
	  .flag = &km_hardening.random_order },
	{ "canary", "0|1: 8 bytes behind each object of created caches and malloc, checked by the free (0)",
	  .flag = &km_hardening.canary },
	{ "quarantine", "0|1: delay freed objects, and release them in random order (0)",
	  .flag = &km_hardening.quarantine },
	{ "own_addresses", "0|1: reuse the addresses of slabs only for caches of the same name (hardened)",
	  .flag = &km_hardening.own_addresses },
	{ "guard_slabs", "0|1: with own_addresses, one of 16 slab places is inaccessible (0)",
	  .flag = &km_hardening.guard_slabs },
	{ "random_caches", "0|1: 16 caches for each size of kmalloc and malloc, chosen by the caller's address (0)",
	  .flag = &km_hardening.random_caches },
	{ "sanitize", "0|1: report each object to a sanitizer in the process (1)", .flag = &km_options.sanitize },
	{ "guard", "MS|each: a guarded object about every MS milliseconds, or each object while the pool has room "
		   "(0: none)",
	  .set = set_guard },
	{ "guard_objects", "greatest number of guarded objects (255)",
	  .number = &km_options.guard.objects, .most = 4096 },
	{ "profile", "bytes, as 512K: mean distance of two samples of a profile from the start (0: none)",
	  .set = set_profile },
	{ "control", "0|1: serve requests of the command kmem (1)", .flag = &km_options.control },
	{ "observer", "UID: this user may read the statistics without ptrace rights (no observer)",
	  .set = set_observer },
	{ "observer_thread", "0|1: a helper thread answers the observer (0)",
	  .flag = &km_options.observer_thread },
	{ "stats", "0|1: count also fast-path hits of slub and slab (0)", .flag = &km_layout_options.count_events },
	{ "decay", "milliseconds until free pages return to the system (1000)",
	  .number = &km_options.decay_ms, .most = 3600000 },
	{ "arena", "bytes, with K, M, G, T: address space reserved at once for pages (four times the memory of the "
		   "machine)",
	  .set = set_arena },
	{ "huge", "0|1: request huge pages when the arena is large (1)", .flag = &km_options.huge },
	{ "merge", "0|1: caches of equal layout may share slabs (0)", .flag = &km_options.merge },
	{ "min_partial", "half|size|static: rule for min_partial of all caches (half)", .set = set_min_partial },
	{ "slab_min_objects", "least number of objects of a slab (0: automatic)",
	  .number = &km_layout_options.min_objects, .most = 32767 },
	{ "slab_min_order", "least order of slabs (0)",
	  .number = &km_layout_options.min_order, .most = KM_MAX_ORDER },
	{ "slab_max_order", "greatest order of slabs (3)",
	  .number = &km_layout_options.max_order, .most = KM_MAX_ORDER },
	{ "bulk_free", "auto|lookahead|group: how slub frees an array of objects of several slabs (auto)",
	  .number = (unsigned *)&km_layout_options.bulk_free, NAMES("auto", "lookahead", "group") },
	{ "nodes", "number of simulated memory nodes for tests, at most 8 (0: nodes of the machine)",
	  .number = &km_options.nodes, .most = KM_MAX_NODES },
	{ "remote_node_defrag_ratio", "percent of refills that may use partial slabs of other nodes (100)",
	  .number = &km_layout_options.defrag_ratio, .most = 100 },
	{ "memcg_hierarchy", "v1|v2: charge pages also to a second counter, or not (v2)",
	  .flag = &km_memcg_modes[MEM_CGROUP_V1], NAMES("v2", "v1") },
	{ "memcg_refill", "drain|keep: flush or keep stocks above one page (keep)",
	  .flag = &km_memcg_modes[MEM_CGROUP_DRAIN], NAMES("keep", "drain") },
	{ "memcg_shelf", "0|1: cache charged objects in per-CPU sheaves (1)",
	  .flag = &km_memcg_modes[MEM_CGROUP_SHELF] },
	{ "reserve", "bytes, with K, M, G, T: memory committed in advance for GFP_NOWAIT (as the requests need)",
	  .set = set_reserve },
	{ "account", "0|1|malloc: charge all allocations to one group, or malloc's to the group of the thread (0)",
	  .set = set_account },
	{ "memcg_limit", "512M, 1.5G, bytes: max of the group of the process, and account:1 (no limit)",
	  .set = set_memcg_limit },
	{ "memcg_group", "NAME: name of the group of the process, and account:1 (the name of the program)",
	  .set = set_memcg_group },
	{ "lookahead", "greatest number of mismatches while a detached freelist is built (3)",
	  .number = &km_layout_options.lookahead, .most = 4096 },
};

static void print_help(void)
{
	km_warn("KMEM_OPTIONS=key:value,...");
	for (size_t i = 0; i < km_array_count(options); i++)
		km_warn("  %-24s %s", options[i].key, options[i].help);
}

static bool set(const struct option *option, const char *value)
{
	unsigned long number;

	if (option->set)
		return option->set(value);
	if (option->names)
		number = (unsigned long)which(value, option->names);
	else if (!parse_number(value, option->flag ? 1 : option->most, &number))
		return false;
	if (number == -1ul)
		return false;
	if (option->flag)
		*option->flag = number;
	else if (option->word)
		*option->word = option->names[number];
	else
		*option->number = (unsigned)number;
	return true;
}

enum km_option_fit km_option_apply(const char *key, const char *value)
{
	if (__builtin_strcmp(key, "help") == 0) {
		print_help();
		return KM_OPTION_FITS;
	}
	for (size_t i = 0; i < km_array_count(options); i++)
		if (__builtin_strcmp(options[i].key, key) == 0)
			return value && set(&options[i], value) ? KM_OPTION_FITS : KM_OPTION_BAD;
	return KM_OPTION_UNKNOWN;
}

static void apply(const char *key, const char *value)
{
	enum km_option_fit fit = km_option_apply(key, value);

	if (fit == KM_OPTION_BAD)
		km_warn("KMEM_OPTIONS: bad value for %s: %s; KMEM_OPTIONS=help lists the values", key,
			value ?: "(none)");
	else if (fit == KM_OPTION_UNKNOWN)
		km_warn("KMEM_OPTIONS: unknown key: %s; KMEM_OPTIONS=help lists the keys", key);
}

static void parse(char *at)
{
	while (*at) {
		char *key = at, *value = NULL;

		for (; *at && *at != ','; at++)
			if (*at == ':' && !value) {
				*at = '\0';
				value = at + 1;
			}
		if (*at)
			*at++ = '\0';
		if (*key)
			apply(key, value);
	}
}

/* Read an environment variable, with '?' for control characters. Returns: false if the variable is absent, or too long;
 * a too long variable is reported. */
static bool read_variable(const char *name, char *text, size_t bytes)
{
	int length = km_os_getenv(name, text, bytes);

	if (length >= (int)bytes)
		km_warn("%s: longer than %lu bytes, ignored", name, bytes - 1);
	if (length <= 0 || length >= (int)bytes)
		return false;
	/* A text quoted in a message must be one line. */
	for (; *text; text++)
		if ((unsigned char)*text < ' ')
			*text = '?';
	return true;
}

/* A limit or a group name turns accounting on. Reports an engine or a program that can't account, as SLOB in Linux. */
static void settle_account(void)
{
	if (km_options.limit || km_options.group[0])
		km_options.account = true;
	if (!km_options.account)
		return;
	if (km_options.engine->shared_pages)
		km_warn("KMEM_OPTIONS: engine %s cannot charge: nothing is charged, and no limit is enforced; use "
			"engine:sheaf",
			km_options.engine->name);
	else if (!km_has_accounting())
		km_warn("KMEM_OPTIONS: %s is ignored: the program is linked without groups; link with "
			"-Wl,-u,mem_cgroup_create",
			km_options.limit ? "memcg_limit" : km_options.group[0] ? "memcg_group" : "account");
	km_options.account = !km_options.engine->shared_pages && km_has_accounting();
}

static void settle_observer(void)
{
	if (km_options.observed && !km_observer_ops)
		km_warn("KMEM_OPTIONS: observer is ignored: the program is linked without the observer; link with "
			"-Wl,-u,km_observing");
	km_options.observed &= km_observer_ops != NULL;
	if (km_options.observer_thread && !km_options.observed)
		km_warn("KMEM_OPTIONS: observer_thread is ignored: there is no observer; set observer:UID");
}

static void read_debug(void)
{
	char text[512];
	int length = km_os_getenv("KMEM_DEBUG", text, sizeof(text));

	if (length <= 0)
		return;
	if (length >= (int)sizeof(text))
		km_warn("KMEM_DEBUG: longer than %lu bytes, ignored", sizeof(text) - 1);
	else if (km_debug_ops)
		km_debug_ops->read(text);
	else
		km_warn("KMEM_DEBUG is ignored: the program is linked without debugging; link with "
			"-Wl,-u,km_debugging");
}

static void read_failing(void)
{
	char text[512];

	if (km_failure_ops)
		km_alloc_fails = km_failure_ops->fails;
	if (!read_variable("KMEM_FAILSLAB", text, sizeof(text)))
		return;
	if (km_failure_ops)
		km_failure_ops->read(text);
	else
		km_warn("KMEM_FAILSLAB is ignored: the program is linked without failure injection; link with "
			"-Wl,-u,kmem_failslab");
}

static void read_leaks(void)
{
	char text[4];

	if (km_os_getenv("KMEM_LEAKS", text, sizeof(text)) <= 0)
		return;
	if (km_debug_ops)
		km_debug_ops->track();
	else
		km_warn("KMEM_LEAKS is ignored: the program is linked without debugging; link with "
			"-Wl,-u,km_debugging");
}

/* Write the names of hardening's parts in force, for readers outside of the process. */
static void name_parts(void)
{
	size_t length = 0;

	for (size_t i = 0; i < km_array_count(options); i++) {
		const bool *flag = options[i].flag;

		if ((uintptr_t)flag - (uintptr_t)&km_hardening < sizeof(km_hardening) && *flag)
			length += km_format(km_hardening.parts + length, sizeof(km_hardening.parts) - length, "%s%s",
					    length ? " " : "", options[i].key);
	}
}

void km_options_read(void)
{
	char text[512];

	if (km_options_for_others && km_options_for_others())
		return;
	if (read_variable("KMEM_OPTIONS", text, sizeof(text)))
		parse(text);
	name_parts();
	km_hardening_start();
	settle_account();
	if ((km_options.guard.ms || km_options.guard.each) && !km_guard_ops)
		km_warn("KMEM_OPTIONS: guard is ignored: the program is linked without guarded objects; link with "
			"-Wl,-u,km_guarding");
	if (km_options.profile && !km_profile_ops)
		km_warn("KMEM_OPTIONS: profile is ignored: the program is linked without profiles; link with "
			"-Wl,-u,km_profiling");
	settle_observer();
	read_debug();
	read_leaks();
	read_failing();
	if (read_variable("KMEM_PERCPU", text, sizeof(text)) && km_option_apply("percpu", text) != KM_OPTION_FITS)
		km_warn("KMEM_PERCPU: unknown discipline: %s; use auto, rseq, cmpxchg or lock", text);
}
