/*
 * profile_data.h: what the files of `kmem profile` share: stacks with their figures and names, and the writers of
 * files.
 */
#ifndef KMEM_COMMAND_PROFILE_DATA_H
#define KMEM_COMMAND_PROFILE_DATA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "cache/process_record.h"

/* A mapped file of the process. */
struct mapped {
	uint64_t start, end, offset;
	char *path;
	struct image *image;		/* NULL: not looked for yet, or there are too many */
};

/* A function that a frame is in; one that was inlined is a step by itself. The innermost first. */
struct frame_step {
	unsigned function;		/* in profile.function */
	int line;
};
struct frame {
	uint64_t pc;
	int mapped;			/* in profile.mapped; -1: no file */
	struct frame_step *steps;
	unsigned count;			/* 0: it has no name */
};
struct function {
	const char *name, *source;	/* source "": not known */
};

struct stack {
	uint64_t bytes, parts, out_bytes, out_parts;	/* parts: KM_PROFILE_PART of an object */
	uint32_t samples;
	const char *cache, *group;	/* "": none */
	unsigned *frame;		/* in profile.frame, the innermost first */
	unsigned depth;
};

struct profile {
	pid_t pid, thread;		/* thread: one that still has the memory */
	char program[64];
	uint64_t mean, samples, lost, untracked, ms, began_ns;
	bool nothing_out;		/* pictures and shares are of what was allocated */
	struct stack *stack;
	struct frame *frame;
	struct function *function;
	struct mapped *mapped;
	size_t stacks, frames, functions, mappings;
	size_t stack_room, frame_room, function_room, mapped_room;
};

/* The bytes of a stack for pictures and shares. */
static inline uint64_t profile_shown(const struct profile *profile, const struct stack *stack)
{
	return profile->nothing_out ? stack->bytes : stack->out_bytes;
}

/* profile_names.c: the process's files, and the names of all frames. pc: into `frame`, once. */
void profile_maps(struct profile *profile, pid_t thread);
unsigned profile_frame(struct profile *profile, uint64_t pc);
void profile_name_all(struct profile *profile);
/* The name of a frame's outermost function, or its address. Lives until the next call but seven. */
const char *profile_frame_name(const struct profile *profile, unsigned frame, unsigned step);
unsigned profile_steps(const struct profile *profile, unsigned frame);

/* profile_jit.c: of code that the program made; NULL: it does not say. */
const char *profile_jit_name(const struct profile *profile, uint64_t pc);

/* profile_pprof.c: profile.proto, in gzip's format. profile_flame.c: a page, a picture, or a line for each stack.
 * False: it could not be written, errno says why. */
bool profile_write_pprof(const struct profile *profile, FILE *to);
bool profile_write_html(const struct profile *profile, FILE *to);
bool profile_write_svg(const struct profile *profile, FILE *to);
bool profile_write_folded(const struct profile *profile, FILE *to);

#endif
