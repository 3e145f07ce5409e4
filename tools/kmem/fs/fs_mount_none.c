/* The command as it is built where libfuse3 is not there, as with musl-gcc or for another processor. */
#include "fs/fs.h"
#include "command.h"

int fs_mount(pid_t pid, const char *at, unsigned wait_ms)
{
	return kmem_failed(1, "fs", "built without libfuse3, it mounts nothing: --snapshot");
}
