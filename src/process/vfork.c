/*
 * vfork.c: vfork, as in libc: the child runs in its parent's memory and on its stack, the parent waits until the
 * child calls exec or ends, and no handlers of pthread_atfork run. Invariant: while the child lives, neither process
 * has the thread's rseq area registered. To the kernel the child would be another task on an area with the parent's
 * CPU, and the child's sequences would not be aborted. Without the area the child finds no CPU, so all its
 * allocations and frees take the slow path.
 *
 * clone with CLONE_VM and CLONE_VFORK is a vfork on another stack: launchers of programs call clone.
 *
 * Between vfork's system call and its caller's return nothing may lie on the stack, because the child uses the stack
 * meanwhile. The return address and the lent values stay in registers, separate for each process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>

#include "cache/cache.h"

#pragma weak dlsym

#if defined(KMEM_HAVE_RSEQ)

km_hidden uint64_t km_vfork_before(void);
km_hidden long km_vfork_after(long result, uint64_t before);
km_hidden long km_vfork_copied(void);

#define SHARED ((uint32_t)(CLONE_VM | CLONE_VFORK | SIGCHLD))
#define COPIED ((uint32_t)(CLONE_VFORK | SIGCHLD))

/* AddressSanitizer's hook, if present: clears the child's leftovers on the stack. */
__attribute__((weak)) void __asan_handle_vfork(uintptr_t stack);

/* Returns: the flags of clone, and above them the lent bytes. If the area can't be lent, the child gets a copy of the
 * memory. The library's own fork handler then runs, so that the copy has no lock held by an absent thread; other
 * handlers do not run. */
__attribute__((used)) uint64_t km_vfork_before(void)
{
	km_errno_scope(saved_errno);

	km_boot();
	size_t lent = km_thread_lend();
	if (lent == KM_NOT_LENT)
		km_boot_fork_prepare();
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

/* Finish a child with its own memory and stack, and return to vfork's caller. */
__attribute__((used)) long km_vfork_copied(void)
{
	km_errno_scope(saved_errno);

	km_boot_fork_child();
	return 0;
}

#ifdef __x86_64__
/* The child leaves by a jump: a return would take its parent's entry from the shared shadow stack. Bit 8 of the
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

/* ------------------------------------------------------------------ clone */

typedef int clone_fn(int (*function)(void *), void *stack, int flags, void *arg, ...);

/* Libc's clone by another name. musl's shared object does not export the name; a static program may lack __clone. */
extern clone_fn __clone __attribute__((weak));

#ifdef __GCC_HAVE_DWARF2_CFI_ASM
#define NO_CALLER(address) ".cfi_remember_state\n\t.cfi_undefined " address "\n\t"
#define CALLER ".cfi_restore_state\n"
#else
#define NO_CALLER(address)
#define CALLER
#endif

/* The system call. The child begins on its stack, and ends when the function returns. */
static long enter(int (*function)(void *), void *stack, int flags, void *arg, void *const ids[3])
{
	uintptr_t top = (uintptr_t)stack & ~(uintptr_t)15;

	km_debug(function && top, "a child of clone has a function and a stack");
#ifdef __x86_64__
	register void *child_id __asm__("r10") = ids[2];
	register void *tls __asm__("r8") = ids[1];
	long result = 56;

	__asm__ volatile("syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 NO_CALLER("rip")
			 "movq %[arg], %%rdi\n\t"
			 "movq %[function], %%rax\n\t"
			 "xorl %%ebp, %%ebp\n\t"	/* the compiler may have put an operand there */
			 "callq *%%rax\n\t"
			 "movl %%eax, %%edi\n\t"
			 "movl $60, %%eax\n\t"	/* exit */
			 "syscall\n\t"
			 CALLER
			 "1:"
			 : "+a"(result)
			 : "D"((long)flags), "S"(top), "d"(ids[0]), "r"(child_id), "r"(tls),
			   [function] "r"(function), [arg] "r"(arg)
			 : "rcx", "r11", "memory", "cc");
	return result;
#else
	register long result __asm__("x0") = flags;
	register uintptr_t on __asm__("x1") = top;
	register void *parent_id __asm__("x2") = ids[0];
	register void *tls __asm__("x3") = ids[1];
	register void *child_id __asm__("x4") = ids[2];
	register long number __asm__("x8") = 220;

	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 NO_CALLER("x30")
			 "mov x0, %[arg]\n\t"
			 "mov x9, %[function]\n\t"
			 "mov x29, xzr\n\t"
			 "blr x9\n\t"
			 "mov x8, #93\n\t"	/* exit */
			 "svc #0\n\t"
			 CALLER
			 "1:"
			 : "+r"(result)
			 : "r"(on), "r"(parent_id), "r"(tls), "r"(child_id), "r"(number),
			   [function] "r"(function), [arg] "r"(arg)
			 : "memory", "cc");
	return result;
#endif
}

static clone_fn *libc_clone(void)
{
	return __clone ?: (dlsym ? (clone_fn *)dlsym(RTLD_NEXT, "clone") : NULL);
}

/* Returns: whether the area can be lent: child and parent share one thread area, and the parent waits. */
static bool borrows(int flags)
{
	return (flags & (CLONE_VM | CLONE_VFORK | CLONE_THREAD | CLONE_SETTLS)) == (CLONE_VM | CLONE_VFORK);
}

KMEM_API int clone(int (*function)(void *), void *stack, int flags, void *arg, ...)
{
	int saved_errno = errno;
	bool lends = borrows(flags);
	clone_fn *libc = lends ? NULL : libc_clone();
	void *ids[3];		/* the parent's place for the number, the thread's storage, the child's place */
	va_list list;

	va_start(list, arg);
	for (unsigned i = 0; i < km_array_count(ids); i++)
		ids[i] = va_arg(list, void *);
	va_end(list);
	km_debug(libc != clone, "libc's clone is another function");
	if (libc)
		return libc(function, stack, flags, arg, ids[0], ids[1], ids[2]);
	km_boot();
	size_t lent = lends ? km_thread_lend() : 0;
	if (lent == KM_NOT_LENT)
		km_warn("clone: rseq cannot be unregistered: an allocation in the child damages the parent's memory; "
			"use KMEM_PERCPU=lock");
	errno = saved_errno;
	long result = function && stack ? enter(function, stack, flags, arg, ids) : -EINVAL;
	if (lends && lent != KM_NOT_LENT)
		km_thread_take_back(lent);
	if (result >= 0)
		return (int)result;
	errno = (int)-result;
	return -1;
}

#endif
