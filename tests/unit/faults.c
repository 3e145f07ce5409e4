/*
 * faults: a fault outside the library's memory ends as without the library: in the program's handler, on the stack
 * and with the signal mask requested by the program, once if requested; ignored, or by default, as the program set.
 * Faults of the library's memory go to the library's handler first, and the handler may retry the instruction. Each
 * in a process.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "kit/cases.h"
#include "os/os.h"
#include "os/os_signal.h"

static enum km_fault_end end = KM_FAULT_NOT_OURS;
static volatile unsigned ours, theirs;
static struct km_fault last;
static char *page;

static enum km_fault_end handle(const struct km_fault *fault)
{
	ours++;
	last = *fault;
	if (end == KM_FAULT_RESUMED)
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
	return end;
}

static sigjmp_buf back;
static sigset_t blocked;
static siginfo_t told;

static void leave(int number)
{
	theirs++;
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	siglongjmp(back, number);
}

static void leave_with(int number, siginfo_t *info, void *context)
{
	told = *info;
	NEED(context);
	leave(number);
}

static void stay(int number)
{
	theirs += number == SIGSEGV;
}

static void install_for(km_fault_fn *first, void (*handler)(int number), int flags, int also_blocked)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	if (flags & SA_SIGINFO)
		action.sa_sigaction = leave_with;
	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(page != MAP_FAILED);
	sigemptyset(&action.sa_mask);
	if (also_blocked)
		sigaddset(&action.sa_mask, also_blocked);
	NEED(!sigaction(SIGSEGV, &action, NULL) && km_os_catch_faults(first, true));
}

static void install(void (*handler)(int number), int flags, int also_blocked)
{
	install_for(handle, handler, flags, also_blocked);
}

static void touch(bool write)
{
	if (sigsetjmp(back, 1))
		return;
	if (write)
		*(volatile char *)page = 1;
	else
		(void)*(volatile char *)page;
}

static void plain_handler(void)
{
	install(leave, 0, SIGUSR1);
	touch(true);
	CHECK(ours == 1 && theirs == 1 && last.address == page && last.access == KM_ACCESS_WRITE && last.pc);
	CHECK(sigismember(&blocked, SIGUSR1) && sigismember(&blocked, SIGSEGV));
	touch(false);
	CHECK(ours == 2 && theirs == 2 && last.access == KM_ACCESS_READ);
}

static void with_information(void)
{
	install(NULL, SA_SIGINFO | SA_NODEFER, 0);
	touch(true);
	CHECK(theirs == 1 && told.si_addr == page && !sigismember(&blocked, SIGSEGV));
	/* A signal sent by a process has no address of the library's memory. */
	if (!sigsetjmp(back, 1))
		raise(SIGSEGV);
	CHECK(ours == 1 && theirs == 2);
}

static void resumed(void)
{
	install(leave, 0, 0);
	end = KM_FAULT_RESUMED;
	errno = 4711;
	touch(true);
	CHECK(ours == 1 && !theirs && errno == 4711 && *page == 1);
}

static void once(void)
{
	install(stay, (int)SA_RESETHAND, 0);
	raise(SIGSEGV);
	CHECK_EQUAL(theirs, 1);
	raise(SIGSEGV);
	NEED(!"it ends by default the second time");
}

static void sent_and_ignored(void)
{
	install(SIG_IGN, 0, 0);
	raise(SIGSEGV);
	CHECK(!ours && !theirs);
}

/* A program that ignores the signal does not go on at a fault: the system ends the program. */
static void ignored(void)
{
	sent_and_ignored();
	touch(true);
	NEED(!"it ends");
}

static void by_default(void)
{
	install(SIG_DFL, 0, 0);
	touch(false);
	NEED(!"it ends");
}

static void sent_by_default(void)
{
	install(SIG_DFL, 0, 0);
	raise(SIGSEGV);
	NEED(!"it ends");
}

static char alternate[65536];
static volatile bool on_alternate;

static void where(int number)
{
	char *here = __builtin_frame_address(0);

	on_alternate = here >= alternate && here < alternate + sizeof(alternate);
	leave(number);
}

static enum km_fault_end handle_there(const struct km_fault *fault)
{
	char *here = __builtin_frame_address(0);

	ours += here >= alternate && here < alternate + sizeof(alternate);
	return handle(fault);
}

/* A thread may have an alternate stack for other signals, and too small for this one. */
static void on_stack(int flags, bool is_alternate)
{
	const stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };

	NEED(!sigaltstack(&stack, NULL));
	install_for(handle_there, where, flags, 0);
	touch(true);
	CHECK(theirs == 1 && on_alternate == is_alternate && ours == 1u + is_alternate);
}

static void on_its_stack(void)
{
	on_stack(0, false);
}

static void on_the_alternate_stack(void)
{
	on_stack(SA_ONSTACK, true);
}

/*
 * A program's handler stays, unless the library's handler is installed over it; a confined program is not
 * asked.
 */
static void not_over(void)
{
	signal(SIGSEGV, stay);
	CHECK(!km_os_catch_faults(handle, false));
	raise(SIGSEGV);
	CHECK(theirs == 1 && !ours);
	signal(SIGSEGV, SIG_DFL);
	CHECK(km_os_catch_faults(handle, false));
}

static void not_when_shut(void)
{
	km_os_shut();
	CHECK(!km_os_catch_faults(handle, true));
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "plain handler", plain_handler }, { "with information", with_information }, { "resumed", resumed },
		{ "on its stack", on_its_stack }, { "on the alternate stack", on_the_alternate_stack },
		{ "sent and ignored", sent_and_ignored }, { "not over", not_over }, { "not when shut", not_when_shut },
	}, endings[] = {
		{ "once", once }, { "ignored", ignored }, { "by default", by_default },
		{ "sent, by default", sent_by_default },
	};
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		int status = in_process(endings[i].run);

		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%s: %#x", endings[i].name, (unsigned)status);
	}
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), "faults") || failures;
}
