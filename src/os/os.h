/*
 * os.h: every service asked of Linux, as a contract. Functions return 0 (or a pointer) or a negative errno;
 * none changes errno, none allocates. All can be made to fail by the test hook km_os_fault.
 */
#ifndef KM_OS_H
#define KM_OS_H

#include "base/cc.h"

/*
 * Called before each call that asks the system for memory or a right; true makes it fail with ENOMEM.
 * NULL in production. The no-memory tests enumerate calls with it.
 */
extern km_hidden bool (*km_os_fault)(const char *call);

/*
 * Bytes of the system's page: 4096 or, on aarch64, up to 64 KiB. Ours (KM_PAGE_SIZE) are 4096 always: the system's
 * count only here, where a range is committed, given back or left without access, and must begin and end at one.
 */
size_t km_os_page_bytes(void);
/* Address space without access and without charge, and in no core dump, until it is committed; aligned to `align` (a
 * power of two) and to the system's page. It never comes as huge pages by itself, whatever the system's setting: who
 * touches a page gets that page. */
void *km_os_reserve(size_t bytes, size_t align);
/* The same, but of huge pages where the system's setting is to give them to all. */
void *km_os_reserve_whole(size_t bytes, size_t align);
/* Make [p, p+bytes) of a reservation readable and writable; zero where never touched. */
int km_os_commit(void *p, size_t bytes);
/* The same for memory of a node; to km_os_fault it is "commit on node N". */
int km_os_commit_node(void *p, size_t bytes, unsigned node);
/* Make [p, p+bytes) readable: zeros, of huge pages where there are such: mlockall fills it in. */
int km_os_commit_readonly(void *p, size_t bytes);
/* The same by whatever pages come, or not accessible again. */
int km_os_protect(void *p, size_t bytes, bool readable);
/* As it was mapped, whatever its user made of it (mprotect). Not 0: the system refuses. */
int km_os_unprotect(void *p, size_t bytes);
/* No access until it is unguarded. From Linux 6.13 on that is no mapping more, and what it held is gone, unless `keep`;
 * else, and where memory is locked, it is as by km_os_protect. 0 or -errno. */
int km_os_guard(void *p, size_t bytes, bool keep);
int km_os_unguard(void *p, size_t bytes);
/* An owner's advice on a mapping is undone: a child of fork has what it holds, a core dump too. -EBUSY: it is locked,
 * but not by mlockall; else not 0: the system refuses, or a part is gone. Hints (of huge pages, the order of use,
 * merging) and protection keys stay. */
int km_os_renew(void *p, size_t bytes);
/* For what km_os_renew found locked; and for what is to be as all that is mapped, filled in at once or as it is
 * touched. 0 or -errno; behind a filter it is refused. */
int km_os_lock(void *p, size_t bytes, bool lock);
/* Whether core dumps have it: 0 or -errno. */
int km_os_dump(void *p, size_t bytes, bool dumped);
/* Give the pages back; the range stays accessible and reads as zeros if 0 is returned. */
int km_os_purge(void *p, size_t bytes);
/* Make a committed range resident now, whatever it holds: 0 or -errno, and then some of it may be. */
int km_os_fault_in(void *p, size_t bytes);
/*
 * Make a committed range that nobody has touched resident now, by huge pages where the system has some, and only now:
 * where its background collapsing may find it later, what was given back in small pieces comes back resident. False:
 * nothing was touched: the system refuses, or the program has switched huge pages off (PR_SET_THP_DISABLE). True: all
 * of it may be resident.
 */
bool km_os_huge(void *p, size_t bytes);
/* A mapping of its own, readable, writable, zero; NULL where there is none. */
void *km_os_map(size_t bytes, size_t align);
/* Would the system make one so long? It refuses what it could never fill; what is committed of a reservation it does
 * not look at, by default. */
bool km_os_may_map(size_t bytes);
/* True if the system refuses a mapping of this length, though there is a mapping to be had. */
bool km_os_refuses(size_t bytes);
/* Why may the process not have so many bytes more? */
void km_os_tell_shortage(char *text, size_t room, size_t bytes);
void km_os_unmap(void *p, size_t bytes);
/* The same for who keeps what the system refuses to take back: in the middle of a mapping, where it has no room for
 * another one. 0 or -errno. */
int km_os_try_unmap(void *p, size_t bytes);
/* Grow or shrink a mapping of its own, moving it where may_move; NULL: unchanged. */
void *km_os_remap(void *p, size_t old_bytes, size_t new_bytes, bool may_move);
/* Show a name in /proc/PID/maps where the kernel can: once it could not it is not asked again. */
void km_os_name(void *p, size_t bytes, const char *name);

/* Sleep while *word == value, at most `ms` milliseconds; wake one sleeper. */
void km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void km_os_wake(uint32_t *word);
/*
 * A futex with priority inheritance: lend the caller's priority to the thread with the number in *word, until the
 * thread gives the futex back by km_os_lend_end, at most `ms` milliseconds. The caller then owns the futex, and frees
 * the futex by a store of 0. False: the thread has ended, or the system refuses (before Linux 5.14). After km_os_shut
 * both functions make no system call.
 */
bool km_os_lend(uint32_t *word, unsigned ms);
void km_os_lend_end(uint32_t *word);
/* The calling thread has a real-time policy: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE. False after km_os_shut. */
bool km_os_is_real_time(void);

/* Milliseconds since some fixed moment, coarse (4 ms), without a system call; never 0. */
uint64_t km_os_now_ms(void);
/* Bytes RLIMIT_AS allows; SIZE_MAX where unlimited. Bytes of physical memory. The system is asked when the library
 * starts, and for the limits again by km_os_limits_changed. */
size_t km_os_address_limit(void);
size_t km_os_limit(int resource);	/* getrlimit at each call: RLIMIT_AS and others */
size_t km_os_memory(void);
/* Bytes of address space by which reservations are measured: km_os_address_limit, or less where a reservation costs the
 * host memory, or where the option `arena` is set; SIZE_MAX: plenty. */
size_t km_os_address_room(void);
void km_os_set_address_room(size_t bytes);
/* The program has set RLIMIT_AS, or RLIMIT_DATA. */
void km_os_set_address_limit(size_t bytes);
void km_os_set_data_limit(size_t bytes);
/* Asks the system for both: is one another than the library knew? False after km_os_shut. */
bool km_os_limits_changed(void);
/* There is one of them, or RLIMIT_MEMLOCK where all that is mapped is locked (mlockall with MCL_FUTURE): what we have
 * mapped and don't use the program may lack for mappings of its own. */
bool km_os_is_limited(void);
bool km_os_limits_data(void);	/* RLIMIT_DATA alone */
/* Is all that is mapped from now on locked (mlockall with MCL_FUTURE), and so filled in? */
bool km_os_locks_all(void);
/*
 * 1 + the highest CPU number that can ever come up, by what the system says; *masks: how many its masks of CPUs have
 * room for, never less. Both at most KM_MAX_CPUS, the most that a kernel can be built for.
 */
#define KM_MAX_CPUS	8192u
unsigned km_os_possible_cpus(unsigned *masks);
/* The CPU this thread runs on, now; 0 where the system does not say. */
unsigned km_os_getcpu(void);


/* A small file of the system as text, ended by NUL: its length, at most bytes - 1, or -errno. */
long km_os_read(const char *path, char *text, size_t bytes);
/* A part of a file, from `offset` on: how many bytes were read, at most `bytes`, or -errno. */
long km_os_read_part(const char *path, uint64_t offset, void *data, size_t bytes);
/*
 * Memory nodes, by the system's ids; a set is a bit for each, `limit` of them. Those from which the process may get
 * memory. Was the process given a memory policy of its own? Let fresh memory come from one of these, or from any again
 * (NULL): 0 or -errno.
 */
int km_os_allowed_nodes(uint64_t *set, unsigned limit);
bool km_os_has_memory_policy(void);
int km_os_prefer_nodes(void *p, size_t bytes, const uint64_t *set, unsigned limit);

/*
 * The program has a filter from here on, or will have one soon (seccomp), and may be ended for a call that is not in
 * it. Calls that libc's malloc does not make are refused here from now on: membarrier, rseq, prctl, mbind. Besides
 * what the program asks for, and lines that are written, these are left: mmap, munmap, mprotect, madvise, mremap,
 * futex, and clock_gettime and getcpu, which the kernel's vDSO serves.
 */
void km_os_shut(void);
bool km_os_is_shut(void);
/* The program's own calls, as it makes them: their result, or -errno. */
long km_os_prctl(int option, const unsigned long *words);
long km_os_mlockall(int flags);
long km_os_munlockall(void);
long km_os_prlimit(int pid, int resource, const void *limits, void *old);

/* Register membarrier's rseq command for the process: 0 or -errno. Then: every sequence in flight on
 * another CPU is aborted and ordered after what we stored before. */
int km_os_barrier_register(void);
int km_os_barrier(void);
/* Register the calling thread's rseq area (32 bytes at least, aligned to 32): 0 or -errno. The kernel unregisters an
 * area only with the same number of bytes. Since Linux 7.1 a registration of more than 32 bytes is also a promise: only
 * the kernel writes to the kernel's fields of a registered area. */
int km_os_rseq_register(void *area, size_t bytes, uint32_t signature);
int km_os_rseq_unregister(void *area, size_t bytes, uint32_t signature);
/* Bytes of an area with all fields of this kernel, rounded up to the kernel's alignment. */
size_t km_os_rseq_bytes(void);
/* How far into an rseq area the kernel knows what it writes there; 0: it does not say. */
size_t km_os_rseq_features(void);
/* False: this kernel does not abort the sequence of every preempted thread. */
bool km_os_rseq_aborts(void);

/* Which file a descriptor is: 0 or -errno. Stream: a pipe, or a device of characters. */
struct km_os_file {
	uint64_t device, inode;
	bool stream;
};
int km_os_file(int fd, struct km_os_file *file);
/* How it is open: 0 or -errno, which it is always after km_os_shut. */
struct km_os_opening {
	bool writable, appends, closed_by_exec;
};
int km_os_opening(int fd, struct km_os_opening *opening);
/* Are two descriptors one opening of a file, by dup? Where the system does not say (before Linux 6.10, and without
 * kcmp) it counts as no. */
bool km_os_same_opening(int a, int b);
/* Another descriptor of the same file, the first free one from `least` on, closed by exec: itself or -errno. */
int km_os_duplicate(int fd, int least);
/* Write all of it to a descriptor; 0 or -errno. */
int km_os_write(int fd, const void *bytes, size_t count);
/* The same without a signal: -EPIPE of a pipe or socket that nobody reads, -EFBIG past RLIMIT_FSIZE, which files in
 * memory have too. After km_os_shut as the other one. */
int km_os_write_no_signal(int fd, const void *bytes, size_t count);
/* A descriptor that is readable after something was added to it: itself or -errno. Adding never waits. */
int km_os_eventfd(void);
void km_os_event_add(int fd, uint64_t count);
/* A name that others connect to (Linux' abstract sockets), by a descriptor from `least` on that does not wait; one who
 * has connected, and of which user that is; a descriptor is sent there, with a byte, or the byte alone where it is
 * negative; a file in memory can be changed by nobody any more. Each -errno where not. After km_os_shut there are
 * none. */
int km_os_listen(const char *name, int least);
/* Has somebody connected, within so many milliseconds? A negative descriptor only waits. The other one connects to a
 * name and hangs up, so that who waits goes on: 0 or -errno. */
bool km_os_wait_for(int fd, unsigned ms);
int km_os_knock(const char *name);
int km_os_accept(int fd, unsigned *user);
int km_os_hand_over(int to, int fd);
int km_os_seal(int fd);
int km_os_open_truncated(const char *path);
void km_os_close(int fd);
/* A file in memory: its descriptor, or -errno. All that it has goes to `out`: through the program `command`, with one
 * word as its argument and without an environment, or as it is where there is no such program: 0, or -errno. By us. */
int km_os_memory_file(const char *name);
int km_os_filter(const char *command, const char *word, int in, int out);
int km_os_copy(int in, int out);
/* The path of the program, as it was started, or from the root where that leads to it no longer; `text` is for that. */
const char *km_os_program_path(char *text, size_t bytes);
/* Run a function in a thread of its own, to which no signal of the program's is delivered. False: there is none to be
 * had. Libc allocates for it here: with no lock held. */
bool km_os_run_apart(void (*function)(void));
/* The same; this thread runs `meanwhile`, and then waits for the other's end. */
bool km_os_run_beside(void (*function)(void), void (*meanwhile)(void));
/* From now on the calling thread has a table of descriptors of its own, with none in it. False: the program's. */
bool km_os_own_descriptors(void);
/* The calling thread is one of ours, of that name, and has nothing of the program's in hand; or is so no more. */
void km_os_thread_is_ours(bool begins, const char *name);
/* Threads of the process, but for those of ours other than the caller; 0: the system does not say. Have all of the
 * program's ended, so that the process should? Is that thread, by the system's number, still there? */
unsigned km_os_threads(void);
bool km_os_program_is_over(void);
bool km_os_has_thread(unsigned thread);
unsigned km_os_pid(void);
/* The system's number of the calling thread; 0 where libc does not know the number. */
unsigned km_os_thread(void);
/* The calling thread's name; of the first one, the program's, at most 15 bytes of it. */
void km_os_program(char *name, size_t bytes);
/* Copy an environment variable and return its length; -1: not set, or not to be trusted; `bytes` or more: it is longer,
 * nothing was copied. Works before libc is ready. */
int km_os_getenv(const char *name, char *value, size_t bytes);
/* Random bytes, of the kernel's by a system call (`fresh`), or, where that is refused or not asked for, the 16 that it
 * gave the process at its start, again and again. */
void km_os_random(void *p, size_t bytes, bool fresh);
/* Is this a process whose environment can't be trusted? */
bool km_os_secure(void);
_Noreturn void km_os_abort(void);

#endif
