/*
 * stock.pml: a CPU's stock of charged bytes, under the soft disciplines: {bytes, tag} by compare-and-swap, while the
 * slot is closed, drained, and opened for another group (src/percpu/stock_word.c: soft_take, soft_put, km_stock_close,
 * km_stock_take_cpu, km_stock_open). Claim: no byte of one group is given to another, or lost.
 * Wrong: KEEP_TAG (taking leaves the tag).
 * Long: THREADS=3
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef TURNS
#define TURNS 2
#endif
#define LIMIT 3

byte slot[3];			/* of group 1 and 2: 1 open */
byte bytes, tag;		/* the pair */
short had[3];			/* bytes of a group in its stock, as its users count */

active [THREADS] proctype user()
{
	byte group = 1, seen_bytes, seen_tag, turn;

	for (turn : 1 .. TURNS) {
		if
		:: group = 1
		:: group = 2
		fi;
		/* enter */
		if
		:: !slot[group] -> goto next_turn
		:: else
		fi;
		/* Two loads: the pair may change in between. */
		seen_bytes = bytes;
		seen_tag = tag;
		if
		:: seen_tag != group -> goto next_turn
		:: else
		fi;
		if
		:: seen_bytes > 0 ->	/* take */
			atomic {
				if
				:: bytes == seen_bytes && tag == seen_tag -> bytes--; had[group]--; assert(had[group] >= 0)
				:: else
				fi
			}
		:: seen_bytes < LIMIT ->	/* put */
			atomic {
				if
				:: bytes == seen_bytes && tag == seen_tag -> bytes++; had[group]++
				:: else
				fi
			}
		fi;
next_turn:	skip
	}
}

active proctype owner()
{
	byte group, times, all, seen_tag;

	for (times : 1 .. 3) {
		group = 1 + (times % 2);
		/* km_stock_open */
		assert(bytes == 0 && had[group] == 0);
		tag = group;
		slot[group] = 1;
		/* ... close, take */
		slot[group] = 0;
		do
		:: all = bytes;
			seen_tag = tag;
			atomic {
				if
				:: bytes == all && tag == seen_tag ->
					bytes = 0;
#ifndef KEEP_TAG
					tag = 0;
#endif
					assert(had[group] == all);
					had[group] = 0;
					break
				:: else
				fi
			}
		od
	}
}
