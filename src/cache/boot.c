/*
 * boot.c: first use, and fork. Invariant: km_ready is set once, after all parts work; until then every sheaf is
 * closed and every entry point comes here. The next caller repeats a failed start. The fork handlers are registered
 * before the first start begins, so a child never inherits a start or a lock held by another thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>

#include "page/commit_ahead.h"
#include "page/huge.h"
#include "page/metadata.h"
#include "alloc/tracer.h"
#include "os/stderr.h"
#include "percpu/visit.h"
#include "kmalloc/realloc_run.h"
#include "kmalloc/large_cache.h"
#include "process_record.h"

bool km_ready;
void (*km_mempool_fork)(bool before, bool child);
static unsigned own_pid;	/* process id at the last fork handler */

static struct {
	uint32_t state;		/* 0: not begun; 1: a thread starts the library, or forks */
	bool pages, accounted;
	uint32_t handlers_by;	/* id of the process that registers, or has registered, the fork handlers */
	enum { ASKED = 1, REFUSED } handlers;	/* ASKED: registered; REFUSED: to be repeated; 0: in progress or not
						 * begun */
} boot;

/* Lock the start against other threads and forks. The holder is busy, so that a signal handler's call fails instead of
 * waiting for its own thread. */
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
	km_debug(boot.state == 1 || km_locks_let_go, "a start is abandoned by its own thread");
	km_store_release(&boot.state, 0u);
}

/* glibc's fork locks the list of open FILEs after all fork handlers ran. The holder of the list's lock may wait for a
 * FILE, and the FILE's holder for the allocator. So the list must be locked before the allocator, and its handlers are
 * registered last (docs/design/fork.md). A process with one thread does not lock the list, as in glibc: a signal
 * handler may fork while the lock is half taken. */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak));

static void lock_files(void)
{
	if (&__libc_single_threaded && __libc_single_threaded)
		return;
	const bool nested = km_thread.busy == KM_BUSY && !km_thread.fork.depth;
	if (nested)
		km_fork_behind_files(true);
	_IO_list_lock();
	if (nested)
		km_fork_behind_files(false);
	km_thread.fork.has_files++;
}

static void unlock_files(void)
{
	if (!km_thread.fork.has_files)
		return;
	km_thread.fork.has_files--;
	_IO_list_unlock();
}

static void reset_files(void)
{
	if (km_thread.fork.has_files)
		_IO_list_resetlock();
	km_thread.fork.has_files = 0;
}

/* The fork handlers of lower folders, in the order in which their locks are taken. */
static void (*const handlers[])(bool before, bool child) = {
	km_growth_fork, km_large_cache_fork, km_ahead_fork, km_arena_fork, km_huge_fork, km_percpu_fork,
	km_metadata_fork,
};

static void take_all(void)
{
	km_thread.fork.has_observer =
		km_options.observed && km_thread.fork.has_start && km_observer_ops->fork_prepare();
	km_reclaim_fork(true, false);
	km_thread.fork.has_registry = km_registry_fork(true, false);
	if (km_thread.fork.has_registry && km_has_accounting())
		km_charge_ops->fork(true, false);
	if (km_load_acquire(&km_grace))
		km_grace->fork(true, false);
	for (size_t i = 0; i < km_array_count(handlers); i++)
		handlers[i](true, false);
	if (km_load_acquire(&km_mempool_fork))
		km_mempool_fork(true, false);
}

static void fork_done(bool child)
{
	km_debug(km_thread.busy, "signal handlers are kept out while a fork releases locks");
	if (km_load_acquire(&km_mempool_fork))
		km_mempool_fork(false, child);
	for (size_t i = km_array_count(handlers); i--;)
		handlers[i](false, child);
	if (km_load_acquire(&km_grace))
		km_grace->fork(false, child);
	if ((km_thread.fork.has_registry || child) && km_has_accounting())
		km_charge_ops->fork(false, child);
	km_registry_fork(false, child);
	km_reclaim_fork(false, child);
	/* The child drops a request sent to the parent: it would give back pages that both share. */
	if (child)
		km_store(&km_mail.asked, km_load(&km_mail.answered));
	if (km_options.observed)
		km_observer_ops->fork_done(child, km_thread.fork.has_observer);
}

/* Release all locks for a fork in a signal handler that waits for the list of FILEs, and take them again: the code that
 * the handler interrupted holds a lock wanted here. */
static void give_way(void)
{
	fork_done(false);
	unlock_state();
	unlock_files();
	km_fork_let_pass();
	lock_files();
	lock_state();
}

/* Take all locks before a fork. Until its end other fork handlers may run and allocate: this thread passes the fork's
 * locks. */
void km_boot_fork_prepare(void)
{
	km_visits_fork_prepare();
	/* A fork in a signal handler that interrupted another fork takes no lock: this thread holds the locks. */
	if (km_thread.fork.depth++)
		return;
	km_thread.fork.busy_before = km_busy_begin();
	/* The fork of a signal handler may have interrupted the start itself. */
	km_thread.fork.has_start = km_thread.fork.busy_before.busy != KM_BUSY;
	if (km_thread.fork.has_start)
		lock_state();
	else
		km_locks_fork_nested();
	km_thread.fork.has_all = km_load_acquire(&km_ready);
	while (km_thread.fork.has_all && (take_all(), km_fork_gives_way()))
		give_way();
	km_busy_end(km_thread.fork.busy_before);
}

static void fork_end(bool child)
{
	if (km_thread.fork.depth == 1) {
		km_locks_fork_end(child);
		if (km_thread.fork.has_start)
			unlock_state();
	}
	km_thread.fork.depth--;
}

void km_boot_fork_parent(void)
{
	km_busy_scope(was);

	if (km_thread.fork.depth == 1 && km_thread.fork.has_all)
		fork_done(false);
	fork_end(false);
}

/* End a fork in the child: free the locks of threads that do not exist in the child. */
void km_boot_fork_child(void)
{
	struct km_busy_was was = km_busy_begin();

#ifdef KM_DEBUG
	km_locks_let_go |= km_thread.fork.depth > 1 || km_fork_is_nested();
#endif
	km_store(&own_pid, km_os_pid());
	if (km_thread.fork.has_all) {
		fork_done(true);
		km_stderr_fork_child();
		/* In a nested fork: free the start's lock, which another thread's fork may have held. */
		if (!km_thread.fork.has_start)
			km_store(&boot.state, 0u);
	}
	bool whole = km_thread.fork.depth == 1 && km_thread.fork.busy_before.busy != KM_BUSY && km_thread.fork.has_all;
	fork_end(true);
	km_busy_end(was);
	if (whole && km_has_accounting())
		km_charge_ops->forked();
}

bool km_boot_is_stray(void)
{
	return !km_os_is_shut() && km_os_pid() != km_load(&own_pid);
}

/* Tries to unregister the rseq area with a wrong signature, which changes nothing. If this task had registered the
 * area, the error were EPERM; EINVAL means that another task did. */
bool km_boot_is_borrower(void)
{
	char *area = (char *)__builtin_thread_pointer() + km_thread_rseq;

	return km_boot_is_stray() && km_percpu.discipline == KM_DISCIPLINE_RSEQ && (int32_t)km_cpu_of_thread() >= 0 &&
	       km_os_rseq_unregister(area, 32, 0) == -EINVAL &&
	       km_os_rseq_unregister(area, km_os_rseq_bytes(), 0) == -EINVAL;
}

/* Start of the table of registrations, which the linker joins from all extensions in the program or the library; NULL:
 * no extension. */
extern const struct km_registration __start_km_ops[] __attribute__((weak, visibility("hidden")));
extern const struct km_registration __stop_km_ops[] __attribute__((weak, visibility("hidden")));

/* The hook lies outside of the section, so the asm hides where its address comes from: a compiler may drop a store to a
 * pointer that is derived from a constant. */
static void set_hooks(void)
{
	for (const struct km_registration *each = __start_km_ops; each < __stop_km_ops; each++) {
		uintptr_t hook = (uintptr_t)&each->hook + (uintptr_t)(intptr_t)each->hook;
		uintptr_t table = (uintptr_t)&each->table + (uintptr_t)(intptr_t)each->table;

		__asm__("" : "+r"(hook), "+r"(table));
		__builtin_memcpy((void *)hook, &table, sizeof(table));
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
		km_warn("KMEM_OPTIONS: reserve: the system refuses %lu bytes; request fewer bytes",
			(unsigned long)km_options.reserve);
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

/* Register the fork handlers before the library starts, so that a fork by another thread finds no half-done start. Each
 * process registers once; the child of a fork during registration registers again. The C library may allocate memory
 * meanwhile: every sheaf is closed, and malloc has a small reserve for these calls. A refused registration is repeated
 * once the library works. */
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

static void finish_start(void)
{
	/* Look for a tracer that attached before the start. */
	if (km_unlikely(km_tracer_is_wanted())) {
		km_busy_scope(was);
		km_probes_look();
	}
	if (km_has_accounting() && !km_swap_acquire(&boot.accounted, true))
		km_charge_ops->start();
	if (km_load(&boot.handlers) == REFUSED && km_swap_acquire(&boot.handlers, ASKED) == REFUSED)
		ask_for_handlers();
}

/* Report, once, that the start failed: every allocation fails then. A limit is the likely reason. */
static km_cold void tell_refusal(void)
{
	static bool told;
	size_t limit = km_os_address_limit();

	if (km_swap_acquire(&told, true))
		return;
	if (limit != SIZE_MAX)
		km_warn("start failed: the system refuses memory, RLIMIT_AS is %lu KiB (raise ulimit -v): all "
			"allocations fail", (unsigned long)(limit >> 10));
	else
		km_warn("start failed: the system refuses memory%s: all allocations fail",
			km_os_is_limited() ? ", RLIMIT_DATA is set (raise ulimit -d)" : "");
}

bool km_boot_slow(void)
{
	/* A function called by start() allocates, or a fork handler before the start: no memory yet. */
	if (km_thread.busy || km_thread.fork.depth)
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

/* The library may be part of a shared object, a plugin. musl unloads no object; a static program has no _DYNAMIC. */
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

/* Keep a plugin loaded: threads and the kernel use its descriptors, keys and blocks after dlclose. A direct call
 * of dlopen would make the linker of a static program warn. */
static void stay_loaded(void)
{
	Dl_info info = { .dli_fname = "a shared object" };
	void *(*open)(const char *file, int mode) = NULL;

	if (!may_be_unloaded())
		return;
	if (dlsym && dladdr && dladdr(&km_ready, &info))
		*(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
	if (!open || !open(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE))
		km_warn("%s contains libkmem and must not be unloaded: link this shared object with -z "
			"nodelete", info.dli_fname);
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
