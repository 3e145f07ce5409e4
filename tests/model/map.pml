/*
 * map.pml: the map from a page to its cache's id, while the page goes from cache to cache (src/slab/layout.c:
 * km_slab_new_raw, leave, km_slab_release; src/kmalloc/kmalloc.c: a free finds the cache by the id). Claim: whoever has an
 * object finds its cache, and a page that is free has no id.
 * Wrong: HANDED_OUT_TOO_EARLY, CLEARED_TOO_LATE.
 */
#define PAGES 2
#define NONE 0
byte map[PAGES], in_use[PAGES];	/* id; how many caches think that the page is theirs */
bool zone_lock, is_free[PAGES] = { true, true };
byte given_page[3], given[3];	/* an object of a cache, on its way to a thread that frees it: page + 1 */

inline map_set(p, id) { map[p] = id }

proctype cache(byte id)
{
	byte p, turn;

	for (turn : 1 .. 3) {
		/* km_pages_alloc */
		atomic { !zone_lock -> zone_lock = true };
		if
		:: is_free[0] -> p = 0
		:: is_free[1] -> p = 1
		:: !is_free[0] && !is_free[1] -> zone_lock = false; goto next_turn
		fi;
		is_free[p] = false;
		assert(in_use[p] == 0);
		in_use[p]++;
		zone_lock = false;
#ifdef HANDED_OUT_TOO_EARLY
		given[id] = p + 1;
#endif
		assert(map[p] == NONE);
		map_set(p, id);
		given[id] = p + 1;
		/* Freed, by whoever. */
		given[id] == 0;
		assert(map[p] == id);
#ifndef CLEARED_TOO_LATE
		map_set(p, NONE);
#endif
		/* km_pages_free */
		atomic { !zone_lock -> zone_lock = true };
		in_use[p]--;
		is_free[p] = true;
		zone_lock = false;
#ifdef CLEARED_TOO_LATE
		map_set(p, NONE);
#endif
next_turn:	skip
	}
}

/* kfree of an object of either: by the map alone. */
proctype freer()
{
	byte id, found;

end:	do
	:: given[1] -> id = 1; found = map[given[1] - 1]; assert(found == id); given[1] = 0
	:: given[2] -> id = 2; found = map[given[2] - 1]; assert(found == id); given[2] = 0
	od
}

init
{
	atomic {
		run cache(1);
		run cache(2);
		run freer()
	}
}
