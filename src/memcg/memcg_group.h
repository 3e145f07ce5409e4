/*
 * memcg_group.h: struct mem_cgroup, for memcg.c (the tree), stock.c (charges), pressure.c (charges beyond a limit)
 * and memcg_text.c.
 *
 * Invariants. A group is online from its creation until mem_cgroup_offline, and has references while online; so do
 * the groups above. While a CPU's stock lock is held, the group of an objcg stays: mem_cgroup_offline makes the
 * objcgs point to the parent, and then takes every CPU's lock once.
 *
 * Locks: the tree's (KM_RANK_MEMCG), then one CPU's stock lock (KM_RANK_STOCK). No lock is taken under a stock lock.
 */
#ifndef KM_MEMCG_MEMCG_GROUP_H
#define KM_MEMCG_MEMCG_GROUP_H

#include "cache/cache.h"
#include "base/fields.h"
#include "objcg.h"

/* Bytes in `charged` of an objcg until the release of the objcg's group: more than any charge, so `charged` stays
 * above 0. */
#define KM_OBJCG_HOME	((int64_t)1 << 62)
/* Bytes added to `charged` of an objcg, to keep `charged` above 0, while the private group's record (struct km_private)
 * exists. */
#define KM_OBJCG_PRIVATE	((int64_t)1 << 61)

struct mem_cgroup {
	struct km_counter memory, kmem;
	struct obj_cgroup *objcg;
	struct mem_cgroup *parent;		/* holds a reference on the parent; NULL: this is the root */
	uint64_t refs;				/* plain references in the lower half, references of calls (CALL) in the
						 * upper half */
	bool online;
	bool left;				/* in the child of fork: the last reference was held by a call of
						 * another thread */
	unsigned depth;				/* depth in the tree; 0: the root */
	unsigned number;			/* serial number of the group, from 1; 0: the root */
	unsigned online_children;		/* this and all fields below: guarded by the tree lock */
	struct km_list children, sibling;	/* children include offline groups until their release */
	struct km_list objcgs;			/* all objcgs with memcg == this group: its own, and orphans */
	int event_fd;				/* eventfd of mem_cgroup_eventfd; -1: none */
	unsigned event_mask;
	uint64_t untold;			/* bits of events not yet written to the eventfd, because their charge
						 * could make no system call */
	uint64_t asked;				/* bytes requested by a write to memory.reclaim */
	mem_cgroup_high_callback on_high;
	mem_cgroup_oom_callback on_oom;
	void *high_arg, *oom_arg;
	uint64_t events[MEMCG_NR_MEMORY_EVENTS], local[MEMCG_NR_MEMORY_EVENTS];
	char name[MEMCG_NAME_MAX];
};

extern km_hidden struct mem_cgroup km_memcg_root;

/* A CPU's page stock: charged, unused pages of up to KM_STOCK_SLOTS groups. Invariant: each of these groups is online;
 * mem_cgroup_offline removes a group from all page stocks. */
#define KM_STOCK_SLOTS	7u		/* groups in a page stock, to fill a cache line; kernel: NR_MEMCG_STOCK since
					 * 6.16 */
#define KM_STOCK_SPARES	4u		/* page stocks for signal handlers, beside one for each CPU (stock.c) */
struct km_stock {
	struct km_lock lock;
	struct mem_cgroup *groups[KM_STOCK_SLOTS];	/* group of each entry; NULL: the entry is unused */
	uint8_t pages[KM_STOCK_SLOTS];
	uint8_t victim;
	uint64_t moves;				/* how often bytes moved from or to this stock; guarded by `lock` */
	struct obj_cgroup *objcg;		/* mode MEM_CGROUP_DRAIN: the objcg whose bytes are in this CPU's byte
						 * stock */
} km_aligned(128);

/* Addresses for a reader in another process (`kmem info`), found by cache/process_record.h. The first two fields never
 * move. */
struct km_memcg_view {
	const struct kmem_record_field *fields;
	const unsigned *field_count;
	const struct mem_cgroup *root;
	const struct km_stock *const *stocks;	/* array of page stocks; NULL before the first group */
	const unsigned *stock_count;
};

/* memcg_fields.c: places of the fields of this build, for `kmem info`. */
extern km_hidden const struct kmem_record_field km_group_fields[];
extern km_hidden const unsigned km_group_field_count;

/* Returns the next group after `at` in `root` and below, parents first, offline groups too. Context: tree lock held. */
struct mem_cgroup *km_memcg_next(const struct mem_cgroup *root, struct mem_cgroup *at);

/* Reaps the listed objcgs without charged bytes. Context: tree lock held. */
void km_memcg_reap(void);
/* Takes a reference for the length of a call, which a fork's child drops. Returns: `group`, also NULL and the root. */
struct mem_cgroup *km_memcg_hold(struct mem_cgroup *group);
void km_memcg_let_go(struct mem_cgroup *group);
/* Drops the references of other threads' calls in the child of a fork. Context: tree lock held. */
void km_memcg_fork_child(struct mem_cgroup *group);
void km_memcg_lock(void);
bool km_memcg_trylock(void);
void km_memcg_unlock(void);
km_inline void km_memcg_leave(const char *held)
{
	km_memcg_unlock();
}
#define km_memcg_scope() KM_LOCKED_SCOPE(km_memcg_lock, km_memcg_leave)

km_inline bool km_memcg_is_root(const struct mem_cgroup *group)
{
	return !group->parent;
}

/* Returns whether the group is `root` or below. */
km_inline bool km_memcg_in(const struct mem_cgroup *group, const struct mem_cgroup *root)
{
	while (group && group != root)
		group = group->parent;
	return group != NULL;
}

/* Returns the counter of a group; NULL for the root: the root has no counter. */
km_inline struct km_counter *km_memcg_counter(struct mem_cgroup *group)
{
	return km_memcg_is_root(group) ? NULL : &group->memory;
}

km_inline struct mem_cgroup *km_memcg_of_counter(struct km_counter *counter)
{
	return km_container_of(counter, struct mem_cgroup, memory);
}

/* ---- stock.c */

bool km_stock_start(void);		/* makes the page stocks; tree lock held; false: no memory */
void km_stock_fork(bool before, bool child);

/* One attempt at a charge, and its result. */
struct km_attempt {
	struct obj_cgroup *objcg;
	uint64_t bytes;
	bool force;			/* the charge may exceed any limit */
	bool may_wait;			/* the thread may wait: for drains, reclaim and callbacks */
	uint64_t counted;		/* result: bytes charged to the counters */
	struct mem_cgroup *refused;	/* result, if may_wait: the group whose max refused, with a reference; NULL:
					 * none */
	struct mem_cgroup *high;	/* result, if may_wait: the charged group, with a reference, if a counter on the
					 * way up is over high */
};
bool km_stock_charge(struct km_attempt *attempt);
/* Returns the group that the objcg charges now, with a reference (km_memcg_hold). */
struct mem_cgroup *km_objcg_hold(struct obj_cgroup *objcg);

/* Empties the stocks of `root` and groups below. Returns: the bytes given back to the counters. Context: tree lock
 * held. */
uint64_t km_stock_drain(struct mem_cgroup *root);
/* Opens the byte stock of a new objcg, if there is room. Context: tree lock held. */
void km_stock_open_objcg(struct obj_cgroup *objcg);
/* Closes the byte stock of an objcg whose group goes offline. Context: tree lock held. */
void km_stock_close_objcg(struct obj_cgroup *objcg);
/* Waits until no thread reads the group through the objcg. Requires: the objcg is dead, and points to the parent. */
void km_stock_leave(struct mem_cgroup *group, struct obj_cgroup *objcg);
/* Returns: true if a listed objcg has no charged bytes, and may end. False: bytes are charged, and the objcg is marked
 * unlisted, so that the last uncharge lists the objcg again. Context: tree lock held. */
bool km_stock_is_over(struct obj_cgroup *objcg);
/* Subtracts KM_OBJCG_HOME or KM_OBJCG_PRIVATE from `charged`. The objcg ends now, or with the last byte back. */
void km_stock_forget(struct obj_cgroup *objcg, int64_t what);

/* ---- objcg.c: list an objcg whose group is gone and whose last byte was uncharged. Context: any thread, no lock. */
void km_objcg_list(struct obj_cgroup *objcg);
/* Requires the tree lock. Pop a listed objcg, or NULL; get a record for a new objcg; release a dead objcg's
 * record. */
struct obj_cgroup *km_objcg_pop_listed(void);
struct obj_cgroup *km_objcg_new(struct mem_cgroup *home);
void km_objcg_keep(struct obj_cgroup *objcg);
/* Returns whether the address is an objcg's, live or dead. Context: tree lock held. */
bool km_objcg_is_record(uintptr_t address);
/* Returns pages without a record in use to the system. */
void km_objcg_purge(void);

/* ---- account_scope.c: switch the charging of malloc's blocks on or off (km_charge_ops->account_malloc). Returns: 0,
 * or -EOPNOTSUPP without malloc or with an engine that shares pages. Context: registry locked. */
int km_memcg_account_malloc(bool on);
/* ---- memcg_text.c: write to one of a group's files (km_charge_ops->write). */
int km_memcg_write(const char *text, const char *file);

/* ---- pressure.c */

/* Counts an event of the group, and writes to the eventfds of waiters: now if `may_call`, else later (km_memcg_serve).
 * Requires: the group is referenced, or a stock lock is held. */
void km_memcg_event(struct mem_cgroup *group, enum memcg_memory_event event, bool may_call);
/* Prints a line about a refused charge, unless gfp forbids lines or the group has an out-of-memory callback. */
void km_memcg_tell_refused(const struct mem_cgroup *group, uint64_t bytes, gfp_t gfp) km_cold;
/* Does work left to the next charge that may wait: unwritten events, and a reclaim requested by another process. */
void km_memcg_serve(void);
/* Makes room for a charge after the refused first attempt, with all steps that gfp allows. Returns: true if charged. */
bool km_press(struct km_attempt *attempt, gfp_t gfp);
/* Delays the thread for a charge to this group, if not NULL, and for the thread's debt (km_thread.owed). Context: may
 * wait. */
void km_slow_down_for(struct mem_cgroup *group, uint64_t bytes);
/* Stores a request: the next charge that may wait, of any group, reclaims so many bytes from this group. Context: tree
 * lock held. */
void km_memcg_ask(struct mem_cgroup *group, uint64_t bytes);
/* Notes that this thread's charge, which must not wait, left the group over high. Context: a CPU's stock lock held;
 * not in a handler that found the thread busy. */
void km_memcg_owe(struct mem_cgroup *group, uint64_t bytes);
void km_pressure_fork_child(void);

#endif
