/*
 * profile_data.h: types shared by the files of `kmem profile` (stacks, frames, functions, mappings), and the writers
 * of the output formats.
 */
#ifndef KMEM_COMMAND_PROFILE_DATA_H
#define KMEM_COMMAND_PROFILE_DATA_H

#include <kmem/record.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* A mapped file of the process. */
struct mapped {
	uint64_t start, end, offset;
	char *path;
	struct image *image;		/* NULL: not opened yet, or too many files */
};

/* One function at a frame's pc. An inlined function is a step of its own; the innermost step comes first. */
struct frame_step {
	unsigned function;		/* in profile.function */
	int line;
};
struct frame {
	uint64_t pc;
	int mapped;			/* in profile.mapped; -1: no file */
	struct frame_step *steps;
	unsigned count;			/* 0: a frame without a name */
};
struct function {
	const char *name, *source;	/* source "": unknown */
};

struct stack {
	uint64_t bytes, parts, out_bytes, out_parts;	/* out: not freed; KMEM_PROFILE_PART parts: one object */
	uint32_t samples;
	const char *cache, *group;	/* "": none */
	unsigned *frame;		/* in profile.frame, the innermost first */
	unsigned depth;
};

struct profile {
	pid_t pid, thread;		/* thread: a thread of `pid` with the memory still mapped */
	char program[64];
	uint64_t mean, samples, lost, untracked, ms, began_ns;
	bool nothing_out;		/* graphs and shares show allocated bytes instead */
	struct stack *stack;
	struct frame *frame;
	struct function *function;
	struct mapped *mapped;
	size_t stacks, frames, functions, mappings;
	size_t stack_room, frame_room, function_room, mapped_room;
};

/* Returns: the bytes of a stack for graphs and shares: not freed, or allocated if profile->nothing_out. */
static inline uint64_t profile_shown(const struct profile *profile, const struct stack *stack)
{
	return profile->nothing_out ? stack->bytes : stack->out_bytes;
}

/* profile_names.c: profile_maps reads the process's mapped files. profile_frame returns the index of the frame of
 * `pc` and adds each pc once. profile_name_all names all frames. */
void profile_maps(struct profile *profile, pid_t thread);
unsigned profile_frame(struct profile *profile, uint64_t pc);
void profile_name_all(struct profile *profile);
/* Returns: the name of function `step` of a frame (0: innermost), or the address as FILE+OFFSET for a frame without a
 * name. The text of an address stays valid for the next seven calls. */
const char *profile_frame_name(const struct profile *profile, unsigned frame, unsigned step);
unsigned profile_steps(const struct profile *profile, unsigned frame);

/* profile_jit.c. Returns: the name of a function generated at run time (JIT) by the program, or NULL. */
const char *profile_jit_name(const struct profile *profile, uint64_t pc);

/* profile_pprof.c: profile.proto in gzip's format. profile_flame.c: a page, a picture, or a line for each stack.
 * Returns: false after a failed write, with errno set. */
bool profile_write_pprof(const struct profile *profile, FILE *to);
bool profile_write_html(const struct profile *profile, FILE *to);
bool profile_write_svg(const struct profile *profile, FILE *to);
bool profile_write_folded(const struct profile *profile, FILE *to);

#endif
