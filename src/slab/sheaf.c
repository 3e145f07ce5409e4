/*
 * sheaf.c: SLUB as in Linux 7.0 and later: sheaves on each CPU (percpu/pcpu.h), a barn of full and empty sheaves on
 * each node, and slabs. This file has the operations on objects; sheaf_cache.c has layout, shrink and statistics.
 *
 *	pcs of a CPU (main, spare)  <->  barn (at first 10 full, 10 empty)  <->  partial slabs  <->  pages
 *
 * A slab has one free bit for each object: in the descriptors of its pages, or behind the last object where objects
 * have less than 32 bytes. The engine never changes the memory of a free object, and touches a free object only
 * before a sheaf moves to another CPU. So refill and spill stay out of cold memory, and a double free is found when
 * the object returns to the slab. Kernel: a freelist through the objects.
 *
 * Invariants under the node's lock: a slab is on its node's partial list iff a free bit is set and the slab is not in
 * hand (sheaf_holes.c). inuse is the number of clear bits. A slab whose last object returns is freed if the list has
 * more than min_partial slabs, unless km_slabs_stay() says otherwise.
 *
 * Invariants under the barn's lock: a full sheaf holds only objects of the barn's node, and at least half of a full
 * sheaf at the time of storing; an empty sheaf holds none. Under the lock of struct remote: sheaf[i] holds only
 * objects of node i. No thread holds two of these locks at once. A CPU's sheaves may hold objects of any node
 * (docs/decisions/0018).
 */
#include "page/metadata.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "sheaf.h"

#define SHED_EMPTY		64u	/* empty sheaves freed under one hold of the lock */
#define GIVE_BATCH		32u	/* words of free bits changed under one lock. Kernel: PCS_BATCH_MAX, objects */

/* ------------------------------------------------------------------ slabs and their bits */

static struct km_page *new_slab(struct kmem_cache *cache, const struct km_request *request)
{
	struct km_page *slab = km_slab_new(cache, request);

	if (!slab)
		return NULL;
	char *address = km_page_address(slab);
	for (unsigned page = 0; page < 1u << slab->order; page++)
		km_store(&sheaf_page(&slab[page])->hole, (uint8_t)0);
	for (unsigned word = 0; word * 64 < slab->objects; word++)
		km_store(sheaf_bits(cache, slab, address, word), km_object_bits(slab->objects, word));
	return slab;
}

/* For assertions: counts the set free bits. */
static km_unused unsigned free_in(const struct kmem_cache *cache, struct km_page *slab)
{
	const char *address = km_page_address(slab);
	unsigned count = 0;

	for (unsigned word = 0; word * 64 < slab->objects; word++)
		count += (unsigned)__builtin_popcountll(*sheaf_bits(cache, slab, address, word));
	return count;
}

/* Moves up to `want` free objects of the slab to `objects`, lowest address first. */
static unsigned take_from(struct kmem_cache *cache, struct km_page *slab, void **objects,
			  unsigned want)
{
	char *address = km_slab_first(cache, slab);
	unsigned got = 0, words = (slab->objects + 63u) / 64;

	for (unsigned word = 0; word < words && got < want; word++) {
		uint64_t *bits = sheaf_bits(cache, slab, address, word), left = *bits;

		for (; left && got < want; left &= left - 1) {
			unsigned index = word * 64 + (unsigned)__builtin_ctzll(left);

			objects[got++] = address + (size_t)index * cache->layout.size;
		}
		km_store(bits, left);
	}
	km_store(&slab->inuse, (uint16_t)(slab->inuse + got));
	if (km_unlikely(slab->flags & KM_SLAB_HOLES))
		km_sheaf_unmark(cache, slab, objects, got);
	km_debug(slab->inuse + free_in(cache, slab) == slab->objects, "inuse is the number of clear bits");
	return got;
}

/* Takes objects from partial slabs while more than `keep` are listed. Requires: the node's lock. */
static unsigned take_partial(struct kmem_cache *cache, struct sheaf_node *n, unsigned long keep,
			     void **objects, unsigned want)
{
	unsigned got = 0;

	while (got < want && n->slabs.counts.partial > keep) {
		struct km_page *slab = km_list_first(&n->slabs.partial, struct km_page, list);

		got += take_from(cache, slab, objects + got, want - got);
		if (slab->inuse == slab->objects)
			km_slabs_unlist(&n->slabs, slab);
	}
	km_sheaf_count(cache, n, got);
	return got;
}

/* Takes objects from other nodes, nearest first. Each node keeps min_partial slabs. Kernel: get_from_any_partial,
 * where locks are only tried, too. */
km_cold static unsigned take_elsewhere(struct kmem_cache *cache, const struct km_request *request,
				       void **objects, unsigned want)
{
	unsigned long keep = km_load(&cache->tune.min_partial);
	struct sheaf_node *n;
	unsigned got = 0;

	km_for_each_elsewhere(n, cache, km_request_node(request)) {
		if (got == want)
			break;
		if (km_load(&n->slabs.counts.partial) <= keep || !km_trylock(&n->slabs.lock))
			continue;
		got += take_partial(cache, n, keep, objects + got, want - got);
		km_unlock_may(&n->slabs.lock, request->may_wait);
	}
	return got;
}

/* Takes objects from a new slab, on another node if the wanted node has no pages. Returns: 0 without a slab. */
static unsigned take_new(struct kmem_cache *cache, const struct km_request *request, void **objects,
			 unsigned want)
{
	struct km_page *slab = new_slab(cache, request);

	if (!slab)
		return 0;
	struct sheaf_node *n = sheaf_node(cache, slab->node);
	if (!km_lock_may(&n->slabs.lock, request->may_wait)) {
		km_slab_free(cache, slab);
		return 0;
	}
	km_debug(!slab->inuse, "a fresh slab is all free");
	km_slabs_came(&n->slabs, slab);
	unsigned got = take_from(cache, slab, objects, want);
	km_pages_slab((long)(slab->objects * cache->layout.size));
	km_sheaf_count(cache, n, got);
	if (slab->inuse < slab->objects)
		km_slabs_list(&n->slabs, slab, false);
	km_unlock_may(&n->slabs.lock, request->may_wait);
	return got;
}

static unsigned take_slabs(struct kmem_cache *cache, const struct km_request *request, void **objects,
			   unsigned want)
{
	struct sheaf_node *n = sheaf_node(cache, km_request_node(request));
	const bool fullest = km_unlikely(request->gfp & __GFP_FULLEST);
	bool looked = false;
	unsigned got = 0;

	/* Each cached object may keep one slab from becoming empty, so return the barn's objects to their slabs before
	 * the first slab is chosen. Later frees fill the barn again. */
	if (fullest && request->may_wait && !km_load(&n->slabs.packed) && km_load(&n->barn.objects))
		km_sheaf_flush_barn(cache, &n->barn);
	while (got < want) {
		if (!km_lock_may(&n->slabs.lock, request->may_wait))
			break;
		if (fullest)
			km_slabs_fullest(&n->slabs, km_slab_free_objects);
		got += take_partial(cache, n, 0, objects + got, want - got);
		km_unlock_may(&n->slabs.lock, request->may_wait);
		if (got < want && !looked && km_may_look_elsewhere(cache, request))
			got += take_elsewhere(cache, request, objects + got, want - got);
		looked = true;
		if (got == want)
			break;
		/* Pages are allocated without a lock; only this thread knows the slab until the slab is listed. */
		unsigned now = take_new(cache, request, objects + got, want - got);
		if (!now)
			break;
		got += now;
	}
	return got;
}

void km_sheaf_drop(struct km_slabs *slabs, struct km_page *slab)
{
	km_slabs_unlist(slabs, slab);
	km_slabs_went(slabs, slab);
	km_pages_slab(-(long)(slab->objects * slab->cache->layout.size));
}

bool km_sheaf_drop_if_empty(struct kmem_cache *cache, struct sheaf_node *n, struct km_page *slab, unsigned long keep)
{
	if (slab->inuse || n->slabs.counts.partial <= keep || km_slabs_stay(cache))
		return false;
	/* A slab in hand is dropped after it was listed again. */
	if (slab == n->in_hand)
		return false;
	km_debug(free_in(cache, slab) == slab->objects, "a freed slab has no allocated object");
	km_sheaf_drop(&n->slabs, slab);
	return true;
}

/* Objects on their way to their slab, which share a word of free bits. */
struct candidate {
	struct km_page *slab;
	uint64_t *word, bits;		/* the word, and the objects' bits */
	unsigned first, count;		/* index of the object of bit 0; number of bits */
};

/* Puts the objects back, and leaves the bits of objects freed twice. Requires: the node's lock. Returns: the number of
 * objects put back. */
km_inline unsigned put_back(struct sheaf_node *n, struct candidate *c)
{
	const uint64_t word = *c->word, twice = word & c->bits;
	const bool was_full = c->slab->inuse == c->slab->objects;

	if (km_unlikely(twice))
		c->count = (unsigned)__builtin_popcountll(c->bits ^ twice);
	if (km_likely(c->count)) {
		km_debug(c->slab->inuse >= c->count, "freed objects were allocated");
		km_store(c->word, word | c->bits);
		km_store(&c->slab->inuse, (uint16_t)(c->slab->inuse - c->count));
		if (was_full)
			km_slabs_list(&n->slabs, c->slab, false);
	}
	c->bits = twice;
	return c->count;
}

static km_cold void report_twice(struct kmem_cache *cache, const struct candidate *c)
{
	for (uint64_t left = c->bits; left; left &= left - 1)
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kmem_cache_free",
			  km_slab_first(cache, c->slab) +
				  (c->first + (size_t)__builtin_ctzll(left)) * cache->layout.size,
			  cache->registry.name);
}

/* Requires: all objects are of node n. */
static void give_to_node(struct kmem_cache *cache, struct sheaf_node *n,
			 struct candidate *candidates, unsigned count)
{
	struct km_page *empty[GIVE_BATCH];
	const unsigned long keep = km_load(&cache->tune.min_partial);
	unsigned empty_count = 0, twice = 0;
	long given = 0;

	km_lock(&n->slabs.lock);
	for (unsigned i = 0; i < count; i++) {
		struct candidate *c = &candidates[i];
		const unsigned now = put_back(n, c);

		given += now;
		if (km_unlikely(now && !c->slab->inuse) && km_sheaf_drop_if_empty(cache, n, c->slab, keep))
			empty[empty_count++] = c->slab;
		if (km_unlikely(c->bits))
			candidates[twice++] = *c;
	}
	km_sheaf_count(cache, n, -given);
	km_debug((long)n->slabs.counts.taken >= 0, "at most the allocated objects are freed");
	km_unlock_quick(&n->slabs.lock);
	for (unsigned i = 0; i < empty_count; i++)
		km_slab_free(cache, empty[i]);
	for (unsigned i = 0; i < twice; i++)
		report_twice(cache, &candidates[i]);
}

/* Moves the candidates of the node to the front. Returns: their number. */
static unsigned gather_node(struct candidate *candidates, unsigned count, unsigned node)
{
	unsigned gathered = 0;

	for (unsigned i = 0; i < count; i++)
		if (candidates[i].slab->node == node) {
			struct candidate c = candidates[i];

			candidates[i] = candidates[gathered];
			candidates[gathered++] = c;
		}
	return gathered;
}

/* Takes the lock of each node of the batch once. */
static void give_batch(struct kmem_cache *cache, struct candidate *candidates, unsigned count)
{
	for (unsigned now; count; candidates += now, count -= now) {
		unsigned node = candidates->slab->node;

		now = km_likely(km_node_count == 1) ? count : gather_node(candidates, count, node);
		give_to_node(cache, sheaf_node(cache, node), candidates, now);
	}
}

/* Slab of the last object, because neighbours are mostly freed together. Valid until that object is freed. */
struct near {
	struct km_page *slab;
	char *address;
	size_t bytes;			/* 0: no slab */
};

/* Finds the object's slab, and its index in the slab. Returns: -1 after reporting an object of no slab of the cache. */
km_inline int look_up(struct kmem_cache *cache, void *object, struct near *near)
{
	int index = -1;

	if ((size_t)((char *)object - near->address) < near->bytes)
		index = km_object_index(cache, near->slab, near->address, object);
	if (index >= 0)
		return index;
	near->bytes = 0;
	near->slab = km_slab_of(cache, object, &index, "kmem_cache_free");
	if (!near->slab)
		return -1;
	__builtin_prefetch(near->slab, 1);
	near->address = km_slab_first(cache, near->slab);
	near->bytes = KM_PAGE_SIZE << near->slab->order;
	return index;
}

/* Neighbours that follow one another become one candidate. An object that is already in the candidate is freed twice,
 * and begins another candidate. */
void km_sheaf_give(struct kmem_cache *cache, void **objects, unsigned count)
{
	struct candidate candidates[GIVE_BATCH], *last = NULL;
	struct near near = { .bytes = 0 };

	for (unsigned i = 0; i < count; i++) {
		const int index = look_up(cache, objects[i], &near);

		if (km_unlikely(index < 0))
			continue;
		uint64_t *word = sheaf_bits(cache, near.slab, near.address, (unsigned)index / 64);
		const uint64_t bit = (uint64_t)1 << index % 64;
		if (last && last->word == word && !(last->bits & bit)) {
			last->bits |= bit;
			last->count++;
			continue;
		}
		if (last == &candidates[GIVE_BATCH - 1]) {
			give_batch(cache, candidates, GIVE_BATCH);
			/* The slab may be freed. */
			last = NULL;
			near.bytes = 0;
			i--;
			continue;
		}
		last = last ? last + 1 : candidates;
		*last = (struct candidate){
			near.slab, word, bit, (unsigned)index & ~63u, 1,
		};
	}
	if (last)
		give_batch(cache, candidates, (unsigned)(last - candidates) + 1);
}

/* ------------------------------------------------------------------ the barn */

/* Returns the objects of the sheaf to their slabs, and frees the sheaf. */
static void give_all(struct kmem_cache *cache, void **sheaf)
{
	km_sheaf_give(cache, sheaf, objects_in(cache, sheaf));
	km_sheaf_free(cache, sheaf);
}

/* Moves up to `want` objects from the top of the sheaf to `objects`. */
static unsigned take_top(const struct kmem_cache *cache, void ***sheaf, void **objects, unsigned want)
{
	unsigned got = km_min(want, objects_in(cache, *sheaf));

	__builtin_memcpy(objects, *sheaf, got * sizeof(*objects));
	*sheaf += got;
	return got;
}

/* Returns whether the barn may grow. Not with slab charge hooks, because a group would pay for slabs of free objects.
 * Not under a limit on memory, because the memory of sheaves stays committed. Not with sheaves of more than a third of
 * the memory of their objects: small objects, or a small capacity, because each sheaf has room for the largest. */
static bool may_learn(const struct kmem_cache *cache)
{
	return !cache->memcg.slab_charge && !km_os_is_limited() &&
	       3 * cache->fast.pcs.sheaf_mask < km_mask_capacity(km_alloc_mask(cache)) * cache->layout.size;
}

/* The program takes `count` objects from slabs. Of these, objects that went to the slabs for lack of room would have
 * stayed in a larger barn: raises the limit by their number. So a program that frees and allocates N objects in turn
 * exchanges sheaves with the barn from the second turn on. Kernel: ten full sheaves, always. */
static void note_missed(const struct kmem_cache *cache, struct barn *barn, size_t count)
{
	km_lock_scope(&barn->lock);
	count = km_min(count, barn->missed);
	km_store(&barn->missed, barn->missed - count);
	km_sheaf_learn(cache, barn, (long)count);
}

/* Puts an empty sheaf (or NULL) into the barn, or frees the sheaf. */
static void keep_empty(struct kmem_cache *cache, struct barn *barn, void **sheaf, bool may_wait)
{
	bool keep = false;

	if (!sheaf)
		return;
	if (km_lock_may(&barn->lock, may_wait)) {
		keep = push_empty(cache, barn, sheaf);
		km_unlock_may(&barn->lock, may_wait);
	}
	if (!keep)
		km_sheaf_free(cache, sheaf);
}

/* Returns an empty sheaf of the barn, else a new one. */
static void **any_empty(struct kmem_cache *cache, struct barn *barn, bool may_wait)
{
	void **empty = NULL;

	if (km_load(&barn->empty_count) && km_lock_may(&barn->lock, may_wait)) {
		empty = pop_empty(cache, barn);
		km_unlock_may(&barn->lock, may_wait);
	}
	return empty ?: km_sheaf_new(cache, may_wait);
}

/* Fills an empty sheaf from slabs. Returns: NULL without objects; then the caller keeps the sheaf. */
static void **fill_sheaf(struct kmem_cache *cache, const struct km_request *request, void **sheaf)
{
	void **bottom = km_sheaf_bottom(&cache->fast.pcs, sheaf);
	unsigned capacity = km_mask_capacity(km_alloc_mask(cache));
	unsigned got = take_slabs(cache, request, bottom - capacity, capacity);

	if (!got)
		return NULL;
	km_debug(got <= capacity, "a sheaf gets at most as many objects as fit");
	if (got < capacity)
		__builtin_memmove(bottom - got, bottom - capacity, got * sizeof(*bottom));
	km_order_shuffle(bottom - got, got);
	km_count(cache, KMEM_SHEAF_REFILL);
	return bottom - got;
}

/* Exchanges `empty` (NULL: none) for a full sheaf of the barn, while the barn has more than `keep`; else fills a sheaf
 * from slabs. Returns: NULL without objects or memory; `empty` is then the caller's. */
km_inline void **refill_from(struct kmem_cache *cache, struct barn *barn, unsigned keep,
			     const struct km_request *request, void **empty)
{
	void **sheaf = NULL;

	if (km_load(&barn->full_count) > keep && km_lock_may(&barn->lock, request->may_wait)) {
		km_store(&barn->touched, true);
		sheaf = km_likely(barn->full_count > keep) ? pop_full(cache, barn) : NULL;
		km_bump(&barn->gets, sheaf != NULL);
		if (sheaf && empty && push_empty(cache, barn, empty))
			empty = NULL;
		km_unlock_may(&barn->lock, request->may_wait);
	}
	if (sheaf) {
		if (km_unlikely(km_load(&barn->crosses)))
			km_sheaf_fetch(sheaf);
		if (empty)
			km_sheaf_free(cache, empty);
		return sheaf;
	}
	km_count(cache, KMEM_BARN_GET_FAIL);
	void **room = empty ?: any_empty(cache, barn, request->may_wait);
	if (!room)
		return NULL;
	sheaf = fill_sheaf(cache, request, room);
	if (sheaf && km_load(&barn->missed) && request->may_wait && may_learn(cache))
		note_missed(cache, barn, objects_in(cache, sheaf));
	if (!sheaf && !empty)
		keep_empty(cache, barn, room, request->may_wait);
	return sheaf;
}

void **km_sheaf_refill(struct kmem_cache *cache, const struct km_request *request, void **empty)
{
	return refill_from(cache, &sheaf_node(cache, km_request_node(request))->barn, 0, request, empty);
}

/* ------------------------------------------------------------------ requests that name another node */

/* Takes up to `want` objects of the open sheaf of the node. An empty sheaf is detached and returned in *empty. */
static unsigned take_open(struct kmem_cache *cache, struct remote *remote, const struct km_request *request,
			  void **objects, unsigned want, void ***empty)
{
	void ***sheaf = &remote->sheaf[request->node];
	unsigned got = 0;

	*empty = NULL;
	if (!km_lock_may(&remote->lock, request->may_wait))
		return 0;
	km_store(&remote->touched, true);
	if (*sheaf) {
		got = take_top(cache, sheaf, objects, want);
		km_debug(remote->objects >= got, "objects of other nodes are counted");
		km_bump(&remote->objects, -(long)got);
	}
	if (!got) {
		*empty = *sheaf;
		*sheaf = NULL;
	}
	km_unlock_may(&remote->lock, request->may_wait);
	return got;
}

/* Returns: false if another thread opened a sheaf meanwhile. */
static bool open_sheaf(struct kmem_cache *cache, struct remote *remote, const struct km_request *request,
		       void **sheaf)
{
	bool opened = false;

	if (!km_lock_may(&remote->lock, request->may_wait))
		return false;
	if (!remote->sheaf[request->node]) {
		remote->sheaf[request->node] = sheaf;
		km_bump(&remote->objects, objects_in(cache, sheaf));
		opened = true;
	}
	km_unlock_may(&remote->lock, request->may_wait);
	return opened;
}

/* Serves a request that insists on a node other than this CPU's; objects in the CPU's sheaves are of no use. The asking
 * node keeps a sheaf of the other node's objects: CPUs of the asking node share this sheaf, and use the other node's
 * barn once per sheaf. The last full sheaf stays in the other barn, for its own CPUs. Kernel: such a request bypasses
 * the sheaves. */
static unsigned take_remote(struct kmem_cache *cache, unsigned here, const struct km_request *request,
			  void **objects, unsigned want)
{
	struct remote *remote = sheaf_node(cache, here)->remote;
	struct barn *barn = &sheaf_node(cache, (unsigned)request->node)->barn;
	void **empty, **sheaf;
	unsigned got = take_open(cache, remote, request, objects, want, &empty);

	if (got)
		return got;
	sheaf = refill_from(cache, barn, 1, request, empty);
	if (!sheaf) {
		keep_empty(cache, barn, empty, request->may_wait);
		return 0;
	}
	got = take_top(cache, &sheaf, objects, want);
	if (!open_sheaf(cache, remote, request, sheaf))
		km_sheaf_retire(cache, sheaf);
	return got;
}

/* A request that insists on a node tried the CPU's sheaves already if the CPU is of that node. Without pcs: no
 * sheaves. */
unsigned km_sheaf_take(struct kmem_cache *cache, const struct km_request *request, void **objects,
		       unsigned want)
{
	unsigned here, got = 0;

	if (km_unlikely(request->node >= 0) && request->gfp & __GFP_THISNODE && !(request->gfp & __GFP_FULLEST) &&
	    km_load(&cache->fast.pcs.inner.pcs) && (here = km_node_here()) != (unsigned)request->node)
		got = take_remote(cache, here, request, objects, want);
	return got == want ? got : got + take_slabs(cache, request, objects + got, want - got);
}

void km_sheaf_flush_remote(struct kmem_cache *cache, struct sheaf_node *n)
{
	void **sheaf[KM_MAX_NODES];

	if (!n->remote)
		return;
	km_lock(&n->remote->lock);
	__builtin_memcpy(sheaf, n->remote->sheaf, sizeof(sheaf));
	__builtin_memset(n->remote->sheaf, 0, sizeof(sheaf));
	km_store(&n->remote->objects, (size_t)0);
	km_unlock(&n->remote->lock);
	for (unsigned i = 0; i < km_node_count; i++)
		if (sheaf[i])
			give_all(cache, sheaf[i]);
}

/* ------------------------------------------------------------------ sheaves that come from CPUs */

/* Sorts a sheaf before the sheaf goes to a barn, because fast-path frees ignore the object's node. Keeps the objects of
 * the most frequent node in the sheaf, and returns the others to their slabs. *node: that node. Returns: false if less
 * than half of the objects stay. Kernel: each free looks at the object's node, and a remote object bypasses the
 * sheaves. */
static bool sort_sheaf(struct kmem_cache *cache, void ***sheaf, unsigned *node)
{
	size_t count = km_sheaf_objects(&cache->fast.pcs, *sheaf), strangers = 0;
	unsigned of[KM_MAX_NODES] = { 0 };
	void **objects = *sheaf;

	/* Neighbours are mostly in one largest block of pages, and such a block has one node. */
	for (size_t i = 0, run; i < count; i += run) {
		uintptr_t first = (uintptr_t)objects[i];

		for (run = 1; i + run < count; run++)
			if (((uintptr_t)objects[i + run] ^ first) >> (KM_PAGE_SHIFT + KM_MAX_ORDER))
				break;
		of[km_page_node(objects[i])] += (unsigned)run;
	}
	*node = 0;
	for (unsigned i = 1; i < km_node_count; i++)
		if (of[i] > of[*node])
			*node = i;
	for (size_t i = 0; of[*node] < count && i < count; i++)
		if (km_page_node(objects[i]) != *node) {
			void *stranger = objects[i];

			objects[i] = objects[strangers];
			objects[strangers++] = stranger;
		}
	if (strangers)
		km_sheaf_give(cache, objects, (unsigned)strangers);
	km_debug(of[*node] + strangers == count, "objects removed from a sheaf belong to another node");
	*sheaf += strangers;
	return of[*node] * 2 >= count;
}

/* Chooses the barn of a full sheaf; with one node there is no choice. */
static bool choose_barn(struct kmem_cache *cache, void ***full, struct barn **barn)
{
	unsigned node = 0;
	bool worth = true;

	if (km_unlikely(km_node_count > 1))
		worth = sort_sheaf(cache, full, &node);
	*barn = &sheaf_node(cache, node)->barn;
	return worth;
}

static void **flush_sheaf(struct kmem_cache *cache, void **sheaf)
{
	km_debug(!*km_sheaf_bottom(&cache->fast.pcs, sheaf), "a sheaf ends with NULL");

	km_count(cache, KMEM_SHEAF_FLUSH);
	km_sheaf_give(cache, sheaf, objects_in(cache, sheaf));
	return km_sheaf_bottom(&cache->fast.pcs, sheaf);
}

/* Rewrites the first byte of each object, unchanged, because another CPU will write there next. A cache line written
 * there and read here is shared: the next writer waits for each line in turn, and a prefetch does nothing, because the
 * line is present. A line last written here moves as a whole, and many move at once (docs/theory.md). Foreign pointers
 * are left to validation. Objects of SLAB_TYPESAFE_BY_RCU are skipped, because readers may write to free objects. */
static void own_objects(const struct kmem_cache *cache, void **sheaf)
{
	if (cache->layout.flags & SLAB_TYPESAFE_BY_RCU)
		return;
	for (; *sheaf; sheaf++) {
		volatile char *object = *sheaf;

		if (km_page_index(*sheaf) < km_load(&km_hot.pages))
			*object = *object;
	}
}

void **km_sheaf_spill(struct kmem_cache *cache, void **full)
{
	struct barn *barn;

	if (!full)
		return any_empty(cache, &sheaf_node(cache, km_node_here())->barn, true);
	if (!choose_barn(cache, &full, &barn))
		return flush_sheaf(cache, full);
	km_prefetch_write(barn);
	if (km_load(&barn->crosses))
		own_objects(cache, full);
	km_lock(&barn->lock);
	km_store(&barn->touched, true);
	const bool room = barn_has_room(cache, barn);
	void **empty = room ? pop_empty(cache, barn) : NULL;
	bool kept = empty && push_full(cache, barn, full);
	km_bump(&barn->puts, kept);
	if (!room)
		km_store(&barn->missed, barn->missed + objects_in(cache, full));
	km_unlock_quick(&barn->lock);
	if (kept)
		return empty;
	if (room && (empty = km_sheaf_new(cache, true))) {
		km_lock(&barn->lock);
		kept = push_full(cache, barn, full);
		km_bump(&barn->puts, kept);
		km_unlock_quick(&barn->lock);
		if (kept)
			return empty;
		km_sheaf_free(cache, empty);
	}
	km_count(cache, KMEM_BARN_PUT_FAIL);
	return flush_sheaf(cache, full);
}

void km_sheaf_retire(struct kmem_cache *cache, void **sheaf)
{
	struct barn *barn = &sheaf_node(cache, km_node_here())->barn;

	if (objects_in(cache, sheaf) >= km_mask_capacity(km_alloc_mask(cache)) &&
	    choose_barn(cache, &sheaf, &barn)) {
		km_lock(&barn->lock);
		bool kept = push_full(cache, barn, sheaf);
		km_unlock_quick(&barn->lock);
		if (kept)
			return;
	}
	if (objects_in(cache, sheaf))
		sheaf = flush_sheaf(cache, sheaf);
	keep_empty(cache, barn, sheaf, true);
}

bool km_sheaf_has_room(struct kmem_cache *cache)
{
	struct barn *barn = &sheaf_node(cache, km_node_here())->barn;

	km_lock_quick_scope(&barn->lock);
	return barn_has_room(cache, barn);
}

/* Cuts the unused sheaves off the list, and returns them. Requires: the barn's lock, and a sheaf at `low`. */
static void **cut_unused(struct kmem_cache *cache, struct barn *barn)
{
	uint64_t *link = km_sheaf_header(&cache->fast.pcs, barn->low);
	void **unused = (void **)(uintptr_t)*link;
	size_t objects = barn->low_objects - objects_in(cache, barn->low);

	km_store(link, (uint64_t)0);
	km_bump(&barn->full_count, 1 - barn->low_count);
	km_bump(&barn->objects, -objects);
	km_sheaf_learn(cache, barn, -(long)km_min(barn->more, objects));
	return unused;
}

void km_sheaf_shed_barn(struct kmem_cache *cache, struct barn *barn)
{
	void **unused, **sheaf;

	km_lock(&barn->lock);
	const size_t most = barn_most(cache, barn), room = most - km_min(barn->high, most);
	unused = barn->low ? cut_unused(cache, barn) : NULL;
	km_sheaf_learn(cache, barn, -(long)km_min(barn->more, room));
	km_store(&barn->missed, barn->missed / 2);
	barn->high = barn->objects;
	set_low(barn);
	for (unsigned i = 0; i < SHED_EMPTY && barn->empty_count > most_empty(cache, barn); i++)
		push_sheaf(cache, &unused, pop_empty(cache, barn));
	km_unlock_quick(&barn->lock);

	while ((sheaf = pop_sheaf(cache, &unused)))
		give_all(cache, sheaf);
}

void km_sheaf_flush_barn(struct kmem_cache *cache, struct barn *barn)
{
	km_lock(&barn->lock);
	void **full = barn->full, **empty = barn->empty;
	barn->full = barn->empty = NULL;
	km_store(&barn->full_count, 0u);
	km_store(&barn->empty_count, 0u);
	km_store(&barn->objects, (size_t)0);
	set_low(barn);
	km_unlock_quick(&barn->lock);

	for (void **sheaf; (sheaf = pop_sheaf(cache, &full) ?: pop_sheaf(cache, &empty));)
		give_all(cache, sheaf);
}
