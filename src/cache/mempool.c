/*
 * mempool.c: pools with a reserve of elements. Invariant: with the pool's lock free, elements[0, curr_nr) are the
 * reserve, and curr_nr is at most min_nr, except while a reserve shrinks. Under the lock only pointers move; no
 * function of the pool is called.
 *
 * The locks belong to the process, one for each part of all pools, so the fork handlers need no list of pools. A
 * signal handler inside the library only tries the lock, because its own thread may be the holder.
 */
#include <errno.h>
#include <kmem/mempool.h>

#include "cache.h"

#define LOCKS	16u
static struct {
	struct km_lock lock;
} km_aligned(64) part[LOCKS] = { [0 ... LOCKS - 1] = { KM_LOCK_INIT(KM_RANK_POOL) } };

static struct km_lock *lock_of(const mempool_t *pool)
{
	return &part[(uintptr_t)pool / 64 % LOCKS].lock;
}

static void fork_locks(bool before, bool child)
{
	for (unsigned i = 0; i < LOCKS; i++)
		km_lock_around_fork(&part[i].lock, before, child);
}

/* Lock a pool. *was: for leave. Returns: false in a signal handler whose thread may hold the lock. */
static bool enter(const mempool_t *pool, struct km_busy_was *was)
{
	*was = km_busy_begin();
	if (km_likely(!km_was_busy(*was))) {
		km_lock(lock_of(pool));
		return true;
	}
	if (km_trylock(lock_of(pool)))
		return true;
	km_busy_end(*was);
	return false;
}

static void leave(const mempool_t *pool, struct km_busy_was was)
{
	km_unlock(lock_of(pool));
	km_busy_end(was);
}

/* ------------------------------------------------------------------ debugging */

/* Elements of the reserve are free for the user but allocated for their cache. If the cache is debugged with poison,
 * they are filled like free objects, and checked on allocation. Kernel: the same, with one option for all pools. */
enum { FREE_BYTE = 0x6b, LAST_BYTE = 0xa5 };

/* Returns: the bytes of an element to fill; 0: none. */
static size_t poisoned(const mempool_t *pool, const void *element, const char **name)
{
	struct km_page *slab = km_page_head(km_page_of(element));
	const struct kmem_cache *cache = slab && slab->type == KM_PAGE_SLAB ? slab->cache : NULL;

	if (!cache || !(cache->layout.flags & SLAB_POISON) || cache->form.ctor ||
	    cache->layout.flags & SLAB_TYPESAFE_BY_RCU)
		return 0;
	*name = cache->registry.name;
	if (pool->alloc == mempool_alloc_slab)
		return kmem_cache_size(pool->pool_data);
	return pool->alloc == mempool_kmalloc ? (size_t)pool->pool_data : 0;
}

static km_cold void fill_element(const mempool_t *pool, void *element)
{
	const char *name;
	size_t bytes = poisoned(pool, element, &name);

	if (!bytes)
		return;
	__builtin_memset(element, FREE_BYTE, bytes - 1);
	((unsigned char *)element)[bytes - 1] = LAST_BYTE;
}

static km_cold void look_at_element(const mempool_t *pool, void *element)
{
	const char *name;
	const unsigned char *byte = element;
	size_t bytes = poisoned(pool, element, &name), i = 0;

	while (i < bytes && byte[i] == (i + 1 < bytes ? FREE_BYTE : LAST_BYTE))
		i++;
	if (i == bytes)
		return;
	km_warn("mempool %p: element %p was overwritten in the reserve, at byte %zu: 0x%x", (const void *)pool, element,
		i, byte[i]);
	km_misuse(KM_MISUSE_OVERWRITTEN, "mempool_alloc", element, name);
}

km_inline void note_in(const mempool_t *pool, void *const *elements, int count)
{
	if (km_unlikely(km_load(&km_some_debugged)))
		for (int i = 0; i < count; i++)
			fill_element(pool, elements[i]);
}

km_inline void note_out(const mempool_t *pool, void *element)
{
	if (km_unlikely(km_load(&km_some_debugged)))
		look_at_element(pool, element);
}

/* ------------------------------------------------------------------ the reserve */

/* Fill the missing entries (NULL) from the end of the reserve: all or none. */
static bool take(mempool_t *pool, gfp_t gfp, void **elements, unsigned count, unsigned missing)
{
	struct km_busy_was was;

	if (missing > (unsigned)km_max(km_load(&pool->curr_nr), 0))
		return false;
	/* A request that may not wait makes no system call: no thread is woken. */
	km_calls_scope(calls, km_gfp_may_wait(gfp));
	if (!enter(pool, &was))
		return false;
	const bool enough = missing <= (unsigned)pool->curr_nr;
	for (unsigned i = 0; enough && i < count; i++)
		if (!elements[i]) {
			km_bump(&pool->curr_nr, -1);
			elements[i] = pool->elements[pool->curr_nr];
			note_out(pool, elements[i]);
		}
	km_debug(pool->curr_nr >= 0, "a reserve has no negative count");
	leave(pool, was);
	return enough;
}

static void *take_one(mempool_t *pool)
{
	void *element = NULL;

	return take(pool, GFP_NOWAIT, &element, 1, 1) ? element : NULL;
}

/* Puts elements into the reserve, up to min_nr. Returns: how many, from the front of the array. */
static int put(mempool_t *pool, void *const *elements, int count)
{
	int room = km_load(&pool->min_nr) - km_load(&pool->curr_nr);
	struct km_busy_was was;

	if (km_likely(room <= 0) || !enter(pool, &was))
		return 0;
	room = km_min(km_max(pool->min_nr - pool->curr_nr, 0), count);
	/* Only elements that fit are poisoned; the others stay with the caller. */
	note_in(pool, elements, room);
	__builtin_memcpy(pool->elements + pool->curr_nr, elements, (size_t)room * sizeof(*elements));
	km_bump(&pool->curr_nr, room);
	km_debug(!room || pool->curr_nr <= pool->min_nr, "a reserve is filled up to its minimum");
	leave(pool, was);
	return room;
}

/* Wake waiters after an element came back. A waiter counts itself, checks once more, and sleeps if `wait` is unchanged
 * since the check. Both sides change `waiters` atomically: this thread sees the waiter, or the waiter the element. */
static void tell(mempool_t *pool)
{
	unsigned waiters = km_add_both(&pool->waiters, 0u);

	if (km_likely(!waiters))
		return;
	km_add_both(&pool->wait, 1u);
	/* Wake all waiters, because the first may need more elements than there are. */
	while (waiters--)
		km_os_wake(&pool->wait);
}

/* ------------------------------------------------------------------ elements */

#define PATIENCE_MS	5000u	/* most ms that a waiter sleeps before it calls the pool's function again; kernel: 5 *
				 * HZ */

static gfp_t gently(gfp_t gfp)
{
	return (gfp & ~__GFP_NOFAIL) | __GFP_NORETRY | __GFP_NOWARN | __GFP_NOMEMALLOC;
}

/* Fill NULL entries from the pool's function until the first failure. Returns: the number of entries still NULL. */
static unsigned fill(mempool_t *pool, gfp_t gfp, void **elements, unsigned count)
{
	unsigned missing = 0;

	for (unsigned i = 0; i < count; i++) {
		if (!elements[i] && !missing)
			elements[i] = pool->alloc(gfp, pool->pool_data);
		missing += !elements[i];
	}
	return missing;
}

/* Gets all elements once: from the pool's function, then from the reserve. Keeps errno on success. */
static bool get(mempool_t *pool, gfp_t gfp, void **elements, unsigned count)
{
	int kept = errno;
	unsigned missing = fill(pool, gfp, elements, count);

	if (!missing || take(pool, gfp, elements, count, missing)) {
		errno = kept;
		return true;
	}
	return false;
}

static km_cold void get_waiting(mempool_t *pool, gfp_t gfp, void **elements, unsigned count)
{
	km_debug(!km_thread.busy, "a waiting thread is not inside of the library");
	km_add_both(&pool->waiters, 1u);
	for (;;) {
		unsigned seen = km_load_acquire(&pool->wait);

		if (get(pool, gfp, elements, count))
			break;
		km_os_wait(&pool->wait, seen, PATIENCE_MS);
	}
	km_add_both(&pool->waiters, -1u);
}

static void check_gfp(const char *function, gfp_t gfp)
{
	km_alloc_check_gfp(function, gfp, NULL);
	if (km_unlikely(gfp & __GFP_ZERO))
		km_misuse(KM_MISUSE_BAD_GFP, function, NULL, NULL);
}

void *mempool_alloc(mempool_t *pool, gfp_t gfp)
{
	void *element = NULL;

	check_gfp("mempool_alloc", gfp);
	if (km_likely(get(pool, gently(gfp), &element, 1)))
		return element;
	if (km_gfp_may_wait(gfp) && !km_thread.busy)
		get_waiting(pool, gently(gfp), &element, 1);
	else
		errno = ENOMEM;
	return element;
}

void *mempool_alloc_preallocated(mempool_t *pool)
{
	void *element = take_one(pool);

	if (!element)
		errno = ENOMEM;
	return element;
}

int mempool_alloc_bulk(mempool_t *pool, void **elements, unsigned int count, unsigned int allocated)
{
	(void)allocated;
	if (!get(pool, gently(GFP_KERNEL), elements, count))
		get_waiting(pool, gently(GFP_KERNEL), elements, count);
	return 0;
}

void mempool_free(void *element, mempool_t *pool)
{
	if (km_unlikely(!element))
		return;
	km_errno_scope(kept);
	if (put(pool, &element, 1)) {
		tell(pool);
	} else {
		pool->free(element, pool->pool_data);
		/* Without a reserve, threads wait for the pool's function. With a reserve, this check may miss a
		 * thread that begins to wait just now: the thread asks again after PATIENCE_MS. */
		if (km_unlikely(!km_load(&pool->min_nr) || km_load(&pool->waiters)))
			tell(pool);
	}
}

unsigned int mempool_free_bulk(mempool_t *pool, void **elements, unsigned int count)
{
	int taken = put(pool, elements, (int)km_min(count, (unsigned)INT32_MAX));

	if (taken)
		tell(pool);
	return (unsigned)taken;
}

/* ------------------------------------------------------------------ pools */

/* Allocate elements until the reserve is full. Returns: false on a failed allocation. */
static bool fill_reserve(mempool_t *pool, gfp_t gfp)
{
	while (!mempool_is_saturated(pool)) {
		void *element = pool->alloc(gfp, pool->pool_data);

		if (!element)
			return false;
		mempool_free(element, pool);
	}
	return true;
}

static void **list_of(int min_nr)
{
	return kvmalloc_array((size_t)km_max(min_nr, 1), sizeof(void *), GFP_KERNEL | __GFP_NOWARN);
}

/* Sets the fork handler, with the registry locked, so that no fork runs meanwhile. */
static void begin(void)
{
	km_registry_scope();
	km_store_release(&km_mempool_fork, fork_locks);
}

int mempool_init_node(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free, void *pool_data,
		      gfp_t gfp, int node)
{
	(void)node;
	*pool = (mempool_t){ .min_nr = min_nr, .alloc = alloc, .free = free, .pool_data = pool_data };
	if (min_nr < 0 || !alloc || !free)
		return -EINVAL;
	if (!km_boot())
		return -ENOMEM;
	if (km_unlikely(!km_load(&km_mempool_fork)))
		begin();
	pool->elements = list_of(min_nr);
	if (pool->elements && fill_reserve(pool, gfp))
		return 0;
	mempool_exit(pool);
	return -ENOMEM;
}

int mempool_init(mempool_t *pool, int min_nr, mempool_alloc_t *alloc, mempool_free_t *free, void *pool_data)
{
	return mempool_init_node(pool, min_nr, alloc, free, pool_data, GFP_KERNEL, NUMA_NO_NODE);
}

void mempool_exit(mempool_t *pool)
{
	void *element;

	while ((element = take_one(pool)))
		pool->free(element, pool->pool_data);
	kvfree(pool->elements);
	*pool = (mempool_t){ 0 };
}

mempool_t *mempool_create_node(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free, void *pool_data, gfp_t gfp,
			       int node)
{
	mempool_t *pool = kmalloc(sizeof(*pool), GFP_KERNEL);
	int error = pool ? mempool_init_node(pool, min_nr, alloc, free, pool_data, gfp, node) : -ENOMEM;

	if (!error)
		return pool;
	kfree(pool);
	errno = -error;
	return NULL;
}

mempool_t *mempool_create(int min_nr, mempool_alloc_t *alloc, mempool_free_t *free, void *pool_data)
{
	return mempool_create_node(min_nr, alloc, free, pool_data, GFP_KERNEL, NUMA_NO_NODE);
}

void mempool_destroy(mempool_t *pool)
{
	if (!pool)
		return;
	mempool_exit(pool);
	kfree(pool);
}

/* Move the reserve to a longer list. */
static int grow(mempool_t *pool, int min_nr)
{
	void **longer = list_of(min_nr), **old;
	struct km_busy_was was;

	if (!longer || !enter(pool, &was)) {
		kvfree(longer);
		return -ENOMEM;
	}
	old = pool->elements;
	__builtin_memcpy(longer, old, (size_t)pool->curr_nr * sizeof(*old));
	pool->elements = longer;
	km_store(&pool->min_nr, min_nr);
	leave(pool, was);
	kvfree(old);
	fill_reserve(pool, GFP_KERNEL | __GFP_NOWARN);
	return 0;
}

int mempool_resize(mempool_t *pool, int min_nr)
{
	void *element;
	struct km_busy_was was;

	if (min_nr < 0)
		return -EINVAL;
	if (min_nr > pool->min_nr)
		return grow(pool, min_nr);
	/* Under the lock: a free that used the old number has added its element before the excess is counted. */
	if (!enter(pool, &was))
		return -ENOMEM;
	km_store(&pool->min_nr, min_nr);
	leave(pool, was);
	while (km_load(&pool->curr_nr) > min_nr && (element = take_one(pool)))
		pool->free(element, pool->pool_data);
	return 0;
}

/* ------------------------------------------------------------------ kinds of pools */

void *mempool_alloc_slab(gfp_t gfp, void *pool_data)
{
	return kmem_cache_alloc(pool_data, gfp);
}

void mempool_free_slab(void *element, void *pool_data)
{
	kmem_cache_free(pool_data, element);
}

void *mempool_kmalloc(gfp_t gfp, void *pool_data)
{
	return kmalloc((size_t)pool_data, gfp);
}

void mempool_kfree(void *element, void *pool_data)
{
	(void)pool_data;
	kfree(element);
}

void *mempool_alloc_pages(gfp_t gfp, void *pool_data)
{
	return kmalloc((size_t)pool_data < 32 ? KM_PAGE_SIZE << (size_t)pool_data : SIZE_MAX, gfp);
}

void mempool_free_pages(void *element, void *pool_data)
{
	(void)pool_data;
	kfree(element);
}
