/*
 * debug.c: checks of the objects of debugged caches: at allocation and free, when a slab comes or goes, and on
 * request. debug_check.c defines the checked bytes.
 *
 * Invariants: the bytes around an object match the object's state. In state CHANGES only the changing thread may
 * touch the object. An object leaves TAKEN or FREE by one compare-and-swap of the state word, so only one
 * thread wins. A taken object is never given out again.
 */
#include <errno.h>

#include <kmem/stats.h>

#include "base/bits.h"
#include "os/os.h"
#include "cache/mailbox.h"
#include "debug.h"
#include "debug_shadow.h"

/* Write the expected bytes around an object, then store the state. */
static void become(struct kmem_cache *cache, void *object, enum km_debug_state state)
{
	km_debug_fill(cache, object, state == KM_DEBUG_TAKEN, cache->layout.object_size);
	/* Release pairs with km_debug_look: a reader of the state sees the matching bytes. */
	km_store_release(km_debug_word(cache, object), km_debug_sealed(object, state, cache->layout.object_size));
}

/* Initialize the marks and the state of a fresh object. */
static void begin(struct kmem_cache *cache, void *object)
{
	struct kmem_record_mark *mark = km_debug_marks(cache, object);

	for (unsigned i = 0; i < 2 && cache->layout.flags & SLAB_STORE_USER; i++) {
		mark[i] = (struct kmem_record_mark){ .when = 0 };
		mark[i].seal = km_debug_mark_seal(&mark[i]);
	}
	become(cache, object, KM_DEBUG_FREE);
}

/* Returns: true if the object's state is TAKEN or CHANGES. If the state word is damaged, the engine's record and the
 * object's bytes decide (km_debug_seems_taken). */
static bool is_taken(const struct kmem_cache *cache, void *object, const struct km_debug_seen *seen, bool engine_says)
{
	return seen->state == KM_DEBUG_DAMAGED ? km_debug_seems_taken(cache, object, engine_says) :
						 seen->state != KM_DEBUG_FREE;
}

/* ------------------------------------------------------------------ marks and traces */

static void note(const struct kmem_cache *cache, const void *object, unsigned which)
{
	if (cache->layout.flags & SLAB_STORE_USER)
		km_debug_mark(&km_debug_marks(cache, object)[which]);
}

/* Print one SLAB_TRACE line. The line's inuse counts the object, before a free too. Kernel: a stack follows each line;
 * here a stack follows only if a track exists. */
static km_noinline void trace_one(struct kmem_cache *cache, void *object, bool alloc)
{
	struct km_debug_about about = { cache, km_debug_slab(object), object };
	const void *first = NULL;
	unsigned used = 0;

	if (about.slab)
		first = km_debug_first_free(cache, about.slab, &used);
	km_warn("TRACE %s %s %p inuse=%u fp=%p", cache->registry.name, alloc ? "alloc" : "free", object, used, first);
	km_debug_report_track(&about, alloc);
}

static void trace(struct kmem_cache *cache, void *object, bool alloc)
{
	if (km_unlikely(cache->layout.flags & SLAB_TRACE))
		trace_one(cache, object, alloc);
}

/* ------------------------------------------------------------------ objects come and go */

/* Report damage of an object, or of the slab where the object is NULL. The report may end the process. */
static void tell_damage(const struct km_debug_about *about, const char *title, const char *function)
{
	km_debug_report_begin(about, title);
	km_debug_report_end(about);
	km_debug_misuse(about, function);
}

static void tell_in_use(struct kmem_cache *cache, void *object, const char *function)
{
	struct km_debug_about about = { cache, km_debug_slab(object), object };

	tell_damage(&about, "Object in use on freelist", function);
}

/* Report an object given out by the engine while still in use. The object stays with the current user. Returns:
 * KM_LOST. */
static void *in_use(struct kmem_cache *cache, void *object)
{
	tell_in_use(cache, object, "kmem_cache_alloc");
	km_debug_report_fix(cache, "Object at %p not allocated", object);
	return KM_LOST;
}

static void *comes(struct kmem_cache *cache, void *object, gfp_t gfp km_unused)
{
	if (!km_is_debugged(cache)) {
		trace(cache, object, true);
		return object;
	}
	if (cache->layout.engine->shared_pages)
		begin(cache, object);
	struct km_debug_seen seen = km_debug_look(cache, object);
	km_debug(km_debug_slab(object) && (cache->layout.engine->shared_pages || km_debug_slab(object)->cache == cache),
		 "an allocated object belongs to the cache");
	const bool taken = is_taken(cache, object, &seen, false);
	if (km_unlikely(taken || !km_cas_both(km_debug_word(cache, object), &seen.word,
					      km_debug_sealed(object, KM_DEBUG_CHANGES, cache->layout.object_size))))
		return in_use(cache, object);
	km_debug_check(cache, NULL, object, seen, false, "kmem_cache_alloc");
	note(cache, object, 0);
	trace(cache, object, true);
	become(cache, object, KM_DEBUG_TAKEN);
	km_debug(!cache->fast.pcs.front.open.pcs, "a debugged cache has no per-CPU sheaves");
	return object;
}

/* Returns: true if the object is taken. With shared pages (slob) the caller has asked the engine already. */
static bool is_out(struct kmem_cache *cache, struct km_page *slab, unsigned index, void *object,
		   const struct km_debug_seen *seen)
{
	bool engine_says = true;

	if (km_likely(seen->state != KM_DEBUG_DAMAGED))
		return seen->state == KM_DEBUG_TAKEN;
	if (!cache->layout.engine->shared_pages)
		engine_says = km_debug_taken(cache, slab, index / 64) >> index % 64 & 1;
	return km_debug_seems_taken(cache, object, engine_says);
}

/* on_free hook: check an object, then mark the object free. Returns: false if the free must be refused; the bad call
 * was reported. With shared pages, objects unknown to the engine pass: the engine reports them. */
static bool goes(struct kmem_cache *cache, void *object)
{
	const bool shared = cache->layout.engine->shared_pages;
	int index = 0;

	if (!km_is_debugged(cache))
		trace(cache, object, false);
	if (!km_is_debugged(cache) || (shared && !cache->layout.engine->has(cache, object)))
		return true;
	struct km_page *slab = shared ? km_debug_slab(object) : km_slab_of(cache, object, &index, "kmem_cache_free");
	if (km_unlikely(!slab && !shared))
		return false;
	uint64_t *word = km_debug_word(cache, object);
	struct km_debug_seen seen = km_debug_look(cache, object);
	/* Two threads may free the object at once: one wins the compare-and-swap, even of a damaged word. */
	do {
		if (km_unlikely(!is_out(cache, slab, (unsigned)index, object, &seen))) {
			km_refuse(slab, object, KM_MISUSE_DOUBLE_FREE, "kmem_cache_free", cache->registry.name);
			return false;
		}
		if (km_cas_both(word, &seen.word, km_debug_sealed(object, KM_DEBUG_CHANGES, seen.asked)))
			break;
		seen = km_debug_judge(cache, object, seen.word);
	} while (true);
	km_debug_check(cache, slab, object, seen, true, "kmem_cache_free");
	if (!shared)
		km_debug_check_padding(cache, slab, "kmem_cache_free");
	note(cache, object, 1);
	trace(cache, object, false);
	km_debug(km_debug_look(cache, object).state == KM_DEBUG_CHANGES,
		 "the requested bytes of an allocated object change");
	become(cache, object, KM_DEBUG_FREE);
	return true;
}

static void slab_comes(struct kmem_cache *cache, struct km_page *slab)
{
	char *object = km_slab_first(cache, slab);

	if (!km_is_debugged(cache))
		return;
	km_debug(slab->type != KM_PAGE_SHARED, "a new slab belongs to one cache");
	km_debug_fill_padding(cache, slab);
	for (unsigned i = 0; i < slab->objects; i++, object += cache->layout.size)
		begin(cache, object);
}

/* Checks all objects of a slab to be freed. All are free, except in a private group destroyed as a whole; no caller
 * uses them any more. */
static void slab_goes(struct kmem_cache *cache, struct km_page *slab)
{
	char *object = km_slab_first(cache, slab);

	if (!km_is_debugged(cache) || cache->layout.engine->shared_pages)
		return;
	for (unsigned i = 0; i < slab->objects; i++, object += cache->layout.size) {
		struct km_debug_seen seen = km_debug_look(cache, object);

		km_debug_check(cache, slab, object, seen, is_taken(cache, object, &seen, false), "kmem_cache_free");
	}
	km_debug_check_padding(cache, slab, "kmem_cache_free");
}

/* ------------------------------------------------------------------ requested bytes */

/* Stores the requested bytes in the state word of an object in state TAKEN. Another state stays, and the next free
 * reports it. */
static void store_asked(const struct kmem_cache *cache, void *object, size_t bytes)
{
	struct km_debug_seen seen = km_debug_look(cache, object);

	km_debug(bytes <= cache->layout.object_size, "the requested bytes are within the object");
	if (km_likely(seen.state == KM_DEBUG_TAKEN))
		km_cas_both(km_debug_word(cache, object), &seen.word,
			    km_debug_sealed(object, KM_DEBUG_TAKEN, (uint32_t)bytes));
}

static void asked(struct kmem_cache *cache, void *object, size_t bytes)
{
	if (!km_debug_is_narrowed(cache))
		return;
	km_debug_fill_asked(cache, object, bytes);
	store_asked(cache, object, bytes);
}

static unsigned look_at(struct kmem_cache *cache, struct km_page *slab, void *object, bool engine_says,
			const char *function)
{
	struct km_debug_seen seen = km_debug_look(cache, object);
	const bool damaged = seen.state == KM_DEBUG_DAMAGED;

	if (seen.state == KM_DEBUG_CHANGES)
		return 0;
	const bool taken = is_taken(cache, object, &seen, engine_says);
	seen.waits = !taken && engine_says;
	unsigned damages = km_debug_check(cache, slab, object, seen, taken, function);
	if (km_unlikely(damaged))
		km_cas_both(km_debug_word(cache, object), &seen.word,
			    km_debug_sealed(object, taken ? KM_DEBUG_TAKEN : KM_DEBUG_FREE, seen.asked));
	return damages;
}

/* Extend an object: bytes of the red zone become usable. Returns: false if the caller must reallocate. */
static bool grow(struct kmem_cache *cache, void *object, size_t bytes)
{
	if (!km_debug_is_narrowed(cache) || bytes > cache->layout.object_size)
		return false;
	look_at(cache, km_debug_slab(object), object, true, "krealloc");
	store_asked(cache, object, bytes);
	return true;
}

size_t km_debug_bytes(const struct kmem_cache *cache, const void *object)
{
	if (!km_is_debugged(cache))
		return 0;
	return km_debug_is_narrowed(cache) ? km_debug_look(cache, object).asked : cache->layout.object_size;
}

/* ------------------------------------------------------------------ bad calls */

static const char *title_of(enum km_misuse what, const void *p, char *text, size_t bytes)
{
	if (what == KM_MISUSE_DOUBLE_FREE)
		return "Object already free";
	if (what == KM_MISUSE_WRONG_CACHE)
		return "Object belongs to different cache";
	km_format(text, bytes, "Invalid object pointer %p", p);
	return text;
}

/* Report a bad call. A pointer into an object names that object. */
static void tell(struct kmem_cache *cache, struct km_page *slab, const void *p, enum km_misuse what)
{
	size_t offset = (size_t)((const char *)p - (const char *)km_page_address(slab));
	struct km_debug_about about = { cache, slab, NULL };
	char text[64];

	if (!km_is_debugged(cache))
		return;
	if (offset / cache->layout.size < slab->objects)
		about.object = km_slab_first(cache, slab) + offset / cache->layout.size * cache->layout.size;
	km_debug_report_begin(&about, title_of(what, p, text, sizeof(text)));
	km_debug_report_end(&about);
}

/* Prints a line for refused frees only, because other refused calls change nothing. */
static void refused(struct kmem_cache *cache, const void *p, const char *function)
{
	if (km_is_debugged(cache) && __builtin_strstr(function, "free"))
		km_debug_report_fix(cache, "Object at %p not freed", p);
}

/* ------------------------------------------------------------------ what engines find */

static void broken(struct kmem_cache *cache, struct km_page *slab, void *object, const char *title, const char *fix)
{
	struct km_debug_about about = { cache, slab, object };

	if (!km_is_debugged(cache)) {
		km_misuse(KM_MISUSE_WRITTEN, "kmem_cache_free", object ?: km_page_address(slab), cache->registry.name);
		return;
	}
	tell_damage(&about, title, "kmem_cache_free");
	km_debug_report_fix(cache, fix);
}

static bool may_be_free(const struct kmem_cache *cache, const void *object)
{
	if (!km_is_debugged(cache))
		return true;
	struct km_debug_seen seen = km_debug_look(cache, object);
	return !is_taken(cache, (void *)object, &seen, false);
}

/* ------------------------------------------------------------------ checks on request */

struct looking {
	struct kmem_cache *cache;
	const char *function;
	long damages;
};

/* Returns: true if the engine calls the object free while the state says TAKEN, both before and after the engine was
 * asked. */
static bool is_in_use(const struct kmem_cache *cache, struct km_page *slab, void *object, unsigned index)
{
	struct km_debug_seen seen = km_debug_look(cache, object);

	if (seen.state != KM_DEBUG_TAKEN)
		return false;
	bool taken = km_debug_taken((struct kmem_cache *)cache, slab, index / 64) >> index % 64 & 1;
	return !taken && km_debug_look(cache, object).word == seen.word;
}

static int check_slab(struct km_page *slab, void *arg)
{
	struct looking *at = arg;
	struct kmem_cache *cache = at->cache;
	uint64_t taken = 0;

	if (slab->type != KM_PAGE_SLAB || slab->cache != cache)
		return 0;
	char *object = km_slab_first(cache, slab);
	for (unsigned i = 0; i < slab->objects; i++, object += cache->layout.size) {
		if (i % 64 == 0)
			taken = km_debug_taken(cache, slab, i / 64);
		bool out = taken >> i % 64 & 1;

		if (km_unlikely(!out) && km_unlikely(is_in_use(cache, slab, object, i))) {
			tell_in_use(cache, object, at->function);
			at->damages++;
		}
		at->damages += look_at(cache, slab, object, out, at->function);
	}
	at->damages += km_debug_check_padding(cache, slab, at->function);
	return 0;
}

static int check(struct kmem_cache *cache)
{
	struct looking at = { cache, "kmem_cache_validate", 0 };

	if (km_is_debugged(cache) && !cache->layout.engine->shared_pages)
		km_pages_walk(check_slab, &at);
	return (int)at.damages;
}

/* Report the objects left in a slab of a destroyed cache, with their tracks. The slab is kept. */
static void remains(struct kmem_cache *cache, struct km_page *slab, bool tell)
{
	struct km_debug_about about = { cache, slab, NULL };
	struct looking at = { cache, "kmem_cache_destroy", 0 };
	unsigned used;

	if (!km_is_debugged(cache))
		return;
	check_slab(slab, &at);
	km_debug_first_free(cache, slab, &used);
	if (!tell || !used)
		return;
	km_debug_report_begin(&about, "Objects remaining on __kmem_cache_shutdown()");
	about.object = km_slab_first(cache, slab);
	for (unsigned i = 0; i < slab->objects; i++, about.object += cache->layout.size)
		if (km_debug_taken(cache, slab, i / 64) >> i % 64 & 1)
			km_debug_report_object(&about);
	about.object = NULL;
	km_debug_report_end(&about);
}

static const struct km_hooks hooks = {
	.on_alloc = comes, .on_free = goes, .slab_comes = slab_comes, .slab_goes = slab_goes,
	.asked = asked, .grow = grow, .bytes = km_debug_bytes, .tell = tell, .refused = refused,
	.broken = broken, .may_be_free = may_be_free, .check = check, .remains = remains,
};

/* ------------------------------------------------------------------ setup */

static slab_flags_t flags_of(const char *name, uint32_t size, uint32_t align, slab_flags_t flags)
{
	bool low;
	slab_flags_t all = km_debug_flags_of(name, flags, &low), laid_out = all & KM_DEBUG_LAYOUT;
	uint32_t aligned = km_layout_align(all, align, size);
	uint32_t bytes = km_layout_debugged_bytes(size, all) + (all & SLAB_RED_ZONE ? aligned : 0);

	if (all & SLAB_STORE_USER)
		km_debug_stacks_start();
	/* Drop the debug layout if it does not fit into the longest slab. */
	if (km_order_of(km_align_up(bytes, aligned)) > KM_MAX_ORDER)
		return all & ~KM_DEBUG_LAYOUT;
	if (low && laid_out && km_order_of(km_align_up(bytes, aligned)) > km_order_of(km_align_up(size, aligned)))
		all &= ~KM_DEBUG_LAYOUT;
	return all;
}

/* Link km_control, too: a program linked with the archive needs it for kmem_cache_set_debug. */
__attribute__((used)) static const struct km_control_ops *const keep_control = &km_control;

const struct km_debug_ops km_debugging = {
	.read = km_debug_read, .track = km_debug_track_all, .print_leaks = km_debug_print_all_leaks,
	.over = km_stack_over, .flags = flags_of, .hooks = &hooks,
	.settle = km_shadows_settle, .settle_all = km_shadows_settle_all, .letters = km_debug_letters,
	.switch_flags = km_switch_flags, .has_tracks = km_debug_has_tracks,
	.print_now = km_debug_print_leaks, .stacks = &km_debug_stacks,
};
KM_REGISTER(km_debug_ops, km_debugging);
