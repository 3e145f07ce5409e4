/*
 * large_leaks: with stacks for blocks of whole pages only (KMEM_DEBUG=U,large) leaks can be reported: by
 * kmem_print_leaks, and for a request from another process.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/mailbox.h"
#include "kit/check.h"

static char text[1 << 16];

static const char *written_to(int fd)
{
	ssize_t length = pread(fd, text, sizeof(text) - 1, 0);

	NEED(length >= 0);
	text[length] = '\0';
	return text;
}

static void told_to_caller(void)
{
	int fd = memfd_create("leaks", 0);

	NEED(fd >= 0);
	CHECK(kmem_print_leaks(fd) == 0);
	CHECK(strstr(written_to(fd), "bytes=100000 ") && strstr(text, "TOTAL 1\n"), "%s", text);
	close(fd);
}

static void told_from_outside(void)
{
	int fd = memfd_create("stderr", 0);

	/* Standard error is the program's original one. */
	NEED(fd >= 0 && dup2(fd, 2) == 2);
	km_mail.request.command = KMEM_MAIL_LEAKS;
	km_store_release(&km_mail.asked, 1u);
	for (int i = 0; i < 1000 && km_load_acquire(&km_mail.answered) != 1; i++)
		kfree(kmalloc((size_t)(i % 400 + 3) << 12, GFP_KERNEL));
	CHECK(km_mail.answered == 1 && km_mail.result == 0, "result %d", km_mail.result);
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		setenv("KMEM_DEBUG", "U,large", 1);
		execl("/proc/self/exe", argv[0], "large", NULL);
		NEED(!"no exec");
	}
	void *volatile p = kmalloc(100000, GFP_KERNEL);

	NEED(p);
	told_to_caller();
	told_from_outside();
	kfree(p);
	return failures != 0;
}
