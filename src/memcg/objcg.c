/*
 * objcg.c: records of objcgs: the list of objcgs without charges, and the memory of the records. Invariants: an objcg
 * is on the list at most once; only a thread with the tree's lock takes an objcg off the list; the memory of a record
 * holds records for ever (type-stable memory).
 *
 * A thread may read the address of an objcg from an object or a sheaf before the last byte of the objcg is uncharged,
 * and follow the address afterwards, under a CPU's stock lock. The thread must find a record there: a record with a
 * live group, or a dead record (`memcg` is NULL). A system page without records in use is purged. A purged page reads
 * as zeros, and zeros are dead records.
 */
#include "page/metadata.h"
#include "os/die.h"
#include "os/os.h"
#include "memcg_group.h"

static struct obj_cgroup *gone;		/* objcgs without a group and without charged bytes, linked by next_gone */

/* Any free may uncharge the last byte, so the freeing thread only pushes the objcg on a stack, without a lock.
 * km_memcg_reap pops the stack with the tree locked. An objcg may be on the stack already, because late charges are not
 * counted; `listed` prevents a second push, and so a cycle. */
void km_objcg_list(struct obj_cgroup *objcg)
{
	struct obj_cgroup *head = km_load(&gone);

	/* Release pairs with the acquire of km_stock_is_over. */
	if (KM_SHARED(&objcg->listed, km_swap_both(&objcg->listed, (uint32_t)true)))
		return;
	do
		objcg->next_gone = head;
	while (!km_cas_release(&gone, &head, objcg));
}

/* Only the holder of the tree's lock pops, so no objcg returns to the top meanwhile. Acquire pairs with km_objcg_list.
 * A failed compare-and-swap acquires nothing, so the top is loaded again. */
struct obj_cgroup *km_objcg_pop_listed(void)
{
	struct obj_cgroup *objcg;

	do
		objcg = km_load_acquire(&gone);
	while (objcg && !km_cas_acquire(&gone, &objcg, objcg->next_gone));
	km_debug(!objcg || km_load(&objcg->listed), "an objcg on the list is marked as listed");
	return objcg;
}

/* ------------------------------------------------------------------ the memory of records; with the tree lock */

#define RECORD		128u		/* bytes of a record: two cache lines that the processor fetches together */
#define PIECE_PAGES	8u		/* system pages of a piece */
#define REST		256u		/* records released last, and not reused yet: a late user of such a record gets
					 * an error */
#define MOST_IDLE	16u		/* resident pages of free records; above, km_objcg_purge is called */
_Static_assert(sizeof(struct obj_cgroup) <= RECORD, "a record has room");

/* A piece of memory for records. Pieces are made on demand and never freed. */
struct piece {
	struct piece *next;
	char *base;
	uint16_t used[PIECE_PAGES];		/* for each page the number of records in use, or resting */
	bool resident[PIECE_PAGES];
};

static struct {
	struct piece *pieces, *at;		/* `at`, `index`: where the next search starts */
	size_t index;
	size_t spare;				/* number of free records in all pieces */
	size_t idle;				/* number of resident pages that have only free records */
	struct obj_cgroup *resting[REST];	/* ring of dead records that are not reused yet, in the order of
						 * release */
	size_t came;
} records;

static size_t per_page(void)
{
	return km_os_page_bytes() / RECORD;
}

/* Allocates a piece of zeros: free records. The pages of a piece count as resident until the first purge. */
static bool grow(void)
{
	struct piece *piece = km_metadata_alloc(sizeof(*piece), true);
	char *base = piece ? km_metadata_alloc(PIECE_PAGES * km_os_page_bytes(), true) : NULL;

	if (!base) {
		km_metadata_free(piece, sizeof(*piece));
		return false;
	}
	*piece = (struct piece){ .next = records.pieces, .base = base };
	for (unsigned page = 0; page < PIECE_PAGES; page++)
		piece->resident[page] = true;
	records.idle += PIECE_PAGES;
	records.pieces = records.at = piece;
	records.index = 0;
	records.spare += PIECE_PAGES * per_page();
	return true;
}

/* Returns the next free record; the search goes round all pieces. Requires: records.spare is not 0. `home` of a free
 * record is NULL, also in a page of zeros. */
static struct obj_cgroup *find(void)
{
	for (;;) {
		size_t page = records.index / per_page();

		if (page == PIECE_PAGES) {
			records.at = records.at->next ?: records.pieces;
			records.index = 0;
		} else if (records.at->used[page] == per_page()) {
			records.index = (page + 1) * per_page();
		} else {
			struct obj_cgroup *objcg = (void *)(records.at->base + records.index++ * RECORD);

			if (!objcg->home)
				return objcg;
		}
	}
}

struct obj_cgroup *km_objcg_new(struct mem_cgroup *home)
{
	if (!records.spare && !grow())
		return NULL;
	struct obj_cgroup *objcg = find();
	size_t page = (records.index - 1) / per_page();
	struct piece *piece = records.at;
	if (!piece->resident[page])
		km_metadata_came_back(km_os_page_bytes());
	else if (!piece->used[page])
		records.idle--;
	piece->resident[page] = true;
	piece->used[page]++;
	records.spare--;
	km_debug(!km_load(&objcg->memcg) && !objcg->home, "a free objcg has no group");
	objcg->slot = objcg->stock = objcg->words = objcg->net = 0;
	objcg->charged = 0;
	objcg->left = 0;
	objcg->listed = false;
	objcg->nr_charged_bytes = 0;
	objcg->private = NULL;
	km_store(&objcg->dead, false);
	objcg->home = home;
	return objcg;
}

/* Purges all pages without records in use. Called once for every sixteen pages of released records. */
void km_objcg_purge(void)
{
	for (struct piece *piece = records.pieces; piece; piece = piece->next)
		for (unsigned page = 0; page < PIECE_PAGES; page++) {
			char *at = piece->base + page * km_os_page_bytes();

			if (piece->used[page] || !piece->resident[page] || !km_metadata_purge(at, km_os_page_bytes()))
				continue;
			piece->resident[page] = false;
			records.idle--;
		}
}

/* Returns the piece that contains the address, or NULL. Pieces are few, and the latest pieces come first. */
static struct piece *piece_of(uintptr_t address)
{
	struct piece *piece = records.pieces;

	while (piece && address - (uintptr_t)piece->base >= PIECE_PAGES * km_os_page_bytes())
		piece = piece->next;
	return piece;
}

bool km_objcg_is_record(uintptr_t address)
{
	const struct piece *piece = piece_of(address);

	return piece && (address - (uintptr_t)piece->base) % RECORD == 0;
}

static void set_free(struct obj_cgroup *objcg)
{
	struct piece *piece = piece_of((uintptr_t)objcg);
	size_t page = (size_t)((char *)objcg - piece->base) / km_os_page_bytes();

	km_debug(piece->used[page] && piece->resident[page], "the used records of a page are counted");
	objcg->home = NULL;
	records.spare++;
	if (--piece->used[page] == 0 && ++records.idle > MOST_IDLE)
		km_objcg_purge();
}

/* Puts a dead record into the ring `resting`. The record that rested longest becomes free. */
void km_objcg_keep(struct obj_cgroup *objcg)
{
	struct obj_cgroup **place = &records.resting[records.came++ % REST], *rested = *place;

	*place = objcg;
	if (rested)
		set_free(rested);
}
