/*
 * silent FOLDER: a server of files that answers nothing but the kernel's greeting: whoever asks for a name in FOLDER
 * waits as long as this process is there, and can't be killed. Prints "ready"; status 77: it may not mount.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char request[1 << 18];
	struct fuse_in_header *in = (struct fuse_in_header *)request;
	char options[128];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (argc != 2)
		return 2;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
	if (fd < 0 || mount("silent", argv[1], "fuse", MS_NOSUID | MS_NODEV, options))
		return 77;
	while (read(fd, request, sizeof(request)) > 0) {
		if (in->opcode != FUSE_INIT)
			continue;
		struct {
			struct fuse_out_header head;
			struct fuse_init_out out;
		} answer = { .head = { .len = sizeof(answer), .unique = in->unique },
			     .out = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 1 << 16 } };

		if (write(fd, &answer, sizeof(answer)) != sizeof(answer))
			return 3;
		puts("ready");
		fflush(stdout);
	}
	return 0;
}
