/*
 * vfork.c: vfork, as libc's: the child runs in its parent's memory and on its stack, the parent waits until the child
 * calls exec or ends, and no handlers of pthread_atfork run. Invariant: while the child lives, neither of the two has
 * the thread's rseq area registered. The child would be another task to the kernel, on an area that says its parent's
 * CPU, and its sequences would not be aborted; so there it finds no CPU, and what it allocates or frees takes the long
 * way.
 *
 * Between the system call and its caller's return nothing may lie on the stack, where the child has been meanwhile: the
 * return address and what was lent wait in registers, which the kernel keeps for each of the two.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>

#include "../cache/cache.h"
#include "../port/pcpu.h"

#if defined(KMEM_HAVE_RSEQ)

km_hidden uint64_t km_vfork_before(void);
km_hidden long km_vfork_after(long result, uint64_t before);
km_hidden long km_vfork_copied(void);

#define SHARED ((uint32_t)(CLONE_VM | CLONE_VFORK | SIGCHLD))
#define COPIED ((uint32_t)(CLONE_VFORK | SIGCHLD))

/* AddressSanitizer's, where it is there: what the child left on the stack means nothing. */
__attribute__((weak)) void __asan_handle_vfork(uintptr_t stack);

/*
 * The flags of clone, and above them the bytes that were lent. Where they can't be, the child gets a copy of all, with
 * no lock held in it by a thread that is not there: what fork's handler does for us is done, other handlers do not run.
 */
__attribute__((used)) uint64_t km_vfork_before(void)
{
	int saved_errno = errno;

	km_boot();
	size_t lent = km_thread_lend();
	if (lent == KM_NOT_LENT)
		km_boot_fork_prepare();
	errno = saved_errno;
	return lent == KM_NOT_LENT ? COPIED : SHARED | (uint64_t)lent << 32;
}

__attribute__((used)) long km_vfork_after(long result, uint64_t before)
{
	if (before & CLONE_VM)
		km_thread_take_back(before >> 32);
	else
		km_boot_fork_parent();
	if (__asan_handle_vfork)
		__asan_handle_vfork((uintptr_t)__builtin_frame_address(0));
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

/* In a child that has its own memory, and its own stack: to vfork's caller it returns. */
__attribute__((used)) long km_vfork_copied(void)
{
	int saved_errno = errno;

	km_boot_fork_child();
	errno = saved_errno;
	return 0;
}

#ifdef __x86_64__
/* The child leaves by a jump: a return would take its parent's entry from a shadow stack that both share. Bit 8 of the
 * flags is CLONE_VM. */
__asm__(".pushsection .text.vfork, \"ax\", @progbits\n\t"
	".globl vfork, __vfork\n\t.type vfork, @function\n\t.set __vfork, vfork\n"
	"vfork:\n\t"
	".cfi_startproc\n\t"
	"subq $8, %rsp\n\t"
	".cfi_adjust_cfa_offset 8\n\t"
	"call km_vfork_before\n\t"
	"addq $8, %rsp\n\t"
	".cfi_adjust_cfa_offset -8\n\t"
	"movq %rax, %r8\n\t"
	"movl %eax, %edi\n\t"
	"xorl %esi, %esi\n\t"
	"popq %r9\n\t"
	".cfi_adjust_cfa_offset -8\n\t"
	".cfi_register %rip, %r9\n\t"
	"movl $56, %eax\n\t"	/* clone(flags, the same stack) */
	"syscall\n\t"
	"testq %rax, %rax\n\t"
	"jnz 1f\n\t"
	"btl $8, %r8d\n\t"
	"jnc 2f\n\t"
	"jmp *%r9\n"
	"1:\n\t"
	"pushq %r9\n\t"
	".cfi_adjust_cfa_offset 8\n\t"
	".cfi_offset %rip, -8\n\t"
	"movq %rax, %rdi\n\t"
	"movq %r8, %rsi\n\t"
	"jmp km_vfork_after\n"
	"2:\n\t"
	"pushq %r9\n\t"
	"jmp km_vfork_copied\n\t"
	".cfi_endproc\n\t"
	".size vfork, . - vfork\n\t"
	".popsection");
#else
__asm__(".pushsection .text.vfork, \"ax\", @progbits\n\t"
	".globl vfork, __vfork\n\t.type vfork, @function\n\t.set __vfork, vfork\n"
	"vfork:\n\t"
	".cfi_startproc\n\t"
	"stp x29, x30, [sp, #-16]!\n\t"
	".cfi_def_cfa_offset 16\n\t"
	".cfi_offset 29, -16\n\t"
	".cfi_offset 30, -8\n\t"
	"bl km_vfork_before\n\t"
	"ldp x29, x30, [sp], #16\n\t"
	".cfi_restore 30\n\t"
	".cfi_restore 29\n\t"
	".cfi_def_cfa_offset 0\n\t"
	"mov x9, x0\n\t"
	"mov w0, w0\n\t"
	"mov x1, xzr\n\t"
	"mov x2, xzr\n\t"
	"mov x3, xzr\n\t"
	"mov x4, xzr\n\t"
	"mov x8, #220\n\t"	/* clone(flags, the same stack) */
	"svc #0\n\t"
	"cbz x0, 1f\n\t"
	"mov x1, x9\n\t"
	"b km_vfork_after\n"
	"1:\n\t"
	"tbz w9, #8, 2f\n\t"
	"ret\n"
	"2:\n\t"
	"b km_vfork_copied\n\t"
	".cfi_endproc\n\t"
	".size vfork, . - vfork\n\t"
	".popsection");
#endif

#endif
