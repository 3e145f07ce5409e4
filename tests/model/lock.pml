/*
 * lock.pml: the lock on a futex (src/os/lock.h: km_lock, km_unlock, km_unlock_quick; src/os/lock.c: km_lock_wait).
 * Claims: one thread has it at a time; each gets it, be it that a sleeper's own time is over.
 * Wrong: NO_TIMEOUT (who gives it back quickly may not see a sleeper), TWO_STEPS (a waiter looks, and stores then).
 * Long: THREADS=4
 */
#ifndef THREADS
#define THREADS 3
#endif

byte state;			/* 0 free, 1 held (in the code: by which thread), 2 held and awaited */
byte inside;
bool sleeping[THREADS];

/* FUTEX_WAKE of one. */
inline wake()
{
	atomic {
		if
		:: sleeping[0] -> sleeping[0] = false
		:: sleeping[1] -> sleeping[1] = false
		:: sleeping[2] -> sleeping[2] = false
#if THREADS > 3
		:: sleeping[3] -> sleeping[3] = false
#endif
		:: else
		fi
	}
}

inline lock_wait()
{
	do
	:: true ->
		old = state;
		if
		:: !old ->
#ifdef TWO_STEPS
			state = 2;
			break
#else
			atomic { got = !state; state = (got -> 2 : state) };
			if
			:: got -> break
			:: else
			fi
#endif
		:: old == 1 -> atomic { if :: state == 1 -> state = 2; old = 2 :: else fi }
		:: else
		fi;
		/* FUTEX_WAIT while it is 2. */
		atomic { sleeping[_pid] = (old == 2 && state == 2) };
		if
		:: !sleeping[_pid]
#ifndef NO_TIMEOUT
		:: atomic { sleeping[_pid] -> sleeping[_pid] = false }
#endif
		fi
	od
}

inline unlock()
{
	atomic { old = state; state = 0 };
	if
	:: old == 2 -> wake()
	:: else
	fi
}

inline unlock_quick()
{
	old = state;
	if
	:: old == 2 -> unlock()
	:: else -> state = 0
	fi
}

active [THREADS] proctype thread()
{
	byte old, turn;
	bool got;

	for (turn : 1 .. 2) {
		atomic { got = !state; state = (got -> 1 : state) };
		if
		:: !got -> lock_wait()
		:: else
		fi;
		inside++;
		assert(inside == 1);
		inside--;
		if
		:: unlock()
		:: unlock_quick()
		fi
	}
}
