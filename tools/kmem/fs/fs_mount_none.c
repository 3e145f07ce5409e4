/* fs_mount_none.c: replaces fs_mount.c in builds without libfuse3, e.g. with musl-gcc or a cross compiler. */
#include "fs/fs.h"
#include "command.h"

int fs_mount(pid_t pid, const char *at, unsigned wait_ms)
{
	return kmem_failed(1, "fs", "this kmem is built without libfuse3, and cannot mount; use --snapshot");
}
