/*
 * large.c: serve requests above the largest cache size: whole pages up to 4 MiB, separate mappings above. Invariants:
 * the first page of a live block has type LARGE and the number of pages, and is the block's only page in the page
 * map; a block belongs to a class (large_cache.c) or is counted here.
 */
#include <errno.h>

#include "page/huge.h"
#include "page/obj_cgroups.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "alloc/tracer.h"
#include "realloc_run.h"
#include "large_cache.h"

KM_RULE(KMALLOC_MAX_SIZE == KM_PAGE_SIZE << KM_MAX_ORDER, "blocks above the largest free block are mappings");

struct km_large km_large;
static struct {
	size_t kept;		/* bytes of freed mappings in quarantine */
	void *deferred;		/* blocks freed in signal handlers, linked by their first words */
	bool charged;		/* a block was charged at some time */
} large;

bool km_large_fails;

/* ------------------------------------------------------------------ sizes beyond the reach of reclaim */

/* No system gives a mapping without a fixed address so much address space. */
#define MOST_BYTES	((size_t)1 << 48)

/* Returns: whether a request of `bytes` could succeed if the library gave back all its free memory and the system
 * mapped the rest. If the system refuses the rest alone, a release would be in vain. */
static bool is_within_reach(size_t bytes)
{
	struct km_arena_stats stats;

	km_arena_get_stats(&stats);
	/* A limit on address space counts reserved bytes, another limit committed bytes. */
	size_t own = km_os_address_limit() == SIZE_MAX ? stats.committed_bytes : stats.reserved_bytes;
	size_t sum = own + km_huge_idle() + km_load(&large.kept);
	return bytes <= sum || !km_os_refuses(bytes - sum);
}

/* ------------------------------------------------------------------ charges of whole pages */

static bool is_to_be_charged(gfp_t gfp)
{
	return km_unlikely(gfp & __GFP_ACCOUNT || km_options.account || km_account_here) && km_has_accounting();
}

/* Charge whole pages for a request. A length that no system maps charges no group, and releases no memory. Returns:
 * false if refused. *owner is 0 if the block is uncharged. */
static bool charge(size_t bytes, gfp_t gfp, uint64_t *owner)
{
	if (bytes > MOST_BYTES || (km_unlikely(bytes > km_os_memory()) && !is_within_reach(bytes)))
		return false;
	return km_charge_ops->charge(km_align_up(bytes, KM_PAGE_SIZE), gfp, owner);
}

/* Out of line, because many paths end with a refund. */
static km_noinline void uncharge_owner(uint64_t owner, size_t bytes)
{
	km_charge_ops->uncharge((struct obj_cgroup *)(uintptr_t)owner, bytes);
}

static void uncharge(uint64_t owner, size_t bytes)
{
	if (km_unlikely(owner))
		uncharge_owner(owner, bytes);
}

static uint64_t owner_of(struct km_page *page, const void *p)
{
	if (km_likely(!km_load(&large.charged)))
		return 0;
	return page ? km_owner_of_one(km_owner_of_page(page)) : km_huge_owner(p);
}

static void write_owner(struct km_page *page, const void *p, uint64_t owner)
{
	km_debug(!page || page->type == KM_PAGE_LARGE, "the first page of a block has the owner word");
	if (page)
		km_store(km_owner_of_page(page), owner);
	else
		km_huge_set_owner(p, owner);
}

static void set_owner(const void *p, uint64_t owner)
{
	struct km_page *page = km_page_of(p);

	if (!owner)
		return;
	km_store(&large.charged, true);
	write_owner(page, p, owner);
	if (page)
		km_charge_ops->note_block(owner, page, true);
}

uint64_t km_large_owner(const void *p)
{
	struct km_page *page = km_page_of(p);
	bool begins = !((uintptr_t)p & (KM_PAGE_SIZE - 1)) && (!page || page->type == KM_PAGE_LARGE);

	return begins && !km_thread.busy ? owner_of(page, p) : 0;
}

/* ------------------------------------------------------------------ blocks */

/* Count a new block that belongs to no class, and mark its first page in the page map. */
static void count_in(struct km_page *page)
{
	km_debug(page->type == KM_PAGE_LARGE && !page->cache && page->pages,
		 "the first page of a block without class is marked");
	km_map_set(page, 1, KM_MAP_DESC);
	km_add(&km_large.blocks, 1ul);
	km_add(&km_large.bytes, page->pages << KM_PAGE_SHIFT);
}

/* Detach a block from its class, because its length changes or an objcg is charged. */
static void leave_class(struct km_page *page)
{
	if (!page->cache)
		return;
	km_large_cache_leave(page);
	km_debug(!page->cache, "a block has a class or is counted here");
	count_in(page);
}

/* Turn free pages into a block. Release: a walk along the pages of a range (page/range_release.c) skips as many
 * pages as the block has. */
static void begin_block(struct km_page *page, size_t pages, size_t bytes)
{
	km_debug(pages && page->type == KM_PAGE_NONE, "a block begins in free pages");
	page->pages = pages;
	page->requested = bytes;
	km_store_release(&page->type, (uint8_t)KM_PAGE_LARGE);
}

void *km_large_get(size_t bytes, size_t align, const struct km_request *request)
{
	size_t pages = (bytes + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;
	unsigned align_order = align > KM_PAGE_SIZE ? km_order_of(align) : 0;
	bool zero = false;
	int place = km_request_place(request);
	struct km_page *page = km_max(bytes, align) <= KMALLOC_MAX_SIZE ?
		km_pages_alloc_exact(pages, align_order, place, request->may_wait, &zero) :
		km_pages_alloc_long(pages, align_order, place, &zero);

	if (!page)
		return NULL;
	begin_block(page, pages, bytes);
	if (!request->ready || !km_large_cache_join(request->ready, page, request->may_wait))
		count_in(page);
	void *p = km_page_address(page);
	if (km_unlikely(km_sanitizer.objects)) {
		km_tell(handed_in, p, pages << KM_PAGE_SHIFT);
		km_tell(memory_on, p, pages << KM_PAGE_SHIFT);
	}
	/* Zero all bytes that ksize reports: krealloc grows into them. */
	if ((request->gfp & __GFP_ZERO) && !zero)
		__builtin_memset(p, 0, pages << KM_PAGE_SHIFT);
	return p;
}

/* Map a large block. The node binding is a preference, applied before the first touch. A refused binding is the
 * process's setting and no failure of the request. *hopeless is set if reclaim can't help. */
static void *mapping_alloc(size_t bytes, size_t align, const struct km_request *request, bool *hopeless)
{
	bool zero;

	/* Regions and free pages have room for any length, but the system does not check the commit limit for them. */
	if (km_unlikely(bytes > km_os_memory()) && !km_os_may_map(bytes)) {
		*hopeless = !is_within_reach(bytes);
		return NULL;
	}
	void *p = km_huge_alloc(bytes, align, &zero);
	if (km_unlikely(!p) && (*hopeless = !is_within_reach(bytes)))
		return NULL;
	/* Release unused reserved address space, and try again. */
	if (km_unlikely(!p) && km_ranges_release(false))
		p = km_huge_alloc(bytes, align, &zero);
	if (km_unlikely(!p))
		return km_large_get(bytes, align, request);
	if (request->gfp & __GFP_ZERO && !zero)
		__builtin_memset(p, 0, km_align_up(bytes, KM_PAGE_SIZE));
	if (request->node >= 0 && km_nodes.bind)
		km_node_bind(p, km_align_up(bytes, KM_PAGE_SIZE), (unsigned)request->node);
	return p;
}

/* Allocate a block by one attempt, as pages or as a mapping. *hopeless is set if reclaim can't help. */
static void *alloc_once(size_t bytes, size_t align, const struct km_request *request, bool *hopeless)
{
	void *p = NULL;

	*hopeless = bytes > MOST_BYTES || align > MOST_BYTES;
	if (km_thread.busy || *hopeless)
		return NULL;
	km_busy_scope(was);
	km_large_finish_deferred();
	if (km_max(bytes, align) <= KMALLOC_MAX_SIZE)
		p = km_large_get(bytes, align, request);
	else if (request->may_wait)
		p = mapping_alloc(bytes, align, request, hopeless);
	return p;
}

static void *alloc_or_press(size_t bytes, size_t align, const struct km_request *request)
{
	bool hopeless;
	void *p = alloc_once(bytes, align, request, &hopeless);
	unsigned tries = 0;

	while (km_unlikely(!p) && request->may_wait && !km_thread.busy && !hopeless) {
		struct km_busy_was was = km_busy_begin();
		bool more = km_alloc_pressure && km_alloc_pressure(NULL, bytes, &tries);
		km_busy_end(was);
		if (!more)
			break;
		p = alloc_once(bytes, align, request, &hopeless);
	}
	return p;
}

static struct km_page *page_of_block(const void *p)
{
	struct km_page *page = km_page_of(p);

	return page && page->type == KM_PAGE_LARGE && km_page_address(page) == p ? page : NULL;
}

/* ------------------------------------------------------------------ reports to a sanitizer */

/* Returns: the place of the requested size of a block: in the page descriptor, or the last word of a mapping,
 * inside the red zone. */
size_t *km_large_asked(const void *p)
{
	struct km_page *page = page_of_block(p);

	if (page || (uintptr_t)p & (KM_PAGE_SIZE - 1))
		return page ? &page->requested : NULL;
	size_t bytes = km_thread.busy ? km_huge_try_bytes(p) : km_huge_bytes(p);
	return bytes && bytes != SIZE_MAX ? (size_t *)((char *)p + bytes) - 1 : NULL;
}

/* Tell the sanitizer about a new block. The page behind the object is a red zone. */
static km_cold void block_comes(void *p, size_t bytes, bool zeros)
{
	struct km_page *page = page_of_block(p);
	size_t whole = page ? page->pages << KM_PAGE_SHIFT : km_huge_bytes(p);

	if (!page)
		km_tell_root(root_comes, p, whole);
	if (!km_sanitizer.objects)
		return;
	*km_large_asked(p) = bytes;
	km_tell(memory_off, p, whole - sizeof(size_t));
	km_tell(object_begins, p, bytes, zeros);
}

/* Tell the sanitizer about a freed block. Another mapping may get the addresses next, so a mapping leaves no trace. */
static km_cold void block_goes(struct km_page *page, const void *p)
{
	size_t bytes = page ? page->pages << KM_PAGE_SHIFT : km_huge_bytes(p);

	if (bytes && !page)
		km_tell_root(root_goes, p, bytes);
	if (!bytes || !km_sanitizer.objects)
		return;
	km_debug(bytes % KM_PAGE_SIZE == 0, "a block has whole pages");
	km_tell(object_ends, (void *)p, bytes);
	if (page)
		km_tell(handed_out, p, bytes);
	else
		km_tell(memory_on, p, bytes);
}

static size_t with_red_zone(size_t bytes)
{
	bool zone = km_unlikely(km_sanitizer.objects || km_block_hooks);

	return zone && bytes != KMALLOC_MAX_SIZE && bytes <= PTRDIFF_MAX ? bytes + KM_PAGE_SIZE : bytes;
}

/* Allocate a block of a class: cached on this CPU, or new pages. Returns: NULL if there is no such run of pages. */
static void *from_class(struct kmem_cache *class, size_t align, const struct km_request *request)
{
	struct km_request own = *request;
	bool hopeless;
	void *p = NULL;

	km_alloc_enter_thread(request->may_wait);
	if (km_likely(request->node < 0))
		p = km_large_cache_take(class, align);
	if (p && request->gfp & __GFP_ZERO)
		__builtin_memset(p, 0, class->layout.size);
	own.ready = class;
	/* A block with a larger alignment than any run of pages is a mapping, and belongs to no class. */
	if (!p && align <= KMALLOC_MAX_SIZE)
		p = alloc_once(class->layout.size, align, &own, &hopeless);
	km_debug(!p || page_of_block(p), "a block of a class has pages");
	return p;
}

static void *take_grown(size_t bytes)
{
	size_t pages = (bytes + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;

	/* Runs for growth are not used by threads whose blocks are charged, nor in handlers. */
	if (km_thread.busy || km_account_here)
		return NULL;
	km_busy_scope(was);
	struct km_page *page = km_growth_take(pages);
	if (page) {
		km_debug(!page->cache && !page->flags, "a page of a reserved run has no cache and no flags");
		begin_block(page, pages, bytes);
		km_map_set(page, 1, KM_MAP_DESC);
		km_add(&km_large.blocks, 1ul);
	}
	return page ? km_page_address(page) : NULL;
}

/* Serve a request that may not wait from a larger cached block, or from pages reserved for growth. */
static void *from_larger(size_t bytes, size_t align, const struct km_request *request)
{
	if (request->may_wait || request->node >= 0)
		return NULL;
	void *p = km_large_cache_take_larger(bytes, align);
	if (!p && align <= KM_PAGE_SIZE)
		p = take_grown(bytes);
	if (p && request->gfp & __GFP_ZERO)
		__builtin_memset(p, 0, km_large_bytes(p));
	return p;
}

static void *alloc_uncharged(size_t bytes, size_t align, const struct km_request *request)
{
	struct kmem_cache *class = km_large_cache_class(bytes, false, request);
	void *p = class ? from_class(class, align, request) : NULL;

	if (!p)
		p = alloc_or_press(bytes, align, request);
	return km_likely(p) ? p : from_larger(bytes, align, request);
}

/* Allocate a block of a class for an objcg charged already. Returns: NULL if there is no block, or if own_block
 * could not record the owner without waiting. */
static void *from_charged_class(struct kmem_cache *class, uint64_t owner, size_t align,
				const struct km_request *request)
{
	void *p = from_class(class, align, request);
	const struct km_page *page = p ? km_page_of(p) : NULL;

	if (!p)
		return NULL;
	/* The block has no class: record the owner as for any other block. */
	if (km_unlikely(!page->cache)) {
		set_owner(p, owner);
		return p;
	}
	km_debug(page->cache == class, "a block with a class is marked");
	km_store(&large.charged, true);
	if (km_likely(km_charge_ops->own_block(class, p, owner, request->may_wait)))
		return p;
	km_plain_free(class, p);
	return NULL;
}

/* Allocate a charged block: of a class, while the limits of the objcg have room; otherwise of the requested number of
 * pages. The second charge may wait, and may be refused. */
static void *alloc_charged(size_t bytes, size_t align, struct km_request *request)
{
	const size_t exact = km_align_up(bytes, KM_PAGE_SIZE);
	struct kmem_cache *class = request->node < 0 ? km_large_cache_class(bytes, true, request) : NULL;
	uint64_t owner;
	void *p = NULL;

	if (class && (!km_charge_ops->has_room(class->layout.size) ||
		      !charge(class->layout.size, request->gfp, &owner)))
		class = NULL;
	if (!class && km_unlikely(!charge(bytes, request->gfp, &owner))) {
		request->gfp |= __GFP_NOWARN;
		return NULL;
	}
	if (!owner)
		return alloc_uncharged(bytes, align, request);
	if (class && (p = from_charged_class(class, owner, align, request)))
		return p;
	if (class)
		uncharge(owner, class->layout.size - exact);
	p = alloc_or_press(bytes, align, request);
	if (p)
		set_owner(p, owner);
	else
		uncharge(owner, exact);
	return p;
}

static void *alloc_request(size_t asked, size_t align, struct km_request *request)
{
	if (km_unlikely(km_large_fails) && km_alloc_fails("large", asked, request->gfp)) {
		request->gfp |= __GFP_NOWARN;
		return NULL;
	}
	size_t bytes = with_red_zone(asked);
	bool charged = is_to_be_charged(request->gfp);
	void *p = charged && request->node < 0 ? km_large_cache_hit_charged(bytes, align, request->gfp) : NULL;

	if (km_likely(p))
		return p;
	/* Covers frees on the way, too: a page that is not aligned, for example. */
	bool calls = km_calls_begin(request->may_wait);
	p = charged ? alloc_charged(bytes, align, request) : alloc_uncharged(bytes, align, request);
	km_calls_end(calls);
	if (p && km_unlikely(km_sanitizer.any))
		block_comes(p, asked, request->gfp & __GFP_ZERO);
	if (p && km_unlikely(km_block_hooks != NULL))
		km_block_hooks->comes(p, asked, km_large_bytes(p));
	return p;
}

void *km_large_alloc_request(size_t asked, size_t align, struct km_request *request)
{
	void *p = alloc_request(asked, align, request);

	if (km_unlikely(km_load(&km_alloc_probing) & KM_PROBING_PROFILE) && p)
		km_profile_ops->comes(NULL, p, km_large_bytes(p), request->may_wait);
	if (km_unlikely(km_load(&km_alloc_probing) & KM_PROBING_TRACER))
		km_tracer_ops->kmalloc(km_alloc_take_site((uintptr_t)__builtin_return_address(0)), p, asked,
				 p ? km_large_bytes(p) : 0, request->gfp, request->node,
				 is_to_be_charged(request->gfp));
	return p;
}

size_t km_large_page_bytes(const void *p)
{
	struct km_page *page = page_of_block(p);

	return page ? page->pages << KM_PAGE_SHIFT : 0;
}

static size_t bytes_by(const void *p, size_t (*of_mapping)(const void *p))
{
	if (km_page_of(p))
		return km_large_page_bytes(p);
	return (uintptr_t)p & (KM_PAGE_SIZE - 1) ? 0 : of_mapping(p);
}

size_t km_large_bytes(const void *p)
{
	return bytes_by(p, km_huge_bytes);
}

size_t km_large_look(const void *p)
{
	return bytes_by(p, km_thread.busy ? km_huge_try_bytes : km_huge_bytes);
}

bool km_large_charge(const void *p, gfp_t gfp)
{
	km_calls_scope(calls, km_gfp_may_wait(gfp));
	size_t bytes = km_thread.busy ? 0 : km_large_bytes(p);
	uint64_t owner;
	bool charged = bytes && km_charge_ops->charge(bytes, gfp, &owner);
	struct km_page *page = charged && owner ? km_page_of(p) : NULL;

	if (page) {
		km_busy_scope(was);
		leave_class(page);
	}
	if (charged)
		set_owner(p, owner);
	return charged;
}

void km_large_uncharge(const void *p)
{
	struct km_page *page = km_page_of(p);
	uint64_t owner = owner_of(page, p);
	size_t bytes = km_large_bytes(p);

	if (!owner)
		return;
	if (page)
		km_charge_ops->note_block(owner, page, false);
	write_owner(page, p, 0);
	km_debug(!page || !page->cache, "a charged block has no class");
	uncharge(owner, bytes);
}

/* Defer the free of a block in a signal handler. The interrupted code may hold any lock. If the mapping table is
 * locked, a mapping can't be told from a foreign pointer. */
bool km_large_defer(void *p)
{
	if (!bytes_by(p, km_huge_try_bytes))
		return false;
	km_list_push(&large.deferred, p, *(void **)p);
	return true;
}

/* Free the blocks deferred by signal handlers. Acquire pairs with km_list_push. Freeing a mapping
 * needs a system call. */
void km_large_finish_deferred(void)
{
	if (km_likely(!km_load(&large.deferred)) || km_thread.no_calls)
		return;
	void *p = km_swap_acquire(&large.deferred, NULL), *next;
	/* Check for a circle before the first free, because a freed block loses its link. */
	void *twice = km_cut_circle(p, 0);

	for (; p; p = next) {
		next = *(void **)p;
		if (!km_large_free(p))
			km_misuse(KM_MISUSE_FOREIGN, "kfree", p, NULL);
	}
	if (km_unlikely(twice != NULL))
		km_misuse(KM_MISUSE_DOUBLE_FREE, "kfree", twice, NULL);
}

/* Give back pages of `node` that no longer belong to a block. */
static void give_pages(struct km_page *page, size_t pages, unsigned node)
{
	if (km_growth_put(page, pages, node))
		return;
	km_debug(pages && page->type == KM_PAGE_NONE, "returned pages are no block");
	km_large_count(-pages);
	km_pages_free_exact(page, pages);
}

/* Report a free to the profile and the tracer. */
static km_noinline void tell_looking(const void *p, bool is_block)
{
	uint32_t looking = km_load(&km_alloc_probing);

	if (looking & KM_PROBING_PROFILE)
		km_profile_ops->goes(p);
	if (looking & KM_PROBING_TRACER && is_block)
		km_tracer_ops->kfree((uintptr_t)__builtin_return_address(0), p);
}

/* Uncharge a freed block that is kept (quarantine). The block also leaves its private group. */
void km_large_disown(void *p)
{
	if (km_unlikely(km_load(&km_alloc_probing)))
		tell_looking(p, true);
	km_large_uncharge(p);
	km_add(&large.kept, page_of_block(p) ? 0 : km_huge_bytes(p));
}

static void free_pages(struct km_page *page, uint64_t owner)
{
	size_t pages = page->pages;

	if (km_unlikely(owner))
		km_charge_ops->note_block(owner, page, false);
	leave_class(page);
	km_debug(!page->cache && page->type == KM_PAGE_LARGE && pages, "a block has type LARGE until its free");
	km_map_set(page, 1, KM_MAP_NONE);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
	km_sub(&km_large.blocks, 1ul);
	km_debug((long)km_load(&km_large.blocks) >= 0, "at most the added blocks are removed");
	if (km_unlikely(km_load(&large.charged)))
		km_store(km_owner_of_page(page), (uint64_t)0);
	give_pages(page, pages, page->node);
	uncharge(owner, pages << KM_PAGE_SHIFT);
}

void km_large_give(void *p)
{
	free_pages(page_of_block(p), 0);
}

static bool give_back(const void *p, bool told)
{
	struct km_page *page = page_of_block(p);

	uint64_t owner = owner_of(page, p);
	if (km_unlikely(km_sanitizer.any))
		block_goes(page, p);
	if (km_unlikely(km_load(&km_alloc_probing)) && !told)
		tell_looking(p, page || km_huge_bytes(p));
	if (page) {
		free_pages(page, owner);
	} else {
		size_t bytes = owner ? km_huge_bytes(p) : 0;

		if ((uintptr_t)p & (KM_PAGE_SIZE - 1) || !km_huge_free(p))
			return false;
		uncharge(owner, bytes);
	}
	if (km_alloc_tick)
		km_alloc_tick();
	return true;
}

void km_large_let_go(void *p)
{
	km_sub(&large.kept, page_of_block(p) ? 0 : km_huge_bytes(p));
	give_back(p, true);
}

bool km_large_free(const void *p)
{
	size_t bytes = km_likely(!km_block_hooks) ? 0 : km_large_bytes(p);

	return (bytes && !km_block_hooks->goes((void *)p, bytes)) || give_back(p, false);
}

/* Shrink a block to its first `pages` pages. A small tail stays, because a block that shrank a little often grows
 * again. */
static void give_tail(struct km_page *page, size_t pages)
{
	size_t tail = page->pages - pages;

	if (km_thread.busy)
		return;
	struct km_busy_was was = km_busy_begin();
	leave_class(page);
	km_debug(pages && pages < page->pages, "a block keeps its first page");
	page->pages = pages;
	give_pages(page + pages, tail, page->node);
	km_busy_end(was);
	uncharge(owner_of(page, NULL), tail << KM_PAGE_SHIFT);
}

/* Charge the growth of a block to its objcg before the block grows. If a refusal would also refuse a whole new
 * block, *refused is set. */
static bool charge_growth(uint64_t owner, size_t bytes, gfp_t gfp, bool *refused)
{
	if (km_likely(!owner) || km_charge_ops->charge_more((struct obj_cgroup *)(uintptr_t)owner, bytes, gfp))
		return true;
	*refused = is_to_be_charged(gfp) && !(gfp & __GFP_NOFAIL) && km_charge_ops->is_charged_here(owner);
	if (*refused)
		errno = ENOMEM;
	return false;
}

static void *resize_mapping(void *p, size_t bytes, gfp_t gfp, bool *refused)
{
	uint64_t owner = owner_of(NULL, p);
	size_t old = owner ? km_huge_bytes(p) : 0;

	if (owner && bytes > old && !charge_growth(owner, bytes - old, gfp, refused))
		return NULL;
	if (km_unlikely(km_sanitizer.any))
		km_tell_root(root_goes, p, km_huge_bytes(p));
	struct km_busy_was was = km_busy_begin();
	void *moved = km_huge_resize(p, bytes);
	if (km_unlikely(!moved) && is_within_reach(bytes) && km_ranges_release(false))
		moved = km_huge_resize(p, bytes);
	km_busy_end(was);
	if (km_unlikely(km_sanitizer.any))
		km_tell_root(root_comes, moved ?: p, km_huge_bytes(moved ?: p));
	if (owner && !moved && bytes > old)
		uncharge(owner, bytes - old);
	if (owner && moved && bytes < old)
		uncharge(owner, old - bytes);
	return moved;
}

/* Extend a block by the free pages behind its end, charged to the block's objcg. With __GFP_ZERO, pages with old
 * data are zeroed. */
static bool take_tail(struct km_page *page, size_t pages, gfp_t gfp, bool *refused)
{
	size_t have = page->pages, more = (pages - have) << KM_PAGE_SHIFT;
	uint64_t owner = owner_of(page, NULL);

	if (km_thread.busy || !charge_growth(owner, more, gfp, refused))
		return false;
	struct km_busy_was was = km_busy_begin();
	bool zero = false, near = km_growth_extend(page, have, pages);
	bool grown = near || km_pages_grow(page, have, pages, &zero);
	if (grown) {
		leave_class(page);
		if ((gfp & __GFP_ZERO) && !zero)
			__builtin_memset((char *)km_page_address(page) + (have << KM_PAGE_SHIFT), 0, more);
		km_debug(pages > have, "a grown block has more pages");
		page->pages = pages;
		km_large_count(near ? 0 : pages - have);
	}
	km_busy_end(was);
	if (!grown)
		uncharge(owner, more);
	return grown;
}

static void *resize(void *p, size_t bytes, gfp_t gfp, bool *refused)
{
	struct km_page *page = page_of_block(p);

	/* Under debugging nothing is resized in place: the caller allocates a new block. */
	if (km_unlikely(km_sanitizer.objects || km_large_fails || km_block_hooks))
		return NULL;
	if (!page) {
		if (!km_gfp_may_wait(gfp) || bytes <= KMALLOC_MAX_SIZE || bytes > PTRDIFF_MAX || km_thread.busy)
			return NULL;
		return resize_mapping(p, km_align_up(bytes, KM_PAGE_SIZE), gfp, refused);
	}
	size_t have = page->pages, want = (bytes + KM_PAGE_SIZE - 1) >> KM_PAGE_SHIFT;

	if ((want > have && bytes > KMALLOC_MAX_SIZE) || (bytes <= KMALLOC_MAX_CACHE_SIZE && want < have / 2))
		return NULL;
	if (want > have && !take_tail(page, want, gfp, refused))
		return NULL;
	km_debug(page->type == KM_PAGE_LARGE && page->pages >= want, "a resized block has the requested pages");
	page->requested = bytes;
	if (want < have && have - want > have / 8)
		give_tail(page, want);
	return p;
}

void *km_large_resize(void *p, size_t bytes, gfp_t gfp, bool *refused)
{
	void *resized = resize(p, bytes, gfp, refused);

	/* The profile sees a free and an allocation, as in other allocators' profiles. */
	if (km_unlikely(km_load(&km_alloc_probing) & KM_PROBING_PROFILE) && resized) {
		km_profile_ops->goes(p);
		km_profile_ops->comes(NULL, resized, km_large_bytes(resized), km_gfp_may_wait(gfp));
	}
	return resized;
}

bool km_large_may_have(size_t bytes, gfp_t gfp)
{
	return !is_to_be_charged(gfp) || km_charge_ops->may_more(km_align_up(bytes, KM_PAGE_SIZE));
}

/* Allocate a block for a growing object, where the block can go on growing. */
void *km_large_grown(size_t bytes)
{
	void *p = take_grown(bytes);

	if (km_unlikely(km_load(&km_alloc_probing) & KM_PROBING_PROFILE) && p)
		km_profile_ops->comes(NULL, p, km_large_bytes(p), false);
	return p;
}

void km_large_count(size_t pages)
{
	if (pages)
		km_add(&km_large.bytes, pages << KM_PAGE_SHIFT);
}
