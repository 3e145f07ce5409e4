/*
 * large_cache.c: classes of large blocks cached on CPUs, and the engine of their caches. Invariants: a cached block
 * is a large block with exactly the pages of its class. A cached block is uncharged, unless it lies on the charged
 * sheaf of a charged class. All CPUs together may cache at most a part of the pages in use plus a floor, and the
 * cached pages count against the bound of free resident pages. An engine call takes only the lock of its node, the
 * locks of pages and of own memory, and, when a sheaf is made or grows, the lock of draining.
 *
 * A CPU has one sheaf for a class, made by the first free there. The sheaf has room for two blocks at first. If a
 * class runs empty and full by turns, the capacity doubles, up to 4 MiB of blocks. The sheaves of an idle class go
 * back in reclaim (reclaim.c), under pressure, on kmem_shrink_all, and earlier if another class finds no room. A
 * class without a sheaf on any CPU starts again with the first capacity.
 */
#include "slab/partial.h"
#include "page/obj_cgroups.h"
#include "os/die.h"
#include "os/secret.h"
#include "os/os.h"
#include "percpu/owned_sheaf.h"
#include "realloc_run.h"
#include "large_cache.h"

#define CLASSES		KM_LARGE_CACHE_CLASSES
#define FEWEST		KM_LARGE_CACHE_FEWEST
#define WORTH		8u	/* requests of a size before its class is made */
#define SWINGS		8u	/* swings from empty to full after which the capacity doubles */
#define FIRST_CAPACITY	2u
#define MOST_CAPACITY	126u
#define MOST_BYTES	((size_t)4 << 20)	/* most bytes of one class cached on one CPU */
/* Bound of all cached pages: a part of the pages in use, plus a floor. */
#define PART		32u
#define FLOOR_PAGES	1024u
#define CPU_PAGES	256u	/* more floor pages for each CPU after the first */
#define LOOK_MS		50u	/* ms between two searches for idle classes */

struct class {
	struct kmem_cache *cache;	/* cache of the class; NULL: not made yet */
	uint32_t blocks;		/* number of the class's sheaves on all CPUs */
	uint64_t mark;			/* mark_of() at the last search for idle classes */
	uint32_t drained;		/* blocks given back by a drain since the last shrink */
	uint16_t asked;			/* requests since the start, while there is no cache; racy, a hint */
	uint8_t swings;			/* changes from empty to full since the capacity last grew; racy, a hint */
	bool starved;			/* the class ran empty since its sheaf was last full; racy, a hint */
};

static struct {
	bool on;
	uint64_t next_look_ms;
	struct class class[2 * CLASSES];	/* classes of uncharged blocks, then of charged blocks */
	/* Charged class by number of pages; NULL where no class exists yet, and at both ends. */
	struct kmem_cache *charged_of_pages[KM_LARGE_CACHE_PAGES + 2];
	/* Protects `blocks` of all classes and the number of pages that may be cached. */
	struct km_lock lock;
} ready = { .lock = KM_LOCK_INIT(KM_RANK_READY) };

uint16_t km_large_cache_id[KM_LARGE_CACHE_PAGES + 2];

/* ------------------------------------------------------------------ classes */

/* Returns: the class of a block of so many pages. Requires: 0 < pages <= KM_LARGE_CACHE_PAGES. */
static unsigned class_of(size_t pages)
{
	km_debug(pages && pages <= KM_LARGE_CACHE_PAGES, "a class has a page, and at most KM_LARGE_CACHE_PAGES");
	return km_class_of(pages - 1, KM_LARGE_CACHE_EVEN, KM_LARGE_CACHE_SPLIT);
}

static size_t pages_of(unsigned class)
{
	return km_class_units(class, KM_LARGE_CACHE_EVEN, KM_LARGE_CACHE_SPLIT);
}

static bool is_charged(const struct kmem_cache *cache)
{
	return (cache->layout.flags & SLAB_ACCOUNT) != 0;
}

static struct class *of_cache(const struct kmem_cache *cache)
{
	return &ready.class[is_charged(cache) * CLASSES + class_of(cache->form.slab_pages)];
}

/* Returns: the first class with a cache, from `class` on; NULL: none. */
static struct class *class_with_cache(struct class *class)
{
	for (; class < ready.class + 2 * CLASSES; class++)
		if (km_load_acquire(&class->cache))
			return class;
	return NULL;
}
#define for_each_class(class) \
	for (struct class *class = class_with_cache(ready.class); class; class = class_with_cache(class + 1))

static bool is_of_use(const struct kmem_cache *cache)
{
	return cache->fast.id >= KM_MAP_FIRST && cache->fast.pcs.slot;
}

/* Make the cache of a class. Context: registry locked. */
static struct kmem_cache *make_locked(unsigned class, bool charged)
{
	struct km_creation creation = { .internal = true, .engine = &km_engine_ready };
	size_t pages = pages_of(class), first = class ? pages_of(class - 1) + 1 : 1;
	char name[KM_NAME_BYTES];

	creation.args.align = KM_PAGE_SIZE;
	km_format(name, sizeof(name), charged ? "large-cg-%lu" : "large-%lu", (unsigned long)(pages << KM_PAGE_SHIFT));
	struct kmem_cache *cache = km_cache_create_locked(name, (uint32_t)(pages << KM_PAGE_SHIFT),
							  charged ? SLAB_ACCOUNT : 0, &creation);
	if (!cache || !is_of_use(cache))
		return cache;
	km_debug(pages_of(class_of(pages)) == pages && cache->form.slab_pages == pages,
		 "a class has its own number of pages");
	if (!charged)
		km_alloc_show_sizes(cache, &km_large_cache_id[first], pages + 1 - first);
	else if (km_is_charged(cache) && km_pcs_slot(&cache->memcg.charged))
		/* Release pairs with km_large_cache_hit_charged: the cache is complete. */
		for (; first <= pages; first++)
			km_store_release(&ready.charged_of_pages[first], cache);
	return cache;
}

/* Make a class. Returns: NULL if not possible now. The registry is only tried: the thread that holds its lock may
 * wait for this thread, in a function of the program. */
static km_cold struct kmem_cache *make(struct class *class, size_t pages, bool charged)
{
	if (!km_registry_trylock())
		return NULL;
	/* Release pairs with the load in km_large_cache_class. */
	if (!km_load(&class->cache))
		km_store_release(&class->cache, make_locked(class_of(pages), charged));
	km_registry_unlock();
	/* After a failure wait for as many requests again. */
	if (!km_load(&class->cache))
		km_store(&class->asked, (uint16_t)0);
	return km_load_acquire(&class->cache);
}

struct kmem_cache *km_large_cache_class(size_t bytes, bool charged, const struct km_request *request)
{
	size_t pages = (bytes + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;

	/* Under an address space limit a block has only the requested pages. With the option account, every
	 * request is charged and uncharged classes have no use. */
	if (!ready.on || (!charged && km_options.account) || pages - FEWEST > KM_LARGE_CACHE_PAGES - FEWEST ||
	    km_os_address_limit() != SIZE_MAX)
		return NULL;
	struct class *class = &ready.class[charged * CLASSES + class_of(pages)];
	struct kmem_cache *cache = km_load_acquire(&class->cache);
	if (km_unlikely(!cache)) {
		uint16_t asked = km_load(&class->asked);

		if (asked < WORTH)
			km_store(&class->asked, (uint16_t)(asked + 1));
		if (asked < WORTH || !request->may_wait || km_thread.busy || km_thread.no_calls)
			return NULL;
		cache = make(class, pages, charged);
	}
	return cache && is_of_use(cache) ? cache : NULL;
}

/* Allow cached blocks, unless every block must be checked, reported to a sanitizer, debugged, or may fail on
 * purpose. */
void km_large_cache_start(void)
{
	const bool unseen = !km_options.check && !km_sanitizer.any && !km_kmalloc_sized && !km_large_fails &&
			    !km_block_hooks;

	/* On a CPU's sheaf a double free would go unnoticed. */
	ready.on = unseen && !km_hardening.live;
	/* If all blocks are charged, uncharged pages kept for growth have no use. */
	if (unseen && !km_options.account)
		km_growth_start();
}

/* ------------------------------------------------------------------ the bound of cached blocks */

/* Returns: the number of charged sheaves of a class. Charged sheaves come and go without this file's counts. */
static size_t charged_blocks(const struct kmem_cache *cache)
{
	size_t blocks = 0;

	if (km_pcs_slot(&cache->memcg.charged))
		km_for_each_cpu(cpu)
			blocks += km_pcs_top_cpu(&cache->memcg.charged, cpu) != 0;
	return blocks;
}

/* Returns: the pages that all sheaves of all classes have room for. */
static size_t room_in_all(void)
{
	size_t pages = 0;

	for_each_class(class) {
		const struct kmem_cache *cache = class->cache;

		pages += (km_load(&class->blocks) * (size_t)km_alloc_capacity(cache) +
			  charged_blocks(cache) * km_owned_capacity(&cache->memcg.charged)) * cache->form.slab_pages;
	}
	return pages;
}

/* Tell the page layer the bound of cached pages. Context: ready.lock held. */
static void tell(size_t soon)
{
	km_debug(km_is_locked(&ready.lock), "the bound of cached blocks changes under the lock");
	km_pages_set_ready(room_in_all() + soon + km_growth_pages());
}

void km_large_cache_changed(size_t soon)
{
	km_busy_scope(was);

	km_lock_quick_scope(&ready.lock);
	tell(soon);
}

static bool has_room(size_t pages)
{
	size_t most = km_pages_there() / PART + FLOOR_PAGES, cpus = 0;

	km_for_each_cpu(cpu)
		cpus++;
	most += km_max(cpus, (size_t)1) * CPU_PAGES - CPU_PAGES;
	return room_in_all() + pages <= most;
}

/* Returns: a digest of a cache's per-CPU stacks. The digest changes with most allocations and frees on any CPU. A
 * class whose stacks return to an earlier state is mistaken for idle. */
static uint64_t mark_of(const struct kmem_cache *cache)
{
	uint64_t mark = 1;

	km_for_each_cpu(cpu) {
		mark = mark * 31 + km_pcs_top_cpu(&cache->fast.pcs, cpu);
		if (km_pcs_slot(&cache->memcg.charged))
			mark = mark * 31 + km_pcs_top_cpu(&cache->memcg.charged, cpu);
	}
	return mark;
}

/* Drain classes that look idle, to make room for another class. Context: no lock held. */
static km_cold bool drain_idle(const struct kmem_cache *wanting)
{
	uint64_t now = km_os_now_ms(), next = km_load(&ready.next_look_ms);
	struct kmem_cache *idle[2 * CLASSES];
	size_t count = 0;

	/* Claim the search for this period: one thread at a time, near enough. */
	if (km_thread.no_calls || now < next || !km_cas_acquire(&ready.next_look_ms, &next, now + LOOK_MS))
		return false;
	for_each_class(class) {
		struct kmem_cache *cache = class->cache;

		if (cache == wanting || !(km_load(&class->blocks) || charged_blocks(cache)))
			continue;
		uint64_t mark = mark_of(cache);
		if (mark == km_load(&class->mark))
			idle[count++] = cache;
		km_store(&class->mark, mark);
	}
	if (count)
		km_alloc_drain_all(idle, count);
	return count != 0;
}

static bool may_take_more(const struct kmem_cache *cache, size_t pages)
{
	return has_room(pages) || (drain_idle(cache) && has_room(pages));
}

static bool may_charge(struct kmem_cache *cache)
{
	size_t pages = km_owned_capacity(&cache->memcg.charged) * cache->form.slab_pages;

	if (!may_take_more(cache, pages))
		return false;
	km_large_cache_changed(pages);
	return true;
}

/* ------------------------------------------------------------------ blocks of pages */

void *km_large_cache_take(struct kmem_cache *class, size_t align)
{
	void *p = km_pcs_pop(&class->fast.pcs);

	if (km_unlikely(!p) && km_pcs_swap(&class->fast.pcs, true, false))
		p = km_pcs_pop(&class->fast.pcs);
	if (!p) {
		bool *starved = &of_cache(class)->starved;

		if (!km_load(starved))
			km_store(starved, true);
		return NULL;
	}
	if (km_likely(!((uintptr_t)p & (align - 1))))
		return p;
	km_plain_free(class, p);
	return NULL;
}

/* Allocates as every cache with SLAB_ACCOUNT does. kmalloc/large.c serves a miss. */
void *km_large_cache_hit_charged(size_t size, size_t align, gfp_t gfp)
{
	size_t pages = (size + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;
	/* Acquire pairs with make_locked. */
	struct kmem_cache *cache =
		km_load_acquire(&ready.charged_of_pages[km_min(pages, (size_t)KM_LARGE_CACHE_PAGES + 1)]);
	void *p = cache ? km_alloc_miss(cache, gfp & ~__GFP_ZERO) : NULL;

	if (!p)
		return NULL;
	if (km_likely(!((uintptr_t)p & (align - 1))))
		return km_likely(!(gfp & __GFP_ZERO)) ? p : __builtin_memset(p, 0, cache->layout.size);
	km_calls_scope(was, km_gfp_may_wait(gfp));
	kfree(p);
	return NULL;
}

void *km_large_cache_take_larger(size_t bytes, size_t align)
{
	size_t pages = (bytes + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;
	void *p = NULL;

	if (!ready.on || pages - 1 > KM_LARGE_CACHE_PAGES - 1)
		return NULL;
	for (unsigned i = class_of(pages); i < CLASSES && !p; i++) {
		struct kmem_cache *cache = km_load_acquire(&ready.class[i].cache);

		p = cache ? km_large_cache_take(cache, align) : NULL;
	}
	return p;
}

/* Returns: the node's slabs. The node's lock protects class membership, so the counts are consistent in the child
 * of a fork. */
static struct km_slabs *node_of(const struct kmem_cache *cache, const struct km_page *page)
{
	return cache->state.node[page->node];
}

static void count(struct km_node_counts *counts, long blocks)
{
	km_bump(&counts->slabs, blocks);
	km_bump(&counts->objects, blocks);
	km_bump(&counts->taken, blocks);
	km_debug((long)counts->slabs >= 0 && counts->slabs == counts->objects && counts->taken == counts->slabs,
		 "a block of a class is counted once");
}

/* A block outside of the first range joins no class, because a free reads the page map of the first range only. */
bool km_large_cache_join(struct kmem_cache *class, struct km_page *page, bool may_wait)
{
	struct km_slabs *n = node_of(class, page);

	if ((size_t)(page - km_hot.page) >= km_load(&km_hot.pages) || !km_lock_may(&n->lock, may_wait))
		return false;
	km_debug(page->type == KM_PAGE_LARGE && !page->cache && page->pages == class->form.slab_pages,
		 "a block that joins a class had no class");
	km_store(&page->cache, class);
	km_map_set(page, 1, class->fast.id);
	count(&n->counts, 1);
	km_bump(&n->counts.new_slabs, 1);
	km_unlock_may(&n->lock, may_wait);
	return true;
}

void km_large_cache_leave(struct km_page *page)
{
	struct km_slabs *n = node_of(page->cache, page);

	if (is_charged(page->cache)) {
		uint64_t *word = km_owner_of_page(page), owner = km_owner_of_one(word);

		km_owner_clear(word, 0, page->cache->memcg.owner_shift);
		km_store(word, owner);
	}
	km_lock_scope(&n->lock);
	km_map_set(page, 1, KM_MAP_DESC);
	km_debug(km_is_locked(&n->lock) && n->counts.slabs, "a block that leaves a class was counted in the class");
	km_store(&page->cache, NULL);
	count(&n->counts, -1);
	km_bump(&n->counts.freed_slabs, 1);
}

/* ------------------------------------------------------------------ the engine: objects */

static unsigned take(struct kmem_cache *cache, const struct km_request *request, void **objects, unsigned want)
{
	struct km_request own = *request;
	unsigned got = 0;

	own.ready = cache;
	while (got < want && (objects[got] = km_large_get(cache->layout.size, KM_PAGE_SIZE, &own)))
		got++;
	return got;
}

/* Free blocks to the page layer. Called also for the blocks of a drained charged sheaf. */
static void give(struct kmem_cache *cache, void **objects, unsigned count)
{
	if (is_charged(cache))
		km_add(&of_cache(cache)->drained, (uint32_t)count);
	km_debug(km_thread.busy, "a thread that frees blocks keeps signal handlers out");
	for (unsigned i = 0; i < count; i++) {
		struct km_page *page = km_page_of(objects[i]);

		if (km_unlikely(!page || page->type != KM_PAGE_LARGE || page->cache != cache ||
				km_page_address(page) != objects[i]))
			km_misuse(KM_MISUSE_DOUBLE_FREE, "kfree", objects[i], cache->registry.name);
		else
			km_large_give(objects[i]);
	}
}

/* ------------------------------------------------------------------ the engine: sheaves */

static void count_pointers(struct kmem_cache *cache, int more)
{
	km_lock_quick_scope(&ready.lock);
	km_bump(&of_cache(cache)->blocks, more);
	km_debug((int32_t)of_cache(cache)->blocks >= 0, "at most the created sheaves are freed");
	tell(0);
}

/* Count the sheaves anew in the child of a fork; sheaves held by other threads are lost. On each CPU a class has
 * one sheaf or none, and two where threads raced for the place (alloc/sheaf_ops.c). In the child of a nested fork the
 * interrupted code may hold a sheaf and give it back, so the former count stays. */
static void count_pointers_anew(void)
{
	for_each_class(class) {
		const struct km_pcs *pcs = &class->cache->fast.pcs;

		if (!class->blocks)
			continue;
		class->blocks = 0;
		km_for_each_cpu(cpu)
			class->blocks += km_pcs_top_cpu(pcs, cpu) ? 1 + km_pcs_has_spare_cpu(pcs, cpu) : 0;
	}
	tell(0);
}

void km_large_cache_fork(bool before, bool child)
{
	if (child && !km_fork_is_nested())
		count_pointers_anew();
	km_lock_around_fork(&ready.lock, before, child);
}

static void **new_block(struct kmem_cache *cache, bool may_wait)
{
	/* The first sheaf of a class starts with the first capacity: the grown capacity may have no room beside other
	 * classes. */
	if (!km_load(&of_cache(cache)->blocks))
		km_alloc_resize(cache, cache->fast.capacity);
	if (!may_take_more(cache, (size_t)km_alloc_capacity(cache) * cache->form.slab_pages))
		return NULL;
	void **block = km_sheaf_new(cache, may_wait);
	if (block)
		count_pointers(cache, 1);
	return block;
}

static void free_block(struct kmem_cache *cache, void **block)
{
	km_sheaf_free(cache, block);
	count_pointers(cache, -1);
}

static void **refill(struct kmem_cache *cache, const struct km_request *request, void **empty)
{
	void **block = empty ?: new_block(cache, request->may_wait);

	if (!block || !take(cache, request, block - 1, 1)) {
		if (block && !empty)
			free_block(cache, block);
		return NULL;
	}
	return block - 1;
}

/* Double the capacity of a class that ran empty and full by turns, if each CPU's sheaf has room for the surplus.
 * Returns: whether `full` has room now. */
static bool grow(struct kmem_cache *cache, struct class *class, void **full)
{
	unsigned capacity = km_mask_capacity(km_alloc_mask(cache)), more = capacity * 2 + 2;

	if (!km_load(&class->starved))
		return false;
	km_store(&class->starved, false);
	if (more > cache->tune.max_capacity)
		return false;
	km_store(&class->swings, (uint8_t)(km_load(&class->swings) + 1));
	if (km_load(&class->swings) < SWINGS ||
	    !may_take_more(cache, (size_t)km_load(&class->blocks) * (more - capacity) * cache->form.slab_pages))
		return false;
	km_store(&class->swings, (uint8_t)0);
	km_alloc_resize(cache, more);
	km_large_cache_changed(0);
	return km_sheaf_room(&cache->fast.pcs, full) != 0;
}

/* Free half of the blocks of a full sheaf, those freed first. */
static void **spill(struct kmem_cache *cache, void **full)
{
	if (!full)
		return new_block(cache, true);
	if (grow(cache, of_cache(cache), full))
		return full;
	size_t count = km_sheaf_objects(&cache->fast.pcs, full), stay = count / 2, go = count - stay;
	km_debug(go <= count && count <= km_mask_capacity(cache->fast.pcs.sheaf_mask),
		 "a sheaf has at most as many pointers as fit");
	void **bottom = km_sheaf_bottom(&cache->fast.pcs, full);
	give(cache, bottom - go, (unsigned)go);
	__builtin_memmove(bottom - stay, full, stay * sizeof(*full));
	return bottom - stay;
}

static void retire(struct kmem_cache *cache, void **block)
{
	size_t count = km_sheaf_objects(&cache->fast.pcs, block);

	give(cache, block, (unsigned)count);
	if (!is_charged(cache))
		km_add(&of_cache(cache)->drained, (uint32_t)count);
	free_block(cache, block);
}

/* ------------------------------------------------------------------ the engine: a cache */

static int layout(struct kmem_cache *cache, const struct kmem_cache_args *args km_unused)
{
	unsigned most = MOST_CAPACITY;

	while (most > FIRST_CAPACITY && most * (size_t)cache->layout.size > MOST_BYTES)
		most = (most + 2) / 2 - 2;
	cache->form.slab_pages = cache->layout.size >> KM_PAGE_SHIFT;
	/* With these values a free on the fast path accepts exactly the addresses of pages whose map entry is the
	 * class's id. */
	cache->layout.order = cache->layout.min_order = 0;
	cache->layout.objects = 1;
	cache->fast.capacity = cache->tune.busy_capacity = FIRST_CAPACITY;
	cache->tune.max_capacity = (uint16_t)most;
	km_debug(most >= FIRST_CAPACITY && cache->form.slab_pages <= KM_LARGE_CACHE_PAGES,
		 "a class has room for two sheaves on a CPU");
	return 0;
}

/* Returns: the number of blocks that the last drain freed. Context: the sheaves are drained already. */
static size_t shrink(struct kmem_cache *cache)
{
	struct class *class = of_cache(cache);

	/* A drained charged sheaf is freed also if it was empty: the bound may have changed. */
	if (!km_load(&class->drained) && !is_charged(cache))
		return 0;
	km_large_cache_changed(0);
	return km_swap_acquire(&class->drained, 0u);
}

/* Count of the allocated and cached blocks of a class, by page descriptors. */
struct blocks {
	const struct kmem_cache *cache;
	size_t count, wrong;
};

static int count_block(struct km_page *page, void *arg)
{
	struct blocks *blocks = arg;

	if (page->type == KM_PAGE_LARGE && page->cache == blocks->cache) {
		blocks->count++;
		blocks->wrong += page->pages != blocks->cache->form.slab_pages;
	}
	return 0;
}

static int check(struct kmem_cache *cache)
{
	struct blocks blocks = { .cache = cache };
	struct kmem_cache_stats kept = { .name = "" };

	km_pages_walk(count_block, &blocks);
	km_slabs_stats(cache, &kept);
	if (blocks.count == kept.total_objects && !blocks.wrong)
		return 0;
	km_warn("check: %s: %lu blocks exist, but %lu are counted; %lu blocks have a wrong "
		"length", cache->registry.name, blocks.count,
		kept.total_objects, blocks.wrong);
	return 1;
}

const struct km_engine km_engine_ready = {
	.name = "ready",
	.front = KM_PERCPU_SHEAVES,
	.whole_pages = true,
	.node_bytes = sizeof(struct km_slabs),
	.layout = layout,
	.node_init = km_slabs_init,
	.take = take,
	.give = give,
	.shrink = shrink,
	.stats = km_slabs_stats,
	.check = check,
	.fork = km_slabs_fork,
	.array = {
		.lone = true,
		.refill = refill,
		.spill = spill,
		.retire = retire,
		.may_charge = may_charge,
	},
};
