/*
 * vfork.c: vfork that is fork. A child of vfork runs in its parent's memory, with its parent's thread area, but is
 * another thread to the kernel: the CPU id it reads there is stale, and its sequences are not restarted. POSIX lets
 * vfork be fork.
 */
#include <sys/types.h>
#include <unistd.h>

#include <kmem/kmem.h>

KMEM_API pid_t vfork(void)
{
	return fork();
}
