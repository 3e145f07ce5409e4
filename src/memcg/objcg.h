/*
 * objcg.h: groups, and the objcgs between groups and charged objects, for the files that charge. Invariant: each byte
 * on a group's counter is accounted for by an objcg of the group, or of a group below: in a stock, or out with a user.
 * After all stocks are drained, `current` is the sum over the allocated objects.
 *
 * An objcg lives while its group has a reference, and while one byte charged through the objcg is out. So the owner
 * word of a charged object is valid until km_objcg_uncharge for its last byte. The owner of an empty sheaf may be gone:
 * compare the address, never follow the pointer. The modes are km_memcg_modes of cache/cache.h.
 */
#ifndef KM_MEMCG_OBJCG_H
#define KM_MEMCG_OBJCG_H

#include <kmem/memcg.h>

#include "cache/cache.h"
#include "base/list.h"
#include "counter.h"

struct obj_cgroup {
	uint32_t slot;			/* per-CPU offset of the byte stock's word; 0: closed, or no byte stock */
	uint32_t stock;			/* the byte stock's offset, open or closed */
	uint32_t words;			/* offset of a byte stock left behind, because no fence was possible (stock.c);
					 * 0: none */
	uint32_t net;			/* per-CPU offset of a word of bytes taken from whole pages less bytes given
					 * back; guarded by the CPU's stock lock; 0: none */
	bool dead;			/* the group is offline, and `charged` counts all bytes of this objcg */
	/* In the cache line of `slot`: a recharge reads no other line. */
	struct km_private *private;	/* the private group's child caches; NULL: not a private group */
	struct mem_cgroup *memcg;	/* the group charged: `home`, later an ancestor; NULL: dead. Read with any CPU's
					 * stock locked */
	struct mem_cgroup *home;	/* the first charged group, later only compared; NULL: free record */
	struct km_list link;		/* on memcg->objcgs; guarded by the tree lock */
	struct obj_cgroup *next_gone;
	uint32_t listed;		/* 1: on the list by next_gone, to be reaped (km_memcg_reap) */
	int64_t charged;		/* bytes that no `net` word counts, and KM_OBJCG_HOME until `home` is
					 * released */
	uint64_t left;			/* bytes in `words` at the last look; these were given back */
	uint64_t nr_charged_bytes;	/* charged, unused bytes on no CPU: remainders of MEM_CGROUP_DRAIN, and
					 * uncharges by signal handlers */
};

/* Returns the most bytes of a byte stock: two pages, because a charge adds a page to the remainder, and the next
 * uncharge must find room. One page in mode MEM_CGROUP_V1, as in the kernel. */
km_inline uint64_t km_stock_most(void)
{
	return (uint64_t)(2 - km_memcg_modes[MEM_CGROUP_V1]) * KM_PAGE_SIZE;
}

/* The root's objcg: charges to it do nothing. An object charged to the root has no owner. */
extern km_hidden struct obj_cgroup km_objcg_root;

/*
 * stock.c: charges the byte stock, else the CPU's page stock, else the counters. If a counter refuses, then as gfp
 * allows (pressure.c). Keeps errno. With __GFP_NOFAIL or __GFP_HIGH a charge never fails. Context: no lock held. With
 * km_thread.busy, as in a signal handler or a slow path, the charge does not wait, call the system or call back.
 */
bool km_objcg_charge(struct obj_cgroup *objcg, uint64_t bytes, gfp_t gfp);
/* Uncharges bytes; never fails. The objcg may be gone afterwards. Context: no lock of rank KM_RANK_STOCK held. */
void km_objcg_uncharge(struct obj_cgroup *objcg, uint64_t bytes);
/* Returns the bytes left below the nearest limit; UINT64_MAX: no limit; 0 while another charge drains stocks to find
 * room. Racy. */
uint64_t km_objcg_spare(const struct obj_cgroup *objcg);
/* km_objcg_settle delays the thread, if over high, for bytes charged with GFP_NOWAIT in a call that may wait.
 * km_objcg_owe is for a call that may not wait: the thread's next charge that may wait is delayed instead. */
void km_objcg_settle(struct obj_cgroup *objcg, uint64_t bytes);
void km_objcg_owe(struct obj_cgroup *objcg, uint64_t bytes);
/* Returns the group that the objcg charges now, with a reference for the caller; the root for an objcg that points to
 * the root. */
struct mem_cgroup *km_objcg_memcg(struct obj_cgroup *objcg);

/* Makes `group` the parent of groups created below the root, the group charged by default and in the root's name. Takes
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
/* Returns the bytes in byte stocks and page stocks of the group itself, without groups below. Racy. */
uint64_t km_stock_bytes(const struct mem_cgroup *group);
/* Returns: false if a drain of the stocks and charged sheaves of `root` and groups below would not make room for
 * `bytes`. Context: no lock held. */
bool km_memcg_could_give(struct mem_cgroup *root, uint64_t bytes);
/* Returns whether the objcg charges `root` or a group below. Racy. */
bool km_memcg_below(const struct obj_cgroup *objcg, const struct mem_cgroup *root);
/* memcg_caches.c: returns the bytes for the line `slab` of memory.stat. */
uint64_t km_memcg_slab_bytes(const struct mem_cgroup *group);

#endif
