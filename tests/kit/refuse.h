/* refuse.h: makes one system call of this process and its children fail with an error, from here on. */
#ifndef TESTS_KIT_REFUSE_H
#define TESTS_KIT_REFUSE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * unseen: installs the filter without prctl, so the library does not notice. Returns: false if no filter is
 * available.
 */
static bool refuse_one(unsigned number, unsigned error, bool unseen)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (unseen)
		return !syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
		       !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

__attribute__((unused)) static bool refuse_call(unsigned number, unsigned error)
{
	return refuse_one(number, error, false);
}

/* Has the effect of a filter installed before the library's start. */
__attribute__((unused)) static bool refuse_unseen(unsigned number, unsigned error)
{
	return refuse_one(number, error, true);
}

#endif
