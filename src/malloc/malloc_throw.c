/*
 * malloc_throw.c: a frame that catches exceptions: a few instructions with unwinding tables by hand, and a
 * personality routine to stop the unwinder here. Invariant: the exception's own runtime ends the exception, so
 * std::uncaught_exceptions() and the exception's memory are right afterwards.
 */
#define _GNU_SOURCE
#include <unwind.h>

#include "malloc_throw.h"

void *km_runtime_symbol(void *linked, const char *name)
{
	if (linked || !km_loaded_symbol)
		return linked;
	return km_loaded_symbol(name);
}

#if defined(__x86_64__) || defined(__aarch64__)

/* From libgcc or libunwind, present when an exception is thrown; and the C++ runtime's catch. */
#pragma weak _Unwind_SetGR
#pragma weak _Unwind_SetIP
__attribute__((weak)) void *__cxa_begin_catch(void *exception);
__attribute__((weak)) void __cxa_end_catch(void);

#define RUNTIME(name) ((__typeof__(&name))km_runtime_symbol((void *)name, #name))

extern km_hidden const char km_caught_landing[];
km_hidden _Unwind_Reason_Code km_caught_personality(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
						    struct _Unwind_Exception *exception,
						    struct _Unwind_Context *context);
km_hidden void km_caught_end(struct _Unwind_Exception *exception);

/* The unwinder calls twice: in the search phase for a handler, before any frame is unwound, and then for the place to
 * continue. A forced unwinding ends a thread and is never caught. */
__attribute__((used)) _Unwind_Reason_Code km_caught_personality(int version, _Unwind_Action actions,
								_Unwind_Exception_Class class km_unused,
								struct _Unwind_Exception *exception,
								struct _Unwind_Context *context)
{
	__typeof__(&_Unwind_SetGR) set_register = RUNTIME(_Unwind_SetGR);
	__typeof__(&_Unwind_SetIP) set_ip = RUNTIME(_Unwind_SetIP);

	if (version != 1 || actions & _UA_FORCE_UNWIND || !set_register || !set_ip)
		return _URC_CONTINUE_UNWIND;
	if (actions & _UA_SEARCH_PHASE)
		return _URC_HANDLER_FOUND;
	set_register(context, __builtin_eh_return_data_regno(0), (uintptr_t)exception);
	set_ip(context, (uintptr_t)km_caught_landing);
	return _URC_INSTALL_CONTEXT;
}

__attribute__((used)) void km_caught_end(struct _Unwind_Exception *exception)
{
	__typeof__(&__cxa_begin_catch) begin = RUNTIME(__cxa_begin_catch);
	__typeof__(&__cxa_end_catch) end = RUNTIME(__cxa_end_catch);

	if (begin && end) {
		begin(exception);
		end();
	} else if (exception->exception_cleanup) {
		exception->exception_cleanup(_URC_FOREIGN_EXCEPTION_CAUGHT, exception);
	}
}

/* Signed 32 bits, relative: the personality routine is hidden in this object. */
#define PERSONALITY ".cfi_personality 0x1b, km_caught_personality\n\t"

#ifdef __x86_64__
__asm__(".pushsection .text.km_caught, \"ax\", @progbits\n\t"
	".globl km_caught\n\t.hidden km_caught\n\t.type km_caught, @function\n"
	"km_caught:\n\t"
	".cfi_startproc\n\t"
	PERSONALITY
	"subq $8, %rsp\n\t"
	".cfi_adjust_cfa_offset 8\n\t"
	"movq %rdi, %rax\n\t"
	"movq %rsi, %rdi\n\t"
	"movq %rdx, %rsi\n\t"
	"call *%rax\n"
	"1:\n\t"
	"addq $8, %rsp\n\t"
	".cfi_remember_state\n\t"
	".cfi_adjust_cfa_offset -8\n\t"
	"ret\n\t"
	".cfi_restore_state\n\t"
	".hidden km_caught_landing\n"
	"km_caught_landing:\n\t"
	"movq %rax, %rdi\n\t"
	"call km_caught_end\n\t"
	"xorl %eax, %eax\n\t"
	"jmp 1b\n\t"
	".cfi_endproc\n\t"
	".size km_caught, . - km_caught\n\t"
	".popsection");
#else
__asm__(".pushsection .text.km_caught, \"ax\", @progbits\n\t"
	".globl km_caught\n\t.hidden km_caught\n\t.type km_caught, @function\n"
	"km_caught:\n\t"
	".cfi_startproc\n\t"
	PERSONALITY
	"stp x29, x30, [sp, #-16]!\n\t"
	".cfi_def_cfa_offset 16\n\t"
	".cfi_offset 29, -16\n\t"
	".cfi_offset 30, -8\n\t"
	"mov x29, sp\n\t"
	"mov x9, x0\n\t"
	"mov x0, x1\n\t"
	"mov x1, x2\n\t"
	"blr x9\n"
	"1:\n\t"
	"ldp x29, x30, [sp], #16\n\t"
	".cfi_remember_state\n\t"
	".cfi_restore 30\n\t"
	".cfi_restore 29\n\t"
	".cfi_def_cfa_offset 0\n\t"
	"ret\n\t"
	".cfi_restore_state\n\t"
	".hidden km_caught_landing\n"
	"km_caught_landing:\n\t"
	"bl km_caught_end\n\t"
	"mov x0, xzr\n\t"
	"b 1b\n\t"
	".cfi_endproc\n\t"
	".size km_caught, . - km_caught\n\t"
	".popsection");
#endif

#else

void *km_caught(void *(*f)(size_t, size_t), size_t size, size_t align)
{
	return f(size, align);
}

#endif
