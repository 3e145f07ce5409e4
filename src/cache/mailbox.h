/*
 * mailbox.h: requests from other processes (struct kmem_mail, <kmem/record.h>), as `kmem debug` sends. A request wakes
 * no thread. The next miss with permission for system calls (cache/reclaim.c) serves the request (inspect/mailbox.c).
 * Invariant: a request is copied before its check, and nothing in a request is trusted.
 */
#ifndef KM_CACHE_MAILBOX_H
#define KM_CACHE_MAILBOX_H

#include <kmem/record.h>

#include "base/atomic.h"
#include "percpu/pcpu.h"

extern km_hidden struct kmem_mail km_mail;

/* The hook of the server of requests (base/cc.h). tick: called by a miss with permission for system calls, without a
 * lock, if km_control_wanted returns true. */
struct km_control_ops {
	void (*tick)(void);
	const struct kmem_mail_report *report;
};
extern km_hidden const struct km_control_ops *km_control_ops;
/* inspect/mailbox.c. */
extern km_hidden const struct km_control_ops km_control;
extern km_hidden struct kmem_mail_report km_control_report;

/* Set when a debug shadow cache may have become empty: the next tick calls km_debug_ops->settle. */
extern km_hidden bool km_shadows_drain;

km_inline bool km_control_wanted(void)
{
	return km_load(&km_mail.asked) != km_load(&km_mail.answered) || km_load(&km_shadows_drain) ||
	       km_load(&km_gate_kept);
}

#endif
