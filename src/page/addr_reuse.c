/*
 * addr_reuse.c: address reuse by cache name. Each name has one list of kept pages for each order; the record of a name
 * is never freed. A request about to be refused takes kept pages of any name (km_addr_reuse_release). Invariant: the
 * zone counts a kept page as used, and the type of a kept page is KM_PAGE_NONE, so no lookup finds an object there.
 */
#include "addr_reuse.h"

#include "base/bits.h"
#include "os/die.h"
#include "os/secret.h"
#include "os/lock.h"
#include "os/os.h"
#include "metadata.h"
#include "zone.h"

#define NAME_BYTES	32u
/* With guard_slabs pages are allocated for a span of 2^SPAN_ORDER slabs, and the last slab of the span becomes a guard
 * without access. Before Linux 6.13 each guard costs two mappings. The kernel allows 65530, of which guards take a
 * quarter: after each quarter of MOST_GUARDS the spans are twice as long. */
#define SPAN_ORDER	4u
#define MOST_GUARDS	8192u
#define BUCKETS		256u

struct owner {
	struct owner *next;		/* next record in the same bucket of the hash table of names */
	char name[NAME_BYTES];
	struct km_list free[KM_MAX_ORDER + 1];
};

struct km_lock km_addr_reuse_lock = KM_LOCK_INIT(KM_RANK_ADDR_REUSE);
static struct owner *buckets[BUCKETS] km_sparse;
static uint32_t guards;
size_t km_addr_reuse_pages;

static struct owner **bucket_of(const char *name)
{
	uint32_t hash = 2166136261u;

	while (*name)
		hash = (hash ^ (unsigned char)*name++) * 16777619u;
	return &buckets[hash % BUCKETS];
}

/* Returns: the record of a cache name, or NULL. make: a missing record is made, unless there is no memory or the name
 * is too long. Requires: the lock is held. */
static struct owner *find(const char *name, bool make)
{
	struct owner **bucket = bucket_of(name), *owner = *bucket;
	size_t length = __builtin_strlen(name);

	km_debug(km_is_locked(&km_addr_reuse_lock), "names are found under their lock");
	while (owner && __builtin_strcmp(owner->name, name) != 0)
		owner = owner->next;
	if (owner || !make || length >= NAME_BYTES)
		return owner;
	owner = km_metadata_alloc(sizeof(*owner), false);
	if (!owner)
		return NULL;
	__builtin_memcpy(owner->name, name, length + 1);
	for (unsigned order = 0; order <= KM_MAX_ORDER; order++)
		km_list_init(&owner->free[order]);
	owner->next = *bucket;
	*bucket = owner;
	return owner;
}

static struct km_page *take(const char *name, unsigned order, int node)
{
	struct owner *owner = find(name, false);

	if (owner)
		km_list_for_each_entry(struct km_page, page, &owner->free[order], list) {
			if (node >= 0 && page->node != km_first_node(node))
				continue;
			km_debug(page->type == KM_PAGE_NONE, "a page kept for a name has type NONE");
			km_list_del(&page->list);
			km_bump(&km_addr_reuse_pages, -((size_t)1 << order));
			return page;
		}
	return NULL;
}

/* Make a slab a guard: purge its pages and remove access. Returns: false if the system refuses, or there are
 * MOST_GUARDS guards. */
static bool shut(struct km_page *page, unsigned order)
{
	const size_t bytes = KM_PAGE_SIZE << order;

	if (bytes & (km_os_page_bytes() - 1) || km_add(&guards, 1u) >= MOST_GUARDS) {
		km_sub(&guards, 1u);
		return false;
	}
	km_os_purge(km_page_address(page), bytes);
	if (km_os_guard(km_page_address(page), bytes, false) == 0)
		return true;
	km_sub(&guards, 1u);
	return false;
}

/* Allocate a span of slabs. The last slab becomes a guard, the first is the result, the others go into the name's list.
 * Returns: NULL if no span can be allocated. */
static struct km_page *take_span(const char *name, unsigned order, int node)
{
	const unsigned whole = order + SPAN_ORDER + km_load(&guards) / (MOST_GUARDS / 4);
	const size_t slab = (size_t)1 << order, last = ((size_t)1 << whole) - slab;
	struct km_page *page = NULL;

	if (whole <= KM_MAX_ORDER && km_load(&guards) < MOST_GUARDS && !km_os_is_shut())
		page = km_pages_alloc(whole, node, true, NULL);
	if (!page)
		return NULL;
	if (!shut(page + last, order)) {
		km_pages_free(page, whole);
		return NULL;
	}
	/* Purge the kept slabs now, because later purges skip them: their pages count as used. */
	const bool gone = km_pages_hollow(page + slab, last - slab);
	km_lock(&km_addr_reuse_lock);
	struct owner *owner = find(name, true);
	for (size_t i = slab; i < last; i += slab) {
		km_debug(page[i].type == KM_PAGE_NONE, "pages kept for a name have type NONE");
		/* An allocation sets the node only in the first page, so copy the node. */
		page[i].node = page->node;
		page[i].flags |= gone ? KM_SLAB_HOLES : 0;
		if (owner)
			km_list_add_tail(&page[i].list, &owner->free[order]);
	}
	km_bump(&km_addr_reuse_pages, owner ? last : slab);
	km_unlock_quick(&km_addr_reuse_lock);
	if (!owner)
		km_pages_free_exact(page + slab, last - slab);
	return page;
}

struct km_page *km_addr_reuse_alloc(const char *name, unsigned order, int node, bool may_wait)
{
	struct km_page *page = NULL;

	if (km_lock_may(&km_addr_reuse_lock, may_wait)) {
		page = take(name, order, node);
		km_unlock_may(&km_addr_reuse_lock, may_wait);
	}
	if (!page && km_hardening.guard_slabs && may_wait && !km_thread.no_calls)
		page = take_span(name, order, node);
	if (!page)
		return km_pages_alloc(order, node, may_wait, NULL);
	km_store(&page->order, (uint8_t)order);
	km_pages_fill(page, (size_t)1 << order);
	page->flags = 0;
	return page;
}

/* Purge the slab before any reuse, if system calls are allowed. Slabs smaller than a system page keep their memory. */
void km_addr_reuse_free(const char *name, struct km_page *page, unsigned order)
{
	size_t bytes = KM_PAGE_SIZE << order;

	km_debug(page->type == KM_PAGE_NONE, "a freed slab has type NONE");
	/* Wait for threads that hold the page and read the slab's descriptor (km_page_hold). */
	km_page_hold(page);
	km_page_let_go(page);
	if (!km_thread.no_calls && !(bytes & (km_os_page_bytes() - 1)) && km_pages_hollow(page, (size_t)1 << order))
		page->flags |= KM_SLAB_HOLES;
	km_lock(&km_addr_reuse_lock);
	struct owner *owner = find(name, true);
	if (owner) {
		km_list_add_head(&page->list, &owner->free[order]);
		km_bump(&km_addr_reuse_pages, (size_t)1 << order);
	}
	km_unlock_quick(&km_addr_reuse_lock);
	/* There is no record: free the pages for any use rather than lose the pages. */
	if (!owner)
		km_pages_free(page, order);
}

/* Take kept pages of a name in this bucket, the largest order first, off their list. Returns: NULL if there are
 * none. */
static struct km_page *take_any(unsigned bucket, unsigned *order)
{
	struct km_page *page = NULL;

	km_lock_scope(&km_addr_reuse_lock);
	for (struct owner *owner = buckets[bucket]; owner && !page; owner = owner->next)
		for (*order = KM_MAX_ORDER + 1; !page && *order;)
			if (!km_list_empty(&owner->free[--*order]))
				page = km_list_first(&owner->free[*order], struct km_page, list);
	if (page) {
		km_list_del(&page->list);
		km_bump(&km_addr_reuse_pages, -((size_t)1 << *order));
	}
	return page;
}

size_t km_addr_reuse_release(size_t pages)
{
	struct km_page *page;
	size_t given = 0;
	unsigned order;

	for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
		while (given < pages && (page = take_any(bucket, &order))) {
			km_debug(page->type == KM_PAGE_NONE, "a page kept for a name has type NONE");
			km_pages_free(page, order);
			given += (size_t)1 << order;
		}
	return given;
}
