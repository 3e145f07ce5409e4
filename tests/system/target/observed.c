/*
 * A program with an observer: observed dumpable|closed|forks|becomes|closes|silent, or observed limited BYTES. It
 * allocates and frees for ever, so that misses come. closed: PR_SET_DUMPABLE is off. forks: prints "child PID"; the
 * child goes on, and so does its parent. becomes: another program, at SIGUSR1. closes: all descriptors, then has
 * sockets of its own under those numbers, and listens to them as "@observed-own-PID-NUMBER". silent: allocates nothing
 * after "ready". limited: no file may grow beyond so many bytes after "ready".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define OWN 200

static struct kmem_cache *cache;

static void *want(void *p)
{
	if (!p)
		exit(3);
	return p;
}

/* Whole slabs come and go. */
static void allocate(void)
{
	void *objects[300];

	for (int i = 0; i < 300; i++)
		objects[i] = want(kmem_cache_alloc(cache, GFP_KERNEL));
	for (int i = 0; i < 300; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_shrink(cache);
	usleep(2000);
}

static void become(int number)
{
	(void)number;
	execlp("sleep", "sleep", "1000", NULL);
	_exit(7);
}

/* Every number up to there is a listening socket of the program's. */
static void open_own(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	for (int fd = 3; fd < OWN; fd++)
		close(fd);
	for (int fd = 3; fd < OWN; fd++) {
		int got = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

		snprintf(address.sun_path + 1, 40, "observed-own-%d-%d", (int)getpid(), got);
		if (got != fd || bind(got, (struct sockaddr *)&address, sizeof(address)) || listen(got, 8))
			exit(4);
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc >= 2 ? argv[1] : "";
	struct mem_cgroup *group = want(mem_cgroup_create(NULL, "observed group", 0));

	(void)group;
	cache = want(kmem_cache_create("observed", 3000, 0, 0, NULL));
	signal(SIGUSR1, become);
	allocate();
	if (!strcmp(mode, "closed") && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return 5;
	if (!strcmp(mode, "forks")) {
		pid_t child = fork();

		if (child < 0)
			return 6;
		if (child)
			printf("child %d\n", (int)child);
		fflush(stdout);
	}
	if (!strcmp(mode, "closes")) {
		for (int i = 0; i < 100; i++)
			allocate();
		open_own();
	}
	if (write(1, "ready\n", 6) != 6)
		return 8;
	if (!strcmp(mode, "limited")) {
		const rlim_t bytes = strtoul(want(argc == 3 ? argv[2] : NULL), NULL, 10);

		if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){ bytes, bytes }))
			return 9;
	}
	while (strcmp(mode, "silent"))
		allocate();
	for (;;)
		pause();
}
