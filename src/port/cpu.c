/*
 * cpu.c: which CPU this is, the areas of per-CPU memory, and the choice of a discipline. Invariant: until
 * km_percpu_start has run, and in a thread that is not registered, every shelf looks closed, and nothing but a
 * dummy of ours is written.
 */
#include "pcpu.h"

#include <pthread.h>

#include "bits.h"
#include "die.h"
#include "lock.h"
#include "os.h"

/* glibc >= 2.35; absent elsewhere. Its size is 0 where it does not register threads. */
extern const unsigned int __rseq_size __attribute__((weak));
extern const ptrdiff_t __rseq_offset __attribute__((weak));

/* struct rseq, as far as anybody may rely on it. */
struct rseq_area {
	uint32_t cpu_id_start, cpu_id;
	uint64_t rseq_cs;
	uint32_t flags, node_id, mm_cid, padding;
} km_aligned(32);

/* Word 0 of an area, before there are areas. */
static uint64_t zero_area[8] km_aligned(64);

struct km_percpu km_percpu = {
	.base = (char *)zero_area,
	.discipline = KM_DISCIPLINE_NONE,
	.reason = "not started",
};

/* No page is in the arena: every lookup ends at map entry 0. */
static const uint16_t no_map[1];
struct km_hot km_hot = {
	.percpu = (char *)zero_area, .map = no_map, .entries = (struct km_entry *)zero_area,
};

static struct {
	struct km_lock lock;
	size_t committed;	/* bytes of each area */
	pthread_key_t exit_key;
	uint64_t used[(1u << KMEM_AREA_SHIFT) / 8 / 64];	/* a bit for each word of an area */
	uint32_t from[KMEM_AREA_SHIFT - 2];	/* below this word no run of 2^n words is to be had */
} areas = { .lock = KM_LOCK_INIT(KM_RANK_META) };

#define AREA_BYTES ((size_t)1 << KMEM_AREA_SHIFT)
#define COMMIT_STEP ((size_t)64 << 10)

__attribute__((no_sanitize("address", "undefined"))) static intptr_t offset_of(void *tls)
{
	return (intptr_t)tls - (intptr_t)__builtin_thread_pointer();
}

/*
 * What sequences write to where nobody is registered: its CPU is 0, whose shelves are closed then. The hot path may
 * run before any constructor (the dynamic loader calls malloc), so km_rseq must be right before that: relocating
 * the library runs the resolver of this ifunc, which exists for nothing else.
 */
static km_tls struct rseq_area dummy;
intptr_t km_rseq;

#if defined(KMEM_HAVE_RSEQ) && defined(__GLIBC__)
static void nothing(void)
{
}

__attribute__((no_sanitize("address", "undefined"), used)) static void (*resolve(void))(void)
{
	km_rseq = offset_of(&dummy);
	return nothing;
}

void km_relocated(void) __attribute__((ifunc("resolve")));
__attribute__((used)) static void (*volatile relocated)(void) = km_relocated;
#else
__attribute__((constructor(101))) static void relocated(void)
{
	if (!km_rseq)
		km_rseq = offset_of(&dummy);
}
#endif

static struct rseq_area *thread_area(void)
{
	return (struct rseq_area *)((char *)__builtin_thread_pointer() + km_rseq);
}

unsigned km_cpu(void)
{
	unsigned cpu = (unsigned)-1;

	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		cpu = *(volatile uint32_t *)&thread_area()->cpu_id;
	else if (&__rseq_size && __rseq_size)	/* a load, where libc registered; below a call */
		cpu = *(volatile uint32_t *)((char *)__builtin_thread_pointer() + __rseq_offset + 4);
	if (km_unlikely(cpu >= km_percpu.cpus))
		cpu = km_os_getcpu();
	return cpu < km_percpu.cpus ? cpu : 0;
}

bool km_thread_has_cpu(void)
{
	if (km_percpu.discipline == KM_DISCIPLINE_RSEQ)
		return *(volatile int32_t *)&thread_area()->cpu_id >= 0;
	return km_percpu.discipline != KM_DISCIPLINE_NONE;
}

#ifdef KMEM_HAVE_RSEQ
/* Our own registration: musl, an old glibc. */
static km_tls struct rseq_area own = { .cpu_id = (uint32_t)-1 };

/* Before the thread's own storage goes away; the value tells the kernel nothing, it is ours. */
static void thread_exit(void *unused km_unused)
{
	km_os_rseq_unregister(&own, KMEM_RSEQ_SIGNATURE);
	own.cpu_id = (uint32_t)-2;
}

void km_thread_register(void)
{
	if (own.cpu_id != (uint32_t)-1)
		return;
	own.cpu_id = (uint32_t)-2;
	if (km_os_rseq_register(&own, KMEM_RSEQ_SIGNATURE) == 0)
		pthread_setspecific(areas.exit_key, &own);
}

/* Is there a registration, glibc's or one of our own? Sets km_rseq. */
static bool find_rseq(bool forced)
{
	if (&__rseq_size && __rseq_size >= 20) {
		km_rseq = __rseq_offset;
		return (int32_t)thread_area()->cpu_id >= 0;
	}
	if (&__rseq_size && !forced)
		return false;
	if (km_os_rseq_register(&own, KMEM_RSEQ_SIGNATURE) || pthread_key_create(&areas.exit_key, thread_exit)) {
		own.cpu_id = (uint32_t)-1;
		return false;
	}
	pthread_setspecific(areas.exit_key, &own);
	km_rseq = offset_of(&own);
	km_percpu.own_registration = true;
	return true;
}
#else
void km_thread_register(void)
{
}

static bool find_rseq(bool forced km_unused)
{
	return false;
}
#endif

static void choose(const char *want)
{
	bool forced = want && __builtin_strcmp(want, "rseq") == 0;

	km_rseq = offset_of(&dummy);
	if (want && !forced) {
		km_percpu.discipline = __builtin_strcmp(want, "cmpxchg") == 0 ?
					       KM_DISCIPLINE_CMPXCHG : KM_DISCIPLINE_LOCK;
		km_percpu.reason = "asked for by option";
		return;
	}
	km_percpu.discipline = KM_DISCIPLINE_LOCK;
	if (!find_rseq(forced)) {
		km_percpu.reason = "threads have no restartable sequences (rseq)";
	} else if (km_os_barrier_register()) {
		km_percpu.reason = "membarrier's rseq command is refused";
	} else {
		km_percpu.discipline = KM_DISCIPLINE_RSEQ;
		km_percpu.reason = km_percpu.own_registration ?
					   "restartable sequences, registered by libkmem" :
					   "restartable sequences, registered by libc";
		return;
	}
	km_percpu.own_registration = false;
	km_rseq = offset_of(&dummy);
}

static bool commit_to(size_t bytes)
{
	for (unsigned cpu = 0; cpu < km_percpu.cpus; cpu++)
		if (km_os_commit(km_area(cpu) + areas.committed, bytes - areas.committed))
			return false;
	areas.committed = bytes;
	return true;
}

void km_percpu_start(const char *want)
{
	unsigned cpus = km_os_possible_cpus();
	char *range = km_os_reserve((cpus + 2) * AREA_BYTES, AREA_BYTES);

	km_rseq = offset_of(&dummy);
	if (!range || km_os_commit_readonly(range, 2 * AREA_BYTES)) {
		km_percpu.reason = "no memory for per-CPU areas";
		return;
	}
	km_os_name(range, (cpus + 2) * AREA_BYTES, "libkmem: per-CPU areas");
	char *boot_base = km_percpu.base;
	km_percpu.base = range + 2 * AREA_BYTES;
	km_percpu.cpus = cpus;
	if (!commit_to(COMMIT_STEP)) {
		km_percpu.base = boot_base;
		km_percpu.cpus = 0;
		km_percpu.reason = "no memory for per-CPU areas";
		return;
	}
	areas.used[0] = 0xff;	/* the line of word 0 */
	choose(want);
	/* Where shelves are not single words, ids lead to nothing: the zeros below the areas. */
	km_store_release(&km_hot.percpu, km_percpu.discipline == KM_DISCIPLINE_RSEQ ?
					       km_percpu.base : range);
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

/*
 * A store is matched with later loads by its low 12 bits first: a shelf's word whose place in its page is that of
 * the rseq_cs which every sequence stores makes a pair a half slower (measured: 18.5 cycles for 11.6). Not used, for
 * the thread that starts the library; others mostly have theirs at another place, where one cache in 512 meets it.
 */
static bool aliases_rseq_cs(size_t word, size_t words)
{
	size_t offset = ((uintptr_t)&thread_area()->rseq_cs & (KM_PAGE_SIZE - 1)) / 8;

	return offset - word % (KM_PAGE_SIZE / 8) < words;
}

static bool run_is_free(size_t word, size_t words)
{
	if (words < 64 && aliases_rseq_cs(word, words))
		return false;

	for (size_t i = word; i < word + words; i++)
		if (areas.used[i / 64] >> (i % 64) & 1)
			return false;
	return true;
}

static void mark(size_t word, size_t words, bool used)
{
	for (size_t i = word; i < word + words; i++) {
		if (used)
			areas.used[i / 64] |= (uint64_t)1 << (i % 64);
		else
			areas.used[i / 64] &= ~((uint64_t)1 << (i % 64));
	}
}

uint32_t km_percpu_alloc(size_t bytes)
{
	size_t words = bytes / 8, found = 0;

	if (km_percpu.discipline == KM_DISCIPLINE_NONE)
		return 0;
	km_lock(&areas.lock);
	uint32_t *from = &areas.from[__builtin_ctzl(words)];
	for (size_t word = *from; word < AREA_BYTES / 8 && !found; word += words) {
		if (words < 64 && areas.used[word / 64] == UINT64_MAX) {
			word = km_align_up(word + 1, 64) - words;
			continue;
		}
		if (run_is_free(word, words))
			found = word;
	}
	*from = (uint32_t)(found ?: AREA_BYTES / 8);
	if (found && (found + words) * 8 > areas.committed &&
	    !commit_to(km_align_up((found + words) * 8, COMMIT_STEP)))
		found = 0;
	if (found)
		mark(found, words, true);
	km_unlock(&areas.lock);
	return (uint32_t)(found * 8);
}

void km_percpu_free(uint32_t offset, size_t bytes)
{
	if (!offset)
		return;
	km_lock(&areas.lock);
	mark(offset / 8, bytes / 8, false);
	for (size_t n = 0; n < sizeof(areas.from) / sizeof(areas.from[0]); n++)
		areas.from[n] = km_min(areas.from[n], offset / 8 >> n << n);
	km_unlock(&areas.lock);
}

void km_percpu_fork(bool before, bool child)
{
	km_lock_around_fork(&areas.lock, before, child);
}
