/*
 * debug_places: an address is printed as a file, an offset, and a build id: in one word, for any file name; cut where
 * there is little room, with the whole offset; as the address alone outside of any file. The same in a program at its
 * end, without stacks: then a call is known by its return address.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <kmem/kmem.h>

#include "kit/check.h"
#include "ext/debug/debug.h"

static __attribute__((noinline)) void here(void)
{
	__asm__ volatile("");
}

/* The offset by the dynamic linker, independent of the library: its start of the file with the address. */
static unsigned long offset_of(const void *p)
{
	Dl_info info;

	NEED(dladdr(p, &info));
	return (unsigned long)((const char *)p - (const char *)info.dli_fbase);
}

static void is_place(const void *p, const char *name, size_t bytes)
{
	char text[512], offset[32];

	memset(text, '#', sizeof(text));
	km_stack_place((uintptr_t)p, text, bytes);
	NEED(strlen(text) < bytes && text[bytes] == '#');
	const char *plus = strchr(text, '+');
	snprintf(offset, sizeof(offset), "+%#lx[", offset_of(p));
	CHECK(plus && !strncmp(text, name, (size_t)(plus - text)), "%s", text);
	CHECK(plus && !strncmp(plus, offset, strlen(offset)) && strlen(plus) == strlen(offset) + 9, "%s", text);
	CHECK(bytes < sizeof(text) / 2 || plus == text + strlen(name), "%s", text);
}

static void places(const char *name)
{
	char text[128], wanted[32];

	is_place((const void *)here, name, 400);
	is_place((const void *)here, name, 80);
	Dl_info libc;
	NEED(dladdr((const void *)strtoul, &libc) && libc.dli_fname[0] == '/');
	is_place(libc.dli_saddr, libc.dli_fname, 400);
	/* No file is there, and none ever was. */
	snprintf(wanted, sizeof(wanted), "%p", (void *)text);
	CHECK(!strcmp(km_stack_place((uintptr_t)text, text, sizeof(text)), wanted), "%s", text);
	CHECK(!strcmp(km_stack_place(0x10, text, sizeof(text)), "0x10"), "%s", text);
}

static __attribute__((noinline)) void tracked(struct km_stack_track *track)
{
	km_stack_track(track);
	__asm__ volatile("");
}

static unsigned frames(const struct km_stack_track *track)
{
	unsigned count = 0;

	while (count < KM_STACK_FRAMES && track->frame[count])
		count++;
	return count;
}

static void until_the_end(const char *name)
{
	struct km_stack_track track;

	kfree(kmalloc(8, GFP_KERNEL));
	places(name);
	tracked(&track);
	/* Where no file has tables there is one frame always. */
	CHECK(!km_stack_is_there() || frames(&track) > 1);
	km_stack_over();
	places(name);
	tracked(&track);
	CHECK_EQUAL(frames(&track), 1);
}

/* A copy of this program, by a name with blanks and newlines. */
static void copy_to(const char *path)
{
	int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_WRONLY | O_CREAT, 0700);
	struct stat stat;

	NEED(from >= 0 && to >= 0 && !fstat(from, &stat));
	for (off_t at = 0; at < stat.st_size;)
		NEED(sendfile(to, from, &at, (size_t)(stat.st_size - at)) > 0);
	close(from);
	close(to);
}

int main(int argc, char **argv)
{
	char folder[] = "/tmp/debug_places.XXXXXX", path[128], name[128];
	int status;

	if (argc > 1) {
		until_the_end(argv[1]);
		return failures != 0;
	}
	NEED(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/a b\\\nc\x7f", folder);
	snprintf(name, sizeof(name), "%s/a\\040b\\134\\012c\\177", folder);
	copy_to(path);
	pid_t child = fork();
	if (!child) {
		execl(path, path, name, (char *)NULL);
		_exit(127);
	}
	NEED(waitpid(child, &status, 0) == child);
	unlink(path);
	rmdir(folder);
	CHECK(status == 0);
	return failures != 0;
}
