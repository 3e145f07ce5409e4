/*
 * os_socket.c: a name for connections, and descriptors passed over a connection. Invariant: only km_os_wait_for
 * waits, no function raises a signal, and each descriptor is closed by exec.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bits.h"
#include "die.h"
#include "os_call.h"

#define WAITING		128	/* maximum number of waiting connections; the system refuses more */

static bool is_refused(const char *call)
{
	return km_os_is_shut() || km_call_fault(call);
}

/* Returns: a socket that listens under the name, or is connected to the name; or -errno. A name is outside of the file
 * system: the name vanishes with its last descriptor, however the process ends. */
static int open_named(const char *name, bool listens)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const size_t length = __builtin_strlen(name);
	const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	km_errno_scope(saved_errno);

	km_debug(length < sizeof(address.sun_path) - 1, "a name has room in an address");
	__builtin_memcpy(address.sun_path + 1, name, length);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && (listens ? bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, WAITING) :
				  connect(fd, (struct sockaddr *)&address, bytes))) {
		const int error = -errno;

		close(fd);
		return error;
	}
	return fd < 0 ? -errno : fd;
}

int km_os_listen(const char *name, int least)
{
	const int fd = is_refused("listen") ? -EPERM : open_named(name, true);

	if (fd < 0)
		return fd;
	const int result = km_os_duplicate(fd, least);
	km_os_close(fd);
	return result;
}

/* Returns: true also for a closed descriptor: the caller must then check the descriptor. False if the hook makes poll
 * fail. */
bool km_os_wait_for(int fd, unsigned ms)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	return !is_refused("poll") && KM_CALL(poll(&one, 1, (int)ms)) > 0;
}

int km_os_knock(const char *name)
{
	const int fd = is_refused("knock") ? -EPERM : open_named(name, false);

	if (fd < 0)
		return fd;
	km_os_close(fd);
	return 0;
}

int km_os_accept(int fd, unsigned *user)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (is_refused("accept"))
		return -EPERM;
	const int got = (int)KM_CALL(accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (got < 0)
		return got;
	const int error = (int)KM_CALL(getsockopt(got, SOL_SOCKET, SO_PEERCRED, &peer, &bytes));
	if (error) {
		km_os_close(got);
		return error;
	}
	*user = peer.uid;
	return got;
}

int km_os_hand_over(int to, int fd)
{
	char byte = 1;
	struct iovec one = { &byte, 1 };
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = { 0 } };
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1 };

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	__builtin_memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	const long sent = KM_CALL(sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
	return (int)km_min(sent, 0l);
}

int km_os_seal(int fd)
{
	return (int)KM_CALL(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}
