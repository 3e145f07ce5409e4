/*
 * os_linux.c: services of os.h for memory, limits, CPUs, locks and files. Invariant: each function keeps errno, and
 * reports failure by its return value.
 */
#define _GNU_SOURCE
#include "die.h"
#include "os_call.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/text.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA		0x53564d41
#define PR_SET_VMA_ANON_NAME	0
#endif

/* Constants of newer kernels, with their first release. MADV_POPULATE_READ checks a guard marker. */
#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE	27	/* 6.3 */
#define AT_RSEQ_ALIGN		28
#endif
#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY		1027	/* 6.10 */
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL	102	/* 6.13 */
#define MADV_GUARD_REMOVE	103
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22	/* 5.14 */
#define MADV_POPULATE_WRITE	23
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT		1	/* 4.4 */
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT		4	/* 4.4 */
#endif
#define KCMP_FILE		0	/* <linux/kcmp.h> */

bool (*km_os_fault)(const char *call);

/* Whether the kernel's guard markers (pages without access inside a mapping) work. */
enum markers { MARKERS_UNKNOWN, MARKERS_HOLD, MARKERS_PRETENDED };

/* State of the process, found at the start or changed later. */
static struct {
	bool shut, nameless;
	uint8_t markers;				/* whether guard markers work (enum markers) */
	size_t address_limit, data_limit, memory;	/* RLIMIT_AS, RLIMIT_DATA and physical memory in bytes; 0: not
							 * yet read */
	size_t lock_limit;				/* RLIMIT_MEMLOCK while mlockall(MCL_FUTURE) is in force; else
							 * 0 */
	bool lock_on_fault;				/* MCL_ONFAULT: mappings are not filled in */
} process;

size_t km_os_page_bytes(void)
{
	return getauxval(AT_PAGESZ);
}

static void *mapping_of(long result)
{
	return result < 0 && result > -4096 ? NULL : (void *)result;
}

static void *map_near(uintptr_t hint, size_t bytes, int protection, int flags)
{
	return mapping_of(KM_CALL(mmap((void *)hint, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0)));
}

/* Map `bytes` aligned to `align`. If the system's own choice is not aligned, try the aligned address below, without
 * more address space. If another mapping lies there, map more and give the ends back. */
static void *map_aligned(size_t bytes, size_t align, int protection, int flags)
{
	km_debug(bytes && km_is_pow2(align), "a mapping has bytes, and an alignment that is a power of two");
	bytes = km_align_up(bytes, km_os_page_bytes());
	char *p = map_near(0, bytes, protection, flags);

	if (!p || !((uintptr_t)p & (align - 1)))
		return p;
	km_os_unmap(p, bytes);
	p = map_near((uintptr_t)p & ~(align - 1), bytes, protection, flags);
	if (p && !((uintptr_t)p & (align - 1)))
		return p;
	if (p)
		km_os_unmap(p, bytes);
	if (bytes + align < bytes)
		return NULL;
	p = map_near(0, bytes + align, protection, flags);
	if (!p)
		return NULL;
	size_t before = km_align_up((uintptr_t)p, align) - (uintptr_t)p;
	if (before)
		km_os_unmap(p, before);
	if (align - before)
		km_os_unmap(p + before + bytes, align - before);
	return p + before;
}

static int advise(void *p, size_t bytes, int advice)
{
	return (int)KM_CALL(madvise(p, bytes, advice));
}

void *km_os_reserve_whole(size_t bytes, size_t align)
{
	char *p = km_call_fault("reserve") ? NULL : map_aligned(bytes, align, PROT_NONE, MAP_NORESERVE);

	if (p)
		advise(p, bytes, MADV_DONTDUMP);
	return p;
}

void *km_os_reserve(size_t bytes, size_t align)
{
	char *p = km_os_reserve_whole(bytes, align);

	if (p)
		advise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

static int protect(void *p, size_t bytes, int protection)
{
	km_debug(!((uintptr_t)p & (KM_PAGE_SIZE - 1)) && bytes, "access changes by the page");
	return (int)KM_CALL(mprotect(p, bytes, protection));
}

static int commit(void *p, size_t bytes, const char *call)
{
	if (km_call_fault(call))
		return -ENOMEM;
	int result = protect(p, bytes, PROT_READ | PROT_WRITE);
	if (!result)
		advise(p, bytes, MADV_DODUMP);
	return result;
}

int km_os_commit(void *p, size_t bytes)
{
	return commit(p, bytes, "commit");
}

int km_os_commit_node(void *p, size_t bytes, unsigned node)
{
	km_debug(node < 8, "a node has a valid number");
	static const char *const calls[] = {
		"commit on node 0", "commit on node 1", "commit on node 2", "commit on node 3",
		"commit on node 4", "commit on node 5", "commit on node 6", "commit on node 7",
	};

	return commit(p, bytes, calls[node]);
}

int km_os_commit_readonly(void *p, size_t bytes)
{
	if (km_call_fault("commit_readonly"))
		return -ENOMEM;
	int result = protect(p, bytes, PROT_READ);
	if (!result)
		advise(p, bytes, MADV_HUGEPAGE);
	return result;
}

int km_os_protect(void *p, size_t bytes, bool readable)
{
	return km_call_fault("protect") ? -ENOMEM : protect(p, bytes, readable ? PROT_READ : PROT_NONE);
}

int km_os_unprotect(void *p, size_t bytes)
{
	return km_call_fault("unprotect") ? -ENOMEM : protect(p, bytes, PROT_READ | PROT_WRITE);
}

/* Remove access by markers in the page table, without a split of the mapping. The first markers are checked, because
 * an emulator may accept any advice. Returns: false if unsupported, or in locked memory. */
static bool install_markers(void *p, size_t bytes)
{
	if (km_load(&process.markers) == MARKERS_PRETENDED || advise(p, bytes, MADV_GUARD_INSTALL))
		return false;
	if (km_unlikely(!km_load(&process.markers)))
		km_store(&process.markers, advise(p, km_os_page_bytes(), MADV_POPULATE_READ) == -EFAULT ?
					   (uint8_t)MARKERS_HOLD : (uint8_t)MARKERS_PRETENDED);
	return km_load(&process.markers) == MARKERS_HOLD;
}

int km_os_guard(void *p, size_t bytes, bool keep)
{
	if (!keep && !km_call_fault("guard") && install_markers(p, bytes))
		return 0;
	return km_os_protect(p, bytes, false);
}

int km_os_unguard(void *p, size_t bytes)
{
	int result = km_os_unprotect(p, bytes);

	return result || km_load(&process.markers) != MARKERS_HOLD ? result : advise(p, bytes, MADV_GUARD_REMOVE);
}

/* msync returns EBUSY for locked memory. A direct system call, because libc's msync is a point of cancellation. No
 * call after km_os_shut, because a filter may kill. */
static int find_lock(void *p, size_t bytes)
{
	int result = 0;

	if (!km_os_is_shut() && !km_load(&process.lock_limit))
		result = (int)KM_CALL(syscall(SYS_msync, p, bytes, MS_INVALIDATE));
	/* Count a filter's refusal as "not locked". */
	return result == -EPERM || result == -EACCES || result == -ENOSYS ? 0 : result;
}

int km_os_renew(void *p, size_t bytes)
{
	static const int advice[] = { MADV_DOFORK, MADV_DODUMP, MADV_KEEPONFORK };
	int result = km_call_fault("renew") ? -ENOMEM : 0;

	for (unsigned i = 0; !result && i < km_array_count(advice); i++)
		result = advise(p, bytes, advice[i]);
	return result ?: find_lock(p, bytes);
}

int km_os_lock(void *p, size_t bytes, bool lock)
{
	if (km_os_is_shut() || km_call_fault("lock"))
		return -EPERM;
	if (lock && km_load(&process.lock_on_fault))
		return (int)KM_CALL(syscall(SYS_mlock2, p, bytes, MLOCK_ONFAULT));
	return (int)KM_CALL(syscall(lock ? SYS_mlock : SYS_munlock, p, bytes));
}

int km_os_dump(void *p, size_t bytes, bool dumped)
{
	if (km_os_is_shut() || km_call_fault("dump"))
		return -ENOMEM;
	return advise(p, bytes, dumped ? MADV_DODUMP : MADV_DONTDUMP);
}

int km_os_purge(void *p, size_t bytes)
{
	km_debug(!((uintptr_t)p & (km_os_page_bytes() - 1)) && bytes, "memory is returned in pages of the system");
	return km_call_fault("purge") ? -ENOMEM : advise(p, bytes, MADV_DONTNEED);
}

/* Before Linux 5.14: an atomic addition of 0 to each page, safe against concurrent writers. */
int km_os_fault_in(void *p, size_t bytes)
{
	int result = km_call_fault("fault in") ? -ENOMEM : advise(p, bytes, MADV_POPULATE_WRITE);

	for (size_t at = 0; result == -EINVAL && at < bytes; at += KM_PAGE_SIZE)
		km_add((char *)p + at, (char)0);
	return result == -EINVAL ? 0 : result;
}

bool km_os_huge(void *p, size_t bytes)
{
	/* If switched off (1), small pages would come. 3: on only for advised ranges (Linux 6.18). */
	const bool off = !km_os_is_shut() && KM_CALL(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)) == 1;

	if (km_call_fault("huge") || off || advise(p, bytes, MADV_HUGEPAGE))
		return false;
	/* Before Linux 5.14: a store to each page, or to each huge page. */
	if (advise(p, bytes, MADV_POPULATE_WRITE))
		for (size_t at = 0; at < bytes; at += KM_PAGE_SIZE)
			*(volatile char *)((char *)p + at) = 0;
	advise(p, bytes, MADV_NOHUGEPAGE);
	return true;
}

void *km_os_map(size_t bytes, size_t align)
{
	return km_call_fault("map") ? NULL : map_aligned(bytes, align, PROT_READ | PROT_WRITE, 0);
}

static int unmap(void *p, size_t bytes)
{
	km_debug(!((uintptr_t)p & (km_os_page_bytes() - 1)) && bytes,
		 "address space is released in pages of the system");
	return (int)KM_CALL(munmap(p, bytes));
}

void km_os_unmap(void *p, size_t bytes)
{
	unmap(p, bytes);
}

int km_os_try_unmap(void *p, size_t bytes)
{
	return km_call_fault("unmap") ? -ENOMEM : unmap(p, bytes);
}

void *km_os_remap(void *p, size_t old_bytes, size_t new_bytes, bool may_move)
{
	km_debug(!((uintptr_t)p & (km_os_page_bytes() - 1)) && old_bytes && new_bytes,
		 "a mapping is moved in pages of the system");
	if (km_call_fault("remap"))
		return NULL;
	return mapping_of(KM_CALL(mremap(p, old_bytes, new_bytes, may_move ? MREMAP_MAYMOVE : 0)));
}

void km_os_name(void *p, size_t bytes, const char *name)
{
	if (!km_load(&process.nameless) && !km_os_is_shut() &&
	    KM_CALL(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, bytes, name)))
		km_store(&process.nameless, true);
}

void km_os_wait(uint32_t *word, uint32_t value, unsigned ms)
{
	struct timespec timeout = { ms / 1000, (long)(ms % 1000) * 1000000 };

	KM_CALL(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &timeout, NULL, 0));
}

void km_os_wake(uint32_t *word)
{
	KM_CALL(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
}

uint64_t km_os_now_ms(void)
{
	struct timespec now;

	KM_CALL(clock_gettime(CLOCK_MONOTONIC_COARSE, &now));
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

size_t km_os_limit(int resource)
{
	struct rlimit limit;
	const bool none = KM_CALL(getrlimit(resource, &limit)) || limit.rlim_cur == RLIM_INFINITY;

	return none ? SIZE_MAX : km_max((size_t)limit.rlim_cur, (size_t)1);
}

size_t km_os_address_limit(void)
{
	if (km_unlikely(!km_load(&process.address_limit))) {
		km_store(&process.data_limit, km_os_limit(RLIMIT_DATA));
		km_store(&process.address_limit, km_os_limit(RLIMIT_AS));
	}
	return km_load(&process.address_limit);
}

void km_os_set_address_limit(size_t bytes)
{
	km_os_address_limit();
	km_store(&process.address_limit, km_max(bytes, (size_t)1));
}

void km_os_set_data_limit(size_t bytes)
{
	km_store(&process.data_limit, km_max(bytes, (size_t)1));
}

bool km_os_limits_changed(void)
{
	if (km_os_is_shut())
		return false;
	const size_t address = km_os_address_limit(), data = km_load(&process.data_limit);

	km_os_set_data_limit(km_os_limit(RLIMIT_DATA));
	km_os_set_address_limit(km_os_limit(RLIMIT_AS));
	return address != km_load(&process.address_limit) || data != km_load(&process.data_limit);
}

bool km_os_locks_all(void)
{
	return km_load(&process.lock_limit) != 0;
}

bool km_os_limits_data(void)
{
	return km_os_address_limit() && km_load(&process.data_limit) != SIZE_MAX;
}

bool km_os_is_limited(void)
{
	return km_os_address_limit() != SIZE_MAX || km_load(&process.data_limit) != SIZE_MAX ||
	       (km_os_locks_all() && km_load(&process.lock_limit) != SIZE_MAX);
}

size_t km_os_memory(void)
{
	size_t bytes = km_load(&process.memory);
	struct sysinfo info;

	if (km_likely(bytes))
		return bytes;
	bytes = KM_CALL(sysinfo(&info)) ? (size_t)1 << 30 : info.totalram * info.mem_unit;
	km_store(&process.memory, bytes);
	return bytes;
}

void km_os_shut(void)
{
	km_store(&process.shut, true);
}

bool km_os_is_shut(void)
{
	return km_load(&process.shut);
}

long km_os_prctl(int option, const unsigned long *words)
{
	return KM_CALL(syscall(SYS_prctl, option, words[0], words[1], words[2], words[3]));
}

long km_os_mlockall(int flags)
{
	long result = KM_CALL(syscall(SYS_mlockall, flags));

	if (!result && flags & MCL_FUTURE) {
		km_store(&process.lock_on_fault, (flags & MCL_ONFAULT) != 0);
		/* After km_os_shut make no call, and assume a limit. */
		km_store(&process.lock_limit, km_os_is_shut() ? (size_t)1 : km_os_limit(RLIMIT_MEMLOCK));
	} else if (!result)
		km_store(&process.lock_limit, (size_t)0);
	return result;
}

long km_os_munlockall(void)
{
	long result = KM_CALL(syscall(SYS_munlockall));

	if (!result)
		km_store(&process.lock_limit, (size_t)0);
	return result;
}

long km_os_prlimit(int pid, int resource, const void *limits, void *old)
{
	return KM_CALL(syscall(SYS_prlimit64, pid, resource, limits, old));
}

/* Returns: the last number of /sys/devices/system/cpu/possible ("0-7", "0,2-5"), plus one. */
static unsigned parse_possible(const char *text)
{
	uint64_t highest = 0, number;

	while (*text)
		if (km_text_number(&text, UINT64_MAX, &number))
			highest = km_max(highest, number);
		else
			text += *text != '\0';
	return (unsigned)km_min(highest, (uint64_t)KM_MAX_CPUS) + 1;
}

/* Returns: 1 + the highest CPU allowed to this thread; 0 if the system does not say. *masks: the number of CPUs in
 * the kernel's masks, by the bytes filled in, or KM_MAX_CPUS. */
static unsigned allowed_cpus(unsigned *masks)
{
	unsigned long mask[KM_MAX_CPUS / 64] = { 0 };
	long bytes = KM_CALL(syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask));

	*masks = bytes > 0 ? (unsigned)bytes * 8 : KM_MAX_CPUS;
	for (unsigned word = KM_MAX_CPUS / 64; bytes > 0 && word-- > 0;)
		if (mask[word])
			return word * 64 + km_ilog2(mask[word]) + 1;
	return 0;
}

unsigned km_os_possible_cpus(unsigned *masks)
{
	unsigned allowed = allowed_cpus(masks), possible;
	char text[256];
	long count = km_os_read("/sys/devices/system/cpu/possible", text, sizeof(text));

	/* No /sys (a chroot, a sandbox), or too long a list. Libc then counts the presently allowed CPUs, and real
	 * numbers may be higher. A file that is not the system's own may say less than the allowed CPUs. */
	if (count <= 0 || count == (long)sizeof(text) - 1)
		possible = *masks;
	else
		possible = km_max(parse_possible(text), allowed);
	possible = km_min(possible, KM_MAX_CPUS);
	*masks = km_max(*masks, possible);
	return possible;
}

unsigned km_os_getcpu(void)
{
	return (unsigned)km_max(KM_CALL(sched_getcpu()), 0l);
}

int km_os_barrier_register(void)
{
	const int command = MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ;

	return km_call_fault("membarrier") ? -EPERM : (int)KM_CALL(syscall(SYS_membarrier, command, 0, 0));
}

int km_os_barrier(void)
{
	if (km_os_is_shut())
		return -EPERM;
	if (km_call_fault("fence"))
		return -ENOMEM;
	return (int)KM_CALL(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0));
}

int km_os_rseq_register(void *area, size_t bytes, uint32_t signature)
{
	if (km_call_fault("rseq") || km_os_is_shut())
		return -EPERM;
	return (int)KM_CALL(syscall(SYS_rseq, area, (uint32_t)bytes, 0, signature));
}

int km_os_rseq_unregister(void *area, size_t bytes, uint32_t signature)
{
	if (km_call_fault("rseq unregister") || km_os_is_shut())
		return -EPERM;
	return (int)KM_CALL(syscall(SYS_rseq, area, (uint32_t)bytes, 1, signature));
}

size_t km_os_rseq_features(void)
{
	return getauxval(AT_RSEQ_FEATURE_SIZE);
}

size_t km_os_rseq_bytes(void)
{
	size_t align = km_max(getauxval(AT_RSEQ_ALIGN), 32ul);

	return km_align_up(km_max(getauxval(AT_RSEQ_FEATURE_SIZE), 32ul), align);
}

/* False: Linux 6.19 to 7.0.13 on aarch64, if the thread stays on the same CPU (linux-arm-kernel, April 2026). */
bool km_os_rseq_aborts(void)
{
#ifdef __aarch64__
	unsigned part[3] = { 0 };
	struct utsname system;

	if (uname(&system))
		return true;
	const char *at = system.release;
	for (size_t i = 0; i < km_array_count(part); i++, at += *at == '.')
		for (; *at >= '0' && *at <= '9'; at++)
			part[i] = part[i] * 10 + (unsigned)(*at - '0');
	return part[0] < 6 || (part[0] == 6 && part[1] < 19) || part[0] > 7 ||
	       (part[0] == 7 && (part[1] || part[2] > 13));
#else
	return true;
#endif
}

int km_os_file(int fd, struct km_os_file *file)
{
	struct stat stat;
	int result = (int)KM_CALL(fstat(fd, &stat));

	if (result)
		return result;
	*file = (struct km_os_file){
		.device = stat.st_dev, .inode = stat.st_ino,
		.stream = S_ISFIFO(stat.st_mode) || S_ISCHR(stat.st_mode),
	};
	return 0;
}

int km_os_opening(int fd, struct km_os_opening *opening)
{
	if (km_os_is_shut())
		return -EPERM;
	const long status = KM_CALL(fcntl(fd, F_GETFL)), flags = KM_CALL(fcntl(fd, F_GETFD));
	if (status < 0 || flags < 0)
		return -EBADF;
	*opening = (struct km_os_opening){
		.writable = (status & O_ACCMODE) != O_RDONLY,
		.appends = status & O_APPEND,
		.closed_by_exec = flags & FD_CLOEXEC,
	};
	return 0;
}

bool km_os_same_opening(int a, int b)
{
	const long result = KM_CALL(fcntl(a, F_DUPFD_QUERY, b));

	if (result >= 0)
		return result;
	return KM_CALL(syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, (long)a, (long)b)) == 0;
}

int km_os_duplicate(int fd, int least)
{
	return km_call_fault("duplicate") ? -EMFILE : (int)KM_CALL(fcntl(fd, F_DUPFD_CLOEXEC, least));
}

int km_os_write(int fd, const void *bytes, size_t count)
{
	const char *p = bytes;

	while (count) {
		const long written = KM_CALL(syscall(SYS_write, fd, p, count));

		if (written == -EINTR)
			continue;
		if (written <= 0)
			return written ? (int)written : -EIO;
		p += written;
		count -= (size_t)written;
	}
	return 0;
}

int km_os_eventfd(void)
{
	return km_call_fault("eventfd") ? -ENOMEM : (int)KM_CALL(syscall(SYS_eventfd2, 0, O_CLOEXEC | O_NONBLOCK));
}

/* If the sum overflows, the write fails, and the descriptor is readable already. */
void km_os_event_add(int fd, uint64_t count)
{
	KM_CALL(syscall(SYS_write, fd, &count, sizeof(count)));
}

void km_os_close(int fd)
{
	KM_CALL(syscall(SYS_close, fd));
}

unsigned km_os_pid(void)
{
	return (unsigned)syscall(SYS_getpid);
}

void km_os_program(char *name, size_t bytes)
{
	char comm[16] = "";

	KM_CALL(prctl(PR_GET_NAME, comm));
	__builtin_memcpy(name, comm, km_min(bytes, sizeof(comm)));
	name[bytes - 1] = '\0';
}

_Noreturn void km_os_abort(void)
{
	const pid_t self = km_os_is_shut() ? 0 : (pid_t)syscall(SYS_gettid);

	/* Not in a vfork child, where libc has the parent's number: musl's abort would end the parent. */
	if (self && (unsigned)self != km_os_thread()) {
		syscall(SYS_tgkill, getpid(), self, SIGABRT);
		_exit(128 + SIGABRT);
	}
	abort();
}
