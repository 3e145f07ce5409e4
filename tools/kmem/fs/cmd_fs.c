/*
 * cmd_fs.c: the command `kmem fs`. The command shows a running program's caches and groups as files with the kernel's
 * names and formats: mounted until interrupted, or copied once into a folder (--snapshot).
 *
 * Exit status: 0; 1 failure; 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"
#include "fs/fs.h"
#include "command.h"

static const char usage_text[] =
	"usage: kmem fs [--wait=SECONDS] PID DIR\n"
	"       kmem fs --snapshot PID DIR\n"
	"Show the caches and groups of a running program as files of the kernel:\n"
	"DIR/proc/slabinfo, DIR/sys/kernel/slab/CACHE/..., DIR/sys/fs/cgroup/GROUP/...\n"
	"The files are mounted in DIR, an empty directory, until the program ends or\n"
	"until an interrupt. A write to a file changes the program.\n"
	"  --snapshot  copy the files to DIR, with their present values\n"
	"  --wait=SECONDS  time to wait for the program (10) after a write\n"
	"Example:\n"
	"  kmem fs $(pidof redis-server) /mnt & cat /mnt/proc/slabinfo\n";

static int copy(pid_t pid, char *into)
{
	struct fs_tree tree;
	enum info_result result = fs_take(pid, &tree);

	if (info_errno(result))
		return info_complain("fs", pid, result, tree.snapshot.version);
	int status = fs_copy(&tree, into);
	fs_clear(&tree);
	return status ?: info_complain("fs", pid, result, "");
}

int cmd_fs(int argc, char **argv)
{
	static const struct option known[] = {
		{ "snapshot", no_argument, NULL, 's' }, { "wait", required_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	unsigned wait_ms = KMEM_ASK_MS;
	bool once = false;
	int code;

	while ((code = kmem_next_option("fs", usage_text, argc, argv, ":", known)) != -1)
		if (code == 's')
			once = true;
		else
			wait_ms = kmem_ask_wait("fs", optarg);
	argc -= optind;
	argv += optind;
	if (argc)
		argv[0] = info_process("fs", argv[0], false);
	if (!argc || !info_is_number(argv[0]) || !atoi(argv[0]))
		kmem_usage("fs", "a process is missing: give the number or the name");
	if (argc != 2 || !*argv[1])
		kmem_usage("fs", "a folder is missing: give an empty folder");
	return once ? copy(atoi(argv[0]), argv[1]) : fs_mount(atoi(argv[0]), argv[1], wait_ms);
}
