/*
 * inject.h: a breakpoint over any instruction of any restartable sequence of this program. At a breakpoint, the
 * kernel has moved the instruction pointer to the sequence's abort label before the handler runs. The handler
 * removes the breakpoint, checks the abort, and lets an adversary act on the same CPU, in the middle of the
 * interrupted operation. Invariant: one breakpoint is armed at a time, and is reached once.
 *
 * And over the last instruction before each sequence, the eve: there no sequence is aborted. The adversary acts, and
 * the sequence runs to its end with values read before: the sequence must compare these values again inside.
 */
#ifndef TESTS_RSEQ_INJECT_H
#define TESTS_RSEQ_INJECT_H

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <kmem/inline.h>

#include "percpu/pcpu.h"

/* The breakpoint's instruction, and the instruction pointer in a handler's context. */
#if defined(__x86_64__)
typedef uint8_t instruction;
#define BREAKPOINT 0xcc
#define IP(context) ((context)->uc_mcontext.gregs[REG_RIP])
#define AFTER_BREAKPOINT 1
#else
typedef uint32_t instruction;
#define BREAKPOINT 0xd4200000u	/* brk #0 */
#define IP(context) ((context)->uc_mcontext.pc)
#define AFTER_BREAKPOINT 0
#endif

/* The kernel's struct rseq_cs. */
struct descriptor {
	uint32_t version, flags;
	uint64_t start, length, abort;
};
extern const struct descriptor *const __start___rseq_cs_ptr_array[];
extern const struct descriptor *const __stop___rseq_cs_ptr_array[];
/* The place of sequences by concurrency id. */
extern const char __start_km_text_by_cid[], __stop_km_text_by_cid[];

struct sequence {
	uintptr_t start, end, abort;
	char name[64];			/* the function with the sequence */
	unsigned points;
};

/* An instruction of a sequence, or its eve: the first of its points. A sequence's points are consecutive. */
#define FIRST_POINT 1u
struct point {
	uintptr_t address;
	struct sequence *sequence;
	unsigned index;			/* 0: the eve; FIRST_POINT: the entry */
	unsigned long aborts;		/* breakpoints reached */
};

enum { MAX_SEQUENCES = 256, MAX_POINTS = 4096 };
static struct sequence sequences[MAX_SEQUENCES];
static struct point points[MAX_POINTS];
static unsigned sequence_count, point_count;

static struct {
	struct point *volatile armed;
	instruction original;
	volatile unsigned long aborts;	/* breakpoints reached in this run, nested ones too */
	unsigned long injections, all_aborts;
	void (*volatile adversary)(void);
	struct point *volatile second;	/* armed by the handler of the first */
	volatile bool second_early;	/* before the adversary acts, or after */
} inject;

extern const char __ehdr_start[];	/* where this program is loaded */

/* The present attempt, for the report of a failure. */
static char attempt[384] = "set-up";

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	dprintf(2, "FAIL: %s\n  at: %s\n", text, attempt);
	_exit(1);
}

#define need(truth, ...)                                                                           \
	do {                                                                                       \
		if (!(truth))                                                                      \
			fail(__VA_ARGS__);                                                         \
	} while (0)

/* ------------------------------------------------------------------ what there is */

/*
 * Sequences of the other index store their descriptor where the kernel does not look, and miss; or never
 * run.
 */
static bool is_of_our_index(const struct descriptor *descriptor)
{
	bool by_cid = descriptor->start >= (uintptr_t)__start_km_text_by_cid &&
		      descriptor->start < (uintptr_t)__stop_km_text_by_cid;

	return by_cid == (km_percpu.index == KM_INDEX_CID);
}

static void find_sequences(void)
{
	const struct descriptor *const *each = __start___rseq_cs_ptr_array;

	for (; each < __stop___rseq_cs_ptr_array; each++) {
		struct sequence *s = &sequences[sequence_count];

		if (!is_of_our_index(*each))
			continue;
		sequence_count++;
		need(sequence_count < MAX_SEQUENCES, "more than %u sequences", MAX_SEQUENCES);
		need((*each)->version == 0 && (*each)->flags == 0, "a descriptor of another kind");
		s->start = (*each)->start;
		s->end = s->start + (*each)->length;
		s->abort = (*each)->abort;
		need(*(const uint32_t *)(s->abort - 4) == KMEM_RSEQ_SIGNATURE,
		     "no signature before the abort label");
	}
}

static bool is_eve(const struct point *point)
{
	return point->address < point->sequence->start;
}

static void add_point(struct sequence *s, uintptr_t address)
{
	need(point_count < MAX_POINTS, "more than %u instructions", MAX_POINTS);
	points[point_count++] = (struct point){ address, s, s->points++, 0 };
}

#if defined(__x86_64__)
/* One line of the disassembly: "ADDRESS <NAME>:" or "  ADDRESS:\tINSTRUCTION". */
static void read_line(const char *line, uintptr_t bias, char *symbol, size_t symbol_bytes)
{
	static uintptr_t last;
	char *rest;
	uintptr_t address = strtoull(line, &rest, 16) + bias, before = last;

	if (rest == line)
		return;
	if (rest[0] == ' ' && rest[1] == '<') {
		snprintf(symbol, symbol_bytes, "%.*s", (int)strcspn(rest + 2, ">"), rest + 2);
		return;
	}
	if (rest[0] != ':' || !strchr(rest, '\t'))
		return;
	last = address;
	for (unsigned i = 0; i < sequence_count; i++) {
		struct sequence *s = &sequences[i];

		if (address < s->start || address >= s->end)
			continue;
		if (address == s->start) {
			snprintf(s->name, sizeof(s->name), "%s", symbol);
			add_point(s, before);
		}
		add_point(s, address);
	}
}

/* The instructions' boundaries, as the disassembler sees them in this very file. */
static void find_points(void)
{
	char path[512], command[640], line[512], symbol[64] = "?";
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	need(length > 0, "no /proc/self/exe");
	path[length] = '\0';
	snprintf(command, sizeof(command), "objdump -d --no-show-raw-insn '%s'", path);
	FILE *file = popen(command, "r");
	need(file, "no objdump");
	while (fgets(line, sizeof(line), file))
		read_line(line, (uintptr_t)__ehdr_start, symbol, sizeof(symbol));
	need(pclose(file) == 0, "objdump failed");
	for (unsigned i = 0; i < sequence_count; i++)
		need(sequences[i].points, "no instructions found of the sequence at %#lx",
		     sequences[i].start);
}

#else
/*
 * Every instruction has 4 bytes: no disassembler is needed, because a small system may have none. An address
 * serves as the name.
 */
static void find_points(void)
{
	for (unsigned i = 0; i < sequence_count; i++) {
		struct sequence *s = &sequences[i];

		snprintf(s->name, sizeof(s->name), "%#lx", s->start - (uintptr_t)__ehdr_start);
		for (uintptr_t at = s->start - sizeof(instruction); at < s->end; at += sizeof(instruction))
			add_point(s, at);
	}
}
#endif

static void make_writable(void)
{
	for (unsigned i = 0; i < sequence_count; i++) {
		uintptr_t first = (sequences[i].start - 16) & ~4095ul;
		uintptr_t end = (sequences[i].end + 4095) & ~4095ul;

		need(mprotect((void *)first, end - first, PROT_READ | PROT_WRITE | PROT_EXEC) == 0,
		     "mprotect of the text: %s", strerror(errno));
	}
}

/* ------------------------------------------------------------------ arming and striking */

static void write_instruction(const struct point *point, instruction what)
{
	char *address = (char *)point->address;

	*(volatile instruction *)address = what;
	__builtin___clear_cache(address, address + sizeof(what));
}

static void disarm(void)
{
	struct point *point = inject.armed;

	if (point)
		write_instruction(point, inject.original);
	inject.armed = NULL;
}

static void arm(struct point *point)
{
	disarm();
	inject.original = *(volatile instruction *)point->address;
	inject.armed = point;
	write_instruction(point, BREAKPOINT);
}

static void arm_second(void)
{
	struct point *second = inject.second;

	inject.second = NULL;
	if (second)
		arm(second);
}

static void on_trap(int number, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;
	uintptr_t ip = (uintptr_t)IP(interrupted);
	struct point *point = inject.armed;
	int saved_errno = errno;

	need(point, "a breakpoint strikes that is not armed, at %#lx", ip);
	disarm();
	if (is_eve(point)) {
		need(ip == point->address + AFTER_BREAKPOINT, "not before the sequence: at %#lx", ip);
		IP(interrupted) = (__typeof__(IP(interrupted)))point->address;
	} else {
		need(ip == point->sequence->abort, "not aborted: at %#lx, not %#lx", ip, point->sequence->abort);
	}
	inject.aborts++;
	point->aborts++;
	void (*adversary)(void) = inject.adversary;
	inject.adversary = NULL;
	bool early = inject.second_early;
	if (early)
		arm_second();
	if (adversary)
		adversary();
	if (!early)
		arm_second();
	errno = saved_errno;
}

/* Where: addresses as the disassembler gives them. */
static void on_fault(int number, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;
	void *frames[16];
	int count = backtrace(frames, 16);

	for (int i = 0; i < count; i++)
		dprintf(2, "  frame %d: %#lx\n", i, (uintptr_t)frames[i] - (uintptr_t)__ehdr_start);
	fail("signal %d at %#lx, address %p", number,
	     (uintptr_t)IP(interrupted) - (uintptr_t)__ehdr_start,
	     info->si_addr);
}

static void inject_start(void)
{
	struct sigaction trap = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER };
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGALRM };

	find_sequences();
	find_points();
	make_writable();
	sigaction(SIGTRAP, &trap, NULL);
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigaction(faults[i], &fault, NULL);
}

#endif
