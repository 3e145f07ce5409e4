/*
 * exchanged.c: a program with requests in its mailbox. exchanged: serves requests; SIGUSR1: executes
 * ./other/exchanged, with the mailbox's address and size as arguments. exchanged read-only|shared: the record names a
 * mailbox in memory of this kind. SIGUSR2 ends the program: status 4; of the other two 0 if the memory was not
 * written to, else 3. With OTHER: the other program, with memory of its own at the address, and named "other" from
 * then on.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifdef OTHER

int main(int argc, char **argv)
{
	uintptr_t from = argc > 2 ? strtoul(argv[1], NULL, 16) & -4096ul : 0;
	size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) + 8192 & -4096ul : 0;
	sigset_t end;
	int number;

	char *at = mmap((void *)from, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (at == MAP_FAILED)
		return 5;
	memset(at, 0x5a, bytes);
	prctl(PR_SET_NAME, "other");
	sigemptyset(&end);
	sigaddset(&end, SIGUSR2);
	sigprocmask(SIG_BLOCK, &end, NULL);
	sigwait(&end, &number);
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != 0x5a)
			return 3;
	return 0;
}

#else

#include <kmem/kmem.h>

#include "cache/mailbox.h"
#include "cache/process_record.h"
#include "page/metadata.h"

static char address[32], size[32];
static const struct kmem_mail *elsewhere;
static struct kmem_mail before;

static void become(int number)
{
	sigset_t end;

	sigemptyset(&end);
	sigaddset(&end, SIGUSR2);
	sigprocmask(SIG_SETMASK, &end, NULL);
	execl("other/exchanged", "exchanged", address, size, NULL);
	_exit(number);
}

static void stop(int number)
{
	(void)number;
	_exit(!elsewhere ? 4 : memcmp(elsewhere, &before, sizeof(before)) ? 3 : 0);
}

static void move_mail(int kind)
{
	struct km_root *root = km_metadata_root();
	struct kmem_mail *mail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);

	if (mail == MAP_FAILED || !root)
		_exit(6);
	before = *mail = km_mail;
	elsewhere = mail;
	if (kind == MAP_PRIVATE)
		mprotect(mail, 4096, PROT_READ);
	root->mail = mail;
}

int main(int argc, char **argv)
{
	struct kmem_cache *cache = kmem_cache_create("exchanged", 200, 0, 0, NULL);
	static void *objects[1000];

	snprintf(address, sizeof(address), "%lx", (unsigned long)&km_mail);
	snprintf(size, sizeof(size), "%zu", sizeof(km_mail));
	signal(SIGUSR1, become);
	signal(SIGUSR2, stop);
	if (argc > 1)
		move_mail(strcmp(argv[1], "shared") ? MAP_PRIVATE : MAP_SHARED);
	if (write(1, "ready\n", 6) != 6)
		return 5;
	for (;;) {
		for (size_t i = 0; i < 1000; i++)
			objects[i] = kmem_cache_alloc(cache, GFP_KERNEL);
		for (size_t i = 0; i < 1000; i++)
			kmem_cache_free(cache, objects[i]);
		kmem_cache_shrink(cache);
		usleep(500);
	}
}

#endif
