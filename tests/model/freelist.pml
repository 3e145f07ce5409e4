/*
 * freelist.pml: a slab of engine slub: its freelist and counts change as one word, by compare-and-swap (engines/slub/slub.c:
 * km_slub_free_to_slab, relist, keep_on_cpu, grab, splice, km_slub_put_partials, km_slub_discard). Claims: no object is
 * lost or handed out twice; the slab is on the node's list iff it is not frozen and has something free, whenever the
 * lock is free; it goes when all is free, once, and no thread touches the slab then.
 * Wrong: NO_FREEZE (who frees the first one neither freezes nor locks), LATE_LINK (the link is written after the swap).
 * Long: TURNS=4
 */
#define OBJECTS 3
#define NIL 3			/* no object */
#ifndef FREERS
#define FREERS 2
#endif
#ifndef TURNS
#define TURNS 2
#endif

byte head = NIL, inuse = OBJECTS;
bool frozen;			/* head, inuse, frozen: the word */
byte next[OBJECTS];
bool lock, listed, going, gone;
bool taken[OBJECTS] = { true, true, true };
byte left;			/* who still runs */

#define free_count() (OBJECTS - inuse)
#define is_word(h, n, f) (head == (h) && inuse == (n) && frozen == (f))
inline acquire() { atomic { !lock -> lock = true } }
inline release()
{
	atomic {
		assert(going || listed == (!frozen && free_count() > 0));
		lock = false
	}
}
inline look() { d_step { assert(!gone); h = head; n = inuse; f = frozen } }

/* Unlocked, empty and off the list: it is checked and goes. */
inline discard()
{
	atomic {
		assert(going && !gone && !frozen && !listed && inuse == 0);
		byte o, steps;
		o = head;
		steps = 0;
		do
		:: o != NIL -> steps++; o = next[o]; assert(steps <= OBJECTS)
		:: else -> break
		od;
		assert(steps == OBJECTS);
		gone = true
	}
}

/* put_partials: a slab that a CPU's list had. May it go? Here always, as where min_partial is 0. */
inline put_partial()
{
	acquire();
	do
	:: look();
		atomic {
			if
			:: is_word(h, n, f) -> assert(f); frozen = false; break
			:: else
			fi
		}
	od;
	go = false;
	if
	:: n == 0 -> go = true; going = true
	:: else -> assert(!listed); listed = true
	fi;
	release();
	if
	:: go -> discard()
	:: else
	fi
}

inline free_object(x)
{
	locked = false;
	do
	:: look();
		assert(n > 0 && h != x);
#ifndef LATE_LINK
		next[x] = h;
#endif
		to_freeze = false;
#ifndef NO_FREEZE
		if
		:: !f && h == NIL -> to_freeze = true
		:: !f && h != NIL && n == 1 && !locked ->
			acquire();
			locked = true
		:: else
		fi;
#endif
		atomic {
			if
			:: is_word(h, n, f) ->
				taken[x] = false;
				head = x;
				inuse = n - 1;
				frozen = f || to_freeze;
				break
			:: else
			fi
		}
		if
		:: locked -> lock = false; locked = false
		:: else
		fi
	od;
#ifdef LATE_LINK
	next[x] = h;
#endif
	if
	:: f ->
		if
		:: locked -> lock = false
		:: else
		fi
	:: !f && locked ->
		/* relist: it was on the list, and is empty. */
		assert(listed);
		listed = false;
		going = true;
		release();
		discard()
	:: !f && to_freeze -> put_partial()
	:: else
	fi
}

active [FREERS] proctype freer()
{
	byte h, n;
	bool f, locked, to_freeze, go;

	free_object(_pid);
	left++
}

/* Takes the whole freelist of a listed slab, hands out the first, and gives the rest back (deactivate); then that one. */
active proctype allocator()
{
	byte h, n, first, second, turn, x = OBJECTS - 1;
	bool f, locked, to_freeze, go;

	for (turn : 1 .. TURNS) {
		acquire();
		if
		:: listed && !gone ->
			listed = false;
			/* grab */
			do
			:: look();
				atomic {
					if
					:: is_word(h, n, f) ->
						assert(!f && h != NIL);
						head = NIL;
						inuse = OBJECTS;
						frozen = true;
						break
					:: else
					fi
				}
			od;
			lock = false;
			first = h;
			second = next[first];
			/* pop */
			atomic { assert(!taken[first]); taken[first] = true };
			/* splice, and what was free is listed again */
			acquire();
			byte tail = second, count = 0;
			do
			:: tail != NIL && next[tail] != NIL -> tail = next[tail]; count++; assert(count < OBJECTS)
			:: else -> break
			od;
			count = (second == NIL -> 0 : count + 1);
			do
			:: look();
				assert(f);
				if
				:: second != NIL -> next[tail] = h
				:: else
				fi;
				atomic {
					if
					:: is_word(h, n, f) ->
						head = (second == NIL -> h : second);
						inuse = n - count;
						frozen = false;
						break
					:: else
					fi
				}
			od;
			/* By the word that was stored: one that was full then may be frozen by now. */
			listed = OBJECTS - (n - count) > 0;
			release();
			free_object(first)
		:: else -> lock = false
		fi
	}
	free_object(x);
	left++
}

/* All came back, so that it went. */
active proctype check()
{
	left == FREERS + 1;
	assert(gone && !lock)
}
