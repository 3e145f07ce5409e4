/*
 * no_start: if the system leaves too little memory for the library's start, every allocation fails with ENOMEM, and
 * one line gives the reason: under RLIMIT_AS, under RLIMIT_DATA, and with a filter that refuses reserving mappings.
 * With 64 MiB the library starts without a line; and at any RLIMIT_STACK. Each in a process of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <kmem/kmem.h>

#include "kit/cases.h"

#define MIB (1ul << 20)

/* The exit status of the process with the library's start. */
static int starts(bool wanted)
{
	unsigned got = 0;

	for (unsigned i = 0; i < 5; i++) {
		errno = 0;
		void *p = kmalloc(100, GFP_KERNEL | __GFP_NOWARN);
		got += p != NULL;
		NEED(p || errno == ENOMEM);
		kfree(p);
	}
	NEED(got == (wanted ? 5 : 0), "(%u)", got);
	return 0;
}

static struct {
	int resource;
	size_t bytes;
	bool filtered, starts;
} how;

static void filter(void)
{
	/* mmap with MAP_NORESERVE is EPERM; the low half of the fourth argument. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_NORESERVE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
}

static void anew(void)
{
	struct rlimit limit = { how.bytes, how.bytes };

	NEED(!how.bytes || !setrlimit(how.resource, &limit));
	if (how.filtered)
		filter();
	execl("/proc/self/exe", "no_start", how.starts ? "starts" : "refused", (char *)NULL);
	_exit(127);
}

static void look(const char *line)
{
	char text[4096], wanted[128] = "";
	int lines, status = said(anew, text, &lines);

	if (line)
		snprintf(wanted, sizeof(wanted), "libkmem: start failed: the system refuses memory%s: "
			 "all allocations fail\n", line);
	if (how.filtered && WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return;
	CHECK(status == 0 && !strcmp(text, wanted), "%d, %zu bytes: status %#x, %d lines: %s", how.resource, how.bytes,
	      (unsigned)status, lines, text);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return starts(!strcmp(argv[1], "starts"));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("a sanitizer reserves address space, too");
	return 77;
#endif
	unsetenv("KMEM_PERCPU");
	how.resource = RLIMIT_AS;
	how.bytes = 14 * MIB;
	look(", RLIMIT_AS is 14336 KiB (raise ulimit -v)");
	how.resource = RLIMIT_DATA;
	how.bytes = 4 * MIB;
	look(", RLIMIT_DATA is set (raise ulimit -d)");
	how.bytes = 0;
	how.filtered = true;
	look("");
	how.filtered = false;
	how.starts = true;
	look(NULL);
	how.resource = RLIMIT_STACK;
	how.bytes = 256 << 10;
	look(NULL);
	how.resource = RLIMIT_AS;
	how.bytes = 64 * MIB;
	look(NULL);
	how.resource = RLIMIT_DATA;
	how.bytes = 64 * MIB;
	look(NULL);
	return failures != 0;
}
