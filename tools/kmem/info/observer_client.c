/*
 * observer_client.c: ask a process for its numbers, if this user may not trace the process but is its observer
 * (KMEM_OPTIONS=observer:UID, <kmem/record.h>). The client connects to the process's socket name; the process
 * answers at its next visit to the socket. Invariant: an answer is accepted only from the process itself: the
 * listener must have the process's number, run as one of the process's users or root, and not have ended. The file
 * of the answer must be sealed, so no process can change the file during the read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "info/info.h"
#include <kmem/record.h>

#define MAX_BYTES	((off_t)16 << 20)	/* limit of an answer: a process may send a file of any size */
#define SEALS		(F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)
#define AGAIN_US	20000	/* pause in microseconds before the next attempt */
#define HUNG_UP_TIMES	10u	/* attempts after a connection closed without a message */

/* From <asm/socket.h>, since Linux 6.5. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD	77
#endif

unsigned info_patience_ms = 10000;

/* Fields of /proc/PID/status: the process's number in the innermost pid namespace, and the process's users. */
struct status {
	unsigned number;
	uid_t users[4];		/* real, effective, saved, and for files */
};

static bool read_status(pid_t pid, struct status *status)
{
	FILE *file = target_proc(pid, "status");
	bool has_users = false;
	char line[256];

	status->number = (unsigned)pid;
	while (file && fgets(line, sizeof(line), file)) {
		const char *last = strrchr(line, '\t');

		if (!strncmp(line, "NSpid:", 6) && last)
			sscanf(last, "%u", &status->number);
		else if (!strncmp(line, "Uid:", 4))
			has_users = sscanf(line + 4, "%u %u %u %u", &status->users[0], &status->users[1],
					   &status->users[2], &status->users[3]) == 4;
	}
	if (file)
		fclose(file);
	return has_users;
}

/* Returns: true if the process that began to listen has ended; false also if the kernel lacks SO_PEERPIDFD. The
 * number in SO_PEERCRED may belong to another process by now; the pidfd of SO_PEERPIDFD names the listener itself. */
static bool has_ended(int from)
{
	int process;
	socklen_t bytes = sizeof(process);

	if (getsockopt(from, SOL_SOCKET, SO_PEERPIDFD, &process, &bytes))
		return errno != ENOPROTOOPT;
	struct pollfd end = { .fd = process, .events = POLLIN };
	const bool ended = poll(&end, 1, 0) != 0;
	close(process);
	return ended;
}

/* Returns: true if process `pid`, as one of its users or root, listens on the socket. Any other process may have
 * taken the name first. */
static bool is_of(int from, pid_t pid, const struct status *status)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	bool runs_as = false;

	if (getsockopt(from, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) || peer.pid != pid)
		return false;
	for (unsigned i = 0; i < 4; i++)
		runs_as |= peer.uid == status->users[i];
	return (runs_as || peer.uid == 0) && !has_ended(from);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Connect to the process's socket; while the listen queue is full, wait up to wait_ms milliseconds.
 * Returns: the socket, or -INFO_DENIED or -INFO_SILENT. */
static int connect_to(pid_t pid, unsigned wait_ms)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timeval wait = { .tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000 + 1 };
	struct status status;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || !read_status(pid, &status) || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)))
		goto failed;
	int length = snprintf(address.sun_path + 1, KMEM_OBSERVER_NAME_BYTES, KMEM_OBSERVER_NAME, status.number);
	if (connect(fd, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length))) {
		if (errno == EAGAIN || errno == EINTR) {
			close(fd);
			return -INFO_SILENT;
		}
		goto failed;
	}
	if (is_of(fd, pid, &status))
		return fd;
failed:
	if (fd >= 0)
		close(fd);
	return -INFO_DENIED;
}

/* Receive the descriptor of the answer. *hung_up becomes true if the process closes the connection without a message:
 * the process does so for users that may not ask, and also when the program closes the listening descriptor.
 * Returns: the descriptor; -INFO_SILENT if the process has no answer now; -INFO_DENIED. */
static int receive(int from, bool *hung_up)
{
	char byte;
	struct iovec one = { &byte, 1 };
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = { 0 } };
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	struct stat answer;
	int fd;

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) {
		*hung_up = true;
		return -INFO_DENIED;
	}
	if (!message.msg_controllen)
		return -INFO_SILENT;
	if (message.msg_controllen < CMSG_LEN(sizeof(int)) ||
	    control.header.cmsg_level != SOL_SOCKET || control.header.cmsg_type != SCM_RIGHTS ||
	    control.header.cmsg_len != CMSG_LEN(sizeof(int)))
		return -INFO_DENIED;
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals >= 0 && (seals & SEALS) == SEALS && !fstat(fd, &answer) && answer.st_size <= MAX_BYTES)
		return fd;
	close(fd);
	return -INFO_DENIED;
}

static enum info_result ask_once(pid_t pid, unsigned wait_ms, struct snapshot *snapshot, bool *hung_up)
{
	const uint64_t end = now_ms() + wait_ms;
	int from = connect_to(pid, wait_ms);
	char path[64];

	if (from < 0)
		return (enum info_result)-from;
	struct pollfd ready = { .fd = from, .events = POLLIN };
	const uint64_t now = now_ms();
	int polled = poll(&ready, 1, now < end ? (int)(end - now) : 0);
	int fd = polled > 0 ? receive(from, hung_up) : polled ? -INFO_DENIED : -INFO_SILENT;
	close(from);
	if (fd < 0)
		return (enum info_result)-fd;
	/* The sender may have moved the descriptor's file position, so the file is opened again. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snapshot_clear(snapshot);
	enum info_result result = info_of_file(path, snapshot) ? INFO_OK : INFO_TORN;
	snapshot->pid = (unsigned)pid;
	close(fd);
	return result;
}

enum info_result info_of_observed(pid_t pid, struct snapshot *snapshot)
{
	const uint64_t end = now_ms() + info_patience_ms;
	enum info_result result;
	unsigned refused = 0;
	bool hung_up;
	uint64_t now;

	for (;;) {
		now = now_ms();
		hung_up = false;
		result = ask_once(pid, now < end ? (unsigned)(end - now) : 0, snapshot, &hung_up);
		if (result == INFO_DENIED && hung_up && refused < HUNG_UP_TIMES)
			refused++;
		else if (result != INFO_SILENT || now_ms() >= end)
			return result;
		usleep(AGAIN_US);
	}
}
