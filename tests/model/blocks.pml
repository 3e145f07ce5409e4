/*
 * blocks.pml: blocks of pointers go between CPUs, threads that miss, the barn, and a drain (src/percpu/visit.h: a look
 * without a lock, then a commit that compares what was looked at, as one sequence; src/percpu/pcpu.h: detach, install,
 * take_partner; src/slab/sheaf.c: the barn under its lock). Claim: each block is in one place, always.
 * Wrong: NO_COMPARE (the commit does not compare the header), NO_FENCE, NO_BARN_LOCK.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef TURNS
#define TURNS 1
#endif
#define CPUS 2
#define BLOCKS 4		/* 1 to 4; 0: none */

byte open_word = 1;
byte main_of[CPUS] = { 1, 2 };	/* the block that hits use */
byte header[BLOCKS + 1];	/* the partner of a block that is main */
byte hand[THREADS], spare[THREADS];
byte barn[2];			/* a place each for two blocks */
bool barn_lock;
bool engine[BLOCKS + 1];	/* retired: their objects are in slabs */
byte cpu_of[THREADS];
bool in_sequence[THREADS], aborted[THREADS];

inline one_place()
{
	d_step {
		byte b = 0, n = 0, j = 0;
		for (b : 1 .. BLOCKS) {
			n = (barn[0] == b) + (barn[1] == b) + engine[b];
			for (j : 0 .. CPUS - 1) {
				n = n + (main_of[j] == b);
				if
				:: main_of[j] && header[main_of[j]] == b -> n++
				:: else
				fi
			}
			for (j : 0 .. THREADS - 1) {
				n = n + (hand[j] == b) + (spare[j] == b)
			}
			assert(n == 1);
		}
		b = 0;
		n = 0;
		j = 0
	}
}

/* A slot of some CPU, which this thread is on: no lock, no sequence. */
inline look(t)
{
	if
	:: c = 0
	:: c = 1
	fi;
	top = main_of[c];
	partner = 0;
	if
	:: top -> partner = header[top]
	:: else
	fi
}

/* The sequence's loads, in order. An interruption on its CPU, or a fence, and it is not made. */
inline begin_commit(t)
{
	atomic {
		cpu_of[t] = c;
		for (i : 0 .. THREADS - 1) {
			if
			:: i != t && in_sequence[i] && cpu_of[i] == c -> aborted[i] = true
			:: else
			fi
		}
		i = 0;
		in_sequence[t] = true;
		aborted[t] = false
	}
	good = open_word;
	good = good && main_of[c] == top;
#ifndef NO_COMPARE
	good = good && (!top || header[top] == partner)
#endif
}

/* Main is the caller's, its partner becomes main. */
inline detach(t)
{
	look(t);
	begin_commit(t);
	atomic {
		if
		:: good && !aborted[t] && top ->
			if
			:: partner -> header[partner] = 0
			:: else
			fi;
			main_of[c] = partner;
			hand[t] = top
		:: else
		fi;
		in_sequence[t] = false;
		one_place()
	}
}

inline take_partner(t)
{
	look(t);
	begin_commit(t);
	atomic {
		if
		:: good && !aborted[t] && top && partner ->
			header[top] = 0;
			hand[t] = partner
		:: else
		fi;
		in_sequence[t] = false;
		one_place()
	}
}

/* The barn takes it for another one. */
inline exchange(t)
{
#ifndef NO_BARN_LOCK
	atomic { !barn_lock -> barn_lock = true };
#endif
	if
	:: slot = 0
	:: slot = 1
	fi;
	other = barn[slot];
	atomic {
		barn[slot] = hand[t];
		hand[t] = other;
		one_place()
	}
#ifndef NO_BARN_LOCK
	barn_lock = false
#endif
}

/* It becomes main of whichever CPU, the main its partner, and the former partner the caller's. */
inline install(t)
{
	look(t);
	begin_commit(t);
	/* A store that nobody sees: the block is this thread's. */
	header[hand[t]] = top;
	atomic {
		if
		:: good && !aborted[t] ->
			main_of[c] = hand[t];
			spare[t] = partner;
			hand[t] = 0
		:: else
		fi;
		in_sequence[t] = false;
		one_place()
	}
}

inline retire(b)
{
	if
	:: b -> engine[b] = true
	:: else
	fi
}

proctype thread(byte t)
{
	byte c, i, top, partner, slot, other, turn;
	bool good;

	for (turn : 1 .. TURNS) {
		if
		:: detach(t)
		:: take_partner(t)
		fi;
		if
		:: hand[t] ->
			exchange(t);
			if
			:: hand[t] -> install(t)
			:: else
			fi
		:: else
		fi;
		/* A closed slot, or lost: it goes to the engine, as the former partner does. */
		atomic {
			retire(hand[t]);
			hand[t] = 0;
			retire(spare[t]);
			spare[t] = 0;
			one_place()
		}
	}
}

proctype drain()
{
	byte c, i, taken, second;

	open_word = 0;
#ifndef NO_FENCE
	d_step {
		for (i : 0 .. THREADS - 1) {
			aborted[i] = true
		}
		i = 0
	}
#endif
	for (c : 0 .. CPUS - 1) {
		/* Plain loads and stores: nobody else is there. */
		taken = main_of[c];
		second = 0;
		if
		:: taken -> second = header[taken]
		:: else
		fi;
		atomic {
			main_of[c] = 0;
			retire(taken);
			retire(second);
			one_place()
		}
	}
	open_word = 1
}

init
{
	atomic {
		header[1] = 3;
		barn[0] = 4;
		byte t;
		for (t : 0 .. THREADS - 1) {
			run thread(t)
		}
		run drain()
	}
}
