/*
 * os_signal.c: the handler of SIGSEGV. Invariant: a fault unknown to the library ends as without the library.
 * Either the program's previous handler runs, on the stack and with the blocked signals of its installation; or the
 * default action happens at the faulting instruction, so that a core dump shows the instruction. If the program
 * later installs its own handler, this handler is replaced without notice.
 */
#define _GNU_SOURCE
#include "os_signal.h"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/atomic.h"
#include "die.h"
#include "os_call.h"

static struct {
	struct sigaction before;	/* the program's previous action */
	km_fault_fn *handler;
} faults;

#if defined(__x86_64__)
static void describe(const ucontext_t *context, struct km_fault *fault)
{
	fault->pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
	fault->sp = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
	fault->fp = (uintptr_t)context->uc_mcontext.gregs[REG_RBP];
	fault->access = context->uc_mcontext.gregs[REG_ERR] & 2 ? KM_ACCESS_WRITE : KM_ACCESS_READ;
}
#elif defined(__aarch64__)
/* Read the exception's syndrome, one of the records behind the registers: class of the exception, and write bit. */
#define SYNDROME	0x45535201u	/* magic number of the record */
#define ESR_DATA_ABORT	0x24u
#define ESR_WRITE	((uint64_t)1 << 6)
static void describe(const ucontext_t *context, struct km_fault *fault)
{
	const char *at = (const char *)context->uc_mcontext.__reserved;
	const char *end = at + sizeof(context->uc_mcontext.__reserved);
	struct { uint32_t magic, size; uint64_t esr; } record;

	fault->pc = (uintptr_t)context->uc_mcontext.pc;
	fault->sp = (uintptr_t)context->uc_mcontext.sp;
	fault->fp = (uintptr_t)context->uc_mcontext.regs[29];
	fault->lr = (uintptr_t)context->uc_mcontext.regs[30];
	for (; at + sizeof(record) <= end; at += record.size) {
		__builtin_memcpy(&record, at, sizeof(record));
		if (!record.magic || record.size < 8)
			return;
		if (record.magic == SYNDROME && (record.esr >> 26 & 0x3f) == ESR_DATA_ABORT)
			fault->access = record.esr & ESR_WRITE ? KM_ACCESS_WRITE : KM_ACCESS_READ;
	}
}
#else
static void describe(const ucontext_t *context km_unused, struct km_fault *fault km_unused)
{
}
#endif

/* Take the default action: the instruction runs again and faults; a signal sent by a process is sent again. */
static void as_by_default(int number, const siginfo_t *info)
{
	struct sigaction none = { .sa_handler = SIG_DFL };

	sigaction(number, &none, NULL);
	if (info->si_code <= 0)
		syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), number);
}

/* Call the previous handler as the kernel would. The signal mask is restored when on_fault returns. */
static void pass_on(int number, siginfo_t *info, void *context)
{
	const struct sigaction before = faults.before;

	if (before.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
		as_by_default(number, info);
		return;
	}
	sigset_t own;
	sigemptyset(&own);
	sigaddset(&own, number);
	pthread_sigmask(SIG_BLOCK, &before.sa_mask, NULL);
	if (before.sa_flags & SA_NODEFER)
		pthread_sigmask(SIG_UNBLOCK, &own, NULL);
	if (before.sa_flags & (int)SA_RESETHAND)
		faults.before.sa_handler = SIG_DFL;
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(number, info, context);
	else
		before.sa_handler(number);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	km_errno_scope(saved_errno);
	struct km_fault fault = { .address = info->si_addr };

	km_debug(faults.handler != NULL, "a handler is known before it is called");
	/* si_code > 0: a fault; a signal sent by a process has no address. */
	if (info->si_code > 0)
		describe(context, &fault);
	if (info->si_code <= 0 || faults.handler(&fault) != KM_FAULT_RESUMED)
		pass_on(number, info, context);
}

bool km_os_catch_faults(km_fault_fn *handler, bool over)
{
	struct sigaction ours = { .sa_flags = SA_SIGINFO | SA_ONSTACK };

	km_debug(!faults.handler, "faults have one handler of libkmem");
	if (km_os_is_shut() || KM_CALL(sigaction(SIGSEGV, NULL, &faults.before)))
		return false;
	bool has_own = faults.before.sa_handler != SIG_DFL;
	if (has_own && !over)
		return false;
	/* Use the stack of the program's handler: an alternate stack may be too small for the handler. */
	if (has_own && faults.before.sa_handler != SIG_IGN && !(faults.before.sa_flags & SA_ONSTACK))
		ours.sa_flags = SA_SIGINFO;
	faults.handler = handler;
	ours.sa_sigaction = on_fault;
	sigemptyset(&ours.sa_mask);
	return !KM_CALL(sigaction(SIGSEGV, &ours, NULL));
}

/* The system reads the signal set before it refuses the operation -1. */
bool km_os_may_read(uintptr_t at)
{
	return km_os_is_shut() || KM_CALL(syscall(SYS_rt_sigprocmask, -1, at, NULL, sizeof(uint64_t))) != -EFAULT;
}
