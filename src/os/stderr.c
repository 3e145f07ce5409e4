/*
 * stderr.c: where lines go. Invariant: a descriptor is written to, or closed, only after it was seen to be the file
 * that it was at the start, or what the program has made its standard error; whoever closes all descriptors and opens
 * files or sockets under their numbers finds nothing of ours in them.
 */
#include "stderr.h"

#include "base/bits.h"
#include "die.h"
#include "os.h"

/* Beyond what programs count, and still in the second smallest table that the kernel has for a process. */
#define KEPT_NUMBER 120
/* Where else the program may have its descriptors, if a line is to be said and 2 has changed. */
#define LOOKED_AT 256

static struct {
	bool known;	/* the start was */
	bool open;	/* 2 was open then, and is ... */
	struct km_os_file file;
	bool is_child;	/* of a fork */
	int kept;	/* its duplicate, or -1 */
} start = { .kept = -1 };

static bool is_asked_for(const char *report)
{
	char file[2];

	return km_os_getenv(report, file, sizeof(file)) == 1 && file[0] == '-';
}

/* A duplicate keeps a pipe open after the program closes descriptor 2: only a report at the end is worth the price. */
void km_stderr_start(void)
{
	bool keeps = is_asked_for("KMEM_STATS") || is_asked_for("KMEM_LEAKS");

	start.open = !km_os_file(2, &start.file);
	/* Where so many descriptors are not allowed, a number that shells use for such. */
	if (start.open && keeps && (start.kept = km_os_duplicate(2, KEPT_NUMBER)) < 0)
		start.kept = km_os_duplicate(2, 10);
	start.known = true;
	km_debug(start.kept < 0 || start.kept >= 10,
		 "the duplicate has a number that programs do not count on");
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

/* The program still has the file of descriptor 2 by another one, or what 2 was before: it put one there by dup2. */
static bool was_put_there(void)
{
	struct km_os_file file;

	for (int fd = 3; fd < LOOKED_AT; fd++) {
		if (fd == start.kept || km_os_file(fd, &file))
			continue;
		if (km_os_same_opening(2, fd) || (start.open && same(&file, &start.file)))
			return true;
	}
	return false;
}

/* Has the program made what 2 is now its standard error? Or opened something, and 2 was the first free number? */
static bool is_standard_error(const struct km_os_file *file, const struct km_os_opening *opening)
{
	if (!opening->writable || opening->closed_by_exec)
		return false;
	return (file->stream && start.open) || was_put_there();
}

/* Descriptor 2 is another file than it was, or none. Before this no system call but fstat: some forbid more. */
static km_cold int after_change(bool or_log)
{
	struct km_os_opening opening;
	struct km_os_file file;
	bool open = !km_os_file(2, &file) && !km_os_opening(2, &opening);

	if (open && is_standard_error(&file, &opening))
		return 2;
	if (is_as_it_was(start.kept))
		return start.kept;
	return or_log && start.is_child && open && start.open && opening.appends ? 2 : -1;
}

int km_stderr(bool or_log)
{
	return !start.known || is_as_it_was(2) ? 2 : after_change(or_log);
}

/* A descriptor of the same file that the program has put under its number is there to be inherited, as dup2 does. */
void km_stderr_fork_child(void)
{
	struct km_os_opening opening;

	if (is_as_it_was(start.kept) && !km_os_opening(start.kept, &opening) && opening.closed_by_exec)
		km_os_close(start.kept);
	start.kept = -1;
	start.is_child = true;
}
