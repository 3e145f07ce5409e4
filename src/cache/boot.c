/*
 * boot.c: first use, fork. Invariant: km_ready is set once, after everything below works; until then every shelf is
 * closed and every entry point comes here. A start that failed is tried again by the next caller. The handlers of fork
 * are known before the first start begins, so no child has a start, or a lock, that another thread had in hand.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>

#include "page/commit_ahead.h"
#include "page/huge.h"
#include "page/metadata.h"
#include "os/die.h"
#include "os/os.h"
#include "alloc/tracer.h"
#include "os/stderr.h"
#include "percpu/visit.h"
#include "kmalloc/realloc_run.h"
#include "kmalloc/large_cache.h"
#include "process_record.h"

bool km_ready;
void (*km_mempool_fork)(bool before, bool child);
static unsigned own_pid;	/* of the process that our handlers of fork know */

static struct {
	uint32_t state;		/* 0 not begun, 1 one thread is at it, or forks */
	bool pages, accounted;
	uint32_t handlers_by;	/* the process that registers those of fork, or has */
	enum { ASKED = 1, REFUSED } handlers;	/* 0: it is at it */
} boot;

/* This thread's forks that are under way. One by a handler that struck another takes nothing: the locks are its own. */
static km_tls unsigned forks;
static km_tls struct km_busy_was busy_before_fork;
static km_tls bool fork_has_registry, fork_has_start, fork_has_all, fork_has_observer;

/* A thread that has the state is busy: a handler in between would wait for its own thread. */
static void lock_state(void)
{
	uint32_t none = 0;

	while (!km_cas_acquire(&boot.state, &none, 1u)) {
		none = 0;
		km_os_wait(&boot.state, 1, 1);
	}
}

static void unlock_state(void)
{
	km_debug(boot.state == 1 || km_locks_let_go, "a start is given up by the thread that is at it");
	km_store_release(&boot.state, 0u);
}

/*
 * glibc's fork locks the list of open FILEs behind all handlers. A thread with this lock may wait for a FILE, and the
 * FILE's holder may wait for the allocator. So the list is locked before the allocator: handlers run before a fork in
 * the order last registered, first run, and the list's are registered last (docs/design/fork.md). A process with one
 * thread does not lock the list, as glibc does not: a signal handler may fork where the lock is half taken.
 */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak));
static km_tls unsigned fork_has_files;	/* how often this thread has locked the list */

static void lock_files(void)
{
	if (&__libc_single_threaded && __libc_single_threaded)
		return;
	const bool nested = km_thread_busy == KM_BUSY && !forks;
	if (nested)
		km_fork_behind_files(true);
	_IO_list_lock();
	if (nested)
		km_fork_behind_files(false);
	fork_has_files++;
}

static void unlock_files(void)
{
	if (!fork_has_files)
		return;
	fork_has_files--;
	_IO_list_unlock();
}

static void reset_files(void)
{
	if (fork_has_files)
		_IO_list_resetlock();
	fork_has_files = 0;
}

static void take_all(void)
{
	fork_has_observer = km_options.observed && fork_has_start && km_observer_ops->fork_prepare();
	km_reclaim_fork(true, false);
	fork_has_registry = km_registry_fork(true, false);
	if (fork_has_registry && km_has_accounting())
		km_charge_ops->fork(true, false);
	if (km_load_acquire(&km_grace))
		km_grace->fork(true, false);
	km_growth_fork(true, false);
	km_large_cache_fork(true, false);
	km_ahead_fork(true, false);
	km_arena_fork(true, false);
	km_huge_fork(true, false);
	km_percpu_fork(true, false);
	km_meta_fork(true, false);
	if (km_load_acquire(&km_mempool_fork))
		km_mempool_fork(true, false);
}

static void fork_done(bool child)
{
	km_debug(km_thread_busy, "a fork keeps signal handlers out where it gives its locks back");
	if (km_load_acquire(&km_mempool_fork))
		km_mempool_fork(false, child);
	km_meta_fork(false, child);
	km_percpu_fork(false, child);
	km_huge_fork(false, child);
	km_arena_fork(false, child);
	km_ahead_fork(false, child);
	km_large_cache_fork(false, child);
	km_growth_fork(false, child);
	if (km_load_acquire(&km_grace))
		km_grace->fork(false, child);
	if ((fork_has_registry || child) && km_has_accounting())
		km_charge_ops->fork(false, child);
	km_registry_fork(false, child);
	km_reclaim_fork(false, child);
	/* A request to this process is not its child's: that one would give back what both share. */
	if (child)
		km_store(&km_mail.asked, km_load(&km_mail.answered));
	if (km_options.observed)
		km_observer_ops->fork_done(child, fork_has_observer);
}

/* Give way to a handler's fork in wait for the list: the code under the handler holds a lock wanted by this fork. */
static void give_way(void)
{
	fork_done(false);
	unlock_state();
	unlock_files();
	km_fork_let_pass();
	lock_files();
	lock_state();
}

/* From here to the fork's end other handlers of fork may run and allocate: this thread passes the fork's locks. */
void km_boot_fork_prepare(void)
{
	km_visits_fork_prepare();
	if (forks++)
		return;
	busy_before_fork = km_busy_begin();
	/* A nested fork may have interrupted the start itself. */
	fork_has_start = busy_before_fork.busy != KM_BUSY;
	if (fork_has_start)
		lock_state();
	else
		km_locks_fork_nested();
	fork_has_all = km_load_acquire(&km_ready);
	while (fork_has_all && (take_all(), km_fork_gives_way()))
		give_way();
	km_busy_end(busy_before_fork);
}

static void fork_end(bool child)
{
	if (forks == 1) {
		km_locks_fork_end(child);
		if (fork_has_start)
			unlock_state();
	}
	forks--;
}

void km_boot_fork_parent(void)
{
	km_busy_scope(was);

	if (forks == 1 && fork_has_all)
		fork_done(false);
	fork_end(false);
}

/* Other threads are not here: all that they held is free. */
void km_boot_fork_child(void)
{
	struct km_busy_was was = km_busy_begin();

#ifdef KM_DEBUG
	km_locks_let_go |= forks > 1 || km_fork_is_nested();
#endif
	km_store(&own_pid, km_os_pid());
	if (fork_has_all) {
		fork_done(true);
		km_stderr_fork_child();
		/* Of a nested one: what another thread had, which forked as well. */
		if (!fork_has_start)
			km_store(&boot.state, 0u);
	}
	bool whole = forks == 1 && busy_before_fork.busy != KM_BUSY && fork_has_all;
	fork_end(true);
	km_busy_end(was);
	if (whole && km_has_accounting())
		km_charge_ops->forked();
}

bool km_boot_is_stray(void)
{
	return !km_os_is_shut() && km_os_pid() != km_load(&own_pid);
}

/* An unregistration by a wrong signature changes nothing. Its error is EPERM where this task registered the area. */
bool km_boot_is_borrower(void)
{
	char *area = (char *)__builtin_thread_pointer() + km_thread_rseq;

	return km_boot_is_stray() && km_percpu.discipline == KM_DISCIPLINE_RSEQ && (int32_t)km_cpu_of_thread() >= 0 &&
	       km_os_rseq_unregister(area, 32, 0) == -EINVAL &&
	       km_os_rseq_unregister(area, km_os_rseq_bytes(), 0) == -EINVAL;
}

/* The linker joins the registrations of all extensions in the program or the library; NULL: there is none. */
extern const struct km_registration __start_km_ops[] __attribute__((weak, visibility("hidden")));
extern const struct km_registration __stop_km_ops[] __attribute__((weak, visibility("hidden")));

static void set_hooks(void)
{
	for (const struct km_registration *each = __start_km_ops; each < __stop_km_ops; each++) {
		const char *table = (const char *)&each->table + each->table;

		__builtin_memcpy((char *)&each->hook + each->hook, &table, sizeof(table));
	}
}

static bool start(void)
{
	static bool options_read;

	if (!options_read) {
		options_read = true;
		set_hooks();
		km_store(&own_pid, km_os_pid());
		km_stderr_start();
		km_options_read();
		if (km_options.sanitize && km_sanitizer_ops)
			km_sanitizer_ops->start();
		km_arena_set(km_options.huge, km_options.decay_ms);
		km_percpu_start(km_options.percpu, km_options.index);
		km_node_start(km_options.nodes);
	}
	if (!boot.pages) {
		if (!km_arena_start())
			return false;
		if (km_guard_ops)
			km_guard_ops->start(&km_options.guard);
		if (km_profile_ops)
			km_profile_ops->start(km_options.profile);
		boot.pages = true;
	}
	if (!km_kmalloc_start())
		return false;
	if (km_options.reserve && !km_ahead_reserve((long)(km_options.reserve >> KM_PAGE_SHIFT)))
		km_warn("KMEM_OPTIONS: reserve: the system refuses so much");
	km_large_cache_start();
	km_reclaim_start();
	km_root_start();
	km_debug(km_kmalloc_sized || km_kmalloc_cache(KMALLOC_MAX_CACHE_SIZE),
		 "kmalloc has a cache for each size when it starts");
	return true;
}

static int ask_for_handlers(void)
{
	int error = pthread_atfork(km_boot_fork_prepare, km_boot_fork_parent, km_boot_fork_child);

	if (!error && _IO_list_lock && _IO_list_unlock && _IO_list_resetlock)
		pthread_atfork(lock_files, unlock_files, reset_files);
	return error;
}

/*
 * Before anything is started, so that a fork by another thread finds no start half done. Once in a process: the child
 * of a fork in the middle of this registers by itself, because nobody goes on with it there. A C library may allocate
 * memory for it: it finds every shelf closed, and malloc has a little for such calls. A library that is refused is
 * asked again once everything works.
 */
static void register_handlers(void)
{
	uint32_t self = km_os_pid(), by = km_load(&boot.handlers_by);

	if (km_load_acquire(&boot.handlers) == ASKED)
		return;
	if (by == self || !km_cas_acquire(&boot.handlers_by, &by, self)) {
		while (!km_load_acquire(&boot.handlers))
			km_os_wait(&boot.handlers_by, self, 1);
		return;
	}
	km_busy_scope(was);
	km_percpu_early();
	km_store_release(&boot.handlers, ask_for_handlers() ? REFUSED : ASKED);
}

/* A tracer was there before us. */
static km_cold void look_for_tracers(void)
{
	km_busy_scope(was);

	km_probes_look();
}

static void finish_start(void)
{
	if (km_unlikely(km_tracer_is_wanted()))
		look_for_tracers();
	if (km_has_accounting() && !km_swap_acquire(&boot.accounted, true))
		km_charge_ops->start();
	if (km_load(&boot.handlers) == REFUSED && km_swap_acquire(&boot.handlers, ASKED) == REFUSED)
		ask_for_handlers();
}

/* Once: a program of which every allocation fails knows nothing of why. A limit is likely the reason. */
static km_cold void tell_refusal(void)
{
	static bool told;
	size_t limit = km_os_address_limit();

	if (km_swap_acquire(&told, true))
		return;
	if (limit != SIZE_MAX)
		km_warn("no start: the system refuses memory, RLIMIT_AS is %lu KiB: allocations fail",
			(unsigned long)(limit >> 10));
	else
		km_warn("no start: the system refuses memory%s: allocations fail",
			km_os_is_limited() ? ", there is RLIMIT_DATA" : "");
}

bool km_boot_slow(void)
{
	/* Nested: a callee of start() allocates, or a handler of fork before the start. There is no memory yet. */
	if (km_thread_busy || forks)
		return km_load_acquire(&km_ready);
	register_handlers();
	struct km_busy_was was = km_busy_begin();
	lock_state();
	bool ok = km_load_acquire(&km_ready) || start();
	if (ok)
		km_store_release(&km_ready, true);
	unlock_state();
	if (km_unlikely(!ok))
		tell_refusal();
	km_busy_end(was);
	if (ok)
		finish_start();
	return ok;
}

/* The library may be a part of a shared object, a plugin. musl unloads no object; a static program has no _DYNAMIC. */
#pragma weak dladdr
#pragma weak dlsym
extern ElfW(Dyn) _DYNAMIC[] __attribute__((weak, visibility("hidden")));

static bool may_be_unloaded(void)
{
#ifdef __GLIBC__
	for (const ElfW(Dyn) *entry = _DYNAMIC; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_DEBUG || (entry->d_tag == DT_FLAGS_1 && entry->d_un.d_val & DF_1_NODELETE))
			return false;
	return _DYNAMIC;
#else
	return false;
#endif
}

/* Threads and the kernel go on using a plugin's descriptors, keys and blocks after dlclose. A direct call of dlopen
 * would make the linker of a static program warn. */
static void stay_loaded(void)
{
	Dl_info info = { .dli_fname = "a shared object" };
	void *(*open)(const char *file, int mode) = NULL;

	if (!may_be_unloaded())
		return;
	if (dlsym && dladdr && dladdr(&km_ready, &info))
		*(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
	if (!open || !open(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE))
		km_warn("%s contains libkmem, and must not be unloaded: link it with -z nodelete", info.dli_fname);
}

__attribute__((constructor(101))) static void start_early(void)
{
	stay_loaded();
	if (km_boot() && km_guard_ops)
		km_guard_ops->ready();
}

bool slab_is_available(void)
{
	return km_boot();
}

const char *kmem_percpu_discipline(void)
{
	km_boot();
	return km_discipline_name(km_percpu.discipline);
}

const char *kmem_percpu_reason(void)
{
	km_boot();
	return km_percpu.reason;
}

const char *kmem_version(void)
{
	return KMEM_VERSION;
}
