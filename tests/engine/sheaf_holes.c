/*
 * sheaf_holes: pages without allocated objects in a slab of engine sheaf give their memory back: all of them on
 * demand, and at a reap the pages found so twice. Neighbouring objects are unchanged, in the same slab and across the
 * edge of a page. Not in caches whose free objects keep their contents, nor in a reserved cache. During the system
 * call other threads see the objects as free, and allocate, free, fork and reap. Released pages are clean when their
 * slab is freed, and count against no bound meanwhile. Disciplines: all. With hardened: own_addresses:0, because here
 * a freed page counts as free.
 */
#include "kit/engine.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kit/holes.h"
#include "kit/random.h"

static void asked_for(void)
{
	struct kmem_cache *cache = fresh(SIZE);
	struct kmem_stats before, after;

	begin();
	fill(cache, SIZE);
	/* Objects in random order need a slab more, not fully touched. */
	unsigned slabs = thin_out(cache), pages = all_resident();
	CHECK(pages > (slabs - 1) * cache->form.slab_pages * 3 / 4);
	kmem_get_stats(&before);
	size_t there = km_pages_there();
	CHECK_EQUAL(kmem_cache_shrink(cache), 1);
	kmem_get_stats(&after);
	CHECK(there - km_pages_there() >= pages - slabs);
	CHECK_EQUAL(km_arena_check(), 0);
	CHECK_EQUAL(all_resident(), slabs);
	CHECK(after.purged_pages - before.purged_pages >= pages - slabs);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	/* Nothing is left to give. */
	CHECK_EQUAL(cache->layout.engine->hollow(cache), 0);
	fill(cache, SIZE);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	CHECK_EQUAL(km_arena_check(), 0);
	CHECK_EQUAL(km_pages_there(), km_pages_used());
	/* kmem_shrink_all counts the released memory. */
	slabs = thin_out(cache);
	pages = all_resident();
	CHECK(kmem_shrink_all() >= (pages - slabs) * KM_PAGE_SIZE);
	CHECK_EQUAL(all_resident(), slabs);
	done(cache, SIZE);
}

/* One look marks, the next one gives; what was taken meanwhile stays, and what was freed again since. */
static void two_looks(void)
{
	struct kmem_cache *cache = fresh(SIZE);

	begin();
	fill(cache, SIZE);
	unsigned slabs = thin_out(cache), pages = all_resident();
	CHECK_EQUAL(look(cache), 0);
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);
	const struct km_page *used = slab_of(object);
	kmem_cache_free(cache, object);
	send_home(cache);
	CHECK(look(cache) > 0);
	CHECK(all_resident() < pages / 2 && resident(used) > 1);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	look(cache);
	CHECK_EQUAL(all_resident(), slabs);
	fill(cache, SIZE);
	/* They are in use: no look has anything to give. */
	pages = all_resident();
	CHECK(pages > MANY * 4);
	CHECK_EQUAL(look(cache) + look(cache) + look(cache), 0);
	CHECK_EQUAL(all_resident(), pages);
	done(cache, SIZE);
}

static void construct(void *object)
{
	memset(object, 'c', SIZE);
}

/* A constructor's work, and what a reader of an earlier object may still read. */
static void content_stays(void)
{
	const slab_flags_t flags[] = { 0, SLAB_TYPESAFE_BY_RCU };

	begin();
	for (unsigned which = 0; which < km_array_count(flags); which++) {
		struct kmem_cache_args args = { .engine = "sheaf", .ctor = which ? NULL : construct };
		struct kmem_cache *cache = cache_of(args, SIZE, flags[which]);

		fill(cache, SIZE);
		thin_out(cache);
		unsigned before = all_resident();
		kmem_cache_shrink(cache);
		look(cache);
		look(cache);
		CHECK_EQUAL(all_resident(), before);
		done(cache, SIZE);
	}
}

static bool refuse_purges(const char *call)
{
	return !strcmp(call, "purge");
}

/* The system refuses: the pages stay as they are, and are offered again. */
static void refused(void)
{
	struct kmem_cache *cache = fresh(SIZE);

	begin();
	fill(cache, SIZE);
	unsigned slabs = thin_out(cache), pages = all_resident();
	km_os_fault = refuse_purges;
	CHECK_EQUAL(kmem_cache_shrink(cache), 1);
	look(cache);
	CHECK_EQUAL(look(cache), 0);
	CHECK_EQUAL(all_resident(), pages);
	CHECK_EQUAL(cache->layout.engine->check(cache), 0);
	km_os_fault = NULL;
	kmem_cache_shrink(cache);
	CHECK_EQUAL(all_resident(), slabs);
	done(cache, SIZE);
}

/* Objects across the edge of a page, and larger objects; allocated and freed at random. */
static void across_edges(void)
{
	const unsigned sizes[] = { 320, 700, 1100, 1536, 3000, 5000, 9000, 20000 };

	begin();
	for (unsigned which = 0; which < km_array_count(sizes); which++) {
		struct kmem_cache *cache = fresh(sizes[which]);

		for (unsigned turn = 0; turn < TURNS; turn++) {
			unsigned i = (unsigned)random_below(MANY), run = (unsigned)random_below(24) + 1;

			for (unsigned end = km_min(i + run, (unsigned)MANY); i < end; i++) {
				if (!objects[i]) {
					NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL)));
					write_to(i, sizes[which]);
					continue;
				}
				CHECK(is_whole(i, sizes[which]));
				kmem_cache_free(cache, objects[i]);
				objects[i] = NULL;
			}
			if (turn % 16 == 7)
				kmem_cache_shrink(cache);
			else if (turn % 4 == 0)
				send_home(cache);
			INSIDE(cache->layout.engine->reap(cache));
			CHECK_EQUAL(cache->layout.engine->check(cache), 0);
		}
		done(cache, sizes[which]);
	}
}

struct thread {
	pthread_t id;
	struct kmem_cache *cache;
	uint64_t state;
	unsigned torn;
};

static void *work(void *arg)
{
	struct thread *thread = arg;
	uint64_t *mine[64] = { NULL };

	for (unsigned call = 0; call < CALLS; call++) {
		unsigned i = (unsigned)(random_next(&thread->state) % 64);

		if (!mine[i]) {
			mine[i] = kmem_cache_alloc(thread->cache, GFP_KERNEL);
			NEED(mine[i]);
			for (unsigned word = 0; word < SIZE / 8; word += 16)
				mine[i][word] = (uintptr_t)&mine[i] + word;
			continue;
		}
		for (unsigned word = 0; word < SIZE / 8; word += 16)
			thread->torn += mine[i][word] != (uintptr_t)&mine[i] + word;
		kmem_cache_free(thread->cache, mine[i]);
		mine[i] = NULL;
	}
	for (unsigned i = 0; i < 64; i++)
		if (mine[i])
			kmem_cache_free(thread->cache, mine[i]);
	return NULL;
}

/* Meanwhile others allocate and free. */
static void beside_others(void)
{
	struct kmem_cache *cache = fresh(SIZE);
	struct thread threads[THREADS];

	begin();
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i] = (struct thread){ .cache = cache, .state = i };
		NEED(!pthread_create(&threads[i].id, NULL, work, &threads[i]));
	}
	for (unsigned i = 0; i < SHRINKS; i++)
		kmem_cache_shrink(cache);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i].id, NULL);
		CHECK_EQUAL(threads[i].torn, 0);
	}
	done(cache, SIZE);
}

/* ------------------------------------------------------------------ while the system is called */

static struct kmem_cache *looked;
static void (*beside)(void);
static unsigned purges, strike;
static bool in_purge;

static void *in_thread(void *unused)
{
	(void)unused;
	beside();
	return NULL;
}

/* At this call, or at each call (0), another thread does all its work. */
static bool others_come_by(const char *call)
{
	pthread_t thread;

	if (strcmp(call, "purge") != 0 || in_purge || (++purges != strike && strike))
		return false;
	in_purge = true;
	NEED(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
	in_purge = false;
	return false;
}

static void hollow_beside(void (*what)(void))
{
	beside = what;
	purges = 0;
	km_os_fault = others_come_by;
	INSIDE(looked->layout.engine->hollow(looked));
	km_os_fault = NULL;
	CHECK(purges);
}

static unsigned kept(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < MANY; i++)
		count += objects[i] != NULL;
	return count;
}

static int count_ours(void *object, void *count)
{
	bool ours = false;

	for (unsigned i = 0; i < MANY; i++)
		ours |= objects[i] == object;
	CHECK(ours);
	++*(unsigned *)count;
	return 0;
}

static int see_active(struct kmem_cache *cache, void *active)
{
	struct kmem_cache_stats stats;

	if (cache == looked) {
		kmem_cache_get_stats(cache, &stats);
		*(size_t *)active = stats.active_objects;
	}
	return 0;
}

static void look_at_it(void)
{
	struct kmem_cache_stats stats;
	unsigned walked = 0;
	size_t active = 0;

	CHECK_EQUAL(kmem_cache_walk(looked, count_ours, &walked), 0);
	CHECK_EQUAL(walked, kept());
	kmem_cache_get_stats(looked, &stats);
	CHECK_EQUAL(stats.active_objects, kept());
	CHECK_EQUAL(kmem_for_each_cache(see_active, &active), 0);
	CHECK_EQUAL(active, kept());
	CHECK_EQUAL(kmem_cache_validate(looked), 0);
	CHECK_EQUAL(kmem_check_all(), 0);
}

/* The pages being released have no allocated objects. */
static void looked_at(void)
{
	unsigned slabs = thinned(&looked);

	hollow_beside(look_at_it);
	CHECK_EQUAL(all_resident(), slabs);
	look_at_it();
	done(looked, SIZE);
}

static void also_look(void)
{
	INSIDE(looked->layout.engine->reap(looked));
}

static void *shrink_too(void *unused)
{
	(void)unused;
	INSIDE(looked->layout.engine->hollow(looked));
	return NULL;
}

/*
 * Two threads reap at once: no mark stays that an allocation would not remove. A thread on demand waits, and then has
 * no pages left.
 */
static void two_at_once(void)
{
	pthread_t threads[THREADS];

	begin();
	looked = fresh(SIZE);
	for (strike = 1; strike == 1 || purges >= strike - 1; strike++) {
		fill(looked, SIZE);
		/* The slab in work has free objects, but no free page. */
		keep_before(looked, 3, true);
		hollow_beside(also_look);
		fill(looked, SIZE);
		keep_before(looked, 7, false);
		look(looked);
		CHECK_EQUAL(looked->layout.engine->check(looked), 0);
	}
	strike = 0;
	fill(looked, SIZE);
	unsigned slabs = thin_out(looked);
	for (unsigned i = 0; i < THREADS; i++)
		NEED(!pthread_create(&threads[i], NULL, shrink_too, NULL));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQUAL(all_resident(), slabs);
	done(looked, SIZE);
}

static unsigned system_calls;

static bool count_purges(const char *call)
{
	system_calls += !strcmp(call, "purge");
	return false;
}

/* The program has locked a page: the other pages go, and this page is offered once. */
static void some_locked(void)
{
	begin();
	looked = fresh(SIZE);
	fill(looked, SIZE);
	struct km_page *slab = slab_of(objects[0]);
	unsigned slabs = thin_out(looked);
	/* In the middle of a hole, for any allocated object of the slab. */
	char *locked = (char *)km_page_address(slab) + 2 * KM_PAGE_SIZE;
	for (unsigned i = 0; i < MANY; i++)
		if (objects[i] && (size_t)((char *)objects[i] - locked) < KM_PAGE_SIZE)
			locked += KM_PAGE_SIZE;
	/* Sanitizers make nothing of mlock. */
	if (syscall(SYS_mlock, locked, (size_t)KM_PAGE_SIZE)) {
		printf("no page may be locked here\n");
		done(looked, SIZE);
		return;
	}
	look(looked);
	look(looked);
	CHECK_EQUAL(all_resident(), slabs + 1);
	CHECK_EQUAL(looked->layout.engine->check(looked), 0);
	km_os_fault = count_purges;
	system_calls = 0;
	CHECK_EQUAL(look(looked) + look(looked), 0);
	CHECK_EQUAL(system_calls, 0);
	/* On demand the call asks the system, too. */
	CHECK_EQUAL(kmem_cache_shrink(looked), 1);
	CHECK(system_calls);
	CHECK_EQUAL(all_resident(), slabs + 1);
	km_os_fault = NULL;
	syscall(SYS_munlock, locked, (size_t)KM_PAGE_SIZE);
	CHECK_EQUAL(kmem_cache_shrink(looked), 1);
	CHECK_EQUAL(all_resident(), slabs);
	/* Pages used since then are offered again. */
	fill(looked, SIZE);
	slabs = thin_out(looked);
	look(looked);
	look(looked);
	CHECK_EQUAL(all_resident(), slabs);
	done(looked, SIZE);
}

static bool refuse_to_fill(const char *call)
{
	/* The cache is reserved by then. */
	return !strcmp(call, "fault in") && looked->state.reserved_pages;
}

static void *reserve_it(void *unused)
{
	(void)unused;
	NEED(kmem_reserve(looked, MANY) == 0);
	return NULL;
}

static pthread_t reserver;
static bool reserve_meanwhile(const char *call)
{
	if (!strcmp(call, "purge") && !in_purge) {
		in_purge = true;
		NEED(!pthread_create(&reserver, NULL, reserve_it, NULL));
	}
	return false;
}

/*
 * Pages released from a cache are resident again after its reservation, and no page goes then; also with both at
 * once.
 */
static void reserved_later(void)
{
	unsigned slabs = thinned(&looked), pages = all_resident();

	kmem_cache_shrink(looked);
	CHECK_EQUAL(all_resident(), slabs);
	km_os_fault = refuse_to_fill;
	CHECK_EQUAL(kmem_reserve(looked, MANY), -ENOMEM);
	CHECK_EQUAL(looked->state.reserved_pages, 0);
	km_os_fault = NULL;
	CHECK_EQUAL(kmem_reserve(looked, MANY), 0);
	CHECK(all_resident() >= pages);
	kmem_cache_shrink(looked);
	look(looked);
	CHECK_EQUAL(look(looked), 0);
	CHECK(all_resident() >= pages);
	CHECK_EQUAL(kmem_reserve(looked, 0), 0);
	kmem_cache_shrink(looked);
	CHECK_EQUAL(all_resident(), slabs);
	in_purge = false;
	km_os_fault = reserve_meanwhile;
	fill(looked, SIZE);
	thin_out(looked);
	INSIDE(looked->layout.engine->hollow(looked));
	pthread_join(reserver, NULL);
	km_os_fault = NULL;
	in_purge = false;
	CHECK(all_resident() >= pages);
	CHECK_EQUAL(kmem_reserve(looked, 0), 0);
	done(looked, SIZE);
}

static size_t free_and_dirty(void)
{
	struct kmem_stats stats;

	kmem_get_stats(&stats);
	return stats.pages_free_dirty;
}

/* A released page is not resident memory when its slab is freed, nor part of another cache's reservation. */
static void gone_and_free(void)
{
	unsigned slabs = thinned(&looked);

	kmem_shrink_all();
	size_t before = free_and_dirty();
	for (unsigned i = 0; i < MANY; i++)
		if (objects[i]) {
			kmem_cache_free(looked, objects[i]);
			objects[i] = NULL;
		}
	CHECK_EQUAL(kmem_cache_shrink(looked), 0);
	CHECK_EQUAL(kmem_check_all(), 0);
	CHECK_EQUAL(free_and_dirty() - before, slabs);
	/* The pages read as zeros, and count as zero pages. */
	for (unsigned i = 0; i < MANY; i++) {
		NEED((objects[i] = kmem_cache_zalloc(looked, GFP_KERNEL)));
		CHECK(!objects[i][0] && !memcmp(objects[i], objects[i] + 1, SIZE - 1));
		write_to(i, SIZE);
	}
	CHECK_EQUAL(kmem_check_all(), 0);
	done(looked, SIZE);
}

/* A long slab has more holes than one walk finds: on demand all go. */
static void many_holes(void)
{
	begin();
	km_layout_options.max_order = 8;
	km_layout_options.min_objects = MANY / 2;
	looked = fresh(SIZE);
	km_layout_options.min_objects = km_layout_options.max_order = 0;
	CHECK(looked->form.slab_pages > 2 * PAGES);
	fill(looked, SIZE);
	for (unsigned i = 0; i < MANY; i++)
		if ((uintptr_t)objects[i] / KM_PAGE_SIZE % 2) {
			kmem_cache_free(looked, objects[i]);
			objects[i] = NULL;
		}
	send_home(looked);
	kmem_cache_shrink(looked);
	CHECK_EQUAL(looked->layout.engine->hollow(looked), 0);
	done(looked, SIZE);
}

/* In a child: nothing is missing, and all goes. */
static void all_goes(void)
{
	CHECK_EQUAL(looked->layout.engine->check(looked), 0);
	look_at_it();
	fill(looked, SIZE);
	done(looked, SIZE);
}

static void fork_it(void)
{
	km_os_fault = NULL;
	CHECK_EQUAL(in_process(all_goes), 0);
	km_os_fault = others_come_by;
}

static void forked_beside(void)
{
	thinned(&looked);
	hollow_beside(fork_it);
	done(looked, SIZE);
}

static pid_t child;
/* The child finds a valid state, and ends; the parent waits for the end. */
static void all_goes_in_child(void)
{
	int status = -1;

	if (!child) {
		failures = 0;
		check_kept.text = NULL;
		all_goes();
		_exit(failures != 0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK_EQUAL(status, 0);
}

static bool fork_here(const char *call)
{
	if (!strcmp(call, "purge") && child < 0)
		child = fork();
	return false;
}

/* A handler's fork in the middle of the call: the child continues the call. */
static void forked_within(void)
{
	unsigned slabs = thinned(&looked);

	child = -1;
	fflush(stdout);
	km_os_fault = fork_here;
	INSIDE(looked->layout.engine->hollow(looked));
	km_os_fault = NULL;
	CHECK_EQUAL(all_resident(), slabs);
	all_goes_in_child();
	done(looked, SIZE);
}

static void fork_in_handler(int number)
{
	(void)number;
	child = fork();
}

/* A handler of a thread that holds the node's lock forks: no handler of fork may list the slab in work again. */
static void fork_under_lock(void)
{
	struct sheaf_node *n = sheaf_node(looked, 0);

	if (child >= 0)
		return;
	fflush(stdout);
	NEED(n->in_hand && signal(SIGUSR1, fork_in_handler) != SIG_ERR);
	struct km_busy_was was = km_busy_begin();
	km_lock(&n->slabs.lock);
	raise(SIGUSR1);
	km_unlock(&n->slabs.lock);
	km_busy_end(was);
	km_os_fault = child ? km_os_fault : NULL;
	if (!child)
		INSIDE(looked->layout.engine->hollow(looked));
	all_goes_in_child();
}

static void forked_under_lock(void)
{
	thinned(&looked);
	child = -1;
	hollow_beside(fork_under_lock);
	done(looked, SIZE);
}

/* All of the cache's objects come back meanwhile. */
static void free_all(void)
{
	for (unsigned i = 0; i < MANY; i++)
		if (objects[i]) {
			CHECK(is_whole(i, SIZE));
			kmem_cache_free(looked, objects[i]);
			objects[i] = NULL;
		}
	send_home(looked);
	CHECK_EQUAL(looked->layout.engine->check(looked), 0);
}

static void freed_beside(void)
{
	thinned(&looked);
	hollow_beside(free_all);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(looked, &stats);
	CHECK_EQUAL(stats.active_objects, 0);
	CHECK(stats.total_slabs <= looked->tune.min_partial);
	done(looked, SIZE);
}

/* Objects of all kinds of requests. */
static void take_some(void)
{
	for (unsigned i = 0, taken = 0; i < MANY && taken < 3; i++)
		if (!objects[i]) {
			objects[i] = kmem_cache_alloc(looked, taken++ % 2 ? GFP_KERNEL : GFP_NOWAIT);
			if (objects[i])
				write_to(i, SIZE);
		}
}

static void taken_beside(void)
{
	thinned(&looked);
	hollow_beside(take_some);
	done(looked, SIZE);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "asked for", asked_for }, { "two looks", two_looks },
		{ "content stays", content_stays }, { "refused", refused },
		{ "across edges", across_edges }, { "beside others", beside_others },
		{ "looked at", looked_at }, { "two at once", two_at_once },
		{ "some locked", some_locked }, { "reserved later", reserved_later },
		{ "gone and free", gone_and_free },
		{ "many holes", many_holes }, { "forked beside", forked_beside },
		{ "forked within", forked_within },
		{ "forked under lock", forked_under_lock }, { "freed beside", freed_beside },
		{ "taken beside", taken_beside },
	};

	return run_in_turn(cases, km_array_count(cases), 20);
}
