/*
 * target.c: read and write another process's memory, and find libkmem's root records there. Invariant: no data of the
 * target is trusted. Every read may fail, and every number may be nonsense.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "info/info.h"
#include "command.h"
#include "leaks/core_dump.h"
#include "file_helper.h"
#include "inspect/stats_print.h"

static bool failed(struct target *target, int error)
{
	target->result = error == ESRCH ? INFO_GONE : error == EPERM ? INFO_DENIED : INFO_TORN;
	return false;
}

bool target_torn_by(struct target *target, const char *why)
{
	info_invalid_why = why;
	return failed(target, EFAULT);
}

bool target_torn(struct target *target)
{
	return target_torn_by(target, NULL);
}

bool target_is_own_lack(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* End the command if an open failed for a lack in this process: such a failure says nothing about the target. */
static void need_own(const char *path, bool opened)
{
	if (opened || !target_is_own_lack(errno))
		return;
	int error = errno;
	if (info_before_the_end)
		info_before_the_end();
	exit(kmem_failed(1, "", "%s: %s", path, strerror(error)));
}

int target_proc_fd(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	need_own(path, fd >= 0);
	return fd;
}

FILE *target_proc(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	FILE *file = fopen(path, "re");
	need_own(path, file);
	return file;
}

char target_state(pid_t pid)
{
	char state = 'X', line[512];
	FILE *file = target_proc(pid, "stat");

	if (!file)
		return state;
	if (fgets(line, sizeof(line), file) && strrchr(line, ')'))
		sscanf(strrchr(line, ')') + 1, " %c", &state);
	fclose(file);
	return state;
}

unsigned long target_work(pid_t pid)
{
	unsigned long user = 0, system = 0;
	char line[512];
	FILE *file = target_proc(pid, "stat");

	if (!file)
		return 0;
	if (fgets(line, sizeof(line), file) && strrchr(line, ')'))
		sscanf(strrchr(line, ')') + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu", &user, &system);
	fclose(file);
	return user + system;
}

/* Kernel: an exiting process loses its memory a moment before the state changes. In between, the flags have the bit
 * PF_EXITING. */
bool target_has_ended(pid_t pid)
{
	unsigned flags = 0;
	char state = 'X', line[512];
	FILE *file = target_proc(pid, "stat");

	if (file && fgets(line, sizeof(line), file) && strrchr(line, ')'))
		sscanf(strrchr(line, ')') + 1, " %c %*s %*s %*s %*s %*s %u", &state, &flags);
	if (file)
		fclose(file);
	return state == 'Z' || state == 'X' || flags & 0x4;
}

/* Result for a process without memory: an ended process, or a kernel thread. */
static enum info_result without_memory(const struct target *target)
{
	return target_has_ended(target->pid) ? INFO_GONE : INFO_NONE;
}

/* ------------------------------------------------------------------ reads and writes */

static bool open_memory(struct target *target, int access)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)target->pid);
	target->memory = open(path, access | O_CLOEXEC);
	need_own(path, target->memory >= 0);
	return target->memory >= 0;
}

void target_see(struct target *target)
{
	if (open_memory(target, O_RDONLY))
		target->hold = TARGET_SEEN;
}

bool target_bind(struct target *target)
{
	if (open_memory(target, O_RDWR))
		target->hold = TARGET_BOUND;
	else if (errno == ENOENT || errno == ESRCH)
		target->result = without_memory(target);
	else
		failed(target, errno == EACCES || errno == EROFS ? EPERM : errno);
	return target->hold == TARGET_BOUND;
}

void target_let_go(struct target *target)
{
	if (target->hold)
		close(target->memory);
	target->hold = TARGET_FREE;
}

/* Kernel: a read of /proc/PID/mem returns 0 bytes once no process uses the memory. A read of an unmapped address is
 * an error, and the memory is still in use. */
bool target_is_same(struct target *target)
{
	char byte;

	return !target->hold || pread(target->memory, &byte, 1, 0) != 0;
}

static ssize_t read_pieces(const struct target *target, const struct iovec *local, const struct iovec *remote,
			   size_t count)
{
	info_read_begins(target->pid);
	ssize_t got = process_vm_readv(target->pid, local, 1, remote, count, 0);
	info_access_ends();
	return got;
}

/*
 * Read the bound memory, including pages without access for the process itself, as a debugger does. Kernel: pread
 * waits for a missing page, and no signal ends the wait. Thus process_vm_readv, ended by signals, brings the pages in
 * first. The page may be gone again before pread.
 */
static bool bound_read(struct target *target, char *to, uintptr_t from, size_t bytes)
{
	struct iovec local = { to, bytes }, remote = { (void *)from, bytes };

	if (!target->shares)
		read_pieces(target, &local, &remote, 1);
	for (ssize_t got; bytes; to += got, from += (size_t)got, bytes -= (size_t)got) {
		info_read_begins(target->pid);
		got = pread(target->memory, to, bytes, (off_t)from);
		info_access_ends();
		if (got <= 0)
			return failed(target, got < 0 ? EFAULT : ESRCH);
	}
	return true;
}

/* Kernel: a write to a page write-protected by userfaultfd is an error here. A write to other pages of userfaultfd
 * may wait. */
static bool bound_write(struct target *target, uintptr_t to, const char *from, size_t bytes)
{
	for (ssize_t put; bytes; to += (size_t)put, from += put, bytes -= (size_t)put) {
		info_write_begins(target->pid);
		put = pwrite(target->memory, from, bytes, (off_t)to);
		info_access_ends();
		if (put <= 0)
			return failed(target, put < 0 ? EFAULT : ESRCH);
	}
	return true;
}

static bool is_by_file(const struct target *target)
{
	return target->hold == TARGET_BOUND || (target->hold && target->shares);
}

bool target_read(struct target *target, void *to, const void *from, size_t bytes)
{
	struct iovec local = { to, bytes }, remote = { (void *)(uintptr_t)from, bytes };

	if (!target_may_read(target, bytes))
		return false;
	if (target->core)
		return core_read(target->core, to, (uintptr_t)from, bytes) || failed(target, EFAULT);
	if (is_by_file(target))
		return bound_read(target, to, (uintptr_t)from, bytes);
	ssize_t got = read_pieces(target, &local, &remote, 1);

	return got == (ssize_t)bytes || failed(target, got < 0 ? errno : EFAULT);
}

bool target_pieces(struct target *target, void *to, const struct iovec *piece, size_t count)
{
	enum { BATCH = 256 };
	const bool one_by_one = target->core || is_by_file(target);
	char *at = to;

	for (size_t i = 0; one_by_one && i < count; at += piece[i++].iov_len)
		if (!target_read(target, at, piece[i].iov_base, piece[i].iov_len))
			return false;
	while (count && !one_by_one) {
		size_t now = count < BATCH ? count : BATCH;
		struct iovec local = { at, 0 };

		for (size_t i = 0; i < now; i++)
			local.iov_len += piece[i].iov_len;
		if (!target_may_read(target, local.iov_len + now * sizeof(*piece)))
			return false;
		ssize_t got = read_pieces(target, &local, piece, now);
		if (got != (ssize_t)local.iov_len)
			return failed(target, got < 0 ? errno : EFAULT);
		at += local.iov_len;
		piece += now;
		count -= now;
	}
	return true;
}

bool target_gather(struct target *target, void *to, void *const *from, size_t each, size_t count)
{
	enum { BATCH = 256 };
	struct iovec piece[BATCH];
	char *at = to;

	while (count) {
		size_t now = count < BATCH ? count : BATCH;

		for (size_t i = 0; i < now; i++)
			piece[i] = (struct iovec){ from[i], each };
		if (!target_pieces(target, at, piece, now))
			return false;
		at += now * each;
		from += now;
		count -= now;
	}
	return true;
}

void info_printable(char *to, const char *from, size_t bytes)
{
	km_text_take(to, bytes, from, "", '?');
}

char *info_printable_copy(const char *text)
{
	char *copy = kmem_need(strdup(text));

	info_printable(copy, copy, strlen(copy) + 1);
	return copy;
}

bool target_string(struct target *target, char *to, size_t bytes, const char *from)
{
	size_t have = 0;

	/* Read a page at a time: the string may end just before an unreadable page. */
	while (have < bytes - 1) {
		size_t in_page = KMEM_PAGE_BYTES - ((uintptr_t)(from + have) & (KMEM_PAGE_BYTES - 1));
		size_t now = in_page < bytes - 1 - have ? in_page : bytes - 1 - have;

		if (!target_read(target, to + have, from + have, now))
			return false;
		if (memchr(to + have, '\0', now))
			break;
		have += now;
	}
	info_printable(to, to, bytes);
	return true;
}

/* ------------------------------------------------------------------ /proc/PID/maps */

struct mapping {
	unsigned long start, end, inode;
	char access[5];
};

static bool parse_mapping(const char *line, struct mapping *mapping)
{
	return sscanf(line, "%lx-%lx %4s %*x %*s %lu", &mapping->start, &mapping->end,
		      mapping->access, &mapping->inode) == 4;
}

/* Kernel: in the maps file only a newline of a path is escaped, as octal digits. */
static char *mapped_path(const char *path)
{
	char *copy = kmem_need(strdup(path)), *at = copy;

	while ((at = strstr(at, "\\012"))) {
		*at++ = '\n';
		memmove(at, at + 3, strlen(at + 3) + 1);
	}
	return copy;
}

static char *path_of_process(pid_t pid, const char *format, ...)
{
	va_list arguments;
	char *rest, *path;

	va_start(arguments, format);
	if (vasprintf(&rest, format, arguments) < 0 || asprintf(&path, "/proc/%d/%s", (int)pid, rest) < 0)
		path = kmem_need(NULL);
	va_end(arguments);
	free(rest);
	return path;
}

static bool is_deleted(const char *path)
{
	static const char words[] = " (deleted)";
	size_t length = strlen(path), end = sizeof(words) - 1;

	return length > end && !strcmp(path + length - end, words);
}

/* Find a name for a deleted file: only /proc/PID leads there. Kernel: /proc/PID/exe may be opened by users with the
 * right to trace the process, and /proc/PID/map_files by the administrator. */
static char *deleted_file(pid_t pid, const char *path, uintptr_t start, uintptr_t end)
{
	char *exe = path_of_process(pid, "exe"), there[PATH_MAX];
	ssize_t length = readlink(exe, there, sizeof(there) - 1);

	there[length > 0 ? length : 0] = '\0';
	if (!strcmp(there, path))
		return exe;
	free(exe);
	return path_of_process(pid, "map_files/%lx-%lx", (unsigned long)start, (unsigned long)end);
}

/* The process's root directory may differ from ours, with another file of the same name. */
char *target_file(pid_t pid, const char *path, uintptr_t start, uintptr_t end)
{
	char *mine = mapped_path(path);
	struct opened here, there;
	bool deleted = is_deleted(mine);
	char *other = deleted ? deleted_file(pid, mine, start, end) : path_of_process(pid, "root%s", mine);
	bool has_other = opened_look(other, &there);

	if (has_other && !deleted && opened_look(mine, &here))
		has_other = here.status.st_dev != there.status.st_dev || here.status.st_ino != there.status.st_ino;
	free(has_other ? mine : other);
	return has_other ? other : mine;
}

/* Returns: true if a root record may begin here: private anonymous memory, right behind inaccessible memory. */
static bool is_candidate(const struct mapping *before, const struct mapping *here)
{
	return before->end == here->start && !before->inode && !here->inode &&
	       !strcmp(before->access, "---p") && !strcmp(here->access, "rw-p");
}

/* Read a root record into *root. Returns: true on success. For another build's unreadable record, target->result is
 * INFO_OTHER. */
static bool look(struct target *target, unsigned long start, struct info_root *root)
{
	const void *address = (const void *)start;
	struct kmem_record head;

	if (!target_read(target, &head, address, sizeof(head)) ||
	    memcmp(head.magic, KMEM_RECORD_MAGIC, sizeof(head.magic)))
		return false;
	info_printable(target->version, head.version, sizeof(target->version));
	memset(&root->layout, 0, sizeof(root->layout));
	if (head.major == KMEM_RECORD_MAJOR &&
	    layout_load(target, &root->layout, &rec_record, head.fields, head.field_count) &&
	    layout_has(&root->layout, "root.caches root.percpu percpu.base percpu.cpus const.area_shift cache.all.next "
		       "cache.all.prev cache.name cache.size cache.objects cache.engine"))
		return target_struct(target, &root->layout, INFO_ROOT, &root->record, address);
	if (target->result != INFO_GONE && target->result != INFO_DENIED && target->result != INFO_INVALID)
		target->result = INFO_OTHER;
	return false;
}

/* Returns: false only if the thread surely has no memory. Otherwise the later reads find the reason. */
static bool has_memory(pid_t thread)
{
	char byte;
	int fd = target_proc_fd(thread, "maps");
	ssize_t got = fd < 0 ? -1 : read(fd, &byte, 1);
	if (fd >= 0)
		close(fd);
	return got != 0;
}

/* End the command if /proc belongs to another pid namespace. A number would then name one process in /proc, and
 * another process in the calls that read memory or stop threads. */
static void need_own_proc(void)
{
	char number[32] = "";
	struct stat link;

	/* For a process without a number in that namespace, /proc/self exists, and the link is unreadable. */
	if (lstat("/proc/self", &link) == 0 &&
	    (readlink("/proc/self", number, sizeof(number) - 1) <= 0 || atoi(number) != getpid()))
		exit(kmem_failed(1, "", "/proc shows another pid namespace: mount the /proc of this namespace"));
}

pid_t target_thread(pid_t pid)
{
	char path[64];
	pid_t found = pid;
	struct dirent *entry;

	need_own_proc();
	if (has_memory(pid))
		return pid;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	while (threads && found == pid && (entry = readdir(threads)))
		if (atoi(entry->d_name) > 0 && has_memory(atoi(entry->d_name)))
			found = atoi(entry->d_name);
	if (threads)
		closedir(threads);
	return found;
}

static FILE *open_maps(struct target *target)
{
	FILE *maps = target_proc(target->pid, "maps");

	if (!maps)
		target->result = errno == EACCES || errno == EPERM ? INFO_DENIED : INFO_GONE;
	return maps;
}

/* Find the roots of a core dump, in the writable segments outside files. */
static size_t roots_of_core(struct target *target, struct info_root *roots)
{
	const struct maps *maps = &target->core->maps;
	enum info_result other = INFO_NONE;
	size_t count = 0;

	for (size_t i = 0; i < maps->count && count < INFO_MAX_ROOTS; i++) {
		target->result = INFO_NONE;
		if (maps->at[i].write && !maps->at[i].file && look(target, maps->at[i].start, &roots[count]))
			count++;
		else if (target->result == INFO_OTHER)
			other = INFO_OTHER;
	}
	target->result = other;
	return count;
}

/* Returns: true for private writable memory. The check is needed because a write through /proc/PID/mem ignores
 * protections. */
static bool is_private(const struct mapping *mapping)
{
	return !memcmp(mapping->access, "rw", 2) && mapping->access[3] == 'p';
}

static bool is_own(struct target *target, uintptr_t from, size_t bytes)
{
	const uintptr_t end = from + bytes;
	struct mapping here;
	char *line = NULL;
	size_t room = 0;
	FILE *maps = open_maps(target);

	while (maps && from < end && getline(&line, &room, maps) >= 0)
		if (parse_mapping(line, &here) && from >= here.start && from < here.end && is_private(&here))
			from = here.end;
	free(line);
	if (maps)
		fclose(maps);
	return from >= end && end >= bytes;
}

bool target_write(struct target *target, void *to, const void *from, size_t bytes)
{
	if (target->hold != TARGET_BOUND)
		return failed(target, EPERM);
	if (!is_own(target, (uintptr_t)to, bytes))
		return failed(target, target_is_same(target) ? EFAULT : ESRCH);
	return bound_write(target, (uintptr_t)to, from, bytes);
}

static int by_address(const void *a, const void *b)
{
	const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;

	return (x > y) - (x < y);
}

/* Read the mappings once, in ascending order, because the target may be stopped meanwhile. */
void target_write_words(struct target *target, uintptr_t *to, size_t count, uint64_t word)
{
	struct mapping here;
	char *line = NULL;
	size_t room = 0, i = 0;
	FILE *maps = target->hold == TARGET_BOUND ? open_maps(target) : NULL;

	qsort(to, count, sizeof(*to), by_address);
	while (maps && i < count && getline(&line, &room, maps) >= 0) {
		if (!parse_mapping(line, &here) || !is_private(&here))
			continue;
		while (i < count && to[i] < here.start)
			i++;
		for (; i < count && to[i] < here.end; i++)
			if (here.end - to[i] >= sizeof(word))
				bound_write(target, to[i], (const char *)&word, sizeof(word));
	}
	free(line);
	if (maps)
		fclose(maps);
}

size_t target_roots(struct target *target, struct info_root *roots)
{
	if (target->core)
		return roots_of_core(target, roots);
	enum info_result other = INFO_NONE;
	struct mapping before = { 0 }, here;
	char *line = NULL;
	size_t count = 0, room = 0, lines = 0;
	FILE *maps = open_maps(target);

	if (!maps)
		return 0;
	errno = 0;
	while (count < INFO_MAX_ROOTS && getline(&line, &room, maps) >= 0) {
		lines++;
		if (!parse_mapping(line, &here))
			continue;
		target->result = INFO_NONE;
		if (is_candidate(&before, &here) && look(target, here.start, &roots[count]))
			count++;
		else if (target->result == INFO_OTHER || target->result == INFO_DENIED ||
			 target->result == INFO_INVALID)
			other = target->result;
		before = here;
	}
	/* The file was opened: reading is not permitted, or the file is empty. */
	if (!lines)
		other = errno == EACCES || errno == EPERM ? INFO_DENIED : without_memory(target);
	target->result = other;
	free(line);
	fclose(maps);
	return count;
}
