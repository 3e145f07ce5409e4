/*
 * fs_mount.c: mounts the files of `kmem fs` with libfuse3. Opening a file reads the cache or group again, alone.
 * A file that needs all caches or groups uses a full snapshot, slightly old if a snapshot takes long. Name lookup
 * uses such a snapshot. A write becomes a request to the process. Invariants: a snapshot is never of another process
 * that reused the process number. Readers and the exit never wait for a request in progress, except for the moment
 * while the process is stopped (force_slow.c).
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <fuse3/fuse_lowlevel.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "request.h"
#include "fs/fs.h"
#include "command.h"

#define OLD_MS		200u	/* most age of a snapshot for name lookup */
#define OLD_TIMES	4u	/* or this multiple of the snapshot's duration: at most 1/5 of the time */
#define QUICK_MS	50u	/* most duration of a snapshot taken anew for one file or an absent name */
#define LOOK_MS		500	/* between checks for the process's end, without a pidfd */
#define SIZE_OF_CACHES	4096	/* size that the kernel reports for files in sysfs; other files: 0 */

static struct {
	pid_t pid;
	unsigned wait_ms;
	int process;			/* pidfd of the process; -1: not supported by the kernel */
	struct fuse *fuse;
	pthread_t main;
	bool ended;			/* the process has ended */
	/* Serializes reads of the process, because the readers have static state. Protects the folders and times. */
	pthread_mutex_t reading;
	struct fs_tree folders;
	uint64_t folders_ms;		/* time of the snapshot in `folders`; 0: no snapshot */
	uint64_t took_ms;
	pthread_mutex_t asking;		/* one request at a time */
	char said[256];			/* last message of libfuse */
} fs = { .reading = PTHREAD_MUTEX_INITIALIZER, .asking = PTHREAD_MUTEX_INITIALIZER };

/* Open file, with the text read at open. */
struct handle {
	struct fs_text text;
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------ the process */

/* Wait up to `ms` for the end of the process. Returns: whether the process has ended. */
static bool has_ended(int ms)
{
	struct pollfd end = { .fd = fs.process, .events = POLLIN };

	if (fs.process >= 0)
		return poll(&end, 1, ms) > 0;
	if (ms)
		usleep(LOOK_MS * 1000);
	return kill(fs.pid, 0) && errno == ESRCH;
}

/* Take a snapshot. Returns: 0 or an errno. Requires: fs.reading held. */
static int take(struct fs_tree *tree)
{
	int error = info_errno(fs_take(fs.pid, tree));

	if (!error && has_ended(0)) {
		fs_clear(tree);
		error = ESRCH;
	}
	return error;
}

static void *wait_for_end(void *unused)
{
	while (!has_ended(-1))
		;
	fs.ended = true;
	fuse_exit(fs.fuse);
	/* Wake the main thread, which may wait for its threads or for a request. */
	pthread_kill(fs.main, SIGTERM);
	return unused;
}

static bool goes_on(void)
{
	return !fuse_session_exited(fuse_get_session(fs.fuse)) && !has_ended(0);
}

/* ------------------------------------------------------------------ names */

/* Replace fs.folders by a new snapshot. Returns: 0 or an errno. Requires: fs.reading held. */
static int renew(void)
{
	const uint64_t begun = now_ms();
	struct fs_tree tree;
	int error = take(&tree);

	if (fs.folders_ms)
		fs_clear(&fs.folders);
	fs.folders_ms = error ? 0 : now_ms();
	fs.took_ms = now_ms() - begun;
	if (!error)
		fs.folders = tree;
	return error;
}

/* Look up a path in fs.folders, renewed if too old. Returns: 0 or an errno. Requires: fs.reading held. */
static int look_up(const char *path, size_t *dir, const struct fs_file **file)
{
	uint64_t now = now_ms(), old = fs.took_ms * OLD_TIMES > OLD_MS ? fs.took_ms * OLD_TIMES : OLD_MS;
	int error = !fs.folders_ms || now - fs.folders_ms >= old || !info_source_is_same(&fs.folders.snapshot) ?
		    renew() : 0;

	if (error || fs_find(&fs.folders, path, dir, file))
		return error;
	/* Folders of caches and /proc have a fixed set of files. */
	if (fs.folders.dirs[*dir].kind == FS_CACHE || fs.folders.dirs[*dir].kind == FS_PROC)
		return ENOENT;
	/* The name may be new: renew if a snapshot is quick. Otherwise the name appears once the snapshot expires. */
	error = fs.folders_ms < now && fs.took_ms <= QUICK_MS ? renew() : 0;
	return error ?: fs_find(&fs.folders, path, dir, file) ? 0 : ENOENT;
}

static int do_getattr(const char *path, struct stat *to, struct fuse_file_info *info)
{
	const struct fs_file *file;
	size_t dir;

	(void)info;
	pthread_mutex_lock(&fs.reading);
	int error = look_up(path, &dir, &file);
	if (!error) {
		clock_gettime(CLOCK_REALTIME, &to->st_mtim);
		to->st_atim = to->st_ctim = to->st_mtim;
		to->st_mode = file ? S_IFREG | file->mode : S_IFDIR | 0755;
		to->st_nlink = file ? 1 : 2;
		to->st_size = file && fs.folders.dirs[dir].kind == FS_CACHE ? SIZE_OF_CACHES : 0;
		to->st_uid = geteuid();
		to->st_gid = getegid();
	}
	pthread_mutex_unlock(&fs.reading);
	return -error;
}

static int do_readdir(const char *path, void *to, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
		      enum fuse_readdir_flags flags)
{
	const struct fs_file *file;
	size_t dir;

	(void)offset, (void)info, (void)flags;
	pthread_mutex_lock(&fs.reading);
	int error = look_up(path, &dir, &file);
	if (!error && file)
		error = ENOTDIR;
	if (!error) {
		size_t first, below = fs_below(&fs.folders, dir, &first), count;
		const struct fs_file *files = fs_files(fs.folders.dirs[dir].kind, &count);

		fill(to, ".", NULL, 0, 0);
		fill(to, "..", NULL, 0, 0);
		for (size_t i = 0; i < count; i++)
			fill(to, files[i].name, NULL, 0, 0);
		for (size_t i = first; i < first + below; i++)
			fill(to, fs.folders.dirs[fs.folders.order[i]].name, NULL, 0, 0);
	}
	pthread_mutex_unlock(&fs.reading);
	return -error;
}

/* ------------------------------------------------------------------ files */

/* Look up a path that must be a file. Returns: 0 or an errno. Requires: fs.reading held. */
static int look_up_file(const char *path, size_t *dir, const struct fs_file **file)
{
	int error = look_up(path, dir, file);

	return error ?: *file ? 0 : EISDIR;
}

/* Look up a file in a full snapshot, renewed if `now` is set or a snapshot is quick. Returns: 0 or an errno. */
static int take_all(const char *path, bool now, size_t *dir, const struct fs_file **file)
{
	if (now || fs.took_ms <= QUICK_MS) {
		int error = renew();

		if (error)
			return error;
	}
	return !fs_find(&fs.folders, path, dir, file) ? ENOENT : *file ? 0 : EISDIR;
}

/*
 * Find the file of a path with current data: the cache or group alone in *own, or a full snapshot if reading alone is
 * impossible. Sets *tree to the tree in use; the caller must clear *own if *tree is own. counts: also read the counts
 * of the cache's objects. Returns: 0 or an errno. Requires: fs.reading held.
 */
static int find_now(const char *path, bool counts, struct fs_tree *own, struct fs_tree **tree, size_t *dir,
		    const struct fs_file **file)
{
	int error = look_up_file(path, dir, file);
	if (error)
		return error;
	const enum info_one one = fs_take_one(&fs.folders, *dir, *file, counts, own);

	*tree = one == INFO_ONE_READ ? own : &fs.folders;
	if (one == INFO_ONE_READ) {
		*dir = 0;
		return has_ended(0) ? fs_clear(own), ESRCH : 0;
	}
	return take_all(path, one == INFO_ONE_GONE || fs.folders.dirs[*dir].kind == FS_PROC, dir, file);
}

/* Returns: EACCES if the file lacks the function to read or write, else 0. Kernel: the same, also for root. */
static int refusal(const struct fs_file *file, int flags)
{
	bool reads = (flags & O_ACCMODE) != O_WRONLY, writes = (flags & O_ACCMODE) != O_RDONLY;

	return (reads && !file->show) || (writes && !file->command) ? EACCES : 0;
}

/* Print the text of a file from current data. Returns: 0 or an errno. Requires: fs.reading held. */
static int read_text(const char *path, int flags, struct fs_text *text)
{
	const uint64_t begun = now_ms();
	const struct fs_file *file;
	struct fs_tree own, *tree;
	size_t dir;
	int error = look_up_file(path, &dir, &file);

	error = error ?: refusal(file, flags);
	if (error || (flags & O_ACCMODE) == O_WRONLY)
		return error;
	error = find_now(path, true, &own, &tree, &dir, &file);
	if (error)
		return error;
	const bool had_objects = tree->objects;
	if (!file->show(tree, tree->dirs[dir].index, file->what, text))
		error = ENODATA;
	/* The objects were read once for all files of the snapshot, so their time counts as part of the snapshot. */
	if (tree->objects && !had_objects)
		fs.took_ms = now_ms() - begun;
	if (tree == &own)
		fs_clear(&own);
	return error;
}

static int do_open(const char *path, struct fuse_file_info *info)
{
	struct handle *handle = kmem_need(calloc(1, sizeof(*handle)));

	pthread_mutex_lock(&fs.reading);
	int error = read_text(path, info->flags, &handle->text);
	pthread_mutex_unlock(&fs.reading);
	info->direct_io = 1;
	info->fh = (uintptr_t)handle;
	if (error) {
		free(handle->text.at);
		free(handle);
	}
	return -error;
}

static int do_read(const char *path, char *to, size_t bytes, off_t offset, struct fuse_file_info *info)
{
	const struct fs_text *text = &((struct handle *)(uintptr_t)info->fh)->text;

	(void)path;
	if (offset < 0 || (size_t)offset >= text->length)
		return 0;
	size_t left = text->length - (size_t)offset, now = bytes < left ? bytes : left;
	memcpy(to, text->at + offset, now);
	return (int)now;
}

/* Prepare a tree owned by the caller, so that other threads may read during the request. Returns: 0 or an errno. */
static int take_to_write(const char *path, struct fs_tree *own, size_t *dir, const struct fs_file **file)
{
	struct fs_tree *tree = NULL;

	pthread_mutex_lock(&fs.reading);
	int error = find_now(path, false, own, &tree, dir, file);
	if (!error && tree != own) {
		*own = fs.folders;
		fs.folders_ms = 0;
	}
	/* A request needs no mappings, and fs.folders may be freed meanwhile. */
	own->whole = NULL;
	pthread_mutex_unlock(&fs.reading);
	return error;
}

/* Write one value; each call is one value, whatever the offset. Kernel: the same. */
static int do_write(const char *path, const char *from, size_t bytes, off_t offset, struct fuse_file_info *info)
{
	const struct fs_file *file;
	char value[FS_VALUE];
	struct fs_tree tree;
	size_t dir;

	(void)offset, (void)info;
	if (bytes >= sizeof(value) || memchr(from, '\0', bytes))
		return -EINVAL;
	memcpy(value, from, bytes);
	value[bytes] = '\0';
	int error = take_to_write(path, &tree, &dir, &file);
	if (error)
		return -error;
	pthread_mutex_lock(&fs.asking);
	error = fs_store(&tree, dir, file, value, fs.wait_ms);
	if (error && has_ended(0))
		error = ESRCH;
	pthread_mutex_unlock(&fs.asking);
	fs_clear(&tree);
	/* Drop the old snapshot: the request may have changed anything. */
	pthread_mutex_lock(&fs.reading);
	if (fs.folders_ms)
		fs_clear(&fs.folders);
	fs.folders_ms = 0;
	pthread_mutex_unlock(&fs.reading);
	return error ? -error : (int)bytes;
}

/* Accept truncation, which a shell does before a write. */
static int do_truncate(const char *path, off_t bytes, struct fuse_file_info *info)
{
	const struct fs_file *file;
	size_t dir;

	(void)bytes, (void)info;
	pthread_mutex_lock(&fs.reading);
	int error = look_up(path, &dir, &file);
	pthread_mutex_unlock(&fs.reading);
	return -(error ?: !file ? EISDIR : refusal(file, O_WRONLY));
}

static int do_release(const char *path, struct fuse_file_info *info)
{
	struct handle *handle = (struct handle *)(uintptr_t)info->fh;

	(void)path;
	free(handle->text.at);
	free(handle);
	return 0;
}

/* Disable all caching in the kernel, because the process changes. */
static void *do_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	(void)conn;
	config->direct_io = 1;
	config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
	return NULL;
}

/* ------------------------------------------------------------------ a mount */

static void remember(enum fuse_log_level level, const char *format, va_list arguments)
{
	(void)level;
	vsnprintf(fs.said, sizeof(fs.said), format, arguments);
	fs.said[strcspn(fs.said, "\n")] = '\0';
}

static void unmount(void)
{
	fuse_unmount(fs.fuse);
}

/* Serve until the process ends or a signal arrives. */
static int serve(const char *at)
{
	sigset_t ends, alarm, before;
	pthread_t watcher;

	fs.main = pthread_self();
	kmem_ask_goes_on = goes_on;
	info_before_the_end = unmount;
	/* Block SIGALRM in all threads: only the thread that stops the process receives the alarm (force_slow.c). */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	sigemptyset(&ends);
	sigaddset(&ends, SIGHUP);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, &before);
	int error = pthread_create(&watcher, NULL, wait_for_end, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return kmem_failed(1, "fs", "%s: %s", at, strerror(error));
	printf("%d: the files are in %s until the process ends or kmem fs is interrupted\n", (int)fs.pid, at);
	fflush(stdout);
	int result = fuse_loop_mt(fs.fuse, 0);
	if (fs.ended)
		kmem_failed(0, "fs", "%d: the process has ended", (int)fs.pid);
	return result < 0 && !fs.ended ? kmem_failed(1, "fs", "%s: %s", at, strerror(-result)) : 0;
}

static int mount_at(const char *at)
{
	static const struct fuse_operations operations = {
		.getattr = do_getattr, .readdir = do_readdir, .open = do_open, .read = do_read, .write = do_write,
		.truncate = do_truncate, .release = do_release, .init = do_init,
	};
	struct fuse_args arguments = FUSE_ARGS_INIT(0, NULL);
	char name[64];

	snprintf(name, sizeof(name), "-osubtype=kmem,fsname=kmem-%d", (int)fs.pid);
	fuse_set_log_func(remember);
	if (fuse_opt_add_arg(&arguments, "kmem") || fuse_opt_add_arg(&arguments, name) ||
	    !(fs.fuse = fuse_new(&arguments, &operations, sizeof(operations), NULL)))
		return kmem_failed(1, "fs", "%s: %s", at, *fs.said ? fs.said : strerror(ENOMEM));
	int status;
	if (fuse_set_signal_handlers(fuse_get_session(fs.fuse)) || fuse_mount(fs.fuse, at)) {
		status = kmem_failed(1, "fs", "%s: can't be mounted: %s", at, *fs.said ? fs.said : "no permission");
	} else {
		status = serve(at);
		fuse_unmount(fs.fuse);
	}
	fuse_remove_signal_handlers(fuse_get_session(fs.fuse));
	fuse_opt_free_args(&arguments);
	return status;
}

int fs_mount(pid_t pid, const char *at, unsigned wait_ms)
{
	int folder = fs_open_empty(at, true);
	char path[PATH_MAX];

	if (folder < 0)
		return 1;
	close(folder);
	if (!realpath(at, path))
		return kmem_failed(1, "fs", "%s: %s", at, strerror(errno));
	fs.pid = pid;
	fs.wait_ms = wait_ms;
	fs.process = (int)syscall(SYS_pidfd_open, pid, 0);
	const uint64_t begun = now_ms();
	enum info_result result = fs_take(pid, &fs.folders);
	if (info_errno(result))
		return info_complain("fs", pid, result, fs.folders.snapshot.version);
	fs.folders_ms = now_ms();
	fs.took_ms = fs.folders_ms - begun;
	return mount_at(path);
}
