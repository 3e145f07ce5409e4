/*
 * stderr.c: the descriptor for messages. Invariant: before each write or close, the descriptor is checked to be the
 * file of the start, or the program's new standard error. A program may close all descriptors and open files or
 * sockets under their numbers, and receives no line there.
 */
#include "stderr.h"

#include "base/bits.h"
#include "die.h"
#include "os.h"

/* A number beyond the usual range of programs, and still inside the kernel's second smallest descriptor table. */
#define KEPT_NUMBER 120
/* Bound of the search for the program's other descriptors, if 2 has changed before a line. */
#define LOOKED_AT 256

static struct {
	bool known;	/* km_stderr_start has run: `open` and `file` are valid */
	bool open;	/* descriptor 2 was open at the start, as `file` */
	struct km_os_file file;
	bool is_child;	/* this process is a child of fork */
	int kept;	/* duplicate of descriptor 2, or -1 */
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
	/* Under a limit below KEPT_NUMBER: 10, the number that shells use for such duplicates. */
	if (start.open && keeps && (start.kept = km_os_duplicate(2, KEPT_NUMBER)) < 0)
		start.kept = km_os_duplicate(2, 10);
	start.known = true;
	km_debug(start.kept < 0 || start.kept >= 10, "the duplicate has a descriptor above those of programs");
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

/* Returns: true if the program put the file there by dup2: the program has a second descriptor of the file, or of the
 * former file. */
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

/* Returns: true if the program made file 2 its standard error; false if a plain open got 2 as the first free number. */
static bool is_standard_error(const struct km_os_file *file, const struct km_os_opening *opening)
{
	if (!opening->writable || opening->closed_by_exec)
		return false;
	return (file->stream && start.open) || was_put_there();
}

/* Returns: the descriptor after a change of 2. Before the change fstat is the only system call, because filters forbid
 * more. */
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

/* A duplicate without close-on-exec is a file of the program under the same number, by dup2, and stays open. */
void km_stderr_fork_child(void)
{
	struct km_os_opening opening;

	if (is_as_it_was(start.kept) && !km_os_opening(start.kept, &opening) && opening.closed_by_exec)
		km_os_close(start.kept);
	start.kept = -1;
	start.is_child = true;
}
