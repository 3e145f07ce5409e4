/*
 * mailbox.h: the mailbox, through which a reader of the record (process_record.h) sends a request to this process, as
 * `kmem debug` does. The record has the mailbox's address. A writer writes to the memory as a debugger does, so the
 * system has checked the writer's right to control this process, as its user or as root. A request wakes no thread:
 * the next miss that may call the system (cache/reclaim.c) sees the request and serves it (inspect/mailbox.c).
 *
 * A request is copied before it is checked, and nothing in it is trusted. The other process writes `request`, then a
 * new number to `asked`. The answer is `result`, then `done` (a copy of the served request), then the number in
 * `answered`. If two processes ask at once, one of them finds a foreign request in `done`.
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
	KM_MAIL_DEBUG,			/* kmem_cache_set_debug with these letters, for caches of the name */
	KM_MAIL_LEAKS,			/* kmem_print_leaks to standard error; no name, no letters */
	/* A profile (alloc/profile_record.h) of caches of the name, or of all caches. letters: "BYTES:SECONDS" in
	 * digits, the mean between two samples and the longest duration; "" or "0" ends the profile. */
	KM_MAIL_PROFILE,
	KM_MAIL_SHRINK,			/* give back cached objects of caches of the name; no name: all, as
					 * kmem_idle */
	/* kmem_cache_validate for caches of the name, or the check of all ("*"); km_mail_report has the report. */
	KM_MAIL_VALIDATE,
	/* Writes to files like the kernel's (write_cache.c), for caches of the name. letters: a number in
	 * digits; for TUNE "LIMIT BATCHCOUNT SHARED"; for CLEAR, a reset of the event counters, none. */
	KM_MAIL_MIN_PARTIAL, KM_MAIL_DEFRAG_RATIO, KM_MAIL_SHEAF_CAPACITY, KM_MAIL_CPU_PARTIAL,
	KM_MAIL_TUNE, KM_MAIL_CLEAR,
	/* Writes to a group's file. A group has no name here: cache is "NUMBER VALUE", in digits. letters: the
	 * file's name without "memory.": max, high, low, min, peak or reclaim (memcg/memcg_text.c). */
	KM_MAIL_GROUP,
	KM_MAIL_ACCOUNT,		/* mem_cgroup_account_malloc: letters "on" or "off", no name */
};

struct km_mail_request {
	uint32_t command;
	char cache[KM_MAIL_NAME], letters[KM_MAIL_LETTERS];	/* each ended by NUL */
};

/* A changed layout must get another version. */
struct km_mail {
	uint32_t version;
	uint32_t asked, answered;	/* request numbers; equal if no request is pending */
	int32_t result;			/* 0 or -errno: ENOENT, no cache has the name; ENODATA, no cache has
					 * stacks; EBUSY, another profile is running */
	struct km_mail_request request, done;
};

extern km_hidden struct km_mail km_mail;

/* The report of the last request with a report, by request number; cut to the buffer's size. */
#define KM_MAIL_TEXT 8192u
struct km_mail_report {
	uint32_t number, damages, length;
	char text[KM_MAIL_TEXT];
};

/* Whether there is a mailbox, for readers of the record. */
enum km_control { KM_CONTROL_NONE, KM_CONTROL_OFF, KM_CONTROL_ON };

/* The hook of the code that serves requests (base/cc.h). tick: called by a miss that may call the system, without
 * a lock, if km_control_wanted returns true. */
struct km_control_ops {
	void (*tick)(void);
	const struct km_mail_report *report;
};
extern km_hidden const struct km_control_ops *km_control_ops;
/* inspect/mailbox.c. */
extern km_hidden const struct km_control_ops km_control;
extern km_hidden struct km_mail_report km_control_report;

/* Shadow caches of some cache may be empty since the last check (km_debug_ops->settle). */
extern km_hidden bool km_shadows_drain;

km_inline bool km_control_wanted(void)
{
	return km_load(&km_mail.asked) != km_load(&km_mail.answered) || km_load(&km_shadows_drain) ||
	       km_load(&km_gate_kept);
}

#endif
