/*
 * slob.h: the engine slob, as the kernel had it until 6.3: pages that all its caches and its kmalloc share, cut into
 * blocks of any size.
 *
 *	small  (< 256 bytes)   page - page - page		a list holds the pages that have free units; the search
 *	medium (< 1024 bytes)  page - page			begins at the page that served last (next fit) and takes
 *	large  (the rest)      page				the first block in a page that will do (first fit)
 *
 * A page is 512 units of 8 bytes. Only a free block has a header, in itself: its units, and where the next free block
 * of the page is, by address. A live block is marked beside the page, by two bits a unit: so what a cache does not
 * know of its own objects, and the pages don't say, is known exactly: whether an address is the start of a live block,
 * whether kmalloc made it, and where it ends. Kernel: units of 2 bytes, and no marks: a bad free is not noticed.
 *
 * A block of kmalloc begins with a header of 8 bytes that holds its size; a cache's object has none.
 */
#ifndef KM_SLOB_H
#define KM_SLOB_H

#include "slab/engine.h"

#define KM_SLOB_UNIT	8u
#define KM_SLOB_UNITS	512u				/* in a page */
#define KM_SLOB_HEADER	((uint32_t)ARCH_KMALLOC_MINALIGN)	/* bytes in front of what kmalloc returns */
_Static_assert(KM_SLOB_UNIT * KM_SLOB_UNITS == KM_PAGE_SIZE, "a page");
_Static_assert(KM_SLOB_UNIT == KM_SLOB_HEADER, "a header is a unit");
_Static_assert(KM_SLOB_UNIT == KM_SIZED_UNIT && KM_SLOB_HEADER == KM_PAGE_SIZE - KM_SIZED_END, "as engine.h says");

enum km_slob_list { KM_SLOB_SMALL, KM_SLOB_MEDIUM, KM_SLOB_LARGE, KM_SLOB_LISTS };

/* At the start of a free block. */
struct km_slob_free {
	uint16_t units;
	uint16_t next;			/* unit of the next free block; KM_SLOB_UNITS: none */
};

/*
 * Two bits for each unit of a page, in our own memory: 128 bytes, 3 % of the page. Set at the first unit of a block:
 *
 *	live	other
 *	0	0	no block begins here
 *	1	0	a cache's object
 *	1	1	kmalloc's block: a header, then what the user has
 *	0	1	a freed object of a cache whose memory must keep its type
 *
 * Changed under the engine's lock, read without by those who free.
 */
struct km_slob_marks {
	struct { uint64_t live, other; } word[KM_SLOB_UNITS / 64];
};

/* In the descriptor of a page that caches share. */
struct km_slob_page {
	uint16_t free_units, first_free;
	uint16_t largest;		/* no free block has more units */
	uint16_t passed;		/* a free block: it and those before it have at most */
	uint16_t passed_units;		/* ... so many units */
	char *base;			/* the page itself: to find it takes a search */
	struct km_slob_marks *marks;
};
KM_ENGINE_PAGE(km_slob_page, struct km_slob_page)

/* The struct of a cache, all of it under the engine's lock. */
struct km_slob_node {
	struct km_node_counts counts;	/* slabs: objects of a page and more, in pages of their own. New and
					 * freed: also shared pages that came and went by this cache's calls. */
	void *typed;			/* freed objects that keep their type, linked by freeptr */
};

km_inline struct km_slob_node *km_slob_node(const struct kmem_cache *cache)
{
	return cache->node[0];
}

/* Pages that lie ready, as a CPU's free pages do for the kernel's; they go when a cache of slob is idle or shrunk. So
 * does one that is alone on its list, where the next block is cut from it. */
#define KM_SLOB_STOCK 16u

/* All caches together. */
struct km_slob {
	struct km_lock lock;
	struct km_list list[KM_SLOB_LISTS];
	struct km_page *stock[KM_SLOB_STOCK];	/* wholly free pages */
	size_t stocked;
	size_t pages;			/* with live blocks */
	size_t units;			/* live ones in them, headers too */
	size_t blocks;			/* ... which are so many */
	/* Whoever wants full pages takes from this one: of the list; NULL: none is chosen. */
	struct km_page *packed[KM_SLOB_LISTS];
};
extern km_hidden struct km_slob km_slob;

/* The list for blocks of so many bytes, header included. Kernel: SLOB_BREAK1 and 2. */
km_inline enum km_slob_list km_slob_list_of(size_t bytes)
{
	return bytes < 256 ? KM_SLOB_SMALL : bytes < 1024 ? KM_SLOB_MEDIUM : KM_SLOB_LARGE;
}

/* Next fit: the next search begins at this page. The head of the ring moves, not the page. */
km_inline void km_slob_begin_at(struct km_list *list, struct km_page *page)
{
	if (list->next == &page->list)
		return;
	km_list_del(list);
	km_list_insert(list, page->list.prev, &page->list);
}

/* The page leaves its list; lock held. */
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
/* Why p, in a page of slob, is not what kmalloc returned. */
enum km_misuse km_slob_mistake(struct km_page *page, const void *p);
unsigned km_slob_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		      unsigned want);
void km_slob_give(struct kmem_cache *cache, void **objects, unsigned count);
/* A freed object that kept its type is taken again; NULL: there is none. Lock held. */
void *km_slob_take_typed(struct kmem_cache *cache, struct km_slob_node *n);
/* The stock goes back to the pages, and what is alone and free on its list; returns how many. */
size_t km_slob_drop_stock(void);

/* ---- slob_cache.c */
/*
 * With __GFP_FULLEST: the next search for so many units, of that node, begins at a page that has few free ones, and
 * enough; at the same one as long as it has. Lock held, for a look at so many pages at most.
 */
#define KM_SLOB_FULLEST_LOOKS 64u
void km_slob_choose(enum km_slob_list list, unsigned units, int node) km_cold;
/* Pages for one object of its own. */
struct km_page *km_slob_new_slab(struct kmem_cache *cache, const struct km_request *request);

#endif
