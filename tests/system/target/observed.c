/*
 * A program with an observer: observed MODE, or observed limited BYTES. The program allocates and frees forever, so
 * that misses come. closed: PR_SET_DUMPABLE is off. forks: prints "child PID"; the child goes on, and so does its
 * parent. becomes: executes another program, at SIGUSR1. closes: closes all descriptors, opens sockets of its own
 * under those numbers, and listens to them as "@observed-own-PID-NUMBER". silent: allocates nothing after "ready",
 * and had 24 MB before. limited: no file may grow beyond so many bytes after "ready". hits: hits only after "ready".
 * rests: prints "child PID"; the child gets one object, and both sleep. over: its threads end, the first one first,
 * at SIGUSR1, with "the end" in a buffer. walled: as over, without /proc and without permission to open files.
 * numbers: opens a file forever, expects the same number each time, and ends at another one. confined: at SIGUSR1 a
 * filter for all threads ends the process at a call of an observer's; then "confined" is written, and the program
 * sleeps. crowd: the same by eight threads at once. breeds: has children forever, looks in each for foreign
 * descriptors, and ends if there is one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN 200
#define DENY(call)                                                                                 \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                                     \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

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

static void *get(void)
{
	return want(kmem_cache_alloc(cache, GFP_KERNEL));
}

#define MANY 8000

/* All at once, and then nothing any more. */
static void rise_and_fall(void)
{
	static void *objects[MANY];

	for (int i = 0; i < MANY; i++)
		memset(objects[i] = get(), 1, 3000);
	for (int i = 0; i < MANY; i++)
		kmem_cache_free(cache, objects[i]);
}

/* Frees where the program allocates, forever. */
static _Noreturn void hit(void)
{
	for (;;)
		kmem_cache_free(cache, get());
}

static _Noreturn void rest(void)
{
	pid_t child = fork();

	if (!child)
		kfree(want(kmalloc(100, GFP_KERNEL)));
	else
		printf("child %d\n", (int)child);
	if (child)
		printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}

static sem_t asked;

static void note(int number)
{
	(void)number;
	sem_post(&asked);
}

static void wait_until_asked(void)
{
	while (sem_wait(&asked))
		;
}

static void *last(void *walled)
{
	wait_until_asked();
	if (walled && (chroot("empty") || setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, 0 })))
		_exit(14);
	printf("the end\n");
	return NULL;
}

static void end_threads(void *walled)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, last, walled))
		exit(11);
	pthread_exit(NULL);
}

static _Noreturn void count_on_numbers(void)
{
	const int first = open("/dev/null", O_RDONLY);

	for (int fd = first;;) {
		close(fd);
		fd = open("/dev/null", O_RDONLY);
		if (fd != first)
			exit(15);
	}
}

static void confine(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		DENY(socket), DENY(bind), DENY(listen), DENY(accept4), DENY(sendmsg), DENY(fcntl), DENY(memfd_create),
		DENY(shutdown), DENY(gettid), DENY(exit), DENY(tgkill), DENY(connect), DENY(poll), DENY(openat),
		DENY(read), DENY(madvise),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
		exit(12);
	if (write(1, "confined\n", 9) != 9)
		exit(8);
}

static pthread_barrier_t crowd;

static void *confine_at_once(void *unused)
{
	pthread_barrier_wait(&crowd);
	confine();
	for (;;)
		pause();
	return unused;
}

static void confine_crowd(void)
{
	pthread_t thread;

	pthread_barrier_init(&crowd, NULL, 9);
	for (int i = 0; i < 8; i++)
		if (pthread_create(&thread, NULL, confine_at_once, NULL))
			exit(11);
	wait_until_asked();
	pthread_barrier_wait(&crowd);
}

/* Of sockets and files in memory. */
static int count_answers(void)
{
	char path[32], what[32];
	int count = 0;

	for (int fd = 3; fd < 300; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t length = readlink(path, what, sizeof(what));
		count += length > 7 && (!memcmp(what, "socket:", 7) || !memcmp(what, "/memfd:", 7));
	}
	return count;
}

static void *allocate_always(void *unused)
{
	for (;;)
		allocate();
	return unused;
}

static _Noreturn void breed(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, allocate_always, NULL))
		exit(11);
	for (int status;;) {
		pid_t child = fork();

		if (!child)
			_exit(count_answers() != 0);
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			exit(13);
	}
}

/* Many groups, so that a text takes a while. */
static void have_groups(void)
{
	char name[32];

	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "bred-%d", i);
		want(mem_cgroup_create(NULL, name, 0));
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc >= 2 ? argv[1] : "";
	struct mem_cgroup *group = want(mem_cgroup_create(NULL, "observed group", 0));

	(void)group;
	cache = want(kmem_cache_create("observed", 3000, 0, 0, NULL));
	sem_init(&asked, 0, 0);
	signal(SIGUSR1, strcmp(mode, "becomes") ? note : become);
	allocate();
	if (!strcmp(mode, "rests"))
		rest();
	if (!strcmp(mode, "silent"))
		rise_and_fall();
	if (!strcmp(mode, "breeds"))
		have_groups();
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
	if (!strcmp(mode, "hits"))
		hit();
	if (!strcmp(mode, "breeds"))
		breed();
	if (!strcmp(mode, "over") || !strcmp(mode, "walled"))
		end_threads(mode[0] == 'w' ? (void *)mode : NULL);
	if (!strcmp(mode, "numbers"))
		count_on_numbers();
	if (!strcmp(mode, "confined")) {
		wait_until_asked();
		confine();
	}
	if (!strcmp(mode, "crowd"))
		confine_crowd();
	while (strcmp(mode, "silent") && strcmp(mode, "confined") && strcmp(mode, "crowd"))
		allocate();
	for (;;)
		pause();
}
