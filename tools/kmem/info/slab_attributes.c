/*
 * slab_attributes.c: read a cache's attributes for files in the style of the kernel's /sys/kernel/slab: flags,
 * numbers by node, and events. An engine may count some events by node or by CPU; the sums equal kmem_cache_event's.
 * Invariant: an attribute is INFO_UNKNOWN if the process's build does not record the attribute. No number of the
 * process is used as an index.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "info/info.h"
#include "command.h"

#define MOST_WORDS	64u	/* limit: event counters of a cache on one CPU */

struct full {
	struct target *target;
	struct info_root *root;
	const struct rec_percpu *percpu;
	const struct rec_cache *cache;
	struct info_full *into;
};

static void add(unsigned long *sum, unsigned long n)
{
	*sum = *sum == INFO_UNKNOWN || n == INFO_UNKNOWN ? INFO_UNKNOWN : *sum + n;
}

static unsigned long minus(unsigned long a, unsigned long b)
{
	return a > b ? a - b : 0;
}

/* ------------------------------------------------------------------ slabs */

void full_node(struct info_full *full, unsigned node, const struct rec_node *counts, unsigned objects, bool says)
{
	unsigned long wholly = minus(minus(counts->slabs, counts->partial), counts->free_slabs);

	full->node[node] = (struct info_node){ .slabs = counts->slabs, .objects = counts->objects,
					       .partial = counts->partial,
					       .partial_objects = says ? 0 : INFO_UNKNOWN };
	if (says && counts->taken != KMEM_RECORD_NOT_KEPT)
		full->node[node].partial_objects = minus(counts->taken, wholly * objects);
}

void full_slub_slab(struct info_full *full, unsigned node, uint64_t word)
{
	if (KMEM_RECORD_SLUB_FROZEN(word))
		add(&full->frozen, 1);
	else if (KMEM_RECORD_SLUB_OBJECTS(word) > KMEM_RECORD_SLUB_INUSE(word) && node < KMEM_RECORD_NODES)
		add(&full->node[node].partial_objects, KMEM_RECORD_SLUB_INUSE(word));
}

void full_add(struct info_full *full, const struct info_full *more)
{
	for (unsigned i = 0; i < KMEM_RECORD_NODES; i++) {
		full->node[i].slabs += more->node[i].slabs;
		full->node[i].objects += more->node[i].objects;
		full->node[i].partial += more->node[i].partial;
		add(&full->node[i].partial_objects, more->node[i].partial_objects);
	}
	for (unsigned i = 0; i < KMEM_NR_EVENTS; i++)
		add(&full->events[i], more->events[i]);
	add(&full->cpu_slabs, more->cpu_slabs);
	add(&full->frozen, more->frozen);
	full->tracked |= more->tracked;
}

/* ------------------------------------------------------------------ events */

/* Returns: n, a number of the engine's node; INFO_UNKNOWN if the process's build lacks the field `name`. */
static unsigned long of_node(const struct full *full, const char *name, unsigned long n)
{
	return layout_has(&full->root->layout, name) ? n : INFO_UNKNOWN;
}

static bool add_sheaf(struct full *full, const void *node)
{
	struct rec_sheaf n;

	if (!target_struct(full->target, &full->root->layout, INFO_SHEAF, &n, node))
		return false;
	add(&full->into->events[KMEM_BARN_GET], of_node(full, "sheaf.barn.gets", n.barn.gets));
	add(&full->into->events[KMEM_BARN_PUT], of_node(full, "sheaf.barn.puts", n.barn.puts));
	return true;
}

static bool add_slab(struct full *full, const void *node)
{
	struct rec_slab n;

	if (!target_struct(full->target, &full->root->layout, INFO_SLAB, &n, node))
		return false;
	add(&full->into->events[KMEM_ALLOCS], of_node(full, "slab.allocs", n.allocs));
	add(&full->into->events[KMEM_HIGH], of_node(full, "slab.high", n.high));
	add(&full->into->events[KMEM_MAX_FREEABLE], of_node(full, "slab.max_freeable", n.max_freeable));
	return true;
}

/* Add the number of CPUs with a CPU slab, and the events that CPUs count. */
static bool add_cpus(struct full *full)
{
	const unsigned cpus = full->percpu->cpus;
	const size_t each = layout_bytes(&full->root->layout, INFO_CHAIN), words = full->cache->percpu_bytes / 8;
	const bool separate = full->percpu->discipline == KMEM_RECORD_CMPXCHG;
	struct info_full *into = full->into;
	char *states = target_room(full->target, cpus, each + MOST_WORDS * sizeof(uint64_t));
	uint64_t *counts = (uint64_t *)states;
	bool ok = states;

	if (ok && full->cache->percpu_offset && words && words <= MOST_WORDS) {
		ok = target_per_cpu(full->target, full->root, full->percpu, full->cache->percpu_offset, counts,
				    words * sizeof(*counts));
		for (size_t i = 0; ok && i < cpus * words; i++)
			if (i % words < KMEM_NR_EVENTS)
				add(&into->events[i % words], counts[i]);
	}
	if (ok && full->cache->chain.slot && each) {
		ok = target_per_cpu(full->target, full->root, full->percpu, full->cache->chain.slot, states, each);
		for (unsigned cpu = 0; ok && cpu < cpus; cpu++) {
			struct rec_chain state;

			layout_take(&full->root->layout, INFO_CHAIN, &state, states + cpu * each);
			add(&into->cpu_slabs, (separate ? state.slab : state.top.slab) != 0);
			add(&into->events[KMEM_CMPXCHG_DOUBLE_CPU_FAIL], separate ? state.failures : 0);
		}
	}
	free(states);
	return ok;
}

static bool add_slub(struct full *full, const void *node)
{
	struct rec_slub n;

	if (!target_struct(full->target, &full->root->layout, INFO_SLUB, &n, node) || !add_cpus(full))
		return false;
	full->into->cpu_partial = of_node(full, "slub.cpu_partial", n.cpu_partial);
	for (unsigned i = 0; i < KMEM_NR_EVENTS; i++)
		add(&full->into->events[i], of_node(full, "slub.events", n.events[i]));
	/* SLUB counts a free to a frozen slab only as KMEM_FREE_FROZEN, but the free takes the slow path too. */
	add(&full->into->events[KMEM_FREE_SLOWPATH], full->into->events[KMEM_FREE_FROZEN]);
	return true;
}

static bool add_engine(struct full *full, const struct rec_engine *engine, const char *name)
{
	static const struct {
		const char *engine;
		bool (*add)(struct full *full, const void *node);
		bool first;		/* the first node holds the numbers of all nodes */
	} parts[] = {
		{ "sheaf", add_sheaf, false }, { "slab", add_slab, false }, { "slub", add_slub, true },
	};

	for (size_t i = 0; i < KMEM_COUNT(parts); i++) {
		if (strcmp(parts[i].engine, name))
			continue;
		if (!layout_load_engine(full->target, &full->root->layout, name, engine))
			return false;
		for (unsigned node = 0; node < (parts[i].first ? 1 : KMEM_RECORD_NODES); node++)
			if (full->cache->node[node] && !parts[i].add(full, full->cache->node[node]))
				return false;
	}
	return true;
}

/* ------------------------------------------------------------------ a cache */

static void take_fields(const struct layout *layout, const struct rec_cache *cache, struct info_full *full)
{
	const struct {
		const char *name;
		unsigned long value, *to;
	} fields[] = {
		{"cache.flags", cache->flags, &full->flags},
		{"cache.align", cache->align, &full->align},
		{"cache.usersize", cache->usersize, &full->usersize},
		{"cache.references", (unsigned long)cache->references, &full->references},
		{"cache.defrag_ratio", cache->defrag_ratio, &full->defrag_ratio},
		{"cache.ctor", cache->ctor, &full->ctor},
		{"cache.carried", cache->carried & KMEM_RECORD_DEBUG_FLAGS, &full->carried},
		{"cache.chain.slot chain.top.slab chain.slab percpu.discipline", 0,
		 &full->cpu_slabs},
		{INFO_SCAN_NEEDS, 0, &full->frozen},
	};

	for (size_t i = 0; i < KMEM_COUNT(fields); i++)
		*fields[i].to = layout_has(layout, fields[i].name) ? fields[i].value : INFO_UNKNOWN;
	full->tracked = ((full->flags != INFO_UNKNOWN ? full->flags : 0) |
			 (full->carried != INFO_UNKNOWN ? full->carried : 0)) & SLAB_STORE_USER;
}

bool full_read(struct target *target, struct info_root *root, const struct rec_percpu *percpu,
	       const struct rec_engine *engine, const char *engine_name, const struct rec_cache *cache,
	       struct info_full *full)
{
	struct full reading = { target, root, percpu, cache, full };
	const struct layout *layout = &root->layout;
	const bool has_events = layout_has(layout, "cache.events events.count cache.percpu_bytes");
	struct rec_events events = { { 0 } };

	take_fields(layout, cache, full);
	if (has_events && cache->events &&
	    !target_struct(target, layout, INFO_EVENTS, &events, cache->events))
		return false;
	for (unsigned i = 0; i < KMEM_NR_EVENTS; i++)
		full->events[i] = has_events ? events.count[i] : INFO_UNKNOWN;
	return add_engine(&reading, engine, engine_name);
}
