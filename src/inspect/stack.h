/*
 * stack.h: stacks, as stack.c walks them, and where the calls of a stack come from. All functions take no lock,
 * allocate nothing, and may be called in a signal handler.
 */
#ifndef KM_INSPECT_STACK_H
#define KM_INSPECT_STACK_H

#include "alloc/profile_record.h"
#include "os/os_signal.h"

/* Walk the calling thread's stack: the program's frames, the innermost first. Returns the number, at most `most`. */
unsigned km_stack_walk(uintptr_t *frame, unsigned most);
/* In the handler of a fault: the frames behind the interrupted frame. */
unsigned km_stack_behind(const struct km_fault *fault, uintptr_t *frame, unsigned most);

/* The calling thread is the process's first one. */
void km_stack_first_thread(void);

/* ---- stacks known from an earlier walk */

/* The trail of a walk: all words read by the walk, from the beginning on. Equal words lead a walk the same way. The
 * words of a trail are compared in the order of the walk: the place of each word follows from the words before. */
#define KM_STACK_WORDS	48u		/* return addresses */
#define KM_STACK_BASES	16u		/* frame pointers */
struct km_stack_trail {
	uint32_t turn;			/* odd: a walk is writing the trail */
	uint32_t what;			/* the user's */
	uint64_t key;			/* 0: none */
	uint16_t words, bases;
	uint32_t word_at[KM_STACK_WORDS];	/* words from the start */
	uint8_t base_of[KM_STACK_BASES];	/* the return address to which each frame pointer leads */
	int32_t base_at[KM_STACK_BASES];	/* bytes from the start; -1: the register */
	int64_t base[KM_STACK_BASES];	/* the frame pointer's value, from the start as well */
	uintptr_t word[KM_STACK_WORDS];
};

#define KM_STACK_TRAILS	256u		/* a power of two */

struct km_stack {
	bool known;			/* km_stack_keep had the same stack: no frames here, but the same `what` */
	uint32_t what;
	unsigned depth;
	uintptr_t frame[KM_PROFILE_FRAMES];	/* the program's frames, the innermost first */
	struct km_stack_trail *trail;	/* unfinished, or NULL */
	uint64_t key;			/* ... its */
};
/* key: a number for this place and purpose; most: frames; anew: the stack is walked in any case. A stack with known =
 * false is given to km_stack_keep. */
void km_stack_take(struct km_stack *stack, uint64_t key, unsigned most, bool anew);
/* A library was unloaded, and another may come to its place: what is known of places is of no use. */
void km_stack_forget(void);
#define KM_STACK_NOTHING UINT32_MAX	/* keep no trail of the stack */
void km_stack_keep(struct km_stack *stack, uint32_t what);

/* ---- stack_places.c: where calls come from */

#define KM_STACK_FRAMES 16u
struct km_stack_track {
	uintptr_t frame[KM_STACK_FRAMES];	/* the call into the library first; 0: no more */
	uint64_t when;				/* ms; 0: never */
	uint32_t cpu, thread;
};

/* libc frees the records of files loaded by dlopen, as the program ends: from then on a stack is one call. */
void km_stack_over(void);
/* False: of a stack there is the last call alone. */
bool km_stack_is_there(void);
/* The tables of frames in the file of an address: the sorted table (.eh_frame_hdr), or the entries (.eh_frame) of a
 * program without a sorted table, or neither. False: the address is in no file. */
struct km_stack_tables {
	const uint8_t *sorted, *entry, *end;
};
bool km_stack_tables_of(uintptr_t address, struct km_stack_tables *tables);
void km_stack_track(struct km_stack_track *track);
/* There is more of a stack than a call: the program has begun, and has not ended. */
bool km_stack_may_walk(void);
/* Is it code of the library? */
bool km_stack_is_own(uintptr_t address);
/* Made before the program's first function, or after km_stack_over. */
bool km_stack_is_early(uintptr_t first);
/* "OBJECT+0xOFFSET", as `kmem symbols` reads it, or the bare address; returns text. */
const char *km_stack_place(uintptr_t address, char *text, size_t bytes);
/* Does one of the names fit that the dynamic linker has of the function at an address? Unlike dladdr it asks for no
 * lock that somebody may have who waits for this thread. */
bool km_stack_find_name(uintptr_t address, bool (*fits)(const char *name));
/* The file that is mapped there, and where it was mapped to; false: none is. */
bool km_stack_find_file(uintptr_t address, char *path, size_t bytes, uintptr_t *start);

#endif
