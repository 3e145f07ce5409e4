/*
 * deferred_free.c: the lists of deferred frees. Invariants: compare-and-swap adds to a list, and an exchange takes
 * the whole list, so neither waits for another thread, or for itself in a signal handler. Memory on a list belongs to
 * no user.
 */
#include "base/atomic.h"
#include "os/die.h"
#include "deferred_free.h"
#include "metadata.h"

static struct km_page *pages;
static struct piece { struct piece *next; size_t bytes; } *pieces;

/* Release: the descriptors are written before the pages appear on the list. */
void km_deferred_pages(struct km_page *page, unsigned order)
{
	struct km_page *head = km_load(&pages);

	km_debug(page->order == order && page->type == KM_PAGE_NONE, "deferred pages have type NONE");
	do
		page->list.next = head ? &head->list : NULL;
	while (!km_cas_release(&pages, &head, page));
}

void km_deferred_piece(void *p, size_t bytes)
{
	struct piece *piece = p, *head = km_load(&pieces);

	/* A piece has at least a cache line, enough for this record. */
	piece->bytes = bytes;
	do
		piece->next = head;
	while (!km_cas_release(&pieces, &head, piece));
}

/* Acquire pairs with the release in km_deferred_pages. */
void km_deferred_finish(void)
{
	struct km_page *page = km_load(&pages) ? km_swap_acquire(&pages, NULL) : NULL;
	struct piece *piece = km_load(&pieces) ? km_swap_acquire(&pieces, NULL) : NULL;

	while (page) {
		struct km_list *next = page->list.next;

		km_pages_free(page, page->order);
		page = next ? km_container_of(next, struct km_page, list) : NULL;
	}
	while (piece) {
		struct piece *next = piece->next;

		km_metadata_free(piece, piece->bytes);
		piece = next;
	}
}
