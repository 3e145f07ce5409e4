/*
 * stack.h: stacks, as stack.c walks them. Nothing here takes a lock or allocates, and a signal handler may call it.
 */
#ifndef KM_WATCH_STACK_H
#define KM_WATCH_STACK_H

#include "../front/profile.h"
#include "../port/os_signal.h"

/* The program's frames that have called the library, the innermost first; at most `most`: returns how many. */
unsigned km_stack_walk(uintptr_t *frame, unsigned most);
/* In the handler of a fault: the frames behind the one that was interrupted. */
unsigned km_stack_behind(const struct km_fault *fault, uintptr_t *frame, unsigned most);

/* ---- stacks that are known again */

/* A stack that was walked: the words that the walk has read, from where it began. The same words lead the same way. */
#define KM_STACK_WORDS	48u		/* return addresses */
#define KM_STACK_BASES	16u		/* frame pointers */
struct km_stack_trail {
	uint32_t turn;			/* odd: somebody writes here */
	uint32_t what;			/* its user's */
	uint64_t key;			/* 0: none */
	uint16_t words, bases;
	uint16_t step[KM_STACK_WORDS];	/* from each return address to the next, in words */
	int32_t base_at[KM_STACK_BASES];	/* bytes from the start; -1: the register */
	int64_t base[KM_STACK_BASES];	/* and what is there, from the start, too */
	uintptr_t word[KM_STACK_WORDS];
};

#define KM_STACK_TRAILS	128u		/* a power of two */
struct km_stack_trails {
	struct km_stack_trail trail[KM_STACK_TRAILS];
};
/* A place for trails, zeros; before the first km_stack_take. */
void km_stack_start(struct km_stack_trails *trails);

struct km_stack {
	bool known;			/* it is a stack that km_stack_keep had; `what` was said of that, and there are
					 * no frames here */
	uint32_t what;
	unsigned depth;
	uintptr_t frame[KM_PROFILE_FRAMES];	/* the program's that have called the library, the innermost first */
	struct km_stack_trail *trail;	/* that is being written, or NULL */
};
/* key: what should be the same where the stack is; anew: it is walked in any case. Each that is not known is given to
 * km_stack_keep. */
void km_stack_take(struct km_stack *stack, uint64_t key, bool anew);
#define KM_STACK_NOTHING UINT32_MAX	/* don't know it again */
void km_stack_keep(struct km_stack *stack, uint32_t what);

#endif
