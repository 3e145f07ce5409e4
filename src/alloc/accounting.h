/*
 * accounting.h: what the folders below src/memcg know of accounting: the objcg of this thread, and one hook.
 * Invariant: these folders use no name of src/memcg. A static program without groups does not contain accounting, and
 * the hook is NULL there.
 */
#ifndef KM_ALLOC_ACCOUNTING_H
#define KM_ALLOC_ACCOUNTING_H

#include "slab/engine.h"

/* km_objcg_default: the objcg of threads that have chosen none; km_objcg_now: the objcg of this thread. NULL: uncharged
 * (memcg/objcg.h). */
extern km_hidden struct obj_cgroup *km_objcg_default;
km_inline struct obj_cgroup *km_objcg_now(void)
{
	struct obj_cgroup *objcg = km_objcg_here;

	return km_likely(objcg != NULL) ? objcg : km_load(&km_objcg_default);
}

/* Account scopes, independent of gfp. THREADS: some thread has set km_account_here, all its objects are charged, and so
 * each cache has the layer CHARGE since then. MALLOC: the malloc blocks of all threads are charged. */
enum km_account_asks { KM_ASKS_THREADS = 1, KM_ASKS_MALLOC = 2 };
extern km_hidden uint32_t km_account_asks;	/* written with the registry locked */

struct km_cpu_list;
struct km_memcg_view;
struct km_group_stats;

struct km_charge_ops {
	/* ---- for src/alloc. Adds the layer CHARGE, which looks for an objcg at each allocation. Returns: false if not
	 * possible. */
	bool (*begin)(struct kmem_cache *cache, bool may_wait);
	/* Drains the caches' charged sheaves on these CPUs (NULL: all). unused: no thread uses the caches, so the drain
	 * goes on if the system refuses the fence. */
	void (*drain)(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places);
	/* close: closes the cache's charged sheaves for ever. release: frees them, after a fence. With km_drain_lock
	 * held. */
	void (*close)(struct kmem_cache *cache);
	void (*release)(struct kmem_cache *cache);

	/* ---- for src/cache. Destroys the child caches of a destroyed parent. With the registry locked. */
	void (*forget)(struct kmem_cache *parent);
	/* Large blocks. charge: charges a block; false: the objcg is at its limit; *owner: the objcg charged, or 0 for
	 * none. With no lock held, and km_thread.busy as the caller found it. */
	bool (*charge)(size_t bytes, gfp_t gfp, uint64_t *owner);
	bool (*charge_more)(struct obj_cgroup *owner, uint64_t bytes, gfp_t gfp);
	void (*uncharge)(struct obj_cgroup *owner, uint64_t bytes);
	/* Returns: true if `owner` is the objcg of the current thread. */
	bool (*is_charged_here)(uint64_t owner);
	/* Returns: true if the limits above the thread's objcg have room for so many more bytes. Charges nothing, a
	 * hint. */
	bool (*may_more)(size_t bytes);
	/* True if the thread's objcg may have cached large blocks, and its limits have room for so many more bytes. */
	bool (*has_room)(size_t bytes);
	/* Makes `owner` the objcg charged for this cached block of this class. Returns: false if not possible now. */
	bool (*own_block)(struct kmem_cache *class, void *block, uint64_t owner, bool may_wait);
	/* Links a block of whole pages to its private group at allocation (begins), or unlinks the block at free. */
	void (*note_block)(uint64_t owner, struct km_page *page, bool begins);
	/* Returns: the name of the objcg's group, readable for ever, and in *number its number; 0: the root. */
	const char *(*name_of)(const struct obj_cgroup *objcg, unsigned *number);
	/* Frees memory of released groups: all of it, or without waiting a part. */
	void (*tidy)(bool all);
	/* Makes the group of the whole process, if options ask for one. Called at the end of the start, before any
	 * allocation. */
	void (*start)(void);
	/* Locks or unlocks the groups around fork. The registry is locked. */
	void (*fork)(bool before, bool child);
	/* In a child, with no lock held: releases groups held only by calls of threads missing in the child. */
	void (*forked)(void);

	/* ---- for observers: figures of all groups of this process, each parent before its children, with no lock
	 * held. Returns: the number of groups. visit NULL: only the number. */
	size_t (*groups)(void (*visit)(const struct km_group_stats *stats, void *arg), void *arg);
	/* Executes a write to a group's file (KMEM_MAIL_GROUP). Returns: 0, -EINVAL, -ENOENT; -EAGAIN: not possible
	 * now. */
	int (*write)(const char *text, const char *file);
	/* Executes mem_cgroup_account_malloc for another process (KMEM_MAIL_ACCOUNT), with the registry locked.
	 * Returns: 0, or -EOPNOTSUPP. Cached blocks stay charged. */
	int (*account_malloc)(bool on);
	/* Addresses of the groups, for readers in other processes (memcg/memcg_group.h). */
	const struct km_memcg_view *view;
};
extern km_hidden const struct km_charge_ops *km_charge_ops;	/* hook of accounting (base/cc.h); NULL without
								 * groups */

/* A hook of malloc: begins or ends the charging of malloc's blocks. Context: registry locked. */
struct km_malloc_ops {
	void (*account)(bool on);
};
extern km_hidden const struct km_malloc_ops *km_malloc_ops;

km_inline bool km_has_accounting(void)
{
	return km_charge_ops != NULL;
}

#endif
