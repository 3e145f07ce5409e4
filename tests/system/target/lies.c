/*
 * lies.c: now and then a program's reads of another process's memory give false data. Preloaded, or linked with the
 * program. LIES="SEED ODDS": one read in ODDS is false: changed bytes, words that are pointers from elsewhere, small
 * or huge, or a failed read. LIES_KILL=n: before the nth read or write the other process is killed; LIES_EXEC=n: has
 * executed another program; LIES_AGAIN=n: itself, from its beginning; LIES_FORK=n: has a child (live.c). By each
 * interface: process_vm_readv, process_vm_writev, and the file /proc/PID/mem.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static uint64_t state;
static unsigned long odds, reads;
/* Events before a read: the name, the signal that starts the event, and the number of the read. */
static struct {
	const char *name;
	int number;
	unsigned long at;
} events[] = { { "LIES_KILL", SIGKILL, 0 }, { "LIES_EXEC", SIGUSR1, 0 }, { "LIES_AGAIN", SIGHUP, 0 },
	       { "LIES_FORK", SIGUSR2, 0 } };
static uint64_t seen[64];	/* words read before; many of them are pointers */
static unsigned seen_count;

static uint64_t any(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

__attribute__((constructor)) static void begin(void)
{
	const char *lies = getenv("LIES");

	if (lies)
		sscanf(lies, "%lu %lu", &state, &odds);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (getenv(events[i].name))
			events[i].at = strtoul(getenv(events[i].name), NULL, 10);
}

/* The visible sign of the event: the name of a program, or of a child, or a zombie state. */
static void look(pid_t pid, char *text, size_t bytes)
{
	static const char *const files[] = { "comm", "task/%d/children", "statm" };
	size_t length = 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char name[64], path[96];

		snprintf(name, sizeof(name), files[i], (int)pid);
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
		FILE *file = fopen(path, "re");
		/* Of the address space only whether there is one. */
		if (file)
			length += fread(text + length, 1, i < 2 ? bytes - 1 - length : 1, file);
		if (file)
			fclose(file);
	}
	text[length] = '\0';
}

static char state_of(pid_t pid)
{
	char path[64], line[512], found = 'X';

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	if (file && fgets(line, sizeof(line), file) && strrchr(line, ')'))
		sscanf(strrchr(line, ')') + 1, " %c", &found);
	if (file)
		fclose(file);
	return found;
}

/* A stopped process acts when continued; another one when scheduled. */
static void happen(pid_t pid, int number)
{
	char before[256], after[256];

	look(pid, before, sizeof(before));
	if (kill(pid, number))
		return;
	for (unsigned i = 0; i < 10000; i++) {
		look(pid, after, sizeof(after));
		if (strcmp(before, after) || strchr(i > 100 ? "tTZX" : "ZX", state_of(pid)))
			return;
		usleep(1000);
	}
}

static uint64_t another_word(uint64_t word)
{
	static const uint64_t odd[] = { 0, 1, 7, 8, 255, 4096, 65535, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX,
					(uint64_t)1 << 47, (uint64_t)1 << 63 };

	switch (any() % 6) {
	case 0:
		return word ^ (uint64_t)1 << any() % 64;
	case 1:
		return odd[any() % (sizeof(odd) / sizeof(odd[0]))];
	case 2:
		return seen_count ? seen[any() % (seen_count < 64 ? seen_count : 64)] : word + 1;
	case 3:
		return word + any() % 4096 - 2048;
	case 4:
		return word & 0xffffffff00000000u;
	default:
		return any();
	}
}

static void lie(unsigned char *p, size_t bytes)
{
	uint64_t word;

	for (uint64_t n = 1 + any() % 3; n-- && bytes;) {
		size_t at = any() % bytes;

		if (bytes < sizeof(word) || any() % 3 == 0) {
			p[at] = (unsigned char)any();
			continue;
		}
		at = any() % (bytes / sizeof(word)) * sizeof(word);
		memcpy(&word, p + at, sizeof(word));
		word = another_word(word);
		memcpy(p + at, &word, sizeof(word));
	}
}

static void remember(const unsigned char *p, size_t bytes)
{
	for (size_t at = 0; at + 8 <= bytes && at < 256; at += 8) {
		uint64_t word;

		memcpy(&word, p + at, sizeof(word));
		if (word >> 32)
			seen[seen_count++ % 64] = word;
	}
}

static void strike(pid_t pid)
{
	reads++;
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (reads == events[i].at)
			happen(pid, events[i].number);
}

/* The result reported for so many bytes read. */
static ssize_t told(void *bytes, ssize_t got)
{
	if (got <= 0 || !odds)
		return got;
	remember(bytes, (size_t)got);
	if (any() % odds)
		return got;
	if (any() % 16 == 0) {
		errno = EFAULT;
		return -1;
	}
	lie(bytes, (size_t)got);
	return got;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
			 unsigned long remotes, unsigned long flags)
{
	strike(pid);
	long got = syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
	return locals == 1 ? told(local->iov_base, got) : got;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
			  unsigned long remotes, unsigned long flags)
{
	strike(pid);
	return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
}

/* Returns: the process whose memory the file is; 0: none. */
static pid_t memory_of(int fd)
{
	char path[64], name[64];
	int pid, length = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t got = readlink(path, name, sizeof(name) - 1);
	name[got > 0 ? got : 0] = '\0';
	return sscanf(name, "/proc/%d/mem%n", &pid, &length) == 1 && length && !name[length] ? pid : 0;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
	pid_t pid = memory_of(fd);

	if (pid)
		strike(pid);
	ssize_t got = syscall(SYS_pread64, fd, to, bytes, at);
	return pid ? told(to, got) : got;
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at)
{
	pid_t pid = memory_of(fd);

	if (pid)
		strike(pid);
	return syscall(SYS_pwrite64, fd, from, bytes, at);
}
