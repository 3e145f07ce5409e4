/*
 * create.c: create and destroy caches; the registry of caches. Invariant: under the registry's lock, the list holds
 * every live cache once.
 */
#include <errno.h>

#include "page/commit_ahead.h"
#include "page/metadata.h"
#include "percpu/owned_sheaf.h"
#include "base/text.h"
#include "cache.h"

static struct {
	struct km_lock lock;
	struct km_busy_was was_busy;	/* of the holder, by km_registry_lock */
	struct kmem_cache *dead;	/* memory of destroyed caches, by next_named */
} registry = { .lock = KM_LOCK_INIT(KM_RANK_REGISTRY) };
struct km_caches km_caches = { .all = { &km_caches.all, &km_caches.all } };
struct km_round km_rounds[KM_ROUNDS];	/* protected by the registry's lock */
static bool printing[KM_PRINTERS + 1];	/* for each printer: a round is in progress */
/* Caches by the hash of the name, the newest first. The hash covers one page until the caches outnumber its entries,
 * because a few caches would otherwise touch a page each. */
static struct kmem_cache *names[16384] km_sparse km_aligned(KM_PAGE_SIZE);
static uint32_t names_mask = KM_PAGE_SIZE / sizeof(*names) - 1;

/* ------------------------------------------------------------------ creation */

static const char *complaint(const char *name, uint32_t size, const struct kmem_cache_args *args, slab_flags_t flags)
{
	if (!name || !*name)
		return "the name is NULL or empty";
	if (!size)
		return "size 0";
	if (size > KMALLOC_MAX_SIZE)
		return "size above KMALLOC_MAX_SIZE";
	if (flags & ~SLAB_FLAGS_PERMITTED)
		return "unknown flags";
	if (args->align && (!km_is_pow2(args->align) || args->align > KM_PAGE_SIZE))
		return "align is not a power of two up to 4096";
	if (args->sheaf_capacity > 1022)
		return "sheaf_capacity above 1022";
	if (args->engine && !km_engine_find(args->engine))
		return "unknown engine; KMEM_OPTIONS=help lists the engines";
	if (args->use_freeptr_offset &&
	    (!(args->ctor || (flags & SLAB_TYPESAFE_BY_RCU)) ||
	     args->freeptr_offset + sizeof(void *) > size || args->freeptr_offset % sizeof(void *)))
		return "freeptr_offset needs a constructor or SLAB_TYPESAFE_BY_RCU, and an aligned place in the object";
	return NULL;
}

/* Makes the engine's structs of all nodes. Node 0 is made first and ended last: the engine may keep data of the whole
 * cache there. */
static int init_nodes(struct kmem_cache *cache)
{
	for (unsigned node = 0; node < km_node_count; node++) {
		cache->state.node[node] = km_metadata_alloc(cache->layout.engine->node_bytes, true);
		if (!cache->state.node[node])
			return -ENOMEM;
		int error = cache->layout.engine->node_init ? cache->layout.engine->node_init(cache, node) : 0;
		if (error) {
			km_metadata_free(cache->state.node[node], cache->layout.engine->node_bytes);
			cache->state.node[node] = NULL;
			return error;
		}
	}
	return 0;
}

static void fini_nodes(struct kmem_cache *cache)
{
	for (unsigned node = km_node_count; node-- > 0;)
		if (cache->state.node[node]) {
			if (cache->layout.engine->node_fini)
				cache->layout.engine->node_fini(cache, node);
			km_metadata_free(cache->state.node[node], cache->layout.engine->node_bytes);
		}
	km_metadata_free(cache->state.events, sizeof(*cache->state.events));
}

/* Copy the settings of the leader: first the settings that may change at run time, then the sizes from which nodes
 * and sheaves are made. Context: registry locked. */
static void tune_as_led(struct kmem_cache *cache)
{
	struct kmem_cache *leader = cache->tune.tuned_with;

	km_cache_tune_partial(cache);
	if (!leader)
		return;
	km_store(&leader->tune.leads, true);
	/* Do not copy these settings of a debugged leader: its slabs have another layout. */
	if (km_is_debugged(leader))
		return;
	cache->fast.capacity = leader->fast.capacity;
	cache->tune.busy_capacity = leader->tune.busy_capacity;
	cache->tune.max_capacity = leader->tune.max_capacity;
	cache->tune.batchcount = leader->tune.batchcount;
	cache->tune.shared = leader->tune.shared;
}

/* Does each step of a creation that can fail, before the cache is visible. */
static int build(struct kmem_cache *cache, const struct kmem_cache_args *args)
{
	int error = km_layout_common(cache, args);

	if (!error)
		error = cache->layout.engine->layout(cache, args);
	if (error)
		return error;
	if (!cache->form.slab_pages)
		cache->form.slab_pages = 1u << cache->layout.order;
	tune_as_led(cache);
	/* A sheaf would hide a second free, because the slab counts an object on a sheaf as allocated. */
	if ((cache->layout.flags & (SLAB_NO_SHEAVES | SLAB_FAILSLAB) || cache->layout.checked) &&
	    cache->layout.engine->front == KM_PERCPU_SHEAVES)
		cache->fast.capacity = 0;
	cache->state.events = km_metadata_alloc(sizeof(*cache->state.events), true);
	return cache->state.events ? init_nodes(cache) : -ENOMEM;
}

static bool can_merge(const struct kmem_cache *cache, uint32_t size, slab_flags_t flags,
		      const struct kmem_cache_args *args)
{
	const slab_flags_t never = SLAB_TYPESAFE_BY_RCU | SLAB_NO_MERGE | SLAB_NOLEAKTRACE | SLAB_NODUMP |
				   KM_DEBUG_FLAGS;
	const slab_flags_t same = SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT | SLAB_NO_SHEAVES;
	uint32_t align = km_layout_align(flags, args->align, size);
	uint32_t wanted = (uint32_t)km_align_up(size, align);

	return km_cache_is(cache, KM_CACHE_MERGEABLE) && !cache->ext.shadows &&
	       !((cache->layout.flags | flags) & never) && !((cache->layout.flags ^ flags) & same) &&
	       !args->ctor && !args->usersize && !args->sheaf_capacity &&
	       (!args->engine || km_engine_find(args->engine) == cache->layout.engine) &&
	       cache->layout.size >= wanted && cache->layout.size % align == 0 && cache->form.align >= align &&
	       cache->layout.size - wanted < sizeof(void *);
}

static struct kmem_cache *find_mergeable(uint32_t size, slab_flags_t flags, const struct kmem_cache_args *args)
{
	for (struct km_list *e = km_caches.all.prev; e != &km_caches.all; e = e->prev) {
		struct kmem_cache *cache = km_container_of(e, struct kmem_cache, registry.all);

		if (can_merge(cache, size, flags, args)) {
			cache->registry.references++;
			cache->layout.cleared = cache->layout.object_size = km_max(cache->layout.object_size, size);
			km_settle_usable(cache);
			return cache;
		}
	}
	return NULL;
}

struct kmem_cache **km_registry_named(const char *name)
{
	uint32_t hash = 2166136261u;

	while (*name)
		hash = (hash ^ (unsigned char)*name++) * 16777619u;
	return &names[hash & names_mask];
}

static void link_name(struct kmem_cache *cache)
{
	struct kmem_cache **first = km_registry_named(cache->registry.name);

	cache->registry.next_named = *first;
	cache->registry.named_by = first;
	if (*first)
		(*first)->registry.named_by = &cache->registry.next_named;
	*first = cache;
}

/* Extends the hash of names from one page to the whole table, once. */
static void spread_names(void)
{
	__builtin_memset(names, 0, (names_mask + 1) * sizeof(*names));
	names_mask = km_array_count(names) - 1;
	km_list_for_each_entry(struct kmem_cache, cache, &km_caches.all, registry.all)
		if (cache->registry.named_by)
			link_name(cache);
}

/* Enter the name, and warn about a duplicate. Child caches are in no table: a cache may have 100000 of them, with
 * truncated names that begin alike. */
static void add_name(struct kmem_cache *cache, bool internal)
{
	struct kmem_cache *other = internal ? NULL : *km_registry_named(cache->registry.name);

	if (cache->memcg.child_of || cache->ext.shadow_of)
		return;
	while (other && __builtin_strcmp(other->registry.name, cache->registry.name) != 0)
		other = other->registry.next_named;
	if (other)
		km_warn("kmem_cache_create(%s): a cache of that name exists", cache->registry.name);
	if (km_unlikely(km_caches.count > names_mask && names_mask < km_array_count(names) - 1))
		spread_names();
	link_name(cache);
}

static void drop_name(struct kmem_cache *cache)
{
	if (!cache->registry.named_by)
		return;
	km_debug(*cache->registry.named_by == cache, "a cache is on the list of its name until its end");
	*cache->registry.named_by = cache->registry.next_named;
	if (cache->registry.next_named)
		cache->registry.next_named->registry.named_by = cache->registry.named_by;
}

void km_cache_rename(struct kmem_cache *child, const char *name)
{
	km_text_take(child->registry.name, KM_NAME_BYTES, name, " ", '_');
}

static void publish(struct kmem_cache *cache, bool internal)
{
	add_name(cache, internal);
	cache->fast.id = km_id_get(cache);
	km_id_fill(cache);
	km_debug(km_is_locked(&registry.lock), "the list of caches changes under the registry's lock");
	km_list_add_tail(&cache->registry.all, &km_caches.all);
	km_bump(&km_caches.count, 1);
	if (cache->ext.shadow_of)
		km_bump(&km_caches.shadows, 1);
}

static struct kmem_cache *new_memory(void)
{
	struct kmem_cache *cache = registry.dead;

	if (!cache)
		return km_metadata_alloc_spread(sizeof(*cache), true);
	registry.dead = cache->registry.next_named;
	return __builtin_memset(cache, 0, sizeof(*cache));
}

/* Returns: the bytes to zero; for kmalloc all bytes that ksize reports, because krealloc grows into them. */
static uint32_t cleared_bytes(const struct kmem_cache *cache)
{
	const bool all = cache->layout.flags & SLAB_KMALLOC && !cache->ext.canary && !km_is_observed(cache);

	if (cache->form.ctor)
		return 0;
	return all && !km_is_debugged(cache) ? cache->layout.size : cache->layout.object_size;
}

static struct kmem_cache *create_new(const char *name, uint32_t size, slab_flags_t flags, struct km_creation *creation)
{
	struct kmem_cache *cache = new_memory();

	creation->error = -ENOMEM;
	if (!cache)
		return NULL;
	km_cache_rename(cache, name);
	cache->layout.engine = creation->engine ?:
			       creation->args.engine ? km_engine_find(creation->args.engine) : km_options.engine;
	cache->layout.object_size = size;
	cache->memcg.child_of = creation->child_of;
	cache->ext.shadow_of = creation->shadow_of;
	cache->tune.tuned_with = creation->tuned_with;
	cache->memcg.slab_charge = creation->slab_charge;
	cache->memcg.kept_by = creation->kept_by;
	cache->tune.limit = UINT64_MAX;
	cache->layout.flags = flags;
	cache->ext.hooks = km_observed_hooks_of(cache);
	if (km_options.account && !cache->layout.engine->shared_pages && !cache->memcg.child_of)
		cache->layout.flags |= SLAB_ACCOUNT;
	cache->form.ctor = creation->args.ctor;
	cache->layout.checked = km_options.check || (flags & KM_DEBUG_FLAGS) || km_is_observed(cache);
	if (km_options.merge && !cache->form.ctor && !creation->args.usersize && !creation->args.sheaf_capacity &&
	    !creation->internal)
		cache->layout.traits |= KM_CACHE_MERGEABLE;
	cache->registry.references = 1;
	cache->memcg.objcg = KM_OBJCGS_DIFFER;
	cache->ext.useroffset = creation->args.useroffset;
	cache->ext.usersize = creation->args.usersize;
	if (creation->dense || (creation->tuned_with && km_cache_is(creation->tuned_with, KM_CACHE_DENSE)))
		cache->layout.traits |= KM_CACHE_DENSE;
	if (creation->singly)
		cache->layout.traits |= KM_CACHE_SINGLY;
	cache->ext.may_have_canary = !(flags & SLAB_KMALLOC) || creation->canary ||
				 (creation->tuned_with && creation->tuned_with->ext.canary);
	creation->error = build(cache, &creation->args);
	if (creation->error) {
		fini_nodes(cache);
		km_metadata_free_spread(cache, sizeof(*cache));
		return NULL;
	}
	cache->layout.cleared = cleared_bytes(cache);
	km_settle_usable(cache);
	cache->ext.carried = cache->layout.flags & KM_DEBUG_FLAGS;
	km_layers_choose(cache);
	return cache;
}

struct kmem_cache *km_cache_create_locked(const char *name, uint32_t size, slab_flags_t flags,
					  struct km_creation *creation)
{
	struct kmem_cache *cache = NULL;

	flags = km_observed_flags(name, size, flags, creation);
	if (km_options.merge && !creation->internal)
		cache = find_mergeable(size, flags, &creation->args);
	if (!cache) {
		cache = create_new(name, size, flags, creation);
		if (cache) {
			publish(cache, creation->internal);
			km_alloc_open(cache);
			if ((cache->layout.flags & SLAB_ACCOUNT || km_load(&km_account_asks) & KM_ASKS_THREADS) &&
			    km_has_accounting())
				km_charge_ops->begin(cache, true);
		}
	}
	return cache;
}

struct kmem_cache *km_cache_create(const char *name, uint32_t size, slab_flags_t flags, struct km_creation *creation)
{
	km_lock_scope(&registry.lock);
	return km_cache_create_locked(name, size, flags, creation);
}

static void *create_failed(const char *name, slab_flags_t flags, int error, const char *why)
{
	if (flags & SLAB_PANIC)
		km_panic("kmem_cache_create(%s): %s", name, why);
	km_warn("kmem_cache_create(%s): %s", name, why);
	errno = error;
	return NULL;
}

struct kmem_cache *kmem_cache_create_args(const char *name, unsigned int size, const struct kmem_cache_args *args,
					  slab_flags_t flags)
{
	struct km_creation creation = { 0 };
	char shown[KM_NAME_BYTES];

	/* Quote the name in one line. */
	km_text_take(shown, KM_NAME_BYTES, name ?: "(null)", " ", '_');
	if (args)
		creation.args = *args;
	const char *wrong = complaint(name, size, &creation.args, flags);
	if (wrong)
		return create_failed(shown, flags, EINVAL, wrong);
	/* SLAB_KMALLOC is reserved for the library: engine slob puts headers there. */
	flags &= ~SLAB_KMALLOC;
	if (creation.args.useroffset > size || creation.args.usersize > size - creation.args.useroffset ||
	    (creation.args.useroffset && !creation.args.usersize)) {
		km_warn("kmem_cache_create(%s): the usercopy region is not inside of the object, and is ignored",
			shown);
		creation.args.useroffset = creation.args.usersize = 0;
	}
	if (!km_boot() || km_thread.busy)
		return create_failed(shown, flags, ENOMEM, "out of memory");
	struct km_busy_was was = km_busy_begin();
	struct kmem_cache *cache = km_cache_create(name, size, flags, &creation);
	km_busy_end(was);
	if (cache)
		return cache;
	return creation.error == -EINVAL ?
		       create_failed(shown, flags, EINVAL, "no slab layout has this size, alignment and these flags") :
		       create_failed(shown, flags, ENOMEM, "out of memory");
}

/* ------------------------------------------------------------------ destruction */

struct leftovers {
	struct kmem_cache *cache;
	size_t slabs, objects;
};

/* Reports the allocated objects of a slab of a destroyed cache. The slab is never freed, and its objects become invalid
 * pointers. */
static int report_slab(struct km_page *slab, void *arg)
{
	struct leftovers *left = arg;
	if (slab->type != KM_PAGE_SLAB || slab->cache != left->cache)
		return 0;
	char *address = km_slab_first(left->cache, slab);
	km_slab_remains(left->cache, slab, left->objects < 8);
	for (unsigned i = 0; i < slab->objects; i++)
		if (left->cache->layout.engine->is_taken(left->cache, slab, i) && left->objects++ < 8)
			km_warn("  object %p, offset %u", (void *)(address + (size_t)i * left->cache->layout.size),
				(unsigned)(i * left->cache->layout.size));
	left->slabs++;
	return 0;
}

static int bury_slab(struct km_page *slab, void *arg)
{
	struct leftovers *left = arg;

	if (slab->type == KM_PAGE_SLAB && slab->cache == left->cache) {
		km_map_set(slab, (size_t)1 << slab->order, KM_MAP_DESC);
		slab->flags |= KM_SLAB_DEAD;
		slab->cache = NULL;
	}
	return 0;
}

/* Free a cache. Requires: its sheaves are closed. */
static void free_cache(struct kmem_cache *cache, bool fenced, void (*rest)(struct kmem_cache *cache))
{
	struct leftovers left = { .cache = cache };

	/* Now also slabs that were kept for RCU readers are freed; without poison, because their objects were never
	 * poisoned. */
	if (cache->layout.flags & SLAB_TYPESAFE_BY_RCU)
		cache->layout.flags &= ~(SLAB_TYPESAFE_BY_RCU | SLAB_POISON);
	cache->layout.engine->shrink(cache);
	struct kmem_cache_stats stats = { .name = "" };
	cache->layout.engine->stats(cache, &stats);
	km_retired_hand_down(cache, &stats);
	if (rest) {
		rest(cache);
		stats = (struct kmem_cache_stats){ .name = "" };
	}
	if (stats.total_slabs || stats.active_objects || km_load(&cache->ext.guarded)) {
		km_warn("kmem_cache_destroy(%s): Slab cache still has objects", cache->registry.name);
		left.objects = km_load(&cache->ext.guarded) ? km_guard_ops->leave(cache) : 0;
		km_pages_walk(report_slab, &left);
		/* For objects in shared pages only the number is known. */
		if (cache->layout.engine->shared_pages)
			left.objects = stats.active_objects + km_load(&cache->ext.guarded);
		km_warn("  %lu objects in %lu slabs stay allocated, and are never reused; %s",
			(unsigned long)left.objects, (unsigned long)left.slabs, cache->layout.flags & SLAB_STORE_USER ?
			KM_MISUSE_TOLD : "KMEM_DEBUG=U says who allocated them");
		km_pages_walk(bury_slab, &left);
		errno = EBUSY;
	}
	km_id_put(cache, fenced);
	/* A call with the destroyed cache finds closed sheaves and ops that report misuse, until another cache reuses
	 * the memory. */
	km_alloc_bury(cache);
	cache->memcg.objcg = KM_OBJCGS_DIFFER;
	/* A late free of a former group's thread may still read this cache: never free its memory and its nodes. */
	if (km_unlikely(rest && cache->memcg.handed_on))
		return;
	fini_nodes(cache);
	if (cache->memcg.child_of) {
		km_metadata_free_spread(cache, sizeof(*cache));
	} else {
		/* This memory is reused for caches only, so that a late use of the cache is reported. */
		cache->registry.next_named = registry.dead;
		registry.dead = cache;
	}
}

static void leave_rounds(const struct kmem_cache *cache)
{
	for (unsigned i = 0; i < KM_ROUNDS; i++)
		if (km_rounds[i].next == &cache->registry.all)
			km_rounds[i].next = cache->registry.all.next;
}

void km_caches_remove(struct kmem_cache **caches, size_t count, void (*rest)(struct kmem_cache *cache))
{
	for (size_t i = 0; i < count; i++) {
		km_debug(km_is_locked(&registry.lock) && !caches[i]->layout.dead,
			 "a cache is removed once, by the registry");
		if (km_is_parent(caches[i]))
			km_charge_ops->forget(caches[i]);
		leave_rounds(caches[i]);
		km_list_del(&caches[i]->registry.all);
		drop_name(caches[i]);
		km_ahead_give_up(caches[i]->state.reserved_pages);
		km_bump(&km_caches.count, -1);
		if (caches[i]->ext.shadow_of)
			km_bump(&km_caches.shadows, -1);
	}
	km_debug(!km_caches.count == km_list_empty(&km_caches.all), "the registry counts the listed caches");
	bool fenced = km_alloc_close_all(caches, count);
	for (size_t i = 0; i < count; i++)
		free_cache(caches[i], fenced, rest);
}

/* Remove a cache and its debug shadow caches. */
static void remove_with_shadows(struct kmem_cache *cache)
{
	struct kmem_cache *these[1 + KM_SHADOWS_MOST] = { cache };
	struct km_shadows *shadows = cache->ext.shadows;
	size_t count = 1;

	for (struct kmem_cache *at = shadows ? shadows->first : NULL; at; at = at->ext.next_shadow) {
		km_debug(count < km_array_count(these) && at->ext.shadow_of == cache,
			 "a cache has few debug shadow caches");
		these[count++] = at;
	}
	km_caches_remove(these, count, NULL);
	if (shadows) {
		km_store(&cache->ext.shadows, NULL);
		km_metadata_free(shadows, sizeof(*shadows));
	}
}

void km_cache_discard(struct kmem_cache *cache)
{
	km_registry_scope();
	if (!--cache->registry.references)
		remove_with_shadows(cache);
}

bool km_cache_publish(struct kmem_cache **at, struct kmem_cache *cache)
{
	struct kmem_cache *none = NULL;

	if (km_cas_release(at, &none, cache))
		return true;
	km_cache_discard(cache);
	return false;
}

void kmem_cache_destroy(struct kmem_cache *cache)
{
	if (!cache)
		return;
	if (km_unlikely(cache->layout.dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_destroy", cache, cache->registry.name);
		return;
	}
	if (km_unlikely(cache->memcg.child_of || cache->ext.shadow_of)) {
		km_warn("kmem_cache_destroy(%s): refused, because the cache is a child cache or a debug shadow "
			"cache; destroy the root cache",
			cache->registry.name);
		return;
	}
	if (km_unlikely(cache->layout.engine->whole_pages)) {
		km_warn("kmem_cache_destroy(%s): refused, because the cache belongs to kmalloc", cache->registry.name);
		return;
	}
	if (km_load_acquire(&km_grace))
		km_grace->before_destroy(cache);
	km_cache_discard(cache);
	kmem_tick();
}

/* ------------------------------------------------------------------ visits */

void km_registry_lock(void)
{
	struct km_busy_was was = km_busy_begin();

	km_lock(&registry.lock);
	registry.was_busy = was;
}

bool km_registry_trylock(void)
{
	struct km_busy_was was = km_busy_begin();
	bool locked = km_trylock(&registry.lock);

	if (locked)
		registry.was_busy = was;
	else
		km_busy_end(was);
	return locked;
}

void km_registry_unlock(void)
{
	struct km_busy_was was = registry.was_busy;

	km_unlock(&registry.lock);
	km_busy_end(was);
}

int km_registry_each(int (*visit)(struct kmem_cache *cache, void *arg), void *arg)
{
	km_list_for_each_safe(e, &km_caches.all) {
		int result = visit(km_container_of(e, struct kmem_cache, registry.all), arg);

		if (result)
			return result;
	}
	return 0;
}

bool km_registry_is_mine(void)
{
	return km_lock_is_own(&registry.lock);
}

bool km_registry_hold(void)
{
	bool within = km_registry_is_mine();

	if (!within)
		km_lock(&registry.lock);
	return within;
}

void km_registry_let_go(const bool *within)
{
	if (!*within)
		km_unlock(&registry.lock);
}

int km_registry_visit(int (*visit)(struct kmem_cache *cache, void *arg), void *arg)
{
	km_registry_hold_scope(within);
	return km_registry_each(visit, arg);
}

bool km_registry_visit_within(int (*visit)(struct kmem_cache *cache, void *arg), void *arg, unsigned ms)
{
	if (!km_lock_within(&registry.lock, ms))
		return false;
	km_registry_each(visit, arg);
	km_unlock(&registry.lock);
	return true;
}

bool km_registry_try_some(struct km_round *round, size_t most, int (*visit)(struct kmem_cache *cache, void *arg),
			  void *arg, void (*then)(void *arg))
{
	if (!km_trylock(&registry.lock))
		return false;
	/* Some caches may be gone. */
	round->left = km_min(round->left, (size_t)km_load(&km_caches.count));
	for (; round->left && most; round->left--, most--) {
		if (!round->next || round->next == &km_caches.all)
			round->next = km_caches.all.next;
		if (visit(km_container_of(round->next, struct kmem_cache, registry.all), arg))
			break;
		round->next = round->next->next;
	}
	then(arg);
	km_unlock(&registry.lock);
	return true;
}

void km_registry_visit_pieces(int (*visit)(struct kmem_cache *cache, void *arg), void (*then)(void *arg), void *arg)
{
	km_registry_hold_scope(within);
	unsigned i = within ? KM_PRINTERS : 0;

	while (i < KM_PRINTERS && printing[i])
		i++;
	struct km_round *round = &km_rounds[KM_ROUND_PRINT + i];
	*round = (struct km_round){ km_caches.count, km_caches.all.next };
	printing[i] = true;
	while (round->left && round->next != &km_caches.all) {
		if (!visit(km_container_of(round->next, struct kmem_cache, registry.all), arg)) {
			round->left--;
			round->next = round->next->next;
			continue;
		}
		if (i < KM_PRINTERS)
			km_unlock(&registry.lock);
		then(arg);
		if (i < KM_PRINTERS)
			km_lock(&registry.lock);
	}
	printing[i] = false;
}

static void fork_cache(struct kmem_cache *cache, bool before, bool child)
{
	if (cache->layout.engine->fork)
		cache->layout.engine->fork(cache, before, child);
	if (!child)
		return;
	/* The child has no calls of other threads. If a signal handler of this thread forked inside a call, the
	 * count falls below zero: no shadow cache is then ever found unused again. */
	if (cache->ext.shadows)
		km_store(&cache->ext.shadows->calls, km_load(&cache->ext.shadows->calls) & 1);
	km_store(&cache->memcg.calls, 0u);
	/* Clear `touched`: the parent's thread may have set `touched`, and not yet the bit in km_alloc_ready. */
	km_store(&cache->state.touched, false);
	km_pcs_fork_child(&cache->fast.pcs);
	km_pcs_fork_child(&cache->memcg.charged);
}

/* Takes the locks of registry, drain and caches in the order of their ranks before fork, and frees them after it.
 * Returns: whether the registry was locked. */
bool km_registry_fork(bool before, bool child)
{
	bool has = child || (!before && km_fork_has(&registry.lock));

	if (before) {
		km_lock_around_fork(&registry.lock, true, false);
		has = km_fork_has(&registry.lock);
		km_alloc_fork(true, false);
	}
	if (has)
		km_list_for_each_entry(struct kmem_cache, cache, &km_caches.all, registry.all)
			fork_cache(cache, before, child);
	km_engines_fork(before, child);
	if (!before) {
		km_alloc_fork(false, child);
		__builtin_memset(printing, 0, child ? sizeof(printing) : 0);
		km_lock_around_fork(&registry.lock, false, child);
	}
	return has;
}
