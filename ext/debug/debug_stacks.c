/*
 * debug_stacks.c: the stack table, with each stack stored once under a number, and the marks beside objects, with
 * that number. Kernel: the stack depot. A stack recognized by stack.c from the words on the stack skips the table
 * lookup.
 *
 * Invariants: an entry belongs to its maker until linked, and never changes afterwards, so a number always means the
 * same stack. Of two entries for one stack only one is linked. Only the start makes system calls, and no function
 * takes a lock. In a full table, an unknown stack is cut to the first call.
 */
#include "page/metadata.h"
#include "base/bits.h"
#include "os/os.h"
#include "debug.h"

#define LISTS		32768u		/* number of lists of the hash table; a power of two */
#define MOST_STACKS	131072u		/* entries of the table of stacks: 17 MB, resident as far as used */
#define LEAST_STACKS	1024u
#define MARKS		0x6d61726bull	/* key of km_stack_take for marks; profiles use another */

struct kmem_record_stack *km_debug_stacks;
static uint32_t used;			/* entries in use */

/* Head of the list for a hash: the number of the first entry. The heads follow the entries. */
static uint32_t *list_of(struct kmem_record_stack *stacks, uint64_t hash)
{
	return (uint32_t *)(stacks + stacks->room) + (hash >> 32 & (LISTS - 1));
}

bool km_debug_stacks_start(void)
{
	struct kmem_record_stack *none = NULL, *stacks = NULL;
	uint32_t room = 2 * MOST_STACKS;
	size_t bytes = 0;

	if (km_load(&km_debug_stacks))
		return true;
	while (!stacks && (room /= 2) >= LEAST_STACKS) {
		bytes = km_align_up(room * sizeof(*stacks) + LISTS * sizeof(uint32_t), KM_PAGE_SIZE);
		/* Without a table under a low RLIMIT_AS: the program needs the addresses more. */
		if (bytes <= km_os_address_limit() / 32)
			stacks = km_os_map(bytes, KM_PAGE_SIZE);
	}
	if (!stacks)
		return false;
	km_os_name(stacks, bytes, "libkmem stacks");
	stacks->room = room;
	/* Release pairs with the acquire loads of km_debug_stacks. */
	if (km_cas_release(&km_debug_stacks, &none, stacks))
		km_metadata_note_span(stacks, bytes);
	else
		km_os_unmap(stacks, bytes);
	return true;
}

static bool is_stack(const struct kmem_record_stack *stack, uint32_t hash, const uintptr_t *frame, unsigned depth)
{
	return stack->hash == hash && __builtin_memcmp(stack->frame, frame, depth * sizeof(*frame)) == 0 &&
	       (depth == KM_STACK_FRAMES || !stack->frame[depth]);
}

/* Fill a new entry, not linked yet. Returns: the number, or 0 without room. The last eighth of the table is reserved
 * for stacks of one call. */
static uint32_t make(struct kmem_record_stack *stacks, uint32_t hash, const uintptr_t *frame, unsigned depth)
{
	const uint32_t room = stacks->room - (depth > 1 ? stacks->room / 8 : 0);
	uint32_t number = km_load(&used) < room ? km_add(&used, 1u) + 1 : room;

	if (number >= room)
		return 0;
	km_debug(depth && depth <= KM_STACK_FRAMES && !stacks[number].hash, "an entry is created once, for a stack");
	stacks[number].hash = hash;
	__builtin_memcpy(stacks[number].frame, frame, depth * sizeof(*frame));
	return number;
}

/* Looks up a stack, or adds the stack. Returns: its number; 0 without room. If another thread links an entry first,
 * this entry is compared before the next attempt. */
static uint32_t number_of(const uintptr_t *frame, unsigned depth)
{
	struct kmem_record_stack *stacks = km_load_acquire(&km_debug_stacks);
	uint64_t hash = depth;
	uint32_t own = 0;

	if (!stacks)
		return 0;
	for (unsigned i = 0; i < depth; i++)
		hash = (hash ^ hash >> 29 ^ frame[i]) * KM_DEBUG_FACTOR;
	uint32_t *list = list_of(stacks, hash), first = km_load_acquire(list);
	do {
		for (uint32_t i = first; i; i = stacks[i].next)
			if (is_stack(&stacks[i], (uint32_t)hash, frame, depth))
				return i;
		own = own ?: make(stacks, (uint32_t)hash, frame, depth);
		if (!own)
			return 0;
		stacks[own].next = first;
		/* Release pairs with the loads of a list head: the entry is complete. */
	} while (!km_cas_both(list, &first, own));
	return own;
}

/* ------------------------------------------------------------------ marks */

km_inline uint32_t stack_here(void)
{
	struct km_stack stack;

	if (km_likely(km_stack_may_walk())) {
		km_stack_take(&stack, MARKS, KM_STACK_FRAMES, false);
		if (km_likely(stack.known))
			return stack.what;
	} else {
		stack.frame[0] = (uintptr_t)__builtin_return_address(0);
		stack.depth = 1;
		stack.trail = NULL;
	}
	uint32_t number = number_of(stack.frame, stack.depth) ?: number_of(stack.frame, 1);
	km_stack_keep(&stack, number ?: KM_STACK_NOTHING);
	return number;
}

void km_debug_mark(struct kmem_record_mark *mark)
{
	mark->who = stack_here() | (uint64_t)km_os_thread() << 32;
	mark->when = km_os_now_ms() | (uint64_t)km_cpu_number() << KMEM_RECORD_CPU_SHIFT;
	mark->seal = km_debug_mark_seal(mark);
	km_debug(km_debug_is_sealed(mark), "a new mark has its seal");
}

void km_debug_read_mark(const struct kmem_record_mark *mark, struct km_stack_track *track)
{
	const uint64_t who = km_load(&mark->who), when = km_load(&mark->when);
	const uint32_t number = (uint32_t)who;

	*track = (struct km_stack_track){
		.when = when & (((uint64_t)1 << KMEM_RECORD_CPU_SHIFT) - 1),
		.cpu = (uint32_t)(when >> KMEM_RECORD_CPU_SHIFT), .thread = (uint32_t)(who >> 32),
	};
	/* Acquire pairs with the start. An overwritten mark may hold any number. */
	const struct kmem_record_stack *stacks = km_load_acquire(&km_debug_stacks);
	if (stacks && number && number < stacks->room)
		__builtin_memcpy(track->frame, stacks[number].frame, sizeof(track->frame));
}
