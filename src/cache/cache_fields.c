/*
 * cache_fields.c: the table of fields for `kmem info` of caches, pages and CPUs; memcg/memcg_fields.c has the fields
 * of groups. Invariant: every field used by a reader is here, under a name with one meaning in every build
 * (base/fields.h).
 */
#include "kfree_rcu.h"
#include "process_record.h"
#include "page/obj_cgroups.h"

#define ROOT(type, name, value)	KM_FIELD_AS("root." #name, struct km_root, name),
#define PERCPU(member)	KM_FIELD_IN("percpu", struct km_percpu, member)
#define RANGE(member)	KM_FIELD_IN("range", struct km_range, member)
#define PAGE(member)	KM_FIELD_IN("page", struct km_page, member)
#define ZONE(member)	KM_FIELD_IN("zone", struct km_zone_counts, member)
#define ENGINE(member)	KM_FIELD_IN("engine", struct km_engine, member)
#define NODE(member)	KM_FIELD_IN("node", struct km_node_counts, member)
#define CHAIN(member)	KM_FIELD_IN("chain", struct km_chain_cpu, member)
#define BIG(member)	KM_FIELD_IN("big", struct km_huge_entry, member)
#define PARKED(member)	KM_FIELD_IN("parked", struct km_huge_cached, member)
#define POOL(member)	KM_FIELD_IN("pool", struct km_guarded, member)
#define SPAN(member)	KM_FIELD_IN("span", struct km_span, member)
#define GRACE(member)	KM_FIELD_IN("grace", struct km_grace, member)
#define WAITING(member)	KM_FIELD_IN("waiting", struct km_rcu_waiting, member)
#define BLOCK(member)	KM_FIELD_IN("rcublock", struct km_rcu_block, member)
#define CACHE(part, member)	KM_FIELD_AS("cache." #member, struct kmem_cache, part.member)
#define CACHE_AS(name, member)	KM_FIELD_AS("cache." name, struct kmem_cache, member)

/* Checks that a value equals the value that <kmem/record.h> publishes. */
#define SAME(value, published)	_Static_assert((uint64_t)(value) == (uint64_t)(published), "readers know the value")
SAME(KM_PAGE_SHIFT, KMEM_PAGE_SHIFT);
SAME(KM_NAME_BYTES, KMEM_RECORD_NAME_BYTES);
SAME(KM_MAX_NODES, KMEM_RECORD_NODES);
SAME(KM_MAX_ORDER, KMEM_RECORD_MAX_ORDER);
SAME(KM_SLAB_MAX_OBJECTS, KMEM_RECORD_MAX_OBJECTS);
SAME(KM_NOT_KEPT, KMEM_RECORD_NOT_KEPT);
SAME(KM_ALLOC_MAP_LOW, KMEM_RECORD_MAP_SHIFT);
SAME(KM_ALLOC_MAP_TABLES, KMEM_RECORD_MAPS);
SAME(KM_PAGE_ENGINE_BYTES / sizeof(uint64_t), KMEM_RECORD_WORDS);
SAME(km_array_count(((struct km_rcu_block *)0)->object), KMEM_RECORD_RCU_OBJECTS);
SAME(KM_DEFRAG_SCALE, KMEM_RECORD_DEFRAG);
SAME(KM_DEBUG_FLAGS, KMEM_RECORD_DEBUG_FLAGS);
SAME(KM_DISCIPLINE_NONE, KMEM_RECORD_NONE);
SAME(KM_DISCIPLINE_CMPXCHG, KMEM_RECORD_CMPXCHG);
SAME(KM_PERCPU_SHEAVES, KMEM_RECORD_SHEAVES);
SAME(KM_PERCPU_FREELIST, KMEM_RECORD_FREELIST);
SAME(KM_PAGE_SLAB, KMEM_RECORD_PAGE_SLAB);
SAME(KM_PAGE_FREE_LAST, KMEM_RECORD_PAGE_FREE_LAST);
SAME(KM_OWNER_VECTOR, KMEM_RECORD_VECTOR);
SAME(KM_OWNER_NOBODY, KMEM_RECORD_UNCHARGED);
SAME(KM_DEBUG_WORD, KMEM_RECORD_DEBUG_WORD);
SAME(KM_SIZED_UNIT, KMEM_RECORD_SLOB_UNIT);

const struct kmem_record_field km_fields[] = {
	KM_FIELD_CONST("area_shift", KMEM_AREA_SHIFT),
	KM_FIELD_CONST("slob_unit", KM_SIZED_UNIT),
	/* Bytes of a track behind a debugged object; another layout must get another name. */
	KM_FIELD_CONST("track", KM_DEBUG_TRACK),
	KM_FIELD_STRUCT("root", struct km_root),
	KM_ROOT_FIELDS(ROOT)
	ROOT(, arena.ranges,) ROOT(, arena.range,) ROOT(, arena.nodes,) ROOT(, arena.bind_failures,)
	KM_FIELD_ARRAY("root", struct km_root, arena.zone),
	KM_FIELD_STRUCT("percpu", struct km_percpu),
	PERCPU(base), PERCPU(cpus), PERCPU(discipline),
	KM_FIELD_STRUCT("range", struct km_range),
	RANGE(base), RANGE(pages), RANGE(ready), RANGE(page), RANGE(map), RANGE(owner), RANGE(dirty),
	KM_FIELD_ARRAY("range", struct km_range, live),
	KM_FIELD_STRUCT("page", struct km_page),
	PAGE(cache), PAGE(type), PAGE(run), PAGE(inuse), PAGE(objects), PAGE(pages), PAGE(order), PAGE(node),
	/* Word of the engine slub in a slab's descriptor (engines/slub/slub.h). */
	{ "page.word", offsetof(struct km_page, engine), sizeof(uint64_t), 1 },
	/* For a slab: the layout of its engine. For a large block: its pages and the requested bytes. A changed
	 * layout must get another name. */
	{ "page.words", offsetof(struct km_page, engine), sizeof(uint64_t), KM_PAGE_ENGINE_BYTES / sizeof(uint64_t) },
	KM_FIELD_STRUCT("zone", struct km_zone_counts),
	ZONE(used_pages), ZONE(dirty_pages), ZONE(clean_pages), ZONE(purged_pages),
	KM_FIELD_STRUCT("engine", struct km_engine),
	ENGINE(name), ENGINE(front), ENGINE(fields), ENGINE(field_count),
	{ "engine.tune", offsetof(struct km_engine, array.tune), sizeof(void *), 1 },
	KM_FIELD_STRUCT("node", struct km_node_counts),
	NODE(slabs), NODE(objects), NODE(taken), NODE(partial), NODE(free_slabs), NODE(new_slabs), NODE(freed_slabs),
	NODE(shared), KM_FIELD_ARRAY("node", struct km_node_counts, ready),
	KM_FIELD_STRUCT("chain", struct km_chain_cpu),
	CHAIN(top.freelist), CHAIN(top.slab), CHAIN(slab), CHAIN(failures),
	KM_FIELD_STRUCT("big", struct km_huge_entry),
	BIG(start), BIG(bytes), BIG(owner),
	KM_FIELD_STRUCT("parked", struct km_huge_cached),
	PARKED(p), PARKED(bytes),
	KM_FIELD_STRUCT("pool", struct km_guarded),
	POOL(start), POOL(bytes), POOL(page_bytes), POOL(objects), POOL(slot), POOL(fields), POOL(field_count),
	KM_FIELD_STRUCT("span", struct km_span),
	SPAN(start), SPAN(end),
	KM_FIELD_STRUCT("grace", struct km_grace),
	GRACE(slot), GRACE(pile),
	KM_FIELD_STRUCT("waiting", struct km_rcu_waiting),
	WAITING(blocks),
	KM_FIELD_STRUCT("rcublock", struct km_rcu_block),
	BLOCK(next), BLOCK(count), KM_FIELD_ARRAY("rcublock", struct km_rcu_block, object),
	KM_FIELD_STRUCT("cache", struct kmem_cache),
	CACHE_AS("shelf.front.rseq", fast.pcs.front.rseq),
	CACHE_AS("shelf.inner.mask", fast.pcs.inner.mask),
	CACHE_AS("shelf.block_mask", fast.pcs.sheaf_mask), CACHE_AS("shelf.slot", fast.pcs.slot),
	CACHE_AS("charged.block_mask", memcg.charged.sheaf_mask), CACHE(memcg, charged.slot),
	CACHE(fast, chain.slot), CACHE(fast, capacity), CACHE(tune, pad), CACHE(layout, size),
	CACHE(layout, object_size), CACHE(layout, objects), CACHE(layout, order),
	CACHE(form, slab_pages), CACHE(layout, freeptr), CACHE(layout, engine), CACHE(layout, dead),
	CACHE(tune, min_partial), CACHE(tune, batchcount), CACHE(tune, shared),
	CACHE(registry, all.next), CACHE(registry, all.prev), CACHE(memcg, group),
	CACHE(ext, guarded), CACHE_AS("sibling_of", ext.shadow_of),
	CACHE_AS("siblings", ext.shadows), CACHE_AS("twin_of", memcg.child_of),
	CACHE(state, past.new_slabs), CACHE(state, past.freed_slabs), CACHE(ext, carried),
	CACHE(form, first), CACHE(form, colours), CACHE(ext, left), CACHE(layout, tail_bits),
	CACHE(layout, live_shift), CACHE(layout, flags), CACHE(state, deferred), CACHE(form, align),
	CACHE(form, ctor), CACHE(registry, references), CACHE(ext, usersize),
	CACHE(tune, defrag_ratio), CACHE(state, events), CACHE(state, percpu_offset),
	CACHE(state, percpu_bytes),
	KM_FIELD_ARRAY_AS("cache.node", struct kmem_cache, state.node),
	KM_FIELD_ARRAY_AS("cache.name", struct kmem_cache, registry.name),
	/* By enum kmem_event; new events are added at the end. */
	KM_FIELD_STRUCT("events", struct km_events),
	KM_FIELD_ARRAY("events", struct km_events, count),
};
const unsigned km_field_count = km_array_count(km_fields);
