/*
 * kfree_rcu.h: what objects wait in for a grace period (kfree_rcu.c), as somebody finds it who looks from outside
 * (process_record.h): nothing of the program's needs to point to what kfree_rcu was given. A chain begins in the
 * library's data, and goes through the objects; a block is our own memory.
 */
#ifndef KM_CACHE_KFREE_RCU_H
#define KM_CACHE_KFREE_RCU_H

#include "os/lock.h"

/* Pointers of a page. Kernel: KVFREE_BULK_MAX_ENTR. */
#define KM_RCU_BLOCK_BYTES 4096u
struct km_rcu_block {
	struct km_rcu_block *next;
	size_t count;
	void *object[(KM_RCU_BLOCK_BYTES - 16) / sizeof(void *)];
};
_Static_assert(sizeof(struct km_rcu_block) == KM_RCU_BLOCK_BYTES, "a block is a page of pointers");
/* Blocks there may be, for each CPU: then the chain serves, which takes no memory. */
#define KM_RCU_MOST_BLOCKS 64u

/* Objects that wait on a CPU for the next grace period. */
struct km_rcu_waiting {
	struct km_lock lock;
	bool told;		/* since it was last collected somebody has seen to it that it will be */
	struct km_rcu_block *blocks;	/* the first has room */
} km_aligned(64);

#endif
