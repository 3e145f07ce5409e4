/*
 * waits.c: a program whose record leads, from SIGUSR1 on, to a page that nobody brings in: its faults are handled by
 * userfaultfd, and the one who would do it sleeps. waits: says "ready", after the signal "waits", and waits to be
 * killed. waits try: 77: it may not. With TICKS: preloaded, by which a command's seconds are milliseconds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef TICKS

int nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)time;
	(void)left;
	return usleep(1000);
}

#else

#include <kmem/kmem.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "cache/root.h"
#include "page/meta.h"

static void *page;

static void begin_to_wait(int number)
{
	struct km_root *root = km_meta_root();

	(void)number;
	root->caches = page;
	(void)!write(STDOUT_FILENO, "waits\n", 6);
}

int main(int argc, char **argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct kmem_cache *cache = kmem_cache_create("waits", 100, 0, 0, NULL);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register pages = { .range = { (unsigned long)page, 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	if (page == MAP_FAILED || fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &pages))
		return 77;
	if (argc > 1)
		return 0;
	signal(SIGUSR1, begin_to_wait);
	printf("object %p\nready\n", kmem_cache_alloc(cache, GFP_KERNEL));
	fflush(stdout);
	for (;;)
		pause();
}

#endif
