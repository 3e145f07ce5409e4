/*
 * stderr.c: where lines go. Invariant: a descriptor is written to, or closed, only after it was seen to be the file
 * that it was at the start, or a log; whoever closes all descriptors and opens others under their numbers finds nothing
 * of ours there.
 */
#include "stderr.h"

#include "bits.h"
#include "os.h"

/* Beyond what programs count, and still in the second smallest table that the kernel has for a process. */
#define KEPT_NUMBER 120

static struct {
	bool known;	/* the start was */
	bool open;	/* 2 was open then, and is ... */
	struct km_os_file file;
	int kept;	/* its duplicate, or -1 */
} start = { .kept = -1 };

void km_stderr_start(void)
{
	start.open = !km_os_file(2, &start.file);
	/* Where so many descriptors are not allowed, a number that shells use for such. */
	if (start.open && (start.kept = km_os_duplicate(2, KEPT_NUMBER)) < 0)
		start.kept = km_os_duplicate(2, 10);
	start.known = true;
}

static bool same(const struct km_os_file *a, const struct km_os_file *b)
{
	return a->device == b->device && a->inode == b->inode;
}

static bool is_as_it_was(int fd)
{
	struct km_os_file file;

	return start.open && fd >= 0 && !km_os_file(fd, &file) && same(&file, &start.file);
}

static bool is_log(int fd)
{
	struct km_os_file file, output;

	if (!start.open || km_os_file(fd, &file))
		return false;
	if (file.regular)
		return file.appends;
	return !km_os_file(1, &output) && same(&file, &output);
}

int km_stderr(bool or_log)
{
	if (!start.known || is_as_it_was(2))
		return 2;
	if (is_as_it_was(start.kept))
		return start.kept;
	return or_log && is_log(2) ? 2 : -1;
}

void km_stderr_fork_child(void)
{
	if (is_as_it_was(start.kept))
		km_os_close(start.kept);
	start.kept = -1;
}
