/*
 * Another process's memory, and how to find libkmem in it. Nothing of it is trusted: every read
 * may fail, every number may be nonsense.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/root.h"
#include "info/info.h"
#include "leaks/core.h"

static bool failed(struct target *target, int error)
{
	target->result = error == ESRCH ? INFO_GONE : error == EPERM ? INFO_DENIED : INFO_TORN;
	return false;
}

bool target_torn(struct target *target)
{
	return failed(target, EFAULT);
}

bool target_read(struct target *target, void *to, const void *from, size_t bytes)
{
	struct iovec local = { to, bytes }, remote = { (void *)(uintptr_t)from, bytes };

	if (target->core)
		return core_read(target->core, to, (uintptr_t)from, bytes) || failed(target, EFAULT);
	ssize_t got = process_vm_readv(target->pid, &local, 1, &remote, 1, 0);

	return got == (ssize_t)bytes || failed(target, got < 0 ? errno : EFAULT);
}

bool target_write(struct target *target, void *to, const void *from, size_t bytes)
{
	struct iovec local = { (void *)(uintptr_t)from, bytes }, remote = { to, bytes };
	ssize_t put = process_vm_writev(target->pid, &local, 1, &remote, 1, 0);

	return put == (ssize_t)bytes || failed(target, put < 0 ? errno : EFAULT);
}

bool target_gather(struct target *target, void *to, void *const *from, size_t each, size_t count)
{
	enum { BATCH = 256 };
	struct iovec remote[BATCH];
	char *at = to;

	for (size_t i = 0; target->core && i < count; i++)
		if (!target_read(target, at + i * each, from[i], each))
			return false;
	while (count && !target->core) {
		size_t now = count < BATCH ? count : BATCH;
		struct iovec local = { at, now * each };

		for (size_t i = 0; i < now; i++)
			remote[i] = (struct iovec){ from[i], each };
		ssize_t got = process_vm_readv(target->pid, &local, 1, remote, now, 0);
		if (got != (ssize_t)(now * each))
			return failed(target, got < 0 ? errno : EFAULT);
		at += now * each;
		from += now;
		count -= now;
	}
	return true;
}

void info_printable(char *to, const char *from, size_t bytes)
{
	size_t i = 0;

	for (; i < bytes - 1 && from[i]; i++)
		to[i] = (unsigned char)from[i] < 0x20 || from[i] == 0x7f ? '?' : from[i];
	to[i] = '\0';
}

bool target_string(struct target *target, char *to, size_t bytes, const char *from)
{
	size_t have = 0;

	/* It may end just before a page that can't be read: a page at a time. */
	while (have < bytes - 1) {
		size_t in_page = KM_PAGE_SIZE - ((uintptr_t)(from + have) & (KM_PAGE_SIZE - 1));
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

/* Ours may begin here: private memory of no file, right behind some that nobody may touch. */
static bool is_candidate(const struct mapping *before, const struct mapping *here)
{
	return before->end == here->start && !before->inode && !here->inode &&
	       !strcmp(before->access, "---p") && !strcmp(here->access, "rw-p");
}

/* True: another root is in *root. A build whose record we can't read is remembered in target->result. */
static bool look(struct target *target, unsigned long start, struct info_root *root)
{
	const void *address = (const void *)start;
	struct km_root head;

	if (!target_read(target, &head, address, offsetof(struct km_root, discipline)) ||
	    memcmp(head.magic, KM_ROOT_MAGIC, sizeof(head.magic)))
		return false;
	info_printable(target->version, head.version, sizeof(target->version));
	memset(&root->layout, 0, sizeof(root->layout));
	if (head.major == KM_ROOT_MAJOR &&
	    layout_load(target, &root->layout, head.fields, head.field_count, false) &&
	    layout_has(&root->layout, "root.caches root.percpu percpu.base percpu.cpus const.area_shift cache.all.next "
		       "cache.all.prev cache.name cache.size cache.objects cache.engine"))
		return target_struct(target, &root->layout, INFO_ROOT, &root->record, address);
	if (target->result != INFO_GONE && target->result != INFO_DENIED)
		target->result = INFO_OTHER;
	return false;
}

/* Also true where that can't be told: then the reader finds out why. */
static bool has_memory(pid_t thread)
{
	char path[64], byte;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)thread);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, &byte, 1);
	if (fd >= 0)
		close(fd);
	return got != 0;
}

pid_t target_thread(pid_t pid)
{
	char path[64];
	pid_t found = pid;
	struct dirent *entry;

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
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)target->pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		target->result = errno == EACCES || errno == EPERM ? INFO_DENIED : INFO_GONE;
	return maps;
}

/* Of a core dump: each segment that may be written to is looked at. */
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
		else if (target->result == INFO_OTHER || target->result == INFO_DENIED)
			other = target->result;
		before = here;
	}
	/* Where we may open the file but not read it, or a process that has no memory: a zombie. */
	if (!lines)
		other = errno == EACCES || errno == EPERM ? INFO_DENIED :
			errno == ESRCH			  ? INFO_GONE : other;
	target->result = other;
	free(line);
	fclose(maps);
	return count;
}
