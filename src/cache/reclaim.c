/*
 * reclaim.c: memory goes back: on shrink, by age, under pressure. No thread works here: misses, and calls with many
 * freed pages, run the tick. The tick reads a coarse clock, and does a small part of the work when the work is due.
 * Invariants: independent of the clock, free resident memory is at most a quarter of the memory in use plus a floor
 * and a swing (page/purge.c). A tick visits at most MAX_VISITS caches; the next tick goes on with the other caches.
 */
#include <errno.h>

#include "page/commit_ahead.h"
#include "page/huge.h"
#include "page/metadata.h"
#include "page/addr_reuse.h"
#include "kmalloc/realloc_run.h"
#include "mailbox.h"

static struct {
	uint64_t next_purge_ms, next_reap_ms, next_look_ms, last_tick_ms;
	struct km_lock lock;		/* ticks only try the lock; a request without pages waits for it */
	uint32_t flushes;		/* flushes of all caches for lack of pages, begun; written under the lock */
	size_t peak_pages;		/* pages in use at most, since cached objects were last given back */
	size_t swept_since;		/* the current sweep drains caches not wanted since (km_slab_clock) */
	bool sweeping;			/* the current sweep has more caches to visit */
	/* The current or last round of reaping. */
	uint64_t began_ms;
	bool quiet, purges;		/* in this round all is idle; so long that free pages go to the system, too */
	/* Caches visited so far, and the count to reach for the last requested round: every cache present at the
	 * request is then visited. A tick may begin a round anew, so only the count tells when a requested round
	 * is complete. */
	uint64_t visited, wanted;
} reclaim = { .lock = KM_LOCK_INIT(KM_RANK_RECLAIM) };

/* Caches visited by one tick: about 80 us if no cache is in the processor's caches. */
#define MAX_VISITS 256u
/* Caches gathered in a round, such as caches idle for two looks. The list is static, not on the stack: a tick runs at
 * the end of a miss, possibly in a signal handler with a small stack. Protected by reclaim.lock. */
#define MAX_IDLE 128u
static struct {
	struct kmem_cache *cache[MAX_IDLE], *left[MAX_IDLE];	/* cache: idle caches; left: caches in use, but with
								 * objects on CPUs of left_cpus */
	size_t count, left_count;
	bool quiet;			/* no miss for the decay time, or the memory in use fell */
} idle;

/* CPUs on which no miss occurred for two rounds. The objects cached there are drained: threads run elsewhere now, or
 * hit, and then a later miss brings objects back. A round handles MAX_LEFT CPUs; the next round handles others. */
#define MAX_LEFT 16u
#define IDLE_LOOKS 2u
static struct {
	uint16_t cpu[MAX_LEFT];
	size_t count;
} left_cpus;

static void look_at_cpus(void)
{
	left_cpus.count = 0;
	km_for_each_cpu(cpu) {
		uint8_t looks = km_load(&km_alloc_looks[cpu]);

		if (looks > IDLE_LOOKS || (looks == IDLE_LOOKS && left_cpus.count == MAX_LEFT))
			continue;
		km_debug(left_cpus.count <= MAX_LEFT, "a round is for some CPUs only");
		if (looks == IDLE_LOOKS)
			left_cpus.cpu[left_cpus.count++] = (uint16_t)cpu;
		km_store(&km_alloc_looks[cpu], (uint8_t)(looks + 1));
	}
}

static int reap_cache(struct kmem_cache *cache, void *arg km_unused)
{
	/* No room in the lists: visit this cache in the next tick. */
	if (idle.count == MAX_IDLE || idle.left_count == MAX_IDLE)
		return 1;
	/* Engines with a look() of their own are trimmed by look(), except when all is idle. */
	if (cache->layout.engine->array.look && !idle.quiet)
		return 0;
	if (cache->layout.engine->reap)
		cache->layout.engine->reap(cache);
	km_store(&cache->state.misses, (uint16_t)0);
	if (km_load(&cache->state.touched)) {
		km_store(&cache->state.touched, false);
		cache->state.idle_looks = 0;
		if (!idle.quiet && km_alloc_lies_on(cache, left_cpus.cpu, left_cpus.count)) {
			km_debug(idle.left_count < MAX_IDLE, "a tick gathers a few caches only");
			idle.left[idle.left_count++] = cache;
		}
		if (!idle.quiet)
			return 0;
	}
	/* The second round in a row without a miss drains the cache. */
	if (cache->state.idle_looks == 0 && !idle.quiet) {
		cache->state.idle_looks = 1;
	} else if (cache->state.idle_looks < 2) {
		cache->state.idle_looks = 2;
		km_debug(idle.count < MAX_IDLE, "a tick gathers a few caches only");
		idle.cache[idle.count++] = cache;
	}
	return 0;
}

/* Drain the gathered caches. The registry stays locked, so no cache is made or destroyed meanwhile. */
static void drain_idle(void *arg km_unused)
{
	km_debug(km_is_locked(&reclaim.lock), "one thread reaps at a time");
	if (idle.left_count)
		km_alloc_leave_all(idle.left, idle.left_count, left_cpus.cpu, left_cpus.count);
	if (idle.count)
		km_alloc_drain_all(idle.cache, idle.count);
	for (size_t i = 0; i < idle.count; i++) {
		const struct km_engine *engine = idle.cache[i]->layout.engine;

		km_alloc_resize(idle.cache[i], km_load(&idle.cache[i]->fast.capacity));
		(engine->rest ?: engine->shrink)(idle.cache[i]);
	}
}

void km_reclaim_fit(size_t limit)
{
	km_debug(km_thread.busy, "a thread that releases address space is marked busy");
	km_arena_fit(limit);
	km_metadata_fit(limit);
	km_percpu_fit(limit);
}

void km_reclaim_limited(void)
{
	const size_t limit = km_os_address_limit();

	if (!km_os_is_limited())
		return;
	km_huge_purge(0);
	if (limit != SIZE_MAX)
		km_reclaim_fit(limit);
}

/* Looks for changed limits, because the program or another process may have changed them. */
static void look_at_limits(void)
{
	if (!km_thread_is_lent() && km_os_limits_changed())
		km_reclaim_limited();
}

/* Purge the pages freed by a quiet round, because they have been idle for the decay time. */
static void purge_all(void)
{
	km_debug(km_is_locked(&reclaim.lock), "one thread at a time releases memory");
	km_growth_shed(0);
	km_pages_purge(0);
	km_huge_purge(0);
}

static bool is_visited(uint64_t until)
{
	return reclaim.visited >= until;
}

/* Reap some caches. fell: the memory in use fell so far that cached objects should follow. quiet: no miss for the decay
 * time. With either, or after a request for a round, ticks visit all caches from now on; else some caches whenever the
 * coarse clock moves. */
static void reap(uint64_t now, bool fell, bool quiet)
{
	km_debug(km_is_locked(&reclaim.lock), "one thread reaps at a time");
	struct km_round *round = &km_rounds[KM_ROUND_REAP];

	if (!round->left) {
		reclaim.began_ms = now;
		reclaim.quiet = reclaim.purges = false;
		look_at_cpus();
	}
	if (fell || quiet || !round->left)
		round->left = km_registry_count();
	reclaim.quiet |= fell || quiet || !is_visited(reclaim.wanted);
	reclaim.purges |= quiet;
	idle.count = idle.left_count = 0;
	idle.quiet = reclaim.quiet;
	const size_t before = round->left;
	km_registry_try_some(round, MAX_VISITS, reap_cache, NULL, drain_idle);
	reclaim.visited += before - round->left;
	if (round->left) {
		km_store(&reclaim.next_reap_ms, reclaim.quiet ? now : now + 1);
		return;
	}
	km_store(&reclaim.next_reap_ms, km_max(reclaim.began_ms + km_arena_decay_ms() / 2, now) + 1);
	if (reclaim.purges)
		purge_all();
}

/* Milliseconds between two rounds of look(), for engines with a schedule of their own (slab). Kernel: REAPTIMEOUT_AC, a
 * timer and a work item for each CPU. */
#define LOOK_MS 2000u

static int look_at_cache(struct kmem_cache *cache, void *now_ms)
{
	if (idle.count == MAX_IDLE)
		return 1;
	if (cache->layout.engine->array.look && cache->layout.engine->array.look(cache, *(uint64_t *)now_ms))
		idle.cache[idle.count++] = cache;
	return 0;
}

static void trim_looked_at(void *now_ms km_unused)
{
	if (idle.count)
		km_alloc_trim_all(idle.cache, idle.count);
}

static void look(uint64_t now)
{
	struct km_round *round = &km_rounds[KM_ROUND_LOOK];

	km_debug(km_is_locked(&reclaim.lock), "one thread at a time visits caches");
	idle.count = 0;
	if (!round->left)
		round->left = km_registry_count();
	km_registry_try_some(round, MAX_VISITS, look_at_cache, &now, trim_looked_at);
	km_store(&reclaim.next_look_ms, now + (round->left ? 1 : LOOK_MS));
}

static void tidy(bool all)
{
	if (km_has_accounting())
		km_charge_ops->tidy(all);
	km_metadata_trim(all);
	km_percpu_trim(all);
}

/* Number of purges, a quarter of the decay time apart, after which an unchanged run of pages for growing blocks is
 * freed. */
#define SHED_LOOKS 4u

static void purge(uint64_t now)
{
	unsigned decay = km_arena_decay_ms();

	km_debug(km_is_locked(&reclaim.lock), "one thread at a time releases memory");
	if (now >= km_load(&reclaim.next_purge_ms)) {
		km_store(&reclaim.next_purge_ms, now + decay / 4 + 1);
		look_at_limits();
		km_growth_shed(SHED_LOOKS);
		km_pages_purge(decay);
		km_huge_purge(decay);
		tidy(false);
		/* While memory is committed ahead, do not release ranges: prefault would commit their pages anew. */
		if (!km_ahead_level())
			km_ranges_release(true);
	}
	if (km_pages_too_dirty())
		km_pages_trim();
}

/* Purges pages without allocated objects in slabs that stay. */
static int hollow_cache(struct kmem_cache *cache, void *arg)
{
	size_t *pages = arg, now = cache->layout.engine->hollow ? cache->layout.engine->hollow(cache) : 0;

	km_debug(km_thread.busy, "a thread that releases memory is marked busy");
	if (pages)
		*pages += now;
	return 0;
}

/* Sweeps for which a cache is spared, at most. */
#define MAX_SPARED 7u

/* A cache drained by a sweep and wanted again soon after was in use: spare the cache for one sweep, then for three, for
 * seven. So a program that uses hundreds of caches in turn does not make and free their slabs for ever. */
static bool is_spared(struct kmem_cache *cache, bool wanted)
{
	struct km_cache_state *state = &cache->state;

	if (state->swept && wanted)
		state->spared = state->spared_next = (uint8_t)km_min(2u * state->spared_next + 1, MAX_SPARED);
	state->swept = false;
	if (!state->spared)
		return wanted;
	state->spared--;
	return true;
}

static int sweep_cache(struct kmem_cache *cache, void *since)
{
	if (idle.count == MAX_IDLE)
		return 1;
	if (!cache->layout.engine->hollow ||
	    is_spared(cache, km_load(&cache->state.wanted_at) >= *(const size_t *)since))
		return 0;
	cache->state.swept = true;
	idle.cache[idle.count++] = cache;
	return 0;
}

static void hollow_swept(void *arg km_unused)
{
	if (idle.count)
		km_alloc_drain_all(idle.cache, idle.count);
	for (size_t i = 0; i < idle.count; i++)
		idle.cache[i]->layout.engine->rest(idle.cache[i]);
}

static bool sweep_is_due(void)
{
	return km_load(&reclaim.sweeping) || km_pages_too_slack();
}

static void sweep(void)
{
	struct km_round *round = &km_rounds[KM_ROUND_SWEEP];

	idle.count = 0;
	if (!round->left) {
		round->left = km_registry_count();
		reclaim.swept_since = km_pages_sweep_since();
	}
	km_registry_try_some(round, MAX_VISITS, sweep_cache, &reclaim.swept_since, hollow_swept);
	km_store(&reclaim.sweeping, round->left != 0);
	if (!round->left)
		km_pages_swept();
	/* The sheaves of drained barns. */
	if (idle.count)
		km_metadata_trim(false);
}

/* Most passes of one tick. */
#define MAX_LOOKS 4

/* A smaller drop of memory in use, in pages, is not worth a drain of the sheaves. */
#define DROP_PAGES 512u

/* Returns: whether the memory in use fell by a quarter. The few objects in sheaves and barns then keep otherwise empty
 * slabs, and a program that sleeps afterwards has no misses to free them. A drop costs about 100 us. */
static bool use_fell(void)
{
	size_t used = km_pages_there(), peak = km_load(&reclaim.peak_pages);

	if (used > peak)
		km_store(&reclaim.peak_pages, used);
	return used < peak && peak - used > km_max(peak / 4, (size_t)DROP_PAGES) + km_pages_swing();
}

static void look_around(uint64_t now, bool fell, bool quiet)
{
	if (fell || now >= km_load(&reclaim.next_reap_ms)) {
		reap(now, fell, quiet);
		if (fell)
			km_store(&reclaim.peak_pages, km_pages_there());
	}
	if (now >= km_load(&reclaim.next_look_ms))
		look(now);
	if (sweep_is_due())
		sweep();
	purge(now);
}

static void tick(void)
{
	if (km_unlikely(km_thread.no_calls))
		return;
	if (km_unlikely(km_ahead_wanted()))
		km_ahead_top_up();
	if (km_unlikely(km_control_wanted()) && km_control_ops)
		km_control_ops->tick();
	/* Open the fast-path gate again: the request was served or never read, or its command died halfway. */
	if (km_way_is_shut(km_load(&km_rseq)) && !km_load(&km_gate_kept))
		km_gate_open();
	if (km_unlikely(km_load_acquire(&km_grace)))
		km_grace->go();
	km_probes_look();
	uint64_t now = km_os_now_ms(), last = km_load(&reclaim.last_tick_ms);
	if (km_guarded.bytes)
		km_guard_ops->tick(now);
	if (km_unlikely(km_options.observed))
		km_observer_ops->tick(now);
	bool fell = use_fell();

	if (now != last) {
		km_store(&reclaim.last_tick_ms, now);
		if (km_unlikely(km_boot_is_borrower())) {
			/* Clear the flag and the child's requests during the report: the report may end the child, and
			 * the parent goes on with the same thread variables. */
			const struct km_thread mine = km_thread;

			km_debug(!km_thread.locks_held, "the parent gets no locked lock back");
			km_thread.busy = KM_BUSY_NOT;
			km_thread.asked = NULL;
			km_thread.child = NULL;
			km_misuse(KM_MISUSE_CHILD, "vfork", __builtin_thread_pointer(), NULL);
			km_thread.busy = mine.busy;
			km_thread.asked = mine.asked;
			km_thread.child = mine.child;
			return;
		}
	}
	if (km_likely(now < km_load(&reclaim.next_reap_ms) && !fell && now < km_load(&reclaim.next_purge_ms) &&
		      now < km_load(&reclaim.next_look_ms) && !km_pages_too_dirty() && !sweep_is_due()))
		return;
	/* Look again before the end: while this thread held the lock, the ticks of other threads passed, and no thread
	 * may come for the pages that they freed. */
	for (int looks = 0; looks < MAX_LOOKS; looks++) {
		if (!km_trylock(&reclaim.lock))
			return;
		km_large_finish_deferred();
		look_around(now, fell, now - last >= km_arena_decay_ms());
		km_unlock(&reclaim.lock);
		fell = use_fell();
		if (!fell && !km_pages_too_dirty())
			return;
	}
}

/* ------------------------------------------------------------------ requests */

bool km_reclaim_part(struct km_reclaim_round *its, uint32_t number)
{
	struct km_round *round = &km_rounds[KM_ROUND_REAP];

	km_debug(km_thread.busy, "a thread in a round is marked busy");
	if (km_thread.no_calls || !km_trylock(&reclaim.lock))
		return false;
	const bool first = !its->begun || its->number != number;
	if (first) {
		round->left = 0;
		*its = (struct km_reclaim_round){ true, false, number, reclaim.visited + km_registry_count() };
		reclaim.wanted = km_max(reclaim.wanted, its->until);
	}
	/* Look with the lock held: another thread may have completed the round. */
	if (!is_visited(its->until))
		reap(km_os_now_ms(), first, first);
	const bool through = is_visited(its->until) || !km_registry_count();
	if (through && !its->through) {
		its->through = true;
		/* The round is not complete: new caches appeared, or a tick began the round anew. */
		if (round->left)
			purge_all();
		km_store(&reclaim.peak_pages, km_pages_there());
		km_metadata_trim(true);
		km_huge_offer();
		km_ranges_release(true);
	}
	km_unlock(&reclaim.lock);
	return through;
}

/* Most parts of one call, each of MAX_VISITS caches; with more caches the next call goes on. */
#define MAX_PARTS 64

void kmem_idle(void)
{
	struct km_reclaim_round its = { .begun = false };

	/* In a signal handler inside the allocator, this thread may hold the locks already. */
	if (km_thread.busy || !km_boot())
		return;
	km_busy_scope(was);
	for (int parts = MAX_PARTS; parts && !km_reclaim_part(&its, 0) && its.begun; parts--)
		;
}

void kmem_tick(void)
{
	if (km_thread.busy || !km_boot())
		return;
	km_busy_scope(was);
	tick();
}

static int flush_cache(struct kmem_cache *cache, void *arg)
{
	size_t *slabs = arg;

	km_debug(km_thread.busy && !cache->layout.dead, "a flushed cache exists");
	km_alloc_drain(cache);
	*slabs += cache->layout.engine->shrink(cache);
	return 0;
}

/* Milliseconds to wait for the registry: a user's function under the registry's lock may wait for this very thread. */
#define PATIENCE_MS	10000u

/* Progress of a flush for a request that got no pages. */
struct flushing {
	size_t slabs;			/* number of slabs and blocks freed */
	size_t used, wanted;		/* pages in use at the start; pages to be freed */
};

static bool is_enough(const struct flushing *flushing)
{
	size_t used = km_pages_used();

	return used < flushing->used && flushing->used - used >= flushing->wanted;
}

static int flush_until_enough(struct kmem_cache *cache, void *arg)
{
	struct flushing *flushing = arg;

	flush_cache(cache, &flushing->slabs);
	return is_enough(flushing);
}

/* Free the blocks that debugging keeps. Returns: false if there were none. */
static bool settle_blocks(void)
{
	return km_unlikely(km_block_hooks != NULL) && km_block_hooks->settle();
}

/* Flush one cache after another; then blocks kept by debugging, runs of growing blocks and cached huge blocks; last,
 * pages of cache names. */
static void flush_some(struct flushing *flushing)
{
	km_debug(km_is_locked(&reclaim.lock), "one thread flushes at a time");
	km_registry_visit_within(flush_until_enough, flushing, PATIENCE_MS);
	if (!is_enough(flushing))
		flushing->slabs += settle_blocks() + km_growth_shed(0) + km_huge_purge(0) != 0;
	if (!is_enough(flushing))
		flushing->slabs += km_addr_reuse_release(flushing->wanted);
	/* Release address space: the refused memory may be the metadata of a slab. */
	if (!is_enough(flushing))
		flushing->slabs += km_ranges_release(false);
}

/* Flushes that one request may ask for. Kernel: MAX_RECLAIM_RETRIES. */
#define PRESSES		16u

/* Give memory back for a failed request. A second thread waits, because objects held by the first thread's flush are on
 * no list. A flush of all caches that began after this request failed counts for this request, too. Even if nothing
 * came back, the request tries once more, because objects of sheaves or another thread's pages may be free now. */
static bool pressure(struct kmem_cache *only, size_t bytes, unsigned *tries)
{
	uint32_t before = km_load(&reclaim.flushes);
	struct flushing flushing = { 0, km_pages_used(), (bytes >> KM_PAGE_SHIFT) + 1 };

	if (*tries >= PRESSES)
		return false;
	flushing.wanted <<= *tries;
	if (km_lock_within(&reclaim.lock, PATIENCE_MS)) {
		if (only) {
			flush_cache(only, &flushing.slabs);
			for (struct kmem_cache *at = km_alloc_shadows(only); at; at = at->ext.next_shadow)
				flush_cache(at, &flushing.slabs);
		} else if (km_load(&reclaim.flushes) != before) {
			flushing.slabs = 1;
		} else {
			km_bump(&reclaim.flushes, 1);
			flush_some(&flushing);
		}
		km_unlock(&reclaim.lock);
	}
	/* If nothing was flushed, the next try is the last; or the last but one, if a grace period freed objects. */
	if (flushing.slabs)
		++*tries;
	else
		*tries = *tries < PRESSES - 1 && km_grace_relieves() ? PRESSES - 1 : PRESSES;
	return true;
}

void km_reclaim_start(void)
{
	uint64_t now = km_os_now_ms();

	reclaim.next_purge_ms = now + km_arena_decay_ms() / 4;
	reclaim.next_reap_ms = now + km_arena_decay_ms() / 2;
	reclaim.next_look_ms = now + LOOK_MS;
	km_alloc_tick = tick;
	km_alloc_pressure = pressure;
}

/* Take the lock around fork, so that a child does not lose objects held by another thread. */
void km_reclaim_fork(bool before, bool child)
{
	km_lock_around_fork(&reclaim.lock, before, child);
	/* A round requested from the parent is not the child's: the child would give back pages shared by both. */
	if (child && !km_lock_is_own(&reclaim.lock)) {
		if (reclaim.quiet)
			km_rounds[KM_ROUND_REAP].left = 0;
		reclaim.quiet = reclaim.purges = false;
		reclaim.wanted = reclaim.visited;
	}
}

/* Caches gathered to be shrunk with one fence for their sheaves. */
struct shrinking {
	const struct kmem_cache *leader;
	const char *name;		/* of the caches without a leader */
	struct kmem_cache *cache[MAX_IDLE];
	size_t count;
	unsigned long slabs;		/* remaining slabs */
	bool any;
	bool keeps_pages;		/* remaining slabs keep all their pages */
};

static void shrink_gathered(struct shrinking *shrinking)
{
	if (!shrinking->count)
		return;
	km_alloc_drain_all(shrinking->cache, shrinking->count);
	for (size_t i = 0; i < shrinking->count; i++) {
		struct kmem_cache *cache = shrinking->cache[i];
		struct kmem_cache_stats stats = { .name = "" };

		cache->layout.engine->shrink(cache);
		if (!shrinking->keeps_pages)
			hollow_cache(cache, NULL);
		cache->layout.engine->stats(cache, &stats);
		shrinking->slabs += stats.total_slabs;
	}
	shrinking->any = true;
	shrinking->count = 0;
}

/* A debug shadow cache is shrunk with its cache. */
static int gather(struct kmem_cache *cache, void *arg)
{
	struct shrinking *shrinking = arg;
	const struct kmem_cache *known = cache->ext.shadow_of ?: cache;

	if (shrinking->leader ? km_tuned_with(known, shrinking->leader) :
				!__builtin_strcmp(known->registry.name, shrinking->name)) {
		km_debug(shrinking->count < MAX_IDLE, "caches are shrunk a few at a time");
		shrinking->cache[shrinking->count++] = cache;
	}
	if (shrinking->count == MAX_IDLE)
		shrink_gathered(shrinking);
	return 0;
}

/* For a tick: not on the stack, as `idle`. */
static struct shrinking named;

int km_reclaim_named(const char *name)
{
	km_debug(km_thread.busy, "a shrinking thread is marked busy");
	if (km_thread.no_calls || !km_trylock(&reclaim.lock))
		return -EAGAIN;
	named.name = name;
	named.count = 0;
	named.any = false;
	km_registry_each(gather, &named);
	shrink_gathered(&named);
	km_pages_purge(0);
	const bool any = named.any;
	km_unlock(&reclaim.lock);
	return any ? 0 : -ENOENT;
}

static unsigned long shrink(struct kmem_cache *cache, bool keeps_pages)
{
	struct shrinking shrinking = { .leader = cache, .cache = { cache }, .count = 1, .keeps_pages = keeps_pages };

	km_busy_scope(was);
	/* Skip this in a busy caller, who may hold a lock of higher rank. */
	if (!km_was_busy(was))
		km_lock(&reclaim.lock);
	if (km_load(&cache->tune.leads) || km_load(&cache->ext.shadows)) {
		shrinking.count = 0;
		km_registry_scope();
		km_registry_each(gather, &shrinking);
		shrink_gathered(&shrinking);
		if (cache->ext.shadows)
			km_debug_ops->settle(cache);
	} else {
		shrink_gathered(&shrinking);
	}
	if (!km_was_busy(was))
		km_unlock(&reclaim.lock);
	return shrinking.slabs;
}

int kmem_cache_shrink(struct kmem_cache *cache)
{
	if (km_unlikely(cache->layout.dead)) {
		km_misuse(KM_MISUSE_DEAD_CACHE, "kmem_cache_shrink", cache, cache->registry.name);
		return 0;
	}
	bool remain = shrink(cache, false) != 0;
	kmem_tick();
	return remain;
}

void km_cache_send_home(struct kmem_cache *cache)
{
	shrink(cache, true);
}

size_t kmem_shrink_all(void)
{
	size_t slabs = 0, pages = 0;

	if (!km_boot())
		return 0;
	km_busy_scope(was);
	if (!km_was_busy(was))
		km_lock(&reclaim.lock);
	look_at_limits();
	km_large_finish_deferred();
	km_registry_visit(flush_cache, &slabs);
	tidy(true);
	km_ids_trim();
	km_registry_visit(hollow_cache, &pages);
	settle_blocks();
	km_growth_shed(0);
	pages += km_pages_purge(0) + (km_huge_purge(0) >> KM_PAGE_SHIFT);
	km_huge_offer();
	km_ranges_release(true);
	if (!km_was_busy(was))
		km_unlock(&reclaim.lock);
	return pages << KM_PAGE_SHIFT;
}
