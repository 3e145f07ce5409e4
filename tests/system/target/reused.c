/*
 * A reused process number: reused UID FILE, as root. A process of user UID listens to its observer's name and ends;
 * a forked one goes on answering there with FILE, sealed. Then a process of root has the same number, unreadable for
 * other users. Prints "reused PID ANSWERING", then "ready"; only the latter where a number cannot be chosen.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void want(int ok)
{
	if (!ok)
		exit(3);
}

static pid_t fork_as(pid_t number)
{
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (unsigned long)&number, .set_tid_size = 1 };
	pid_t got = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (got < 0) {
		puts("ready");
		exit(0);
	}
	return got;
}

static int sealed_copy(const char *path)
{
	int from = open(path, O_RDONLY), fd = memfd_create("lie", MFD_ALLOW_SEALING);

	want(from >= 0 && fd >= 0 && sendfile(fd, from, NULL, 1 << 20) > 0);
	want(!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	return fd;
}

static void answer(int listening, int fd)
{
	char byte = 1, room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec one = { &byte, 1 };
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_len = CMSG_LEN(sizeof(int));
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	for (;;) {
		int to = accept(listening, NULL, NULL);

		want(to >= 0 && sendmsg(to, &message, MSG_NOSIGNAL) == 1);
		close(to);
	}
}

static void listen_and_end(unsigned user, const char *path, pid_t number)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = sealed_copy(path), listening = socket(AF_UNIX, SOCK_STREAM, 0);
	int length = snprintf(address.sun_path + 1, 40, "libkmem-observer-%d", (int)number);

	want(!setresuid(user, user, user) && getpid() == number);
	want(!bind(listening, (struct sockaddr *)&address,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) && !listen(listening, 8));
	pid_t child = fork();
	want(child >= 0);
	if (!child)
		answer(listening, fd);
	printf("reused %d %d\n", (int)number, (int)child);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	want(argc == 3);
	pid_t number = fork();
	int status;

	if (!number)
		_exit(0);
	want(number > 0 && waitpid(number, NULL, 0) == number);
	if (!fork_as(number))
		listen_and_end((unsigned)atoi(argv[1]), argv[2], number);
	want(waitpid(number, &status, 0) == number && status == 0);
	if (!fork_as(number)) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_DUMPABLE, 0);
		want(write(1, "ready\n", 6) == 6);
		for (;;)
			pause();
	}
	for (;;)
		pause();
}
