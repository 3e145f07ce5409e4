/*
 * silent FOLDER: a server of files that answers only the kernel's greeting: a process that looks a name up in FOLDER
 * waits until the server's end, and cannot be killed. Prints "ready"; status 77: the mount is not permitted.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "mounted.h"

static void serve(int fd, const struct fuse_in_header *in)
{
	struct {
		struct fuse_out_header head;
		struct fuse_init_out out;
	} answer = { .head = { .len = sizeof(answer), .unique = in->unique },
		     .out = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 1 << 16 } };

	if (in->opcode != FUSE_INIT)
		return;
	if (write(fd, &answer, sizeof(answer)) != sizeof(answer))
		exit(3);
	puts("ready");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	return argc == 2 ? serve_folder("silent", argv[1], serve) : 2;
}
