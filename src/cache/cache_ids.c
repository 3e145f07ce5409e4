/*
 * cache_ids.c: ids of caches, found by the page map and the fast paths of kmalloc and kfree. Invariant: under the
 * registry's lock, each id belongs to one live cache, and the entry of an id shows the cache's sheaves or closed ones.
 */
#include "page/metadata.h"
#include "percpu/owned_sheaf.h"
#include "cache.h"

#define ENTRY_STEP ((size_t)64 << 10)

static struct kmem_cache **entries;
static size_t entries_ready;	/* bytes committed */
static size_t ids_end;		/* no entry from here on was written since the last purge of entries */

static bool entries_reach(size_t id)
{
	size_t need = km_align_up((id + 1) * sizeof(struct kmem_cache *), ENTRY_STEP);

	if (!entries) {
		entries = km_os_reserve(KM_IDS * sizeof(*entries), KM_PAGE_SIZE);
		if (!entries)
			return false;
		km_os_name(entries, KM_IDS * sizeof(*entries), "libkmem: cache table");
		km_metadata_note_span(entries, KM_IDS * sizeof(*entries));
	}
	if (need > entries_ready) {
		if (km_os_commit((char *)entries + entries_ready, need - entries_ready))
			return false;
		entries_ready = need;
		km_store_release(&km_hot.caches, entries);
	}
	ids_end = km_max(ids_end, id + 1);
	return km_id_tables_reach(id);
}

static size_t bytes_of_word(const struct kmem_cache *cache)
{
	return cache->memcg.word_is_charged ? km_owned_word_bytes() : sizeof(uint64_t);
}

/* An id is the number of a per-CPU word. Under rseq the word is the one of the sheaf, plain or charged, to which a free
 * pushes. Under the soft disciplines the word has no other use. */
uint16_t km_id_get(struct kmem_cache *cache)
{
	/* A cache in shared pages gets no id, because no page map entry could show the id. A fast path reads the
	 * per-CPU word of any id: without per-CPU memory there is room for the first few ids only. */
	if (cache->layout.engine->shared_pages || km_percpu.discipline == KM_DISCIPLINE_NONE)
		return KM_MAP_DESC;
	cache->memcg.word_is_charged = km_percpu.discipline == KM_DISCIPLINE_RSEQ &&
				       cache->layout.flags & SLAB_ACCOUNT && km_has_accounting() &&
				       !cache->memcg.child_of && cache->layout.engine->front == KM_PERCPU_SHEAVES &&
				       cache->fast.capacity;
	cache->state.word = km_percpu_alloc(bytes_of_word(cache));
	size_t id = cache->state.word / sizeof(uint64_t);

	return id && id < KM_IDS && entries_reach(id) ? (uint16_t)id : (uint16_t)KM_MAP_DESC;
}

void km_id_put(struct kmem_cache *cache, bool fenced)
{
	uint16_t id = cache->fast.id;

	if (id >= KM_MAP_FIRST)
		km_store(&km_hot.caches[id], NULL);
	if (fenced)
		km_percpu_free(cache->state.word, bytes_of_word(cache));
}

void km_registry_visit_ready(int (*visit)(struct kmem_cache *cache, void *arg), void *arg)
{
	if (km_load(&km_alloc_ready[0]) & 1) {
		km_registry_each(visit, arg);
		return;
	}
	for (size_t i = 0; i * 64 < ids_end; i++)
		for (uint64_t bits = km_load(&km_alloc_ready[i]); bits; bits &= bits - 1) {
			struct kmem_cache *cache = km_hot.caches[i * 64 + (size_t)__builtin_ctzll(bits)];

			if (cache)
				visit(cache, arg);
		}
}

static int note_id(struct kmem_cache *cache, void *most)
{
	*(size_t *)most = km_max(*(size_t *)most, (size_t)cache->fast.id);
	return 0;
}

static void purge(void *from, void *to)
{
	char *start = (char *)km_align_up((uintptr_t)from, km_os_page_bytes());
	char *end = (char *)km_align_down((uintptr_t)to, km_os_page_bytes());

	if (start < end)
		km_os_purge(start, (size_t)(end - start));
}

void km_ids_trim(void)
{
	if (!entries_ready)
		return;
	km_registry_hold_scope(within);
	size_t most = KM_MAP_FIRST, end = entries_ready / sizeof(*km_hot.caches);

	km_registry_each(note_id, &most);
	/* Purge only if an entry above the highest id in use was written since the last purge. */
	if (++most < ids_end) {
		ids_end = most;
		purge(&km_hot.caches[most], &km_hot.caches[end]);
		purge(km_id_masks(most), km_id_masks(end));
		purge(km_id_factor(most), km_id_factor(end));
	}
}

void km_id_fill(struct kmem_cache *cache)
{
	if (cache->fast.id < KM_MAP_FIRST)
		return;
	km_debug(!km_hot.caches[cache->fast.id], "an id belongs to one live cache");
	size_t slab_bytes = KM_PAGE_SIZE << cache->layout.order;
	uint64_t factor = km_id_find_factor(cache->layout.size, cache->layout.objects, slab_bytes);
	km_id_masks(cache->fast.id)->slab = (uint32_t)slab_bytes - 1;
	*km_id_factor(cache->fast.id) = factor;
	/* If slabs start at different offsets, or not with an object, no factor validates an object: all frees miss. */
	bool by_more = cache->form.colours || km_is_debugged(cache) || !factor;
	km_store_release(&km_hot.caches[cache->fast.id], by_more ? NULL : cache);
}
