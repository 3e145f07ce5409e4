/*
 * day.h: the model of a day (day.c): the existing caches and groups, the allocated objects, their groups and
 * contents. An object is in the model from its allocation until the moment before its free. Objects in the hands
 * of threads inside a call are not in the model.
 */
#ifndef MODEL_DAY_H
#define MODEL_DAY_H

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/mempool.h>
#include <kmem/rcu.h>
#include <kmem/stats.h>

#include "simulated.h"

#define CACHES	16u
#define GROUPS	5u
#define OBJECTS	3000u
#define BULK	120u
#define MOST	((size_t)64 << 20)	/* allocated bytes */

/* Numbers above the caches: an object is kmalloc's, or the pool's. */
enum { KMALLOC = CACHES, POOL };

struct model_cache {
	struct kmem_cache *cache;
	size_t size, live, in_sheaf;
	unsigned users;			/* threads inside one of its calls */
	slab_flags_t flags;
	bool slob, constructed, going;
	bool late;			/* a freed object may wait for the next miss */
	struct slab_sheaf *sheaf;
};

struct model_group {
	struct mem_cgroup *group;
	size_t live, bytes;
	uint64_t max;
	unsigned users;
};

struct object {
	unsigned char *p;
	size_t bytes;
	uint64_t mark;
	unsigned cache, group;		/* GROUPS: uncharged */
};

static struct {
	struct model_cache cache[CACHES];
	struct model_group group[GROUPS];
	struct object object[OBJECTS];
	size_t count, bytes, on_the_way;	/* bytes of requests under way */
	uint64_t end, next_event, next_rest, operations, rests, nothing, next_mark;
	mempool_t *pool;
	struct kmem_rcu_head *grace;
	void (*grace_ends)(struct kmem_rcu_head *head);
} day;

/* ------------------------------------------------------------------ objects */

#define CONSTRUCTED 0xc7

static void construct(void *p)
{
	memset(p, CONSTRUCTED, 96);
}

static unsigned char byte_of(const struct object *object, size_t at)
{
	return (unsigned char)((object->mark * 0x9e3779b97f4a7c15u + at * 0xc2b2ae3d27d4eb4fu) >> 56);
}

/* For a large object only the ends. */
static size_t next_byte(const struct object *object, size_t at)
{
	return at == 255 && object->bytes > 512 ? object->bytes - 256 : at + 1;
}

static bool is_constructed(const struct object *object)
{
	return object->cache < CACHES && day.cache[object->cache].constructed;
}

static void check_content(const struct object *object)
{
	bool constructed = is_constructed(object);

	for (size_t at = 0; at < object->bytes; at = next_byte(object, at))
		NEED(object->p[at] == (constructed ? CONSTRUCTED : byte_of(object, at)),
		     "%p of %zu bytes, cache %u%s: byte %zu is %#x, operation %lu", (void *)object->p,
		     object->bytes, object->cache, constructed ? ", constructed" : "", at, object->p[at],
		     (unsigned long)day.operations);
}

static void born(void *p, size_t bytes, unsigned cache, unsigned group, bool zero)
{
	struct object *object = &day.object[day.count];

	NEED(day.count < OBJECTS);
	*object = (struct object){ p, bytes, day.next_mark++, cache, group };
	for (size_t at = 0; zero && at < bytes; at = next_byte(object, at))
		NEED(!object->p[at]);
	if (is_constructed(object))
		check_content(object);
	else
		for (size_t at = 0; at < bytes; at = next_byte(object, at))
			object->p[at] = byte_of(object, at);
	day.count++;
	day.bytes += bytes;
	if (cache < CACHES)
		day.cache[cache].live++;
	if (group < GROUPS) {
		day.group[group].live++;
		day.group[group].bytes += bytes;
	}
}

/* The caller frees the object; the cache stays in use until then. */
static struct object died(size_t i)
{
	struct object object = day.object[i];

	check_content(&object);
	day.object[i] = day.object[--day.count];
	day.bytes -= object.bytes;
	if (object.cache < CACHES)
		day.cache[object.cache].live--;
	if (object.group < GROUPS) {
		day.group[object.group].live--;
		day.group[object.group].bytes -= object.bytes;
	}
	return object;
}

static void free_object(const struct object *object)
{
	struct model_cache *c = object->cache < CACHES ? &day.cache[object->cache] : NULL;
	unsigned how = (unsigned)sim_below(8);

	if (object->cache == POOL) {
		mempool_free(object->p, day.pool);
	} else if (c) {
		if (how == 0) {
			c->late = true;
			kmem_cache_free_nolock(c->cache, object->p);
		} else if (how < 3 && !c->slob) {
			kfree(object->p);
		} else {
			kmem_cache_free(c->cache, object->p);
		}
	} else if (how == 0 && object->bytes >= 16) {
		kmem_free_rcu(object->p, 0);
	} else if (how == 1 && object->bytes <= KMALLOC_MAX_CACHE_SIZE) {
		kfree_nolock(object->p);
	} else if (how == 2) {
		kvfree_sensitive(object->p, object->bytes);
	} else {
		kvfree(object->p);
	}
}

/* ------------------------------------------------------------------ requests */

/* Requests of other threads under way count as well, and leave room for their objects. */
struct request {
	size_t count, bytes;
	uint64_t refused;
	unsigned cache, group;
	bool may_fail;
	gfp_t gfp;
};

static size_t on_the_way_count;

static bool begin_request(struct request *r, size_t count, size_t each, unsigned cache, unsigned group)
{
	static const gfp_t gfps[] = { GFP_KERNEL, GFP_KERNEL, GFP_KERNEL, GFP_NOWAIT };

	if (day.count + on_the_way_count + count > OBJECTS || day.bytes + day.on_the_way + count * each > MOST)
		return false;
	*r = (struct request){
		.count = count, .bytes = each, .refused = sim.refused, .cache = cache, .group = group,
		.gfp = gfps[sim_below(4)] | __GFP_NOWARN,
	};
	r->may_fail = group < GROUPS || !(r->gfp & __GFP_DIRECT_RECLAIM);
	if (!sim_below(4))
		r->gfp |= __GFP_ZERO;
	on_the_way_count += count;
	day.on_the_way += count * each;
	if (cache < CACHES)
		day.cache[cache].users++;
	if (group < GROUPS)
		day.group[group].users++;
	return true;
}

static void end_request(struct request *r, void *const *objects, size_t got)
{
	bool zero = r->gfp & __GFP_ZERO && !(r->cache < CACHES && day.cache[r->cache].constructed);

	on_the_way_count -= r->count;
	day.on_the_way -= r->count * r->bytes;
	if (r->cache < CACHES)
		day.cache[r->cache].users--;
	if (r->group < GROUPS)
		day.group[r->group].users--;
	NEED(got || r->may_fail || sim.refused != r->refused, "nothing, and the system refused nothing: operation %lu",
	     (unsigned long)day.operations);
	day.nothing += !got;
	sim_note(got);
	for (size_t i = 0; i < got; i++)
		born(objects[i], r->bytes, r->cache, r->group, zero);
}

static unsigned some_cache(void)
{
	unsigned at = (unsigned)sim_below(CACHES);

	for (unsigned i = 0; i < CACHES; i++, at = (at + 1) % CACHES)
		if (day.cache[at].cache && !day.cache[at].going)
			return at;
	return CACHES;
}

/* Mostly none. */
static unsigned some_group(void)
{
	unsigned at = (unsigned)sim_below(4 * GROUPS);

	return at < GROUPS && day.group[at].group ? at : GROUPS;
}

static size_t some_bytes(void)
{
	uint64_t which = sim_below(200);

	if (!which)
		return 1 + sim_below((size_t)9 << 20);
	return which < 8 ? 1 + sim_below(200000) : which < 30 ? 1 + sim_below(9000) : 1 + sim_below(600);
}

#endif
