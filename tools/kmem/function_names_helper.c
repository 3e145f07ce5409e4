/*
 * function_names_helper.c: names of functions, found in another process, because libdw reads untrusted files.
 * Invariant: if the other process crashes, exceeds its limit of memory or takes too long, the file has no names; the
 * next file has names.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"
#include "function_names.h"
#include "file_helper.h"

#define MOST_PATH	16384u
#define MOST_TEXT	4000u		/* bytes of a name or a path; the rest is cut off */
#define MOST_DATA	((rlim_t)512 << 20)
#define WAIT_MS		20000		/* for one answer: debugging information may be large */
#define MOST_FAILED	4u		/* files; after so many failures no file has names */

static struct request {
	uint64_t address;
	char path[MOST_PATH];
} request;

static struct reply {
	uint64_t count;
	struct {
		uint64_t start, bytes;
		int line, has_source;
		char function[MOST_TEXT], source[MOST_TEXT];
	} name[MOST_NAMES];
} reply;

static struct {
	pid_t pid;			/* 0: no process */
	int socket;
	unsigned failed;
} other;

_Noreturn static void serve(int from)
{
	struct name names[MOST_NAMES];

	while (recv(from, &request, sizeof(request), 0) > 0) {
		struct image *image = image_at(request.path);

		reply.count = image && image->bytes ? names_at(image, request.address, names) : 0;
		for (size_t i = 0; i < reply.count; i++) {
			const struct name *name = &names[i];

			reply.name[i].start = name->start;
			reply.name[i].bytes = name->bytes;
			reply.name[i].line = name->line;
			reply.name[i].has_source = name->source != NULL;
			strncpy(reply.name[i].function, name->function, MOST_TEXT - 1);
			strncpy(reply.name[i].source, name->source ?: "", MOST_TEXT - 1);
		}
		send(from, &reply, offsetof(struct reply, name) + reply.count * sizeof(*reply.name), MSG_NOSIGNAL);
	}
	_exit(0);
}

/* End the other process by SIGKILL, because the process may be in a loop. */
static void leave(void)
{
	if (!other.pid)
		return;
	close(other.socket);
	kill(other.pid, SIGKILL);
	waitpid(other.pid, NULL, 0);
	other.pid = 0;
}

/* The start of the other process. All signals are blocked except SIGBUS: signals to the command do not reach the
 * process, its own faults end the process. */
_Noreturn static void begin(int from)
{
	const struct rlimit none = { 0, 0 };
	sigset_t all;

	prctl(PR_SET_NAME, "kmem-names");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	setrlimit(RLIMIT_CORE, &none);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	setrlimit(RLIMIT_DATA, &(struct rlimit){ MOST_DATA, MOST_DATA });
#endif
	if (from != STDERR_FILENO + 1)
		from = dup2(from, STDERR_FILENO + 1);
	kmem_close_from(from + 1);
	images_forget();
	opened_forget();
	serve(from);
}

static bool start(void)
{
	static bool registered;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return false;
	other.pid = fork();
	if (!other.pid)
		begin(ends[1]);
	close(ends[1]);
	other.socket = ends[0];
	if (other.pid < 0) {
		close(ends[0]);
		other.pid = 0;
		return false;
	}
	if (!registered)
		atexit(leave);
	registered = true;
	return true;
}

/* False: there is no answer. */
static bool ask(const struct image *image, uint64_t address)
{
	struct pollfd from = { .fd = other.socket, .events = POLLIN };
	const size_t length = strlen(image->path) + 1;
	int got;

	request.address = address;
	memcpy(request.path, image->path, length);
	if (send(other.socket, &request, offsetof(struct request, path) + length, MSG_NOSIGNAL) < 0)
		return false;
	while ((got = poll(&from, 1, WAIT_MS)) < 0 && errno == EINTR)
		;
	return got > 0 && recv(other.socket, &reply, sizeof(reply), 0) > 0;
}

size_t names_apart(struct image *image, uint64_t address, struct name names[MOST_NAMES])
{
	if (!image->bytes || image->failed || other.failed >= MOST_FAILED || strlen(image->path) >= MOST_PATH ||
	    (!other.pid && !start()))
		return 0;
	if (!ask(image, address)) {
		char *path = info_printable_copy(image->path);

		image->failed = true;
		leave();
		kmem_failed(0, "",
			    "%s: the helper process ended or did not answer: functions of this file have no names%s",
			    path, ++other.failed < MOST_FAILED ? "" : ", nor have functions of other files");
		free(path);
		return 0;
	}
	for (size_t i = 0; i < reply.count; i++)
		names[i] = (struct name){
			.function = reply.name[i].function, .start = reply.name[i].start,
			.bytes = reply.name[i].bytes, .line = reply.name[i].line,
			.source = reply.name[i].has_source ? reply.name[i].source : NULL,
		};
	return reply.count;
}
