/*
 * <kmem/mempool.h>: pools with a reserve of elements: mempool_t. Names and semantics are the kernel's (Linux 7.x). A
 * sentence that begins with "Kernel:" states a difference. The header compiles alone, as C11 and as C++17.
 *
 * A pool has an allocating function, a freeing function, and min_nr elements in its reserve. The pool first calls its
 * allocating function. If the function fails, the pool hands out an element of the reserve. If the reserve is empty
 * and the caller may wait, the caller gets the next freed element. A program that holds a bounded number of elements
 * at a time therefore always makes progress, however little memory there is.
 */
#ifndef KMEM_MEMPOOL_H
#define KMEM_MEMPOOL_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *(mempool_alloc_t)(gfp_t gfp, void *pool_data);
typedef void (mempool_free_t)(void *element, void *pool_data);

/* The fields are private to the library; all zeros is a pool that does not exist. */
typedef struct mempool_s {
	int min_nr;			/* size of the reserve, in elements */
	int curr_nr;			/* elements in the reserve now */
	void **elements;
	void *pool_data;
	mempool_alloc_t *alloc;
	mempool_free_t *free;
	unsigned int wait, waiters;	/* futex word and number of threads waiting for a freed element */
} mempool_t;

/*
 * mempool_init - initialize the pool at *pool. alloc fills the reserve with min_nr (0 or more) elements, called with
 * GFP_KERNEL and pool_data. The elements are charged to the group that is active in this call (<kmem/memcg.h>).
 * Returns: 0; -EINVAL: min_nr is negative, or a function is missing; -ENOMEM. Context: any thread; not from a signal
 * handler.
 */
KMEM_API KMEM_CHECKED int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
				       void *pool_data);
/* mempool_init_node - mempool_init with gfp instead of GFP_KERNEL for the reserve; node is accepted. */
KMEM_API KMEM_CHECKED int mempool_init_node(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
					    void *pool_data, gfp_t gfp, int node);
/*
 * mempool_exit - free the elements of the reserve, and end the pool. A pool of zeros, or an ended pool, is left
 * unchanged.
 * Requires: all elements are freed, and no other thread uses the pool. No mempool_free may be under way, not even of
 * an element that another thread has allocated meanwhile. Context: any thread; not from a signal handler.
 */
KMEM_API void mempool_exit(mempool_t *pool);
/*
 * mempool_create, mempool_create_node - mempool_init in newly allocated memory. Returns: the pool, or NULL with errno
 * as of mempool_init. mempool_destroy - end a created pool; NULL does nothing.
 */
KMEM_API KMEM_CHECKED mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
						void *pool_data);
KMEM_API KMEM_CHECKED mempool_t *mempool_create_node(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
						     void *pool_data, gfp_t gfp, int node);
KMEM_API void mempool_destroy(mempool_t *pool);
/*
 * mempool_resize - change the size of the reserve to min_nr elements. Surplus elements are freed. Missing elements
 * are allocated, as far as allocations succeed; later frees supply the rest.
 * Returns: 0; -EINVAL: min_nr is negative; -ENOMEM: no memory for a longer list, with nothing changed. Context: any
 * thread, one at a time; not from a signal handler.
 */
KMEM_API KMEM_CHECKED int mempool_resize(mempool_t *pool, int min_nr);

/*
 * mempool_alloc - allocate an element. The pool's function is called first, with gfp and __GFP_NORETRY, __GFP_NOWARN,
 * __GFP_NOMEMALLOC; then the reserve is used. With __GFP_DIRECT_RECLAIM the call then waits for a freed element, and
 * never returns NULL; otherwise the result is NULL with ENOMEM. __GFP_ZERO is a bad call, because an element of the
 * reserve may have been used before. Kernel: uses the reserve before reclaim; here there is no I/O to wait for.
 * Context: any thread; in a signal handler only without __GFP_DIRECT_RECLAIM. A handler that interrupted the library
 * may get NULL.
 */
KMEM_API KMEM_CHECKED void *mempool_alloc(mempool_t *pool, gfp_t gfp);
/*
 * mempool_alloc_preallocated - take an element of the reserve. Returns: the element, or NULL with ENOMEM. The call
 * never waits, and never calls the pool's functions. Context: any thread, also signal handlers.
 */
KMEM_API KMEM_CHECKED void *mempool_alloc_preallocated(mempool_t *pool);
/*
 * mempool_alloc_bulk - fill each NULL entry of elements[0, count) with an element; `allocated` entries are not NULL.
 * The reserve supplies all missing elements or none, so two such callers never wait for each other. A count above the
 * reserve's min_nr may wait until the pool's function succeeds.
 * Returns: always 0; the call waits. Context: not from a signal handler.
 */
KMEM_API int mempool_alloc_bulk(mempool_t *pool, void **elements, unsigned int count, unsigned int allocated);
/*
 * mempool_free - free an element: to the reserve, if the reserve is not full, else by the pool's function. NULL does
 * nothing. errno is kept. Context: any thread, also signal handlers if the pool's function may be called there.
 */
KMEM_API void mempool_free(void *element, mempool_t *pool);
/*
 * mempool_free_bulk - put the first elements into the reserve, as many as there is room for. Returns: the number of
 * elements taken. The other elements still belong to the caller, who frees them with the pool's function. Context: as
 * of mempool_free.
 */
KMEM_API KMEM_CHECKED unsigned int mempool_free_bulk(mempool_t *pool, void **elements, unsigned int count);

/* mempool_initialized - whether the pool exists. mempool_is_saturated - whether the reserve is full. */
static inline bool mempool_initialized(const mempool_t *pool)
{
	return pool->elements != NULL;
}
static inline bool mempool_is_saturated(mempool_t *pool)
{
	return __atomic_load_n(&pool->curr_nr, __ATOMIC_RELAXED) >= __atomic_load_n(&pool->min_nr, __ATOMIC_RELAXED);
}

/* ---- Pools of a cache's objects, of blocks of kmalloc, and of 2^order pages of 4096 bytes (kernel: struct page). */

/* The functions of the predefined pools; pool_data is the cache, the bytes, the order. */
KMEM_API KMEM_CHECKED void *mempool_alloc_slab(gfp_t gfp, void *pool_data);
KMEM_API void mempool_free_slab(void *element, void *pool_data);
KMEM_API KMEM_CHECKED void *mempool_kmalloc(gfp_t gfp, void *pool_data);
KMEM_API void mempool_kfree(void *element, void *pool_data);
KMEM_API KMEM_CHECKED void *mempool_alloc_pages(gfp_t gfp, void *pool_data);
KMEM_API void mempool_free_pages(void *element, void *pool_data);

#define mempool_init_slab_pool(pool, min_nr, cache)                                                \
	mempool_init((pool), (min_nr), mempool_alloc_slab, mempool_free_slab, (void *)(cache))
#define mempool_create_slab_pool(min_nr, cache)                                                    \
	mempool_create((min_nr), mempool_alloc_slab, mempool_free_slab, (void *)(cache))
#define mempool_init_kmalloc_pool(pool, min_nr, size)                                              \
	mempool_init((pool), (min_nr), mempool_kmalloc, mempool_kfree, (void *)(size_t)(size))
#define mempool_create_kmalloc_pool(min_nr, size)                                                  \
	mempool_create((min_nr), mempool_kmalloc, mempool_kfree, (void *)(size_t)(size))
#define mempool_init_page_pool(pool, min_nr, order)                                                \
	mempool_init((pool), (min_nr), mempool_alloc_pages, mempool_free_pages, (void *)(size_t)(order))
#define mempool_create_page_pool(min_nr, order)                                                    \
	mempool_create((min_nr), mempool_alloc_pages, mempool_free_pages, (void *)(size_t)(order))

#ifdef __cplusplus
}
#endif

#endif
