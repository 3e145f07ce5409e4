/*
 * `kmem debug`: debugging of a cache in a running program, switched on and off from outside of it. The command writes a
 * request into the process's mailbox (src/cache/mail.h), which the next miss there serves, and waits for the answer.
 * Invariant: nothing but that mailbox is written to, at an address that the process's own record names; what is not
 * served in time is taken back.
 *
 * Exit status: 0; 1 what could not be done, or not in time; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/mail.h"
#include "cache/root.h"
#include "info/info.h"
#include "kmem.h"

#define WAIT_MS		10000u
#define MOST_WAIT_S	3600
#define STEP_US		2000u

static const char usage_text[] =
	"usage: kmem debug PID                    which caches are debugged, and how\n"
	"       kmem debug [--wait=SECONDS] PID CACHE LETTERS\n"
	"  objects that are allocated from CACHE from now on are debugged:\n"
	"  F  each free is validated        P  free objects are poisoned\n"
	"  Z  red zones around objects      U  who allocated, who freed\n"
	"  T  a line for each that comes or goes    A  a mark for failing on purpose\n"
	"  -  none of these any more; '' is FZPU\n"
	"       kmem debug [--wait=SECONDS] --leaks PID\n"
	"  the program writes to its stderr by whom was allocated what is out, of caches\n"
	"  with U\n"
	"The program serves it when it next gets or gives back memory and finds none\n"
	"ready; --wait says for how long to wait for that (10).\n";

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
	return strlen(text) < KM_MAIL_LETTERS && strspn(text, "FZPUTAfzputa-") == strlen(text);
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

		printf("%-32s %-8s %10lu %10lu\n", cache->stats.name, spell(cache->carried, text),
		       cache->stats.active_objects, cache->debugged);
	}
	snapshot_clear(&snapshot);
	if (fflush(stdout) || ferror(stdout))
		return kmem_failed(1, "debug", "writing: %s", strerror(errno));
	return result == INFO_OK ? 0 : info_complain("debug", pid, result, snapshot.version);
}

/* ------------------------------------------------------------------ a request */

struct asking {
	struct target target;
	pid_t pid;
	char *mail;			/* there */
	uint32_t number;
	struct km_mail_request request;
	unsigned wait_ms;
};

#define PLACE(asking, member) ((asking)->mail + offsetof(struct km_mail, member))

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int unreadable(const struct asking *asking)
{
	return info_complain("debug", asking->pid, asking->target.result, asking->target.version);
}

/* The mailbox of the copy that is in use; NULL: *status says why. */
static char *find_mail(struct asking *asking, int *status)
{
	static struct info_root roots[INFO_MAX_ROOTS];
	size_t count = target_roots_in_use(&asking->target, roots);
	const struct km_root *record = &roots[0].record;

	*status = 1;
	if (!count)
		*status = unreadable(asking);
	else if (!layout_has(&roots[0].layout, "root.mail root.control"))
		kmem_failed(1, "debug", "%d: runs libkmem %s, which can't be asked", asking->pid,
			    asking->target.version);
	else if (record->control == KM_CONTROL_OFF)
		kmem_failed(1, "debug", "%d: runs with KMEM_OPTIONS=control:0, and can't be asked", asking->pid);
	else if (record->control != KM_CONTROL_ON || !record->mail)
		kmem_failed(1, "debug", "%d: is linked without debugging (-Wl,-u,kmem_cache_validate)", asking->pid);
	else
		return (char *)(uintptr_t)record->mail;
	return NULL;
}

/* False: it could not be written, and that was said. */
static bool ask(struct asking *asking, const struct km_mail *before)
{
	asking->number = (uint32_t)now_ms() * 2654435761u ^ (uint32_t)getpid() << 16;
	if (asking->number == before->answered || asking->number == before->asked)
		asking->number++;
	if (target_write(&asking->target, PLACE(asking, request), &asking->request, sizeof(asking->request)) &&
	    target_write(&asking->target, PLACE(asking, asked), &asking->number, sizeof(asking->number)))
		return true;
	unreadable(asking);
	return false;
}

static int say(const struct asking *asking, const struct km_mail *mail)
{
	const char *cache = asking->request.cache;
	pid_t pid = asking->pid;

	if (memcmp(&mail->done, &asking->request, sizeof(mail->done)))
		return kmem_failed(1, "debug", "%d: somebody else asked at the same time: try again", pid);
	switch (-mail->result) {
	case 0:
		return 0;
	case ENOENT:
		return kmem_failed(1, "debug", "%d: no cache '%s'; kmem debug %d lists them", pid, cache, pid);
	case ENODATA:
		return kmem_failed(1, "debug", "%d: no cache has stacks: kmem debug %d CACHE U, or KMEM_DEBUG=U from "
				   "the start", pid, pid);
	case EOPNOTSUPP:
		return kmem_failed(1, "debug", "%d: %s can't be debugged so (blocks of whole pages, kmalloc of engine "
				   "slob, SLAB_NO_USER_FLAGS, or no room in a slab)", pid, cache);
	case EINVAL:
		return kmem_failed(1, "debug", "%d: %s is a private group's, or the letters are unknown there", pid,
				   cache);
	default:
		return kmem_failed(1, "debug", "%d: %s: %s", pid, cache, strerror(-mail->result & 0xfff));
	}
}

/* Nobody answered: the request is taken back, unless it is served just now. */
static int give_up(struct asking *asking, const struct km_mail *mail)
{
	target_write(&asking->target, PLACE(asking, asked), &mail->answered, sizeof(mail->answered));
	return kmem_failed(1, "debug", "%d: no answer in %u s: it neither got nor gave back memory that was not ready. "
			   "Try again while it works, or with --wait", asking->pid, asking->wait_ms / 1000);
}

static int wait_for_answer(struct asking *asking)
{
	uint64_t end = now_ms() + asking->wait_ms;
	struct km_mail mail;

	for (;;) {
		if (!target_read(&asking->target, &mail, asking->mail, sizeof(mail)))
			return unreadable(asking);
		if (mail.answered == asking->number)
			return say(asking, &mail);
		if (now_ms() >= end)
			return give_up(asking, &mail);
		usleep(STEP_US);
	}
}

static int ask_and_wait(pid_t pid, const struct km_mail_request *request, unsigned wait_ms)
{
	struct asking asking = {
		.target = { .pid = target_thread(pid) }, .pid = pid, .wait_ms = wait_ms, .request = *request,
	};
	struct km_mail before;
	int status;

	asking.mail = find_mail(&asking, &status);
	if (!asking.mail)
		return status;
	if (!target_read(&asking.target, &before, asking.mail, sizeof(before)))
		return unreadable(&asking);
	if (before.version != KM_MAIL_VERSION)
		return kmem_failed(1, "debug", "%d: its mailbox is another: use the kmem that came with it", pid);
	return ask(&asking, &before) ? wait_for_answer(&asking) : 1;
}

static int switch_cache(pid_t pid, const char *cache, const char *text, unsigned wait_ms)
{
	struct km_mail_request request = { .command = KM_MAIL_DEBUG };

	if (!*cache || strlen(cache) >= sizeof(request.cache))
		return kmem_failed(1, "debug", "%d: no cache '%.40s': a name has 1 to %zu characters", pid, cache,
				   sizeof(request.cache) - 1);
	strcpy(request.cache, cache);
	strcpy(request.letters, text);
	return ask_and_wait(pid, &request, wait_ms);
}

static int report_leaks(pid_t pid, unsigned wait_ms)
{
	struct km_mail_request request = { .command = KM_MAIL_LEAKS };

	return ask_and_wait(pid, &request, wait_ms);
}

/* ------------------------------------------------------------------ the command */

static unsigned parse_wait(const char *text)
{
	char *end;
	long seconds = strtol(text, &end, 10);

	if (!*text || *end || seconds < 1 || seconds > MOST_WAIT_S)
		kmem_usage("debug", "--wait: '%s' is no number of seconds from 1 to %d", text, MOST_WAIT_S);
	return (unsigned)seconds * 1000;
}

int cmd_debug(int argc, char **argv)
{
	static const struct option known[] = {
		{ "wait", required_argument, NULL, 'w' }, { "leaks", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	unsigned wait_ms = WAIT_MS;
	bool leaks = false;
	int code;

	opterr = 0;
	while ((code = getopt_long(argc, argv, "+:", known, NULL)) != -1) {
		if (code == 'h')
			kmem_help(usage_text);
		if (code == ':')
			kmem_usage("debug", "%s needs a value", argv[optind - 1]);
		if (code == '?')
			kmem_usage("debug", "unknown option '%s'", argv[optind - 1]);
		if (code == 'l')
			leaks = true;
		else
			wait_ms = parse_wait(optarg);
	}
	argc -= optind;
	argv += optind;
	if (!argc || !info_is_number(argv[0]))
		kmem_usage("debug", "which process? its number");
	if (leaks && argc > 1)
		kmem_usage("debug", "--leaks is of all caches that have stacks");
	if (argc == 1)
		return leaks ? report_leaks(atoi(argv[0]), wait_ms) : list(atoi(argv[0]));
	if (argc != 3)
		kmem_usage("debug", argc == 2 ? "which letters? kmem debug --help lists them" : "one cache at a time");
	if (!are_letters(argv[2]))
		kmem_usage("debug", "'%s': letters are F, Z, P, U, T, A and -", argv[2]);
	return switch_cache(atoi(argv[0]), argv[1], argv[2], wait_ms);
}
