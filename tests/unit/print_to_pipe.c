/*
 * print_to_pipe.c: statistics may go to a pipe whose reader creates and destroys caches before a read: neither waits
 * for the other, and every cache that existed all the time is in the text once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"

#define CACHES		600
#define PATIENCE_S	580
#define TEXT_BYTES	((size_t)4 << 20)

static struct kmem_cache *cache[CACHES];
static char *text;

struct printer {
	int (*print)(int fd);
	int fd[2], result;
};

static void *print(void *arg)
{
	struct printer *printer = arg;

	printer->result = printer->print(printer->fd[1]);
	close(printer->fd[1]);
	return NULL;
}

static void wait_until_full(int fd)
{
	struct pollfd poll_of = { .fd = fd, .events = POLLOUT };

	while (poll(&poll_of, 1, 0))
		usleep(1000);
}

static struct kmem_cache *make(int i)
{
	char name[32];

	snprintf(name, sizeof(name), "printed %d.", i);
	return kmem_cache_create(name, 40, 0, SLAB_NO_MERGE, NULL);
}

/* Returns: how often the name, with its dot, is in the text. */
static unsigned count(int i)
{
	char name[32];
	unsigned times = 0;

	snprintf(name, sizeof(name), "printed_%d.", i);
	for (char *at = text; (at = strstr(at, name)); at++)
		times++;
	return times;
}

/* One in three goes while the writer waits, and comes again, behind the others. */
static void check(int (*print_of)(int fd))
{
	struct printer printer = { .print = print_of };
	pthread_t thread;
	size_t bytes = 0;
	ssize_t got;

	NEED(pipe(printer.fd) == 0 && fcntl(printer.fd[1], F_SETPIPE_SZ, 4096) > 0);
	NEED(pthread_create(&thread, NULL, print, &printer) == 0);
	wait_until_full(printer.fd[1]);
	for (int i = 0; i < CACHES; i += 3) {
		kmem_cache_destroy(cache[i]);
		cache[i] = make(i);
		NEED(cache[i]);
	}
	while ((got = read(printer.fd[0], text + bytes, TEXT_BYTES - 1 - bytes)) > 0)
		bytes += (size_t)got;
	text[bytes] = '\0';
	NEED(pthread_join(thread, NULL) == 0 && printer.result == 0);
	for (int i = 0; i < CACHES; i++)
		if (i % 3)
			CHECK(count(i) == 1);
	close(printer.fd[0]);
}

int main(void)
{
	alarm(PATIENCE_S);
	text = malloc(TEXT_BYTES);
	NEED(text);
	for (int i = 0; i < CACHES; i++)
		NEED((cache[i] = make(i)));
	for (int round = 0; round < 6; round++)
		check(round % 2 ? kmem_print_json : kmem_print_slabinfo);
	return failures != 0;
}
