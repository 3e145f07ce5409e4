/*
 * grace.pml: what waits for a grace period (src/cache/kfree_rcu.c: put, want, begin, collect, end). Claims: nothing is freed
 * while a reader may look that began before it was taken out; all is freed in the end, by no more than the periods that
 * the ends begin.
 * Wrong: JOINS_THE_PILE (what comes is added to what is under way), NOT_TOLD (collecting forgets that no thread was told).
 * Long: READERS=2
 */
#ifndef ADDERS
#define ADDERS 2
#endif
#ifndef READERS
#define READERS 1
#endif
#define OBJECTS 2		/* one of each adder; linked at first */
#define CPUS 2

bool linked[OBJECTS] = { true, true };
bool freed[OBJECTS];
byte waiting[OBJECTS];		/* on which CPU, plus one */
bool pile[OBJECTS];
bool cpu_lock[CPUS], told[CPUS];
bool turn_lock, under_way, wanted;
bool called, must_leave[READERS], reading[READERS];
byte done;

inline lock(l) { atomic { !l -> l = true } }

/* Turn lock held. */
inline begin()
{
	wanted = false;
	any = false;
	for (i : 0 .. CPUS - 1) {
		if
		:: told[i] ->
			lock(cpu_lock[i]);
			d_step {
				for (j : 0 .. OBJECTS - 1) {
					if
					:: waiting[j] == i + 1 -> pile[j] = true; waiting[j] = 0; any = true
					:: else
					fi
				}
				j = 0
			}
#ifndef NOT_TOLD
			told[i] = false;
#endif
			cpu_lock[i] = false
		:: else
		fi
	}
	if
	:: any ->
		under_way = true;
		/* call: those who read now are waited for. */
		d_step {
			for (j : 0 .. READERS - 1) {
				must_leave[j] = reading[j]
			}
			called = true
		}
	:: else
	fi
}

active [ADDERS] proctype adder()
{
	byte i, j, c;
	bool any, was_told;

	if
	:: c = 0
	:: c = 1
	fi;
	/* Taken out of the structure, then given to kfree_rcu. */
	linked[_pid] = false;
	lock(cpu_lock[c]);
#ifdef JOINS_THE_PILE
	if
	:: under_way -> pile[_pid] = true
	:: else -> waiting[_pid] = c + 1
	fi;
#else
	waiting[_pid] = c + 1;
#endif
	was_told = told[c];
	told[c] = true;
	cpu_lock[c] = false;
	if
	:: !was_told ->
		wanted = true;
		lock(turn_lock);
		if
		:: !under_way -> begin()
		:: else
		fi;
		turn_lock = false
	:: else
	fi;
	done++
}

active [READERS] proctype reader()
{
	byte r = _pid - ADDERS, o;
	bool found;

	do
	:: reading[r] = true;
		if
		:: o = 0
		:: o = 1
		fi;
		found = linked[o];
		/* ... it looks at it */
		assert(!found || !freed[o]);
		assert(!found || !freed[o]);
		d_step { reading[r] = false; must_leave[r] = false; found = false }
	:: done == ADDERS -> break
	od
}

/* The RCU's thread: the end of a grace period. */
active proctype rcu()
{
	byte i, j;
	bool any;

end:	do
	:: called ->
		for (j : 0 .. READERS - 1) {
			!must_leave[j]
		}
		called = false;
		assert(under_way);
		for (i : 0 .. OBJECTS - 1) {
			if
			:: pile[i] -> assert(!freed[i]); freed[i] = true; pile[i] = false
			:: else
			fi
		}
		lock(turn_lock);
		under_way = false;
		begin();
		turn_lock = false
	od
}

/* Nothing is left behind: when no thread can move any more, all objects are free. */
active proctype check()
{
	done == ADDERS && !under_way && !turn_lock && !called && !wanted;
	timeout;
	assert(freed[0] && freed[1])
}
