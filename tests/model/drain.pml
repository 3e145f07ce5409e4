/*
 * drain.pml: objects are taken from CPUs that run hits at the same time (src/alloc/drain.c: close, fence, take, open;
 * <kmem/inline.h>: pop, push). Claim: each object is in one place, always. A sequence is what restartable sequences are:
 * loads, and one committing store that is not made if the thread was interrupted since it began, be it by another
 * thread of its CPU or by a fence.
 * Wrong: NO_FENCE, OPEN_TOO_EARLY.
 * Long: TURNS=3
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef TURNS
#define TURNS 2
#endif
#define CPUS 2
#define OBJECTS 3

byte open_word = 1;		/* what a hit reads first; 0: closed */
byte top[CPUS];			/* a CPU's sheaf: a bit for each object */
byte mine[THREADS];		/* objects that a thread has */
byte engine = 7;		/* ... the slabs */
byte cpu_of[THREADS];
bool in_sequence[THREADS], aborted[THREADS];
inline one_place()
{
	d_step {
		byte o = 0, n, t;
		for (o : 0 .. OBJECTS - 1) {
			n = ((top[0] >> o) & 1) + ((top[1] >> o) & 1) + ((engine >> o) & 1);
			for (t : 0 .. THREADS - 1) {
				n = n + ((mine[t] >> o) & 1);
			}
			assert(n == 1);
		}
		o = 0;
		n = 0;
		t = 0;
	}
}

/* It begins on a CPU, whichever: a thread that was on it was interrupted, or this one would not run. */
inline begin(c)
{
	atomic {
		if
		:: c = 0
		:: c = 1
		fi;
		cpu_of[_pid] = c;
		for (i : 0 .. THREADS - 1) {
			if
			:: i != _pid && in_sequence[i] && cpu_of[i] == c -> aborted[i] = true
			:: else
			fi
		}
		in_sequence[_pid] = true;
		aborted[_pid] = false
	}
}

#define lowest(bits) ((bits) & (256 - (bits)))

active [THREADS] proctype thread()
{
	byte c, i, word, turn, x;

	for (turn : 1 .. TURNS) {
		if
		:: /* pop */
			begin(c);
			if
			:: !open_word -> goto missed
			:: else
			fi;
			word = top[c];
			if
			:: !word -> goto missed
			:: else
			fi;
			x = lowest(word);
			atomic {
				if
				:: aborted[_pid] -> goto missed
				:: else -> top[c] = word & ~x; mine[_pid] = mine[_pid] | x
				fi;
				one_place();
				in_sequence[_pid] = false
			}
		:: mine[_pid] -> /* push */
			begin(c);
			if
			:: !open_word -> goto missed
			:: else
			fi;
			word = top[c];
			x = lowest(mine[_pid]);
			atomic {
				if
				:: aborted[_pid] -> goto missed
				:: else -> top[c] = word | x; mine[_pid] = mine[_pid] & ~x
				fi;
				one_place();
				in_sequence[_pid] = false
			}
		:: /* a miss: the engine gives one */
missed:			atomic {
				in_sequence[_pid] = false;
				if
				:: engine -> x = lowest(engine); engine = engine & ~x; mine[_pid] = mine[_pid] | x
				:: else
				fi;
				one_place();
				x = 0;
				word = 0
			}
		fi
	}
}

active proctype drain()
{
	byte c, i, hand, times;

	for (times : 1 .. 2) {
		open_word = 0;
#ifndef NO_FENCE
		d_step {
			for (i : 0 .. THREADS - 1) {
				aborted[i] = true
			}
		}
#endif
#ifdef OPEN_TOO_EARLY
		open_word = 1;
#endif
		for (c : 0 .. CPUS - 1) {
			hand = top[c];
			/* A plain store, because no other thread uses the word. */
			atomic {
				top[c] = 0;
				engine = engine | hand;
				one_place();
				hand = 0
			}
		}
		open_word = 1
	}
}
