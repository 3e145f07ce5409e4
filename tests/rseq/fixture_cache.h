/*
 * fixture_cache.h: a cache under test, through the public interface: every state of a CPU's two sheaves (or, for
 * an engine with a chain, of its slabs) times every operation. The model: each allocated object has its own
 * address as a tag, so that a double allocation shows at once; and after all frees and a drain no slab remains, so
 * that a lost object shows at the end.
 */
#ifndef TESTS_RSEQ_FIXTURE_CACHE_H
#define TESTS_RSEQ_FIXTURE_CACHE_H

#include "calls.h"

/* ------------------------------------------------------------------ adversaries */

static void do_pop(void)
{
	void *p = any_alloc(GFP_KERNEL | __GFP_NOWARN);

	/* Inside of the slow path a nested miss may fail. */
	if (p)
		adopt(p);
	else
		need(errno == ENOMEM, "a nested alloc failed with %s", strerror(errno));
}

static void do_push(void)
{
	if (model.count)
		put_one();
}

static void do_both(void)
{
	do_pop();
	do_push();
}

static void do_bulk_in(void)
{
	try_many(5);
}

static void do_bulk_out(void)
{
	put_many(model.count < 5 ? model.count : 5);
}

static void do_empty(void)
{
	for (int i = 0; i < 3 * CAPACITY; i++)
		do_pop();
}

static void do_fill(void)
{
	for (int i = 0; i < 3 * CAPACITY && model.count; i++)
		put_one();
}

static void shrink(void)
{
	kmem_cache_shrink(model.cache);
}

/* No call for handlers; but where no lock is held, as in all array engines' sequences, the hardest case. */
static void do_drain(void)
{
	if (model.cache->layout.engine->front == KM_PERCPU_SHEAVES)
		shrink();
}

static void do_drain_elsewhere(void)
{
	elsewhere(shrink, model.cache->layout.engine->front == KM_PERCPU_SHEAVES);
}

/* Exchange the CPU's blocks, and take one off. */
static void do_swap(void)
{
	struct kmem_cache *cache = model.cache;

	if (cache->layout.engine->front != KM_PERCPU_SHEAVES)
		return;
	struct km_busy_was was = km_busy_begin();
	for (int how = 0; how < 8; how++) {
		bool for_pop = how & 1;

		km_pcs_swap(&cache->fast.pcs, for_pop, (how & 2) != 0);
		void **block = km_pcs_detach(&cache->fast.pcs, for_pop, (how & 4) != 0);
		if (block)
			cache->layout.engine->array.retire(cache, block);
	}
	km_busy_end(was);
}

static void do_install(void)
{
	struct kmem_cache *cache = model.cache;
	void **evicted = NULL, **block;

	if (cache->layout.engine->front != KM_PERCPU_SHEAVES)
		return;
	struct km_busy_was was = km_busy_begin();
	block = cache->layout.engine->array.spill(cache, NULL);
	if (block && !km_pcs_install(&cache->fast.pcs, block, &evicted))
		evicted = block;
	if (evicted)
		cache->layout.engine->array.retire(cache, evicted);
	km_busy_end(was);
}

/* The CPU's words stay unchanged, except for the header with the spare's address. */
static void do_take_spare(void)
{
	struct kmem_cache *cache = model.cache;

	if (cache->layout.engine->front != KM_PERCPU_SHEAVES)
		return;
	struct km_busy_was was = km_busy_begin();
	void **block = km_pcs_take_spare(&cache->fast.pcs);
	if (block)
		cache->layout.engine->array.retire(cache, block);
	km_busy_end(was);
}

static void do_other(void)
{
	void *p = kmem_cache_alloc(model.other, GFP_KERNEL | __GFP_NOWARN);
	void *q = kmalloc(OBJECT_BYTES * 2, GFP_KERNEL | __GFP_NOWARN);

	if (p)
		kmem_cache_free(model.other, p);
	kfree(q);
}

static void do_migrate_both(void)
{
	migrate();
	do_both();
}

static void do_there_and_back(void)
{
	migrate();
	do_pop();
	do_pop();
	do_push();
	migrate();
}

static void on_usr1(int number)
{
	do_both();
	do_other();
}

static void do_signal(void)
{
	raise(SIGUSR1);
}

/* The sheaves' capacity changes under way: to the largest, and back to the first. */
static void do_resize(void)
{
	struct kmem_cache *cache = model.cache;
	struct km_busy_was was = km_busy_begin();

	/*
	 * A lower limit, so that arrays of both limits exist. Without the registry, because the interrupted code
	 * may hold its lock.
	 */
	if (cache->layout.engine->array.tune)
		km_alloc_set_limit(cache, cache->fast.capacity == SLAB_LIMIT ? SLAB_LIMIT / 2 + 1 : SLAB_LIMIT);
	km_busy_end(was);
	bool grown = km_alloc_mask(cache) == cache->fast.pcs.sheaf_mask;

	km_alloc_resize(cache, grown ? cache->fast.capacity : cache->tune.max_capacity);
}

static void do_resize_fill(void)
{
	do_resize();
	do_fill();
	do_resize();
	do_both();
}

static void do_nothing(void)
{
}

static const struct adversary cache_adversaries[] = {
	{ "nothing", do_nothing },
	{ "pop", do_pop },
	{ "push", do_push },
	{ "pop, push", do_both },
	{ "bulk alloc", do_bulk_in },
	{ "bulk free", do_bulk_out },
	{ "empty", do_empty },
	{ "fill", do_fill },
	{ "drain", do_drain },
	{ "drain from another thread", do_drain_elsewhere },
	{ "swap and detach", do_swap },
	{ "install", do_install },
	{ "take the spare", do_take_spare },
	{ "resize", do_resize },
	{ "resize and fill", do_resize_fill },
	{ "other caches", do_other },
	{ "migrate", migrate },
	{ "migrate, pop, push", do_migrate_both },
	{ "migrate and back", do_there_and_back },
	{ "signal", do_signal },
	{ "fork", fork_now },
};

static bool is_dear_cache(const struct adversary *adversary)
{
	return adversary->act == fork_now || adversary->act == do_drain_elsewhere;
}

/* ------------------------------------------------------------------ states and drivers */

enum { UNBORN = -1, NONE = -2 };
/* Objects in the main sheaf, and in the spare; 13 and 14 stand for almost full, and full. */
static const struct {
	int main_count, spare;
} states[] = {
	{ UNBORN, NONE },
	{ 0, NONE }, { 1, NONE }, { 5, NONE }, { 13, NONE }, { 14, NONE },
	{ 0, 0 }, { 1, 0 }, { 5, 0 }, { 14, 0 },
	{ 0, 6 }, { 1, 6 }, { 13, 6 }, { 14, 6 },
	{ 0, 14 }, { 1, 14 }, { 5, 14 }, { 14, 14 },
};

enum { STATES = sizeof(states) / sizeof(states[0]) };

enum operation {
	GET, GET_INLINE, GET_INLINE_ANY, GET_ZEROED, PUT, PUT_INLINE,
	GET_1, GET_3, GET_5, GET_14, GET_31, PUT_1, PUT_3, PUT_5, PUT_14, PUT_31,
	PUT_DEFERRED, TAKE, GET_LARGER, SHEAF, TWO_SHEAVES, PUT_MIXED,
	GET_ALIGNED, GET_ALIGNED_NEW, GET_ALIGNED_INTO, GET_NAMED, PUT_NAMED,
	OPERATIONS
};
static const char *const operation_names[OPERATIONS] = {
	"alloc", "inline alloc", "inline alloc of any gfp", "zalloc", "free", "inline free",
	"bulk alloc 1", "bulk alloc 3", "bulk alloc 5", "bulk alloc 14", "bulk alloc 31",
	"bulk free 1", "bulk free 3", "bulk free 5", "bulk free 14", "bulk free 31",
	"free after one that a handler left", "the engine's take", "realloc", "prefill and return",
	"prefill and return of two", "bulk free of a mixed array",
	"aligned_alloc", "aligned new", "posix_memalign", "alloc by its further names", "free by its further names",
};

static void operate_cache(unsigned driver)
{
	static const unsigned counts[] = { 1, 3, 5, 14, 31 };
	enum operation operation = driver % OPERATIONS;

	switch (operation) {
	case GET: get_one(); break;
	case GET_INLINE: get_inline(); break;
	case GET_INLINE_ANY: get_inline_any(); break;
	case GET_ZEROED: get_zeroed(); break;
	case PUT: put_one(); break;
	case PUT_INLINE: put_inline(); break;
	case PUT_DEFERRED: put_deferred(); break;
	case TAKE: stock_model(3); break;
	case GET_LARGER: get_larger(); break;
	case SHEAF: use_sheaves(1); break;
	case TWO_SHEAVES: use_sheaves(2); break;
	case PUT_MIXED: put_mixed(); break;
	case GET_NAMED: get_named(); break;
	case PUT_NAMED: put_named(); break;
	case GET_ALIGNED:
	case GET_ALIGNED_NEW:
	case GET_ALIGNED_INTO: get_aligned(operation - GET_ALIGNED); break;
	default:
		if (operation < PUT_1)
			get_many(counts[operation - GET_1]);
		else
			put_many(counts[operation - PUT_1]);
	}
}

static void describe_cache(unsigned driver, char *text, size_t bytes)
{
	unsigned state = driver / OPERATIONS;

	snprintf(text, bytes, "%s, state %u (main %d, spare %d, of 14)",
		 operation_names[driver % OPERATIONS], state, states[state].main_count,
		 states[state].spare);
}

/* A block with so many objects, of 14. */
static void **make_block(int count)
{
	void **block = model.cache->layout.engine->array.spill(model.cache, NULL);

	if (count >= CAPACITY - 1)
		count += model.capacity - CAPACITY;
	need(block, "no block");
	block -= count;
	take_home(block, (unsigned)count);
	return block;
}

static void put_on_pcs(int count)
{
	void **evicted, **block = make_block(count);
	int tries = 0;

	/* The scheduler aborts as well. */
	while (!km_pcs_install(&model.cache->fast.pcs, block, &evicted))
		need(++tries < 100, "install");
	need(!evicted, "a drained CPU has a sheaf");
}

static bool prepare_array(unsigned driver)
{
	unsigned state = driver / OPERATIONS;
	struct km_busy_was was = km_busy_begin();

	if (model.cache->layout.engine->array.tune)
		km_alloc_set_limit(model.cache, SLAB_LIMIT);
	need(model.cache->fast.capacity == model.capacity, "a block holds %u", model.cache->fast.capacity);
	km_alloc_resize(model.cache, CAPACITY);
	model.cache->state.misses = 0;
	stock_model(SPARE);
	/* Half of the drivers meet a barn with a full and an empty block. */
	if ((driver & 1) && model.cache->layout.engine->array.tune) {
		/* A shared array with objects. */
		void **full = make_block(CAPACITY);
		model.cache->layout.engine->array.retire(
			model.cache, model.cache->layout.engine->array.spill(model.cache, full));
	} else if (driver & 1) {
		void **full = make_block(CAPACITY);
		void **empty = model.cache->layout.engine->array.spill(model.cache, NULL);
		model.cache->layout.engine->array.retire(model.cache, full);
		model.cache->layout.engine->array.retire(model.cache, empty);
	}
	if (states[state].spare != NONE)
		put_on_pcs(states[state].spare);
	if (states[state].main_count != UNBORN)
		put_on_pcs(states[state].main_count);
	km_busy_end(was);
	return true;
}

/*
 * An engine with a chain: states come about by use. Allocate, and free some again, newest, oldest, every second, or
 * from the other CPU: the CPU's slab is fresh, worn, full or none, and lists of partial slabs are there or not.
 */
static bool prepare_chain(unsigned driver)
{
	unsigned state = driver / OPERATIONS, objects = model.cache->layout.objects;
	unsigned first = (unsigned[]){ 0, 1, objects, objects + 1, objects * 2 + 1, objects * 4 }[state % 6];

	if (first + SPARE + 64 > MAX_LIVE)
		return false;
	for (unsigned i = 0; i < SPARE + first; i++)
		get_one();
	if (state % 3 == 2)
		migrate();
	/* Turn the order round for every second: the oldest goes first. */
	for (unsigned i = 0; state % 2 && i < model.count / 2; i++) {
		uint64_t *swap = model.live[i];
		model.live[i] = model.live[model.count - 1 - i];
		model.live[model.count - 1 - i] = swap;
	}
	while (model.count > SPARE)
		put_one();
	come_home();
	return true;
}

static bool prepare_cache(unsigned driver)
{
	const unsigned inlines = 1u << GET_INLINE | 1u << GET_INLINE_ANY | 1u << PUT_INLINE;
	const unsigned aligned = 1u << GET_ALIGNED | 1u << GET_ALIGNED_NEW | 1u << GET_ALIGNED_INTO;
	unsigned operation = 1u << driver % OPERATIONS;

	if (model.family == KMALLOC && (operation & inlines))
		return false;
	if (model.family != MALLOC && (operation & aligned))
		return false;
	if (model.family == CACHE && (operation & 1u << GET_LARGER))
		return false;
	if (model.family != CACHE && (operation & (1u << SHEAF | 1u << TWO_SHEAVES)))
		return false;
	if (model.cache->layout.live_shift)
		model.cache->ext.wiped = model.cache->ext.parts = driver / OPERATIONS & 1;
	if (operation & 1u << GET_LARGER)
		model.little = model.family == MALLOC ? malloc(40) : kmalloc(40, GFP_KERNEL);
	return model.cache->layout.engine->front == KM_PERCPU_SHEAVES ? prepare_array(driver) :
							      prepare_chain(driver);
}

static void verify_cache(void)
{
	static unsigned calls;
	struct kmem_cache_stats stats;

	wait_for_helper();
	while (model.count)
		put_one();
	int left = kmem_cache_shrink(model.cache);
	kmem_cache_get_stats(model.cache, &stats);
	need(!left && !stats.total_slabs && !stats.active_objects,
	     "lost: %lu slabs remain, %lu objects taken", stats.total_slabs, stats.active_objects);
	if (calls++ % 16 == 0)
		need(kmem_check_all() == 0, "kmem_check_all");
}

static bool start_with(struct kmem_cache *cache, enum family family)
{
	struct sigaction usr1 = { .sa_handler = on_usr1 };

	if (!cache)
		return false;
	model.cache = cache;
	model.family = family;
	model.capacity = cache->layout.engine->array.tune ? SLAB_LIMIT : CAPACITY;
	if (!model.other)
		model.other = kmem_cache_create("other", 200, 0, 0, NULL);
	sigaction(SIGUSR1, &usr1, NULL);
	return true;
}

static bool start_engine(const char *engine)
{
	struct kmem_cache_args args = { .engine = engine };

	if (!km_engine_find(engine))
		return false;
	return start_with(kmem_cache_create(engine, OBJECT_BYTES, &args, SLAB_NO_MERGE), CACHE);
}

static bool start_sheaf(void)
{
	return start_engine("sheaf");
}

static bool start_slub(void)
{
	return start_engine("slub");
}

/* A limit other than a power of two minus 2, so that arrays have a pad; small, so that all states occur. */
static bool start_slab(void)
{
	return start_engine("slab") && kmem_cache_tune(model.cache, SLAB_LIMIT, 7, 2) == 0;
}

/* The tables of a process with validated frees: as after such a start, for one cache. */
static bool start_validated_engine(const char *engine)
{
	struct km_range *range = &km_arena.range[0];

	for (unsigned i = 0; i < KM_ALLOC_MAP_TABLES && !range->array_ready[KM_RANGE_LIVE + i]; i++) {
		size_t bytes = (range->pages << KM_PAGE_SHIFT) >> (KM_ALLOC_MAP_LOW + i);

		range->live[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				      -1, 0);
		need(range->live[i] != MAP_FAILED, "no address space");
		range->array_ready[KM_RANGE_LIVE + i] = SIZE_MAX;
	}
	km_hardening.live = true;
	bool started = start_engine(engine);
	km_hardening.live = false;
	need(!started || model.cache->layout.live_shift, "the cache's frees are not proved");
	return started;
}

static bool start_validated(void)
{
	return start_validated_engine("sheaf");
}

static bool start_validated_chain(void)
{
	return start_validated_engine("slub");
}

/* The profile never ends, so this fixture comes last. */
static bool start_profiled(void)
{
	km_profile_ops->start(1u << 30);
	bool started = start_engine("sheaf");
	need(!started || km_percpu.index != KM_INDEX_CPU || model.cache->layers[KM_LAYER_OBSERVE] == &km_ops_profiled,
	     "the cache's objects are not profiled");
	return started;
}

static bool start_sizes(void)
{
	return slab_is_available() && start_with(km_kmalloc_cache(OBJECT_BYTES), KMALLOC);
}

static bool start_malloc(void)
{
	void *p = malloc(OBJECT_BYTES);
	struct kmem_cache *cache = kmem_cache_of(p);

	free(p);
	need(cache && kmem_cache_size(cache) == OBJECT_BYTES, "malloc is not ours");
	return start_with(cache, MALLOC);
}

#define CACHE_FIXTURE(title, starter)                                                              \
	{ title, starter, STATES * OPERATIONS, prepare_cache, operate_cache, verify_cache,         \
	  describe_cache, cache_adversaries,                                                       \
	  sizeof(cache_adversaries) / sizeof(cache_adversaries[0]), is_dear_cache }

#endif
