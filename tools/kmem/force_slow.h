/*
 * force_slow.h: shut the fast-path gate of another process (struct kmem_gate, percpu/pcpu.h). Only the slow path reads
 * the mailbox, so a program whose calls are all hits never serves a request.
 */
#ifndef KMEM_COMMAND_FORCE_SLOW_H
#define KMEM_COMMAND_FORCE_SLOW_H

#include "info/info.h"

struct gate {
	struct kmem_gate there;		/* copy of the process's gate; shut 0: no gate can be shut */
	const struct info_root *root;
	bool may_stop;			/* permission to stop all threads briefly */
	unsigned long work;		/* target_work() of the process at the request */
	uint64_t begun_ms, next_ms;	/* first call, next shut; next_ms 0: not begun */
	unsigned times, stops;		/* number of shuts, of stops tried */
	int stop_error;			/* errno of the last stop; 0: success */
};

/* Read the gate of the libkmem in use in the process. */
void gate_find(struct gate *gate, struct target *target, const struct info_root *root);
/* Shut the gate when due. Context: called repeatedly while the command waits for an answer. */
void gate_shut_if_due(struct gate *gate, struct target *target, uint64_t now_ms);
/* Returns: true: a thread of the process has run since the request. */
bool gate_saw_work(const struct gate *gate, const struct target *target);
/* Open the gate again after a request was withdrawn. */
void gate_open(struct gate *gate, struct target *target);

#endif
