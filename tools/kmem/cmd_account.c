/*
 * cmd_account.c: `kmem account`: switch charging of malloc's blocks to the groups of the allocating threads on or off
 * in a running program, by a request to the process (request.c). Same effect as mem_cgroup_account_malloc in the
 * program.
 *
 * Exit status: 0; 1 request failed or timed out; 2 wrong usage.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"
#include "info/info.h"
#include "command.h"

static const char usage_text[] =
	"usage: kmem account [--wait=SECONDS] PID on | off\n"
	"Charge new blocks of malloc and new to the groups of their threads in a running\n"
	"program, or stop charging. Blocks from before keep their group.\n"
	"  --wait=SECONDS  time to wait for the program (10); the program serves the\n"
	"              request at its next allocation or free\n"
	"Example:\n"
	"  kmem account $(pidof server) on\n";

static int say(pid_t pid, const struct kmem_mail_request *request, int error)
{
	switch (error) {
	case EOPNOTSUPP:
		return kmem_failed(1, "account", "%d: malloc cannot be charged: it is not libkmem's, uses engine "
						 "slob, or is linked without groups", pid);
	case EINVAL:
		return kmem_failed(1, "account", "%d: runs an older libkmem, which cannot serve this request", pid);
	default:
		return kmem_failed(1, "account", "%d: %s: %s", pid, request->letters, strerror(error & 0xfff));
	}
}

static int account(pid_t pid, const char *on, unsigned wait_ms)
{
	struct kmem_mail_request request = { .command = KMEM_MAIL_ACCOUNT };

	strcpy(request.letters, on);
	int status = kmem_ask("account", pid, &request, wait_ms, say);
	if (status)
		return status;
	printf("%d: malloc's blocks %s\n", pid,
	       !strcmp(on, "on") ? "are charged to the groups of the allocating threads from now on" :
	       "are not charged from now on; blocks charged before stay charged until their free");
	return fflush(stdout) || ferror(stdout) ? kmem_failed(1, "account", "writing: %s", strerror(errno)) : 0;
}

int cmd_account(int argc, char **argv)
{
	static const struct option known[] = {
		{ "wait", required_argument, NULL, 'w' }, { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	unsigned wait_ms = KMEM_ASK_MS;
	int code;

	while ((code = kmem_next_option("account", usage_text, argc, argv, "+:", known)) != -1)
		wait_ms = kmem_ask_wait("account", optarg);
	argc -= optind;
	argv += optind;
	if (argc)
		argv[0] = info_process("account", argv[0], false);
	if (!argc || !info_is_number(argv[0]))
		kmem_usage("account", "a process is missing: give the number or the name");
	if (argc != 2 || (strcmp(argv[1], "on") && strcmp(argv[1], "off")))
		kmem_usage("account", "give on or off");
	return account(atoi(argv[0]), argv[1], wait_ms);
}
