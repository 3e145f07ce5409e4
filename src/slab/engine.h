/*
 * engine.h: struct km_engine: the functions that an engine implements and may call. Also the layout of objects and
 * slabs, the bytes around a debugged object, and the hooks of observers. struct kmem_cache: kmem_cache.h. Terms:
 * ARCHITECTURE.md. Take, give: objects leave a slab, return to a slab. Refill, spill: a sheaf gets objects from the
 * engine, gives objects to the engine.
 */
#ifndef KM_SLAB_ENGINE_H
#define KM_SLAB_ENGINE_H

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "page/arena.h"
#include "percpu/cpu_freelist.h"
#include "os/die.h"
#include "base/fields.h"
#include "percpu/id_table.h"
#include "base/list.h"
#include "os/lock.h"
#include "percpu/node.h"
#include "percpu/pcpu.h"
#include "os/sanitizer.h"
#include "slab/engines.h"
#include "slab/kmem_cache.h"

enum km_front {
	KM_PERCPU_NONE,	/* no per-CPU sheaves: every call runs the engine's alloc or free */
	KM_PERCPU_SHEAVES,	/* sheaves; a miss calls refill or spill */
	KM_PERCPU_FREELIST,	/* a freelist through the objects of the CPU's own slab (percpu/cpu_freelist_hit.h) */
};

/* Rights and wishes of a request, from its gfp bits and its entry point. */
struct km_request {
	gfp_t gfp;
	int node;		/* NUMA_NO_NODE or the wanted node; with __GFP_THISNODE no other node may serve */
	bool may_wait;		/* system calls and sleeping locks are allowed */
	/* kmalloc with a sized engine (shared_pages): bytes and alignment. 0: the cache's. */
	uint32_t bytes, align;
	struct kmem_cache *ready;	/* class that the large block is allocated for (kmalloc/large.c); NULL: none */
};

/* Returns whether a request with these bits may sleep and may make system calls. */
km_inline bool km_gfp_may_wait(gfp_t gfp)
{
	return (gfp & __GFP_DIRECT_RECLAIM) != 0;
}

km_inline struct km_request km_request_of(gfp_t gfp, int node)
{
	return (struct km_request){ gfp, node, km_gfp_may_wait(gfp), 0, 0, NULL };
}

/* Returns the first node to try. */
km_inline unsigned km_request_node(const struct km_request *request)
{
	return km_likely(request->node < 0) ? km_node_here() : (unsigned)request->node;
}

/* Returns the node argument of km_pages_alloc, with KM_NODE_ONLY for __GFP_THISNODE. */
km_inline int km_request_place(const struct km_request *request)
{
	bool only = request->node >= 0 && request->gfp & __GFP_THISNODE;

	return only ? request->node | KM_NODE_ONLY : request->node;
}

/* Hooks of observers, called by the layer OBSERVE at each allocation and free. on_alloc may return NULL (refused: the
 * object is freed), or KM_LOST (the object must not be used: the caller takes another object). */
#define KM_LOST	((void *)-1)
struct km_hooks {
	void *(*on_alloc)(struct kmem_cache *cache, void *object, gfp_t gfp);
	/* Returns: false if the observer keeps the object; it is not freed then. */
	bool (*on_free)(struct kmem_cache *cache, void *object);
	/* The hooks below may be NULL. slab_comes: a slab is new and its objects are constructed. slab_goes: a
	 * slab is freed. */
	void (*slab_comes)(struct kmem_cache *cache, struct km_page *slab);
	void (*slab_goes)(struct kmem_cache *cache, struct km_page *slab);
	/* asked: records that an object was requested with `bytes`, never more than before. grow: raises the recorded
	 * bytes, if possible. bytes: returns the recorded bytes. */
	void (*asked)(struct kmem_cache *cache, void *object, size_t bytes);
	bool (*grow)(struct kmem_cache *cache, void *object, size_t bytes);
	size_t (*bytes)(const struct kmem_cache *cache, const void *object);
	/* Called before a misuse is reported: prints all that is known of the object around p. slab: the slab of p. */
	void (*tell)(struct kmem_cache *cache, struct km_page *slab, const void *p, enum km_misuse what);
	/* Called after the report of a misuse, if the process continues. The call has had no effect. */
	void (*refused)(struct kmem_cache *cache, const void *p, const char *function);
	/* Called when the engine has found and repaired a damaged list of free objects of a slab, at `object` (NULL:
	 * unknown). what: the damage. fix: the repair. The hook may end the process. Context: no lock is held. */
	void (*broken)(struct kmem_cache *cache, struct km_page *slab, void *object, const char *what, const char *fix);
	/* Returns: whether the object may be on a list of free objects. Context: the lock of the list is held. */
	bool (*may_be_free)(const struct kmem_cache *cache, const void *object);
	/* Check the objects and report damages. Requires: exclusive use of the cache. Returns: number of damages. */
	int (*check)(struct kmem_cache *cache);
	/* Called when a cache is destroyed and the slab has allocated objects: checks these objects, and with `tell`
	 * prints them. */
	void (*remains)(struct kmem_cache *cache, struct km_page *slab, bool tell);
};

km_inline bool km_objcg_is_known(uint64_t objcg)
{
	return !(objcg & 1);
}

/* Returns whether objects of the cache may be charged. Acquire pairs with enter of memcg/charge_state.c: the fields
 * that the state needs are filled in. */
km_inline bool km_is_charged(const struct kmem_cache *cache)
{
	return km_load_acquire(&cache->memcg.charging) != KM_CHARGING_NONE;
}

/* Returns whether every object of the cache is charged; otherwise only objects requested with __GFP_ACCOUNT may be. */
km_inline bool km_charges_all(const struct kmem_cache *cache)
{
	return km_load(&cache->memcg.charging) >= KM_CHARGING_CHECKED;
}

/* Returns whether some group has, or had, a child cache of this cache. */
km_inline bool km_is_parent(const struct kmem_cache *cache)
{
	return km_load(&cache->memcg.charging) & KM_CHARGING_PARENT;
}

/* Returns whether each allocation and free is observed. An observed cache keeps no objects in charged sheaves. */
km_inline bool km_is_seen(const struct kmem_cache *cache)
{
	return km_unlikely(km_load(&cache->ext.seen));
}

/* Returns whether each free is validated before the free has an effect. */
km_inline bool km_is_checked(const struct kmem_cache *cache)
{
	return km_unlikely(cache->layout.checked) || km_unlikely(cache->layout.live_shift);
}

/* Slab charge hooks of a child cache. admit: called before a cache allocates pages for a slab; came, goes: for each new
 * and each freed slab. Context: km_thread.busy is set, and locks of the cache may be held. A hook takes no lock of a
 * rank below KM_RANK_PRIVATE. */
struct km_slab_charge {
	bool (*admit)(struct kmem_cache *cache, size_t bytes);
	void (*dismiss)(struct kmem_cache *cache, size_t bytes);	/* undoes admit: no slab was made */
	bool (*came)(struct kmem_cache *cache, struct km_page *slab, bool may_wait);	/* Returns: false if the slab
											 * can't be kept */
	void (*goes)(struct kmem_cache *cache, struct km_page *slab);	/* undoes came and admit: the slab is freed */
};

/* How full a slab is; or the sum over `slabs` partial slabs of a cache. */
struct km_fullness {
	size_t slabs, objects, inuse;
	bool current;			/* a CPU allocates from this slab now */
};

typedef int km_walk_fn(void *object, void *arg);

/* The first fields of every engine's struct per node, read by `kmem info` from outside of the process. Each figure
 * changes under a lock of the engine, or by atomic additions. Readers take no lock. */
#define KM_NOT_KEPT SIZE_MAX
struct km_node_counts {
	size_t slabs, objects;		/* slabs, and objects in these slabs */
	size_t taken;			/* objects that are not free in their slab: allocated, on sheaves or in barns.
					 * KM_NOT_KEPT: not counted here */
	size_t partial;			/* slabs on the partial list */
	size_t free_slabs;		/* engine slab: empty slabs, on a list of their own; other engines: 0 */
	size_t new_slabs, freed_slabs;	/* slabs made and freed since the start */
	size_t shared;			/* engine slab: objects in the node's shared array */
	/* Addresses of further counts of cached objects; NULL: none. Engine sheaf: the barn's full sheaves, and sheaves
	 * with other nodes' objects. Engine slab: the shared and the alien arrays. */
	const size_t *ready[2];
};

/* Operations of engines with per-CPU arrays of objects (KM_PERCPU_SHEAVES). Hits: percpu/pcpu.h. */
struct km_array_engine {
	bool lone;			/* a CPU has only a main sheaf, no spare */
	/* Exchanges `empty`, or NULL, for a sheaf with one object or more. Returns: NULL after a failure; then the
	 * caller keeps `empty`. */
	void **(*refill)(struct kmem_cache *cache, const struct km_request *request, void **empty);
	/* Exchanges a full sheaf for a sheaf with room. full NULL: returns an empty sheaf, or NULL. */
	void **(*spill)(struct kmem_cache *cache, void **full);
	/* Takes a sheaf that the caller does not need, with any number of objects. */
	void (*retire)(struct kmem_cache *cache, void **sheaf);
	/* Returns: whether the engine would keep another full sheaf now. NULL: never. */
	bool (*has_room)(struct kmem_cache *cache);
	/* Returns: whether another CPU may get a sheaf of charged objects. NULL: always. */
	bool (*may_charge)(struct kmem_cache *cache);
	/* Engines with a limit and a schedule of their own; NULL: the cache code resizes sheaves by load, and empties
	 * idle sheaves. look: called every two seconds; true: the sheaf of some CPU should be trimmed. trim: called
	 * with the CPU's sheaf removed. Returns the sheaf to put back, or NULL: the engine keeps the sheaf. tune:
	 * returns 0, and the caller then sets the limit; or -errno, and nothing is changed. */
	bool (*look)(struct kmem_cache *cache, uint64_t now_ms);
	void **(*trim)(struct kmem_cache *cache, unsigned cpu, void **sheaf);
	int (*tune)(struct kmem_cache *cache, unsigned limit, unsigned batchcount, unsigned shared);
};

/* Operations of engines with a slab for each CPU (KM_PERCPU_FREELIST). Hits: percpu/cpu_freelist_hit.h. */
struct km_chain_engine {
	/* Free the last of objects[0, count) with nearby objects of the same slab, as give does. NULLs are
	 * skipped. Returns: number of objects left, at the front. */
	unsigned (*give_last)(struct kmem_cache *cache, void **objects, unsigned count);
	/* Takes all objects off every CPU's slab. Returns: false where the system refused the fence; then objects are
	 * taken only from an `unused` cache. */
	bool (*drain)(struct kmem_cache *cache, bool unused);
	/* Sets how many free objects a CPU may keep in its partial slabs, each slab counted as half full. Returns: 0 or
	 * -EINVAL. */
	int (*set_cpu_partial)(struct kmem_cache *cache, unsigned long objects);
};

/* Operations added by engines that serve kmalloc by size, from one cache, in pages shared by all caches of the engine
 * (shared_pages). km_engine.alloc reads request->bytes and request->align. Sizes are multiples of KM_SIZED_UNIT. */
#define KM_SIZED_UNIT	((uint32_t)ARCH_KMALLOC_MINALIGN)
#define KM_SIZED_END	(KM_PAGE_SIZE - KM_SIZED_UNIT)	/* from so many bytes on kmalloc uses whole pages */
struct km_sized_engine {
	/* Free a block of kmalloc. Returns: KM_NO_MISUSE, or the misuse; then nothing was freed. */
#define KM_NO_MISUSE	KM_NR_MISUSES
	enum km_misuse (*free)(struct kmem_cache *cache, void *p);
	/* Returns: whether p, in a page of the engine, is a block of kmalloc. Requires: the caller owns the block.
	 * Takes no lock. */
	bool (*owns)(const struct km_page *page, const void *p);
	enum km_misuse (*mistake)(struct km_page *page, const void *p);	/* returns why p is no block of kmalloc */
	size_t (*usable)(const void *p);	/* returns the usable bytes of a block of kmalloc */
	const size_t *pages, *units;		/* pages with allocated blocks; units in these pages */
	/* Tells how full the page is, in units. Takes no lock. */
	void (*fullness)(const struct km_page *page, struct km_fullness *fullness);
};

/* An engine: properties, functions called by the layers and the cache code, and operations of its kind. */
struct km_engine {
	const char *name;
	enum km_front front;
	/* Pages are shared by all caches, so an object does not name its cache. kfree takes blocks of kmalloc
	 * only, with the size in front of the block; give validates every object; objects can't be walked. */
	bool shared_pages;
	/* Free objects are linked at freeptr, so debugging expects no poison in that word. */
	bool links_free;
	/* Objects are large blocks, one in a slab of slab_pages. kmalloc/large.c has the blocks, large_cache.c the
	 * cached blocks. No page has the type SLAB; objects can't be walked. */
	bool whole_pages;
	size_t node_bytes;		/* bytes of the engine's struct for a node */

	/* Set order, objects, capacity, freeptr and the engine's own fields. Returns: 0 or -errno. */
	int (*layout)(struct kmem_cache *cache, const struct kmem_cache_args *args);
	int (*node_init)(struct kmem_cache *cache, unsigned node);	/* initializes the struct of a node; NULL: zeros
									 * are enough */
	void (*node_fini)(struct kmem_cache *cache, unsigned node);	/* ends the struct of a node; NULL: nothing to
									 * do */

	/* take: returns the number of objects taken. give: validates each object, then frees; objects that fail
	 * are reported and dropped. give may overwrite the array. */
	unsigned (*take)(struct kmem_cache *cache, const struct km_request *request, void **objects,
			 unsigned want);
	void (*give)(struct kmem_cache *cache, void **objects, unsigned count);
	/* Allocate and free one object, in engines without sheaves. alloc returns NULL where no object is available.
	 * Context: km_thread.busy is set. */
	void *(*alloc)(struct kmem_cache *cache, const struct km_request *request);
	void (*free)(struct kmem_cache *cache, void *object);
	/* Counts hits, with KMEM_OPTIONS=stats:1. NULL: hits are not counted, and every hit is a hit of a sheaf. */
	void (*hit)(struct kmem_cache *cache, enum kmem_event event, size_t count);

	/* shrink frees all empty slabs. reap frees those beyond min_partial that were not used lately; NULL: there are
	 * none. Returns: the number of slabs. */
	size_t (*shrink)(struct kmem_cache *cache);
	size_t (*reap)(struct kmem_cache *cache);
	/* Returns an idle cache's cached objects to their slabs and frees empty slabs, a bounded number in one call.
	 * NULL: shrink is called instead, which sorts all slabs under their lock. */
	size_t (*rest)(struct kmem_cache *cache);
	/* Purges pages without allocated objects in slabs that stay, at once (reap waits for a second look). Returns:
	 * pages. NULL: slabs keep their memory. */
	size_t (*hollow)(struct kmem_cache *cache);
	/* Restores all purged pages, for a cache with a reserve, which must not purge. Returns: false if the system has
	 * no memory. NULL where hollow is NULL. */
	bool (*fill)(struct kmem_cache *cache);
	/* Frees a slab with allocated objects. Requires: no object of the slab is on a sheaf. NULL: the engine serves
	 * no child caches. */
	void (*discard)(struct kmem_cache *cache, struct km_page *slab);
	/* Returns: whether the slab counts the object as taken, for walk, checks and statistics. Objects on sheaves are
	 * taken, too. */
	bool (*is_taken)(struct kmem_cache *cache, struct km_page *slab, unsigned index);
	/* Returns: is_taken of 64 objects from 64 * `word` on, a bit for each, 0 beyond the last object. Takes no lock
	 * and follows no pointer out of the slab. Requires: the page is held (km_page_hold); others may allocate and
	 * free. NULL: objects of the engine are never charged. */
	uint64_t (*taken)(struct kmem_cache *cache, struct km_page *slab, unsigned word);
	void (*stats)(struct kmem_cache *cache, struct kmem_cache_stats *stats);
	/* fullness: how full the slab is. partial: the sum over the partial slabs of the cache, as far as a bounded
	 * look can tell. Both wait for no lock. Requires: the page is held, and belonged to the cache after the hold.
	 * The slab may leave the cache meanwhile, but not join another. NULL: unknown (shared_pages). */
	void (*fullness)(const struct kmem_cache *cache, const struct km_page *slab, struct km_fullness *fullness);
	void (*partial)(struct kmem_cache *cache, struct km_fullness *of_all);
	/* Check the lists of each node. Returns: number of damages. */
	int (*check)(struct kmem_cache *cache);
	/* Check lists through objects of a cache with hooks: report each damage (broken) and repair the list.
	 * Returns: number of damages. NULL: no such lists, or users can't reach them. */
	int (*mend)(struct kmem_cache *cache);
	/* Returns: whether the object, according to its page, is an allocated object of the cache; for engines with
	 * shared_pages. */
	bool (*has)(struct kmem_cache *cache, const void *object);
	void (*fork)(struct kmem_cache *cache, bool before, bool child);	/* takes and frees the cache's locks
										 * around fork; NULL: no locks */
	/* check_all and fork_all do the same for data shared by all caches of the engine; NULL: no such data. */
	int (*check_all)(void);
	void (*fork_all)(bool before, bool child);

	/* Events counted by the engine on each CPU, added to cache->state.events; NULL: none. */
	unsigned long (*event)(struct kmem_cache *cache, enum kmem_event event);
	void (*clear_events)(struct kmem_cache *cache);

	/* Fields that lead readers outside of the process (base/fields.h) to cached objects and to the engine's
	 * own events; NULL: none. */
	const struct kmem_record_field *fields;
	unsigned field_count;

	/* Operations of the engine's kind (enum km_front); NULL for other kinds. */
	struct km_array_engine array;
	struct km_chain_engine chain;
	struct km_sized_engine sized;
};

#define KM_ENGINE_DECLARED(name) extern km_hidden const struct km_engine km_engine_##name;
KM_ENGINES(KM_ENGINE_DECLARED, )
extern km_hidden const struct km_engine km_engine_ready;	/* the engine of cached large blocks (large_cache.c) */

/* engines.c. find: the engine named `name`, or NULL. add: register an engine before the first cache is made;
 * false: no room. */
const struct km_engine *km_engine_find(const char *name);
bool km_engine_add(const struct km_engine *engine);
/* The operations of the engine that serves kmalloc by size; NULL: no such engine. */
const struct km_sized_engine *km_engine_sized(void);
/* Call check_all and fork_all of every engine. */
int km_engines_check(void);
void km_engines_fork(bool before, bool child);

/* layout.c: decide whether a request may look at partial slabs of other nodes after its own node's are used up. A
 * node gives only slabs beyond min_partial. Kernel: remote_node_defrag_ratio, get_any_partial. */
bool km_may_look_elsewhere(struct kmem_cache *cache, const struct km_request *request);

/* Returns: whether a sanitizer tracks the cache's objects. Behind each object are then a red zone and the free
 * pointer. */
km_inline bool km_is_observed(const struct kmem_cache *cache)
{
	return km_unlikely(km_sanitizer.objects) && cache->layout.object_size <= KM_OBSERVED_MOST;
}

/* Returns: true if observers see each allocation or free. A tracer has hooks that do nothing, and is attached at run
 * time (cache/trace_attach.c): the layout of its cache is the layout without hooks. */
km_inline bool km_is_hooked(const struct kmem_cache *cache)
{
	const struct km_hooks *hooks = km_load(&cache->ext.hooks);

	return hooks && (hooks->on_alloc || hooks->on_free);
}

/*
 * Flags that change the layout of an object. The bytes of a slab's slot, from low to high:
 *
 *	left red zone | object | right red zone | link | state, bytes asked for | two tracks | padding
 *	-left          0        object_size      freeptr  + 8                    + 16
 *
 * The left red zone exists only with SLAB_RED_ZONE and is as long as the alignment. The tracks exist only with
 * SLAB_STORE_USER. Kernel: the same, except for the state.
 */
#define KM_DEBUG_LAYOUT	(SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)
#define KM_DEBUG_FLAGS	(KM_DEBUG_LAYOUT | SLAB_CONSISTENCY_CHECKS | SLAB_TRACE | SLAB_FAILSLAB)
#define KM_DEBUG_WORD	8u	/* bytes of the word with the state and the requested bytes */
#define KM_DEBUG_TRACK	24u
#define KM_DEBUG_PAD	8u	/* least bytes of padding */
/* Stored in place of the link while the engine has no link there; not an address. */
#define KM_DEBUG_NO_LINK 0x5a5a5a5a5a5a5a5aul
km_inline bool km_is_debugged(const struct kmem_cache *cache)
{
	return km_unlikely(cache->layout.flags & KM_DEBUG_LAYOUT);
}

_Static_assert(KM_OBSERVED_MOST + KM_RED_ZONE + sizeof(size_t) <= KM_PAGE_SIZE << KM_MAX_ORDER, "it fits into a slab");

/* slob_cache.c: prepare a new page that many caches will share. */
void km_shared_page_comes(struct km_page *page) km_cold;
void km_slob_construct(struct kmem_cache *cache, void *object);
/* Returns: the address of the word with the requested bytes of an allocated object of an observed cache. */
km_inline size_t *km_observed_word(const struct kmem_cache *cache, const void *object)
{
	return (size_t *)((char *)object + cache->layout.freeptr);
}

/* ---- layout.c: layout of objects and slabs, shared by the engines. */
/* Returns the alignment of an object of `size` bytes. */
uint32_t km_layout_align(slab_flags_t flags, uint32_t align, uint32_t size);
int km_layout_common(struct kmem_cache *cache, const struct kmem_cache_args *args);
/* Returns the bytes of a debugged slot from the object on, before padding is rounded up. km_layout_debugged also
 * sets the cache's freeptr. */
uint32_t km_layout_debugged_bytes(uint32_t object_size, slab_flags_t flags);
uint32_t km_layout_debugged(struct kmem_cache *cache);
/* Set once a cache is debugged. Checks for debugged objects are skipped until then. */
extern km_hidden bool km_some_debugged;
#define KM_SLAB_MAX_OBJECTS	0x7fffu	/* Kernel: MAX_OBJS_PER_PAGE */
/* Returns the kernel's order for slabs of at least `min_objects`. */
unsigned km_layout_order(uint32_t size, unsigned min_objects, unsigned max_order);
/* Raises the order of objects larger than a page, up to `most`, while more than an eighth of a slab is wasted. */
unsigned km_layout_larger(uint32_t size, unsigned order, unsigned most);
uint32_t km_reciprocal(uint32_t size);

/* Returns whether the slab of each freed object is validated before the pointer is stored anywhere. */
km_inline bool km_sees_frees(const struct kmem_cache *cache)
{
	return cache->layout.engine->front != KM_PERCPU_SHEAVES || km_is_checked(cache);
}

/* Returns the index of an object in its slab, or -1 if p is not the start of an object. */
km_inline int km_object_index(const struct kmem_cache *cache, const struct km_page *slab,
			      const void *slab_address, const void *p)
{
	uint32_t offset = (uint32_t)((const char *)p - (const char *)slab_address);
	uint32_t index = (uint32_t)((uint64_t)offset * cache->layout.reciprocal >> 32);

	return index < slab->objects && index * cache->layout.size == offset ? (int)index : -1;
}

/* Returns whether p is the start of an object of the cache, by page descriptors. */
bool km_is_object(const struct kmem_cache *cache, const void *p);

/* Returns one bit for each existing object among the 64 objects from 64 * `word` on. */
km_inline uint64_t km_object_bits(unsigned objects, unsigned word)
{
	unsigned left = objects > word * 64 ? objects - word * 64 : 0;

	return left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
}

/* First fields of an engine's part of a page descriptor, for engines with colours. */
struct km_coloured {
	uint32_t first;			/* bytes in the slab before its first object (the colour) */
};

/* Defines an accessor for page->engine. The engine's struct must fit. */
#define KM_ENGINE_PAGE(name, type)                                                                 \
	_Static_assert(sizeof(type) <= KM_PAGE_ENGINE_BYTES, "it fits into a descriptor");         \
	km_inline type *name(const struct km_page *page)                                           \
	{                                                                                          \
		return (type *)(uintptr_t)page->engine;                                            \
	}

KM_ENGINE_PAGE(km_coloured, struct km_coloured)

/* Returns the address of a slab's first object. */
km_inline char *km_slab_first(const struct kmem_cache *cache, const struct km_page *slab)
{
	return (char *)km_page_address(slab) +
	       (km_unlikely(cache->form.colours) ? km_load(&km_coloured(slab)->first) : cache->form.first);
}

/* Allocate and count a slab: pages, descriptors and map entries are set. The slab is on no list. */
struct km_page *km_slab_new(struct kmem_cache *cache, const struct km_request *request);
/* Links a freed object to state.deferred, for the next miss to free. Takes no lock. */
void km_defer(struct kmem_cache *cache, void *object);
/* As km_slab_new, but the caller must construct the objects. */
struct km_page *km_slab_new_raw(struct kmem_cache *cache, const struct km_request *request);
/* Free a slab; with SLAB_TYPESAFE_BY_RCU, after a grace period. */
void km_slab_free(struct kmem_cache *cache, struct km_page *slab);
/* The second half of km_slab_free: frees the pages, after the slab has left the page map. Context: km_thread.busy is
 * set. */
void km_slab_release(struct kmem_cache *cache, struct km_page *slab);
/* Functions and data of kfree_rcu.c for lower layers; set once the program has named its RCU. */
struct km_grace {
	/* For readers in other processes: offset of a struct km_rcu_waiting (cache/kfree_rcu.h) in each per-CPU area,
	 * and the blocks waiting for the current grace period. */
	const uint32_t *slot;
	struct km_rcu_block *const *pile;
	/* Releases a slab after a grace period. Requires: the slab is empty and on no list. */
	void (*slab)(struct km_page *slab);
	/* Begins a grace period that could not begin earlier. Context: system calls are allowed. */
	void (*go)(void);
	/* Waits for all frees in progress before a cache is destroyed. Context: no lock is held, here and in wait. */
	void (*before_destroy)(struct kmem_cache *cache);
	/* Wait until all objects given to kfree_rcu are free. */
	void (*wait)(void);
	/* Waits up to a second for the current grace period, before a request fails. Returns: true if objects were
	 * freed. */
	bool (*relieve)(void);
	void (*fork)(bool before, bool child);
};
extern km_hidden const struct km_grace *km_grace;	/* NULL: the program has set no RCU (kmem_set_rcu) */
km_inline bool km_grace_relieves(void)
{
	return km_load_acquire(&km_grace) && km_grace->relieve();
}
/* Returns true if empty slabs must stay: a reader may look at the objects, and no grace period would wait for the
 * reader. The slabs of a group's child cache stay while the group has a reference, because mem_cgroup_destroy_all frees
 * all objects of the group. `going` is read of the root cache, because child caches and debug shadow caches are
 * destroyed with the root. */
km_inline bool km_slabs_stay(const struct kmem_cache *cache)
{
	if (km_likely(!(cache->layout.flags & SLAB_TYPESAFE_BY_RCU)))
		return false;
	const struct kmem_cache *of = cache->memcg.child_of ?: cache;
	return !km_load_acquire(&km_grace) || (cache->memcg.slab_charge && !km_load(&cache->memcg.orphan)) ||
	       km_load(&(of->ext.shadow_of ?: of)->state.going);
}
/* Returns the top of a new empty sheaf with pad 0. NULL: no memory. */
void **km_sheaf_new(const struct kmem_cache *cache, bool may_wait);
void km_sheaf_free(const struct kmem_cache *cache, void **sheaf);
/* Tells the hooks of a slab with allocated objects of a destroyed cache. */
void km_slab_remains(struct kmem_cache *cache, struct km_page *slab, bool tell);
/* Construct the objects of a fresh slab, and tell the cache's hooks of the slab. */
void km_slab_construct(struct kmem_cache *cache, struct km_page *slab);

/* Returns: true if this thread may run the constructor of the cache now. Constructors nest to a limit. An allocation by
 * a constructor may run the constructor of another cache. A request fails if the request needs a ninth constructor, or
 * a slab of a cache whose constructor is running. The second case is misuse, and reported with `tell`: a request that
 * must not wait may be a signal handler's. kmem_cache_alloc_nolock runs no constructor. */
bool km_may_construct(const struct kmem_cache *cache, bool tell);
/* Run the constructor over `count` objects, without the busy flag: constructors may allocate. Context: no lock is
 * held. */
void km_construct(const struct kmem_cache *cache, void *object, unsigned count);

/* Order in which the objects of a fresh slab are handed out: by address. With random_order, unpredictable: a
 * random first object, then steps by a number coprime to the count. */
struct km_slab_order {
	uint32_t count, at, step;
};
struct km_slab_order km_slab_order(unsigned count);
km_inline unsigned km_order_next(struct km_slab_order *order)
{
	unsigned index = order->at;

	order->at += order->step;
	if (order->at >= order->count)
		order->at -= order->count;
	return index;
}
/* Shuffle the array with random_order; else do nothing. */
void km_order_shuffle(void **objects, unsigned count);

km_inline void km_count(struct kmem_cache *cache, enum kmem_event event)
{
	if (cache->state.events)
		km_add(&cache->state.events->count[event], 1ul);
}

/* Returns: the mask of new sheaves: bytes of objects and NULL until a sheaf counts as full, minus one. */
km_inline uint32_t km_alloc_mask(const struct kmem_cache *cache)
{
	return km_load(&cache->fast.pcs.inner.mask);
}

/* Returns the capacity of a new sheaf, in objects. */
km_inline unsigned km_alloc_capacity(const struct kmem_cache *cache)
{
	return km_mask_capacity(km_alloc_mask(cache)) - km_load(&cache->tune.pad) / (unsigned)sizeof(void *);
}

/* Find the slab of an object and its index, or report the misuse and return NULL. */
struct km_page *km_slab_of(struct kmem_cache *cache, void *object, int *index, const char *function);

/* Calls the hook `tell` of the slab's cache before a misuse of p is reported. */
void km_tell_of(struct km_page *slab, const void *p, enum km_misuse what) km_cold;
/* Calls the hook `tell` of the slab's cache, reports the misuse of p, and calls the hook `refused`. function, cache:
 * the call, and the cache named by the call. */
void km_refuse(struct km_page *slab, const void *p, enum km_misuse what, const char *function,
	       const char *cache) km_cold;

/* Cut a circle in a list linked by the word at offset `at`: a block freed twice closes such a circle. Returns: the
 * block, or NULL if the list has no circle. */
void *km_cut_circle(void *head, size_t at) km_cold;

/* Layout options of KMEM_OPTIONS; 0: the default. */
struct km_layout_options {
	unsigned min_objects, max_order, min_order;
	enum km_min_partial { KM_MIN_PARTIAL_HALF, KM_MIN_PARTIAL_SIZE, KM_MIN_PARTIAL_STATIC } rule;
	bool count_events;	/* count hits, too, where the engine can */
	unsigned lookahead;	/* slub: objects of other slabs that a search for a detached freelist passes over;
				 * kernel: 3 */
	enum km_bulk_free { KM_BULK_FREE_AUTO, KM_BULK_FREE_LOOKAHEAD, KM_BULK_FREE_GROUP } bulk_free;
	unsigned defrag_ratio;	/* share in percent of searches on other nodes, for new caches; kernel: 100 */
};
extern km_hidden struct km_layout_options km_layout_options;
/* Kernel: the ratio times 10 is compared with 1024 values, so a ratio of 100 still refuses some looks. */
#define KM_DEFRAG_SCALE	10u
unsigned long km_min_partial_of(uint32_t size, enum km_min_partial rule);
extern km_hidden const char *const km_min_partial_names[3];	/* names of the rules for min_partial */
int km_min_partial_rule(const char *name);		/* Returns: the number of a rule's name; -1: unknown */

#endif
