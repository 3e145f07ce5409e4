/*
 * profile.c: the profile of allocations by stack (alloc/profile_record.h). Samples are the points of a Poisson
 * process over the bytes allocated by each thread. The distance to the next point is drawn from an exponential
 * distribution, without memory, so no pattern of sizes evades sampling. An object of s bytes is sampled with the
 * probability q = 1 - exp(-s / mean), and a sample stands for s / q bytes and 1 / q objects. Both sums are unbiased
 * for all sizes. jemalloc and tcmalloc do the same, with the same mean.
 *
 * Invariants: no lock is taken, and no thread is waited for. The thread that changed a table entry from 0 to CHANGES
 * owns the entry until its first word is stored. So signal handlers and the child of a fork can always proceed; at
 * worst one entry is lost. Memory is one bounded mapping, never unmapped.
 *
 * The free of a sampled object finds the sample by address, in one of the eight slots of a row. Most addresses are
 * not sampled, and one load of the row's tags, a single word, shows that. A slot belongs to its object: only the
 * thread that frees the object clears the slot. Two frees of one object may lose a sample.
 *
 * Samples usually occur some hundred times a second, or as often as requested; stacks are recognized by the words on
 * the stack (stack.c). Threads compete only for three steps of a sample: two additions, and the slot.
 */
#include <errno.h>

#include "cache/cache.h"
#include "cache/mailbox.h"
#include "alloc/accounting.h"
#include "alloc/profile_record.h"
#include "page/metadata.h"
#include "base/bits.h"
#include "base/text.h"
#include "os/die.h"
#include "os/os.h"
#include "os/probe.h"
#include "inspect/stack.h"

#define CHANGES		1u
#define SITE_TRIES	64u
#define MOST_MEAN	((uint64_t)1 << 30)
#define MOST_SECONDS	86400u
#define MOST_POINTS	4096u		/* per block; above, the average number is used */

static struct kmem_profile_record record = {
	.version = KMEM_PROFILE_VERSION, .frames = KMEM_PROFILE_FRAMES, .sites = KMEM_PROFILE_SITES,
	.site_bytes = sizeof(struct kmem_profile_site), .slots = KMEM_PROFILE_SLOTS,
	.slot_bytes = sizeof(struct kmem_profile_slot),
};
static uint64_t seed, fixed_seed;
static uint64_t each_byte;		/* 1 / mean, a double; calls of an earlier profile may still read */
static uint32_t threads;		/* threads with a number in this profile */

/* ------------------------------------------------------------------ probes */

/* Probes for samples, used by the OpenTelemetry profiler, provider "otel_memory" (os/probe.h). A tracer attached to
 * a probe starts a profile, and the probes are executed while a profile is active. */
static union {
	struct { uint16_t alloc, free; } of;	/* number of attached tracers, written by tracers */
	uint32_t any;
} otel_counts __attribute__((used, section(".probes"), aligned(4))) = { .any = 0 };

/* Run the probe of a sampled object. weight: bytes represented by the sample: mean distance times number of points in
 * the object. */
static void probe_alloc(const void *p, size_t bytes, uint64_t weight)
{
	KM_PROBE(KM_PROBE_TEXT_OF("otel_memory", "alloc", "otel_counts", "8@%0 8@%1 8@%2"),
		 KM_PROBE_VALUE(p), KM_PROBE_VALUE(bytes), KM_PROBE_VALUE(weight));
}

static void probe_free(const void *p)
{
	KM_PROBE(KM_PROBE_TEXT_OF("otel_memory", "free", "otel_counts + 2", "8@%0"), KM_PROBE_VALUE(p));
}

/* ------------------------------------------------------------------ random numbers */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint64_t draw_uniform(struct km_profile_thread *thread)
{
	thread->random += 0x9e3779b97f4a7c15ull;
	return mix(thread->random);
}

#define MOST_WHOLE	64u		/* a greater distance has a probability of exp(-64) */

/* Draw the distance in bytes to the next sample, by comparisons instead of a logarithm (von Neumann, 1951). Uniform
 * numbers are drawn while they fall. With the probability exp(-x), the first number being x, they are odd in number,
 * and x is the fraction of the distance. Else the whole part grows by 1, and the draw begins again. */
static int64_t draw(struct km_profile_thread *thread)
{
	unsigned whole = 0, count;
	uint64_t first;

	do {
		uint64_t last = first = draw_uniform(thread);

		count = 1;
		for (uint64_t now; (now = draw_uniform(thread)) < last; last = now)
			count++;
	} while (!(count & 1) && ++whole < MOST_WHOLE);
	const double distance = whole + (double)(first >> 11) * 0x1p-53;
	km_debug(distance >= 0 && distance <= MOST_WHOLE, "a distance is finite");
	return 1 + (int64_t)(distance * (double)km_load(&record.mean));
}

/* Initialize a thread on the first call in this profile. */
static void begin_thread(struct km_profile_thread *thread, uint32_t number)
{
	thread->random = mix(km_load(&seed) + km_add(&threads, 1u) * 0x9e3779b97f4a7c15ull);
	thread->number = number;
	thread->left = draw(thread);
}

/* Count the points inside a block, of which at least one is inside. */
static uint64_t points_in(struct km_profile_thread *thread, size_t bytes)
{
	uint64_t points = 0;

	if (km_unlikely(bytes > MOST_POINTS) && bytes / km_load(&record.mean) > MOST_POINTS) {
		thread->left = draw(thread);
		return bytes / km_load(&record.mean);
	}
	while (thread->left <= 0) {
		thread->left += draw(thread);
		points++;
	}
	km_debug(points || thread->number, "a sampled thread is initialised");
	return points;
}

/* ------------------------------------------------------------------ sites */

struct source {
	struct km_stack stack;
	const char *cache, *group_name;	/* cache: KM_NAME_BYTES bytes */
	unsigned group;
	uint32_t each;			/* size of each object; 0: varying */
	uint64_t hash;
};

static const char no_name[KM_NAME_BYTES];

/* Names are aligned to 8 bytes. */
typedef uint64_t __attribute__((may_alias)) name_word;

static bool same_name(const char *a, const char *b)
{
	uint64_t y[KM_NAME_BYTES / 8], differ = 0;

	__builtin_memcpy(y, b, sizeof(y));
	for (unsigned i = 0; i < km_array_count(y); i++)
		differ |= km_load((const name_word *)a + i) ^ y[i];
	return !differ;
}

/* Fill in cache, size and group of the source; the stack comes separately. */
static void describe(struct source *source, const struct kmem_cache *cache)
{
	const struct obj_cgroup *objcg = cache && !km_is_charged(cache) ? NULL : km_objcg_now();

	source->cache = cache ? cache->registry.name : no_name;
	source->each = cache && !cache->layout.engine->shared_pages ? cache->layout.size : 0;
	source->group = 0;
	source->group_name = objcg ? km_charge_ops->name_of(objcg, &source->group) : "";
}

/* Hash by position, so that the multiplications are independent of each other. */
static void hash_source(struct source *source)
{
	const struct km_stack *stack = &source->stack;
	uint64_t word, hash = source->group + ((uint64_t)source->each << 32);

	for (unsigned i = 0; i < stack->depth; i++)
		hash += stack->frame[i] * (0x9e3779b97f4a7c15ull * (2 * i + 1));
	for (unsigned i = 0; i < KM_NAME_BYTES; i += sizeof(word)) {
		__builtin_memcpy(&word, source->cache + i, sizeof(word));
		hash += word * (0xd1b54a32d192ed03ull * (2 * i + 1));
	}
	hash = mix(hash);
	source->hash = hash > CHANGES ? hash : hash + 2;
}

/* Store a name by words: another thread may write or read the name concurrently. */
static void store_name(char *to, const char *name)
{
	uint64_t word[KM_NAME_BYTES / 8];

	__builtin_memcpy(word, name, sizeof(word));
	for (unsigned i = 0; i < km_array_count(word); i++)
		km_store((name_word *)to + i, word[i]);
}

static void fill_in(struct kmem_profile_site *site, const struct source *source)
{
	char group_name[KM_NAME_BYTES] = "";

	km_format(group_name, sizeof(group_name), "%s", source->group_name);
	km_store(&site->depth, source->stack.depth);
	km_store(&site->group, source->group);
	km_store(&site->each, source->each);
	store_name(site->cache, source->cache);
	store_name(site->group_name, group_name);
	for (unsigned i = 0; i < source->stack.depth; i++)
		km_store(&site->frame[i], source->stack.frame[i]);
	/* Release pairs with find_site, and with readers: the site is complete. */
	km_store_release(&site->hash, source->hash);
}

/* Find or create the site. Returns: NULL without room. Two threads may create duplicates at the same time; a reader
 * adds duplicates up. */
static struct kmem_profile_site *find_site(const struct source *source)
{
	for (unsigned i = 0; i < SITE_TRIES; i++) {
		struct kmem_profile_site *site = &record.site[(source->hash + i) % KMEM_PROFILE_SITES];
		uint64_t seen = km_load_acquire(&site->hash);

		if (seen == source->hash)
			return site;
		if (!seen && km_cas_acquire(&site->hash, &seen, (uint64_t)CHANGES)) {
			fill_in(site, source);
			return site;
		}
	}
	return NULL;
}

/* Site of a recognized stack, or NULL if the site belongs to another source. Acquire pairs with fill_in. */
static struct kmem_profile_site *known_site(const struct source *source)
{
	struct kmem_profile_site *site = &record.site[source->stack.what % KMEM_PROFILE_SITES];

	const bool same = km_load_acquire(&site->hash) > CHANGES && km_load(&site->group) == source->group &&
			  km_load(&site->each) == source->each && same_name(site->cache, source->cache);
	return km_likely(same) ? site : NULL;
}

/* Find the site. If a recognized stack leads to the site of another cache or group at the same address, the stack is
 * walked anew. */
static struct kmem_profile_site *site_of(struct source *source, const struct kmem_cache *cache, uintptr_t call)
{
	const uint64_t key = (call + (uintptr_t)cache * 3 + ((uint64_t)source->group << 40)) ^
			     (uint64_t)km_load(&record.number) << 32;
	struct kmem_profile_site *site = NULL;

	for (bool anew = false; !site; anew = true) {
		km_stack_take(&source->stack, key, KMEM_PROFILE_FRAMES, anew);
		if (source->stack.known) {
			site = known_site(source);
			continue;
		}
		hash_source(source);
		site = find_site(source);
		km_stack_keep(&source->stack, site ? (uint32_t)(site - record.site) : KM_STACK_NOTHING);
		break;
	}
	return site;
}

/* ------------------------------------------------------------------ live samples */

static uint8_t *tag_at(const struct kmem_profile_slot *slot)
{
	return (uint8_t *)km_profile_now.tags + (slot - record.slot);
}

/* Tag of an address. Never 0. */
static uint8_t tag_of(const void *p)
{
	return (uint8_t)((uintptr_t)p * 0x9e3779b97f4a7c15ull >> 43) | 1;
}

static bool put_in_slot(struct kmem_profile_slot *slot, const void *p, uint64_t what)
{
	uintptr_t seen = km_load(&slot->p);

	km_debug(slot < record.slot + KMEM_PROFILE_SLOTS && (uintptr_t)p > CHANGES, "a slot has an object's address");
	if (seen || !km_cas_acquire(&slot->p, &seen, (uintptr_t)CHANGES))
		return false;
	km_store(&slot->what, what);
	km_store(tag_at(slot), tag_of(p));
	/* Release pairs with take_out, and with readers: the other word is stored. */
	km_store_release(&slot->p, (uintptr_t)p);
	return true;
}

static void remember(const void *p, uint64_t what)
{
	struct kmem_profile_slot *row = &record.slot[km_profile_row(p) * KM_PROFILE_ROW];

	for (unsigned i = 0; i < KM_PROFILE_ROW; i++)
		if (put_in_slot(&row[i], p, what))
			return;
	km_add(&record.untracked, 1ul);
}

/* Remove a freed object's sample, if there is one: the address's row holds at least one sample. */
static km_noinline void take_out(const void *p)
{
	struct kmem_profile_slot *row = &record.slot[km_profile_row(p) * KM_PROFILE_ROW];

	for (unsigned i = 0; i < KM_PROFILE_ROW; i++) {
		struct kmem_profile_slot *slot = &row[i];

		if (km_load(tag_at(slot)) != tag_of(p) || km_load_acquire(&slot->p) != (uintptr_t)p)
			continue;
		probe_free(p);
		km_debug(km_load(&slot->what) & KMEM_PROFILE_MOST_BYTES, "an allocated sample has bytes");
		km_store(tag_at(slot), (uint8_t)0);
		/* Release pairs with put_in_slot: the next owner's tag is stored later. */
		km_store_release(&slot->p, (uintptr_t)0);
		return;
	}
}

/* ------------------------------------------------------------------ calls */

static void profile_goes(const void *p)
{
	/* Acquire pairs with km_probes_look, for calls not reached by a drain: large blocks, debugged caches. */
	(void)km_load_acquire(&km_alloc_probing);
	if (km_profile_may_have(p))
		take_out(p);
}

static km_noinline void sample(const struct kmem_cache *cache, void *p, size_t bytes, uint64_t points, uintptr_t call)
{
	struct source source;

	probe_alloc(p, bytes, points * km_load(&record.mean));
	/* Drop an old sample of the address: a private group's slabs are freed without calls for single objects. */
	profile_goes(p);
	describe(&source, cache);
	struct kmem_profile_site *site = site_of(&source, cache, call);
	if (km_unlikely(!site)) {
		km_add(&record.lost, 1ul);
		return;
	}
	km_debug(site >= record.site && site < record.site + KMEM_PROFILE_SITES, "a site is in the table");
	/* bytes / (bytes / mean) equals the mean, so most samples need no division. */
	const uint64_t word = km_load(&each_byte);
	double each;
	__builtin_memcpy(&each, &word, sizeof(each));
	const double x = (double)bytes * each;
	const double weight = km_likely(x <= 1) ? (double)km_load(&record.mean) * km_profile_series(x) :
						  (double)bytes * km_profile_times(x);
	km_debug(weight >= (double)bytes || km_load(&record.state) != KMEM_PROFILE_ON,
		 "a sample has a weight of at least one object");
	km_add(&site->bytes, (uint64_t)(weight + 0.5));
	if (km_unlikely(!source.each))
		km_add(&site->parts, (uint64_t)(KMEM_PROFILE_PART * km_profile_times(x) + 0.5));
	/* Approximate count: concurrent threads may lose an increment. */
	km_store(&site->samples, km_load(&site->samples) + 1);
	remember(p, (uint64_t)(site - record.site) << KMEM_PROFILE_SITE_SHIFT | bytes);
}

/* Check for the end of the profile. A program served by per-CPU sheaves may take no slow path for long, and no other
 * code would notice the end. */
static void tick(void)
{
	static uint64_t last;
	const uint64_t now = km_os_now_ms();

	if (km_likely(now == km_load(&last)) || km_thread.busy || km_thread.no_calls)
		return;
	km_store(&last, now);
	km_busy_scope(was);
	km_alloc_tick_now();
}

/* Returns: true if the profile is of all caches, or of a cache with this name. A call of an earlier profile may run
 * while the name is written, so each letter is loaded once. */
static bool is_meant(const struct kmem_cache *cache)
{
	char letter = km_load(&record.cache[0]);

	if (km_likely(!letter))
		return true;
	for (unsigned i = 0; cache && letter == cache->registry.name[i] && i < KM_NAME_BYTES - 1; i++) {
		if (!letter)
			return true;
		letter = km_load(&record.cache[i + 1]);
	}
	return false;
}

static km_noinline void profile_due(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait,
				    uintptr_t call)
{
	/* See profile_goes. */
	(void)km_load_acquire(&km_alloc_probing);
	uint32_t number = km_load(&record.number);

	if (km_unlikely(km_thread.profile.number != number)) {
		begin_thread(&km_thread.profile, number);
		km_thread.profile.left -= (int64_t)bytes;
		if (km_thread.profile.left > 0)
			return;
	}
	uint64_t points = points_in(&km_thread.profile, bytes);
	/* With a cache filter, points in objects of other caches are ignored. */
	if (is_meant(cache) && km_load(&record.state) == KMEM_PROFILE_ON && bytes <= KMEM_PROFILE_MOST_BYTES)
		sample(cache, p, bytes, points, call);
	if (may_wait)
		tick();
}

static void profile_comes(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait)
{
	if (km_profile_is_due(bytes))
		profile_due(cache, p, bytes, may_wait, (uintptr_t)__builtin_return_address(0));
}

/* ------------------------------------------------------------------ start and end */

/* The single mapping: sites, slots, tags of slots. */
struct tables {
	struct kmem_profile_site site[KMEM_PROFILE_SITES];
	struct kmem_profile_slot slot[KMEM_PROFILE_SLOTS];
	uint64_t tags[KMEM_PROFILE_SLOTS / KM_PROFILE_ROW];
};
_Static_assert(sizeof(struct tables) + KM_STACK_TRAILS * sizeof(struct km_stack_trail) <= 3000000,
	       "at most three megabytes, with what is known of stacks");
_Static_assert(KMEM_PROFILE_SITES <= 1u << (64 - KMEM_PROFILE_SITE_SHIFT), "a slot's word has room for a site");

static bool make_tables(void)
{
	const size_t bytes = km_align_up(sizeof(struct tables), km_os_page_bytes());
	struct tables *tables = record.site ? NULL : km_os_map(bytes, km_os_page_bytes());

	if (!tables)
		return record.site != NULL;
	km_os_name(tables, bytes, "libkmem profile");
	km_metadata_note_span(tables, bytes);
	record.slot = tables->slot;
	km_profile_now.tags = tables->tags;
	/* Release pairs with readers: `slot` is set too. */
	km_store_release(&record.site, tables->site);
	return true;
}

static void clear(void *table, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
		km_store((name_word *)table + i, (uint64_t)0);
}

/* Clear the tables. Calls of the previous profile may still run; an entry made during the clearing is a wrong
 * sample. */
static void clear_tables(void)
{
	if (record.number) {
		clear(record.site, KMEM_PROFILE_SITES * sizeof(*record.site));
		/* Only `p` is cleared: a concurrent call has already written the other word of its slot. */
		for (size_t i = 0; i < KMEM_PROFILE_SLOTS; i++)
			km_store(&record.slot[i].p, (uintptr_t)0);
		clear(km_profile_now.tags, KMEM_PROFILE_SLOTS);
	}
	km_store(&record.lost, (uint64_t)0);
	km_store(&record.untracked, (uint64_t)0);
	km_store(&threads, 0u);
}

static bool profile_begin(void)
{
	if (!make_tables()) {
		km_store(&record.state, (uint32_t)KMEM_PROFILE_NEVER);
		return false;
	}
	clear_tables();
	/* No settings were requested: a tracer started the profile. */
	if (km_load(&record.state) != KMEM_PROFILE_ASKED) {
		km_store(&record.mean, (uint64_t)KMEM_PROFILE_MEAN);
		km_store(&record.ends_ms, (uint64_t)0);
		store_name(record.cache, no_name);
	}
	uint64_t chosen;
	km_os_random(&chosen, sizeof(chosen), false);
	const double each = 1 / (double)record.mean;
	uint64_t word;
	__builtin_memcpy(&word, &each, sizeof(word));
	km_store(&each_byte, word);
	km_store(&seed, fixed_seed ?: mix(chosen + km_os_now_ms() + km_os_pid()));
	record.began_ms = km_os_now_ms();
	km_store(&record.number, record.number + 1 ?: 1);
	km_store(&km_profile_now.number, record.number);
	/* Release pairs with no acquire here: calls see the profile through this thread's drain, readers are
	 * outside. */
	km_store_release(&record.state, (uint32_t)KMEM_PROFILE_ON);
	return true;
}

static void profile_end(void)
{
	km_store(&record.state, (uint32_t)KMEM_PROFILE_OVER);
}

static bool is_active(void)
{
	uint32_t state = km_load(&record.state);

	return state == KMEM_PROFILE_ASKED || state == KMEM_PROFILE_ON;
}

/* Returns: true while a tracer is attached (default mean), or the profile's time is not over. */
static bool profile_is_wanted(void)
{
	uint64_t ends = km_load(&record.ends_ms);

	if (km_load(&otel_counts.any))
		return true;
	return is_active() && (!ends || km_os_now_ms() < ends);
}

static void profile_start(uint64_t mean)
{
	if (!mean)
		return;
	record.mean = km_min(mean, MOST_MEAN);
	record.state = KMEM_PROFILE_ASKED;
	if (!profile_begin()) {
		km_warn("KMEM_OPTIONS: profile is ignored: the system refuses memory for the samples");
		return;
	}
	km_store(&km_alloc_probing, (uint32_t)KM_PROBING_PROFILE);
}

/* Parse "BYTES:SECONDS"; "" and "0" end a profile. */
static bool read_letters(const char *text, uint64_t *mean, uint64_t *seconds)
{
	*mean = *seconds = 0;
	if (!*text)
		return true;
	return km_text_number(&text, MOST_MEAN, mean) &&
	       (!*text || (*text++ == ':' && km_text_number(&text, MOST_SECONDS, seconds) && !*text)) &&
	       (!*mean || *seconds);
}

static int profile_ask(const struct kmem_mail_request *request)
{
	uint64_t mean, seconds;

	if (!read_letters(request->letters, &mean, &seconds))
		return -EINVAL;
	/* A profile started by options or a tracer cannot be stopped here. */
	if (is_active() && (mean || !record.ends_ms) && profile_is_wanted())
		return -EBUSY;
	if (!mean) {
		km_store(&record.ends_ms, km_os_now_ms());
		return 0;
	}
	if (km_load(&km_alloc_probing) & KM_PROBING_PROFILE)
		return -EBUSY;
	km_store(&record.mean, mean);
	store_name(record.cache, request->cache);
	km_store(&record.ends_ms, km_os_now_ms() + seconds * 1000);
	km_debug(record.ends_ms && record.mean, "a requested profile ends");
	km_store(&record.state, (uint32_t)KMEM_PROFILE_ASKED);
	return 0;
}

void km_profile_seed(uint64_t fixed)
{
	fixed_seed = fixed;
}

const struct km_profile_ops km_profiling = {
	.start = profile_start, .is_wanted = profile_is_wanted, .begin = profile_begin, .end = profile_end,
	.due = profile_due, .comes = profile_comes, .goes = profile_goes,
	.ask = profile_ask, .record = &record,
};
KM_REGISTER(km_profile_ops, km_profiling);
