/*
 * file_helper.c: open files in a helper process. Kernel: a thread that waits for a server (FUSE, NFS) after the
 * server took the request can be neither interrupted nor killed, and a process ends only after all threads. Therefore
 * no thread of this process opens the files. Invariant: this process waits for the helper only while the helper makes
 * progress, then abandons the helper, and the helper ends when the wait ends. The helper copies a file on a server
 * into memory, so that no read in this process waits. Only regular files are opened: opening a device may have
 * effects, and opening a pipe would let the writer continue.
 *
 * The helper process makes system calls only, because the helper may be a fork of a process with threads.
 */
#define _GNU_SOURCE
#include "file_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"

#define TICK_MS		100
#define FIRST_TICKS	50	/* without progress before a timeout: a remote machine may be slow */
#define TICKS		10	/* the same after a first file timed out */
#define MOST_PLACES	64u	/* entries of `silent` and of `left` */
#define MOST_PATH	8000u
#define AT_ONCE		((size_t)64 << 10)
#define MOST_COPIED	((size_t)1 << 30)	/* bytes of a copy in memory: a server may report any length */
#define END_MS		10	/* wait for a killed helper to end */

enum what { OPEN, OPEN_NO_LINK, LOOK };

struct request {
	enum what what;
	size_t most;
	char path[MOST_PATH];
};

struct reply {
	int error;
	struct opened opened;
};

static struct {
	int socket;			/* to the helper; in the helper: to this process */
	pid_t pid;			/* of the helper; 0: no helper */
	uint64_t *progress;		/* counter in shared memory: pieces copied by the helper */
	char *silent[MOST_PLACES];	/* paths of files that timed out */
	size_t silent_count;
	pid_t left[MOST_PLACES];	/* helpers that were abandoned in a wait for a server */
	size_t left_count;
} other;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------ in the helper process */

/* Returns: true: the file is on a server, or the file system is unknown. Kernel: magic numbers of statfs(2). */
static bool is_far(int fd)
{
	static const uint32_t kinds[] = {
		0x65735546 /* FUSE */, 0x6969 /* NFS */, 0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */, 0x517b /* SMB */,
		0x01021997 /* 9P */, 0x00c36400 /* Ceph */, 0x5346414f /* AFS */, 0x6b414653 /* kAFS */,
		0x73757245 /* Coda */, 0x0bd00bd0 /* Lustre */, 0x01161970 /* GFS2 */, 0x7461636f /* OCFS2 */,
	};
	struct statfs status;

	if (fstatfs(fd, &status))
		return true;
	for (size_t i = 0; i < KMEM_COUNT(kinds); i++)
		if ((uint32_t)status.f_type == kinds[i])
			return true;
	return false;
}

static bool is_asked_no_more(void)
{
	struct pollfd from = { .fd = other.socket };

	return poll(&from, 1, 0) > 0;
}

/* Copy at most `most` bytes of a file into a memfd. Returns: the memfd; -1: errno is set. */
static int copy_of(int fd, const struct stat *status, size_t most)
{
	static char bytes[AT_ONCE];
	const size_t length = (uint64_t)status->st_size < most ? (size_t)status->st_size : most;
	ssize_t got = 0;
	int copy;

	if (length > MOST_COPIED) {
		errno = EFBIG;
		return -1;
	}
	copy = memfd_create("kmem", MFD_CLOEXEC);
	for (size_t done = 0; copy >= 0 && done < length; done += (size_t)got) {
		got = read(fd, bytes, length - done < AT_ONCE ? length - done : AT_ONCE);
		if (got <= 0)
			break;
		if (write(copy, bytes, (size_t)got) != got)
			got = -1;
		if (got < 0)
			break;
		__atomic_fetch_add(other.progress, 1, __ATOMIC_RELAXED);
		if (is_asked_no_more())
			_exit(0);
	}
	if (copy >= 0 && (got < 0 || lseek(copy, 0, SEEK_SET))) {
		close(copy);
		return -1;
	}
	return copy;
}

/* Open the file of the O_PATH descriptor `looked` for reading. */
static int open_for_reading(int looked, const struct request *request)
{
	static const char folder[] = "/proc/self/fd/";
	const int how = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	char path[sizeof(folder) + 10] = "", *at = path + sizeof(path) - 1;

	for (int number = looked; number || !*at; number /= 10)
		*--at = (char)('0' + number % 10);
	at -= sizeof(folder) - 1;
	memcpy(at, folder, sizeof(folder) - 1);
	int fd = open(at, how);
	/* /proc may be missing, or may belong to another PID namespace: open by path instead. */
	return fd < 0 && (errno == ENOENT || errno == ENOTDIR) ?
	       open(request->path, how | (request->what == OPEN_NO_LINK ? O_NOFOLLOW : 0)) : fd;
}

/* Serve one request. Returns: a descriptor or -1; reply->error says if the request failed. */
static int serve_one(const struct request *request, struct reply *reply)
{
	int looked = open(request->path, O_PATH | O_CLOEXEC | (request->what == OPEN_NO_LINK ? O_NOFOLLOW : 0)), fd;

	if (looked < 0 || fstat(looked, &reply->opened.status)) {
		reply->error = errno;
		return looked;
	}
	reply->opened.far = is_far(looked);
	if (request->what == LOOK)
		return looked;
	if (!S_ISREG(reply->opened.status.st_mode)) {
		reply->error = EINVAL;
		return looked;
	}
	fd = open_for_reading(looked, request);
	reply->error = fd < 0 ? errno : 0;
	close(looked);
	if (fd >= 0 && reply->opened.far) {
		int copy = copy_of(fd, &reply->opened.status, request->most);

		reply->error = copy < 0 ? errno : 0;
		close(fd);
		fd = copy;
	}
	return fd;
}

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static void send_reply(struct reply *reply, int fd)
{
	struct iovec piece = { reply, sizeof(*reply) };
	union control control = { .room = "" };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

	if (fd >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		control.head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
						 .cmsg_len = CMSG_LEN(sizeof(fd)) };
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	if (sendmsg(other.socket, &message, MSG_NOSIGNAL) < 0 && fd >= 0) {
		/* Kernel: the number of a user's descriptors in flight is limited. Send the error without the
		 * descriptor. */
		reply->error = errno;
		message.msg_control = NULL;
		message.msg_controllen = 0;
		sendmsg(other.socket, &message, MSG_NOSIGNAL);
	}
}

_Noreturn static void serve(void)
{
	static struct request request;

	while (recv(other.socket, &request, sizeof(request), 0) > 0) {
		struct reply reply = { .error = 0 };
		int fd = serve_one(&request, &reply);

		send_reply(&reply, reply.error || request.what == LOOK ? -1 : fd);
		if (fd >= 0)
			close(fd);
	}
	_exit(0);
}

/* ------------------------------------------------------------------ in this process */

static void see_ends(void)
{
	size_t count = 0;

	for (size_t i = 0; i < other.left_count; i++)
		if (waitpid(other.left[i], NULL, WNOHANG) == 0)
			other.left[count++] = other.left[i];
	other.left_count = count;
}

/* Kill the helper and wait at most END_MS. A helper that waits for a server is abandoned: see_ends(), or the new
 * parent after this process ends, reaps the helper. A helper that has ended is never killed, because with SIGCHLD
 * ignored the kernel may have reused the PID. */
static void leave(void)
{
	pid_t ended;

	if (!other.pid)
		return;
	close(other.socket);
	ended = waitpid(other.pid, NULL, WNOHANG);
	if (!ended)
		kill(other.pid, SIGKILL);
	for (int i = 0; i < END_MS && !ended; i++) {
		usleep(1000);
		ended = waitpid(other.pid, NULL, WNOHANG);
	}
	if (!ended && other.left_count < MOST_PLACES)
		other.left[other.left_count++] = other.pid;
	other.pid = 0;
}

/* Start the helper with all signals blocked: after SIGINT from the terminal this process may still ask for names. */
static bool start(void)
{
	static bool registered;
	sigset_t all, mask;
	int ends[2];

	see_ends();
	if (!other.progress) {
		void *shared = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (shared == MAP_FAILED)
			return false;
		other.progress = shared;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_NAME, "kmem-files");
		/* Close inherited descriptors: an open pipe end or a file lock in the helper would make other
		 * processes wait. */
		kmem_close_all_but(ends[1]);
		other.socket = ends[1];
		serve();
	}
	int error = errno;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		errno = error;
		return false;
	}
	other.socket = ends[0];
	other.pid = pid;
	if (!registered)
		atexit(leave);
	registered = true;
	return true;
}

/* Wait for the helper's reply. Returns: false: errno is set; ETIMEDOUT: no progress during `ticks` ticks. Ticks are
 * counted, not time, so that a stop of this process does not count against the helper. */
static bool wait_for_reply(int ticks)
{
	struct pollfd from = { .fd = other.socket, .events = POLLIN };
	uint64_t before = __atomic_load_n(other.progress, __ATOMIC_RELAXED);
	int got;

	for (int waits = 0; waits < ticks; waits++) {
		while ((got = poll(&from, 1, TICK_MS)) < 0 && errno == EINTR)
			;
		if (got)
			return got > 0;
		uint64_t now = __atomic_load_n(other.progress, __ATOMIC_RELAXED);
		waits = now == before ? waits : -1;
		before = now;
	}
	errno = ETIMEDOUT;
	return false;
}

/* Receive a reply. Returns: the descriptor; -1: no descriptor. */
static int receive(struct reply *reply)
{
	struct iovec piece = { reply, sizeof(*reply) };
	union control control;
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.room,
				  .msg_controllen = sizeof(control.room) };
	int fd = -1;

	if (recvmsg(other.socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*reply)) {
		reply->error = EIO;
		leave();
		return -1;
	}
	const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	/* This process is at the limit of open descriptors. */
	else if (message.msg_flags & MSG_CTRUNC)
		reply->error = EMFILE;
	return fd;
}

static size_t folder_of(const char *path)
{
	const char *end = strrchr(path, '/');

	return end ? (size_t)(end - path) : 0;
}

/* Returns: true: the file, or two other files in the same folder, timed out before. */
static bool is_silent(const char *path)
{
	const size_t folder = folder_of(path);
	unsigned beside = 0;

	for (size_t i = 0; i < other.silent_count; i++) {
		if (!strcmp(path, other.silent[i]))
			return true;
		beside += folder && folder_of(other.silent[i]) == folder && !strncmp(path, other.silent[i], folder);
	}
	return beside >= 2;
}

static void note_silent(const char *path)
{
	char *shown = info_printable_copy(path);

	kmem_failed(0, "", "%s: skipped: the file system does not answer (FUSE, or a network file system)", shown);
	free(shown);
	if (other.silent_count < MOST_PLACES)
		other.silent[other.silent_count++] = kmem_need(strdup(path));
	leave();
}

/* Print the message once: without the helper no file can be opened. */
static void note_no_process(int error)
{
	static bool said;

	if (!said)
		kmem_failed(0, "", "functions have no names: the helper process cannot be started: %s",
			    strerror(error));
	said = true;
}

/* Send a request and wait. Returns: false: the helper has ended, e.g. by a signal of another process. */
static bool ask_other(const struct request *request, struct reply *reply, int *fd)
{
	if (!other.pid && !start()) {
		reply->error = errno;
		note_no_process(reply->error);
		return true;
	}
	if (send(other.socket, request, offsetof(struct request, path) + strlen(request->path) + 1, MSG_NOSIGNAL) < 0) {
		reply->error = errno;
		leave();
		return false;
	}
	if (!wait_for_reply(other.silent_count ? TICKS : FIRST_TICKS)) {
		reply->error = errno;
		note_silent(request->path);
		return true;
	}
	*fd = receive(reply);
	return other.pid;
}

static void note_too_large(const char *path)
{
	char *shown = info_printable_copy(path);

	kmem_failed(0, "", "%s: skipped: the file is too large to copy (FUSE, or a network file system)", shown);
	free(shown);
}

static int ask(enum what what, const char *path, size_t most, struct reply *reply)
{
	static struct request request;
	int fd = -1;

	*reply = (struct reply){ .error = strlen(path) < sizeof(request.path) ? 0 : ENAMETOOLONG };
	if (!reply->error && is_silent(path))
		reply->error = ETIMEDOUT;
	if (reply->error)
		return -1;
	request.what = what;
	request.most = most;
	strcpy(request.path, path);
	/* If the helper has ended, a new helper is asked once. */
	if (!ask_other(&request, reply, &fd)) {
		*reply = (struct reply){ .error = 0 };
		ask_other(&request, reply, &fd);
	}
	if (reply->error == EFBIG)
		note_too_large(path);
	return fd;
}

void opened_forget(void)
{
	other.pid = 0;
	pthread_mutex_init(&mutex, NULL);
}

int opened_file(const char *path, bool follow, size_t most, struct opened *opened)
{
	struct reply reply;

	pthread_mutex_lock(&mutex);
	int fd = ask(follow ? OPEN : OPEN_NO_LINK, path, most, &reply);
	pthread_mutex_unlock(&mutex);
	*opened = reply.opened;
	errno = reply.error;
	return fd;
}

bool opened_look(const char *path, struct opened *opened)
{
	struct reply reply;

	pthread_mutex_lock(&mutex);
	ask(LOOK, path, 0, &reply);
	pthread_mutex_unlock(&mutex);
	*opened = reply.opened;
	errno = reply.error;
	return !reply.error;
}
