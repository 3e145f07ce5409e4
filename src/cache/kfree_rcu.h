/*
 * kfree_rcu.h: the structures in which objects wait for a grace period (kfree_rcu.c), as a reader in another process
 * sees them (process_record.h). The program needs no pointer to an object of kfree_rcu. A chain begins in the
 * library's data and passes through the objects; a block is the library's own memory.
 */
#ifndef KM_CACHE_KFREE_RCU_H
#define KM_CACHE_KFREE_RCU_H

#include "os/lock.h"

/* A block: a page of pointers to waiting objects. Kernel: KVFREE_BULK_MAX_ENTR. */
#define KM_RCU_BLOCK_BYTES 4096u
struct km_rcu_block {
	struct km_rcu_block *next;
	size_t count;
	void *object[(KM_RCU_BLOCK_BYTES - 16) / sizeof(void *)];
};
_Static_assert(sizeof(struct km_rcu_block) == KM_RCU_BLOCK_BYTES, "a block is a page of pointers");
/* Blocks per CPU, at most. Beyond them the chain serves, without any memory. */
#define KM_RCU_MOST_BLOCKS 64u

/* Objects of one CPU waiting for the next grace period. */
struct km_rcu_waiting {
	struct km_lock lock;
	bool told;		/* a grace period was requested since the last collection */
	struct km_rcu_block *blocks;	/* the first block may have room; the others are full */
} km_aligned(64);

#endif
