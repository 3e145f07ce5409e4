/*
 * objcg.c: the records of objcgs: those that may be over are listed here, and those that are over rest here, are had
 * again, or give their memory back. Invariants: an objcg is on the list once at most, and only a thread that has the
 * tree's lock takes one off it; and the memory of a record is never anything else than a record.
 *
 * A thread may still have read the address of an objcg from an object, or from a block on a shelf, when its last byte
 * comes back. It looks at the record later, under a CPU's stock lock. So it must find a record, whatever became of the
 * objcg: one that leads to a group that is there, or to none (`memcg` is NULL), as all do that are over. A page of the
 * system's whose records are all free is purged: it reads as zeros from then on, which are records that are over.
 */
#include "../page/meta.h"
#include "../port/die.h"
#include "../port/os.h"
#include "group.h"

static struct obj_cgroup *gone;		/* linked by next_gone */

/*
 * Nothing is out any more, and its group is gone. It may be there already: what came late was not counted. An objcg
 * that is over is not freed by the thread that brought it to that, which may be any free, but listed: a stack, pushed
 * without a lock, and popped under the tree's lock by a thread that makes or releases a group next (km_memcg_reap).
 * `listed` keeps it from being pushed twice, which would tie a knot in the list.
 */
void km_objcg_list(struct obj_cgroup *objcg)
{
	struct obj_cgroup *head = km_load(&gone);

	/* Release pairs with the acquire of km_stock_is_over: it sees what brought `charged` to 0. */
	if (KM_SHARED(&objcg->listed, km_swap_both(&objcg->listed, (uint32_t)true)))
		return;
	do
		objcg->next_gone = head;
	while (!km_cas_release(&gone, &head, objcg));
}

/* A thread with the tree lock pops, so that none comes back to the top meanwhile. Acquire pairs with km_objcg_list,
 * also where the top has changed: a swap that fails acquires nothing. */
struct obj_cgroup *km_objcg_pop_listed(void)
{
	struct obj_cgroup *objcg;

	do
		objcg = km_load_acquire(&gone);
	while (objcg && !km_cas_acquire(&gone, &objcg, objcg->next_gone));
	km_debug(!objcg || km_load(&objcg->listed), "an objcg on the list knows that it is there");
	return objcg;
}

/* ------------------------------------------------------------------ their memory; with the tree lock */

#define RECORD		128u		/* bytes: two lines that the processor fetches together */
#define PIECE_PAGES	8u		/* of the system's */
#define REST		256u		/* records that came back last: a thread that has one active is told so */
#define MOST_IDLE	16u		/* pages of free records that are resident */
_Static_assert(sizeof(struct obj_cgroup) <= RECORD, "a record has room");

/* Pieces come as they are needed, and stay: so many as the objcgs that were there at once have asked for. */
struct piece {
	struct piece *next;
	char *base;
	uint16_t used[PIECE_PAGES];		/* records of the page that are some objcg's, or rest */
	bool resident[PIECE_PAGES];
};

static struct {
	struct piece *pieces, *at;		/* where the next record is looked for */
	size_t index;
	size_t spare;				/* free records of all pieces */
	size_t idle;				/* pages that are resident and have none but such */
	struct obj_cgroup *resting[REST];	/* a ring, by the order in which they came back */
	size_t came;
} records;

static size_t per_page(void)
{
	return km_os_page_bytes() / RECORD;
}

/* A piece begins as zeros. Nobody has written to most of it yet; its pages count as resident until they are purged. */
static bool grow(void)
{
	struct piece *piece = km_meta_alloc(sizeof(*piece), true);
	char *base = piece ? km_meta_alloc(PIECE_PAGES * km_os_page_bytes(), true) : NULL;

	if (!base) {
		km_meta_free(piece, sizeof(*piece));
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

/*
 * The next free record, round about; there is one. A page that is full is passed over as a whole. `home` says whether a
 * record is free, also in a page that reads as zeros.
 */
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
		km_meta_came_back(km_os_page_bytes());
	else if (!piece->used[page])
		records.idle--;
	piece->resident[page] = true;
	piece->used[page]++;
	records.spare--;
	km_debug(!km_load(&objcg->memcg) && !objcg->home, "a record that is free leads to no group");
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

/* It costs a look at each page that there ever was, for the records of sixteen pages that came back meanwhile. */
void km_objcg_purge(void)
{
	for (struct piece *piece = records.pieces; piece; piece = piece->next)
		for (unsigned page = 0; page < PIECE_PAGES; page++) {
			char *at = piece->base + page * km_os_page_bytes();

			if (piece->used[page] || !piece->resident[page] || !km_meta_purge(at, km_os_page_bytes()))
				continue;
			piece->resident[page] = false;
			records.idle--;
		}
}

/* The piece in which it lies: they are few, and the latest come first. */
static struct piece *piece_of(const struct obj_cgroup *objcg)
{
	struct piece *piece = records.pieces;

	while ((size_t)((char *)objcg - piece->base) >= PIECE_PAGES * km_os_page_bytes())
		piece = piece->next;
	return piece;
}

static void set_free(struct obj_cgroup *objcg)
{
	struct piece *piece = piece_of(objcg);
	size_t page = (size_t)((char *)objcg - piece->base) / km_os_page_bytes();

	km_debug(piece->used[page] && piece->resident[page], "the records in use are counted by page");
	objcg->home = NULL;
	records.spare++;
	if (--piece->used[page] == 0 && ++records.idle > MOST_IDLE)
		km_objcg_purge();
}

/* The record that has rested longest is free then, and may be another objcg's. */
void km_objcg_keep(struct obj_cgroup *objcg)
{
	struct obj_cgroup **place = &records.resting[records.came++ % REST], *rested = *place;

	*place = objcg;
	if (rested)
		set_free(rested);
}
