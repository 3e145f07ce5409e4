/*
 * cpu.c: number of the CPU, areas of per-CPU memory, and choice of a discipline. Invariants: every pcs looks
 * closed, and sequences write only to a dummy, until km_percpu_start has run, in an unregistered thread, and on a
 * CPU without an online area. All online areas are committed equally far.
 */
#include "pcpu.h"

#include <pthread.h>

#include "base/bits.h"
#include "os/die.h"
#include "id_table.h"
#include "os/lock.h"

/* Symbols of glibc since 2.35, absent elsewhere. The size is 0 if glibc does not register threads. */
extern const unsigned int __rseq_size __attribute__((weak));
extern const ptrdiff_t __rseq_offset __attribute__((weak));

/* struct rseq of the kernel: the fields of its stable interface */
struct rseq_area {
	uint32_t cpu_id_start, cpu_id;
	uint64_t rseq_cs;
	uint32_t flags, node_id, mm_cid, padding;
} km_aligned(32);
_Static_assert(offsetof(struct rseq_area, mm_cid) == 24, "the sequences of cid_ops.c spell it");

/* Area of zeros before there are areas: has word 0, and the word of KM_ID_EMPTY. */
static uint64_t zero_area[KM_ID_EMPTY + 8] km_aligned(64);

struct km_percpu km_percpu = {
	.base = (char *)zero_area,
	.discipline = KM_DISCIPLINE_NONE,
	.index = KM_INDEX_NONE,
	.reason = "not started",
};

/* Page map without pages: every lookup ends at map entry 0, and at id 0. */
static struct {
	char tables[KM_ID_TABLES];
	uint16_t map[2];
} none km_sparse km_aligned(64);
struct km_hot km_hot = {
	.percpu = (char *)zero_area, .map = none.map, .caches = (struct kmem_cache **)zero_area,
};

static struct {
	struct km_lock lock;
	size_t committed;	/* committed bytes of each area */
	unsigned reach;		/* number of reserved areas */
	bool sees_locking;	/* calls of mlockall come to the library: areas beyond the CPUs are inaccessible only
				 * during these calls */
	unsigned locking;	/* number of threads in mlockall */
	pthread_key_t exit_key;
	size_t freed;		/* number of words freed since the last km_percpu_trim */
	uint32_t from[KMEM_AREA_SHIFT - 2];	/* no free run of 2^n words lies below this word */
	uint64_t used[(1u << KMEM_AREA_SHIFT) / 8 / 64];	/* a bit for each word of an area: the word is
								 * allocated */
} areas km_sparse = { .lock = KM_LOCK_INIT(KM_RANK_METADATA) };

#define AREA_BYTES ((size_t)1 << KMEM_AREA_SHIFT)
#define COMMIT_STEP ((size_t)64 << 10)
/* Number of areas made readable, so that a process may be restored on a machine with more CPUs; all, if the library
 * observes mlockall. Otherwise a call of mlockall would pay 4 KiB of page tables for each readable area. */
#define READABLE_AREAS 1024u
extern int mlockall(int flags) __attribute__((weak));
/* The mlockall of libkmem-malloc, NULL without libkmem-malloc (weak). Not const, because the compiler would fold this
 * definition's value. */
__attribute__((weak)) int (*km_own_mlockall)(int flags);

__attribute__((no_sanitize("address", "undefined"))) static intptr_t offset_of(void *tls)
{
	return (intptr_t)tls - (intptr_t)__builtin_thread_pointer();
}

/* rseq area for sequences of unregistered threads. The area names CPU 0, and CPU 0's pcs are closed at such a time. The
 * hot path may run before any constructor (the dynamic loader calls malloc), so km_rseq must be right before
 * constructors. Relocating the library runs the resolver of this ifunc, the only purpose of the ifunc. A static program
 * is relocated before the thread pointer is set. On x86-64 the linker knows the offset without the thread pointer. */
km_tls struct rseq_area km_dummy_area;
intptr_t km_rseq, km_thread_rseq, km_cid_rseq;
/* rseq area without a CPU, as an unregistered thread has: pcs read as zeros. Sequences store here as to the dummy. */
km_tls struct rseq_area km_nowhere_area = { .cpu_id = (uint32_t)-1 };
struct kmem_gate km_gate;
bool km_gate_kept;

__attribute__((no_sanitize("address", "undefined"))) static void find_dummy(void)
{
#ifdef __x86_64__
	intptr_t offset;

	__asm__("movq km_dummy_area@gottpoff(%%rip), %0" : "=r"(offset));
	km_rseq = km_thread_rseq = offset;
#else
	km_rseq = km_thread_rseq = offset_of(&km_dummy_area);
#endif
}

void km_percpu_early(void)
{
	if (!km_rseq)
		find_dummy();
}

#if defined(KMEM_HAVE_RSEQ) && defined(__GLIBC__)
static void nothing(void)
{
}

__attribute__((no_sanitize("address", "undefined"), used)) static void (*resolve(void))(void)
{
	find_dummy();
	return nothing;
}

void km_relocated(void) __attribute__((ifunc("resolve")));
__attribute__((used)) static void (*volatile relocated)(void) = km_relocated;
#else
__attribute__((constructor(101))) static void relocated(void)
{
	km_percpu_early();
}
#endif

static struct rseq_area *thread_area(void)
{
	return (struct rseq_area *)((char *)__builtin_thread_pointer() + km_thread_rseq);
}

uint32_t km_cid_of_thread(void)
{
	const volatile struct rseq_area *area = thread_area();

	return (uint32_t)((int32_t)area->cpu_id >> 31) | area->mm_cid;
}

unsigned km_cpu_number(void)
{
	unsigned cpu = (unsigned)-1;

	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		cpu = *(volatile uint32_t *)&thread_area()->cpu_id;
	else if (&__rseq_size && __rseq_size)	/* already registered by libc */
		cpu = *(volatile uint32_t *)((char *)__builtin_thread_pointer() + __rseq_offset + 4);
	return km_unlikely(cpu >= KM_MAX_CPUS) ? km_os_getcpu() : cpu;
}

/* Without rseq all areas are online, and several CPUs may share an area. */
unsigned km_cpu(void)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		unsigned here = km_cpu_of_thread();

		return km_cpu_is_online(here) ? here : km_percpu.home;
	}
	unsigned cpu = km_cpu_number();
	if (km_likely(cpu < km_percpu.cpus))
		return cpu;
	return km_percpu.cpus ? cpu % km_percpu.cpus : 0;
}

unsigned km_next_cpu(unsigned cpu)
{
	for (unsigned word = cpu / 64; word * 64 < km_percpu.cpus; word++, cpu = word * 64) {
		uint64_t bits = km_load_acquire(&km_percpu.live[word]) >> cpu % 64;

		if (bits)
			return cpu + (unsigned)__builtin_ctzll(bits);
	}
	return km_percpu.cpus;
}

/* A build without sequences does not register threads. */
#ifndef KMEM_HAVE_RSEQ
#define KMEM_RSEQ_SIGNATURE 0u
#endif

/* The thread's rseq area, if libc registers none (musl, old glibc). A kernel whose struct is larger than this variable
 * registers 32 bytes. */
km_tls union km_own_area {
	struct rseq_area area;
	char bytes[64];
} km_own_area km_aligned(64) = { .area.cpu_id = (uint32_t)-1 };
static size_t own_bytes;

/* Destructor of a thread: unregisters the rseq area before the thread's storage goes away, and marks the thread as
 * without a CPU. */
static void thread_exit(void *unused km_unused)
{
	km_os_rseq_unregister(&km_own_area, own_bytes, KMEM_RSEQ_SIGNATURE);
	km_own_area.area.cpu_id = (uint32_t)-2;
}

void km_thread_register(void)
{
	if (km_own_area.area.cpu_id != (uint32_t)-1 || km_thread.lent.children)
		return;
	km_own_area.area.cpu_id = (uint32_t)-2;
	if (km_os_rseq_register(&km_own_area, own_bytes, KMEM_RSEQ_SIGNATURE) == 0)
		pthread_setspecific(areas.exit_key, &km_own_area);
}

/* Unregisters the thread's rseq area. Tries both sizes that libc may have registered, because libc does not publish the
 * size: 32 bytes, or the kernel's. */
size_t km_thread_lend(void)
{
	struct rseq_area *area = thread_area();
	size_t bytes[] = { sizeof(*area), km_os_rseq_bytes() };

	km_thread.lent.children++;
	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ || *(volatile int32_t *)&area->cpu_id < 0)
		return 0;
	for (size_t i = 0; i < km_array_count(bytes); i++)
		if (!km_os_rseq_unregister(area, bytes[i], KMEM_RSEQ_SIGNATURE))
			return km_thread.lent.bytes = bytes[i];
	km_thread.lent.children--;
	return KM_NOT_LENT;
}

/* Registers the thread's rseq area again, after a vfork child has ended. rseq_cs is cleared first: the child's last
 * sequence must not be restarted in this thread. If the kernel refuses, the thread has no CPU. */
static void register_again(size_t bytes)
{
	struct rseq_area *area = thread_area();

	km_thread.lent.bytes = 0;
	*(volatile uint64_t *)&area->rseq_cs = 0;
	km_os_rseq_register(area, bytes, KMEM_RSEQ_SIGNATURE);
}

void km_thread_take_back(size_t bytes)
{
	km_debug(km_thread.lent.children, "a thread's area comes back as often as it was lent");
	km_thread.lent.children--;
	if (bytes)
		register_again(bytes);
}

bool km_thread_is_lent(void)
{
	return km_thread.lent.children != 0;
}

/* Registers the rseq area in a process that a vfork child has forked: its thread owns a copy of the area. */
static void own_again(void)
{
	km_thread.lent.children = 0;
	if (km_thread.lent.bytes)
		register_again(km_thread.lent.bytes);
}

/* Find a registration by glibc, or make one. Sets km_thread_rseq. Returns: false without a registration. */
static bool find_rseq(bool forced)
{
#ifndef KMEM_HAVE_RSEQ
	return false;
#endif
	if (&__rseq_size && __rseq_size >= 20) {
		km_thread_rseq = __rseq_offset;
		return (int32_t)thread_area()->cpu_id >= 0;
	}
	if (&__rseq_size && !forced)
		return false;
	own_bytes = km_os_rseq_bytes() <= sizeof(km_own_area) ? km_os_rseq_bytes() : sizeof(km_own_area.area);
	if (km_os_rseq_register(&km_own_area, own_bytes, KMEM_RSEQ_SIGNATURE) ||
	    pthread_key_create(&areas.exit_key, thread_exit)) {
		km_own_area.area.cpu_id = (uint32_t)-1;
		return false;
	}
	pthread_setspecific(areas.exit_key, &km_own_area);
	km_thread_rseq = offset_of(&km_own_area);
	km_percpu.own_registration = true;
	return true;
}
/* Makes all sequences use a dummy rseq area on CPU 0, whose sheaves are closed. */
static void go_by_dummy(void)
{
	find_dummy();
	km_percpu.index = KM_INDEX_NONE;
}

#define OWN_REGISTRATION	"restartable sequences, registered by libkmem"
#define LIBC_REGISTRATION	"restartable sequences, registered by libc"
#define BY_CID			"; areas by concurrency id"

static void choose(const char *want)
{
	bool forced = want && __builtin_strcmp(want, "rseq") == 0;

	go_by_dummy();
	if (want && !forced) {
		km_percpu.discipline = __builtin_strcmp(want, "cmpxchg") == 0 ?
					       KM_DISCIPLINE_CMPXCHG : KM_DISCIPLINE_LOCK;
		km_percpu.reason = "requested by an option";
		return;
	}
	km_percpu.discipline = KM_DISCIPLINE_LOCK;
	if (!forced && !km_os_rseq_aborts()) {
		km_percpu.reason = "this kernel (6.19 to 7.0.13) does not abort every preempted sequence; "
				   "KMEM_PERCPU=rseq forces rseq";
	} else if (!find_rseq(forced)) {
		km_percpu.reason = "threads have no restartable sequences (rseq)";
	} else if (km_os_barrier_register()) {
		km_percpu.reason = "membarrier's rseq command is refused";
	} else {
		km_percpu.discipline = KM_DISCIPLINE_RSEQ;
		km_percpu.index = KM_INDEX_CPU;
		km_percpu.reason = km_percpu.own_registration ? OWN_REGISTRATION : LIBC_REGISTRATION;
		return;
	}
	km_percpu.own_registration = false;
	go_by_dummy();
}

/* Value written by no_cid in place of the concurrency id: the number of no area. */
#define PLANTED UINT32_MAX

/* Returns: why concurrency ids can't index areas; NULL: they can. A new kernel and a registration are not enough,
 * because a layer between may not write the field. So the thread unregisters, writes PLANTED to the field, and
 * registers again: the kernel writes the thread's number before the call returns, or never. */
static const char *no_cid(void)
{
	struct rseq_area *area = thread_area();

	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ)
		return "restartable sequences (rseq) are not available";
	if (km_os_rseq_features() < offsetof(struct rseq_area, padding))
		return "the kernel provides no concurrency ids (AT_RSEQ_FEATURE_SIZE)";
	size_t bytes = km_thread_lend();
	if (bytes == KM_NOT_LENT)
		return "the rseq area of the thread cannot be unregistered for a test";
	*(volatile uint32_t *)&area->mm_cid = PLANTED;
	km_thread_take_back(bytes);
	if (*(volatile int32_t *)&area->cpu_id < 0)
		return "the rseq area of the thread cannot be registered again after a test";
	if (*(volatile uint32_t *)&area->mm_cid >= KM_MAX_CPUS)
		return "the kernel does not write the concurrency id";
	return NULL;
}

static void choose_index(const char *by)
{
	if (!by || __builtin_strcmp(by, "cpu") == 0)
		return;
	const char *why = no_cid();

	if (!why) {
		km_percpu.index = KM_INDEX_CID;
		km_percpu.reason = km_percpu.own_registration ? OWN_REGISTRATION BY_CID : LIBC_REGISTRATION BY_CID;
	} else if (__builtin_strcmp(by, "auto")) {
		km_warn("KMEM_OPTIONS: index:cid is not available: %s; index:cpu is used", why);
	}
}

/* ------------------------------------------------------------------ areas */

static bool commit_to(size_t bytes)
{
	km_debug(km_is_locked(&areas.lock) && bytes > areas.committed && bytes <= AREA_BYTES,
		 "areas grow together, under their lock");
	km_for_each_cpu(cpu)
		if (km_os_commit(km_area(cpu) + areas.committed, bytes - areas.committed))
			return false;
	areas.committed = bytes;
	return true;
}

/* Brings an area online: makes the area writable. Requires: the lock, or no other threads yet. */
static bool begin_area(unsigned cpu)
{
	uint64_t *live = &km_percpu.live[cpu / 64];

	if (km_cpu_is_online(cpu))
		return true;
	km_debug(cpu < km_percpu.cpus && areas.committed, "an area coming online has a valid CPU");
	if (km_os_commit(km_area(cpu), areas.committed))
		return false;
	km_store((uint64_t *)km_area(cpu) + KM_ID_EMPTY, (uint64_t)(KM_ID_EMPTY + 1) * sizeof(uint64_t));
	/* Release pairs with km_cpu_is_online. */
	km_store_release(live, *live | (uint64_t)1 << cpu % 64);
	/* The mark comes last: a drain, which goes by `live`, must find all that a sequence stores. */
	km_store_release((uint64_t *)(km_area(cpu) + KM_AREA_MARK), (uint64_t)1);
	return true;
}

/* Tries the lock only: a thread that finds the lock taken tries again at its next miss. */
void km_cpu_begin(void)
{
	uint32_t cpu = km_cpu_of_thread();

	if (km_percpu.discipline != KM_DISCIPLINE_RSEQ || cpu >= km_percpu.cpus || !km_trylock(&areas.lock))
		return;
	begin_area(cpu);
	km_unlock(&areas.lock);
}

/* Makes the areas beyond those of the machine's CPUs readable (show), or inaccessible. */
static bool show_beyond(bool show)
{
	const unsigned count = areas.reach - km_percpu.cpus;

	return !count || !km_os_protect(km_area(km_percpu.cpus), count * AREA_BYTES, show);
}

/* Makes all areas beyond those of the CPUs readable, or inaccessible. Requires: the lock, or the child of a fork. */
static void show_all_beyond(bool show)
{
	if (areas.sees_locking && km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		show_beyond(show);
}

void km_percpu_show_beyond(bool show)
{
	km_lock_scope(&areas.lock);
	if (!show && !areas.locking++)
		show_all_beyond(false);
	/* The count may be 0 in the child of a handler's fork. */
	if (show && areas.locking && !--areas.locking)
		show_all_beyond(true);
}

/* Reserve address space for as many areas as the limit allows, at least `cpus`. Memory beyond the range belongs to
 * other code, and a sequence does not compare its CPU's number with a bound. */
static char *reserve_areas(unsigned cpus)
{
	size_t limit = km_os_address_limit();
	unsigned reach = (unsigned)km_max(km_min(km_os_address_room() / 64 / AREA_BYTES, (size_t)KM_MAX_CPUS),
					   (size_t)cpus);

	if (cpus + 2 > limit / 4 / AREA_BYTES && limit != SIZE_MAX)
		return NULL;
	char *range = km_os_reserve((reach + 2) * AREA_BYTES, AREA_BYTES);
	if (!range) {
		reach = cpus;
		range = km_os_reserve((reach + 2) * AREA_BYTES, AREA_BYTES);
	}
	if (!range)
		return NULL;
	if (km_os_commit_readonly(range, (cpus + 2) * AREA_BYTES)) {
		km_os_unmap(range, (reach + 2) * AREA_BYTES);
		return NULL;
	}
	km_os_name(range, (reach + 2) * AREA_BYTES, "libkmem: per-CPU areas");
	areas.reach = reach;
	return range;
}

/* Makes areas beyond km_percpu.cpus readable: a sequence may run on a CPU that the machine did not report. Not all
 * areas, because memcheck scans all readable memory. */
static bool show_rest(unsigned masks)
{
	const unsigned first = km_percpu.cpus, some = km_min(areas.reach, km_max(masks, READABLE_AREAS));

	areas.sees_locking = !mlockall || mlockall == km_own_mlockall;
	if (areas.sees_locking)
		return show_beyond(true);
	return some <= first || !km_os_commit_readonly(km_area(first), (some - first) * AREA_BYTES);
}

/* Unmaps areas that no CPU can reach: the kernel's CPU masks have no bit for their numbers. */
void km_percpu_fit(size_t limit)
{
	km_lock_scope(&areas.lock);
	size_t reach = km_max(km_min(limit / 64 / AREA_BYTES, (size_t)areas.reach), (size_t)km_percpu.cpus);
	if (reach < areas.reach) {
		km_debug(reach >= km_percpu.cpus, "areas that may come online stay");
		km_os_unmap(km_area((unsigned)reach), (areas.reach - reach) * AREA_BYTES);
		areas.reach = (unsigned)reach;
	}
}

/* Reserve fewer areas, shared by CPUs, for a soft discipline without address space for all. */
static char *reserve_some(unsigned *cpus)
{
	for (; *cpus; *cpus /= 2) {
		size_t bytes = (*cpus + 2) * AREA_BYTES;
		char *range = bytes <= km_os_address_limit() / 32 || *cpus == 1 ?
				      km_os_reserve(bytes, AREA_BYTES) : NULL;

		if (range && !km_os_commit_readonly(range, bytes))
			return range;
		if (range)
			km_os_unmap(range, bytes);
	}
	return NULL;
}

/* Brings areas online at the start: one under rseq; all without rseq, where operations write without a check. */
static bool begin_areas(void)
{
	areas.committed = COMMIT_STEP;
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ) {
		unsigned cpu = km_cpu_of_thread();

		km_percpu.home = cpu < km_percpu.cpus ? cpu : 0;
		return begin_area(km_percpu.home);
	}
	for (unsigned cpu = 0; cpu < km_percpu.cpus; cpu++)
		if (!begin_area(cpu))
			return false;
	return true;
}

static void do_without(void)
{
	km_percpu.base = (char *)zero_area;
	km_percpu.cpus = 0;
	km_percpu.discipline = KM_DISCIPLINE_NONE;
	km_percpu.own_registration = false;
	km_percpu.reason = "no memory for per-CPU areas";
	go_by_dummy();
}

static void start_areas(const char *want, const char *by)
{
	unsigned masks, cpus = km_os_possible_cpus(&masks);
	char *range = reserve_areas(cpus);
	bool some = !range;

	go_by_dummy();
	if (some)
		range = reserve_some(&cpus);
	if (!range) {
		do_without();
		return;
	}
	km_percpu.base = range + 2 * AREA_BYTES;
	km_percpu.cpus = cpus;
	km_debug(cpus && cpus <= KM_MAX_CPUS && !((uintptr_t)range & (AREA_BYTES - 1)),
		 "areas are aligned to their size");
	/* Mark as used the cache line of word 0, and the two words of the empty pcs. */
	areas.used[0] = 0xff | (uint64_t)3 << KM_ID_EMPTY;
	choose(some && (!want || __builtin_strcmp(want, "rseq") == 0) ? "lock" : want);
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ && !show_rest(masks)) {
		choose("lock");
		km_percpu.own_registration = false;
		km_percpu.reason = "the system refuses per-CPU areas for further CPUs";
	}
	if (some)
		km_percpu.reason = "too little address space for an area for each CPU; raise ulimit -v";
	choose_index(by);
	km_debug(km_percpu.discipline == KM_DISCIPLINE_RSEQ || !km_percpu.own_registration,
		 "threads are registered only under discipline rseq");
	if (!begin_areas()) {
		do_without();
		return;
	}
	km_debug(km_cpu_is_online(km_percpu.home) && !*(uint64_t *)km_area(km_percpu.home), "word 0 of an area is 0");
	/* If a pcs is not a single word, or not indexed by CPU, hits must miss: they read zeros below the areas. Two
	 * zero areas precede the first area, for the dummy's CPU and for CPU -1. */
	km_store_release(&km_hot.percpu, km_hits_by_cpu() ? km_percpu.base : range + AREA_BYTES);
	if (km_hits_by_cpu())
		km_store_release(&km_rseq, km_thread_rseq);
}

static void set_gate(const intptr_t values[2])
{
	for (size_t i = 0; i < km_array_count(km_gate.word); i++)
		if (km_gate.word[i] && km_load(km_gate.word[i]) != values[i])
			km_store(km_gate.word[i], values[i]);
}

void km_gate_open(void)
{
	set_gate(km_gate.open);
}

void km_gate_shut(void)
{
	set_gate((const intptr_t[]){ km_gate.shut, km_gate.shut });
}

/* Records in km_gate the words that shut the gate, and their open values. By concurrency id hits have a word of their
 * own. Without areas the gate can't be shut. */
static void describe_gate(void)
{
	km_cid_rseq = km_thread_rseq;
	km_gate.open[0] = km_cid_rseq;
	km_gate.open[1] = km_rseq;
	if (km_percpu.discipline == KM_DISCIPLINE_NONE)
		return;
	if (km_percpu.index == KM_INDEX_CID)
		km_gate.word[0] = &km_cid_rseq;
	km_gate.word[1] = &km_rseq;
	km_gate.in_caches = km_hits_by_cpu();
	km_gate.shut = offset_of(&km_nowhere_area);
	km_debug(km_gate.shut != km_rseq && km_gate.shut != km_cid_rseq,
		 "the shut value of the gate differs from its open values");
}

/* Prints a warning if the option's discipline is not available: a measurement would be of another discipline. */
void km_percpu_start(const char *want, const char *by)
{
	want = __builtin_strcmp(want, "auto") ? want : NULL;
	start_areas(want, by);
	describe_gate();
	const char *is = km_discipline_name(km_percpu.discipline);

	if (want && __builtin_strcmp(want, is))
		km_warn("discipline %s is not available: %s; discipline %s is used", want, km_percpu.reason, is);
}

const char *km_discipline_name(enum km_discipline discipline)
{
	static const char *const names[] = { "lock", "cmpxchg", "rseq", "none" };

	return names[discipline];
}

size_t km_percpu_word_bytes(void)
{
	return km_percpu.discipline == KM_DISCIPLINE_RSEQ ? 8 : 32;
}

/* Returns: true if words at this place are slow to use. The processor first matches a store with later loads by the low
 * 12 bits. A pcs word at the same place in its page as rseq_cs, which every sequence stores, makes a pair half slower
 * (18.5 cycles for 11.6). Such a word is not used, for the thread that starts the library. In most other threads
 * rseq_cs has another place, and meets one cache in 512. The place of the page map's first entry is not used either:
 * each free outside of the range loads this entry. */
static bool aliases(uintptr_t address, size_t word, size_t words)
{
	size_t offset = (address & (KM_PAGE_SIZE - 1)) / 8;

	return offset - word % (KM_PAGE_SIZE / 8) < words;
}

static bool run_is_free(size_t word, size_t words)
{
	if (words < 64 &&
	    (aliases((uintptr_t)&thread_area()->rseq_cs, word, words) || aliases(KM_MAP_SKEW, word, words)))
		return false;
	for (size_t i = word; i < word + words; i++)
		if (areas.used[i / 64] >> (i % 64) & 1)
			return false;
	return true;
}

static void mark(size_t word, size_t words, bool used)
{
	for (size_t i = word; i < word + words; i++) {
		km_debug((areas.used[i / 64] >> i % 64 & 1) != used,
			 "a per-CPU word is allocated once, and freed once");
		areas.used[i / 64] ^= (uint64_t)1 << i % 64;
	}
}

/* Word at which the search for few words begins: in the last quarter of an area's first page. The load of a pcs word
 * waits for an older store with the same low 12 bits, for example a user's store to a new object. Such stores are more
 * often at the start of a page than at the end: a slab's first object, which is allocated first, begins a page. */
#define PAGE_WORDS	(KM_PAGE_SIZE / 8)
#define TRIM_FROM	(16 * PAGE_WORDS)	/* words freed before a tick trims the areas */
#define LAST_QUARTER	(PAGE_WORDS / 4 * 3)

static size_t find_run(size_t from, size_t to, size_t words)
{
	for (size_t word = from; word < to; word += words) {
		if (words < 64 && areas.used[word / 64] == UINT64_MAX)
			word = km_align_up(word + 1, 64) - words;
		else if (run_is_free(word, words))
			return word;
	}
	return 0;
}

/* Clears `bytes` at this offset in all areas. A zero word is not written, so that an untouched page stays untouched. */
static void clear_everywhere(uint32_t offset, size_t bytes)
{
	km_for_each_cpu(cpu)
		for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
			uint64_t *word = (uint64_t *)(km_area(cpu) + offset + at);

			if (km_load(word))
				km_store(word, (uint64_t)0);
		}
}

/* For an assertion: returns true if the words at this offset are zero in all areas. */
static km_unused bool is_zero_everywhere(uint32_t offset, size_t bytes)
{
	uint64_t some = 0;

	km_for_each_cpu(cpu)
		for (size_t at = 0; at < bytes; at += sizeof(some))
			some |= km_load((uint64_t *)(km_area(cpu) + offset + at));
	return !some;
}

uint32_t km_percpu_alloc(size_t bytes)
{
	size_t words = bytes / 8, found = 0;

	if (km_percpu.discipline == KM_DISCIPLINE_NONE)
		return 0;
	km_debug(km_is_pow2(bytes) && bytes >= 8 && bytes <= KM_PAGE_SIZE, "a run of words is a power of two");
	km_lock_scope(&areas.lock);
	uint32_t *from = &areas.from[__builtin_ctzl(words)];
	if (words < 64)
		found = find_run(LAST_QUARTER, PAGE_WORDS, words);
	if (!found) {
		found = find_run(*from, AREA_BYTES / 8, words);
		*from = (uint32_t)(found ?: AREA_BYTES / 8);
	}
	if (found && (found + words) * 8 > areas.committed && !commit_to(km_align_up((found + words) * 8, COMMIT_STEP)))
		found = 0;
	if (found) {
		km_debug((found + words) * 8 <= areas.committed && found % words == 0, "allocated words are committed");
		km_debug(is_zero_everywhere((uint32_t)(found * 8), bytes), "allocated words are zero");
		mark(found, words, true);
	}
	return (uint32_t)(found * 8);
}

void km_percpu_free(uint32_t offset, size_t bytes)
{
	if (!offset)
		return;
	km_debug(offset % bytes == 0 && offset + bytes <= areas.committed, "words are freed with their allocated size");
	km_lock_scope(&areas.lock);
	clear_everywhere(offset, bytes);
	mark(offset / 8, bytes / 8, false);
	km_bump(&areas.freed, bytes / 8);
	for (size_t n = 0; n < km_array_count(areas.from); n++)
		areas.from[n] = km_min(areas.from[n], offset / 8 >> n << n);
}

/* Returns: the next word in use in [word, to), rounded down to a multiple of 64; `to` if there is none. */
static size_t first_used(size_t word, size_t to)
{
	while (word < to && !areas.used[word / 64])
		word += 64;
	return km_min(word, to);
}

void km_percpu_trim(bool always)
{
	const size_t unit = km_os_page_bytes();

	if (km_load(&areas.freed) < (always ? 1 : TRIM_FROM))
		return;
	km_busy_lock_scope(&areas.lock);
	/* The first page has words that are never freed. */
	for (size_t at = unit, end; at < areas.committed; at = end) {
		end = km_align_down(first_used(at / 8, areas.committed / 8) * 8, unit);
		if (end > at)
			km_for_each_cpu(cpu)
				km_os_purge(km_area(cpu) + at, end - at);
		end += end < areas.committed ? unit : 0;
	}
	km_store(&areas.freed, (size_t)0);
}

void km_percpu_fork(bool before, bool child)
{
	km_lock_around_fork(&areas.lock, before, child);
	if (!child)
		return;
	km_store(&km_gate_kept, false);
	km_gate_open();
	own_again();
	if (areas.locking)
		show_all_beyond(true);
	areas.locking = 0;
}
