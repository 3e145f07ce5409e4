/*
 * unwind.h: stacks, as unwind.c walks them. All functions take no lock, allocate nothing, and
 * may be called in a signal handler.
 */
#ifndef KM_DEBUG_UNWIND_H
#define KM_DEBUG_UNWIND_H

#include "alloc/profile_record.h"
#include "os/os_signal.h"

/* Walk the calling thread's stack: the program's frames, the innermost first. Returns the number, at most `most`. */
unsigned km_stack_walk(uintptr_t *frame, unsigned most);
/* In the handler of a fault: the frames behind the interrupted frame. */
unsigned km_stack_behind(const struct km_fault *fault, uintptr_t *frame, unsigned most);

/* The calling thread is the process's first one. */
void km_stack_first_thread(void);

/* ---- stacks known from an earlier walk */

/* The trail of a walk: all words read by the walk, from the beginning on. Equal words lead a walk the same way. The
 * words of a trail are compared in the order of the walk: the place of each word follows from the words before. */
#define KM_STACK_WORDS	48u		/* return addresses */
#define KM_STACK_BASES	16u		/* frame pointers */
struct km_stack_trail {
	uint32_t turn;			/* odd: a walk is writing the trail */
	uint32_t what;			/* the user's */
	uint64_t key;			/* 0: none */
	uint16_t words, bases;
	uint32_t word_at[KM_STACK_WORDS];	/* words from the start */
	uint8_t base_of[KM_STACK_BASES];	/* the return address to which each frame pointer leads */
	int32_t base_at[KM_STACK_BASES];	/* bytes from the start; -1: the register */
	int64_t base[KM_STACK_BASES];	/* the frame pointer's value, from the start as well */
	uintptr_t word[KM_STACK_WORDS];
};

#define KM_STACK_TRAILS	256u		/* a power of two */

struct km_stack {
	bool known;			/* km_stack_keep had the same stack: no frames here, but the same `what` */
	uint32_t what;
	unsigned depth;
	uintptr_t frame[KM_PROFILE_FRAMES];	/* the program's frames, the innermost first */
	struct km_stack_trail *trail;	/* unfinished, or NULL */
	uint64_t key;			/* ... its */
};
/* key: a number for this place and purpose; most: frames; anew: the stack is walked in any case. A stack with known =
 * false is given to km_stack_keep. */
void km_stack_take(struct km_stack *stack, uint64_t key, unsigned most, bool anew);
/* A library was unloaded, and another may come to its place: what is known of places is of no use. */
void km_stack_forget(void);
#define KM_STACK_NOTHING UINT32_MAX	/* keep no trail of the stack */
void km_stack_keep(struct km_stack *stack, uint32_t what);

#endif
