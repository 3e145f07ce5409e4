/*
 * accounting.h: what the folders below src/memcg know of accounting: the objcg of this thread, and one hook.
 * Invariant: these folders use no name of src/memcg. A static program without groups does not contain accounting, and
 * the hook is NULL there.
 */
#ifndef KM_ALLOC_ACCOUNTING_H
#define KM_ALLOC_ACCOUNTING_H

#include "slab/engine.h"

/* The objcg of threads without an own objcg; km_objcg_now: of this thread. NULL: uncharged (memcg/objcg.h). */
extern km_hidden struct obj_cgroup *km_objcg_default;
km_inline struct obj_cgroup *km_objcg_now(void)
{
	struct obj_cgroup *objcg = km_objcg_here;

	return km_likely(objcg != NULL) ? objcg : km_load(&km_objcg_default);
}

/* Account scopes, independent of gfp. THREADS: some thread has set km_account_here, so all its objects are charged,
 * and each cache asks first since then. MALLOC: the malloc blocks of all threads are charged. */
enum km_account_asks { KM_ASKS_THREADS = 1, KM_ASKS_MALLOC = 2 };
extern km_hidden uint32_t km_account_asks;	/* written with the registry locked */

struct km_cpu_list;
struct km_memcg_view;
struct km_group_stats;

struct km_charge_ops {
	/* ---- for src/alloc. Adds the layer CHARGE: each call then checks the objcg. False: not possible. */
	bool (*begin)(struct kmem_cache *cache, bool may_wait);
	/* Give back the objects on the charged sheaves of the caches, on these CPUs (alloc/alloc_ops.h). unused: also
	 * where the fence is refused, because no thread uses the caches. */
	void (*drain)(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places);
	/* Close the cache's charged sheaves for ever; release them, after a fence. With km_drain_lock held. */
	void (*close)(struct kmem_cache *cache);
	void (*release)(struct kmem_cache *cache);

	/* ---- for src/cache. Destroys the child caches of a destroyed parent. With the registry locked. */
	void (*forget)(struct kmem_cache *parent);
	/* Large blocks. charge: charges a block; false: the objcg is at its limit; *owner: the objcg charged, or 0 for
	 * none. With no lock held, and km_thread.busy as the caller found it. */
	bool (*charge)(size_t bytes, gfp_t gfp, uint64_t *owner);
	bool (*charge_more)(struct obj_cgroup *owner, uint64_t bytes, gfp_t gfp);
	void (*uncharge)(struct obj_cgroup *owner, uint64_t bytes);
	/* True if the owner is the objcg of the current thread. */
	bool (*is_charged_here)(uint64_t owner);
	/* True if the limits of the thread's objcg seem to have room for so many more bytes. Charges nothing. */
	bool (*may_more)(size_t bytes);
	/* True if the thread's objcg may have cached large blocks, and its limits have room for so many more bytes. */
	bool (*has_room)(size_t bytes);
	/* Charges this block of this class to the owner from now on. False: not possible now. */
	bool (*own_block)(struct kmem_cache *class, void *block, uint64_t owner, bool may_wait);
	/* Begins or ends the owner's block: blocks of a private group are linked by page->list. */
	void (*note_block)(uint64_t owner, struct km_page *page, bool begins);
	/* Name of the objcg's group, readable for ever, and its number, 0 for the root's. */
	const char *(*name_of)(const struct obj_cgroup *objcg, unsigned *number);
	/* Frees memory of released groups: all, or, without waiting, a part. */
	void (*tidy)(bool all);
	/* Makes the process's group, if options ask for one. Called at the end of the start, before any allocation. */
	void (*start)(void);
	/* Called while the registry's lock is held. */
	void (*fork)(bool before, bool child);
	/* In a child, with no lock held: releases groups held only by calls of threads missing in the child. */
	void (*forked)(void);

	/* ---- for observers: figures of all groups of this process, each parent before its children, with no lock
	 * held. Returns: the number of groups. visit NULL: only the number. */
	size_t (*groups)(void (*visit)(const struct km_group_stats *stats, void *arg), void *arg);
	/* A write to a group's file (KMEM_MAIL_GROUP): 0, -EINVAL, -ENOENT; -EAGAIN: not now. */
	int (*write)(const char *text, const char *file);
	/* mem_cgroup_account_malloc (KMEM_MAIL_ACCOUNT), with the registry locked: 0, or -EOPNOTSUPP. Cached blocks
	 * stay charged. */
	int (*account_malloc)(bool on);
	/* The groups, for readers outside of the process (memcg/memcg_group.h). */
	const struct km_memcg_view *view;
};
extern km_hidden const struct km_charge_ops *km_charge_ops;	/* a hook (base/cc.h) */

/* A hook of malloc: charge its blocks from now on, or stop charging; with the registry locked. */
struct km_malloc_ops {
	void (*account)(bool on);
};
extern km_hidden const struct km_malloc_ops *km_malloc_ops;

km_inline bool km_has_accounting(void)
{
	return km_charge_ops != NULL;
}

#endif
