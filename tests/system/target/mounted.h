/*
 * mounted.h: a folder whose files this process serves (FUSE). Invariant: each request is read whole, and the caller's
 * function answers the request, or does not.
 */
#ifndef KM_TESTS_MOUNTED_H
#define KM_TESTS_MOUNTED_H

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

/* Returns: the process's status; 77: the mount is not permitted. */
static int serve_folder(const char *name, const char *folder, void (*serve)(int fd, const struct fuse_in_header *in))
{
	static char request[1 << 18];
	char options[128];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
	if (fd < 0 || mount(name, folder, "fuse", MS_NOSUID | MS_NODEV, options))
		return 77;
	while (read(fd, request, sizeof(request)) > 0)
		serve(fd, (const struct fuse_in_header *)request);
	return 0;
}

#endif
