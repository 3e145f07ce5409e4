/*
 * scan.h: find lost objects: live objects of a process without a pointer to them. A word with the value of an address
 * inside of a live object counts as a pointer to the object. The roots are registers, stacks from the stack pointer
 * on, and writable memory outside of libkmem. An object is held if a root or a held object points to the object. All
 * other live objects are lost, also cycles.
 *
 * A process is read while the process runs, some gigabytes in a second. A pointer moved meanwhile may be missed.
 * Therefore all threads stand still for the last step of a round: the command reads registers, stacks, the smaller
 * memory outside of objects, and the live bits of the candidates. In the same stop the command reads objects with
 * possible pointers to candidates again, because a list may change in every round while its rest stays as before. A
 * lost object stays lost, and its content stays the same: no pointer is left to copy, or to write by. Therefore the
 * scan runs several rounds. Only objects lost in every round, with the same content, are reported.
 */
#ifndef KMEM_COMMAND_SCAN_H
#define KMEM_COMMAND_SCAN_H

#include "leaks/leaks.h"
#include "leaks/stop_threads.h"

struct span_list {
	struct scan_span {
		uintptr_t start, end;
	} *at;
	size_t count, room;
};

/* Pointers from one object to another, in order of the objects with the pointers. */
struct scan_edges {
	uint32_t *to;
	uint8_t *from;			/* number of the object with the pointer, modulo 64 */
	uint64_t *begin;		/* for each 64 objects: index of the first edge */
	size_t count, to_room, from_room;
	uint64_t next;			/* index of the first `begin` not written yet */
};

/* A piece read again while all threads stood still. */
struct scan_copy {
	const struct heap_piece *piece;
	size_t at;			/* offset in `bytes` of scan_again; before the read: the piece's rank */
};

/* Pieces read again, and the pointers in these pieces to candidates. */
struct scan_again {
	struct scan_copy *copy;
	size_t count, room;
	char *bytes;
	size_t filled, byte_room;
	struct scan_link {
		uint32_t from, to;
	} *link;			/* sorted by `from` at the end of mark_again() */
	size_t link_count, link_room;
	uint64_t wanted;		/* bytes of pieces with possible pointers to candidates */
};

struct scan {
	struct subject *subject;
	struct heap heap;
	struct span_list roots;		/* memory outside of objects with possible pointers */
	struct span_list ours;		/* libkmem's memory, sorted; a pointer may lead to a prefilled sheaf */
	struct scan_edges edges;
	struct scan_again again;
	uint64_t *held;			/* a bit for each object */
	uint32_t *work;			/* held objects with edges not followed yet */
	size_t work_count, work_room;
	char *buffer;
	uint64_t bytes;			/* count of bytes read */
	uint64_t unread;		/* bytes with possible pointers, not readable */
	int pagemap;			/* file descriptor of /proc/PID/pagemap; -1: none */
};

struct scan_lost {
	uintptr_t address;
	size_t bytes;
	uint64_t content;		/* hash of the object's content */
	char cache[KMEM_RECORD_NAME_BYTES];
	bool pointed;			/* another lost object points to this object */
	bool aged;
	uint64_t age_ms;
	uintptr_t frame[HEAP_FRAMES];
};

struct scan_result {
	struct scan_lost *lost;
	size_t count, room;
	size_t live;
	uint64_t read_bytes;
	uint64_t unread_bytes;		/* in the last round */
	unsigned rounds, stops;
	uint64_t longest_ns;		/* longest stop of all threads */
	uint64_t again_wanted;		/* `wanted` of scan_again, in the last round */
	uint64_t again_bytes;		/* bytes of again_wanted read while all threads stood still */
};

/* Find the lost objects. Returns: the exit status; not 0 after one line on stderr. */
int scan_run(struct subject *subject, struct scan_result *result);

/* ---- leaks/roots.c */
/* Find memory outside of libkmem with possible pointers, except stacks. Sorts `stacks`. */
bool roots_find(struct scan *scan, struct stop_stack *stacks, size_t count);
/* Add the used part of a stack to a list; sort a list, and join spans without a gap between. */
void roots_add_stack(const struct scan *scan, const struct stop_stack *stack, struct span_list *list);
void roots_fold(struct span_list *list);
/* Read `bytes` bytes. Bytes neither in memory nor in swap, or not readable, are zeros. Returns: false if no page is
 * in memory or swap; the buffer is not written then. */
bool roots_read(struct scan *scan, uintptr_t from, size_t bytes, void *to);
/* Read many small pieces, with few system calls, one behind the other from `to` on. Pages neither in memory nor in
 * swap are left out.
 * Requires: room for all added bytes at `to`, and a batch initialized with zeros. The last pieces are read by
 * roots_flush(). */
#define ROOTS_PIECES 256u
struct roots_batch {
	struct scan *scan;
	char *to;
	struct iovec piece[ROOTS_PIECES];
	size_t count, bytes;		/* pieces and bytes not read yet */
	bool shares;			/* some of these pages are shared with a fork */
};
void roots_add(struct roots_batch *batch, uintptr_t from, size_t bytes);
void roots_flush(struct roots_batch *batch);

/* ---- leaks/mark.c */
/* Find the live object with a word's value as an address inside. Returns: false if there is none. */
bool mark_find(const struct scan *scan, uint64_t word, uint32_t *object);
/* Hold the objects pointed to by words outside of objects. */
void mark_words(struct scan *scan, const uint64_t *words, size_t count);
/* Collect the edges of all live objects, from all pieces. */
void mark_edges(struct scan *scan);
/* Collect the pointers to candidates in the pieces read again. */
void mark_again(struct scan *scan);
/* Hold all objects reached from held objects, until no work is left. */
void mark_all(struct scan *scan);

/* ---- leaks/rescan.c: objects that may hold candidates are read again while all threads stand still. */
/* Check for a candidate among the piece's objects: a live object not held. */
bool again_has_candidate(const struct scan *scan, const struct heap_piece *piece);
/* Choose and rank the pieces to read, and allocate the room. Context: before the threads stop. */
void again_prepare(struct scan *scan);
/* Read the chosen pieces until `end` (CLOCK_MONOTONIC, ns), and at least a mebibyte. */
void again_read(struct scan *scan, uint64_t end);
void again_clear(struct scan_again *again);

/* ---- leaks/quiesce.c: read data while all threads stand still; still_core() reads the same data of a core dump.
 * threads: an estimate of the count of threads. Returns: false with errno set if the threads can't be stopped. */
bool still_look(struct scan *scan, size_t threads, struct scan_result *result);
void still_core(struct scan *scan, const struct core *core);

/* ---- leaks/recent_objects.c: hold all objects pointed to by objects allocated since the round began. */
void young_hold(struct scan *scan);

#endif
