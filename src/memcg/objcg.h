/*
 * objcg.h: groups, and the objcgs between them and what is charged, for the files that charge. Invariant: of every
 * byte that a group's counter holds some objcg that points to the group, or to one below, can say where it is: in a
 * stock, or out with a user; so when all stocks are drained, `current` is the sum over what is alive.
 *
 * An objcg lives while its group has a reference, and while one byte charged through it is out. So the owner word of
 * a charged object is valid until km_objcg_uncharge for its last byte; the owner named by a shelf's empty block may be
 * gone: compare them, never follow them. km_memcg_modes (cache/cache.h) has the modes.
 */
#ifndef KM_MEMCG_OBJCG_H
#define KM_MEMCG_OBJCG_H

#include <kmem/memcg.h>

#include "cache/cache.h"
#include "base/list.h"
#include "counter.h"

struct obj_cgroup {
	uint32_t slot;			/* byte stock: offset of its word in a CPU's area; 0: closed, or none */
	uint32_t stock;			/* the same, open or closed */
	uint32_t words;			/* the same, of one that was closed unfenced (stock.c); 0: it was not */
	uint32_t net;			/* traffic with pages: a word that the CPU's stock lock guards; 0: none */
	bool dead;			/* offline: `charged` says what is out */
	/* In the line of `slot`: who takes another's object looks at no other. */
	struct km_private *private;	/* its group has slabs of its own (child_cache.c); NULL: it has not */
	struct mem_cgroup *memcg;	/* the charged group: `home`, later an ancestor; NULL: dead objcg. Read under
					 * any CPU's stock lock */
	struct mem_cgroup *home;	/* the group of creation; after its end only compared. NULL: free record */
	struct km_list link;		/* on memcg->objcgs; under the tree lock */
	struct obj_cgroup *next_gone;
	uint32_t listed;		/* by it, among those that may be over */
	int64_t charged;		/* bytes that no `net` knows of, and KM_OBJCG_HOME while home lives */
	uint64_t left;			/* what was in `words` when somebody looked, which went back */
	uint64_t nr_charged_bytes;	/* charged, unused, on no CPU: remainders of `drain`, and what handlers left */
};

/*
 * Bytes of a byte stock. More than a page, so that who alternates between an allocation and a free stays in it: an
 * allocation that finds too little gets a page beside what is left, and its free must have room for itself there.
 * Hierarchy v1 is there to be compared: there it is a page, as in the kernel.
 */
km_inline uint64_t km_stock_most(void)
{
	return (uint64_t)(2 - km_memcg_modes[MEM_CGROUP_V1]) * KM_PAGE_SIZE;
}

/* The root's: charging it is free, and nothing should be owned by it. */
extern km_hidden struct obj_cgroup km_objcg_root;

/*
 * Charge: from the byte stock, else the CPU's page stock, else the counters; where those refuse, as gfp allows, stocks
 * and shelves are drained, reclaim and the out-of-memory callback run (with no lock held), and it is tried again. To be
 * called with no lock held. With km_thread_busy set, as in a signal handler or a slow path, it does not wait, call the
 * system or call back. Keeps errno. __GFP_NOFAIL and __GFP_HIGH succeed always.
 */
bool km_objcg_charge(struct obj_cgroup *objcg, uint64_t bytes, gfp_t gfp);
/* Never fails. With no lock held of rank KM_RANK_STOCK. The objcg may be gone when it returns. */
void km_objcg_uncharge(struct obj_cgroup *objcg, uint64_t bytes);
/* Bytes that could be charged before some limit above it refuses; 0 while somebody waits for what others have unused;
 * racy; UINT64_MAX: no limit. */
uint64_t km_objcg_spare(const struct obj_cgroup *objcg);
/* After a charge by GFP_NOWAIT, where the caller may wait after all: what is over `high` is reclaimed, slowed down. */
void km_objcg_settle(struct obj_cgroup *objcg, uint64_t bytes);
/* ... and where this one may not wait: the thread's next charge that may is slowed down for it. */
void km_objcg_owe(struct obj_cgroup *objcg, uint64_t bytes);
/* The group that pays for it now, with a reference for the caller; the root for an orphan of it. */
struct mem_cgroup *km_objcg_memcg(struct obj_cgroup *objcg);

/* Before there is any other: the root's place for whoever makes groups, allocates in the root's name, or lets nobody be
 * the default. Takes the caller's reference. */
void km_memcg_set_top(struct mem_cgroup *group);

/* The functions that floors beneath call by km_charge_ops (alloc/accounting.h), which says what they do. */
bool km_charge_begin(struct kmem_cache *cache, bool may_wait);
void km_charge_drain(struct kmem_cache **caches, size_t count, bool unused, const struct km_cpu_list *places);
void km_charge_close(struct kmem_cache *cache);
void km_charge_release(struct kmem_cache *cache);
bool km_charge_bytes(size_t bytes, gfp_t gfp, uint64_t *owner);
bool km_charge_more(uint64_t owner, size_t bytes, gfp_t gfp);
void km_charge_back(uint64_t owner, size_t bytes);
bool km_charge_pays_here(uint64_t owner);
bool km_charge_may_more(size_t bytes);
bool km_charge_has_room(size_t bytes);
bool km_charge_block(struct kmem_cache *class, void *block, uint64_t owner, bool may_wait);
void km_charge_large(uint64_t owner, struct km_page *page, bool begins);
void km_private_forget(struct kmem_cache *parent);
void km_memcg_start_process(void);
size_t km_memcg_figures(void (*visit)(const struct km_group_stats *stats, void *arg), void *arg);
extern km_hidden const struct km_memcg_view km_memcg_view;

/* charged_flush.c: the objects that lie charged on shelves in the name of an objcg for which km_memcg_below(objcg,
 * root), and large blocks that handlers freed, go back. With no lock held. */
void km_memcg_flush_pcs(struct mem_cgroup *root);
/* In stocks of the group itself; racy. */
uint64_t km_stock_bytes(const struct mem_cgroup *group);
/* False: a drain of the group and of all below would not make room for so many bytes. With no lock held. */
bool km_memcg_could_give(struct mem_cgroup *root, uint64_t bytes);
/* Does the objcg charge `root` or a group below it? A racy look. */
bool km_memcg_below(const struct obj_cgroup *objcg, const struct mem_cgroup *root);
/* memcg_caches.c: more lines for memory.stat of the group, like snprintf but for the NUL. */
size_t km_memcg_more_stat(const struct mem_cgroup *group, char *text, size_t bytes);

#endif
