/*
 * profile.h: what the files of profiles share: a stack, and a request from outside.
 */
#ifndef KM_WATCH_PROFILE_H
#define KM_WATCH_PROFILE_H

#include "../cache/mail.h"
#include "../front/profile.h"

/* ---- profile_stack.c */

/* A place for what is learnt of functions, zeros; before the first stack. */
#define KM_STACK_RULES	4096u		/* a power of two */
struct km_stack_rule {
	uint64_t key, rule;
};
void km_stack_start(struct km_stack_rule rules[KM_STACK_RULES]);
/* The frames of the program that have called the library, the innermost first: at most `most`; returns how many. Takes
 * no lock and allocates nothing; also in a signal handler. */
unsigned km_stack_take(uintptr_t *frame, unsigned most);

/* ---- profile.c */

/* KM_MAIL_PROFILE, with the registry locked: 0 or -errno. */
int km_profile_ask(const struct km_mail_request *request);
/* For tests: the same samples each time; 0: others. */
void km_profile_seed(uint64_t seed);

#endif
