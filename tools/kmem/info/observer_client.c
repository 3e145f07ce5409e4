/*
 * The numbers of a process that may not be traced by this user, but names this user as its observer
 * (KMEM_OPTIONS=observer:UID, ext/observe/observer.h): asked for by name, answered when it next comes by. Nothing of
 * the answer is trusted: who listens to the name must be that process, of one of its users and not ended since, and the
 * file can be changed by nobody while it is read.
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
#include "ext/observe/observer.h"

#define MAX_BYTES	((off_t)16 << 20)	/* of an answer: anybody may give one, of himself */
#define SEALS		(F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)
#define AGAIN_US	20000	/* after an answer that there is none just now */
#define HUNG_UP_TIMES	10u	/* that it is asked again after it hung up without a word */

/* Of <asm/socket.h>, since Linux 6.5. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD	77
#endif

unsigned info_patience_ms = 10000;

/* Of /proc/PID/status: the number that the process has for itself, in whatever namespace, and its users. */
struct status {
	unsigned number;
	uid_t users[4];		/* real, effective, saved, of files */
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

/* Its number may be another process's by now: the kernel says who listened first, not who is there. */
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

/* Anybody may have taken the name before. */
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

/* Where too many wait already it waits to be one of them. The socket, or INFO_DENIED or INFO_SILENT, negative. */
static int connect_to(pid_t pid, unsigned wait_ms)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timeval wait = { .tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000 + 1 };
	struct status status;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || !read_status(pid, &status) || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)))
		goto failed;
	int length = snprintf(address.sun_path + 1, KM_OBSERVER_NAME_BYTES, KM_OBSERVER_NAME, status.number);
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

/* The descriptor that comes, or INFO_DENIED, or INFO_SILENT where there is no answer just now: negative. Hung up:
 * without a word, as one does who is asked by others than may ask, and one whose descriptor the program closes. */
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
	/* Its own file position may be anywhere: it is opened anew. */
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
