/*
 * stack_rules: a stack is walked by the compiler's tables for each frame, in each form of these tables, and ends at a
 * frame with another kind of entry, with none, or with an impossible one: no memory is read there. So does a stack of
 * the program's own if the table leads beyond the stack's memory. Each function here has a table written by hand; the
 * tables' instructions are numbers of DWARF.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "kit/check.h"
#include "inspect/stack.h"

#if defined(__x86_64__) && defined(__GLIBC__)

static struct km_stack stack;

__attribute__((noinline, used)) void take_here(void);
void take_here(void)
{
	km_stack_take(&stack, 1, KMEM_PROFILE_FRAMES, true);
	km_stack_keep(&stack, KM_STACK_NOTHING);
}

/*
 * A function with a frame of 16 bytes, plus the bytes of `code`, that calls take_here; `table` is placed before the
 * call.
 */
#define FUNCTION(name, begin, code, table)                                                         \
	void name(void);                                                                           \
	__asm__(".text\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" begin "\n"        \
		"push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\nmov %rsp, %rbp\n" code "\n" \
		table "\ncall take_here\nmov %rbp, %rsp\npop %rbp\n.cfi_def_cfa 7, 8\nret\n"        \
		".cfi_endproc\n.size " #name ", .-" #name)

/* The frame is known. */
#define KNOWN_ONES(x)                                                                              \
	x(by_register, "", "", ".cfi_def_cfa_register 6")                                          \
	x(by_register_signed, "", "", ".cfi_escape 0x12, 6, 0x7e")                                 \
	x(offset_signed, "", "", ".cfi_escape 0x13, 0x7e")                                         \
	x(offset_signed_long, "", "",                                                              \
	  ".cfi_escape 0x13, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f")     \
	x(by_expression, "", "sub $16, %rsp\nlea 16(%rbp), %rax\nmov %rax, -8(%rbp)",              \
	  ".cfi_escape 0x0f, 3, 0x76, 0x78, 0x06")                                                 \
	x(saved_extended, "", "", ".cfi_escape 0x05, 6, 2")                                        \
	x(saved_signed, "", "", ".cfi_escape 0x11, 6, 0x02")                                       \
	x(saved_other_way, "", "", ".cfi_escape 0x2f, 3, 2")                                       \
	x(arguments, "", "", ".cfi_escape 0x2e, 0x10")                                             \
	x(arguments_long, "", "",                                                                  \
	  ".cfi_escape 0x2e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00")    \
	x(remembered, "", "", ".cfi_remember_state\n.cfi_undefined 16\n.cfi_restore_state")         \
	x(restored, "", "", ".cfi_undefined 16\n.cfi_restore 16")                                  \
	x(restored_extended, "", "", ".cfi_escape 0x06, 6")                                        \
	x(same, "", "", ".cfi_same_value 6")                                                       \
	x(undefined, "", "", ".cfi_undefined 6")                                                   \
	x(others_value, "", "", ".cfi_escape 0x14, 3, 1\n.cfi_escape 0x15, 3, 0x7f")               \
	x(others_register, "", "", ".cfi_register 3, 12")                                          \
	x(others_expression, "", "", ".cfi_escape 0x10, 3, 2, 0x76, 8\n.cfi_escape 0x16, 12, 2, 0x76, 8") \
	x(far_behind, "", ".skip 100, 0x90", ".cfi_escape 0x2e, 1\n.skip 1000, 0x90\n.cfi_escape 0x2e, 1\n"  \
	  ".skip 70000, 0x90\n.cfi_escape 0x2e, 1")                                                \
	x(with_personality, ".cfi_personality 0x1b, take_here\n.cfi_lsda 0x1b, take_here", "", "")

/* These forms are not walked: the stack ends there. */
#define STRANGE_ONES(x)                                                                            \
	x(last_one, "", "", ".cfi_undefined 16")                                                   \
	x(of_signal, ".cfi_signal_frame", "", "")                                                  \
	x(in_register, "", "", ".cfi_register 6, 3")                                               \
	x(back_in_register, "", "", ".cfi_register 16, 3")                                         \
	x(back_by_expression, "", "", ".cfi_escape 0x10, 16, 2, 0x76, 8")                          \
	x(back_nowhere, "", "", ".cfi_same_value 16")                                              \
	x(by_other_register, "", "", ".cfi_def_cfa 3, 16")                                         \
	x(expression_of_stack, "", "", ".cfi_escape 0x0f, 2, 0x77, 16")                            \
	x(expression_without_read, "", "", ".cfi_escape 0x0f, 2, 0x76, 16")                        \
	x(expression_with_more, "", "", ".cfi_escape 0x0f, 4, 0x76, 0x78, 0x06, 0x06")             \
	x(expression_beneath, "", "", ".cfi_escape 0x0f, 4, 0x76, 0x80, 0x40, 0x06")               \
	x(expression_beyond, "", "", ".cfi_escape 0x0f, 6, 0x76, 0x80, 0x80, 0x80, 0x20, 0x06")    \
	x(restored_never_kept, "", "", ".cfi_escape 0x0b")                                         \
	x(remembered_too_often, "", "", ".cfi_escape 10, 10, 10, 10, 10, 10, 10, 10, 10")          \
	x(odd, "", "", ".cfi_def_cfa 7, 17")                                                       \
	x(beneath, "", "", ".cfi_def_cfa 7, 0\n.cfi_escape 0x13, 1")                               \
	x(too_long, "", "", ".cfi_def_cfa 7, 0x2000000")                                           \
	x(much_too_long, "", "", ".cfi_def_cfa 7, 0x40000000")                                     \
	x(fp_far_away, "", "", ".cfi_offset 6, -0x100000")                                         \
	x(fp_beneath, "", "", ".cfi_offset 6, -0x1000")                                            \
	x(back_far_away, "", "", ".cfi_offset 16, -0x100000")                                      \
	x(back_beneath, "", "", ".cfi_offset 16, -0x1000")

#define DEFINE(name, begin, code, table) FUNCTION(name, begin, code, table);
KNOWN_ONES(DEFINE)
STRANGE_ONES(DEFINE)

/* A function without a table. */
void without_table(void);
__asm__(".text\n.type without_table, @function\nwithout_table:\npush %rbp\ncall take_here\npop %rbp\nret\n"
	".size without_table, .-without_table");

#define ENTRY(name, begin, code, table) { name, #name },
static const struct {
	void (*call)(void);
	const char *name;
} known[] = { KNOWN_ONES(ENTRY) }, strange[] = { STRANGE_ONES(ENTRY) { without_table, "without_table" } };

static __attribute__((noinline)) void call_it(void (*function)(void))
{
	function();
	__asm__ volatile("");
}

static bool is_in(uintptr_t address, const void *function, size_t bytes)
{
	return address - (uintptr_t)function < bytes;
}

static void all_forms(void)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		call_it(known[i].call);
		CHECK(stack.depth > 3 && is_in(stack.frame[1], known[i].call, 72000), "%s: %u frames", known[i].name,
		      stack.depth);
		CHECK(is_in(stack.frame[2], call_it, 200), "%s", known[i].name);
	}
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		call_it(strange[i].call);
		CHECK(stack.depth == 2 && is_in(stack.frame[1], strange[i].call, 200), "%s: %u frames", strange[i].name,
		      stack.depth);
	}
}

static __attribute__((noinline)) unsigned deep(unsigned depth)
{
	unsigned below = 0;

	if (depth)
		below = deep(depth - 1);
	else
		take_here();
	__asm__ volatile("" : "+r"(below));
	return below + 1;
}

/* As many as there is room for. */
static void long_ones(void)
{
	deep(10);
	CHECK(stack.depth > 11 && stack.depth < 30, "%u frames", stack.depth);
	deep(200);
	CHECK_EQUAL(stack.depth, KMEM_PROFILE_FRAMES);
}

static ucontext_t here, there;

/* A stack with an unknown end: its bounds are queried anew, and frames with tables are walked. */
static void on_own_stack(void)
{
	static char memory[256 << 10];

	NEED(!getcontext(&there));
	there.uc_stack.ss_sp = memory;
	there.uc_stack.ss_size = sizeof(memory);
	there.uc_link = &here;
	makecontext(&there, all_forms, 0);
	NEED(!swapcontext(&here, &there));
}

/* ------------------------------------------------------------------ a stack formerly longer */

#define HALF	((size_t)128 << 10)

static size_t hole;

static __attribute__((noinline)) void take_behind_hole(void)
{
	char *bytes = __builtin_alloca(hole);

	__asm__ volatile("" : : "r"(bytes) : "memory");
	km_stack_take(&stack, 2, KMEM_PROFILE_FRAMES, false);
	km_stack_keep(&stack, 0);
	__asm__ volatile("" : : "r"(bytes) : "memory");
}

/* No table describes this frame: a stack ends here. */
void on_stack(char *end, void (*function)(void));
__asm__("on_stack:\n\t"
	"push %rbp\n\t"
	"mov %rsp, %rbp\n\t"
	"mov %rdi, %rsp\n\t"
	"call *%rsi\n\t"
	"mov %rbp, %rsp\n\t"
	"pop %rbp\n\t"
	"ret");

/*
 * The same, with a table unaware of the other stack, as compilers write for code in a function: the frame of the
 * caller would be above the stack.
 */
void on_unknown_stack(char *end, void (*function)(void));
__asm__(".type on_unknown_stack, @function\non_unknown_stack:\n\t.cfi_startproc\n\t"
	"push %rbx\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 3, -16\n\t"
	"mov %rsp, %rbx\n\t"
	"mov %rdi, %rsp\n\t"
	"call *%rsi\n\t"
	"mov %rbx, %rsp\n\t"
	"pop %rbx\n\t.cfi_def_cfa_offset 8\n\t"
	"ret\n\t.cfi_endproc\n.size on_unknown_stack, .-on_unknown_stack");

static void unknown_stack(void)
{
	char *memory = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(memory != MAP_FAILED && !mprotect(memory + HALF, HALF, PROT_NONE));
	on_unknown_stack(memory + HALF, take_here);
	CHECK(stack.depth == 2 && is_in(stack.frame[1], on_unknown_stack, 100), "%u frames", stack.depth);
	NEED(!munmap(memory + HALF, HALF));
	on_unknown_stack(memory + HALF, take_here);
	CHECK_EQUAL(stack.depth, 2);
	/* Zeros lie there. */
	on_unknown_stack(memory + HALF / 2, take_here);
	CHECK(stack.depth == 2);
	NEED(!munmap(memory, HALF));
}

/* The same place, with the same words up to a shorter frame: the memory behind it cannot be compared. */
static void shorter_stack(char *memory)
{
	hole = HALF + 16;
	on_stack(memory + 2 * HALF, take_behind_hole);
	on_stack(memory + 2 * HALF, take_behind_hole);
	CHECK(stack.known);
	NEED(!mprotect(memory + HALF, HALF, PROT_NONE));
	hole = 16;
	on_stack(memory + HALF, take_behind_hole);
	CHECK(!stack.known);
}

static void *in_thread(void *memory)
{
	unknown_stack();
	shorter_stack(memory);
	unknown_stack();
	return NULL;
}

/* The thread's own stack is behind this memory: both are one to the library. */
static void thread_above(void)
{
	char *memory = mmap(NULL, 4 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attributes;
	pthread_t thread;

	NEED(memory != MAP_FAILED && !pthread_attr_init(&attributes) &&
	     !pthread_attr_setstack(&attributes, memory + 2 * HALF, 2 * HALF));
	NEED(!pthread_create(&thread, &attributes, in_thread, memory) && !pthread_join(thread, NULL));
}

int main(void)
{
	all_forms();
	all_forms();
	on_own_stack();
	unknown_stack();
	thread_above();
	long_ones();
	return failures != 0;
}
#else
int main(void)
{
	printf("the tables here are x86-64's, and glibc finds them\n");
	return 77;
}
#endif
