/*
 * os.h: services of Linux, one contract for each. Invariant: functions return 0 (or a pointer) or a negative errno,
 * keep errno, and never allocate. The test hook km_os_fault can make every service fail.
 */
#ifndef KM_OS_H
#define KM_OS_H

#include "base/cc.h"

/* Hook before each call that asks the system for memory or a right; true makes the call fail with ENOMEM. NULL in
 * production. The no-memory tests enumerate calls with the hook. */
extern km_hidden bool (*km_os_fault)(const char *call);

/* Returns: bytes of the system's page, 4096 or, on aarch64, up to 64 KiB. The library's own page (KM_PAGE_SIZE) is
 * always 4096 bytes. The system's page matters only here: a range to commit, to give back or to protect must begin and
 * end at the system's pages. */
size_t km_os_page_bytes(void);
/* Reserve address space, aligned to `align` (a power of two) and to the system's page. A reservation has no access, no
 * memory charge and no place in core dumps until the commit. A reservation never gets transparent huge pages by
 * default, under any setting of the system: the touch of a page makes only this page resident. */
void *km_os_reserve(size_t bytes, size_t align);
/* Reserve as km_os_reserve, but with huge pages if the system's setting gives huge pages to all mappings. */
void *km_os_reserve_whole(size_t bytes, size_t align);
/* Make [p, p+bytes) of a reservation readable and writable. Untouched memory reads as zeros. */
int km_os_commit(void *p, size_t bytes);
/* Commit memory of a node; the call's name for km_os_fault is "commit on node N". */
int km_os_commit_node(void *p, size_t bytes, unsigned node);
/* Make [p, p+bytes) readable, as zeros, of huge pages if possible. mlockall fills in the range. */
int km_os_commit_readonly(void *p, size_t bytes);
/* Make a range readable, without advice on huge pages, or inaccessible. */
int km_os_protect(void *p, size_t bytes, bool readable);
/* Make a range readable and writable again, after any mprotect by its user. Returns: not 0 if the system refuses. */
int km_os_unprotect(void *p, size_t bytes);
/* Remove access until km_os_unguard. From Linux 6.13 on, a guard splits no mapping and discards the contents, unless
 * `keep`. On older kernels, with `keep`, and in locked memory a guard works as km_os_protect. */
int km_os_guard(void *p, size_t bytes, bool keep);
int km_os_unguard(void *p, size_t bytes);
/* Undo the advice of a range's user: a child of fork gets the contents, and so does a core dump. Hints (of huge pages,
 * the order of use, merging) and protection keys stay. Returns: -EBUSY if the range is locked, but not by mlockall;
 * else not 0 if the system refuses, or a part is unmapped. */
int km_os_renew(void *p, size_t bytes);
/* Lock or unlock a range: for a range that km_os_renew found locked, and to treat a range as mlockall treats all
 * mappings, filled in at once or on touch. Returns: 0 or -errno; refused after km_os_shut. */
int km_os_lock(void *p, size_t bytes, bool lock);
/* Include a range in core dumps, or exclude the range. */
int km_os_dump(void *p, size_t bytes, bool dumped);
/* Purges a range: gives its pages back to the system. The range stays accessible, and reads as zeros if 0 is
 * returned. */
int km_os_purge(void *p, size_t bytes);
/* Make a committed range resident now, with its contents. Returns: 0 or -errno, when a part may be resident. */
int km_os_fault_in(void *p, size_t bytes);
/* Make an untouched committed range resident now, by huge pages if the system has some. Only now: if the system's
 * background collapsing could find the range later, memory given back in small pieces would come back resident.
 * Returns: false if nothing was touched, because the system refuses, or the program has switched huge pages off
 * (PR_SET_THP_DISABLE). True: the whole range may be resident. */
bool km_os_huge(void *p, size_t bytes);
/* Maps a new mapping, readable, writable, zero. Returns: NULL on failure. */
void *km_os_map(size_t bytes, size_t align);
/* Returns: true if the system can map this length. The system refuses a length that can never be filled. A commit
 * inside a reservation has no such check, by default. */
bool km_os_may_map(size_t bytes);
/* Returns: true if the system refuses a mapping of this length, and either a mapping of one page succeeds, or the
 * length exceeds physical memory. */
bool km_os_refuses(size_t bytes);
/* Write the reason why the process can't get `bytes` more bytes to text. */
void km_os_tell_shortage(char *text, size_t room, size_t bytes);
void km_os_unmap(void *p, size_t bytes);
/* Unmap, for a caller that keeps the range on failure. The system may refuse in the middle of a mapping, without room
 * for another mapping. */
int km_os_try_unmap(void *p, size_t bytes);
/* Grows or shrinks a mapping in place; may_move: or moves it. Returns: NULL if unchanged. */
void *km_os_remap(void *p, size_t old_bytes, size_t new_bytes, bool may_move);
/* Show a name in /proc/PID/maps if the kernel can. After the first refusal the kernel is not asked again. */
void km_os_name(void *p, size_t bytes, const char *name);

/* Sleep while *word == value, at most `ms` milliseconds; wake one sleeper. */
void km_os_wait(uint32_t *word, uint32_t value, unsigned ms);
void km_os_wake(uint32_t *word);
/* A futex with priority inheritance: lend the caller's priority to the thread with the number in *word, until the
 * thread gives the futex back by km_os_lend_end, at most `ms` milliseconds. The caller then owns the futex, and frees
 * the futex by a store of 0. False: the thread has ended, or the system refuses (before Linux 5.14). After km_os_shut
 * both functions make no system call. */
bool km_os_lend(uint32_t *word, unsigned ms);
void km_os_lend_end(uint32_t *word);
/* The calling thread has a real-time policy: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE. False after km_os_shut. */
bool km_os_is_real_time(void);

/* Milliseconds since some fixed moment, coarse (4 ms), without a system call; never 0. */
uint64_t km_os_now_ms(void);
/* Returns: bytes allowed by RLIMIT_AS, SIZE_MAX if unlimited; bytes of physical memory. The values are read when the
 * library starts, and the limits again by km_os_limits_changed. */
size_t km_os_address_limit(void);
size_t km_os_limit(int resource);	/* Returns: the soft limit of a resource, by getrlimit at each call; SIZE_MAX:
					 * unlimited. */
size_t km_os_memory(void);
/* Returns: bytes of address space as the measure for reservations: km_os_address_limit, or less if a reservation costs
 * the host memory, or if the option `arena` is set; SIZE_MAX: plenty. */
size_t km_os_address_room(void);
void km_os_set_address_room(size_t bytes);
/* Records a new RLIMIT_AS or RLIMIT_DATA that the program has set. */
void km_os_set_address_limit(size_t bytes);
void km_os_set_data_limit(size_t bytes);
/* Ask the system for both limits. Returns: true if a limit differs from the recorded value. False after km_os_shut. */
bool km_os_limits_changed(void);
/* Returns: true under RLIMIT_AS or RLIMIT_DATA, or under RLIMIT_MEMLOCK with mlockall(MCL_FUTURE). Under a limit,
 * unused mappings of the library may leave the program too little for its own mappings. */
bool km_os_is_limited(void);
bool km_os_limits_data(void);	/* Returns: true under RLIMIT_DATA. */
/* Returns: true if all new mappings are locked (mlockall with MCL_FUTURE), and so filled in. */
bool km_os_locks_all(void);
/* Returns: 1 + the highest CPU number that can ever come up, as the system says. *masks: the number of CPUs in the
 * system's CPU masks, never less. Both at most KM_MAX_CPUS, the most that a kernel can be built for. */
#define KM_MAX_CPUS	8192u
unsigned km_os_possible_cpus(unsigned *masks);
/* Returns: the number of this thread's CPU; 0 if the system does not say. */
unsigned km_os_getcpu(void);

/* Read a small file of the system as text, ended by NUL. Returns: the length, at most bytes - 1, or -errno. */
long km_os_read(const char *path, char *text, size_t bytes);
/* Read a part of a file, from `offset` on. Returns: the number of bytes read, at most `bytes`, or -errno. */
long km_os_read_part(const char *path, uint64_t offset, void *data, size_t bytes);
/* Memory nodes, by the system's ids. A set has a bit for each id, `limit` bits. km_os_allowed_nodes: nodes that may
 * give memory to the process. km_os_has_memory_policy: true if the process has a memory policy of its own.
 * km_os_prefer_nodes: prefer the nodes of a set for fresh memory, or any node (NULL). */
int km_os_allowed_nodes(uint64_t *set, unsigned limit);
bool km_os_has_memory_policy(void);
int km_os_prefer_nodes(void *p, size_t bytes, const uint64_t *set, unsigned limit);

/* Assume a system-call filter (seccomp) from now on. A filter may end the process for a call outside of its list. So
 * calls that libc's malloc does not make are refused here: membarrier, rseq, prctl, mbind. The remaining calls, besides
 * requests of the program and printed lines, are mmap, munmap, mprotect, madvise, mremap, futex, and clock_gettime and
 * getcpu, which the kernel's vDSO serves. */
void km_os_shut(void);
bool km_os_is_shut(void);
/* Makes the program's call of prctl, unchanged. Returns: the call's result, or -errno. */
long km_os_prctl(int option, const unsigned long *words);
long km_os_mlockall(int flags);
long km_os_munlockall(void);
long km_os_prlimit(int pid, int resource, const void *limits, void *old);

/* km_os_barrier_register registers membarrier's rseq command for the process: 0 or -errno. km_os_barrier then aborts
 * every sequence in flight on another CPU, and orders the next one after the caller's earlier stores. */
int km_os_barrier_register(void);
int km_os_barrier(void);
/* Register the calling thread's rseq area (32 bytes at least, aligned to 32): 0 or -errno. The kernel unregisters an
 * area only with the same number of bytes. Since Linux 7.1 a registration of more than 32 bytes is also a promise: only
 * the kernel writes to the kernel's fields of a registered area. */
int km_os_rseq_register(void *area, size_t bytes, uint32_t signature);
int km_os_rseq_unregister(void *area, size_t bytes, uint32_t signature);
/* Returns: bytes of an rseq area with all fields of this kernel, rounded up to the kernel's alignment. */
size_t km_os_rseq_bytes(void);
/* Returns: bytes of an rseq area with fields known to the kernel; 0: the kernel does not say. */
size_t km_os_rseq_features(void);
/* Returns: false if this kernel does not abort the sequence of every preempted thread. */
bool km_os_rseq_aborts(void);

/* Identify the file of a descriptor: 0 or -errno. stream: a pipe, or a character device. */
struct km_os_file {
	uint64_t device, inode;
	bool stream;
};
int km_os_file(int fd, struct km_os_file *file);
/* Read the modes of a descriptor: 0 or -errno, always -errno after km_os_shut. */
struct km_os_opening {
	bool writable, appends, closed_by_exec;
};
int km_os_opening(int fd, struct km_os_opening *opening);
/* Returns: true if two descriptors are one opening of a file, by dup. False if the system does not say (before Linux
 * 6.10, without kcmp). */
bool km_os_same_opening(int a, int b);
/* Duplicate a descriptor to the first free number from `least` on, closed by exec. Returns: the new number or
 * -errno. */
int km_os_duplicate(int fd, int least);
/* Write all bytes to a descriptor; 0 or -errno. */
int km_os_write(int fd, const void *bytes, size_t count);
/* Write all bytes without a signal: -EPIPE for a pipe or socket without a reader, -EFBIG beyond RLIMIT_FSIZE, which
 * applies to files in memory, too. After km_os_shut as km_os_write. */
int km_os_write_no_signal(int fd, const void *bytes, size_t count);
/* A counter descriptor, readable after an addition: the descriptor or -errno. Adding never waits. */
int km_os_eventfd(void);
void km_os_event_add(int fd, uint64_t count);
/* A name for connections (Linux' abstract sockets), without files. km_os_listen: a non-blocking descriptor from `least`
 * on. km_os_accept: a new connection, and its user. km_os_hand_over: send a descriptor and a byte, or only the byte if
 * `fd` is negative. km_os_seal: make a file in memory immutable. Each returns -errno on failure, and always after
 * km_os_shut. */
int km_os_listen(const char *name, int least);
/* km_os_wait_for: wait for a connection, `ms` milliseconds at most; with a negative descriptor only wait. km_os_knock:
 * connect to a name and hang up, to end such a wait: 0 or -errno. */
bool km_os_wait_for(int fd, unsigned ms);
int km_os_knock(const char *name);
int km_os_accept(int fd, unsigned *user);
int km_os_hand_over(int to, int fd);
int km_os_seal(int fd);
int km_os_open_truncated(const char *path);
void km_os_close(int fd);
/* A file in memory: a descriptor, or -errno. km_os_filter copies `in` to `out` through the program `command`, with one
 * word as its argument and without an environment. km_os_copy copies without a program. Both: 0 or -errno. */
int km_os_memory_file(const char *name);
int km_os_filter(const char *command, const char *word, int in, int out);
int km_os_copy(int in, int out);
/* Returns: the path of the program as started, or an absolute path if the former is no longer valid. `text` is the
 * buffer. */
const char *km_os_program_path(char *text, size_t bytes);
/* Run a function in a helper thread without the program's signals. Returns: false without a thread. Libc allocates for
 * the thread in this call, so the caller must hold no lock. */
bool km_os_run_apart(void (*function)(void));
/* Run `function` in a helper thread and `meanwhile` in this thread, and then wait for the end of the helper thread. */
bool km_os_run_beside(void (*function)(void), void (*meanwhile)(void));
/* Give the calling thread an empty descriptor table of its own. Returns: false if the thread keeps the program's
 * table. */
bool km_os_own_descriptors(void);
/* Mark the calling thread, under a name, as a helper thread without locks or memory of the program; or end the mark. */
void km_os_thread_is_ours(bool begins, const char *name);
/* km_os_threads: the number of threads without helper threads other than the caller; 0: the system does not say.
 * km_os_program_is_over: true if all threads of the program have ended, so that the process should end.
 * km_os_has_thread: true if the thread with this system number exists. */
unsigned km_os_threads(void);
bool km_os_program_is_over(void);
bool km_os_has_thread(unsigned thread);
unsigned km_os_pid(void);
/* The system's number of the calling thread; 0 where libc does not know the number. */
unsigned km_os_thread(void);
/* The calling thread's name; in the first thread the program's name, at most 15 bytes. */
void km_os_program(char *name, size_t bytes);
/* Copy an environment variable. Returns: the length; -1: not set, or not trusted; `bytes` or more: too long, and
 * nothing was copied. Works before libc is ready. */
int km_os_getenv(const char *name, char *value, size_t bytes);
/* Fill with random bytes of the kernel by a system call (`fresh`). Without `fresh`, or if the kernel refuses, repeat
 * the 16 random bytes of the process's start. */
void km_os_random(void *p, size_t bytes, bool fresh);
/* Returns: true if the process's environment can't be trusted. */
bool km_os_secure(void);
_Noreturn void km_os_abort(void);

#endif
