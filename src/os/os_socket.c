/*
 * os_socket.c: a name for connections, and descriptors passed over a connection. Invariant: only km_os_wait_for
 * waits, no function raises a signal, and each descriptor is closed by exec.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "die.h"
#include "os.h"

#define WAITING		128	/* maximum number of waiting connections; the system refuses more */

static bool is_refused(const char *call)
{
	return km_os_is_shut() || (km_os_fault && km_os_fault(call));
}

static socklen_t fill_address(struct sockaddr_un *address, const char *name)
{
	size_t length = __builtin_strlen(name);

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	km_debug(length < sizeof(address->sun_path) - 1, "a name has room in an address");
	__builtin_memcpy(address->sun_path + 1, name, length);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* A name outside of the file system: the name vanishes with its last descriptor, however the process ends. */
int km_os_listen(const char *name, int least)
{
	struct sockaddr_un address;
	const socklen_t bytes = fill_address(&address, name);
	int saved_errno = errno, fd, result = -EPERM;

	if (is_refused("listen"))
		return result;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, WAITING))
		result = -errno;
	else
		result = km_os_duplicate(fd, least);
	if (fd >= 0)
		close(fd);
	errno = saved_errno;
	return result;
}

/*
 * Returns: true also for a closed descriptor: the caller must then check the descriptor. False if the hook makes
 * poll fail.
 */
bool km_os_wait_for(int fd, unsigned ms)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };
	km_errno_scope(saved_errno);

	return !is_refused("poll") && poll(&one, 1, (int)ms) > 0;
}

int km_os_knock(const char *name)
{
	struct sockaddr_un address;
	const socklen_t bytes = fill_address(&address, name);
	int saved_errno = errno, error = -EPERM;

	if (is_refused("knock"))
		return error;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	error = fd < 0 || connect(fd, (struct sockaddr *)&address, bytes) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	errno = saved_errno;
	return error;
}

int km_os_accept(int fd, unsigned *user)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	int saved_errno = errno, got;

	if (is_refused("accept"))
		return -EPERM;
	got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int error = got < 0 ? -errno : 0;
	if (!error && getsockopt(got, SOL_SOCKET, SO_PEERCRED, &peer, &bytes)) {
		error = -errno;
		close(got);
	}
	errno = saved_errno;
	if (error)
		return error;
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
	km_errno_scope(saved_errno);

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	__builtin_memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
}

int km_os_seal(int fd)
{
	km_errno_scope(saved_errno);
	return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ? -errno : 0;
}
