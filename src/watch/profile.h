/*
 * profile.h: what the files of profiles share: a stack, and a request from outside.
 */
#ifndef KM_WATCH_PROFILE_H
#define KM_WATCH_PROFILE_H

#include "../cache/mail.h"
#include "../front/profile.h"

/* ---- profile_stack.c */

/* How a function's frame is undone, by the place of a call. */
struct km_stack_rule {
	uint64_t key, rule;
};

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

#define KM_STACK_RULES	4096u		/* a power of two */
#define KM_STACK_TRAILS	128u		/* a power of two */
struct km_stack_tables {
	struct km_stack_rule rules[KM_STACK_RULES];
	struct km_stack_trail trails[KM_STACK_TRAILS];
};
/* A place for what is learnt, zeros; before the first stack. */
void km_stack_start(struct km_stack_tables *tables);

struct km_stack {
	bool known;			/* it is a stack that km_stack_keep had; `what` was said of that, and there are
					 * no frames here */
	uint32_t what;
	unsigned depth;
	uintptr_t frame[KM_PROFILE_FRAMES];	/* the program's that have called the library, the innermost first */
	struct km_stack_trail *trail;	/* that is being written, or NULL */
};
/* Takes no lock and allocates nothing; also in a signal handler. key: what should be the same where the stack is; anew:
 * it is walked in any case. Each that is not known is given to km_stack_keep. */
void km_stack_take(struct km_stack *stack, uint64_t key, bool anew);
#define KM_STACK_NOTHING UINT32_MAX	/* don't know it again */
void km_stack_keep(struct km_stack *stack, uint32_t what);

/* ---- profile.c */

/* KM_MAIL_PROFILE, with the registry locked: 0 or -errno. */
int km_profile_ask(const struct km_mail_request *request);
/* For tests: the same samples each time; 0: others. */
void km_profile_seed(uint64_t seed);

#endif
