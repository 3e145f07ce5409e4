/*
 * mailbox.h: the mailbox: by which a reader of the record (process_record.h) asks something of this process, as `kmem
 * debug` does. It lies at an address that the record names, and is written from outside, as a debugger writes: so the
 * system has checked that the writer may do with this process what it wants, as its user or as root. Nobody is woken:
 * a request is seen by the next miss that may call the system (cache/reclaim.c), and served there
 * (inspect/mailbox.c).
 *
 * A request is copied before it is looked at, and nothing of it is believed. The other process writes `request`, then
 * a number that was not there before into `asked`; the answer is `result` and `done`, the request that was served, then
 * the number in `answered`. Of two that ask at once one finds another request in `done` than its own.
 */
#ifndef KM_CACHE_MAILBOX_H
#define KM_CACHE_MAILBOX_H

#include "base/atomic.h"
#include "percpu/pcpu.h"

#define KM_MAIL_VERSION	1u
#define KM_MAIL_LETTERS	16u
#define KM_MAIL_NAME	32u

enum km_mail_command {
	KM_MAIL_NOTHING,
	KM_MAIL_DEBUG,			/* caches of that name: kmem_cache_set_debug with these letters */
	KM_MAIL_LEAKS,			/* kmem_print_leaks to standard error; neither name nor letters */
	/* A profile (alloc/profile_record.h) of caches of that name, or of all: letters "BYTES:SECONDS", both in
	 * digits: the mean between two samples, and how long at most; "" or "0": the one that was asked for ends. */
	KM_MAIL_PROFILE,
	KM_MAIL_SHRINK,			/* caches of that name give back what lies ready; no name: all, as kmem_idle */
	/* kmem_cache_validate of caches of that name, or the check of all ("*"): km_mail_report has what is said. */
	KM_MAIL_VALIDATE,
	/* Writes to files that look like the kernel's (memcg_control.c), of caches of that name: letters are a number
	 * in digits; of TUNE "LIMIT BATCHCOUNT SHARED"; of CLEAR, by which events count from 0 again, none. */
	KM_MAIL_MIN_PARTIAL, KM_MAIL_DEFRAG_RATIO, KM_MAIL_SHEAF_CAPACITY, KM_MAIL_CPU_PARTIAL,
	KM_MAIL_TUNE, KM_MAIL_CLEAR,
	/* ... and to those of a group, which has no name here: cache is "NUMBER VALUE", in digits; letters are the
	 * file's name without "memory.": max, high, low, min, peak or reclaim (memcg/memcg_control.c). */
	KM_MAIL_GROUP,
	KM_MAIL_ACCOUNT,		/* mem_cgroup_account_malloc: letters "on" or "off", no name */
};

struct km_mail_request {
	uint32_t command;
	char cache[KM_MAIL_NAME], letters[KM_MAIL_LETTERS];	/* each ended by NUL */
};

/* The drawing stays, or has another version. */
struct km_mail {
	uint32_t version;
	uint32_t asked, answered;	/* numbers: equal where nothing is asked */
	int32_t result;			/* 0 or -errno: ENOENT, no cache has the name; ENODATA, none has stacks;
					 * EBUSY, another profile is taken */
	struct km_mail_request request, done;
};

extern km_hidden struct km_mail km_mail;

/* The report of the last request that has one, by its number: the lines that there was room for. */
#define KM_MAIL_TEXT 8192u
struct km_mail_report {
	uint32_t number, damages, length;
	char text[KM_MAIL_TEXT];
};

/* Whether there is a mailbox, for readers of the record. */
enum km_control { KM_CONTROL_NONE, KM_CONTROL_OFF, KM_CONTROL_ON };

/* The hook of who serves the requests (base/cc.h). tick: now and then, in a miss that may call the system, without a
 * lock: where km_control_wanted says so. */
struct km_control_ops {
	void (*tick)(void);
	const struct km_mail_report *report;
};
extern km_hidden const struct km_control_ops *km_control_ops;
/* inspect/mailbox.c. */
extern km_hidden const struct km_control_ops km_control;
extern km_hidden struct km_mail_report km_control_report;

/* Siblings of some cache may have become empty since somebody looked (km_debug_ops->settle). */
extern km_hidden bool km_shadows_drain;

km_inline bool km_control_wanted(void)
{
	return km_load(&km_mail.asked) != km_load(&km_mail.answered) || km_load(&km_shadows_drain) ||
	       km_load(&km_gate_kept);
}

#endif
