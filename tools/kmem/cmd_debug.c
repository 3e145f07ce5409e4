/*
 * cmd_debug.c: `kmem debug`: switch debugging of a cache in a running program on or off, validate a cache, or report
 * leaks, by a request to the process (request.c). Without a request: list the caches and their debug flags.
 *
 * Exit status: 0; 1 request failed or timed out; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"
#include "info/info_print.h"
#include "command.h"

static const char usage_text[] =
	"usage: kmem debug PID\n"
	"       kmem debug [--wait=SECONDS] PID CACHE LETTERS | validate\n"
	"       kmem debug [--wait=SECONDS] --leaks PID\n"
	"Switch debugging of a cache on or off in a running program. With PID alone,\n"
	"list the caches and their letters.\n"
	"  LETTERS     debugging of new objects of CACHE:\n"
	"    F  validate each free            P  poison free objects\n"
	"    Z  red zones around objects      U  stacks of allocation and free\n"
	"    T  a line for each call          A  a mark for failures on purpose\n"
	"    -  no debugging                  '' FZPU\n"
	"  validate    check all objects of CACHE ('*': of all caches), and print damages\n"
	"  --leaks     print allocated objects with letter U on the program's stderr\n"
	"  --wait=SECONDS  time to wait for the program (10); the program serves the\n"
	"              request at its next allocation or free\n"
	"Example:\n"
	"  kmem debug $(pidof redis-server) malloc-64 FZPU\n";

/* ------------------------------------------------------------------ letters */

static const struct {
	char letter;
	slab_flags_t flag;
} letters[] = {
	{ 'F', SLAB_CONSISTENCY_CHECKS }, { 'Z', SLAB_RED_ZONE }, { 'P', SLAB_POISON }, { 'U', SLAB_STORE_USER },
	{ 'T', SLAB_TRACE }, { 'A', SLAB_FAILSLAB },
};

static const char *spell(slab_flags_t flags, char *text)
{
	char *at = text;

	for (size_t i = 0; i < sizeof(letters) / sizeof(*letters); i++)
		if (flags & letters[i].flag)
			*at++ = letters[i].letter;
	if (at == text)
		*at++ = '-';
	*at = '\0';
	return text;
}

static bool are_letters(const char *text)
{
	return strlen(text) < KMEM_MAIL_LETTERS && strspn(text, "FZPUTAfzputa-") == strlen(text);
}

/* ------------------------------------------------------------------ a list */

static int by_debugged(const void *a, const void *b)
{
	const struct info_cache *x = a, *y = b;
	bool first = x->carried || x->debugged, second = y->carried || y->debugged;

	return first != second ? second - first : strcmp(x->stats.name, y->stats.name);
}

static int list(pid_t pid)
{
	struct snapshot snapshot = { 0 };
	enum info_result result = info_of_process(pid, &snapshot);
	char text[16];

	if (result != INFO_OK && result != INFO_PARTLY)
		return info_complain("debug", pid, result, snapshot.version);
	qsort(snapshot.caches, snapshot.count, sizeof(*snapshot.caches), by_debugged);
	printf("%-32s %-8s %10s %10s\n", "CACHE", "NEW", "OBJECTS", "SWITCHED");
	for (size_t i = 0; i < snapshot.count; i++) {
		const struct info_cache *cache = &snapshot.caches[i];

		printf("%-32s %-8s %10s %10s\n", cache->stats.name, spell(cache->carried, text),
		       COUNT(cache->stats.active_objects), COUNT(cache->debugged));
	}
	snapshot_clear(&snapshot);
	if (fflush(stdout) || ferror(stdout))
		return kmem_failed(1, "debug", "writing: %s", strerror(errno));
	return result == INFO_OK ? 0 : info_complain("debug", pid, result, snapshot.version);
}

/* ------------------------------------------------------------------ a request */

/* Print the reason of a failed request. */
static int say(pid_t pid, const struct kmem_mail_request *request, int error)
{
	const char *cache = request->cache;

	switch (error) {
	case ENOENT:
		return kmem_failed(1, "debug", "%d: no cache '%s'; kmem debug %d lists the caches", pid, cache, pid);
	case ENODATA:
		return kmem_failed(1, "debug", "%d: no cache has stacks: use kmem debug %d CACHE U, or KMEM_DEBUG=U "
					       "from the start", pid, pid);
	case EOPNOTSUPP:
		return kmem_failed(1, "debug", "%d: cache %s cannot be debugged with these letters (blocks of whole "
					       "pages, kmalloc of engine "
				   "slob, SLAB_NO_USER_FLAGS, or no room in a slab)", pid, cache);
	case EINVAL:
		return kmem_failed(1, "debug", "%d: cache %s is a child cache of a group, or its libkmem does not "
					       "know the letters", pid,
				   cache);
	case EBUSY:
		return kmem_failed(1, "debug", "%d: cache %s cannot be validated while the program has other "
					       "threads", pid, cache);
	default:
		return kmem_failed(1, "debug", "%d: %s: %s", pid, cache, strerror(error & 0xfff));
	}
}

/* text: the letters, or "validate". */
static int ask_of_cache(pid_t pid, const char *cache, const char *text, unsigned wait_ms)
{
	const bool looks = !strcmp(text, "validate");
	struct kmem_mail_request request = { .command = looks ? KMEM_MAIL_VALIDATE : KMEM_MAIL_DEBUG };

	if (!*cache || strlen(cache) >= sizeof(request.cache))
		return kmem_failed(1, "debug", "%d: no cache '%.40s': a name has 1 to %zu characters", pid, cache,
				   sizeof(request.cache) - 1);
	strcpy(request.cache, cache);
	if (!looks)
		strcpy(request.letters, text);
	return kmem_ask("debug", pid, &request, wait_ms, say);
}

static int report_leaks(pid_t pid, unsigned wait_ms)
{
	struct kmem_mail_request request = { .command = KMEM_MAIL_LEAKS };

	return kmem_ask("debug", pid, &request, wait_ms, say);
}

/* ------------------------------------------------------------------ the command */

int cmd_debug(int argc, char **argv)
{
	static const struct option known[] = {
		{ "wait", required_argument, NULL, 'w' }, { "leaks", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	unsigned wait_ms = KMEM_ASK_MS;
	bool leaks = false;
	int code;

	while ((code = kmem_next_option("debug", usage_text, argc, argv, "+:", known)) != -1)
		if (code == 'l')
			leaks = true;
		else
			wait_ms = kmem_ask_wait("debug", optarg);
	argc -= optind;
	argv += optind;
	if (argc)
		argv[0] = info_process("debug", argv[0], false);
	if (!argc || !info_is_number(argv[0]))
		kmem_usage("debug", "a process is missing: give the number or the name");
	if (leaks && argc > 1)
		kmem_usage("debug", "--leaks reports all caches with stacks, and takes no cache");
	if (argc == 1)
		return leaks ? report_leaks(atoi(argv[0]), wait_ms) : list(atoi(argv[0]));
	if (argc != 3)
		kmem_usage("debug", argc == 2 ? "letters are missing: kmem debug --help lists the letters" :
			   "too many arguments: give one cache");
	if (!are_letters(argv[2]) && strcmp(argv[2], "validate"))
		kmem_usage("debug", "'%s': letters are F, Z, P, U, T, A and -", argv[2]);
	return ask_of_cache(atoi(argv[0]), argv[1], argv[2], wait_ms);
}
