/*
 * sheaf_moves.pml: sheaves go between CPUs, threads that miss, the barn, and a drain (src/percpu/visit.h: a look without
 * a lock, then one sequence that compares the words of the look, and commits; src/percpu/pcpu.h: detach, install,
 * take_spare; src/slab/sheaf.c: the barn under its lock). Claim: each sheaf is in one place, always.
 * Wrong: NO_COMPARE (the commit does not compare the header), NO_FENCE, NO_BARN_LOCK.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef TURNS
#define TURNS 1
#endif
#define CPUS 2
#define SHEAVES 4		/* 1 to 4; 0: none */

byte open_word = 1;
byte main_of[CPUS] = { 1, 2 };	/* the main sheaf of each CPU */
byte header[SHEAVES + 1];	/* the spare of a main sheaf */
byte hand[THREADS];		/* the sheaf held by a thread */
byte former[THREADS];		/* the former spare of the CPU, held by a thread */
byte barn[2];			/* places for two sheaves */
bool barn_lock;
bool engine[SHEAVES + 1];	/* retired sheaves: the objects are in slabs */
byte cpu_of[THREADS];
bool in_sequence[THREADS], aborted[THREADS];

inline one_place()
{
	d_step {
		byte b = 0, n = 0, j = 0;
		for (b : 1 .. SHEAVES) {
			n = (barn[0] == b) + (barn[1] == b) + engine[b];
			for (j : 0 .. CPUS - 1) {
				n = n + (main_of[j] == b);
				if
				:: main_of[j] && header[main_of[j]] == b -> n++
				:: else
				fi
			}
			for (j : 0 .. THREADS - 1) {
				n = n + (hand[j] == b) + (former[j] == b)
			}
			assert(n == 1);
		}
		b = 0;
		n = 0;
		j = 0
	}
}

/* Reads the words of the thread's CPU, without a lock and without a sequence. */
inline look(t)
{
	if
	:: c = 0
	:: c = 1
	fi;
	top = main_of[c];
	spare = 0;
	if
	:: top -> spare = header[top]
	:: else
	fi
}

/* The loads of the sequence, in order. An interruption on the CPU, or a fence, aborts the sequence. */
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
	good = good && (!top || header[top] == spare)
#endif
}

/* The thread gets the main sheaf, and the spare becomes main. */
inline detach(t)
{
	look(t);
	begin_commit(t);
	atomic {
		if
		:: good && !aborted[t] && top ->
			if
			:: spare -> header[spare] = 0
			:: else
			fi;
			main_of[c] = spare;
			hand[t] = top
		:: else
		fi;
		in_sequence[t] = false;
		one_place()
	}
}

inline take_spare(t)
{
	look(t);
	begin_commit(t);
	atomic {
		if
		:: good && !aborted[t] && top && spare ->
			header[top] = 0;
			hand[t] = spare
		:: else
		fi;
		in_sequence[t] = false;
		one_place()
	}
}

/* Exchanges the thread's sheaf for a sheaf of the barn. */
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

/* The thread's sheaf becomes main of some CPU, the main becomes the spare, and the thread gets the former spare. */
inline install(t)
{
	look(t);
	begin_commit(t);
	/* No other thread reads this store, because the thread holds the sheaf. */
	header[hand[t]] = top;
	atomic {
		if
		:: good && !aborted[t] ->
			main_of[c] = hand[t];
			former[t] = spare;
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
	byte c, i, top, spare, slot, other, turn;
	bool good;

	for (turn : 1 .. TURNS) {
		if
		:: detach(t)
		:: take_spare(t)
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
		/* A closed offset or a failed commit: the sheaf goes to the engine, as does the former spare. */
		atomic {
			retire(hand[t]);
			hand[t] = 0;
			retire(former[t]);
			former[t] = 0;
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
		/* Plain loads and stores, because the fence has aborted all sequences. */
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
