/*
 * options_grammar: feeds texts to the reader of KMEM_OPTIONS (texts.h), beside a reader of the test's own with the
 * valid values of each key. An invalid word is reported in one line, and has no effect; a valid word sets its value;
 * the same text once more has no effect.
 */
#define _GNU_SOURCE
#include "cache/cache.h"
#include "slab/engine.h"
#include "model/texts.h"
#include "os/die.h"
#include "os/secret.h"

/* All variables of the options. */
struct settings {
	struct km_options options;
	struct km_hardening hardening;
	struct km_layout_options layout;
	bool modes[MEM_CGROUP_NR_MODES], goes_on;
};

static struct settings settings_now(void)
{
	struct settings now;

	memset(&now, 0, sizeof(now));
	memcpy(&now.options, &km_options, sizeof(km_options));
	memcpy(&now.hardening, &km_hardening, sizeof(km_hardening));
	memcpy(&now.layout, &km_layout_options, sizeof(km_layout_options));
	memcpy(now.modes, km_memcg_modes, sizeof(now.modes));
	now.goes_on = km_misuse_goes_on();
	/* Each time another one. */
	now.hardening.secret = 0;
	return now;
}

static void settings_set(const struct settings *to)
{
	memcpy(&km_options, &to->options, sizeof(km_options));
	memcpy(&km_hardening, &to->hardening, sizeof(km_hardening));
	memcpy(&km_layout_options, &to->layout, sizeof(km_layout_options));
	memcpy(km_memcg_modes, to->modes, sizeof(to->modes));
	km_misuse_set(KM_MISUSE_ABORT);
}

/* ------------------------------------------------------------------ what fits, and what is then so */

/* Returns: the number, if the text has only digits and the number is at most `most`; -1 otherwise. */
static int64_t number_of(const char *value, uint64_t most)
{
	uint64_t number = 0;

	for (const char *at = value; *at; at++) {
		if (!isdigit((unsigned char)*at) || number > most)
			return -1;
		number = number * 10 + (uint64_t)(*at - '0');
	}
	return *value && number <= most ? (int64_t)number : -1;
}

/*
 * As the manual page of the options: digits, at most six behind a point, one letter. Returns: 0 for an
 * invalid text.
 */
static uint64_t bytes_of(const char *value)
{
	static const char units[] = "KMGT";
	__extension__ unsigned __int128 scaled = 0, unit = 1, parts = 1;
	size_t length = strlen(value), digits = strspn(value, "0123456789");
	const char *letter = length ? strchr(units, toupper((unsigned char)value[length - 1])) : NULL;

	if (letter && *letter) {
		unit <<= 10 * (letter - units + 1);
		length--;
	}
	size_t behind = digits < length && value[digits] == '.' ? length - digits - 1 : 0;
	if (!digits || digits > 30 || behind > 6 || digits + (behind ? behind + 1 : 0) != length)
		return 0;
	/* There is no part of a byte. */
	if (behind && unit == 1)
		return 0;
	for (size_t i = 0; i < length; i++) {
		if (i == digits)
			continue;
		if (!isdigit((unsigned char)value[i]))
			return 0;
		scaled = scaled * 10 + (unsigned)(value[i] - '0');
		parts *= i > digits ? 10 : 1;
	}
	scaled = scaled * unit / parts;
	return scaled > UINT64_MAX ? 0 : (uint64_t)scaled;
}

static const struct {
	const char *key;
	const bool *flag;
	const unsigned *number;
	uint64_t most;
	const char *words;		/* or these, each with a blank around the word */
} known[] = {
	{ "check", .flag = &km_options.check }, { "prove_frees", .flag = &km_hardening.live },
	{ "zero_on_free", .flag = &km_hardening.zero_on_free },
	{ "zero_on_alloc", .flag = &km_hardening.zero_on_alloc }, { "canary", .flag = &km_hardening.canary },
	{ "quarantine", .flag = &km_hardening.quarantine },
	{ "own_addresses", .flag = &km_hardening.own_addresses },
	{ "guard_slabs", .flag = &km_hardening.guard_slabs },
	{ "random_caches", .flag = &km_hardening.random_caches },
	{ "random_order", .flag = &km_hardening.random_order }, { "sanitize", .flag = &km_options.sanitize },
	{ "control", .flag = &km_options.control }, { "stats", .flag = &km_layout_options.count_events },
	{ "huge", .flag = &km_options.huge }, { "merge", .flag = &km_options.merge },
	{ "memcg_shelf", .flag = &km_memcg_modes[MEM_CGROUP_SHELF] },
	{ "guard_objects", .number = &km_options.guard.objects, .most = 4096 },
	{ "decay", .number = &km_options.decay_ms, .most = 3600000 },
	{ "slab_min_objects", .number = &km_layout_options.min_objects, .most = 32767 },
	{ "slab_min_order", .number = &km_layout_options.min_order, .most = KM_MAX_ORDER },
	{ "slab_max_order", .number = &km_layout_options.max_order, .most = KM_MAX_ORDER },
	{ "nodes", .number = &km_options.nodes, .most = KM_MAX_NODES },
	{ "remote_node_defrag_ratio", .number = &km_layout_options.defrag_ratio, .most = 100 },
	{ "lookahead", .number = &km_layout_options.lookahead, .most = 4096 },
	{ "engine", .words = " sheaf slub slab slob " }, { "percpu", .words = " auto rseq cmpxchg lock " },
	{ "index", .words = " cpu cid auto " }, { "misuse", .words = " abort warn trap " },
	{ "hardened", .words = " 0 1 " }, { "min_partial", .words = " half size static " },
	{ "bulk_free", .words = " auto lookahead group " }, { "memcg_hierarchy", .words = " v1 v2 " },
	{ "memcg_refill", .words = " drain keep " }, { "account", .words = " 0 1 malloc " },
};

static bool is_word(const char *words, const char *value)
{
	char word[32];

	return *value && !strchr(value, ' ') &&
	       snprintf(word, sizeof(word), " %s ", value) < (int)sizeof(word) && strstr(words, word);
}

/* Keys with a size. Returns: false for another key. */
static bool is_size(const char *key, const char *value, bool *fits, bool *is_so)
{
	uint64_t bytes = value ? bytes_of(value) : 0;

	if (!strcmp(key, "reserve")) {
		*fits = bytes && bytes <= PTRDIFF_MAX;
		*is_so = km_options.reserve == bytes;
	} else if (!strcmp(key, "memcg_limit")) {
		*fits = bytes != 0;
		*is_so = km_options.limit == bytes;
	} else if (!strcmp(key, "profile")) {
		*fits = bytes || (value && !strcmp(value, "0"));
		*is_so = km_options.profile == bytes;
	} else {
		return false;
	}
	return true;
}

static bool is_other(const char *key, const char *value, bool *fits, bool *is_so)
{
	int64_t ms = value ? number_of(value, 3600000) : -1;

	if (!strcmp(key, "memcg_group")) {
		*fits = value && *value && strlen(value) < MEMCG_NAME_MAX;
		*is_so = *fits && !strcmp(km_options.group, value);
	} else if (!strcmp(key, "guard")) {
		*fits = value && (ms >= 0 || !strcmp(value, "each"));
		*is_so = km_options.guard.each == (ms < 0) && km_options.guard.ms == (ms < 0 ? 0 : ms);
	} else {
		return false;
	}
	return true;
}

/* After the word was read: whether the word is valid, and if so, whether its value is set. */
static enum km_option_fit model(const char *key, const char *value, bool *is_so)
{
	bool fits = false;

	*is_so = true;
	if (!strcmp(key, "help"))
		return KM_OPTION_FITS;
	if (is_size(key, value, &fits, is_so) || is_other(key, value, &fits, is_so))
		return fits ? KM_OPTION_FITS : KM_OPTION_BAD;
	for (size_t i = 0; i < km_array_count(known); i++) {
		if (strcmp(known[i].key, key) != 0)
			continue;
		int64_t number = value && !known[i].words ? number_of(value, known[i].flag ? 1 : known[i].most) : -1;
		if (known[i].words)
			return value && is_word(known[i].words, value) ? KM_OPTION_FITS : KM_OPTION_BAD;
		*is_so = number == (known[i].flag ? (int64_t)*known[i].flag : (int64_t)*known[i].number);
		return number >= 0 ? KM_OPTION_FITS : KM_OPTION_BAD;
	}
	return KM_OPTION_UNKNOWN;
}

/* ------------------------------------------------------------------ texts */

/* Reads the words one by one. Returns: the number of reported words. */
static unsigned by_words(const char *text)
{
	char copy[TEXTS_MOST + 1], *rest = copy, *key;
	unsigned told = 0;

	strcpy(copy, text);
	while ((key = strsep(&rest, ","))) {
		char *value = strchr(key, ':');
		struct settings before = settings_now();
		bool is_so;

		if (value)
			*value++ = '\0';
		if (!*key)
			continue;
		enum km_option_fit fit = km_option_apply(key, value);
		need(fit == model(key, value, &is_so), text, "a word fits, or does not");
		need(fit != KM_OPTION_FITS || is_so, text, "a value is another one");
		struct settings after = settings_now();
		need(fit == KM_OPTION_FITS || !memcmp(&before, &after, sizeof(before)), text,
		     "a word that does not fit changes something");
		told += fit != KM_OPTION_FITS;
	}
	return told;
}

/* As a program that starts with the variable. */
static unsigned by_variable(const char *text)
{
	said_begin();
	setenv("KMEM_OPTIONS", text, 1);
	km_options_read();
	need(!strstr(said(), "assert"), text, "an assertion");
	return said_lines("libkmem: KMEM_OPTIONS: bad value for ") + said_lines("libkmem: KMEM_OPTIONS: unknown key: ");
}

static void try_text(const char *given)
{
	static struct settings first, words, all, again;
	static bool has_first;
	char text[TEXTS_MOST + 1], *at = text;

	/* A variable's blanks and lines are one line. */
	for (strcpy(text, given); *at; at++)
		if ((unsigned char)*at < ' ')
			*at = '?';
	if (!has_first)
		first = settings_now();
	has_first = true;
	settings_set(&first);
	said_begin();
	unsigned told = strlen(text) < 512 ? by_words(text) : 0;
	/* Requirements of a limit, or a name. */
	if (km_options.limit || km_options.group[0])
		km_options.account = true;
	km_options.account &= !km_options.engine->shared_pages && km_has_accounting();
	words = settings_now();

	settings_set(&first);
	need(by_variable(given) == told, text, "what does not fit is told of, a line each");
	all = settings_now();
	memset(all.hardening.parts, 0, sizeof(all.hardening.parts));
	need(!memcmp(&all, &words, sizeof(all)), text, "the text says something else than its words");
	by_variable(given);
	again = settings_now();
	memset(again.hardening.parts, 0, sizeof(again.hardening.parts));
	need(!memcmp(&all, &again, sizeof(all)), text, "the same once more changes something");
}

TEXTS_TEST("options_grammar", "01248kKmMgGtT.:,abceghilmoprsuv_?-\n")
