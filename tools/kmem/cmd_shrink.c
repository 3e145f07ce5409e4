/*
 * cmd_shrink.c: `kmem shrink`: ask a running program (request.c) to return cached memory of all caches or of one
 * cache to the system, and print the resident memory before and after the request.
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
#include "info/info.h"
#include "info/info_print.h"
#include "command.h"

static const char usage_text[] =
	"usage: kmem shrink [--wait=SECONDS] PID [CACHE]\n"
	"Make a running program return cached objects to their slabs, empty slabs to\n"
	"the free pages, and free pages to the system.\n"
	"  CACHE       only this cache and its pages; default: all caches\n"
	"  --wait=SECONDS  time to wait for the program (10); the program serves the\n"
	"              request at its next allocation or free\n"
	"Example:\n"
	"  kmem shrink $(pidof redis-server)\n";

/* The process at the start of the command. */
static struct target whose;

static bool is_same(void)
{
	return target_is_same(&whose);
}

/* Read the resident bytes of caches, large blocks, free pages and records. INFO_UNKNOWN: not all parts are known. */
static int look(pid_t pid, unsigned long *bytes)
{
	struct snapshot snapshot = { 0 };
	struct info_resident resident = { .by_cache = NULL };
	enum info_result result = info_of_process(pid, &snapshot);
	int status = 0;

	*bytes = INFO_UNKNOWN;
	if (result != INFO_OK && result != INFO_PARTLY)
		status = info_complain("shrink", pid, result, snapshot.version);
	else if (!info_resident(&snapshot, &resident))
		status = target_has_ended(pid) ? info_complain("shrink", pid, INFO_GONE, "") :
			 kmem_failed(1, "shrink", "%d: the kernel does not report resident memory", pid);
	else if (resident.used != INFO_UNKNOWN && resident.free != INFO_UNKNOWN && resident.records != INFO_UNKNOWN)
		*bytes = resident.used + resident.free + resident.records;
	snapshot_clear(&snapshot);
	return status;
}

static int say(pid_t pid, const struct kmem_mail_request *request, int error)
{
	switch (error) {
	case ENOENT:
		return kmem_failed(1, "shrink", "%d: no cache '%s'; kmem info %d lists the caches", pid,
				   request->cache, pid);
	case EINVAL:
		return kmem_failed(1, "shrink", "%d: runs an older libkmem, which cannot serve this request", pid);
	default:
		return kmem_failed(1, "shrink", "%d: %s", pid, strerror(error & 0xfff));
	}
}

static int shrink(pid_t pid, const char *cache, unsigned wait_ms)
{
	struct kmem_mail_request request = { .command = KMEM_MAIL_SHRINK };
	unsigned long before, after;

	if (cache && (!*cache || strlen(cache) >= sizeof(request.cache)))
		return kmem_failed(1, "shrink", "%d: no cache '%.40s': a name has 1 to %zu characters", pid, cache,
				   sizeof(request.cache) - 1);
	strcpy(request.cache, cache ?: "");
	/* Both measurements and the request must reach the same program. */
	whose.pid = target_thread(pid);
	target_see(&whose);
	kmem_ask_goes_on = is_same;
	int status = look(pid, &before) ?: kmem_ask("shrink", pid, &request, wait_ms, say) ?: look(pid, &after);
	if (!status && !is_same())
		status = kmem_failed(1, "shrink", "%d: the process has ended, or runs another program now", pid);
	target_let_go(&whose);
	if (status)
		return status;
	/* The program runs during the measurements, so resident memory may also grow. */
	if (before == INFO_UNKNOWN || after == INFO_UNKNOWN)
		printf("%d: done; the resident memory is unknown\n", pid);
	else
		printf("%d: %s %s, from %s to %s resident\n", pid,
		       after <= before ? "gave back" : "grew meanwhile by",
		       BYTES(after <= before ? before - after : after - before), BYTES(before), BYTES(after));
	return fflush(stdout) || ferror(stdout) ? kmem_failed(1, "shrink", "writing: %s", strerror(errno)) : 0;
}

int cmd_shrink(int argc, char **argv)
{
	static const struct option known[] = {
		{ "wait", required_argument, NULL, 'w' }, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	unsigned wait_ms = KMEM_ASK_MS;
	int code;

	while ((code = kmem_next_option("shrink", usage_text, argc, argv, "+:", known)) != -1)
		wait_ms = kmem_ask_wait("shrink", optarg);
	argc -= optind;
	argv += optind;
	if (argc)
		argv[0] = info_process("shrink", argv[0], false);
	if (!argc || !info_is_number(argv[0]))
		kmem_usage("shrink", "a process is missing: give the number or the name");
	if (argc > 2)
		kmem_usage("shrink", "too many arguments: give one cache, or none for all caches");
	return shrink(atoi(argv[0]), argv[1], wait_ms);
}
