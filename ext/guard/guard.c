/*
 * guard.c: guarded objects. A sampled allocation lies at an edge of a page of its own, between pages without access.
 * After the free the page loses access too, until the slot is reused. So a stray access faults at once, and the
 * report can name the object. Invariant: no lock is taken. The thread that set a slot's state to CHANGES owns the
 * slot, so signal handlers and the child of a fork can always proceed; at worst one slot is lost.
 *
 *	| no access | canary .. object | no access | object .. canary | no access | ...
 *
 * An object lies at a randomly chosen edge, as near as the alignment allows. Each remaining byte of the page holds a
 * canary value derived from its address, checked by the free. Freed slots are reused oldest first.
 *
 * Sampling goes by time: about every guard:MS milliseconds one randomly chosen cache is told to sample its next
 * allocation (alloc/sampled_ops.c). When three quarters of the slots are taken, a stack with a live guarded object
 * gets no second object. So one frequent call site leaves room for others. Kernel: KFENCE chooses no cache; the next
 * allocation of any cache is sampled.
 */
#include "guard.h"

#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "os/secret.h"

#define LOOKED_AT	64u		/* caches visited per tick */
#define SKIPPED		8u		/* fewer than this many caches are skipped before the choice */
#define SOURCE_FRAMES	8u		/* frames that distinguish call sites */
#define CLAIMS		4u		/* attempts while other threads win the slot */

static struct {
	struct km_guard_slot *slot;
	unsigned count, ms;
	size_t page;
	bool ready;			/* allocation is allowed; set last */
	uint32_t unclosed;		/* free slots with a still open page */
	uint64_t turn;			/* total number of frees */
	uint64_t next_ms;		/* time of the next sample, in ms */
} pool;

unsigned km_guard_slots(struct km_guard_slot **slot)
{
	*slot = pool.slot;
	return pool.count;
}

char *km_guard_page(const struct km_guard_slot *slot)
{
	return (char *)km_guarded.start + (size_t)(2 * (slot - pool.slot) + 1) * pool.page;
}

/* Returns: the slot of an address, or NULL for a page that never holds objects. */
static struct km_guard_slot *slot_of(const void *p)
{
	size_t page = ((uintptr_t)p - km_guarded.start) / pool.page;

	km_debug(km_is_guarded(p), "a searched slot is in the pool");
	return page & 1 ? &pool.slot[page / 2] : NULL;
}

/* ------------------------------------------------------------------ a page */

static void canaries(char *from, char *to)
{
	for (; from < to; from++)
		*from = (char)km_guard_canary(from);
}

static bool is_whole(const char *from, const char *to)
{
	while (from < to && *from == (char)km_guard_canary(from))
		from++;
	return from == to;
}

/* Remove access from a slot's page, or leave the page open for a later caller if system calls are forbidden now. If
 * the program continues after errors, freed content stays readable after a report. Requires: the caller owns the
 * slot. */
static void close_page(struct km_guard_slot *slot)
{
	char *page = km_guard_page(slot);

	km_debug(km_load(&slot->state) == KM_GUARD_CHANGES, "a page is closed by the holder of its slot");
	bool open = km_thread.no_calls || km_os_guard(page, pool.page, km_misuse_goes_on());
	km_store(&slot->open, open);
	if (open)
		km_add(&pool.unclosed, 1u);
	if (km_likely(!slot->sides) || km_thread.no_calls)
		return;
	slot->sides = km_os_guard(page - pool.page, pool.page, false) ||
		      km_os_guard(page + pool.page, pool.page, false);
}

static void give(struct km_guard_slot *slot, enum km_guard_state state)
{
	/* Release pairs with the acquire of the next owner of the slot. */
	km_store_release(&slot->state, (uint32_t)state);
}

static bool get(struct km_guard_slot *slot, enum km_guard_state state)
{
	uint32_t seen = (uint32_t)state;

	return km_cas_acquire(&slot->state, &seen, (uint32_t)KM_GUARD_CHANGES);
}

static km_cold void close_open_ones(void)
{
	for (unsigned i = 0; i < pool.count; i++) {
		struct km_guard_slot *slot = &pool.slot[i];

		if (!km_load(&slot->open) || !get(slot, KM_GUARD_FREE))
			continue;
		if (slot->open) {
			km_sub(&pool.unclosed, 1u);
			close_page(slot);
		}
		give(slot, KM_GUARD_FREE);
	}
}

/* ------------------------------------------------------------------ allocation */

/* Claim the free slot with the oldest free. Threads may compete for the same slot. */
static struct km_guard_slot *claim(void)
{
	for (unsigned tries = 0; tries < CLAIMS; tries++) {
		struct km_guard_slot *oldest = NULL;

		for (unsigned i = 0; i < pool.count; i++) {
			struct km_guard_slot *slot = &pool.slot[i];

			if (km_load(&slot->state) == KM_GUARD_FREE &&
			    (!oldest || km_load(&slot->turn) < km_load(&oldest->turn)))
				oldest = slot;
		}
		if (!oldest)
			return NULL;
		if (get(oldest, KM_GUARD_FREE))
			return oldest;
	}
	return NULL;
}

/* Hash the frames, so that call sites differ. */
static uint32_t source_of(const struct km_stack_track *track)
{
	uint64_t hash = 0;

	for (unsigned i = 0; i < SOURCE_FRAMES && track->frame[i]; i++)
		hash = (hash ^ track->frame[i]) * 0x9e3779b97f4a7c15ull;
	return (uint32_t)(hash >> 32);
}

/* Returns: true if the pool is three quarters full and the source already has a live object. */
static bool is_covered(uint32_t source)
{
	if (km_load(&km_guarded.live) < pool.count - pool.count / 4)
		return false;
	for (unsigned i = 0; i < pool.count; i++)
		if (km_load(&pool.slot[i].state) == KM_GUARD_TAKEN && km_load(&pool.slot[i].source) == source)
			return true;
	return false;
}

/* Place the object at an edge of the page, and write the canaries. */
static void place(struct km_guard_slot *slot, uint32_t bytes, uint32_t align)
{
	char *page = km_guard_page(slot), *end = page + pool.page;

	km_store(&slot->bytes, bytes);
	km_store(&slot->object, km_random_below(2) ?
			       page : (char *)km_align_down((uintptr_t)(end - bytes), (uintptr_t)km_max(align, 1u)));
	km_debug(slot->object >= page && slot->object + bytes <= end, "a guarded object lies in its page");
	canaries(page, slot->object);
	canaries(slot->object + bytes, end);
}

/* Construct or zero the object, as a slab would. */
static void prepare(const struct km_guard_slot *slot, struct kmem_cache *cache, gfp_t gfp)
{
	if (cache->form.ctor)
		km_construct(cache, slot->object, 1);
	if (gfp & __GFP_ZERO && cache->form.ctor)
		km_constructed(cache, slot->object);
	else if (gfp & __GFP_ZERO)
		__builtin_memset(slot->object, 0, slot->bytes);
}

static void *guard_alloc(struct kmem_cache *cache, uint32_t bytes, uint32_t align, gfp_t gfp)
{
	struct km_stack_track track;

	km_debug(bytes && bytes <= pool.page, "a guarded object fits a page");
	if (!km_load_acquire(&pool.ready) || km_load(&km_guarded.live) >= pool.count ||
	    (cache->form.ctor && !km_may_construct(cache, false)))
		return NULL;
	if (km_unlikely(km_load(&pool.unclosed)))
		close_open_ones();
	km_stack_track(&track);
	struct km_guard_slot *slot = is_covered(source_of(&track)) ? NULL : claim();
	if (!slot)
		return NULL;
	if (km_os_unguard(km_guard_page(slot), pool.page)) {
		give(slot, KM_GUARD_FREE);
		return NULL;
	}
	place(slot, bytes, align);
	km_store(&slot->cache, cache);
	__builtin_memcpy(slot->name, cache->registry.name, sizeof(slot->name));
	km_store(&slot->source, source_of(&track));
	slot->track[0] = track;
	slot->track[1].when = 0;
	km_store(&slot->unseen, false);
	prepare(slot, cache, gfp);
	km_add(&km_guarded.live, 1ul);
	km_add(&km_guarded.samples, 1ul);
	km_add(&cache->ext.guarded, 1u);
	void *object = slot->object;
	give(slot, KM_GUARD_TAKEN);
	return object;
}

static void guard_again(struct kmem_cache *cache, void *object)
{
	struct km_guard_slot *slot = slot_of(object);

	if (!slot || !get(slot, KM_GUARD_TAKEN))
		return;
	km_debug(slot->cache == cache, "an object comes from the sheaf of its own cache");
	km_stack_track(&slot->track[0]);
	km_store(&slot->unseen, false);
	give(slot, KM_GUARD_TAKEN);
}

/* ------------------------------------------------------------------ free */

static void refuse(enum km_guard_error error, enum km_misuse what, const char *function, const void *p,
		   const struct km_guard_slot *slot, const struct kmem_cache *cache)
{
	const char *name = slot ? slot->name : NULL;

	km_guard_report(error, p, slot, NULL);
	if (what == KM_MISUSE_WRONG_CACHE)
		km_misuse_of(what, function, p, cache->registry.name, name, true);
	else
		km_misuse_of(what, function, p, name, NULL, slot);
}

/* Returns: true if the bytes around the object were overwritten; the damage was reported. */
static bool is_damaged(const struct km_guard_slot *slot, const char *function)
{
	const char *page = km_guard_page(slot), *object = slot->object;

	if (km_likely(is_whole(page, object) && is_whole(object + slot->bytes, page + pool.page)))
		return false;
	km_guard_report(KM_GUARD_CORRUPTION, object, slot, NULL);
	km_misuse_of(KM_MISUSE_OVERWRITTEN, function, object, slot->name, NULL, true);
	return true;
}

/* Record the free. An object leaving a per-CPU sheaf was freed earlier: the stack is gone, and a lock needed by an
 * unwinder may be held. */
static void note_free(struct km_guard_slot *slot, bool seen)
{
	struct km_stack_track *track = &slot->track[1];

	if (seen) {
		km_stack_track(track);
		return;
	}
	*track = (struct km_stack_track){ .when = km_os_now_ms(), .cpu = km_os_getcpu(), .thread = km_os_thread() };
}

static void guard_free(struct kmem_cache *cache, void *p, const char *function)
{
	struct km_guard_slot *slot = slot_of(p);
	const char *by = function ?: "kmem_cache_free";

	if (!slot || slot->object != p) {
		refuse(KM_GUARD_INVALID_FREE, KM_MISUSE_INTERIOR, by, p, slot, cache);
		return;
	}
	if (!get(slot, KM_GUARD_TAKEN)) {
		refuse(KM_GUARD_DOUBLE_FREE, KM_MISUSE_DOUBLE_FREE, by, p, slot, cache);
		return;
	}
	struct kmem_cache *own = slot->cache;
	if (cache && own != cache) {
		give(slot, KM_GUARD_TAKEN);
		refuse(KM_GUARD_INVALID_FREE, KM_MISUSE_WRONG_CACHE, by, p, slot, cache);
		return;
	}
	is_damaged(slot, by);
	note_free(slot, function != NULL);
	close_page(slot);
	km_store(&slot->turn, km_add(&pool.turn, 1ul) + 1);
	if (own)
		km_sub(&own->ext.guarded, 1u);
	km_sub(&km_guarded.live, 1ul);
	give(slot, KM_GUARD_FREE);
}

/* ------------------------------------------------------------------ looking */

static bool guard_look(const void *p, struct km_guarded_object *seen)
{
	const struct km_guard_slot *slot = slot_of(p);

	if (!slot || !km_load(&slot->object))
		return false;
	/* Acquire: the other fields match the state. */
	bool taken = km_load_acquire(&slot->state) == KM_GUARD_TAKEN;
	*seen = (struct km_guarded_object){
		.start = km_load(&slot->object), .bytes = km_load(&slot->bytes), .cache = km_load(&slot->cache),
		.name = slot->name, .taken = taken,
	};
	km_debug(seen->bytes <= pool.page, "a guarded object lies in its page");
	return true;
}

static int guard_walk(struct kmem_cache *cache, int (*visit)(void *object, void *arg), void *arg)
{
	int result = 0;

	for (unsigned i = 0; !result && i < pool.count; i++)
		if (km_load_acquire(&pool.slot[i].state) == KM_GUARD_TAKEN && km_load(&pool.slot[i].cache) == cache)
			result = visit(km_load(&pool.slot[i].object), arg);
	return result;
}

static int now_unseen(void *object, void *arg km_unused)
{
	km_store(&slot_of(object)->unseen, true);
	return 0;
}

static void guard_unseen(struct kmem_cache *cache)
{
	guard_walk(cache, now_unseen, NULL);
}

static int check_one(void *object, void *arg)
{
	struct km_guard_slot *slot = slot_of(object);
	int *damages = arg;

	km_debug(slot && slot->object == object, "a walk visits the starts of objects");
	*damages += is_damaged(slot, "kmem_cache_validate");
	return 0;
}

static int guard_check(struct kmem_cache *cache)
{
	int damages = 0;

	if (km_load(&cache->ext.guarded))
		guard_walk(cache, check_one, &damages);
	return damages;
}

/* Clear the cache of an object, unless another thread frees the object or the slot now holds another cache's object. */
static bool forget_cache(struct km_guard_slot *slot, const struct kmem_cache *cache)
{
	if (!get(slot, KM_GUARD_TAKEN))
		return false;
	bool own = slot->cache == cache;
	if (own)
		km_store(&slot->cache, NULL);
	give(slot, KM_GUARD_TAKEN);
	return own;
}

static size_t guard_leave(struct kmem_cache *cache)
{
	size_t left = 0;

	for (unsigned i = 0; i < pool.count; i++) {
		struct km_guard_slot *slot = &pool.slot[i];

		if (km_load(&slot->cache) == cache && forget_cache(slot, cache) && left++ < 8)
			km_warn("  object %p, guarded", slot->object);
	}
	return left;
}

/* ------------------------------------------------------------------ sampling */

struct choice {
	unsigned skip;
	bool done;
};

static int choose(struct kmem_cache *cache, void *arg)
{
	struct choice *choice = arg;

	if (choice->done)
		return 1;
	if (choice->skip)
		choice->skip--;
	else
		choice->done = km_alloc_sample(cache);
	return 0;
}

/* Begin the next round, of LOOKED_AT caches. Context: the registry is locked. */
static void chosen(void *arg km_unused)
{
	km_rounds[KM_ROUND_GUARD].left = LOOKED_AT;
}

/* Choose a cache when a sample is due. The compare-and-swap lets one thread act for each sample. */
static void guard_tick(uint64_t now)
{
	uint64_t due = km_load(&pool.next_ms);

	if (km_likely(now < due) || !pool.ms || !km_load(&pool.ready) || km_os_is_shut())
		return;
	uint64_t next = now + pool.ms / 2 + km_random_below(pool.ms + 1);
	if (!km_cas_acquire(&pool.next_ms, &due, next) || km_load(&km_guarded.live) >= pool.count)
		return;
	struct choice choice = { .skip = km_random_below(SKIPPED) };
	km_registry_try_some(&km_rounds[KM_ROUND_GUARD], LOOKED_AT, choose, &choice, chosen);
}

/* ------------------------------------------------------------------ setup */

_Static_assert(KM_GUARD_TAKEN == KMEM_RECORD_GUARD_TAKEN, "readers know the state");

/* The offsets of a slot's fields, for readers outside the process, like cache/cache_fields.c for caches. */
#define SLOT(member)	KM_FIELD_IN("slot", struct km_guard_slot, member)
static const struct kmem_record_field fields[] = {
	KM_FIELD_STRUCT("slot", struct km_guard_slot),
	SLOT(state), SLOT(bytes), SLOT(object), SLOT(cache), SLOT(track[0].when),
	KM_FIELD_ARRAY("slot", struct km_guard_slot, track[0].frame),
};

static km_cold bool make_pool(unsigned objects)
{
	size_t page = km_os_page_bytes(), bytes = (2 * (size_t)objects + 1) * page;
	size_t table = km_align_up(objects * sizeof(*pool.slot), page);
	char *start = km_os_reserve(bytes, page);

	pool.slot = start ? km_os_map(table, page) : NULL;
	/* The pool stays in core dumps, because objects hold the program's data. */
	if (pool.slot && !km_os_commit(start, bytes) && !km_os_guard(start, bytes, false)) {
		pool.count = objects;
		km_guarded.objects = objects;
		km_guarded.slot = pool.slot;
		km_guarded.fields = fields;
		km_guarded.field_count = km_array_count(fields);
		pool.page = km_guarded.page_bytes = page;
		km_guarded.start = (uintptr_t)start;
		km_os_name(start, bytes, "libkmem guarded");
		km_guarded.bytes = bytes;
		return true;
	}
	if (pool.slot)
		km_os_unmap(pool.slot, table);
	if (start)
		km_os_unmap(start, bytes);
	return false;
}

static void guard_start(const struct km_guard_options *options)
{
	if (!options->objects || (!options->ms && !options->each))
		return;
	if (km_sanitizer.objects) {
		km_warn("KMEM_OPTIONS: guard is ignored: a sanitizer checks the objects");
		return;
	}
	if (!make_pool(options->objects)) {
		km_warn("KMEM_OPTIONS: guard is ignored: the system refuses memory for the pool; lower guard_objects");
		return;
	}
	km_guarded.each = options->each;
	pool.ms = options->each ? 0 : options->ms;
	chosen(NULL);
	km_alloc_want_sizes(false);
}

static void guard_ready(void)
{
	if (!km_guarded.bytes || km_load(&pool.ready))
		return;
	if (!km_os_catch_faults(km_guard_fault, true))
		km_warn("KMEM_OPTIONS: guard is ignored: the system refuses the SIGSEGV handler");
	km_store(&pool.next_ms, km_os_now_ms() + pool.ms);
	/* Release pairs with guard_alloc: the fault handler is installed. */
	km_store_release(&pool.ready, true);
}

const struct km_guard_ops km_guarding = {
	.start = guard_start, .ready = guard_ready, .tick = guard_tick,
	.alloc = guard_alloc, .again = guard_again, .unseen = guard_unseen, .free = guard_free,
	.look = guard_look, .walk = guard_walk,
	.check = guard_check, .leave = guard_leave,
};
KM_REGISTER(km_guard_ops, km_guarding);
