/*
 * lies.c: what a program reads of another one's memory is not what is there, now and then. It is preloaded, or linked
 * with the program. LIES="SEED ODDS": one read in so many lies: bytes are others, words are pointers from elsewhere,
 * small or huge, or the read fails. LIES_KILL=n: before the nth read the other process is killed.
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
static unsigned long odds, kill_at, reads;
static uint64_t seen[64];	/* words that were read, of which many are pointers */
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
	const char *lies = getenv("LIES"), *kills = getenv("LIES_KILL");

	if (lies)
		sscanf(lies, "%lu %lu", &state, &odds);
	if (kills)
		kill_at = strtoul(kills, NULL, 10);
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

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
			 unsigned long remotes, unsigned long flags)
{
	if (++reads == kill_at)
		kill(pid, SIGKILL);
	long got = syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
	if (got <= 0 || !odds || locals != 1)
		return got;
	remember(local->iov_base, (size_t)got);
	if (any() % odds)
		return got;
	if (any() % 16 == 0) {
		errno = EFAULT;
		return -1;
	}
	lie(local->iov_base, (size_t)got);
	return got;
}
