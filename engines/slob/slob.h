/*
 * slob.h: the engine slob, as in the kernel until 6.3: pages shared by kmalloc and all caches of the engine, cut into
 * blocks of any size.
 *
 *	small  (< 256 bytes)   page - page - page		a list holds the pages with free units; a search
 *	medium (< 1024 bytes)  page - page			begins at the page that served last (next fit) and takes
 *	large  (the rest)      page				the first block in a page that fits (first fit)
 *
 * A page is 512 units of 8 bytes. Only a free block has a header, inside of the block: its units, and the unit of the
 * next free block of the page, by address. Live blocks are marked beside the page, by two bits a unit. The marks say
 * whether an address is the start of a live block, whether kmalloc allocated the block, and where the block ends;
 * neither the cache nor the page has these facts. Kernel: units of 2 bytes and no marks, so a bad free is not noticed.
 *
 * A block of kmalloc begins with a header of 8 bytes with its size; a cache's object has no header.
 */
#ifndef KM_SLOB_H
#define KM_SLOB_H

#include <kmem/record.h>

#include "slab/engine.h"

#define KM_SLOB_UNIT	KMEM_RECORD_SLOB_UNIT
#define KM_SLOB_UNITS	KMEM_RECORD_SLOB_UNITS
#define KM_SLOB_HEADER	((uint32_t)ARCH_KMALLOC_MINALIGN)	/* bytes in front of a block of kmalloc */
_Static_assert(KM_SLOB_UNIT * KM_SLOB_UNITS == KM_PAGE_SIZE, "a page");
_Static_assert(KM_SLOB_UNIT == KM_SLOB_HEADER, "a header is a unit");
_Static_assert(KM_SLOB_UNIT == KM_SIZED_UNIT && KM_SLOB_HEADER == KM_PAGE_SIZE - KM_SIZED_END, "as engine.h says");

enum km_slob_list { KM_SLOB_SMALL, KM_SLOB_MEDIUM, KM_SLOB_LARGE, KM_SLOB_LISTS };

/*
 * Marks (struct kmem_record_slob_marks): two bits for each unit of a page, outside of the page: 128 bytes, 3 %
 * of the page. Set at the first unit of a block:
 *
 *	live	other
 *	0	0	no block begins here
 *	1	0	a cache's object
 *	1	1	a block of kmalloc: header, then the user's memory
 *	0	1	a freed object of a cache with type-stable memory
 *
 * Changed under the engine's lock; read without the lock by frees.
 */

/* The engine's part of the descriptor of a shared page. */
struct km_slob_page {
	uint16_t free_units, first_free;
	uint16_t largest;		/* upper bound of the units of a free block */
	uint16_t passed;		/* a free block: no free block up to here is larger */
	uint16_t passed_units;		/* than passed_units */
	char *base;			/* address of the page, stored because computing the address takes a search */
	struct kmem_record_slob_marks *marks;
};
KM_ENGINE_PAGE(km_slob_page, struct km_slob_page)

/* The engine's struct per cache, protected by the engine's lock. */
struct km_slob_node {
	struct km_node_counts counts;	/* slabs: objects of a page and more, in their own pages. New and freed
					 * slabs also count shared pages allocated and freed by calls on this
					 * cache. */
	void *typed;			/* freed type-stable objects, linked by freeptr */
};

km_inline struct km_slob_node *km_slob_node(const struct kmem_cache *cache)
{
	return cache->state.node[0];
}

/* Stock of free pages, like a CPU's free pages in the kernel; freed when a cache of slob is idle or shrunk. The
 * only page of a list also stays when free, because the next block is cut from this page. */
#define KM_SLOB_STOCK 16u

/* State shared by all caches. */
struct km_slob {
	struct km_lock lock;
	struct km_list list[KM_SLOB_LISTS];
	struct km_page *stock[KM_SLOB_STOCK];	/* wholly free pages */
	size_t stocked;
	size_t pages;			/* pages with live blocks */
	size_t units;			/* live units in these pages, including headers */
	size_t blocks;			/* live blocks in these pages */
	/* page chosen for __GFP_FULLEST by list; NULL: none */
	struct km_page *packed[KM_SLOB_LISTS];
};
extern km_hidden struct km_slob km_slob;

/* Returns the list for blocks of `bytes` bytes, header included. Kernel: SLOB_BREAK1 and 2. */
km_inline enum km_slob_list km_slob_list_of(size_t bytes)
{
	return bytes < 256 ? KM_SLOB_SMALL : bytes < 1024 ? KM_SLOB_MEDIUM : KM_SLOB_LARGE;
}

/* Returns: true if the page is on the node (NUMA_NO_NODE: any), and its largest free block may have the units. Kernel:
 * looks into every page with enough units, and finds the same block. */
km_inline bool km_slob_may_have(const struct km_page *page, unsigned units, int node)
{
	return km_slob_page(page)->largest >= units && (node == NUMA_NO_NODE || page->node == node);
}

/* Next fit: lets the next search begin at this page. Moves the head of the ring, not the page. */
km_inline void km_slob_begin_at(struct km_list *list, struct km_page *page)
{
	if (list->next == &page->list)
		return;
	km_list_del(list);
	km_list_insert(list, page->list.prev, &page->list);
}

/* Clears `packed` for a page that leaves its list. Requires: the engine's lock. */
km_inline void km_slob_forget(const struct km_page *page)
{
	for (unsigned i = 0; i < KM_SLOB_LISTS; i++)
		if (km_unlikely(km_slob.packed[i] == page))
			km_store(&km_slob.packed[i], NULL);
}

/* ---- slob.c, for slob_cache.c */
void *km_slob_alloc(struct kmem_cache *cache, const struct km_request *request);
void km_slob_free(struct kmem_cache *cache, void *object);
enum km_misuse km_slob_free_sized(struct kmem_cache *cache, void *p);
/* Returns the misuse: why p, in a page of slob, is no block of kmalloc. */
enum km_misuse km_slob_mistake(struct km_page *page, const void *p);
unsigned km_slob_take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want);
void km_slob_give(struct kmem_cache *cache, void **objects, unsigned count);
/* Takes a freed type-stable object; NULL: none. Requires: the engine's lock. */
void *km_slob_take_typed(struct kmem_cache *cache, struct km_slob_node *n);
/* Frees the stock, and free pages kept as the only page of a list. Returns: number of freed pages. */
size_t km_slob_drop_stock(void);

/* ---- slob_cache.c */
/* For __GFP_FULLEST: lets the next search for `units` units of that node begin at a page with few free units, and
 * at the same page while that page has room. Requires: the engine's lock, for at most KM_SLOB_FULLEST_LOOKS pages. */
#define KM_SLOB_FULLEST_LOOKS 64u
void km_slob_choose(enum km_slob_list list, unsigned units, int node) km_cold;
/* Allocates pages for one object of a page or more. */
struct km_page *km_slob_new_slab(struct kmem_cache *cache, const struct km_request *request);

#endif
