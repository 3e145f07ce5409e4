/*
 * big.c: a hash table of mappings of our own. Invariant: while the lock is free, the table holds exactly the
 * mappings that users own; an entry leaves before its range does and enters after it came, so that no stranger's
 * mapping is ever taken for ours.
 */
#include "big.h"

#include "../port/atomic.h"
#include "../port/bits.h"
#include "../port/lock.h"
#include "../port/os.h"
#include "meta.h"

struct entry {
	uintptr_t start;	/* 0: empty, 1: deleted */
	size_t bytes;
	uint64_t owner;		/* who pays; 0: nobody */
};

static struct {
	struct km_lock lock;
	struct entry *table;
	size_t slots, used, deleted;	/* slots: a power of two */
	size_t blocks, bytes;
} big = { .lock = KM_LOCK_INIT(KM_RANK_BIG) };

/* A handler that strikes under the lock must find the thread busy, whoever called: returns what to give back. */
static bool lock_table(void)
{
	bool was = km_busy_begin();

	km_lock(&big.lock);
	return was;
}

static void unlock_table(bool was)
{
	km_unlock(&big.lock);
	km_busy_end(was);
}

#define FIRST_SLOTS	64u
#define DELETED		1u

static size_t hash(uintptr_t start)
{
	return (size_t)((start >> KM_PAGE_SHIFT) * 0x9e3779b97f4a7c15ull >> 20);
}

static struct entry *find(uintptr_t start)
{
	for (size_t i = hash(start), probes = 0; probes < big.slots; i++, probes++) {
		struct entry *entry = &big.table[i & (big.slots - 1)];

		if (entry->start == start)
			return entry;
		if (!entry->start)
			break;
	}
	return NULL;
}

static void insert(uintptr_t start, size_t bytes, uint64_t owner)
{
	size_t i = hash(start) & (big.slots - 1);

	while (big.table[i].start > DELETED)
		i = (i + 1) & (big.slots - 1);
	if (big.table[i].start == DELETED)
		big.deleted--;
	big.table[i] = (struct entry){ start, bytes, owner };
	big.used++;
}

/* Room for one more entry, so that an insertion after a system call can't fail. */
static bool reserve_entry(void)
{
	if (big.table && (big.used + big.deleted + 1) * 4 <= big.slots * 3)
		return true;
	size_t old_slots = big.slots;
	size_t slots = !old_slots ? FIRST_SLOTS :
		       (big.used + 1) * 2 > old_slots ? old_slots * 2 : old_slots;
	struct entry *old = big.table, *table = km_meta_alloc(slots * sizeof(*table), true);

	if (!table)
		return big.table && big.used + big.deleted + 1 < big.slots;
	big.table = table;
	big.slots = slots;
	big.used = big.deleted = 0;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i].start > DELETED)
			insert(old[i].start, old[i].bytes, old[i].owner);
	km_meta_free(old, old_slots * sizeof(*old));
	return true;
}

static void remove_entry(struct entry *entry)
{
	entry->start = DELETED;
	big.used--;
	big.deleted++;
}

void *km_big_alloc(size_t bytes, size_t align)
{
	bytes = km_align_up(bytes, KM_PAGE_SIZE);
	if (!bytes)
		return NULL;
	void *p = km_os_map(bytes, km_max(align, KM_PAGE_SIZE));
	if (!p)
		return NULL;
	km_os_name(p, bytes, "libkmem: large block");
	bool was = lock_table();
	bool room = reserve_entry();
	if (room) {
		insert((uintptr_t)p, bytes, 0);
		km_bump(&big.blocks, 1);
		km_bump(&big.bytes, bytes);
	}
	unlock_table(was);
	if (!room) {
		km_os_unmap(p, bytes);
		return NULL;
	}
	return p;
}

static size_t bytes_of(const void *p)
{
	struct entry *entry = (uintptr_t)p > DELETED ? find((uintptr_t)p) : NULL;

	return entry ? entry->bytes : 0;
}

size_t km_big_bytes(const void *p)
{
	bool was = lock_table();
	size_t bytes = bytes_of(p);
	unlock_table(was);
	return bytes;
}

size_t km_big_try_bytes(const void *p)
{
	if (!km_lock_nowait(&big.lock))
		return SIZE_MAX;
	size_t bytes = bytes_of(p);
	km_unlock_fork(&big.lock);
	return bytes;
}

bool km_big_free(const void *p)
{
	bool was = lock_table();
	struct entry *entry = (uintptr_t)p > DELETED ? find((uintptr_t)p) : NULL;
	size_t bytes = entry ? entry->bytes : 0;
	if (entry) {
		remove_entry(entry);
		km_bump(&big.blocks, -1);
		km_bump(&big.bytes, -(bytes));
	}
	unlock_table(was);
	if (entry)
		km_os_unmap((void *)p, bytes);
	return entry != NULL;
}

void *km_big_resize(void *p, size_t bytes)
{
	bytes = km_align_up(bytes, KM_PAGE_SIZE);
	bool was = lock_table();
	struct entry *entry = find((uintptr_t)p);
	void *moved = NULL;
	if (entry && bytes) {
		/* The vacated range is free before the entry is gone, but nobody can look: we hold the lock. */
		size_t old_bytes = entry->bytes;

		moved = bytes == old_bytes ? p : km_os_remap(p, old_bytes, bytes, true);
		if (moved) {
			uint64_t owner = entry->owner;

			remove_entry(entry);
			insert((uintptr_t)moved, bytes, owner);
			km_bump(&big.bytes, bytes - old_bytes);
		}
	}
	unlock_table(was);
	return moved;
}

uint64_t km_big_owner(const void *p)
{
	bool was = lock_table();
	struct entry *entry = (uintptr_t)p > DELETED ? find((uintptr_t)p) : NULL;
	uint64_t owner = entry ? entry->owner : 0;
	unlock_table(was);
	return owner;
}

void km_big_set_owner(const void *p, uint64_t owner)
{
	bool was = lock_table();
	struct entry *entry = find((uintptr_t)p);
	if (entry)
		entry->owner = owner;
	unlock_table(was);
}

void *km_big_next(uint64_t owner, size_t *from)
{
	void *found = NULL;

	bool was = lock_table();
	for (; *from < big.slots && !found; ++*from)
		if (big.table[*from].start > DELETED && big.table[*from].owner == owner)
			found = (void *)big.table[*from].start;
	unlock_table(was);
	return found;
}

bool km_big_inside(const void *p)
{
	bool inside = false;

	bool was = lock_table();
	for (size_t i = 0; i < big.slots && !inside; i++)
		inside = big.table[i].start > DELETED &&
			 (uintptr_t)p - big.table[i].start < big.table[i].bytes;
	unlock_table(was);
	return inside;
}

void km_big_get_stats(size_t *blocks, size_t *bytes)
{
	*blocks = km_load(&big.blocks);
	*bytes = km_load(&big.bytes);
}

void km_big_expose(const size_t **blocks, const size_t **bytes)
{
	*blocks = &big.blocks;
	*bytes = &big.bytes;
}

void km_big_fork(bool before, bool child)
{
	km_lock_around_fork(&big.lock, before, child);
}
