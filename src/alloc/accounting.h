/*
 * accounting.h: what the floors beneath accounting know of it: who pays for what this thread allocates, and one hook.
 * Invariant: these floors use no name of accounting's; a static program that has no groups does not contain accounting,
 * and the hook is NULL there.
 */
#ifndef KM_ALLOC_ACCOUNTING_H
#define KM_ALLOC_ACCOUNTING_H

#include "slab/engine.h"

/*
 * The payer of this thread's objects where somebody is to pay, and that where the thread has said nothing; NULL:
 * nobody. memcg/objcg.h has what they are.
 */
extern km_hidden km_tls struct obj_cgroup *km_objcg_here;
extern km_hidden struct obj_cgroup *km_objcg_default;
km_inline struct obj_cgroup *km_objcg_now(void)
{
	struct obj_cgroup *objcg = km_objcg_here;

	return km_likely(objcg != NULL) ? objcg : km_load(&km_objcg_default);
}

/*
 * Whatever gfp says: everything of this thread's is paid for (km_account_here): since some thread said so each cache
 * asks first. And every thread's blocks of malloc are.
 */
enum km_account_asks { KM_ASKS_THREADS = 1, KM_ASKS_MALLOC = 2 };
extern km_hidden km_tls bool km_account_here;
extern km_hidden uint32_t km_account_asks;	/* written with the registry locked */

struct km_cpu_list;
struct km_memcg_view;
struct km_group_stats;

struct km_charge_ops {
	/* ---- for front: an object of this cache is to be paid for: from now on each call asks who pays. False:
	 * can't. */
	bool (*begin)(struct kmem_cache *cache, bool may_wait);
	/* Give back the objects on the charged sheaves of the caches, on these CPUs (alloc/drain.h). unused: also where
	 * the fence is refused, for no thread uses the caches. */
	void (*drain)(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places);
	/* Close the cache's charged sheaves for ever; release them, after a fence. With km_drain_lock held. */
	void (*close)(struct kmem_cache *cache);
	void (*release)(struct kmem_cache *cache);

	/* ---- for cache: what has twins goes, and they with it. With the registry locked. */
	void (*forget)(struct kmem_cache *parent);
	/*
	 * Large blocks. pay: false where who should pay may not; *owner: who does, 0 for nobody. With no lock held,
	 * km_thread_busy as the caller found it.
	 */
	bool (*pay)(size_t bytes, gfp_t gfp, uint64_t *owner);
	bool (*pay_more)(uint64_t owner, size_t bytes, gfp_t gfp);
	void (*pay_back)(uint64_t owner, size_t bytes);
	/* Is that owner who would pay here? */
	bool (*pays_here)(uint64_t owner);
	/* May whoever pays here have so many bytes more, as it looks? Nobody is asked for them. */
	bool (*may_more)(size_t bytes);
	/* Does somebody pay here who may have a block that lies ready, and for so many bytes more? */
	bool (*has_room)(size_t bytes);
	/* The owner pays for this block of that class from now on. False: that can't be said now. */
	bool (*own_block)(struct kmem_cache *class, void *block, uint64_t owner, bool may_wait);
	/* The owner's block begins, or goes: what a private group has is linked by page->list. */
	void (*note_block)(uint64_t owner, struct km_page *page, bool begins);
	/* The objcg's group: its name, which stays readable, and its number, which is 0 for the root's. */
	const char *(*name_of)(const struct obj_cgroup *objcg, unsigned *number);
	/* Free memory of released groups: all, or, without waiting, a part. */
	void (*tidy)(bool all);
	/* Make the group that pays for the process, as options ask. Once everything works, before anything was given
	 * out. */
	void (*start)(void);
	/* While the registry's lock is held. */
	void (*fork)(bool before, bool child);
	/* In a child, with no lock held: groups that only calls of threads which are not here held go. */
	void (*forked)(void);

	/* ---- for watch: the numbers of all groups of this process, each before those below it, with no lock held; how
	 * many there are. visit NULL: no more than that. */
	size_t (*groups)(void (*visit)(const struct km_group_stats *stats, void *arg), void *arg);
	/* A write to a group's file (KM_MAIL_GROUP): 0, -EINVAL, -ENOENT; -EAGAIN: not now. */
	int (*write)(const char *text, const char *file);
	/* mem_cgroup_account_malloc (KM_MAIL_ACCOUNT), with the registry locked: 0, or -EOPNOTSUPP. Blocks that
	 * lie ready in groups' names stay paid for. */
	int (*account_malloc)(bool on);
	/* Where groups are, for readers outside of the process (memcg/memcg_group.h). */
	const struct km_memcg_view *view;
};
extern km_hidden const struct km_charge_ops *km_charge_ops;	/* a hook (base/cc.h) */

/* Malloc, where it is in this program: its blocks have payers from now on, or not any more; with the registry locked.
 * A hook as well. */
struct km_malloc_ops {
	void (*account)(bool on);
};
extern km_hidden const struct km_malloc_ops *km_malloc_ops;

km_inline bool km_has_accounting(void)
{
	return km_charge_ops != NULL;
}

#endif
