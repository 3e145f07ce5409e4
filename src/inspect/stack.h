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
/* Walks the stack in the handler of a fault: the frames behind the interrupted frame. */
unsigned km_stack_behind(const struct km_fault *fault, uintptr_t *frame, unsigned most);

/* Tells that the calling thread is the process's first one. */
void km_stack_first_thread(void);

/* ---- stacks known from an earlier walk */

/* The trail of a walk: all words read by the walk, from the beginning on: return addresses and frame pointers. Equal
 * words lead a walk the same way. The words of a trail are compared in the order of the walk: the place of each word
 * follows from the words before. */
#define KM_STACK_WORDS	64u
#define KM_STACK_IN_REGISTER	0x7fffffffu	/* the place of a frame pointer that is still in its register */
#define KM_STACK_IS_BASE	0x80000000u	/* a frame pointer, kept less the start */
struct km_stack_trail {
	uint32_t turn;			/* odd: a walk is writing the trail */
	uint32_t what;			/* the user's */
	uint64_t key;			/* 0: none */
	uint32_t words;
	uint32_t at[KM_STACK_WORDS];	/* words from the start, or IN_REGISTER; and IS_BASE */
	uintptr_t word[KM_STACK_WORDS];
};

#define KM_STACK_TRAILS	256u		/* number of trails, a power of two */

struct km_stack {
	bool known;			/* km_stack_keep had the same stack: no frames here, but the same `what` */
	uint32_t what;
	unsigned depth;
	uintptr_t frame[KMEM_PROFILE_FRAMES];	/* the program's frames, the innermost first */
	struct km_stack_trail *trail;	/* trail of the walk, to be finished by km_stack_keep; or NULL */
	uint64_t key;			/* key of this trail */
};
/* km_stack_take walks the calling thread's stack, or finds it by its trail. key: a number for this place and purpose;
 * most: frames; anew: walk in any case. A stack with known = false is given to km_stack_keep. */
void km_stack_take(struct km_stack *stack, uint64_t key, unsigned most, bool anew);
/* Forgets all rules and trails: a library was unloaded, and another may come to its addresses. */
void km_stack_forget(void);
#define KM_STACK_NOTHING UINT32_MAX	/* value of `what`: do not keep the trail */
void km_stack_keep(struct km_stack *stack, uint32_t what);

/* ---- stack_places.c: where calls come from */

#define KM_STACK_FRAMES 16u
struct km_stack_track {
	uintptr_t frame[KM_STACK_FRAMES];	/* return addresses, the call into the library first; 0: no more */
	uint64_t when;				/* time in ms; 0: never */
	uint32_t cpu, thread;
};

/* libc frees the records of dlopened files during exit. After this call a stack is reduced to one call. */
void km_stack_over(void);
/* Returns: false if stacks cannot be walked: only the last call is known. */
bool km_stack_is_there(void);
/* The tables of frames in the file of an address: the sorted table (.eh_frame_hdr), or the entries (.eh_frame) of a
 * program without a sorted table, or neither. False: the address is in no file. */
struct km_stack_tables {
	const uint8_t *sorted, *entry, *end;
};
bool km_stack_tables_of(uintptr_t address, struct km_stack_tables *tables);
void km_stack_track(struct km_stack_track *track);
/* Returns: true between the program's begin and end, while whole stacks can be walked. */
bool km_stack_may_walk(void);
/* Returns: true if the address is library code. */
bool km_stack_is_own(uintptr_t address);
/* Returns: true for a call from before the program's first function, or from after km_stack_over. */
bool km_stack_is_early(uintptr_t first);
/* Format "OBJECT+0xOFFSET", as read by `kmem symbols`, or the bare address. Returns: text. */
const char *km_stack_place(uintptr_t address, char *text, size_t bytes);
/* Returns: true if `fits` accepts a name known to the dynamic linker for the function at the address. Unlike dladdr,
 * the search takes no lock, so no thread waiting for this thread can block the search. */
bool km_stack_find_name(uintptr_t address, bool (*fits)(const char *name));
/* Find the mapped file of an address, and the file's start address. Returns: false if there is none. */
bool km_stack_find_file(uintptr_t address, char *path, size_t bytes, uintptr_t *start);

#endif
