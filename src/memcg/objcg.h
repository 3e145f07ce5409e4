/*
 * objcg.h: groups, and the objcgs between groups and charged objects, for the files that charge. Invariant: each byte
 * on a group's counter is accounted for by an objcg of the group, or of a group below: in a stock, or out with a
 * user. After all stocks are drained, `current` is the sum over the allocated objects.
 *
 * An objcg lives while its group has a reference, and while one byte charged through the objcg is out. So the owner
 * word of a charged object is valid until km_objcg_uncharge for its last byte. The owner of an empty sheaf may be
 * gone: compare the address, never follow the pointer. km_memcg_modes (cache/cache.h) has the modes.
 */
#ifndef KM_MEMCG_OBJCG_H
#define KM_MEMCG_OBJCG_H

#include <kmem/memcg.h>

#include "cache/cache.h"
#include "base/list.h"
#include "counter.h"

struct obj_cgroup {
	uint32_t slot;			/* byte stock: per-CPU offset of its word; 0: closed, or none */
	uint32_t stock;			/* the same offset, open or closed */
	uint32_t words;			/* offset of a stock closed without a fence (stock.c); 0: none */
	uint32_t net;			/* traffic with pages: per-CPU offset, guarded by the CPU's stock lock; 0:
					 * none */
	bool dead;			/* group offline: `charged` counts the bytes out */
	/* In the cache line of `slot`: a recharge reads no other line. */
	struct km_private *private;	/* slabs of a private group (child_cache.c); NULL: not private */
	struct mem_cgroup *memcg;	/* the charged group: `home`, later an ancestor; NULL: dead objcg. Read under
					 * any CPU's stock lock */
	struct mem_cgroup *home;	/* the group of creation; after its end only compared. NULL: free record */
	struct km_list link;		/* on memcg->objcgs; under the tree lock */
	struct obj_cgroup *next_gone;
	uint32_t listed;		/* 1: on the list by next_gone, of objcgs to be reaped */
	int64_t charged;		/* bytes in no `net` word, and KM_OBJCG_HOME while home lives */
	uint64_t left;			/* bytes seen in `words` at the last look, and given back */
	uint64_t nr_charged_bytes;	/* charged bytes, unused, on no CPU: remainders of `drain`, and refunds by
					 * signal handlers */
};

/* Returns the most bytes of a byte stock: more than a page, because a charge adds a page to the remainder, and the next
 * uncharge must find room. Hierarchy v1 exists for comparison, and has a page, as in the kernel. */
km_inline uint64_t km_stock_most(void)
{
	return (uint64_t)(2 - km_memcg_modes[MEM_CGROUP_V1]) * KM_PAGE_SIZE;
}

/* The root's objcg: a charge is free, and no object should be owned by the root's objcg. */
extern km_hidden struct obj_cgroup km_objcg_root;

/*
 * stock.c: charges the byte stock, else the CPU's page stock, else the counters. If a counter refuses, then as gfp
 * allows (pressure.c). Keeps errno. With __GFP_NOFAIL or __GFP_HIGH a charge never fails. Context: no lock held. With
 * km_thread.busy, as in a signal handler or a slow path, the charge does not wait, call the system or call back.
 */
bool km_objcg_charge(struct obj_cgroup *objcg, uint64_t bytes, gfp_t gfp);
/* Uncharges bytes; never fails. The objcg may be gone afterwards. Context: no lock of rank KM_RANK_STOCK held. */
void km_objcg_uncharge(struct obj_cgroup *objcg, uint64_t bytes);
/* Returns the bytes that could be charged before a limit above refuses; UINT64_MAX: no limit; 0 while a draining
 * charge waits for unused bytes. Racy. */
uint64_t km_objcg_spare(const struct obj_cgroup *objcg);
/* settle: slows the thread down after a charge with GFP_NOWAIT, where the caller may wait after all. owe: for a caller
 * that may not wait: the thread's next charge that may wait is slowed down instead. */
void km_objcg_settle(struct obj_cgroup *objcg, uint64_t bytes);
void km_objcg_owe(struct obj_cgroup *objcg, uint64_t bytes);
/* Returns the group charged now, with a reference for the caller; the root for an orphan of the root. */
struct mem_cgroup *km_objcg_memcg(struct obj_cgroup *objcg);

/* Puts `group` in the root's place for created groups, allocations in the root's name, and a default of NULL. Takes
 * over the caller's reference. Requires: no other group exists yet. */
void km_memcg_set_top(struct mem_cgroup *group);

/* Functions called by lower folders through km_charge_ops (alloc/accounting.h), described there. */
bool km_charge_begin(struct kmem_cache *cache, bool may_wait);
void km_charge_drain(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places);
void km_charge_close(struct kmem_cache *cache);
void km_charge_release(struct kmem_cache *cache);
bool km_charge_bytes(size_t bytes, gfp_t gfp, uint64_t *owner);
bool km_charge_is_here(uint64_t owner);
bool km_charge_may_more(size_t bytes);
bool km_charge_has_room(size_t bytes);
bool km_charge_block(struct kmem_cache *class, void *block, uint64_t owner, bool may_wait);
void km_charge_large(uint64_t owner, struct km_page *page, bool begins);
void km_private_forget(struct kmem_cache *parent);
void km_memcg_start_process(void);
size_t km_memcg_figures(void (*visit)(const struct km_group_stats *stats, void *arg), void *arg);
extern km_hidden const struct km_memcg_view km_memcg_view;

/* charged_flush.c: frees the objects on charged sheaves of objcgs with km_memcg_below(objcg, root), and large blocks
 * freed by signal handlers. Context: no lock held. */
void km_memcg_flush_pcs(struct mem_cgroup *root);
/* Returns the bytes in stocks of the group itself. Racy. */
uint64_t km_stock_bytes(const struct mem_cgroup *group);
/* Returns false if a drain of the group and all groups below would not make room for `bytes`. Context: no lock
 * held. */
bool km_memcg_could_give(struct mem_cgroup *root, uint64_t bytes);
/* Returns whether the objcg charges `root` or a group below. Racy. */
bool km_memcg_below(const struct obj_cgroup *objcg, const struct mem_cgroup *root);
/* memcg_caches.c: the bytes of slabs in the group's memory.stat. */
uint64_t km_memcg_slab_bytes(const struct mem_cgroup *group);

#endif
