/*
 * reserve.pml: who waits for an element of a mempool (src/cache/mempool.c: get_waiting, put, tell). The pool's function
 * gives none. Claim: no thread sleeps for ever while an element is there, without the five seconds after which a sleeper
 * looks by itself, though some want two: these take none before they can have both.
 * Wrong: COUNTS_LATE (it counts itself when it has looked), TAKES_A_PART (who wants two takes one, then another).
 */
#define WANT_ONE 1
#define WANT_TWO 2
#define WAITERS (WANT_ONE + WANT_TWO)
#define ELEMENTS 2

byte curr;			/* in the reserve */
byte waiters, wait;
bool lock, sleeping[WAITERS];

inline take(n)
{
	atomic { !lock -> lock = true };
	got = false;
	if
	:: curr >= n -> curr = curr - n; got = true
	:: else
	fi;
	lock = false
}

inline tell()
{
	if
	:: waiters ->
		wait++;
		atomic {
			byte j;
			for (j : 0 .. WAITERS - 1) {
				if
				:: sleeping[j] -> sleeping[j] = false
				:: else
				fi
			}
			j = 0
		}
	:: else
	fi
}

inline put(n)
{
	byte k;
	for (k : 1 .. n) {
		atomic { !lock -> lock = true };
		curr++;
		assert(curr <= ELEMENTS);
		lock = false;
		tell()
	}
	k = 0
}

inline get_waiting(n)
{
#ifndef COUNTS_LATE
	waiters++;
#endif
	do
	:: true ->
		seen = wait;
		take(n);
		if
		:: got -> break
		:: else
		fi;
#ifdef COUNTS_LATE
		waiters++;
#endif
		atomic { sleeping[_pid] = (wait == seen) };
		!sleeping[_pid];
#ifdef COUNTS_LATE
		waiters--
#endif
	od;
#ifndef COUNTS_LATE
	waiters--
#endif
}

active [WANT_ONE] proctype one()
{
	byte seen;
	bool got;

	take(1);
	if
	:: !got -> get_waiting(1)
	:: else
	fi;
	put(1)
}

active [WANT_TWO] proctype two()
{
	byte seen;
	bool got;

#ifdef TAKES_A_PART
	get_waiting(1);
	get_waiting(1);
#else
	take(2);
	if
	:: !got -> get_waiting(2)
	:: else
	fi;
#endif
	put(2)
}

active proctype first()
{
	put(ELEMENTS)
}
