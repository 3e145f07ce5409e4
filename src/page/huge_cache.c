/*
 * huge_cache.c: the cache of freed huge blocks (above 4 MiB) that keep their memory. To map and fault in a block
 * takes about ten times as long as to write the block. Programs that replace huge blocks save most of their time
 * here. Invariants: a cached block is in no table and belongs to no user. The cached bytes are at most a quarter of
 * the bytes in use (slabs included), or the swing of use. The swing counts up to half of the bytes in use or 64 MiB,
 * while cached bytes and bytes in use are at most one and a half times the peak. Cached blocks are given back soon
 * after the decay time, except in a program that has become idle.
 */
#include "huge_cache.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "metadata.h"

/* Highest swing of a program that uses little memory: so much may stay cached when the program becomes idle. */
#define MOST_SWUNG	((size_t)64 << 20)

struct km_huge_cache km_huge_cache;
static struct {
	size_t trimmed;			/* bytes given back lately because of the bound */
	size_t missed;			/* bytes of these allocated again since: the swing (purge.c does the same for
					 * pages) */
	size_t peak;			/* recent peak of bytes in use; falls slowly */
} swing;

static size_t cached_bytes(void)
{
	return km_load(&km_huge_cache.pages) << KM_PAGE_SHIFT;
}

static struct km_huge_cached remove_at(unsigned i)
{
	struct km_huge_cached gone = km_huge_cache.at[i];

	km_debug(i < km_huge_cache.count, "a block that leaves the cache was in the cache");
	km_debug(cached_bytes() >= gone.bytes, "cached huge blocks are counted with their pages");

	km_huge_cache.count--;
	__builtin_memmove(&km_huge_cache.at[i], &km_huge_cache.at[i + 1], (km_huge_cache.count - i) * sizeof(gone));
	km_bump(&km_huge_cache.pages, -(gone.bytes >> KM_PAGE_SHIFT));
	return gone;
}

static size_t bound(size_t used)
{
	size_t peak = km_load(&swing.peak), most = peak + peak / 2;
	size_t swings = km_min(km_load(&swing.missed), km_max(used / 2, MOST_SWUNG));

	return km_max(used / 4, km_min(swings, most - km_min(most, used)));
}

bool km_huge_cache_too_many(size_t used)
{
	return cached_bytes() > bound(used);
}

bool km_huge_cache_put(void *p, size_t bytes, uint32_t region, size_t used)
{
	struct km_huge_cached *at = &km_huge_cache.at[km_huge_cache.count];

	if (km_huge_cache.count == KM_HUGE_CACHED_MOST)
		return false;
	km_store(&swing.peak, km_max(swing.peak, used + bytes));
	km_debug(bytes && !(bytes & (KM_PAGE_SIZE - 1)), "a block has whole pages");
	*at = (struct km_huge_cached){ p, bytes, (uint32_t)km_os_now_ms(), region };
	km_debug(!km_huge_cache.count || (int32_t)(at->ms - at[-1].ms) >= 0, "cached huge blocks are in order of age");
	km_huge_cache.count++;
	km_bump(&km_huge_cache.pages, bytes >> KM_PAGE_SHIFT);
	return true;
}

bool km_huge_cache_take(size_t bytes, size_t align, struct km_huge_cached *got)
{
	size_t best = SIZE_MAX;
	unsigned which = 0;

	for (unsigned i = 0; i < km_huge_cache.count; i++) {
		const struct km_huge_cached *one = &km_huge_cache.at[i];
		size_t off = one->bytes > bytes ? one->bytes - bytes : bytes - one->bytes;

		/* A request with an alignment above a page needs an aligned block that is large enough: a block that
		 * grows may move. */
		if (align > KM_PAGE_SIZE && ((uintptr_t)one->p & (align - 1) || one->bytes < bytes))
			continue;
		/* Of two equally good blocks, take the block freed last. */
		if (off > best || off > bytes / 2)
			continue;
		best = off;
		which = i;
	}
	if (best == SIZE_MAX)
		return false;
	*got = remove_at(which);
	return true;
}

void km_huge_cache_miss(size_t bytes, size_t used)
{
	size_t again = km_min(swing.trimmed, bytes);

	swing.trimmed -= again;
	km_bump(&swing.missed, again);
	km_store(&swing.peak, km_max(swing.peak, used));
}

bool km_huge_cache_beyond(size_t used, struct km_huge_cached *gone)
{
	if (!km_huge_cache_too_many(used) || !km_huge_cache_old(0, gone))
		return false;
	swing.trimmed += gone->bytes;
	return true;
}

bool km_huge_cache_old(unsigned decay_ms, struct km_huge_cached *gone)
{
	if (!km_huge_cache.count || (uint32_t)km_os_now_ms() - km_huge_cache.at[0].ms < decay_ms)
		return false;
	*gone = remove_at(0);
	return true;
}

void km_huge_cache_fade(size_t used, bool whole)
{
	swing.trimmed -= whole ? swing.trimmed : (swing.trimmed + 3) / 4;
	km_bump(&swing.missed, -(whole ? swing.missed : (swing.missed + 3) / 4));
	if (swing.peak > used)
		km_bump(&swing.peak, -(whole ? swing.peak - used : (swing.peak - used + 3) / 4));
}
