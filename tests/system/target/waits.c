/*
 * waits.c: a program whose record leads, from SIGUSR1 on, to a page never filled: its faults are handled by
 * userfaultfd, and the handling thread sleeps. waits: prints "ready", after the signal "waits", and waits to be
 * killed. waits writes: the mailbox can be read, and a writer waits so, or is refused. waits try, waits try-writes:
 * 77: not permitted. With TICKS: a preload by which a command's seconds are milliseconds; with WRITES as well, the
 * command's writes to files wait forever.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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

#ifdef WRITES
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at)
{
	(void)fd, (void)from, (void)bytes, (void)at;
	for (;;)
		pause();
}
#endif

#else

#include <kmem/kmem.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "cache/mailbox.h"
#include "cache/process_record.h"
#include "page/metadata.h"

static void *page;
static int writes;

static void begin_to_wait(int number)
{
	struct km_root *root = km_metadata_root();

	(void)number;
	if (writes)
		root->mail = page;
	else
		root->caches = page;
	(void)!write(STDOUT_FILENO, "waits\n", 6);
}

int main(int argc, char **argv)
{
	writes = argc > 1 && strstr(argv[1], "writes");
	struct uffdio_api api = { .api = UFFD_API, .features = writes ? UFFD_FEATURE_PAGEFAULT_FLAG_WP : 0 };
	struct kmem_cache *cache = kmem_cache_create("waits", 100, 0, 0, NULL);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register pages = { .range = { (unsigned long)page, 4096 },
					.mode = writes ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_writeprotect shut = { pages.range, UFFDIO_WRITEPROTECT_MODE_WP };
	if (page == MAP_FAILED || fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &pages))
		return 77;
	if (writes) {
		memcpy(page, &km_mail, sizeof(km_mail));
		if (ioctl(fd, UFFDIO_WRITEPROTECT, &shut))
			return 77;
	}
	if (argc > 1 && !strncmp(argv[1], "try", 3))
		return 0;
	signal(SIGUSR1, begin_to_wait);
	printf("object %p\nready\n", kmem_cache_alloc(cache, GFP_KERNEL));
	fflush(stdout);
	for (;;)
		pause();
}

#endif
