/*
 * memcg_group.h: struct mem_cgroup, for the files that are the groups: memcg.c (the tree), stock.c (charges),
 * pressure.c (what is done where a charge meets a limit), memcg_text.c.
 *
 * Invariants. A group is online from its creation until mem_cgroup_offline, and has references as long as it is; so are
 * the groups above it. While a CPU's stock lock is held, and an objcg points to a group, that group stays: who takes it
 * offline makes its objcgs point to its parent, then passes every CPU's lock once.
 *
 * Locks: the tree's (KM_RANK_MEMCG), then one CPU's stock lock (KM_RANK_STOCK), under which nothing else is taken.
 */
#ifndef KM_MEMCG_MEMCG_GROUP_H
#define KM_MEMCG_MEMCG_GROUP_H

#include "cache/cache.h"
#include "base/fields.h"
#include "objcg.h"

/* The bytes that an online group adds to `charged` of its objcg, so that this is not 0: more than any charge. */
#define KM_OBJCG_HOME	((int64_t)1 << 62)
/* The same as long as it has twins of caches. */
#define KM_OBJCG_PRIVATE	((int64_t)1 << 61)

struct mem_cgroup {
	struct km_counter memory, kmem;
	struct obj_cgroup *objcg;
	struct mem_cgroup *parent;		/* referenced; NULL: the root */
	uint64_t refs;				/* those of calls in the upper half */
	bool online;
	bool left;				/* in a child of fork: the last reference was another thread's call's */
	unsigned depth;				/* the root's is 0 */
	unsigned number;			/* of all groups that ever were, from 1 on; the root's is 0 */
	unsigned online_children;		/* from here: under the tree lock */
	struct km_list children, sibling;	/* also offline ones, until they are released */
	struct km_list objcgs;			/* that point here: its own, and orphans */
	int event_fd;				/* -1: none */
	unsigned event_mask;
	uint64_t untold;			/* events that a charge without system calls left to tell */
	uint64_t asked;				/* bytes that were asked for from outside: memory.reclaim */
	mem_cgroup_high_callback on_high;
	mem_cgroup_oom_callback on_oom;
	void *high_arg, *oom_arg;
	uint64_t events[MEMCG_NR_MEMORY_EVENTS], local[MEMCG_NR_MEMORY_EVENTS];
	char name[MEMCG_NAME_MAX];
};

extern km_hidden struct mem_cgroup km_memcg_root;

/* A CPU's page stock. Invariant: who lies here is online, for who goes offline passes by and takes it out. */
#define KM_STOCK_SLOTS	7u		/* kernel: NR_MEMCG_STOCK since 6.16, to fill one line */
#define KM_STOCK_SPARES	4u		/* stock.c */
struct km_stock {
	struct km_lock lock;
	struct mem_cgroup *groups[KM_STOCK_SLOTS];	/* NULL: free */
	uint8_t pages[KM_STOCK_SLOTS];
	uint8_t victim;
	uint64_t moves;				/* times that bytes came or went, under `lock` */
	struct obj_cgroup *objcg;		/* rule `drain`: whose bytes lie in this CPU's byte stock */
} km_aligned(128);

/* For readers outside of the process, who find it by cache/process_record.h; the first two are where they are for
 * ever. */
struct km_memcg_view {
	const struct km_field *fields;
	const unsigned *field_count;
	const struct mem_cgroup *root;
	const struct km_stock *const *stocks;	/* NULL as long as there was no group */
	const unsigned *stock_count;
};

/* memcg_fields.c: the table of this build. */
extern km_hidden const struct km_field km_group_fields[];
extern km_hidden const unsigned km_group_field_count;

/* The next group after `at` in `root` and below, parents first, offline ones too; NULL after the last. With the tree
 * lock. */
struct mem_cgroup *km_memcg_next(const struct mem_cgroup *root, struct mem_cgroup *at);

/* Objcgs that are over go. With the tree lock. */
void km_memcg_reap(void);
/* They stay until it is said that they need not, which is for as long as the registry is locked. With the tree lock. */
void km_memcg_keep_gone(bool keep);
/* A reference for as long as a call takes, which the child of another thread's fork does not have. NULL and the root
 * are passed through. */
struct mem_cgroup *km_memcg_hold(struct mem_cgroup *group);
void km_memcg_let_go(struct mem_cgroup *group);
/* In the child of a fork, with the tree lock: calls of other threads hold it no more. */
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

/* Is it `root` or below? */
km_inline bool km_memcg_in(const struct mem_cgroup *group, const struct mem_cgroup *root)
{
	while (group && group != root)
		group = group->parent;
	return group != NULL;
}

/* The counter that is charged for a group; NULL for the root, which counts nothing. */
km_inline struct km_counter *km_memcg_counter(struct mem_cgroup *group)
{
	return km_memcg_is_root(group) ? NULL : &group->memory;
}

km_inline struct km_counter *km_memcg_kmem_counter(struct mem_cgroup *group)
{
	return km_memcg_is_root(group) ? NULL : &group->kmem;
}

km_inline struct mem_cgroup *km_memcg_of_counter(struct km_counter *counter)
{
	return km_container_of(counter, struct mem_cgroup, memory);
}

/* ---- stock.c */

bool km_stock_start(void);		/* with the tree lock; false: no memory */
void km_stock_fork(bool before, bool child);

/* One attempt at a charge, and what came of it. */
struct km_attempt {
	struct obj_cgroup *objcg;
	uint64_t bytes;
	bool force;			/* over any limit */
	bool may_wait;			/* may take what follows */
	uint64_t counted;		/* out: bytes that the counters took for it */
	struct mem_cgroup *refused;	/* out, if may_wait: whose max refused it, held */
	struct mem_cgroup *high;	/* out, if may_wait: who pays, where it or one above is over high; held */
};
bool km_stock_charge(struct km_attempt *attempt);
/* The group that pays for it now, held. */
struct mem_cgroup *km_objcg_hold(struct obj_cgroup *objcg);

/* The bytes in stocks of `root` and below go back; how many. With the tree lock. */
uint64_t km_stock_drain(struct mem_cgroup *root);
/* Open the byte stock of a new objcg, as far as there is room. With the tree lock. */
void km_stock_open_objcg(struct obj_cgroup *objcg);
/* Stop stocks of an objcg whose group goes offline. With the tree lock. */
void km_stock_close_objcg(struct obj_cgroup *objcg);
/* After everything that points to the group points to its parent: nobody looks at it any more, the objcg is dead. */
void km_stock_leave(struct mem_cgroup *group, struct obj_cgroup *objcg);
/* Such a one: is nothing of it out indeed? If not, it comes again. With the tree lock. */
bool km_stock_is_over(struct obj_cgroup *objcg);
/* Its home is gone (KM_OBJCG_HOME), or its twins are: it is over, now or when the last byte comes back. */
void km_stock_forget(struct obj_cgroup *objcg, int64_t what);

/* ---- objcg.c: list an objcg whose group is gone and whose last byte was uncharged. Context: any thread, no lock. */
void km_objcg_list(struct obj_cgroup *objcg);
/* Requires the tree lock. Pop a listed objcg, or NULL; get a record for a new objcg; release a dead objcg's record. */
struct obj_cgroup *km_objcg_pop_listed(void);
struct obj_cgroup *km_objcg_new(struct mem_cgroup *home);
void km_objcg_keep(struct obj_cgroup *objcg);
/* Pages without a record in use go back to the system. */
void km_objcg_purge(void);

/* ---- account_scope.c: mem_cgroup_account_malloc, with the registry locked (km_charge_ops->account_malloc). */
int km_memcg_account_malloc(bool on);
/* ---- memcg_control.c: what is written to one of a group's files (km_charge_ops->write). */
int km_memcg_write(const char *text, const char *file);

/* ---- pressure.c */

/* Count an event; tell who waits, now if `may_call`. The group is referenced, or a stock lock is held. */
void km_memcg_event(struct mem_cgroup *group, enum memcg_memory_event event, bool may_call);
/* The group has refused a charge: print a line, unless gfp forbids lines or the group has an out-of-memory callback. */
void km_memcg_tell_refused(const struct mem_cgroup *group, uint64_t bytes, gfp_t gfp) km_cold;
void km_memcg_tell(void);		/* what was left to tell */
/* The next charge that may wait, whoever's, reclaims so many bytes from the group. With the tree lock. */
void km_memcg_ask(struct mem_cgroup *group, uint64_t bytes);
/* This thread's charge, which must not wait, left the group over high. With a CPU's stock lock, and not in a handler
 * that found the thread busy. */
void km_memcg_owe(struct mem_cgroup *group, uint64_t bytes);
/* The group's memory is free from now on. With the tree lock. */
void km_memcg_released(const struct mem_cgroup *group);
void km_pressure_fork_child(void);

#endif
