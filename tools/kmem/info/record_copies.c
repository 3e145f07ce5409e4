/*
 * record_copies.c: the tables of the fields that the command reads. Invariant: a table lists each structure before the
 * structure's fields. The first structure of an engine's table has the name of the engine.
 */
#include "info/record_copies.h"

#include <string.h>

#define STRUCT(kind)		{ #kind, sizeof(struct rec_##kind), 0, 0 }
#define CONST(name)		{ "const." #name, 0, 0, 0 }
#define SIZE(kind, member)	sizeof(((struct rec_##kind *)0)->member)
#define ONE(kind, member)	{ #kind "." #member, offsetof(struct rec_##kind, member), SIZE(kind, member), 1 }
#define MANY(kind, member) \
	{ #kind "." #member, offsetof(struct rec_##kind, member), SIZE(kind, member[0]), \
	  SIZE(kind, member) / SIZE(kind, member[0]) }

#define ROOT(member)	ONE(root, member)
#define RANGE(member)	ONE(range, member)
#define PAGE(member)	ONE(page, member)
#define NODE(member)	ONE(node, member)
#define CHAIN(member)	ONE(chain, member)
#define POOL(member)	ONE(pool, member)
#define CACHE(member)	ONE(cache, member)
#define GROUP(member)	ONE(group, member)

static const struct kmem_record_field record[] = {
	CONST(area_shift), CONST(slob_unit), CONST(track),
	STRUCT(root),
	ROOT(discipline), ROOT(reason), ROOT(hardened), ROOT(percpu), ROOT(caches), ROOT(cache_count),
	ROOT(past_new_slabs), ROOT(past_freed_slabs), ROOT(arena.ranges), ROOT(arena.range), ROOT(arena.nodes),
	MANY(root, arena.zone), ROOT(arena.bind_failures), ROOT(large_blocks), ROOT(large_bytes), ROOT(growth_at),
	ROOT(own_pages), ROOT(mapped_blocks), ROOT(mapped_bytes), ROOT(mapped_kept), ROOT(mapped_spare),
	ROOT(mapped_ready), ROOT(mapped_table), ROOT(mapped_slots), ROOT(parked), ROOT(parked_count), ROOT(meta_bytes),
	ROOT(spans), ROOT(span_count), ROOT(slob_pages), ROOT(slob_units), ROOT(guarded), ROOT(guard_objects),
	ROOT(guard_live), ROOT(guard_samples), ROOT(guard_reports), ROOT(memcg), ROOT(control), ROOT(mail),
	ROOT(mail_report), ROOT(grace), ROOT(profile), ROOT(ways), ROOT(stacks),
	STRUCT(percpu),
	ONE(percpu, base), ONE(percpu, cpus), ONE(percpu, discipline),
	STRUCT(range),
	RANGE(base), RANGE(pages), RANGE(ready), RANGE(map), RANGE(page), RANGE(owner), RANGE(dirty),
	MANY(range, live),
	STRUCT(page),
	PAGE(cache), MANY(page, words), PAGE(word), PAGE(pages), PAGE(run), PAGE(inuse), PAGE(objects), PAGE(type),
	PAGE(order), PAGE(node),
	STRUCT(zone),
	ONE(zone, used_pages), ONE(zone, dirty_pages), ONE(zone, clean_pages), ONE(zone, purged_pages),
	STRUCT(engine),
	ONE(engine, name), ONE(engine, front), ONE(engine, field_count), ONE(engine, fields), ONE(engine, tune),
	STRUCT(node),
	NODE(slabs), NODE(objects), NODE(taken), NODE(partial), NODE(free_slabs), NODE(new_slabs), NODE(freed_slabs),
	NODE(shared), MANY(node, ready),
	STRUCT(chain),
	CHAIN(top.freelist), CHAIN(top.slab), CHAIN(slab), CHAIN(failures),
	STRUCT(big),
	ONE(big, start), ONE(big, bytes), ONE(big, owner),
	STRUCT(parked),
	ONE(parked, p), ONE(parked, bytes),
	STRUCT(pool),
	POOL(start), POOL(bytes), POOL(page_bytes), POOL(objects), POOL(slot), POOL(fields), POOL(field_count),
	STRUCT(span),
	ONE(span, start), ONE(span, end),
	STRUCT(grace),
	ONE(grace, slot), ONE(grace, pile),
	STRUCT(waiting),
	ONE(waiting, blocks),
	STRUCT(rcublock),
	ONE(rcublock, next), ONE(rcublock, count), MANY(rcublock, object),
	STRUCT(events),
	MANY(events, count),
	STRUCT(cache),
	CACHE(shelf.front.rseq), CACHE(shelf.inner.mask), CACHE(shelf.block_mask), CACHE(shelf.slot),
	CACHE(charged.block_mask), CACHE(charged.slot), CACHE(chain.slot), CACHE(capacity), CACHE(pad), CACHE(size),
	CACHE(object_size), CACHE(objects), CACHE(order), CACHE(slab_pages), CACHE(freeptr), CACHE(engine), CACHE(dead),
	CACHE(min_partial), CACHE(batchcount), CACHE(shared), CACHE(all.next), CACHE(all.prev), CACHE(group),
	CACHE(guarded), CACHE(sibling_of), CACHE(siblings), CACHE(twin_of), CACHE(past.new_slabs),
	CACHE(past.freed_slabs), CACHE(carried), CACHE(first), CACHE(colours), CACHE(tail_bits), CACHE(live_shift),
	CACHE(flags), CACHE(deferred), CACHE(align), CACHE(ctor), CACHE(references), CACHE(usersize),
	CACHE(defrag_ratio), CACHE(events), CACHE(percpu_offset), CACHE(percpu_bytes), MANY(cache, node),
	MANY(cache, name),
};

static const struct kmem_record_field groups[] = {
	STRUCT(view),
	ONE(view, root), ONE(view, stocks), ONE(view, stock_count),
	STRUCT(group),
	GROUP(memory.usage), GROUP(memory.peak), GROUP(memory.failcnt), GROUP(memory.max), GROUP(memory.high),
	GROUP(memory.low), GROUP(memory.min), GROUP(kmem.usage), GROUP(objcg), GROUP(parent), GROUP(online),
	GROUP(depth), GROUP(number), GROUP(children.next), GROUP(children.prev), GROUP(sibling.next),
	GROUP(sibling.prev), GROUP(objcgs.next), MANY(group, events), MANY(group, local), MANY(group, name),
	STRUCT(objcg),
	ONE(objcg, stock), ONE(objcg, nr_charged_bytes), ONE(objcg, home), ONE(objcg, link.next), ONE(objcg, link.prev),
	STRUCT(stock),
	MANY(stock, groups), MANY(stock, pages),
};

static const struct kmem_record_field sheaf[] = {
	STRUCT(sheaf),
	ONE(sheaf, barn.full), ONE(sheaf, barn.full_count), ONE(sheaf, barn.gets), ONE(sheaf, barn.puts),
	ONE(sheaf, remote),
	STRUCT(remote),
	MANY(remote, block),
};

static const struct kmem_record_field slab[] = {
	STRUCT(slab),
	ONE(slab, shared), ONE(slab, shared_limit), ONE(slab, slabs.counts.shared), ONE(slab, alien), ONE(slab, allocs),
	ONE(slab, high), ONE(slab, max_freeable),
	STRUCT(alien),
	ONE(alien, avail), MANY(alien, objects),
};

static const struct kmem_record_field slub[] = {
	STRUCT(slub),
	ONE(slub, cpu_partial), MANY(slub, events),
};

static const struct kmem_record_field slot[] = {
	STRUCT(slot),
	ONE(slot, state), ONE(slot, bytes), ONE(slot, object), ONE(slot, cache), ONE(slot, track[0].when),
	MANY(slot, track[0].frame),
};

#define TABLE(array)	{ array, sizeof(array) / sizeof((array)[0]) }

const struct rec_table rec_record = TABLE(record), rec_groups = TABLE(groups), rec_slots = TABLE(slot);

const struct rec_table *rec_engine_table(const char *engine)
{
	static const struct rec_table tables[] = { TABLE(sheaf), TABLE(slab), TABLE(slub) };

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		if (!strcmp(tables[i].fields->name, engine))
			return &tables[i];
	return NULL;
}
