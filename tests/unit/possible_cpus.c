/*
 * possible_cpus.c: the number of possible CPUs without /sys: as many as the kernel's masks hold, not as many as
 * this process may use, because a thread on a higher CPU would find its sheaf outside of the library's memory. A
 * filter refuses the file, and simulates a kernel with masks of 192 CPUs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/os.h"

static void on_affinity(int number, siginfo_t *info, void *context)
{
	ucontext_t *at = context;

	(void)number;
	(void)info;
#if defined(__x86_64__)
	at->uc_mcontext.gregs[REG_RAX] = 192 / 8;
#elif defined(__aarch64__)
	at->uc_mcontext.regs[0] = 192 / 8;
#endif
}

int main(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOENT),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	struct sigaction action = { .sa_sigaction = on_affinity, .sa_flags = SA_SIGINFO };
	unsigned masks, with_file = km_os_possible_cpus(&masks), without;

	sigaction(SIGSYS, &action, NULL);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		printf("no filter to be had (errno %d)\n", errno);
		return 77;
	}
	without = km_os_possible_cpus(&masks);
	printf("%u possible CPUs, %u where the file can't be read\n", with_file, without);
	return with_file < 1 || without != 192 || masks != 192;
}
