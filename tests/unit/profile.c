/*
 * profile: for a program whose call sites allocate known bytes the profile reports each site's share of allocated
 * bytes, and of bytes not freed, within three standard deviations of the sample; by all functions, for charged
 * objects as well; in two threads no sample is lost. After the end of a profile hits are hits again. Not with
 * hardened: hits by the public sheaf are looked at, which is closed.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/memcg.h>

#include "kit/api.h"
#include "kit/clock.h"

#include "cache/cache.h"
#include "alloc/alloc_ops.h"
#include "kit/inside.h"
#include "cache/mailbox.h"

#define MEAN	4096u
#define ROUNDS	4000

/* Each call site is a section by itself, so that an address in the site can be recognized. */
#define SITES(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9)
#define SITE(n)											\
	extern const char __start_site##n[], __stop_site##n[];						\
	static void *at_site##n(void)								\
		__attribute__((noinline, noclone, used, section("site" #n)));
SITES(SITE)

static struct kmem_cache *small, *large, *charged;
static struct mem_cgroup *group;

static void *at_site0(void) { return HELD(kmem_cache_alloc(small, GFP_KERNEL)); }
static void *at_site1(void) { return HELD(kmem_cache_alloc(large, GFP_KERNEL)); }
static void *at_site2(void) { return HELD(kmalloc(24, GFP_KERNEL)); }
static void *at_site3(void) { return HELD(kmalloc(1000, GFP_KERNEL)); }
static void *at_site4(void) { return HELD(kmalloc(100000, GFP_KERNEL)); }
static void *at_site5(void) { return HELD(kmem_cache_zalloc(small, GFP_KERNEL)); }
static void *at_site6(void) { return HELD(malloc(500)); }
static void *at_site7(void) { return HELD(calloc(3, 3000)); }
static void *at_site8(void) { return HELD(kmem_cache_alloc(charged, GFP_KERNEL_ACCOUNT)); }
static void *at_site9(void)
{
	void *p[1];

	NEED(kmem_cache_alloc_bulk(large, GFP_KERNEL, 1, p));
	return HELD(p[0]);
}

#define ENTRY(n) { at_site##n, __start_site##n, __stop_site##n },
static const struct {
	void *(*call)(void);
	const char *start, *stop;
} sites[] = { SITES(ENTRY) };
#define COUNT km_array_count(sites)

/* ------------------------------------------------------------------ what is true */

struct sum {
	double bytes, variance;		/* of the estimate */
};
static struct sum came[COUNT], left[COUNT];

static void add(struct sum *sum, double bytes)
{
	double q = -expm1(-bytes / MEAN);

	sum->bytes += bytes;
	sum->variance += bytes * bytes * (1 - q) / q;
}

/* Bytes used by the object, as the profile counts. */
static double bytes_of(size_t site, void *p)
{
	switch (site) {
	case 0: case 5:
		return small->layout.size;
	case 1: case 9:
		return large->layout.size;
	case 8:
		return charged->layout.size;
	}
	return (double)ksize(p);
}

/* ------------------------------------------------------------------ reports */

static void ask(const char *letters)
{
	struct kmem_mail_request request = { .command = KMEM_MAIL_PROFILE };

	strcpy(request.letters, letters);
	INSIDE(km_registry_lock(); NEED(km_profile_ops->ask(&request) == 0); km_registry_unlock(); km_probes_look());
}

static bool is_at(const struct kmem_profile_site *seen, size_t site)
{
	const char *pc = (const char *)seen->frame[0];

	return seen->hash > 1 && seen->depth && pc > sites[site].start && pc <= sites[site].stop;
}

static unsigned long samples(void)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	unsigned long all = 0;

	for (size_t i = 0; i < record->sites; i++)
		all += record->site[i].samples;
	return all;
}

/* By libm's exponential, independent of the library. */
static double stands_for(uint64_t bytes)
{
	return (double)bytes / -expm1(-(double)bytes / (double)km_profile_ops->record->mean);
}

/* The samples of allocated objects estimate the allocated bytes. */
static double estimate_out(size_t site)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	double bytes = 0;

	for (size_t i = 0; i < record->slots; i++) {
		const struct kmem_profile_slot *slot = &record->slot[i];

		if (slot->p > 1 && is_at(&record->site[slot->what >> KMEM_PROFILE_SITE_SHIFT], site))
			bytes += stands_for(slot->what & KMEM_PROFILE_MOST_BYTES);
	}
	return bytes;
}

static double estimate(size_t site, bool out)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	double bytes = 0;

	for (size_t i = 0; !out && i < record->sites; i++)
		if (is_at(&record->site[i], site))
			bytes += (double)record->site[i].bytes;
	return out ? estimate_out(site) : bytes;
}

static void compare(size_t site, const char *what, const struct sum *sum, bool out)
{
	double got = estimate(site, out), sigma = sqrt(sum->variance);

	printf("site %zu: %s %.0f, estimated %.0f: %+.2f sigma\n", site, what, sum->bytes, got,
	       (got - sum->bytes) / sigma);
	CHECK(fabs(got - sum->bytes) <= 3 * sigma);
	CHECK(sum->bytes > 10 * MEAN);
}

/* ------------------------------------------------------------------ cases */

static void make_caches(void)
{
	small = make("small", 56);
	large = make("large", 1500);
	charged = kmem_cache_create("charged", 200, NULL, 0);
	group = mem_cgroup_create(NULL, "tenant", 0);
	NEED(charged && group);
}

static void give_back(size_t site, void *p)
{
	static struct kmem_cache **const own[COUNT] = {
		[0] = &small, [1] = &large, [5] = &small, [8] = &charged, [9] = &large,
	};

	if (own[site])
		kmem_cache_free(*own[site], p);
	else if (site == 6 || site == 7)
		free(p);
	else
		kfree(p);
}

static void shares(void)
{
	static void *out[COUNT][ROUNDS];
	struct mem_cgroup *before;

	make_caches();
	INSIDE(km_profile_seed(20261));
	before = set_active_memcg(group);
	ask("4096:100");
	NEED(km_profile_ops->record->state == KMEM_PROFILE_ON);
	for (unsigned i = 0; i < ROUNDS * COUNT; i++) {
		size_t site = i * 7 % COUNT, round = i / COUNT;
		void **p = &out[site][round];

		/* Fewer samples for larger sizes. */
		if (site == 4 && round % 16)
			continue;
		NEED((*p = sites[site].call()));
		add(&came[site], bytes_of(site, *p));
		if ((round / 2 * 2654435761u >> 16) % 3 == site % 3) {
			give_back(site, *p);
			*p = NULL;
		} else {
			add(&left[site], bytes_of(site, *p));
		}
	}
	NEED(km_profile_ops->record->lost == 0 && km_profile_ops->record->untracked == 0);
	for (size_t site = 0; site < COUNT; site++) {
		/* Slob has blocks of any size, and headers. */
		if (slob && site != 0 && site != 1 && site != 4)
			continue;
		compare(site, "allocated", &came[site], false);
		compare(site, "out", &left[site], true);
	}
	for (size_t site = 0; site < COUNT; site++)
		for (size_t i = 0; i < ROUNDS; i++)
			if (out[site][i])
				give_back(site, out[site][i]);
	for (size_t site = 0; site < COUNT; site++)
		CHECK(estimate(site, true) == 0);
	set_active_memcg(before);
}

/* ---- a stack found again is the same stack */

#define CALLERS(x) x(_plain) x(_other) x(_near) x(_far)
#define CALLER(name)										\
	extern const char __start_by##name[], __stop_by##name[];				\
	static void *caller##name(size_t gap)							\
		__attribute__((noinline, noclone, used, section("by" #name)));
CALLERS(CALLER)

/* One call of the library, and so one place, for all of them. */
static __attribute__((noinline, noclone)) void *in_common(void)
{
	return HELD(kmem_cache_alloc(small, GFP_KERNEL));
}

static void *caller_plain(size_t gap) { return HELD((gap ? in_common : NULL)()); }
static void *caller_other(size_t gap) { return HELD((gap ? in_common : NULL)()); }

#define TWO_GAPS 4096u
/* A frame found by a frame pointer, with an old return address of another call in the frame. */
static __attribute__((noinline, noclone)) void *moving(size_t gap)
{
	char *room = __builtin_alloca(gap);

	__asm__ volatile("" : : "r"(room) : "memory");
	return HELD(in_common());
}

#define BY_MOVING(gap)									\
	({											\
		char *room = __builtin_alloca(gap);						\
		__asm__ volatile("" : : "r"(room) : "memory");					\
		HELD(moving(TWO_GAPS - (gap)));						\
	})
static void *caller_near(size_t gap) { return BY_MOVING(gap); }
static void *caller_far(size_t gap) { return BY_MOVING(gap + 1024); }

#define CALLED(name) { caller##name, __start_by##name, __stop_by##name },
static const struct {
	void *(*call)(size_t gap);
	const char *start, *stop;
} callers[] = { CALLERS(CALLED) };

static bool is_by(uintptr_t pc, size_t caller)
{
	return (const char *)pc > callers[caller].start && (const char *)pc <= callers[caller].stop;
}

/* Bytes of samples with this caller's frame and a continuation to the program's first function. */
static double bytes_by(size_t caller, uintptr_t above)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	double bytes = 0;

	for (size_t i = 0; i < record->sites; i++) {
		const struct kmem_profile_site *site = &record->site[i];
		bool whole = false;

		for (unsigned j = 2; j < site->depth; j++)
			whole |= site->frame[j] == above;
		if (site->hash > 1 && (is_by(site->frame[1], caller) || is_by(site->frame[2], caller)))
			bytes += whole ? (double)site->bytes : -1e12;
	}
	return bytes;
}

/* Without the compilers' tables a stack is one call. */
static bool whole_stacks(void)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	uint32_t deepest = 0;

	for (size_t i = 0; i < record->sites; i++)
		deepest = km_max(deepest, record->site[i].depth);
	return deepest > 1;
}

static void same_place(void)
{
	const uintptr_t above = (uintptr_t)__builtin_return_address(0);
	struct sum sum[km_array_count(callers)] = { { 0, 0 } };

	make_caches();
	INSIDE(km_profile_seed(20262));
	ask("4096:100");
	for (unsigned i = 0; i < 30 * ROUNDS; i++) {
		size_t caller = (i * 2654435761u >> 16) % km_array_count(callers);
		void *p = callers[caller].call(512);

		add(&sum[caller], small->layout.size);
		kmem_cache_free(small, p);
	}
	for (size_t i = 0; i < km_array_count(callers); i++) {
		double got = bytes_by(i, above), sigma = sqrt(sum[i].variance);

		printf("caller %zu: %.0f, estimated %.0f: %+.2f sigma\n", i, sum[i].bytes, got,
		       (got - sum[i].bytes) / sigma);
		CHECK(fabs(got - sum[i].bytes) <= 3 * sigma || !whole_stacks());
	}
}

static size_t slots_taken(void)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	size_t taken = 0;

	for (size_t i = 0; i < record->slots; i++)
		taken += record->slot[i].p > 1;
	return taken;
}

static void *churn(void *unused)
{
	for (int i = 0; i < 8000; i++) {
		void *many[8];

		NEED(kmem_cache_alloc_bulk(small, GFP_KERNEL, 8, many));
		void *one = kmalloc(3000, GFP_KERNEL);
		kmem_cache_free_bulk(small, 8, many);
		kfree(one);
	}
	return unused;
}

/* All objects were freed: no sample is left. */
static void threads(void)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	pthread_t thread[3];

	make_caches();
	ask("1000:100");
	for (int i = 0; i < 3; i++)
		NEED(pthread_create(&thread[i], NULL, churn, NULL) == 0);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	CHECK(samples() > 20000);
	/* pthread_create's own blocks are still allocated. */
	CHECK(slots_taken() < 10);
	CHECK(record->lost == 0 && record->untracked == 0);
}

/* A private group's objects go with their slabs. */
static void at_once(void)
{
	make_caches();
	if (slob)
		return;
	NEED((group = mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE)));
	ask("4096:100");
	struct mem_cgroup *before = set_active_memcg(group);
	for (int i = 0; i < 5000; i++)
		NEED(kmem_cache_alloc(charged, GFP_KERNEL_ACCOUNT));
	set_active_memcg(before);
	CHECK(slots_taken() > 100);
	NEED(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
	CHECK(slots_taken() == 0);
}

/* A resized block counts as a free and an allocation; the child of a fork goes on by itself. */
static void resized(void)
{
	int status;

	make_caches();
	ask("4096:100");
	for (size_t bytes = 100000; bytes < 20u << 20; bytes *= 3) {
		char *p = malloc(bytes);

		for (size_t more = bytes; more < 4 * bytes; more += bytes / 4)
			NEED((p = realloc(p, more)));
		CHECK(slots_taken() == 1);
		free(p);
		CHECK(slots_taken() == 0);
	}
	void *p = kmalloc(1 << 20, GFP_KERNEL);
	pid_t child = fork();
	if (!child) {
		bool right = slots_taken() == 1;

		kfree(p);
		right &= slots_taken() == 0 && kmalloc(1 << 20, GFP_KERNEL) && slots_taken() == 1;
		_exit(right ? 0 : 1);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	CHECK(slots_taken() == 1);
	kfree(p);
}

static void off_and_on(void)
{
	const struct kmem_profile_record *record = km_profile_ops->record;
	struct kmem_mail_request other = { .command = KMEM_MAIL_PROFILE, .letters = "4096:5" };
	uint32_t number;

	make_caches();
	NEED(record->state == KMEM_PROFILE_NEVER && !small->ext.hooks);
	ask("65536:100");
	number = record->number;
	NEED(record->state == KMEM_PROFILE_ON && small->ext.hooks && !small->fast.pcs.front.open.pcs);
	/* In place of a hit there is a short path, where sequences find a CPU's sheaf. */
	NEED((small->layers[KM_LAYER_OBSERVE] == &km_ops_profiled) ==
	     (small->layout.engine->front == KM_PERCPU_SHEAVES && km_percpu.index == KM_INDEX_CPU));
	NEED(km_profile_ops->ask(&other) == -EBUSY);
	ask("0");
	NEED(record->state == KMEM_PROFILE_OVER && !small->ext.hooks);
	unsigned long before = samples();
	for (int i = 0; i < 100000; i++)
		kmem_cache_free(small, kmem_cache_alloc(small, GFP_KERNEL));
	NEED(samples() == before);
	/* Of one cache alone. */
	other = (struct kmem_mail_request){ .command = KMEM_MAIL_PROFILE, .cache = "large", .letters = "4096:100" };
	INSIDE(NEED(km_profile_ops->ask(&other) == 0); km_probes_look());
	NEED(record->number != number && samples() == 0);
	for (int i = 0; i < 100000; i++) {
		kmem_cache_free(small, kmem_cache_alloc(small, GFP_KERNEL));
		kmem_cache_free(large, kmem_cache_alloc(large, GFP_KERNEL));
	}
	for (size_t i = 0; i < record->sites; i++)
		CHECK(!record->site[i].hash || !strcmp(record->site[i].cache, "large"));
	CHECK(samples() > 10000);
	ask("");
	const char *const bad[] = { "x", "1", "1:", ":", "99999999999:1", "1:99999999", "1:1:1", "-1:1" };
	for (size_t i = 0; i < km_array_count(bad); i++) {
		strcpy(other.letters, bad[i]);
		CHECK(km_profile_ops->ask(&other) == -EINVAL || !strcmp(bad[i], ":"));
	}
}

/* By the mailbox: a profile may follow as soon as the other has ended, before a miss has noticed. */
static void one_after_the_other(void)
{
	struct kmem_mail_request over = { .command = KMEM_MAIL_PROFILE, .letters = "0" };

	make_caches();
	ask("65536:100");
	uint32_t number = km_profile_ops->record->number;
	INSIDE(NEED(km_profile_ops->ask(&over) == 0));
	km_mail.request = (struct kmem_mail_request){ .command = KMEM_MAIL_PROFILE, .letters = "4096:100" };
	km_store_release(&km_mail.asked, 77u);
	INSIDE(km_control_ops->tick());
	CHECK(km_mail.answered == 77 && km_mail.result == 0);
	INSIDE(km_probes_look());
	CHECK(km_profile_ops->record->number == number + 1 && km_profile_ops->record->state == KMEM_PROFILE_ON);
}

/* A call of the former profile is in the middle of recording an object: the record stays. */
static void begun_meanwhile(void)
{
	struct kmem_profile_slot *slot;
	void *p;

	make_caches();
	ask("4096:100");
	ask("0");
	p = kmem_cache_alloc(small, GFP_KERNEL);
	slot = &km_profile_ops->record->slot[km_profile_row(p) * KM_PROFILE_ROW];
	slot->p = 1;
	slot->what = small->layout.size;
	ask("4096:100");
	CHECK(slot->what == small->layout.size);
	CHECK(slots_taken() == 0);
	kmem_cache_free(small, p);
}

static const struct test_case cases[] = {
	{ "shares", shares }, { "threads", threads }, { "at once", at_once }, { "resized", resized },
	{ "off and on", off_and_on }, { "same place", same_place }, { "one after the other", one_after_the_other },
	{ "begun meanwhile", begun_meanwhile },
};
API_MAIN(cases)
