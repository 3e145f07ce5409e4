/*
 * pcpu.h: per-CPU memory, and the per-CPU operations on a CPU's sheaves of cached objects. Three disciplines
 * implement the same operations. km_percpu_start chooses one discipline, once.
 *
 *	base - 2 areas     base                 + 1 << 21
 *	| zeros, read-only | area of CPU 0      | area of CPU 1 ...           | zeros, read-only
 *	                   [0, pcs, pcs, .. other per-CPU words ..]
 *
 * Under rseq, an area is read-only zeros until a thread on its CPU first needs the area. Then the area goes online: the
 * area becomes writable, and a mark in its first line says so. A CPU number may be beyond all areas, for example after
 * a restore on a larger machine, or when the system reported too few CPUs. Such a CPU reads zeros for ever. Zeros are a
 * miss for a pop and for a push. An operation that would store where the word is zero checks the mark first.
 *
 * The per-CPU sheaves (pcs) of a cache are one word per CPU: `top`, an offset from the CPU's area into the main sheaf.
 *
 *	sheaf: 2^k bytes, aligned     [ .. | obj | obj | obj | NULL | header ]
 *	                                ^     ^ top           ^      ^ offset of the spare's top, 0 without a spare
 *	                                full here: top & mask == 0
 *
 * The stack of objects grows down. The mask is the mask of the whole sheaf, or of a smaller power of two. With
 * a smaller mask the sheaf counts as full earlier, at the next multiple. So one store changes the capacity, and
 * sheaves filled under another mask stay valid. Word 0 of every area is always NULL. A pcs offset of 0 (closed)
 * or a top of 0 (no sheaf yet) is therefore a miss for a pop and for a push. A sheaf may come from any CPU,
 * because an offset reaches all memory.
 *
 * If the limit is not a power of two minus 2, the stack's NULL lies further in, so that fewer objects fill the
 * sheaf. The distance in bytes, the pad, is stored in each sheaf at the usual place of the NULL. So sheaves
 * made under an older limit stay valid.
 *
 *	[ .. | obj | obj | NULL | .. | pad | header ]		pad 0 is the NULL itself
 *
 * The per-CPU operations, in pseudo-code. Each operation commits with its last store, or does nothing. area and
 * top are defined in <kmem/inline.h>, together with pop and push. header(top) is the last word of the sheaf
 * that top points into. sheaf: the sheaf to install or to put; spare: the spare sheaf of the CPU.
 *	pop_n		if (!top) miss; n = min(objects from top to the bottom, wanted); if (!n) miss
 *			copy n objects out, to the array's end; top += n
 *	push_n		n = min(room above top, wanted); if (!n) miss; copy n objects below top; top -= n
 *	swap		if (!top) miss; spare = header(top); if (!spare, or it is empty / full) miss
 *			if (one is fuller by more than half a sheaf) move half of the difference to the emptier one
 *			header(spare) = top; top = spare
 *	detach		if (!top, or main is not empty / not full) miss; spare = header(top)
 *			if (!spare) miss, unless lone; if (spare) header(spare) = 0
 *			top = spare; main is the caller's
 *	install		if (closed, or in the zeros) miss; spare = top ? header(top) : 0; header(sheaf) = top
 *			top = sheaf; the former spare is the caller's
 *	take_spare	if (!top) miss; spare = header(top); if (!spare) miss
 *			header(top) = 0; the spare is the caller's
 *	put_spare	if (!top, or header(top)) miss; header(top) = sheaf
 * All but the copies and the swap are C code (visit.h), and end in one sequence. A word that the operation went by is
 * one of `seen`:
 *	commit		if (this CPU's slot, where it is open, is not `slot`) miss
 *			for each of seen: if (*word is another) miss
 *			*first = one; *last = other
 */
#ifndef KM_PERCPU_PCPU_H
#define KM_PERCPU_PCPU_H

#include <kmem/inline.h>
#include <kmem/record.h>

#include "base/atomic.h"
#include "base/cc.h"
#include "os/die.h"
#include "os/lock.h"
#include "os/os.h"

/* A per-CPU word: a pointer, an offset or a number. */
typedef uint64_t km_word __attribute__((may_alias));

/* A word that an operation has read, and its value. */
struct km_seen {
	const km_word *word;
	uint64_t is;
};

/* Operands of the commit of a per-CPU operation (KM_OPERATION commit). */
struct km_commit {
	uintptr_t slot;		/* address of the pcs word when it was read; names the CPU, too */
	struct km_seen seen[3];
	km_word *first, one;	/* first store: a word without readers before the last store */
	km_word *last, other;
	km_word unused;	/* target of a first store that does nothing */
};

_Static_assert(offsetof(struct km_commit, seen) == 8 && offsetof(struct km_commit, first) == 56 &&
	       offsetof(struct km_commit, last) == 72, "the sequences spell these");

/* An operation of misses: km_rseq_NAME by CPU, and km_cid_NAME by concurrency id, with the same text (cid_ops.c).
 * KM_BY_CID declares the latter. */
#ifndef KM_OPERATION
#define KM_OPERATION(type, name) km_inline type km_rseq_##name
#define KM_BY_CID(name) __typeof__(km_rseq_##name) km_cid_##name;
#endif
/* A sequence: instructions with the commit at the end, outputs, inputs, and registers changed besides. A miss jumps to
 * the label `miss`. [area] is the first scratch register. */
#define KM_SEQUENCE(instructions, outputs, inputs, ...)                                            \
	__asm__ volatile goto(KMEM_RSEQ_BEGIN("area") instructions KMEM_RSEQ_END("miss")           \
			      : outputs : inputs : "memory", "cc", ##__VA_ARGS__ : miss)
#define KM_OPERANDS(...) __VA_ARGS__
/* End of a function that holds a sequence: return `committed` after the commit, or `missed` at the label `miss`. */
#define KM_RSEQ_RETURN(committed, missed)                                                          \
	return committed;                                                                          \
miss:                                                                                              \
	KMEM_RSEQ_MISSED;                                                                          \
	return missed
/* End of a function that returns the object of its sequence: the object is not NULL after the commit, as the compiler
 * can't know. */
#define KM_RSEQ_RETURN_OBJECT(object)                                                              \
	if (!object)                                                                               \
		__builtin_unreachable();                                                           \
	KM_RSEQ_RETURN((void *)object, NULL)

enum km_discipline {
	KM_DISCIPLINE_LOCK,	/* a per-CPU trylock; a thread that finds the lock taken misses, and never waits */
	KM_DISCIPLINE_CMPXCHG,	/* a transaction id and a 16-byte compare-and-swap; a push takes the lock */
	KM_DISCIPLINE_RSEQ,
	KM_DISCIPLINE_NONE,	/* no per-CPU memory available: no sheaves */
};

/* The number by which a sequence finds its area. */
enum km_index {
	KM_INDEX_NONE,		/* no index: another discipline, or not chosen yet */
	KM_INDEX_CPU,
	KM_INDEX_CID,		/* concurrency id (cid_ops.c); hits index by CPU, and miss in this mode */
};

/* The areas. Their number is a CPU number or a concurrency id: in this folder "CPU" means either. */
struct km_percpu {
	char *base;			/* address of area 0; before the start a few zeros */
	unsigned cpus;			/* number of areas that are online or may go online */
	unsigned home;			/* number of the area that is always online */
	enum km_discipline discipline;
	enum km_index index;
	bool own_registration;		/* the library, not libc, registers threads for rseq, at the first miss of
					 * each */
	const char *reason;
	uint64_t live[KM_MAX_CPUS / 64];	/* a bit for each area that is online */
};
extern km_hidden struct km_percpu km_percpu;

/* Offsets of rseq areas from the thread pointer. A hit stores to the area at km_rseq and reads its CPU from there.
 * km_rseq leads to the thread's rseq area, or to a dummy on CPU 0, whose sheaves read as closed then. The dummy is in
 * force, from the first instruction on, where no thread is registered, and where areas are indexed by concurrency id.
 * km_thread_rseq leads to the thread's rseq area under both indexes, for callers that have checked km_percpu.index. */
extern km_hidden intptr_t km_rseq, km_thread_rseq;
/* As km_rseq, for hits by concurrency id only. */
extern km_hidden intptr_t km_cid_rseq;

/* Fast-path gate. A request from outside the process (cache/mailbox.h) turns each call into a miss by a store from the
 * other process. The store sets the words by which hits find their rseq area to `shut`, a place whose CPU is -1. A hit
 * then finds the zeros below the areas. Misses use km_thread_rseq, which does not change. A miss finds the cached
 * objects, and checks whether the gate is shut (fast_path.h). A sequence under way has loaded its word already, and
 * ends normally. word: km_cid_rseq, if in use, and km_rseq; misses of each index check the word. A request of several
 * ticks gets the ticks from the very next calls, of any kind. */
extern km_hidden struct kmem_gate km_gate;
/* A request from outside is in progress: the gate stays shut until its end. Written by ticks (inspect/mailbox.c). */
extern km_hidden bool km_gate_kept;
km_inline bool km_way_is_shut(intptr_t way)
{
	return km_unlikely(way == km_gate.shut);
}
void km_gate_open(void) km_cold;
/* Shut the gate from inside the library: the next call of kmalloc, kfree, malloc or free runs a tick. */
void km_gate_shut(void) km_cold;

/* All that a hit of kmalloc, kfree, malloc and free loads besides tables. Until higher layers fill in the fields, and
 * for ever under the soft disciplines, every pcs word is 0, and every map entry leads to a closed cache. */
struct km_hot {
	char *percpu;			/* address of area 0; an area of zeros while hits must miss */
	char *arena;			/* start of the first range of pages */
	size_t pages;			/* number of committed pages */
	struct km_page *page;		/* a descriptor for each page */
	const uint16_t *map;		/* cache id of each page; tables indexed by id precede the map: id_table.h */
	struct kmem_cache **caches;	/* cache of each id; NULL: an address alone can't validate an object of this
					 * cache */
	uint64_t *owner;		/* objcg word of each page: page/obj_cgroups.h */
} km_aligned(64);
extern km_hidden struct km_hot km_hot;
/* Returns: the index of p's page in the first range; km_hot.pages or more if p is outside of the range. */
km_inline uintptr_t km_page_index(const void *p)
{
	return ((uintptr_t)p - (uintptr_t)km_hot.arena) >> KM_PAGE_SHIFT;
}

/* Per-CPU words of a cache under the soft disciplines. Under rseq, a cache has only the first word, and owned sheaves
 * (owned_sheaf.h) have a second word. 32 bytes, so that the structure lies in one cache line (km_percpu_alloc). */
struct km_soft {
	struct km_pair pair;	/* first: the top, or a chain's freelist; second: the transaction id of cmpxchg */
	uint32_t lock;
	uint64_t owner;		/* owner of the objects in the sheaf, 0: none; written under the lock */
};

/* Per-CPU sheaves of a cache; the first member of struct kmem_cache. */
struct km_pcs {
	struct kmem_cache_front front;	/* words that the fast path reads: open, or closed */
	struct kmem_pcs inner;	/* words that the operations below read: open except during a drain */
	uint32_t sheaf_mask;		/* bytes of a sheaf minus one; inner.mask is equal or smaller */
	uint32_t slot;			/* offset of the per-CPU word, open or closed; 0: none */
};

/* Returns: the offset, for a caller that runs while another thread may be making the pcs. Acquire pairs with the store
 * of `slot`, the last store of the making. */
km_inline uint32_t km_pcs_slot(const struct km_pcs *pcs)
{
	return km_load_acquire(&pcs->slot);
}

/* Makes sequences use a CPU whose sheaves are closed, for calls that precede km_percpu_start. */
void km_percpu_early(void);
/* Choose a discipline and an index, and map the areas. want: a discipline's name, or "auto"; by: "cpu", "cid" or
 * "auto". Context: once, before any thread starts. */
void km_percpu_start(const char *want, const char *by);
const char *km_discipline_name(enum km_discipline discipline);

/* Give back areas that no CPU of this machine can reach, after the program limited its address space to `limit`
 * bytes. */
void km_percpu_fit(size_t limit);
/* Keep mlockall from filling in areas that no CPU of this machine can reach. Called before and after the call. */
void km_percpu_show_beyond(bool show);
/* mlockall of libkmem-malloc (process/confine.c); NULL: not linked in. Another library's mlockall may precede this
 * one. */
extern km_hidden int (*km_own_mlockall)(int flags);

/* Allocate `bytes` at the same offset in every CPU's area. The memory is zero. Requires: bytes is a power of two <=
 * 4096. Returns: the offset; 0: no memory left. */
uint32_t km_percpu_alloc(size_t bytes);
/* Frees words, and clears them in every area. Requires: no thread uses the words. */
void km_percpu_free(uint32_t offset, size_t bytes);
/* Give pages of areas without a word in use back to the system: after enough frees, or `always`. */
void km_percpu_trim(bool always);
size_t km_percpu_word_bytes(void);
void km_percpu_fork(bool before, bool child);
/* Fork handler for locks at an offset of the areas. A CPU may come online meanwhile: only the locks taken before are
 * released. taken: the caller's bits of the CPUs with locks taken. */
void km_percpu_fork_locks(uint32_t offset, enum km_rank rank, uint64_t *taken, bool before, bool child);

km_inline char *km_area(unsigned cpu)
{
	return km_percpu.base + ((uintptr_t)cpu << KMEM_AREA_SHIFT);
}

/* Offset of an area's mark, in the line of word 0, beyond the words that closed pcs, chains and stocks read there. */
#define KM_AREA_MARK 56

/* Id of a pcs that is always empty, for sizes that always miss. In each online area its word leads to the next word, a
 * NULL. Word 0 is not used, because word 0 lies in its page's first line, as the heads of a program's pages do. All
 * these lines share one set of the processor's first-level cache, with 8 to 12 lines. */
#define KM_ID_EMPTY 16

km_inline bool km_cpu_is_online(unsigned cpu)
{
	/* Acquire pairs with the release in begin_area: a thread that reads the bit may store to the area. */
	return km_likely(cpu < km_percpu.cpus) &&
	       (km_load_acquire(&km_percpu.live[cpu / 64]) >> cpu % 64 & 1);
}

/* Returns: the first online CPU from `cpu` on; km_percpu.cpus or more if there is none. An object that was put on a CPU
 * before the last fence is on one of these CPUs. */
unsigned km_next_cpu(unsigned cpu);
#define km_for_each_cpu(cpu)                                                                       \
	for (unsigned cpu = km_next_cpu(0); cpu < km_percpu.cpus; cpu = km_next_cpu(cpu + 1))

/* Returns: the number of the CPU of this thread, under either index. The number may be stale at once, without harm. */
unsigned km_cpu_number(void);
/* Returns: the CPU that a sequence would use, if its area is online; else another online CPU. */
unsigned km_cpu(void);
/* Returns: this thread's concurrency id. */
uint32_t km_cid_of_thread(void) km_cold;
/* Returns: under rseq, the number by which a sequence would find its area; KM_MAX_CPUS or more if the thread has
 * none. */
km_inline uint32_t km_cpu_of_thread(void)
{
	if (km_unlikely(km_percpu.index == KM_INDEX_CID))
		return km_cid_of_thread();
	return *(volatile uint32_t *)((char *)__builtin_thread_pointer() + km_thread_rseq + 4);
}
/* Returns: true if hits use the CPU's words; false if hits miss. */
km_inline bool km_hits_by_cpu(void)
{
	return km_percpu.index == KM_INDEX_CPU;
}
/* Register this thread for rseq, if the library does so. Context: misses, before they look for a CPU to put objects
 * on. */
void km_thread_register(void);
/* Lend this thread's rseq area for the life of a vfork child, which runs on this thread's storage as another task. The
 * kernel writes an rseq area for the task that registered the area, and aborts only that task's sequences. So the area
 * is unregistered meanwhile, its CPU reads as none, and all calls of the child are misses. Returns: the registered
 * bytes, for km_thread_take_back; 0: the area was not registered, and stays so meanwhile; KM_NOT_LENT: the kernel
 * refused, and km_thread_take_back has nothing to do. */
#define KM_NOT_LENT ((size_t)-1)
size_t km_thread_lend(void);
void km_thread_take_back(size_t bytes);
/* Returns: true in a vfork child. A call that the child makes for itself must not act for the process. */
bool km_thread_is_lent(void);
km_inline void km_thread_enter(void)
{
	if (km_unlikely(km_percpu.own_registration))
		km_thread_register();
}

/* Returns: true if this thread has a CPU to put objects on. Under rseq false if the thread is not registered, or the
 * CPU's area is not online. */
km_inline bool km_thread_has_cpu(void)
{
	if (km_likely(km_percpu.discipline == KM_DISCIPLINE_RSEQ))
		return km_cpu_is_online(km_cpu_of_thread());
	return km_percpu.discipline != KM_DISCIPLINE_NONE;
}
/* Bring the area of this thread's CPU online, if the CPU can have one. Makes system calls, once for each CPU. */
void km_cpu_begin(void);

/* pop_n and push_n for disciplines lock and cmpxchg. They miss unless the owner word is `owner`; 0: a sheaf without an
 * owner. */
size_t km_soft_pop_n(struct km_pcs *pcs, uintptr_t owner, void **out, size_t count);
size_t km_soft_push_n(struct km_pcs *pcs, uintptr_t owner, void *const *in, size_t count);

/* The per-CPU operations for all callers but the fast path. They read the offset pcs->inner. */
void *km_pcs_pop(struct km_pcs *pcs);
bool km_pcs_push(struct km_pcs *pcs, void *object);
size_t km_pcs_pop_n(struct km_pcs *pcs, void **out, size_t count);
size_t km_pcs_push_n(struct km_pcs *pcs, void *const *in, size_t count);
/* Exchange main and spare. Returns: false without a spare, or with a spare that is empty (for_pop) or full. share: if
 * one sheaf has more objects than the other by more than half a sheaf, leave both about as full. */
bool km_pcs_swap(struct km_pcs *pcs, bool for_pop, bool share);
/* Detaches the main sheaf, if it is empty (for_pop) or full; the spare becomes main. Without a spare succeeds only with
 * `lone`. */
void **km_pcs_detach(struct km_pcs *pcs, bool for_pop, bool lone);
bool km_pcs_install(struct km_pcs *pcs, void **sheaf, void ***evicted);
void **km_pcs_take_spare(struct km_pcs *pcs);
bool km_pcs_put_spare(struct km_pcs *pcs, void **sheaf);

/* Drain. km_pcs_close closes the pcs to all callers. km_pcs_fence waits until no sequence that read the pcs as open is
 * in flight (false: impossible). km_pcs_take_cpu takes a CPU's main and spare (NULL without one). km_pcs_open opens the
 * pcs. The soft disciplines need no closing, because taking uses their lock. One drain at a time (KM_RANK_DRAIN). */
void km_pcs_close(struct km_pcs *pcs);
bool km_pcs_fence(void);
void km_pcs_take_cpu(struct km_pcs *pcs, unsigned cpu, void ***main_sheaf, void ***spare);
/* Install a sheaf as main on a CPU without a sheaf. Returns: false if the CPU has a sheaf now. */
bool km_pcs_put_cpu(struct km_pcs *pcs, unsigned cpu, void **sheaf);
void km_pcs_open(struct km_pcs *pcs, bool to_hot_path);
/* In the child of a fork: release the locks of threads that do not exist in the child. */
void km_pcs_fork_child(struct km_pcs *pcs);
/* Returns: the number of objects in the CPU's sheaves. Racy; exact while no thread uses the sheaves. */
size_t km_pcs_count_cpu(const struct km_pcs *pcs, unsigned cpu);
/* Returns: the CPU's word, racy: 0, or a value that changes with every pop and push. */
uint64_t km_pcs_top_cpu(const struct km_pcs *pcs, unsigned cpu);
/* Returns: true if the CPU has a spare. Racy. */
bool km_pcs_has_spare_cpu(const struct km_pcs *pcs, unsigned cpu);

/* Returns: the address of the sheaf's pad. */
km_inline uint64_t *km_sheaf_pad(const struct km_pcs *pcs, void *const *top)
{
	return (uint64_t *)(((uintptr_t)top | pcs->sheaf_mask) - 15);
}

/* Returns: the number of objects in a sheaf. top: the address of its first object. */
km_inline size_t km_sheaf_objects(const struct km_pcs *pcs, void *const *top)
{
	return (pcs->sheaf_mask - 15 - ((uintptr_t)top & pcs->sheaf_mask) -
		km_load(km_sheaf_pad(pcs, top))) / sizeof(void *);
}

/* Prefetches the first line of each object, all at once: another CPU wrote the lines, and each first write here would
 * wait for its line. */
km_inline void km_sheaf_fetch(void *const *top)
{
	for (; *top; top++)
		km_prefetch_write(*top);
}

/* Returns: the top of the sheaf when empty, the place of its NULL. */
km_inline void **km_sheaf_bottom(const struct km_pcs *pcs, void **top)
{
	uint64_t *pad = km_sheaf_pad(pcs, top);

	km_debug(*pad <= pcs->sheaf_mask - 15, "the bottom of a sheaf is inside of the sheaf");

	return (void **)((char *)pad - *pad);
}

/* Returns: the number of objects that the sheaf can take before the sheaf is full; 0: full. */
km_inline size_t km_sheaf_room(const struct km_pcs *pcs, void *const *top)
{
	return ((uintptr_t)top & km_load(&pcs->inner.mask)) / sizeof(void *);
}

km_inline void **km_sheaf_base(const struct km_pcs *pcs, void **top)
{
	return (void **)((uintptr_t)top & ~(uintptr_t)pcs->sheaf_mask);
}

/* Returns: the number of objects that an empty sheaf can take before the sheaf is full, under a mask. */
km_inline unsigned km_mask_capacity(uint32_t mask)
{
	return (mask + 1) / sizeof(void *) - 2;
}

km_inline uint64_t *km_sheaf_header(const struct km_pcs *pcs, void *const *top)
{
	return (uint64_t *)(((uintptr_t)top | pcs->sheaf_mask) - 7);
}

#endif
