/*
 * profile.c: a profile of allocations by stack (front/profile.h). Samples are the points of a Poisson process over the
 * bytes that each thread allocates: how far it is to the next one is drawn from an exponential distribution, so that it
 * has no memory, and no pattern of sizes escapes it. An object of s bytes is sampled with the probability
 * q = 1 - exp(-s / mean), and a sample stands for s / q bytes and 1 / q objects: both sums are right on the average,
 * whatever the sizes. jemalloc and tcmalloc do the same, with the same mean.
 *
 * Invariants: takes no lock, and waits for nobody: an entry of a table is its maker's, who has changed it from 0 to
 * CHANGES, until its first word is stored; so that a handler that struck anywhere, and the child of a fork, go on, and
 * at worst an entry is lost. Memory is bounded, and of one mapping, which stays.
 *
 * A sample that is out is found by its address when it is freed. Most addresses are no sample's, and a filter says so:
 * it counts, for each value of a hash, how many samples there are.
 */
#include <errno.h>

#include "profile.h"

#include "../front/accounting.h"
#include "../page/meta.h"
#include "../port/bits.h"
#include "../port/die.h"
#include "../port/os.h"
#include "../port/probe.h"
#include "debug.h"

#define CHANGES		1u
#define SITE_TRIES	64u
#define SLOT_TRIES	16u
#define SITE_SHIFT	48		/* of a slot's word */
#define MOST_BYTES	(((uint64_t)1 << SITE_SHIFT) - 1)
#define MOST_MEAN	((uint64_t)1 << 30)
#define MOST_SECONDS	86400u
#define MOST_POINTS	4096u		/* in one block; beyond, their number is what it is on the average */

static struct km_profile_record record = {
	.version = KM_PROFILE_VERSION, .frames = KM_PROFILE_FRAMES, .sites = KM_PROFILE_SITES,
	.site_bytes = sizeof(struct km_profile_site), .slots = KM_PROFILE_SLOTS,
	.slot_bytes = sizeof(struct km_profile_slot),
};
static uint8_t *filter;			/* how many samples an address's hash has */
static uint64_t seed, fixed_seed;
static uint32_t threads;		/* that have drawn a number in this profile */

static km_tls struct {
	int64_t left;			/* bytes up to the next sample */
	uint64_t random;
	uint32_t number;		/* of the profile that these are of */
} own;

/* ------------------------------------------------------------------ chance */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* libm's are not to be had. -log of a number in (0, 1] that has 53 bits: by its exponent, and 2 artanh of the rest. */
static double minus_log(double x)
{
	uint64_t bits;

	__builtin_memcpy(&bits, &x, sizeof(bits));
	int exponent = (int)(bits >> 52) - 1023;
	bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
	__builtin_memcpy(&x, &bits, sizeof(x));
	if (x > 1.4142135623730951) {
		x *= 0.5;
		exponent++;
	}
	double z = (x - 1) / (x + 1), s = z * z;
	double log = 2 * z * (1 + s * (1. / 3 + s * (1. / 5 + s * (1. / 7 + s * (1. / 9 + s * (1. / 11))))));
	return -(log + exponent * 0.6931471805599453);
}

/* 1 - exp(-x): the series near 0; 1 - (1 - q)^2 doubles x. */
static double chance(double x)
{
	unsigned doublings = 0;

	if (x >= 40)
		return 1;
	for (; x > 1. / 32; x *= 0.5)
		doublings++;
	double q = x * (1 - x * (1. / 2) * (1 - x * (1. / 3) * (1 - x * (1. / 4) * (1 - x * (1. / 5)))));
	while (doublings--)
		q *= 2 - q;
	return q;
}

/* Bytes to the next sample. */
static int64_t draw(void)
{
	own.random += 0x9e3779b97f4a7c15ull;
	const double uniform = (double)((mix(own.random) >> 11) + 1) * 0x1p-53;

	km_debug(uniform > 0 && uniform <= 1, "a logarithm is of a number from 0 to 1");
	return 1 + (int64_t)(minus_log(uniform) * (double)km_load(&record.mean));
}

/* The thread's first call in this profile. */
static void begin_thread(uint32_t number)
{
	own.random = mix(seed + km_add(&threads, 1u) * 0x9e3779b97f4a7c15ull);
	own.number = number;
	own.left = draw();
}

/* How many points fell into a block, the last of whose bytes is behind the first of them. */
static uint64_t points_in(size_t bytes)
{
	const uint64_t average = bytes / km_load(&record.mean);
	uint64_t points = 0;

	if (km_unlikely(average > MOST_POINTS)) {
		own.left = draw();
		return average;
	}
	while (own.left <= 0) {
		own.left += draw();
		points++;
	}
	km_debug(points || own.number, "a thread that has come to a sample has begun");
	return points;
}

/* ------------------------------------------------------------------ sites */

struct source {
	uintptr_t frame[KM_PROFILE_FRAMES];
	char cache[KM_NAME_BYTES];
	const char *group_name;
	unsigned depth, group;
	uint64_t hash;
};

static void describe(struct source *source, const struct kmem_cache *cache)
{
	const struct obj_cgroup *objcg = cache && !km_is_charged(cache) ? NULL : km_objcg_now();
	uint64_t word, hash;

	source->depth = km_stack_take(source->frame, KM_PROFILE_FRAMES);
	__builtin_memset(source->cache, 0, sizeof(source->cache));
	if (cache)
		__builtin_memcpy(source->cache, cache->name, sizeof(source->cache) - 1);
	source->group = 0;
	source->group_name = objcg ? km_accounting.name_of(objcg, &source->group) : "";
	/* By place, so that no product waits for another. */
	hash = source->group;
	for (unsigned i = 0; i < source->depth; i++)
		hash += source->frame[i] * (0x9e3779b97f4a7c15ull * (2 * i + 1));
	for (unsigned i = 0; i < sizeof(source->cache); i += sizeof(word)) {
		__builtin_memcpy(&word, source->cache + i, sizeof(word));
		hash += word * (0xd1b54a32d192ed03ull * (2 * i + 1));
	}
	hash = mix(hash);
	source->hash = hash > CHANGES ? hash : hash + 2;
}

static void fill_in(struct km_profile_site *site, const struct source *source)
{
	site->depth = source->depth;
	site->group = source->group;
	__builtin_memcpy(site->cache, source->cache, sizeof(site->cache));
	km_format(site->group_name, sizeof(site->group_name), "%s", source->group_name);
	__builtin_memcpy(site->frame, source->frame, source->depth * sizeof(*site->frame));
	/* Release pairs with site_of, and with readers: the rest is there. */
	km_store_release(&site->hash, source->hash);
}

/* NULL: there is no room. Two threads that come at once may make two of the same, which a reader adds up. */
static struct km_profile_site *site_of(const struct source *source)
{
	for (unsigned i = 0; i < SITE_TRIES; i++) {
		struct km_profile_site *site = &record.site[(source->hash + i) % KM_PROFILE_SITES];
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

/* ------------------------------------------------------------------ samples that are out */

static unsigned hash_of(const void *p)
{
	return (unsigned)(((uintptr_t)p >> 3) * 0x9e3779b97f4a7c15ull >> 48);
}

static struct km_profile_slot *slot_at(unsigned hash, unsigned i)
{
	return &record.slot[(hash + i) % KM_PROFILE_SLOTS];
}

/* The bytes and the objects that a sample of so many bytes stands for. */
static void weigh(uint64_t bytes, uint64_t *weight, uint64_t *parts)
{
	double q = chance((double)bytes / (double)km_load(&record.mean));

	km_debug(q > 0 && q <= 1, "a sample has a probability");
	const double each = 1 / q;
	*weight = (uint64_t)((double)bytes * each + 0.5);
	*parts = (uint64_t)(KM_PROFILE_PART * each + 0.5);
}

static void count_out(uint64_t what)
{
	struct km_profile_site *site = &record.site[(what >> SITE_SHIFT) % KM_PROFILE_SITES];
	uint64_t weight, parts;

	km_debug(km_load(&site->hash), "a sample that is out has a site");
	weigh(what & MOST_BYTES, &weight, &parts);
	km_add(&site->freed_bytes, weight);
	km_add(&site->freed_parts, parts);
}

static bool put_in_slot(struct km_profile_slot *slot, const void *p, uint64_t what)
{
	uintptr_t seen = km_load(&slot->p);

	km_debug(slot < record.slot + KM_PROFILE_SLOTS && (uintptr_t)p > CHANGES, "a slot has an object's address");
	if (seen || !km_cas_acquire(&slot->p, &seen, (uintptr_t)CHANGES))
		return false;
	km_store(&slot->what, what);
	/* Release pairs with take_out: the word is there. */
	km_store_release(&slot->p, (uintptr_t)p);
	return true;
}

/* The filter knows of it before it is anybody's. */
static void remember(const void *p, uint64_t what)
{
	unsigned hash = hash_of(p);

	km_add(&filter[hash], 1);
	for (unsigned i = 0; i < SLOT_TRIES; i++)
		if (put_in_slot(slot_at(hash, i), p, what))
			return;
	km_sub(&filter[hash], 1);
	km_add(&record.untracked, 1ul);
	count_out(what);
}

/* It was sampled once. */
static km_noinline void take_out(const void *p, unsigned hash)
{
	for (unsigned i = 0; i < SLOT_TRIES; i++) {
		struct km_profile_slot *slot = slot_at(hash, i);
		uintptr_t seen = km_load_acquire(&slot->p);
		uint64_t what = km_load(&slot->what);

		if (seen != (uintptr_t)p || !km_cas_acquire(&slot->p, &seen, (uintptr_t)0))
			continue;
		km_sub(&filter[hash], 1);
		km_probe_otel_free(p);
		count_out(what);
		return;
	}
}

/* ------------------------------------------------------------------ calls */

static void forget(const void *p)
{
	unsigned hash = hash_of(p);

	if (km_unlikely(km_load(&filter[hash])))
		take_out(p, hash);
}

static km_noinline void sample(const struct kmem_cache *cache, void *p, size_t bytes, uint64_t points)
{
	struct source source;
	uint64_t weight, parts;

	km_probe_otel_alloc(p, bytes, points * km_load(&record.mean));
	/* It may have gone by a way that nobody saw: with its private group's slabs. */
	forget(p);
	describe(&source, cache);
	struct km_profile_site *site = site_of(&source);
	if (!site) {
		km_add(&record.lost, 1ul);
		return;
	}
	km_debug(site >= record.site && site < record.site + KM_PROFILE_SITES, "a site is one of the table's");
	weigh(bytes, &weight, &parts);
	km_add(&site->bytes, weight);
	km_add(&site->parts, parts);
	km_add(&site->samples, 1u);
	remember(p, (uint64_t)(site - record.site) << SITE_SHIFT | bytes);
}

/* The shelves serve all, so that no miss may come for long: then nothing else would see that the profile is over. */
static void tick(void)
{
	if (km_front_busy || km_no_calls)
		return;
	bool was = km_busy_begin();
	km_front_tick_now();
	km_busy_end(was);
}

static km_noinline void look(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait)
{
	uint32_t number = km_load(&record.number);

	if (own.number != number) {
		begin_thread(number);
		own.left -= (int64_t)bytes;
		if (own.left > 0)
			return;
	}
	uint64_t points = points_in(bytes);
	/* A cache by its name: the points that fell into others' bytes are as if they had not been. */
	bool wanted = !record.cache[0] || (cache && !__builtin_strcmp(cache->name, record.cache));
	if (wanted && km_load(&record.state) == KM_PROFILE_ON && bytes <= MOST_BYTES)
		sample(cache, p, bytes, points);
	if (may_wait)
		tick();
}

static void profile_comes(const struct kmem_cache *cache, void *p, size_t bytes, bool may_wait)
{
	own.left -= (int64_t)bytes;
	if (km_unlikely(own.left <= 0) || km_unlikely(own.number != km_load(&record.number)))
		look(cache, p, bytes, may_wait);
}

static void profile_goes(const void *p)
{
	forget(p);
}

/* ------------------------------------------------------------------ it begins, and ends */

/* One mapping: sites, slots, what is known of functions, the filter. */
static bool make_tables(void)
{
	const size_t sites = KM_PROFILE_SITES * sizeof(struct km_profile_site);
	const size_t slots = KM_PROFILE_SLOTS * sizeof(struct km_profile_slot);
	const size_t rules = KM_STACK_RULES * sizeof(struct km_stack_rule);
	const size_t bytes = km_align_up(sites + slots + rules + KM_PROFILE_SLOTS, km_os_page_bytes());

	_Static_assert(KM_PROFILE_SITES <= 1u << (64 - SITE_SHIFT) && KM_PROFILE_SLOTS == 1u << 16,
		       "a slot's word has room for a site; a filter's hash has 16 bits");
	_Static_assert(KM_PROFILE_SITES * sizeof(struct km_profile_site) + KM_PROFILE_SLOTS *
		       (sizeof(struct km_profile_slot) + 1) + KM_STACK_RULES * sizeof(struct km_stack_rule) <= 3000000,
		       "at most three megabytes");
	char *map = record.site ? NULL : km_os_map(bytes, km_os_page_bytes());
	if (!map)
		return record.site != NULL;
	km_os_name(map, bytes, "libkmem profile");
	km_meta_note_span(map, bytes);
	record.slot = (void *)(map + sites);
	filter = (uint8_t *)(map + sites + slots + rules);
	km_stack_start((void *)(map + sites + slots));
	/* Release pairs with readers: the other table is there. */
	km_store_release(&record.site, (struct km_profile_site *)map);
	return true;
}

/* Calls of the former profile may be under way still: an entry that one of them makes just now is a wrong sample. */
static void clear_tables(void)
{
	if (record.number) {
		__builtin_memset(record.site, 0, KM_PROFILE_SITES * sizeof(*record.site));
		__builtin_memset(record.slot, 0, KM_PROFILE_SLOTS * sizeof(*record.slot));
		__builtin_memset(filter, 0, KM_PROFILE_SLOTS);
	}
	record.lost = record.untracked = 0;
	threads = 0;
}

static bool profile_begin(void)
{
	if (!make_tables()) {
		km_store(&record.state, (uint32_t)KM_PROFILE_NEVER);
		return false;
	}
	clear_tables();
	/* Nobody has said how: a tracer came. */
	if (km_load(&record.state) != KM_PROFILE_ASKED) {
		km_store(&record.mean, (uint64_t)KM_PROFILE_MEAN);
		km_store(&record.ends_ms, (uint64_t)0);
		record.cache[0] = '\0';
	}
	km_os_random(&seed, sizeof(seed), false);
	seed = fixed_seed ?: mix(seed + km_os_now_ms() + km_os_pid());
	record.began_ms = km_os_now_ms();
	km_store(&record.number, record.number + 1 ?: 1);
	/* Release pairs with nobody here: calls come by this thread's drain, readers from outside. */
	km_store_release(&record.state, (uint32_t)KM_PROFILE_ON);
	return true;
}

static void profile_end(void)
{
	km_store(&record.state, (uint32_t)KM_PROFILE_OVER);
}

static bool is_active(void)
{
	uint32_t state = km_load(&record.state);

	return state == KM_PROFILE_ASKED || state == KM_PROFILE_ON;
}

/* A tracer of samples wants some: with the usual mean, for as long as it stays. */
static bool profile_is_wanted(void)
{
	uint64_t ends = km_load(&record.ends_ms);

	if (km_load(&km_otel_counts.any))
		return true;
	return is_active() && (!ends || km_os_now_ms() < ends);
}

static void profile_start(uint64_t mean)
{
	if (!mean)
		return;
	record.mean = km_min(mean, MOST_MEAN);
	record.state = KM_PROFILE_ASKED;
	if (!profile_begin()) {
		km_warn("KMEM_OPTIONS: profile: the system refuses the memory");
		return;
	}
	km_store(&km_front_probing, (uint32_t)KM_PROBING_PROFILE);
}

/* "BYTES:SECONDS" */
static bool read_letters(const char *text, uint64_t *mean, uint64_t *seconds)
{
	uint64_t *number = mean;

	*mean = *seconds = 0;
	for (; *text; text++) {
		if (*text == ':' && number == mean)
			number = seconds;
		else if (*text < '0' || *text > '9')
			return false;
		else
			*number = *number * 10 + (uint64_t)(*text - '0');
	}
	return *mean <= MOST_MEAN && *seconds <= MOST_SECONDS && (!*mean || *seconds);
}

int km_profile_ask(const struct km_mail_request *request)
{
	uint64_t mean, seconds;

	if (!read_letters(request->letters, &mean, &seconds))
		return -EINVAL;
	/* One that goes on by itself, as options or a tracer want, is nobody's to end. */
	if (is_active() && (mean || !record.ends_ms) && profile_is_wanted())
		return -EBUSY;
	if (!mean) {
		km_store(&record.ends_ms, km_os_now_ms());
		return 0;
	}
	if (km_load(&km_front_probing) & KM_PROBING_PROFILE)
		return -EBUSY;
	km_store(&record.mean, mean);
	__builtin_memcpy(record.cache, request->cache, sizeof(record.cache));
	km_store(&record.ends_ms, km_os_now_ms() + seconds * 1000);
	km_debug(record.ends_ms && record.mean, "a profile that was asked for ends");
	km_store(&record.state, (uint32_t)KM_PROFILE_ASKED);
	return 0;
}

void km_profile_seed(uint64_t fixed)
{
	fixed_seed = fixed;
}

const struct km_profiling km_profiling = {
	.start = profile_start, .is_wanted = profile_is_wanted, .begin = profile_begin, .end = profile_end,
	.comes = profile_comes, .goes = profile_goes, .record = &record,
};
