/*
 * pcpu.h: per-CPU memory, and the verbs that work on a CPU's shelf of ready objects. Three disciplines
 * implement the same verbs; the one in force is chosen once, at start.
 *
 *	base - 2 areas     base                 + 1 << 21
 *	| zeros, read-only | area of CPU 0      | area of CPU 1 ...           | zeros, read-only
 *	                   [0, shelf, shelf, .. other per-CPU words ..]
 *
 * Under rseq an area is zeros, read-only, until its CPU first needs it: then it comes alive, and says so by a mark in
 * its first line. A CPU whose number is beyond all areas (the process was restored on a larger machine, or was told
 * of fewer CPUs than there are) finds zeros for ever. Zeros are misses both ways, and a verb that would store where it
 * found zeros looks at the mark first.
 *
 * A shelf hangs on one word per cache per CPU: `top`, an offset from the CPU's area into a block.
 *
 *	block: 2^k bytes, aligned     [ .. | obj | obj | obj | NULL | header ]
 *	                                ^     ^ top           ^      ^ offset of the partner's top, 0 where none
 *	                                full here: top & mask == 0
 *
 * The stack grows down. The mask may be that of the whole block or of a smaller power of two: then the block counts
 * as full earlier, at the next multiple. So a shelf's capacity changes with one store, and blocks that were filled
 * under another mask stay valid. Word 0 of every area is NULL and stays so: a shelf offset of 0 (closed) or a top of 0
 * (not yet born) misses both ways. A block may come from any CPU: an offset reaches all memory.
 *
 * A limit that is no power of two minus 2: the stack's NULL lies further in, so that fewer objects fill it. How many
 * bytes further, the pad, stands where the NULL would be, in each block: so blocks of an older limit stay valid too.
 *
 *	[ .. | obj | obj | NULL | .. | pad | header ]		pad 0 is the NULL itself
 *
 * The verbs, in pseudo-code. Each commits with its last store, or does nothing. area and top are those of
 * <kmem/inline.h>, which has pop and push; header(top) is the last word of the block that top points into.
 *	pop_n		if (!top) miss; n = min(objects from top to the bottom, wanted); if (!n) miss
 *			copy n objects out, to the array's end; top += n
 *	push_n		n = min(room above top, wanted); if (!n) miss; copy n objects below top; top -= n
 *	swap		if (!top) miss; partner = header(top); if (!partner, or it is empty / full) miss
 *			if (one is fuller by more than half a block) move half of the difference to the emptier one
 *			header(partner) = top; top = partner
 *	detach		if (!top, or main is not empty / not full) miss; partner = header(top)
 *			if (!partner) miss, unless lone; if (partner) header(partner) = 0
 *			top = partner; main is the caller's
 *	install		if (closed, or in the zeros) miss; partner = top ? header(top) : 0; header(block) = top
 *			top = block; the former partner is the caller's
 *	take_partner	if (!top) miss; partner = header(top); if (!partner) miss
 *			header(top) = 0; the partner is the caller's
 *	put_partner	if (!top, or header(top)) miss; header(top) = block
 */
#ifndef KM_PERCPU_PCPU_H
#define KM_PERCPU_PCPU_H

#include <kmem/inline.h>

#include "base/atomic.h"
#include "base/cc.h"
#include "os/die.h"
#include "os/os.h"

/* The end of a sequence's function: what is returned behind the commit, and at the label `miss`. */
#define KM_RSEQ_RETURN(committed, missed)                                                          \
	return committed;                                                                          \
miss:                                                                                              \
	KMEM_RSEQ_MISSED;                                                                          \
	return missed

enum km_discipline {
	KM_DISCIPLINE_LOCK,	/* a per-CPU trylock; who finds it taken misses, and never waits */
	KM_DISCIPLINE_CMPXCHG,	/* a transaction id and 16-byte compare-and-swap; pushes under the lock */
	KM_DISCIPLINE_RSEQ,
	KM_DISCIPLINE_NONE,	/* no per-CPU memory could be had: no shelves */
};

/* By what sequences find their area. */
enum km_index {
	KM_INDEX_NONE,		/* there are none: the discipline is another, or was not chosen yet */
	KM_INDEX_CPU,
	KM_INDEX_CID,		/* cid_ops.h; hits, which go by CPU, miss then */
};

/* Areas have numbers; where there is talk of an area's CPU, that is the number, whichever the index. */
struct km_percpu {
	char *base;			/* area of CPU 0; before start: a few zeros */
	unsigned cpus;			/* areas that are alive, or may come alive */
	unsigned home;			/* this one always is */
	enum km_discipline discipline;
	enum km_index index;
	bool own_registration;		/* threads are registered by us, at their first miss */
	const char *reason;
	uint64_t live[KM_MAX_CPUS / 64];	/* a bit for each area */
};
extern km_hidden struct km_percpu km_percpu;

/*
 * The place that hits store to, and have their CPU from, from the thread pointer: the thread's rseq area, or a dummy's,
 * which is on CPU 0: where nobody is registered, from the first instruction on, and where areas go by concurrency id.
 * And the thread's in any case, for who has asked for the index.
 */
extern km_hidden intptr_t km_rseq, km_thread_rseq;
/* Hits by concurrency id have this in its place, and nobody else has. */
extern km_hidden intptr_t km_cid_rseq;

/*
 * A request from outside (cache/mailbox.h) makes each call a miss by a store from there: the words by which hits find
 * their place become `shut`, a place whose CPU is -1, so that a hit finds the zeros below the areas. Misses go by
 * km_thread_rseq, which stays: they find what lies ready, and look whether the ways are shut (fast_path.h). A
 * sequence that is under way has loaded its word, and ends as it began. Nothing else is changed, so that the other
 * process may store at any time, and end at any time: the call that finds a way shut opens both, once the request is
 * served or taken back. A request of several ticks has them from the very next calls, whatever they are of. The
 * record is read as it stands here, by commands of other builds: where its meaning changes, root.ways gets another
 * name (cache/process_record.h).
 */
struct km_gate {
	intptr_t *word[2];	/* km_cid_rseq, where areas go by it; km_rseq: the misses of each look at it */
	intptr_t open[2];
	intptr_t shut;		/* 0: there are no areas */
	bool in_caches;		/* hits that know their cache have a copy of km_rseq in it */
};
extern km_hidden struct km_gate km_gate;
/* A request is open: ways that were shut for it stay so. Written by ticks (inspect/mailbox.c). */
extern km_hidden bool km_gate_kept;
km_inline bool km_way_is_shut(intptr_t way)
{
	return km_unlikely(way == km_gate.shut);
}
void km_gate_open(void) km_cold;
/* By the library itself: the next call of kmalloc, kfree, malloc or free has a tick. */
void km_gate_shut(void) km_cold;

/*
 * All that a hit of kmalloc, kfree, malloc and free loads besides tables. Until the floors above fill it in, and
 * for ever under the soft disciplines, every word of a shelf is 0 and every map entry leads to a closed one.
 */
struct km_hot {
	char *percpu;			/* area of CPU 0; where hits are to miss, zeros */
	char *arena;			/* the first range of pages */
	size_t pages;			/* committed */
	struct km_page *page;		/* a descriptor for each */
	const uint16_t *map;		/* a cache's id for each; what is there by id lies before it: id_table.h */
	struct kmem_cache **caches;	/* by id; NULL: an address alone proves none of its objects */
	uint64_t *owner;		/* who pays, a word for each page: page/obj_cgroups.h */
} km_aligned(64);
extern km_hidden struct km_hot km_hot;
/* The number of the page that p lies in, among those of the first range; km_hot.pages or more: it is in none. */
km_inline uintptr_t km_page_index(const void *p)
{
	return ((uintptr_t)p - (uintptr_t)km_hot.arena) >> KM_PAGE_SHIFT;
}

/*
 * A CPU's slot of a cache, under the soft disciplines. Under rseq it is the first word alone, and for a
 * shelf with an owner (owned_sheaf.h) a second one. 32 bytes, so that it lies in one line (km_percpu_alloc).
 */
struct km_soft {
	struct km_pair pair;	/* first: the top, or a chain's freelist; second: the transaction id */
	uint32_t lock;
	uint64_t owner;		/* of what lies there, 0 where it is anybody's; written under the lock */
};

/* A cache's shelf; the first member of struct kmem_cache. */
struct km_pcs {
	struct kmem_cache_front front;	/* what the hot path sees: open, or closed */
	struct kmem_pcs inner;	/* what the verbs below see: open except while it is drained */
	uint32_t sheaf_mask;		/* bytes of a block minus one; inner.mask is this or smaller */
	uint32_t slot;			/* where the shelf's word is, open or closed; 0: has none */
};

/* For who looks while another thread may be making the shelf. Acquire pairs with the store of `slot`, the last one. */
km_inline uint32_t km_pcs_slot(const struct km_pcs *pcs)
{
	return km_load_acquire(&pcs->slot);
}

/* Until then sequences find a CPU whose shelves are closed: for calls that come before all else. */
void km_percpu_early(void);
/* Choose a discipline (want: its name or NULL) and an index (by: "cpu", "cid" or "auto"), and make the areas. Called
 * once, before any thread. */
void km_percpu_start(const char *want, const char *by);
const char *km_discipline_name(enum km_discipline discipline);

/* The program has limited its address space: areas that no CPU here can come to are given back. */
void km_percpu_fit(size_t limit);
/* Around a call that locks all memory: areas that no CPU here can come to are not filled in. */
void km_percpu_show_beyond(bool show);
/* Ours (process/confine.c), in libkmem-malloc; NULL: it is not linked in. Before it may stand another one. */
extern km_hidden int (*km_own_mlockall)(int flags);

/* A word or more at the same offset in every CPU's area, zero; bytes a power of two <= 4096; 0: none left. */
uint32_t km_percpu_alloc(size_t bytes);
/* The words are cleared, of a shelf's transaction id for example: nobody may be using them any more. */
void km_percpu_free(uint32_t offset, size_t bytes);
/* Pages of areas without a word in use go back to the system: after enough frees, or `always`. */
void km_percpu_trim(bool always);
size_t km_percpu_word_bytes(void);
void km_percpu_fork(bool before, bool child);

km_inline char *km_area(unsigned cpu)
{
	return km_percpu.base + ((uintptr_t)cpu << KMEM_AREA_SHIFT);
}

/* Where an area's mark is, in the line of word 0: behind what closed shelves, chains and stocks read there. */
#define KM_AREA_MARK 56

/*
 * The id of a shelf that is empty for ever, for sizes that never hit: its word, in each area that is alive, leads to
 * the next word, which is NULL. Word 0 would do, but for where it is: in its page's first line, as are the heads of a
 * program's pages. All of those share one set of the processor's first cache, which has 8 to 12 lines.
 */
#define KM_ID_EMPTY 16

km_inline bool km_cpu_is_online(unsigned cpu)
{
	/* Acquire pairs with the release in begin_area: who sees the bit may store. */
	return km_likely(cpu < km_percpu.cpus) &&
	       (km_load_acquire(&km_percpu.live[cpu / 64]) >> cpu % 64 & 1);
}

/* The first CPU from `cpu` on whose area is alive; km_percpu.cpus or more: none is. An object that was put on a CPU
 * before the last fence is on one of these. */
unsigned km_next_cpu(unsigned cpu);
#define km_for_each_cpu(cpu)                                                                       \
	for (unsigned cpu = km_next_cpu(0); cpu < km_percpu.cpus; cpu = km_next_cpu(cpu + 1))

/* The number of the CPU we are on, whatever it is and whatever areas go by; stale at once, and that does no harm. */
unsigned km_cpu_number(void);
/* The CPU whose memory to use: the one that a sequence would, if its area is alive, or another one whose area is. */
unsigned km_cpu(void);
/* The same by concurrency id. */
uint32_t km_cid_of_thread(void) km_cold;
/* Under rseq: the number that a sequence would find its area by, KM_MAX_CPUS or more where the thread has none. */
km_inline uint32_t km_cpu_of_thread(void)
{
	if (km_unlikely(km_percpu.index == KM_INDEX_CID))
		return km_cid_of_thread();
	return *(volatile uint32_t *)((char *)__builtin_thread_pointer() + km_thread_rseq + 4);
}
/* Do hits go to the CPU's words, or miss? */
km_inline bool km_hits_by_cpu(void)
{
	return km_percpu.index == KM_INDEX_CPU;
}
/* Register this thread where that is our task. Called from misses, before they look for a CPU to put things on. */
void km_thread_register(void);
/*
 * Around the life of a child of vfork, which runs on this thread's storage as another task. The kernel writes an rseq
 * area for the task that registered it, and aborts that task's sequences only: so nobody has it registered meanwhile,
 * it says that there is no CPU, and all calls of the child are misses. Lent: the bytes that were registered, for
 * km_thread_take_back; 0: none were, and nobody registers it meanwhile either; KM_NOT_LENT: the kernel refused, and
 * there is nothing to be taken back.
 */
#define KM_NOT_LENT ((size_t)-1)
size_t km_thread_lend(void);
void km_thread_take_back(size_t bytes);
/* Is it a child of vfork that runs here? A call that such a one makes for itself is not made for the process. */
bool km_thread_is_lent(void);
km_inline void km_thread_enter(void)
{
	if (km_unlikely(km_percpu.own_registration))
		km_thread_register();
}

/* Does this thread have a CPU to put things on? False under rseq where it is not registered, or its CPU's area is not
 * alive. */
km_inline bool km_thread_has_cpu(void)
{
	if (km_likely(km_percpu.discipline == KM_DISCIPLINE_RSEQ))
		return km_cpu_is_online(km_cpu_of_thread());
	return km_percpu.discipline != KM_DISCIPLINE_NONE;
}
/* Let the area of this thread's CPU come alive, if there can be one: system calls, once for each CPU. */
void km_cpu_begin(void);

/* The soft halves of pop, pop_n and push_n, where what lies there is the owner's; 0: anybody's. */
void *km_soft_pop(struct km_pcs *pcs, uintptr_t owner);
size_t km_soft_pop_n(struct km_pcs *pcs, uintptr_t owner, void **out, size_t count);
size_t km_soft_push_n(struct km_pcs *pcs, uintptr_t owner, void *const *in, size_t count);

/* The verbs, for everybody but the hot path. They see `inner`. */
void *km_pcs_pop(struct km_pcs *pcs);
bool km_pcs_push(struct km_pcs *pcs, void *object);
size_t km_pcs_pop_n(struct km_pcs *pcs, void **out, size_t count);
size_t km_pcs_push_n(struct km_pcs *pcs, void *const *in, size_t count);
/* share: where one block has more than half a block more than the other, leave both about as full. */
bool km_pcs_swap(struct km_pcs *pcs, bool for_pop, bool share);
/* lone: also without a partner. */
void **km_pcs_detach(struct km_pcs *pcs, bool for_pop, bool lone);
bool km_pcs_install(struct km_pcs *pcs, void **sheaf, void ***evicted);
void **km_pcs_take_spare(struct km_pcs *pcs);
bool km_pcs_put_spare(struct km_pcs *pcs, void **sheaf);

/*
 * A drain: close the shelf for everybody; the fence waits until no sequence that saw it open is in flight (false: it
 * can't); take_cpu takes a CPU's blocks off (main and partner, NULL where none); open.
 * The soft disciplines need no closing: taking goes by their lock. One drain at a time (KM_RANK_DRAIN).
 */
void km_pcs_close(struct km_pcs *pcs);
bool km_pcs_fence(void);
void km_pcs_take_cpu(struct km_pcs *pcs, unsigned cpu, void ***main_sheaf, void ***spare);
/* Put a block on where there is none, as the main one; false: there is one now. */
bool km_pcs_put_cpu(struct km_pcs *pcs, unsigned cpu, void **sheaf);
void km_pcs_open(struct km_pcs *pcs, bool to_hot_path);
/* In the child of a fork: let go of what threads held that are not here. */
void km_pcs_fork_child(struct km_pcs *pcs);
/* Objects on the CPU's shelf; a racy look, exact when nobody uses it. */
size_t km_pcs_count_cpu(const struct km_pcs *pcs, unsigned cpu);
/* The same for the word itself: 0, or what changes with every pop and push. */
uint64_t km_pcs_top_cpu(const struct km_pcs *pcs, unsigned cpu);
/* Has it two blocks? A racy look. */
bool km_pcs_has_spare_cpu(const struct km_pcs *pcs, unsigned cpu);

/* Where the block's pad is. */
km_inline uint64_t *km_sheaf_pad(const struct km_pcs *pcs, void *const *top)
{
	return (uint64_t *)(((uintptr_t)top | pcs->sheaf_mask) - 15);
}

/* Objects in a block, from its top. */
km_inline size_t km_sheaf_objects(const struct km_pcs *pcs, void *const *top)
{
	return (pcs->sheaf_mask - 15 - ((uintptr_t)top & pcs->sheaf_mask) -
		km_load(km_sheaf_pad(pcs, top))) / sizeof(void *);
}

/* The top of the block when it is empty: where its NULL is. */
km_inline void **km_sheaf_bottom(const struct km_pcs *pcs, void **top)
{
	uint64_t *pad = km_sheaf_pad(pcs, top);

	km_debug(*pad <= pcs->sheaf_mask - 15, "a block's bottom lies in the block");

	return (void **)((char *)pad - *pad);
}

/* Objects that it takes before it counts as full; 0: it is. */
km_inline size_t km_sheaf_room(const struct km_pcs *pcs, void *const *top)
{
	return ((uintptr_t)top & km_load(&pcs->inner.mask)) / sizeof(void *);
}

km_inline void **km_sheaf_base(const struct km_pcs *pcs, void **top)
{
	return (void **)((uintptr_t)top & ~(uintptr_t)pcs->sheaf_mask);
}

/* Objects a block takes before it counts as full, under a mask. */
km_inline unsigned km_mask_capacity(uint32_t mask)
{
	return (mask + 1) / sizeof(void *) - 2;
}

km_inline uint64_t *km_sheaf_header(const struct km_pcs *pcs, void *const *top)
{
	return (uint64_t *)(((uintptr_t)top | pcs->sheaf_mask) - 7);
}

#endif
