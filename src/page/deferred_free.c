/*
 * deferred_free.c: the lists of deferred frees. Invariant: memory on a list belongs to no user.
 */
#include "base/atomic.h"
#include "os/die.h"
#include "deferred_free.h"
#include "metadata.h"

static struct km_list *pages;
static struct piece { struct piece *next; size_t bytes; } *pieces;

void km_deferred_pages(struct km_page *page, unsigned order)
{
	km_debug(page->order == order && page->type == KM_PAGE_NONE, "deferred pages have type NONE");
	km_list_push(&pages, &page->list, page->list.next);
}

void km_deferred_piece(void *p, size_t bytes)
{
	struct piece *piece = p;

	/* A piece has at least a cache line, enough for this record. */
	piece->bytes = bytes;
	km_list_push(&pieces, piece, piece->next);
}

/* Acquire pairs with km_list_push. */
void km_deferred_finish(void)
{
	struct km_list *entry = km_load(&pages) ? km_swap_acquire(&pages, NULL) : NULL, *next_entry;
	struct piece *piece = km_load(&pieces) ? km_swap_acquire(&pieces, NULL) : NULL, *next;

	for (; entry; entry = next_entry) {
		struct km_page *page = km_container_of(entry, struct km_page, list);

		next_entry = entry->next;
		km_pages_free(page, page->order);
	}
	for (; piece; piece = next) {
		next = piece->next;
		km_metadata_free(piece, piece->bytes);
	}
}
