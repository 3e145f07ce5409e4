/*
 * coverage.c: for scripts/coverage, a part of a library built with gcc's counters: the counters are in a file mapped,
 * shared, by all processes of a program. So the program itself writes no counts: a process that ends by
 * _exit, by a signal, or not at all has counted, a child of fork counts into the parent's file, and a handler
 * meets no lock. scripts/coverage redirects the calls of the library's objects from libgcov to this file.
 * In the end the script starts each program once more, only to pass the file's counts to libgcov.
 *
 * Invariant: a program and its file belong together by the program's inode and the time of its last change: a program
 * linked anew begins with zeros.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul

struct gcov_info;
void __gcov_init(struct gcov_info *info);
void __gcov_dump(void);
void km_coverage_init(struct gcov_info *info);
void km_coverage_exit(void);

/* The counters of every object, and nothing else, on pages of their own. */
__asm__(".section km_counters, \"aw\", @nobits\n.balign 4096\n.previous");
extern uint64_t __start_km_counters[], __stop_km_counters[];
extern char _end[];

/* The name of the file mapped at p, or "". Without malloc, because malloc may be counted. */
static void name_of_image(const void *p, char *name, size_t bytes)
{
	char maps[32768];
	size_t length = 0;
	ssize_t n = 0;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && (n = read(fd, maps + length, sizeof(maps) - 1 - length)) > 0)
		length += n;
	if (fd >= 0)
		close(fd);
	maps[length] = 0;
	name[0] = 0;
	for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
		char *after, *path = memchr(line, '/', end - line);
		uintptr_t from = strtoul(line, &after, 16), to = strtoul(after + 1, NULL, 16);

		if (path && (uintptr_t)p >= from && (uintptr_t)p < to && (size_t)(end - path) < bytes) {
			memcpy(name, path, end - path);
			name[end - path] = 0;
		}
	}
}

/* Opens the file, in the folder named by the script; its name has the program's inode and time. */
static int open_counts(const char *folder, int flags)
{
	char image[4096], path[8192];
	struct stat is;
	int length;

	name_of_image(&name_of_image, image, sizeof(image));
	if (!image[0] || stat(image, &is))
		return -1;
	length = snprintf(path, sizeof(path), "%s/", folder);
	for (const char *c = image; *c && length < (int)sizeof(path) - 64; c++)
		path[length++] = *c == '/' ? '%' : *c;
	snprintf(path + length, 64, "@%lu.%ld.%ld", (unsigned long)is.st_ino, (long)is.st_mtim.tv_sec,
		 is.st_mtim.tv_nsec);
	return open(path, flags | O_CLOEXEC, 0666);
}

/*
 * Adds the counts until now to the file, and maps the file in the place of the counters; as a copy for the
 * hand-over, because libgcov adds there. Raw system calls, because tests have functions of their own in the place of
 * libc's mmap.
 */
static void share(const char *folder, int flags)
{
	size_t bytes = (char *)__stop_km_counters - (char *)__start_km_counters;
	size_t whole = (bytes + PAGE - 1) & ~(PAGE - 1);
	int fd = open_counts(folder, flags);

	/* Other data on the last page is the process's own, and counters there stay so, too. */
	if (_end > (char *)__stop_km_counters && whole > bytes)
		bytes = whole -= PAGE;
	if (fd < 0)
		return;
	if (ftruncate(fd, whole) == 0) {
		long mapped = syscall(SYS_mmap, NULL, whole, PROT_READ | PROT_WRITE,
				      flags & O_CREAT ? MAP_SHARED : MAP_PRIVATE, fd, 0);
		uint64_t *shared = (uint64_t *)mapped;

		for (size_t i = 0; mapped != -1 && i < bytes / sizeof(*shared); i++)
			__atomic_fetch_add(&shared[i], __start_km_counters[i], __ATOMIC_RELAXED);
		if (mapped != -1)
			syscall(SYS_mremap, shared, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED,
				__start_km_counters);
	}
	close(fd);
}

/* The constructor of each object of the library calls this, before all others. */
void km_coverage_init(struct gcov_info *info)
{
	static char ready;
	const char *folder = getenv("KM_COVERAGE"), *merge = getenv("KM_COVERAGE_MERGE");

	if (!ready && merge)
		share(merge, O_RDWR);
	else if (!ready && folder)
		share(folder, O_RDWR | O_CREAT);
	ready = 1;
	__gcov_init(info);
}

/* The destructor of the counted program. */
void km_coverage_exit(void)
{
}

static __attribute__((constructor)) void hand_over(void)
{
	if (getenv("KM_COVERAGE_MERGE")) {
		__gcov_dump();
		_exit(0);
	}
}
