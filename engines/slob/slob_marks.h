/*
 * slob_marks.h: reads and changes the marks and free blocks of a page of slob. slob.h has their meaning. Invariant:
 * marks change only under the engine's lock.
 */
#ifndef KM_SLOB_MARKS_H
#define KM_SLOB_MARKS_H

#include "slob.h"

km_inline struct kmem_record_slob_free *free_at(char *base, unsigned unit)
{
	return (struct kmem_record_slob_free *)(base + unit * KM_SLOB_UNIT);
}

/* Validates a header, because users may write to freed memory; a wrong header ends the walk and the use of the page.
 * The next block begins at least one unit behind this block's end; only the end of the page may follow directly. */
km_inline bool sound(unsigned at, unsigned end, unsigned next)
{
	return end > at && next <= KM_SLOB_UNITS && end - next / KM_SLOB_UNITS < next;
}

/* Meaning of a unit's two bits; the low bit is `live`. */
enum mark { NO_MARK, CACHES = 1, KEEPS_TYPE = 2, KMALLOCS = 3 };

km_inline enum mark mark_at(const struct kmem_record_slob_marks *marks, unsigned unit)
{
	unsigned word = unit / 64, bit = unit % 64;

	return (enum mark)((km_load(&marks->word[word].live) >> bit & 1) |
			   (km_load(&marks->word[word].other) >> bit & 1) << 1);
}

/* Flips the bits of `mark`: NO_MARK becomes `mark`, and `mark` becomes NO_MARK. */
km_inline void flip_mark(struct kmem_record_slob_marks *marks, unsigned unit, enum mark mark)
{
	uint64_t bit = (uint64_t)1 << unit % 64, *live = &marks->word[unit / 64].live,
		 *other = &marks->word[unit / 64].other;

	km_debug(km_is_locked(&km_slob.lock), "a mark changes under the engine's lock");
	if (mark & CACHES)
		km_store(live, *live ^ bit);
	if (mark & KEEPS_TYPE)
		km_store(other, *other ^ bit);
}

km_inline enum mark mark_of(bool sized)
{
	return sized ? KMALLOCS : CACHES;
}

/* Is the unit the start of a live block of kmalloc (sized), or of a cache's object? */
km_inline bool is_live(const struct kmem_record_slob_marks *marks, unsigned unit, bool sized)
{
	uint64_t live = km_load(&marks->word[unit / 64].live), other = km_load(&marks->word[unit / 64].other);

	return (sized ? live & other : live & ~other) >> unit % 64 & 1;
}

km_inline uint64_t word_of(const struct kmem_record_slob_marks *marks, unsigned word)
{
	return marks->word[word].live | marks->word[word].other;
}

/* Returns the number of marked blocks in the page. */
km_inline size_t count_marks(const struct kmem_record_slob_marks *marks)
{
	size_t count = 0;

	for (unsigned i = 0; i < KM_SLOB_UNITS / 64; i++)
		count += (size_t)__builtin_popcountll(word_of(marks, i));
	return count;
}

/* Returns the first marked unit behind `unit`. A result of `limit` or more may be KM_SLOB_UNITS instead. */
km_inline unsigned next_marked(const struct kmem_record_slob_marks *marks, unsigned unit, unsigned limit)
{
	unsigned word = unit / 64;
	uint64_t bits = word_of(marks, word) & ~(uint64_t)1 << unit % 64;

	while (!bits && ++word * 64 < limit)
		bits = word_of(marks, word);
	return bits ? word * 64 + (unsigned)__builtin_ctzll(bits) : KM_SLOB_UNITS;
}

/* A page has type SHARED only while its marks may be read. The type changes under the lock, where a bad free of a
 * former block is detected. */
km_inline void show_page(struct km_page *page)
{
	km_debug(km_is_locked(&km_slob.lock), "a page is shown and hidden under the engine's lock");
	km_map_set(page, 1, KM_MAP_DESC);
	/* Release pairs with the acquire of readers that look at the page's type before its marks. */
	km_store_release(&page->type, (uint8_t)KM_PAGE_SHARED);
}

km_inline void hide_page(struct km_page *page)
{
	km_debug(km_is_locked(&km_slob.lock), "a page is shown and hidden under the engine's lock");
	km_map_set(page, 1, KM_MAP_NONE);
	km_store(&page->type, (uint8_t)KM_PAGE_NONE);
}

#endif
