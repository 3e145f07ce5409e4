/*
 * kfree_rcu.c: free objects of kfree_rcu, and slabs of SLAB_TYPESAFE_BY_RCU, after a grace period of the program's
 * RCU. Invariants: at most one grace period is under way. The pile holds the objects of this grace period, and only
 * end() touches the pile. Later arrivals wait for the next grace period, which end() begins. Therefore there is no
 * timer, no object waits for more than two grace periods, and nothing is left behind when a program stops calling.
 * The exception is an object freed where RCU could not be called: by kfree_rcu_nolock, or in a signal handler inside
 * the allocator. The next call or miss begins a grace period for such an object. Kernel: a timer of five seconds, and
 * two batches under way.
 *
 * Pointers lie in blocks on the CPU of the call, under the CPU's lock. Without memory for a block, or in a signal
 * handler inside the allocator, an object is linked by its own head to a chain of all CPUs. The chain needs no lock:
 * an addition compares and swaps, and the pile takes the whole chain.
 */
#include <errno.h>
#include <kmem/rcu.h>

#include "page/metadata.h"
#include "cache.h"
#include "kfree_rcu.h"

/* The member of an object named in the call of kfree_rcu. */
struct link {
	struct link *next;
	const void *object;
};

static struct {
	struct kmem_rcu ops;
	uint32_t slot;			/* per-CPU offset of struct km_rcu_waiting */
	uint32_t wanted;		/* an object waits, and no grace period was begun for it */
	struct link *chain;
	struct km_list *slabs;		/* linked by `next` */
	size_t blocks;			/* blocks of all CPUs and of the pile */
	struct km_lock lock;		/* protects the fields below; once under way, the pile belongs to end() */
	bool under_way, ending;		/* a grace period is in progress; its objects are being freed */
	uint64_t begun, done;		/* number of grace periods begun and ended, empty ones included */
	struct {
		struct km_rcu_block *blocks;
		struct link *chain;
		struct km_list *slabs;
	} pile;
	struct kmem_rcu_head head;
	bool warned;
	uint64_t forking[KM_MAX_CPUS / 64];	/* CPUs whose locks a fork holds */
} rcu = { .lock = KM_LOCK_INIT(KM_RANK_GRACE) };

static struct km_rcu_waiting *waiting_on(unsigned cpu)
{
	return (struct km_rcu_waiting *)(km_area(cpu) + rcu.slot);
}

/* Lock the waiting objects of this CPU. Returns: NULL if the CPU has no area. */
static struct km_rcu_waiting *lock_here(void)
{
	unsigned cpu = km_cpu();

	if (!km_cpu_is_online(cpu))
		return NULL;
	struct km_rcu_waiting *here = waiting_on(cpu);
	/* A new area is zeroed: set the rank first. */
	km_lock_rank(&here->lock, KM_RANK_WAITING);
	km_lock(&here->lock);
	return here;
}

/* ------------------------------------------------------------------ freeing the pile */

static void free_blocks(struct km_rcu_block *block)
{
	for (struct km_rcu_block *next; block; block = next) {
		next = block->next;
		km_debug(block->count && block->count <= km_array_count(block->object), "a waiting block has objects");
		kfree_bulk(block->count, block->object);
		km_metadata_free(block, sizeof(*block));
		km_sub(&rcu.blocks, (size_t)1);
	}
}

static void free_chain(struct link *link)
{
	void *object[64];
	size_t count = 0;

	while (link) {
		object[count++] = (void *)(uintptr_t)link->object;
		link = link->next;
		if (count == km_array_count(object) || !link) {
			kfree_bulk(count, object);
			count = 0;
		}
	}
}

static void free_slabs(struct km_list *entry)
{
	km_busy_scope(was);

	for (struct km_list *next; entry; entry = next) {
		struct km_page *slab = km_container_of(entry, struct km_page, list);

		next = entry->next;
		km_list_init(entry);
		km_debug(slab->cache->layout.flags & SLAB_TYPESAFE_BY_RCU, "the slabs of some caches wait");
		km_slab_release(slab->cache, slab);
	}
}

/* ------------------------------------------------------------------ grace periods */

static struct km_rcu_block *join(struct km_rcu_block *first, struct km_rcu_block *behind)
{
	struct km_rcu_block *last = first;

	if (!first)
		return behind;
	while (last->next)
		last = last->next;
	last->next = behind;
	return first;
}

/* Moves all waiting objects to the pile. Context: lock held. Returns: false if no object waits. */
static bool collect(void)
{
	km_debug(km_is_locked(&rcu.lock) && !rcu.under_way,
		 "the pile under way belongs to the end of the grace period");
	km_debug(!rcu.pile.blocks && !rcu.pile.chain && !rcu.pile.slabs, "a pile was freed before the next one");
	km_for_each_cpu(cpu) {
		struct km_rcu_waiting *waiting = waiting_on(cpu);

		if (!km_load(&waiting->told))
			continue;
		km_lock_quick_scope(&waiting->lock);
		rcu.pile.blocks = join(waiting->blocks, rcu.pile.blocks);
		waiting->blocks = NULL;
		km_store(&waiting->told, false);
	}
	/* Acquire pairs with km_list_push in put_to_chain and put_slab. */
	rcu.pile.chain = km_swap_acquire(&rcu.chain, NULL);
	rcu.pile.slabs = km_swap_acquire(&rcu.slabs, NULL);
	return rcu.pile.blocks || rcu.pile.chain || rcu.pile.slabs;
}

static void end(struct kmem_rcu_head *head);

/* Begin a grace period. Context: lock held, none under way. Acquire pairs with want: the object is visible. */
static void begin(void)
{
	km_swap_acquire(&rcu.wanted, 0u);
	rcu.begun++;
	if (collect()) {
		km_store(&rcu.under_way, true);
		rcu.ops.call(&rcu.head, end);
	} else {
		km_store_release(&rcu.done, rcu.begun);
	}
}

static void begin_if_idle(void)
{
	km_busy_lock_scope(&rcu.lock);
	if (!rcu.under_way)
		begin();
}

/* End a grace period, in a thread of the RCU. Release pairs with kvfree_rcu_barrier: the objects are free. */
static void end(struct kmem_rcu_head *head)
{
	(void)head;
	km_debug(rcu.under_way, "a grace period ends after its begin");
	{
		km_busy_lock_scope(&rcu.lock);
		rcu.ending = true;
	}
	free_blocks(rcu.pile.blocks);
	free_chain(rcu.pile.chain);
	free_slabs(rcu.pile.slabs);
	km_busy_lock_scope(&rcu.lock);
	rcu.ending = false;
	rcu.pile.blocks = NULL;
	rcu.pile.chain = NULL;
	rcu.pile.slabs = NULL;
	km_store(&rcu.under_way, false);
	km_store_release(&rcu.done, rcu.begun);
	begin();
}

/* Requests a grace period: begins one, or leaves this to the end of the current one, or to the next call that may make
 * system calls. */
static void want(void)
{
	km_store_release(&rcu.wanted, 1u);
	if (km_likely(!km_thread.no_calls))
		begin_if_idle();
}

static void go(void)
{
	if (km_unlikely(km_load(&rcu.wanted)) && !km_load(&rcu.under_way))
		begin_if_idle();
}

/* ------------------------------------------------------------------ double frees */

static bool is_among(const struct km_rcu_block *block, const struct link *link, const void *object)
{
	for (; block; block = block->next)
		for (size_t i = 0; i < block->count; i++)
			if (block->object[i] == object)
				return true;
	for (; link; link = link->next)
		if (link->object == object)
			return true;
	return false;
}

/* Returns: whether the object waits already; the time grows with the number of waiting objects. Under the lock no
 * collection runs, and the pile stays until end() begins. */
static bool waits(const void *object)
{
	km_busy_lock_scope(&rcu.lock);
	bool found = is_among(NULL, km_load_acquire(&rcu.chain), object) ||
		     (!rcu.ending && is_among(rcu.pile.blocks, rcu.pile.chain, object));
	km_for_each_cpu(cpu) {
		struct km_rcu_waiting *waiting = waiting_on(cpu);

		if (found || !km_load(&waiting->told))
			continue;
		km_lock_quick_scope(&waiting->lock);
		found = is_among(waiting->blocks, NULL, object);
	}
	return found;
}

/* Report a second kfree_rcu of an object of a debugged cache, here where the second caller is known. The object
 * then waits once. In other caches the mistake is a double free when both are freed. */
static km_cold bool is_twice(const void *object)
{
	struct km_page *slab = km_page_head(km_page_of(object));

	if (!slab || slab->type != KM_PAGE_SLAB || !km_is_debugged(slab->cache) || km_thread.busy || !waits(object))
		return false;
	km_tell_of(slab, object, KM_MISUSE_DOUBLE_FREE);
	km_misuse(KM_MISUSE_DOUBLE_FREE, "kfree_rcu", object, slab->cache->registry.name);
	return true;
}

/* ------------------------------------------------------------------ arrivals */

/* Add a pointer to a block. Context: lock held. Returns: false if there is no memory for a block. */
static bool add(struct km_rcu_waiting *here, const void *object, bool may_wait)
{
	struct km_rcu_block *block = here->blocks;

	if (!block || block->count == km_array_count(block->object)) {
		if (km_load(&rcu.blocks) >= (size_t)KM_RCU_MOST_BLOCKS * km_percpu.cpus)
			return false;
		block = km_metadata_alloc(sizeof(*block), may_wait);
		if (!block)
			return false;
		km_add(&rcu.blocks, (size_t)1);
		block->next = here->blocks;
		here->blocks = block;
	}
	km_debug(block->count < km_array_count(block->object), "the first block has room");
	block->object[block->count++] = (void *)(uintptr_t)object;
	return true;
}

/* Adds an object to the blocks of this CPU. Returns: false in a busy thread, and without memory; the chain then takes
 * the object. */
static bool put(const void *object, bool may_wait)
{
	if (km_thread.busy)
		return false;
	bool added = false, told = true;
	km_busy_scope(was);
	struct km_rcu_waiting *here = lock_here();

	if (here) {
		added = add(here, object, may_wait);
		if (added) {
			told = here->told;
			km_store(&here->told, true);
		}
		km_unlock_quick(&here->lock);
	}
	if (!told)
		want();
	return added;
}

static void put_to_chain(const void *object, size_t head)
{
	struct link *link = (struct link *)((uintptr_t)object + head);

	link->object = object;
	km_list_push(&rcu.chain, link, link->next);
	km_store_release(&rcu.wanted, 1u);
}

static bool is_set(void)
{
	if (km_likely(km_load_acquire(&km_grace) != NULL))
		return true;
	if (!km_load(&rcu.warned)) {
		km_store(&rcu.warned, true);
		km_warn("kfree_rcu: no RCU is set: freed objects stay allocated until a call of kmem_set_rcu()");
	}
	return false;
}

void kmem_free_rcu_nolock(const void *object, size_t head)
{
	if (ZERO_OR_NULL_PTR(object))
		return;
	is_set();
	put_to_chain(object, head);
}

void kmem_free_rcu(const void *object, size_t head)
{
	if (ZERO_OR_NULL_PTR(object))
		return;
	bool can_be = is_set();
	if (km_unlikely(km_load(&km_some_debugged)) && can_be && is_twice(object))
		return;
	if (can_be && km_likely(put(object, false)))
		return;
	put_to_chain(object, head);
	/* Not in a signal handler inside the allocator, which may have interrupted the lock's holder. */
	if (km_grace && !km_thread.busy)
		begin_if_idle();
}

void kvfree_rcu_mightsleep(const void *object)
{
	if (ZERO_OR_NULL_PTR(object) || !is_set() || (km_load(&km_some_debugged) && is_twice(object)) ||
	    put(object, true))
		return;
	rcu.ops.synchronize();
	kvfree(object);
}

/* Queue an empty slab of a cache with SLAB_TYPESAFE_BY_RCU, off all lists. */
static void put_slab(struct km_page *slab)
{
	km_list_push(&rcu.slabs, &slab->list, slab->list.next);
	want();
}

/* ------------------------------------------------------------------ waiting */

/* Returns the number of the grace period after which all objects waiting now are free. */
static uint64_t last_needed(void)
{
	km_busy_lock_scope(&rcu.lock);
	/* A grace period under way collected earlier objects only. The next one collects all present objects. */
	uint64_t last = rcu.begun + 1;
	if (!rcu.under_way)
		begin();
	return last;
}

void kvfree_rcu_barrier(void)
{
	if (!km_load_acquire(&km_grace))
		return;
	uint64_t last = last_needed();
	while (km_load_acquire(&rcu.done) < last)
		rcu.ops.barrier();
}

void kvfree_rcu_barrier_on_cache(struct kmem_cache *cache)
{
	(void)cache;
	kvfree_rcu_barrier();
}

/* Under the lock, because begin() clears `wanted` and `told` before the grace period is under way. */
static bool is_pending(void)
{
	km_busy_lock_scope(&rcu.lock);
	bool pending = km_load(&rcu.under_way) || km_load(&rcu.wanted);
	km_for_each_cpu(cpu)
		pending |= km_load(&waiting_on(cpu)->told);
	return pending;
}

static void wait(void)
{
	if (is_pending())
		kvfree_rcu_barrier();
}

/* A request about to be refused waits for the objects of the current grace period, for a bounded time: the grace period
 * may wait for this thread, an RCU reader or RCU's own. After a wait in vain no request waits until a period ended. */
#define PATIENCE_MS	512u		/* most ms of one sleep; all sleeps of a request take a second */
static bool relieve(void)
{
	static uint64_t in_vain;	/* `done` at the last wait in vain, plus one: until `done` rises nothing
					 * waits */
	uint64_t before = km_load_acquire(&rcu.done), last;
	uint32_t never = 0;

	if (km_load(&in_vain) == before + 1 || !is_pending())
		return false;
	last = last_needed();
	for (unsigned ms = 1; ms <= PATIENCE_MS && km_load_acquire(&rcu.done) < last; ms *= 2)
		km_os_wait(&never, 0, ms);
	if (km_load_acquire(&rcu.done) > before)
		return true;
	km_store(&in_vain, before + 1);
	return false;
}

/* Wait before a cache is destroyed. Kernel: slabs go one by one, then rcu_barrier. libkmem: the remaining slabs go at
 * once, after a grace period that began after the last use of the cache; meanwhile no other slab begins to wait. */
static void before_destroy(struct kmem_cache *cache)
{
	if (cache->layout.flags & SLAB_TYPESAFE_BY_RCU) {
		km_registry_lock();
		km_store(&cache->state.going, true);
		km_registry_unlock();
		kvfree_rcu_barrier();
		if (km_load(&cache->state.slab_bytes) || km_is_parent(cache) || cache->layout.engine->shared_pages)
			rcu.ops.synchronize();
	} else {
		wait();
	}
}

/* ------------------------------------------------------------------ fork, and the start */

/* Takes the locks of all CPUs around fork. A grace period in progress ends in the child if the RCU works there. */
static void fork_locks(bool before, bool child)
{
	km_lock_around_fork(&rcu.lock, before, child);
	km_percpu_fork_locks(rcu.slot + (uint32_t)offsetof(struct km_rcu_waiting, lock), KM_RANK_WAITING, rcu.forking,
			     before, child);
}

static const struct km_grace grace = {
	.slot = &rcu.slot,
	.pile = &rcu.pile.blocks,
	.slab = put_slab,
	.go = go,
	.before_destroy = before_destroy,
	.wait = wait,
	.relieve = relieve,
	.fork = fork_locks,
};

static int set(const struct kmem_rcu *ops)
{
	if (km_grace)
		return __builtin_memcmp(&rcu.ops, ops, sizeof(*ops)) ? -EBUSY : 0;
	rcu.slot = rcu.slot ?: km_percpu_alloc(sizeof(struct km_rcu_waiting));
	if (!rcu.slot)
		return -ENOMEM;
	rcu.ops = *ops;
	/* Release: a reader of km_grace sees all fields set here. */
	km_store_release(&km_grace, &grace);
	return 0;
}

int kmem_set_rcu(const struct kmem_rcu *ops)
{
	if (!ops || !ops->call || !ops->synchronize || !ops->barrier)
		return -EINVAL;
	if (!km_boot())
		return -ENOMEM;
	km_registry_lock();
	int error = set(ops);
	km_registry_unlock();
	/* Begin a grace period for objects freed before this call. */
	if (!error)
		go();
	return error;
}
