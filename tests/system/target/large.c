/*
 * large FOLDER: a server of files with two unreadable to the end: `large` has 2^40 bytes, and each read of `slow`, of
 * 2^30, takes some time. All bytes of both are zeros. Prints "ready"; status 77: the mount is not permitted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "mounted.h"

#define LARGE	2u
#define SLOW	3u
#define SLOW_US	20000
/* A reader of all bytes gets an error, and not the machine's memory. */
#define MOST_READS	2048

static char bytes[1 << 17];

static struct fuse_attr attributes(unsigned long node)
{
	return (struct fuse_attr){ .ino = node, .size = node == LARGE ? 1ull << 40 : node == SLOW ? 1ull << 30 : 0,
				   .mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644, .nlink = 1 };
}

static void answer(int fd, const struct fuse_in_header *in, int error, const void *what, size_t length)
{
	static char text[sizeof(struct fuse_out_header) + sizeof(bytes)];
	struct fuse_out_header head = { (unsigned)(sizeof(head) + (error ? 0 : length)), -error, in->unique };

	memcpy(text, &head, sizeof(head));
	if (!error)
		memcpy(text + sizeof(head), what, length);
	/* The client may have been killed. */
	if (write(fd, text, head.len) < 0)
		return;
}

static void look_up(int fd, const struct fuse_in_header *in)
{
	const char *name = (const char *)(in + 1);
	const unsigned node = !strcmp(name, "large") ? LARGE : !strcmp(name, "slow") ? SLOW : 0;
	struct fuse_entry_out entry = { .nodeid = node, .attr = attributes(node) };

	answer(fd, in, node ? 0 : ENOENT, &entry, sizeof(entry));
}

static void read_some(int fd, const struct fuse_in_header *in)
{
	const struct fuse_read_in *wanted = (const struct fuse_read_in *)(in + 1);
	static unsigned reads;

	if (in->nodeid == SLOW)
		usleep(SLOW_US);
	answer(fd, in, in->nodeid == LARGE && ++reads > MOST_READS ? EIO : 0, bytes,
	       wanted->size < sizeof(bytes) ? wanted->size : sizeof(bytes));
}

static void serve(int fd, const struct fuse_in_header *in)
{
	const struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 1 << 16,
					    .max_readahead = 1 << 17 };
	const struct fuse_attr_out attr = { .attr = attributes(in->nodeid) };
	const struct fuse_open_out opened = { .fh = 0 };
	const struct fuse_statfs_out status = { .st = { .bsize = 4096 } };

	if (in->opcode == FUSE_INIT) {
		answer(fd, in, 0, &init, sizeof(init));
		puts("ready");
		fflush(stdout);
	} else if (in->opcode == FUSE_LOOKUP) {
		look_up(fd, in);
	} else if (in->opcode == FUSE_GETATTR) {
		answer(fd, in, 0, &attr, sizeof(attr));
	} else if (in->opcode == FUSE_OPEN) {
		answer(fd, in, 0, &opened, sizeof(opened));
	} else if (in->opcode == FUSE_STATFS) {
		answer(fd, in, 0, &status, sizeof(status));
	} else if (in->opcode == FUSE_READ) {
		read_some(fd, in);
	} else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_BATCH_FORGET && in->opcode != FUSE_INTERRUPT) {
		answer(fd, in, ENOSYS, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	return argc == 2 ? serve_folder("large", argv[1], serve) : 2;
}
