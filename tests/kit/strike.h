/*
 * strike.h: breakpoints on all instructions of the program, with the library linked in. Each breakpoint is hit at the
 * first execution by any thread. The program's handler of SIGTRAP finds the breakpoint and disarms it. x86-64 only.
 */
#ifndef TESTS_KIT_STRIKE_H
#define TESTS_KIT_STRIKE_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

/* Functions without breakpoints. */
#define APART __attribute__((section("text_apart"), noinline))

/* All instructions of the program, from the disassembler, by address. */
#define MOST_POINTS 400000
static struct point { uintptr_t at; uint8_t byte; bool armed, struck; } points[MOST_POINTS];
static size_t point_count;
extern const char __ehdr_start[];

struct descriptor { uint32_t version, flags; uint64_t start, length, abort; };
extern const struct descriptor *const __start___rseq_cs_ptr_array[];
extern const struct descriptor *const __stop___rseq_cs_ptr_array[];

/* Before the abort label of a sequence is a signature, not an instruction. */
static bool is_signature(uintptr_t at)
{
	const struct descriptor *const *each = __start___rseq_cs_ptr_array;

	for (; each < __stop___rseq_cs_ptr_array; each++)
		if ((*each)->abort - 8 <= at && at < (*each)->abort)
			return true;
	return false;
}

static void find_points(void)
{
	char path[512], command[640], line[512], *rest;
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	NEED(length > 0);
	path[length] = '\0';
	snprintf(command, sizeof(command), "objdump -d --no-show-raw-insn -j .text '%s'", path);
	FILE *file = popen(command, "r");
	NEED(file);
	while (fgets(line, sizeof(line), file)) {
		uintptr_t at = strtoull(line, &rest, 16) + (uintptr_t)__ehdr_start;

		if (rest == line || rest[0] != ':' || !strchr(rest, '\t') || is_signature(at))
			continue;
		NEED(point_count < MOST_POINTS && (!point_count || at > points[point_count - 1].at));
		points[point_count++] = (struct point){ .at = at };
	}
	NEED(pclose(file) == 0 && point_count);
	uintptr_t first = points[0].at & -4096ul, last = points[point_count - 1].at | 4095;
	NEED(!mprotect((void *)first, last + 1 - first, PROT_READ | PROT_WRITE | PROT_EXEC));
}

APART static void arm(struct point *point)
{
	point->byte = *(volatile uint8_t *)point->at;
	point->armed = true;
	*(volatile uint8_t *)point->at = 0xcc;
}

APART static void disarm(struct point *point)
{
	*(volatile uint8_t *)point->at = point->byte;
	point->armed = false;
}

/* Returns: the index of the first point at or above the address. */
APART static size_t point_from(uintptr_t at)
{
	size_t low = 0, high = point_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (points[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns: the first armed breakpoint of a sequence that the kernel has aborted. */
APART static struct point *in_sequence(uintptr_t abort)
{
	const struct descriptor *const *each = __start___rseq_cs_ptr_array;

	for (; each < __stop___rseq_cs_ptr_array; each++) {
		size_t i = point_from((*each)->start);

		if ((*each)->abort != abort)
			continue;
		for (; i < point_count && points[i].at < (*each)->start + (*each)->length; i++)
			if (points[i].armed)
				return &points[i];
	}
	return NULL;
}

/*
 * Returns: the breakpoint of a trap, or NULL if none is armed there. *plain: the instruction must be executed again.
 */
APART static struct point *point_of_trap(uintptr_t ip, bool *plain)
{
	size_t i = point_from(ip - 1);

	*plain = i < point_count && points[i].at == ip - 1 && points[i].armed;
	return *plain ? &points[i] : in_sequence(ip);
}

__attribute__((unused)) static unsigned long number_of(const char *name, unsigned long usual)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : usual;
}

#endif
