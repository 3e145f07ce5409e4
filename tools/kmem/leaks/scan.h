/*
 * scan.h: which live objects of a process nothing points to. A word that could be an address inside of a live object is
 * taken for a pointer to it. Where such words stand outside of objects - registers, stacks from the stack pointer on,
 * memory that may be written to and is not libkmem's - it is held, and so is what is pointed to from one that is held.
 * What is left is lost, cycles too.
 *
 * A process that runs is read while it runs, some gigabytes in a second, so a pointer that is moved meanwhile may be
 * missed. Then all threads stand still for as long as it takes to read registers, stacks, the smaller memory outside of
 * objects, and which of the candidates are still live; and, once more, objects that may hold candidates: a list is
 * changed in every round, and what is behind the change is as it was. A lost object stays lost, and as it is: no
 * pointer to it is left that could be copied, or written by. So it is done several times over, and only what was lost
 * each time, with the same content, is told.
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

/* A pointer from one object to another: `to`, and in order of the objects that they are in. */
struct scan_edges {
	uint32_t *to;
	uint8_t *from;			/* the object's number, modulo 64 */
	uint64_t *begin;		/* for each 64 objects: their first edge */
	size_t count, to_room, from_room;
	uint64_t next;			/* the next 64 objects of which `begin` is not written */
};

/* A piece that was read again while all threads stood still. */
struct scan_copy {
	const struct heap_piece *piece;
	size_t at;			/* where it is in `bytes` of scan_again; before it is read: its rank */
};

/* What was read again, and pointers in it to candidates. */
struct scan_again {
	struct scan_copy *copy;
	size_t count, room;
	char *bytes;
	size_t filled, byte_room;
	struct scan_link {
		uint32_t from, to;
	} *link;			/* by `from` when all are there */
	size_t link_count, link_room;
	uint64_t wanted;		/* bytes that may hold candidates */
};

struct scan {
	struct subject *subject;
	struct heap heap;
	struct span_list roots;		/* memory outside of objects that may have pointers */
	struct span_list ours;		/* libkmem's, in order: a pointer there may be to a sheaf in a user's hand */
	struct scan_edges edges;
	struct scan_again again;
	uint64_t *held;			/* a bit for each object */
	uint32_t *work;			/* held, and not looked at yet */
	size_t work_count, work_room;
	char *buffer;
	uint64_t bytes;			/* that were read */
	uint64_t unread;		/* bytes with possible pointers, not readable */
	int pagemap;			/* -1: there is none */
};

struct scan_lost {
	uintptr_t address;
	size_t bytes;
	uint64_t content;		/* a number that stands for it */
	char cache[KM_NAME_BYTES];
	bool pointed;			/* by another one that is lost */
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
	uint64_t longest_ns;		/* of the stops */
	uint64_t again_wanted;		/* bytes of objects that may hold what is lost, in the last round */
	uint64_t again_bytes;		/* of which so many were read again while all threads stood still */
};

/* The exit status; where it is not 0, one line was said. */
int scan_run(struct subject *subject, struct scan_result *result);

/* ---- leaks/roots.c */
/* Find memory outside of libkmem with possible pointers, except stacks. Sorts `stacks`. */
bool roots_find(struct scan *scan, struct stop_stack *stacks, size_t count);
/* The used part of a stack is added to a list; the list is put in order, and parts without a gap are joined. */
void roots_add_stack(const struct scan *scan, const struct stop_stack *stack, struct span_list *list);
void roots_fold(struct span_list *list);
/* Read so many bytes; what is not in memory, or can't be read, is zeros. False: all of it, and nothing was written. */
bool roots_read(struct scan *scan, uintptr_t from, size_t bytes, void *to);
/* The same of many small pieces, by as few reads as can be, one behind the other from `to` on: there has to be room for
 * all that is added. Of a piece what is not in memory is left out. Start with zeros; what was added last is there
 * behind a flush. */
#define ROOTS_PIECES 256u
struct roots_batch {
	struct scan *scan;
	char *to;
	struct iovec piece[ROOTS_PIECES];
	size_t count, bytes;		/* that are not read yet */
	bool shares;			/* some of these are a fork's as well */
};
void roots_add(struct roots_batch *batch, uintptr_t from, size_t bytes);
void roots_flush(struct roots_batch *batch);

/* ---- leaks/mark.c */
/* The object that a word points into, if it is live. */
bool mark_find(const struct scan *scan, uint64_t word, uint32_t *object);
/* Words outside of objects: what they point to is held. */
void mark_words(struct scan *scan, const uint64_t *words, size_t count);
/* All pieces: what each live object points to. */
void mark_edges(struct scan *scan);
/* What was read again: which candidates it points to. */
void mark_again(struct scan *scan);
/* What is held by what is held. */
void mark_all(struct scan *scan);

/* ---- leaks/rescan.c: objects that may hold candidates are read again while all threads stand still. */
/* Is one of the piece's objects a candidate? */
bool again_has_candidate(const struct scan *scan, const struct heap_piece *piece);
/* Before they do: which pieces, in which order, and room for them. */
void again_prepare(struct scan *scan);
/* As many as can be read until `end` (CLOCK_MONOTONIC, ns), or a mebibyte. */
void again_read(struct scan *scan, uint64_t end);
void again_clear(struct scan_again *again);

/* ---- leaks/quiesce.c: what is read while all threads stand still, of which there are about so many; False: errno says
 * why they do not. And the same of a dump. */
bool still_look(struct scan *scan, size_t threads, struct scan_result *result);
void still_core(struct scan *scan, const struct core *core);

/* ---- leaks/recent_objects.c: what is held by objects that were allocated since the round began. */
void young_hold(struct scan *scan);

#endif
