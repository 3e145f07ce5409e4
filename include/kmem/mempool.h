/*
 * <kmem/mempool.h>: pools of elements, so many of which are always there: mempool_t. Names and semantics are the
 * kernel's (Linux 7.x); where ours differ, "Kernel:" says how. Compiles alone, as C11 and as C++17.
 *
 * A pool has a function that allocates and one that frees, and in its reserve min_nr elements. It allocates as its
 * function does. Where that fails an element of the reserve is handed out, and where there is none and the caller may
 * wait, the next one that is freed. So who holds a bounded number of elements at a time always goes on, however little
 * memory there is.
 */
#ifndef KMEM_MEMPOOL_H
#define KMEM_MEMPOOL_H

#include <kmem/kmem.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *(mempool_alloc_t)(gfp_t gfp, void *pool_data);
typedef void (mempool_free_t)(void *element, void *pool_data);

/* The fields are the library's; zeros are a pool that is not there. */
typedef struct mempool_s {
	int min_nr;			/* elements that the reserve is for */
	int curr_nr;			/* ... and that are in it */
	void **elements;
	void *pool_data;
	mempool_alloc_t *alloc;
	mempool_free_t *free;
	unsigned int wait, waiters;	/* for elements that come back */
} mempool_t;

/*
 * mempool_init - make the pool at *pool, with min_nr (0 or more) elements in its reserve, which alloc gives it, called
 * with GFP_KERNEL and pool_data; they are paid for by who is active here (<kmem/memcg.h>). 0; -EINVAL: min_nr is
 * negative, or a function is missing; -ENOMEM. Any thread; not from a signal handler.
 */
KMEM_API KMEM_CHECKED int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
				       void *pool_data);
/* mempool_init_node - the same with other bits than GFP_KERNEL for the reserve; node is accepted. */
KMEM_API KMEM_CHECKED int mempool_init_node(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
					    void *pool_data, gfp_t gfp, int node);
/*
 * mempool_exit - free what is in the reserve, and end the pool. One of zeros, or that was ended before, stays as it is.
 * Elements that are out must have come back, and nobody may use it: nor may a mempool_free be under way whose element
 * another thread has had meanwhile. Any thread; not from a signal handler.
 */
KMEM_API void mempool_exit(mempool_t *pool);
/* mempool_create - mempool_init of memory of its own; NULL with errno as that. mempool_destroy - the end of such a
 * pool; NULL does nothing. */
KMEM_API KMEM_CHECKED mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
						void *pool_data);
KMEM_API KMEM_CHECKED mempool_t *mempool_create_node(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free,
						     void *pool_data, gfp_t gfp, int node);
KMEM_API void mempool_destroy(mempool_t *pool);
/*
 * mempool_resize - the reserve is for min_nr elements from now on. Elements beyond are freed; missing ones are
 * allocated, as far as that succeeds, and the rest comes with those that are freed. 0; -EINVAL: min_nr is negative;
 * -ENOMEM: there is no memory for a longer list, and nothing is changed. Any thread, one at a time; not from a signal
 * handler.
 */
KMEM_API KMEM_CHECKED int mempool_resize(mempool_t *pool, int min_nr);

/*
 * mempool_alloc - an element. The pool's function is asked first, with gfp and __GFP_NORETRY, __GFP_NOWARN,
 * __GFP_NOMEMALLOC, then the reserve; with __GFP_DIRECT_RECLAIM the call then waits for an element that is freed, and
 * is never NULL; else it is NULL with ENOMEM. __GFP_ZERO is a bad call: an element of the reserve was used before.
 * Kernel: the reserve is used before memory is reclaimed; here there is no I/O to wait for.
 * Any thread. In a signal handler without __GFP_DIRECT_RECLAIM; one that struck inside of the library may get NULL.
 */
KMEM_API KMEM_CHECKED void *mempool_alloc(mempool_t *pool, gfp_t gfp);
/* mempool_alloc_preallocated - an element of the reserve, or NULL with ENOMEM. Never waits, never calls the pool's
 * functions. Any thread, and in signal handlers. */
KMEM_API KMEM_CHECKED void *mempool_alloc_preallocated(mempool_t *pool);
/*
 * mempool_alloc_bulk - fill in each of elements[0, count) that is NULL; `allocated` are not. From the reserve come all
 * that are missing then, or none, so that two such callers do not wait for each other; a count beyond the reserve's
 * min_nr may wait until the pool's function gives them. Waits, and always returns 0. Not from a signal handler.
 */
KMEM_API int mempool_alloc_bulk(mempool_t *pool, void **elements, unsigned int count, unsigned int allocated);
/* mempool_free - an element of the pool comes back: to the reserve, if that lacks some, else by the pool's function.
 * NULL does nothing. Any thread, and in signal handlers as far as the pool's function may be called there. errno is
 * kept. */
KMEM_API void mempool_free(void *element, mempool_t *pool);
/* mempool_free_bulk - the first elements go to the reserve, as many as it lacks: returns how many. The others are still
 * the caller's, to be freed as the pool's function does. Contexts as mempool_free. */
KMEM_API KMEM_CHECKED unsigned int mempool_free_bulk(mempool_t *pool, void **elements, unsigned int count);

/* Was it initialized, and is its reserve full? */
static inline bool mempool_initialized(const mempool_t *pool)
{
	return pool->elements != NULL;
}
static inline bool mempool_is_saturated(mempool_t *pool)
{
	return __atomic_load_n(&pool->curr_nr, __ATOMIC_RELAXED) >= __atomic_load_n(&pool->min_nr, __ATOMIC_RELAXED);
}

/* ---- Pools of a cache's objects, of blocks of kmalloc, and of 2^order pages of 4096 bytes (kernel: struct page). */

/* The functions of those pools; pool_data is the cache, the bytes, the order. */
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
