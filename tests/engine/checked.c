/*
 * checked: kmem_check_all finds damage to the slabs, counts and lists of a cache at rest, for each engine, to the
 * cached blocks, and to the pages beneath; the report names the cache and the damage. The test damages each field in
 * turn, expects the report, repairs the field, and expects no other report. Not with hardened: no blocks of pages lie
 * ready. Not with nodes: limits and lists are those of one node.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include <kmem/kmem.h>

#include "kit/engine.h"

#include "cache/cache.h"
#include "slab/sheaf.h"
#include "engines/slab/slab.h"
#include "engines/slob/slob.h"
#include "engines/slub/slub.h"
#include "page/zone.h"

#define OBJECTS 100u

/* Reports of the check. */
static char told[4096];

static int look(void)
{
	struct km_heard heard = { .text = told, .bytes = sizeof(told) - 1 };

	km_thread.heard = &heard;
	int result = kmem_check_all();
	km_thread.heard = NULL;
	told[heard.length] = '\0';
	return result;
}

#define BROKEN(field, value, line)                                                                 \
	do {                                                                                       \
		__typeof__(field) whole = (field);                                                 \
		(field) = (value);                                                                 \
		CHECK(look() == -EIO);                                                             \
		CHECK(strstr(told, line), "%s: %s", #field, told);                                 \
		(field) = whole;                                                                   \
		CHECK(look() == 0, "%s: %s", #field, told);                                        \
	} while (0)

static struct kmem_cache *cache;
static void *objects[OBJECTS];

/* A cache with full slabs and one partial slab; no object is cached on CPUs. */
static void fill(const char *engine)
{
	cache = cache_of((struct kmem_cache_args){ .engine = engine }, 200, 0);
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, OBJECTS, objects));
	kmem_cache_free(cache, objects[OBJECTS / 2]);
	objects[OBJECTS / 2] = objects[OBJECTS - 1];
	kmem_cache_shrink(cache);
	NEED(look() == 0);
}

static void empty(void)
{
	kmem_cache_free_bulk(cache, OBJECTS - 1, objects);
	kmem_cache_destroy(cache);
}

static struct km_page *slab_of(void *object)
{
	return km_page_head(km_page_of(object));
}

/* A slab from the partial list. */
static struct km_page *partial_of(struct km_slabs *slabs)
{
	NEED(!km_list_empty(&slabs->partial));
	return km_container_of(slabs->partial.next, struct km_page, list);
}

static void counts_of_slabs(struct km_slabs *slabs, struct km_page *slab)
{
	BROKEN(slabs->counts.partial, slabs->counts.partial + 1, "partial");
	BROKEN(slab->cache, NULL, "check: ");
	BROKEN(slab->type, KM_PAGE_LARGE, "check: ");
}

static void sheaf(void)
{
	fill("sheaf");
	struct sheaf_node *n = sheaf_node(cache, 0);
	struct km_page *slab = partial_of(&n->slabs);

	counts_of_slabs(&n->slabs, slab);
	BROKEN(slab->node, slab->node + 1, "is on the partial list of node 0");
	BROKEN(slab->inuse, slab->inuse + 1, "as allocated, but its bits mark");
	BROKEN(n->slabs.counts.taken, n->slabs.counts.objects + 1, "objects are counted as allocated");
	BROKEN(n->barn.objects, n->barn.objects + 1, "the barn of node 0 has");
	empty();
}

static void slub(void)
{
	fill("slub");
	struct slub_node *n = slub_node(cache, 0);
	struct km_page *slab = partial_of(&n->slabs);

	counts_of_slabs(&n->slabs, slab);
	BROKEN(slub_slab(slab)->word, slub_slab(slab)->word + 1, "as allocated, frozen 0, but");
	BROKEN(slub_slab(slab)->word, slub_slab(slab)->word | SLUB_FROZEN, "as allocated, frozen 1, but");
	BROKEN(slab->objects, slab->objects - 1, "as allocated, frozen 0, but");
	/* A slab owned by this CPU, with more slabs behind it. */
	void *one = kmem_cache_alloc(cache, GFP_KERNEL);
	NEED(one);
	BROKEN(slub_slab(slab_of(one))->word, slub_slab(slab_of(one))->word & ~SLUB_FROZEN, "of a CPU counts");
	kmem_cache_free(cache, one);
	for (unsigned i = 0; i < OBJECTS - 1; i += 4)
		kmem_cache_free(cache, objects[i]);
	NEED(look() == 0);
	km_for_each_cpu(cpu) {
		struct km_chain_link *link;
		struct km_chain_top top;

		km_chain_look_cpu(&cache->fast.chain, cpu, &top, &link);
		if (link)
			BROKEN(link->count, link->count + 1, "partial slabs, but");
	}
	for (unsigned i = 0; i < OBJECTS - 1; i += 4)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	empty();
}

static void slab(void)
{
	fill("slab");
	struct slab_node *n = slab_node(cache, 0);
	struct km_node_counts *counts = &n->slabs.counts;
	struct km_page *slab = partial_of(&n->slabs);

	BROKEN(slab->cache, NULL, "its list has");
	BROKEN(slab->type, KM_PAGE_LARGE, "its list has");
	BROKEN(slab->inuse, slab->inuse - 1, "its list has");
	BROKEN(slab->inuse, 0, "a free slab is on the list of partial slabs");
	BROKEN(slab->inuse, slab->objects, "a full slab is on the list of partial slabs");
	BROKEN(slab_slab(slab)->freelist[slab->inuse], (uint8_t)255, "its list has");
	BROKEN(counts->partial, counts->partial + 1, "partial");
	BROKEN(counts->free_slabs, counts->free_slabs + 1, "free");
	BROKEN(counts->slabs, counts->slabs + 1, "slabs");
	BROKEN(counts->objects, counts->objects + 1, "objects allocated; counted: ");
	BROKEN(counts->taken, counts->taken + 1, "objects allocated; counted: ");
	BROKEN(counts->shared, n->ready + 1, "objects allocated; counted: ");
	empty();
}

static void slob(void)
{
	fill("slob");
	struct km_slob_node *n = km_slob_node(cache);
	struct km_page *page = km_page_of(objects[1]);
	struct km_slob_page *of;

	/* Free blocks, with what is not free between them. */
	for (unsigned i = 0; i < OBJECTS - 1; i += 2)
		kmem_cache_free(cache, objects[i]);
	for (unsigned i = 1; i < OBJECTS - 1 && km_slob_page(page)->first_free == KM_SLOB_UNITS; i += 2)
		page = km_page_of(objects[i]);
	of = km_slob_page(page);
	NEED(of->first_free != KM_SLOB_UNITS && look() == 0);
	struct kmem_record_slob_free *block = (void *)((char *)km_page_address(page) + of->first_free * KM_SLOB_UNIT);

	BROKEN(n->counts.taken, n->counts.objects + 1, "but the list of type-safe free objects has");
	BROKEN(n->counts.taken, n->counts.taken - 1, "but the list of type-safe free objects has");
	BROKEN(km_slob.pages, km_slob.pages + 1, "pages with free units are on lists");
	BROKEN(km_slob.units, km_slob.units + 1, "pages with free units are on lists");
	BROKEN(km_slob.blocks, km_slob.blocks + 1, "pages with free units are on lists");
	BROKEN(of->free_units, of->free_units + 1, "units as free, but its free blocks have");
	BROKEN(of->largest, 0, "units as free, but its free blocks have");
	BROKEN(block->units, block->units + 1, "units as free, but its free blocks have");
	BROKEN(block->next, (uint16_t)(of->first_free), "units as free, but its free blocks have");
	BROKEN(page->flags, page->flags & ~KM_SLAB_PARTIAL, "units as free, but its free blocks have");
	for (unsigned i = 0; i < OBJECTS - 1; i += 2)
		NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
	empty();
}

/* Large blocks of a class. */
static void cached(void)
{
	void *block[8];

	for (unsigned i = 0; i < 64; i++)
		kfree(kmalloc(40000, GFP_KERNEL));
	for (unsigned i = 0; i < 8; i++)
		NEED((block[i] = kmalloc(40000, GFP_KERNEL)));
	struct km_page *page = km_page_of(block[0]);
	struct kmem_cache *class = page->cache;
	NEED(page->type == KM_PAGE_LARGE && class);
	struct km_node_counts *counts = class->state.node[0];
	BROKEN(counts->objects, counts->objects + 1, "blocks have a wrong length");
	BROKEN(page->pages, page->pages + 1, "blocks have a wrong length");
	for (unsigned i = 0; i < 8; i++)
		kfree(block[i]);
}

static void pages(void)
{
	struct km_zone *zone = &km_arena.zone[0];

	BROKEN(zone->pages.dirty_pages, zone->pages.dirty_pages + 1, "pages have a dirty bit, but");
	BROKEN(zone->pages.clean_pages, zone->pages.clean_pages + 1, "check: node 0: the lists have");
	BROKEN(zone->pages.used_pages, zone->pages.used_pages + 1, "are counted");
	for (unsigned kind = 0; kind < 2; kind++)
		for (unsigned bin = 0; bin < KM_RUN_BINS; bin++) {
			struct km_list *list = &zone->bin[kind][bin];

			if (!list->next || km_list_empty(list))
				continue;
			struct km_page *run = km_container_of(list->next, struct km_page, list);
			BROKEN(run->type, KM_PAGE_LARGE, "is damaged");
			BROKEN(run->dirty, run->dirty + 1, "is damaged");
		}
}

int main(void)
{
	km_layout_options.count_events = true;
	sheaf();
	slub();
	slab();
	slob();
	cached();
	pages();
	return failures != 0;
}
