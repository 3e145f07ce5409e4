/*
 * force_slow.h: a program whose calls are all hits looks into no mailbox: it is made to miss (struct km_gate,
 * percpu/pcpu.h).
 */
#ifndef KMEM_COMMAND_FORCE_SLOW_H
#define KMEM_COMMAND_FORCE_SLOW_H

#include "cache/mailbox.h"
#include "info/info.h"
#include "percpu/pcpu.h"

struct ways {
	struct km_gate there;		/* as the process says; shut 0: it has none that can be shut */
	const struct info_root *root;
	bool may_stop;			/* all threads, for a moment */
	unsigned long work;		/* of the process when it was asked */
	uint64_t begun_ms, next_ms;	/* when they are shut; 0: not begun */
	unsigned times, stops;
	int stop_error;			/* why the last stop failed; 0: it did not */
};

/* Of the copy that is in use. */
void ways_find(struct ways *ways, struct target *target, const struct info_root *root);
/* Called again and again while an answer is waited for: shut where that is due. */
void ways_shut_in_time(struct ways *ways, struct target *target, uint64_t now_ms);
/* Has any thread of it had a CPU since? */
bool ways_saw_work(const struct ways *ways, const struct target *target);
/* A request was taken back. */
void ways_open(struct ways *ways, struct target *target);

#endif
