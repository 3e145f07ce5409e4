/*
 * meta.c: our own memory: power-of-two free lists over ranges that are committed step by step. Invariant: a
 * free piece keeps what it held but for the link, so that a destroyed cache still says that it is one; all of meta
 * memory stays readable for ever.
 */
#include "meta.h"

#include "../port/bits.h"
#include "../port/lock.h"
#include "../port/os.h"
#include "ahead.h"

#define MIN_SHIFT	6u
#define MAX_SHIFT	22u
#define COMMIT_STEP	((size_t)256 << 10)

static struct {
	struct km_lock lock;
	char *at, *committed, *end;	/* the current range */
	size_t committed_bytes;
	char *root;			/* set aside at the start of the first range */
	void *free[MAX_SHIFT + 1];	/* linked by the last word of a smallest piece */
} meta = { .lock = KM_LOCK_INIT(KM_RANK_META) };

static void **link_of(void *p)
{
	return (void **)((char *)p + (1u << MIN_SHIFT)) - 1;
}

static bool new_range(size_t bytes)
{
	size_t limit = km_os_address_limit(), least = km_align_up(bytes * 2, COMMIT_STEP);
	size_t range = limit == SIZE_MAX ? (size_t)1 << 30 : km_align_down(limit / 64, COMMIT_STEP);
	char *p;

	range = km_max(km_max(range, COMMIT_STEP * 4), least);
	/* Another process may have limited this one. */
	while (!(p = km_os_reserve(range, KM_PAGE_SIZE))) {
		if (range == least)
			return false;
		range = km_max(km_align_down(range / 4, COMMIT_STEP), least);
	}
	km_os_name(p, range, "libkmem: metadata");
	/* The first page of the system's stays without access: the mapping after it begins with ours. */
	meta.at = meta.committed = p + km_os_page_bytes();
	meta.end = p + range;
	if (!meta.root) {
		meta.root = meta.at;
		meta.at += KM_META_ROOT_BYTES;
	}
	return true;
}

void km_meta_fit(size_t limit)
{
	km_lock(&meta.lock);
	size_t spare = km_align_down(limit / 64, COMMIT_STEP);
	char *end = (char *)km_align_up((uintptr_t)meta.committed, COMMIT_STEP) + spare;
	if (meta.committed && end < meta.end) {
		km_os_unmap(end, (size_t)(meta.end - end));
		meta.end = end;
	}
	km_unlock(&meta.lock);
}

/* Cut `bytes`, a power of two, off the range, or, without may_wait, off what is committed of it. What alignment
 * skips is lost, at most as much. */
static void *carve(size_t bytes, bool may_wait)
{
	/* A shelf's block is aligned to its size, and the largest has 1024 words. */
	size_t align = km_min(bytes, 2 * KM_PAGE_SIZE);
	char *p = (char *)km_align_up((uintptr_t)meta.at, align);

	if (!meta.at || p + bytes > meta.end) {
		if (!may_wait || !new_range(bytes))
			return NULL;
		p = (char *)km_align_up((uintptr_t)meta.at, align);
	}
	if (p + bytes > meta.committed) {
		size_t step = km_align_up((size_t)(p + bytes - meta.committed), COMMIT_STEP);

		step = km_min(step, (size_t)(meta.end - meta.committed));
		if (!may_wait || km_os_commit(meta.committed, step))
			return NULL;
		meta.committed += step;
		meta.committed_bytes += step;
	}
	meta.at = p + bytes;
	return p;
}

static unsigned shift_of(size_t bytes)
{
	return bytes <= (size_t)1 << MIN_SHIFT ? MIN_SHIFT : km_ilog2(bytes - 1) + 1;
}

void *km_meta_alloc(size_t bytes, bool may_wait)
{
	unsigned shift = shift_of(bytes);
	void *p = NULL;

	if (shift > MAX_SHIFT)
		return NULL;
	bool was = km_busy_begin();
	if (km_lock_may(&meta.lock, may_wait)) {
		p = meta.free[shift];
		if (p) {
			meta.free[shift] = *link_of(p);
			__builtin_memset(p, 0, (size_t)1 << shift);
		} else {
			p = carve((size_t)1 << shift, may_wait);
		}
		km_unlock_may(&meta.lock, may_wait);
	}
	km_busy_end(was);
	if (!p && !may_wait)
		km_ahead_note(0, false);
	return p;
}

bool km_meta_ahead(size_t bytes)
{
	bool was = km_busy_begin();

	km_lock(&meta.lock);
	bool ready = meta.at && (size_t)(meta.committed - meta.at) >= bytes;
	/* What a range has left is little: the next one is begun by who needs it. */
	size_t left = (size_t)(meta.end - meta.committed);
	size_t step = ready || !meta.at ? 0 : km_min(km_align_up(bytes, COMMIT_STEP), left);
	if (step && !km_os_commit(meta.committed, step)) {
		meta.committed += step;
		meta.committed_bytes += step;
		ready = true;
	}
	km_unlock(&meta.lock);
	km_busy_end(was);
	return ready;
}

void km_meta_free(void *p, size_t bytes)
{
	unsigned shift = shift_of(bytes);

	if (!p)
		return;
	bool was = km_busy_begin();
	km_lock(&meta.lock);
	*link_of(p) = meta.free[shift];
	meta.free[shift] = p;
	km_unlock(&meta.lock);
	km_busy_end(was);
}

void km_meta_hold(void)
{
	km_lock(&meta.lock);
}

void km_meta_let_go(void)
{
	km_unlock(&meta.lock);
}

size_t km_meta_committed_bytes(void)
{
	return meta.committed_bytes;
}

const size_t *km_meta_expose(void)
{
	return &meta.committed_bytes;
}

void *km_meta_root(void)
{
	return meta.committed_bytes ? meta.root : NULL;
}

void km_meta_fork(bool before, bool child)
{
	km_lock_around_fork(&meta.lock, before, child);
}
