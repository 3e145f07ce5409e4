/*
 * fs_copy.c: writes the files of a snapshot into a folder, for tools that read files and for later study. Invariant:
 * no existing file is overwritten, and no link is followed. Files of caches with equal text are hard links.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/fs.h"
#include "command.h"

#define NEW_FILE (O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC)
#define FOLDER	 (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static bool write_all(int fd, const struct fs_text *text)
{
	for (size_t at = 0; at < text->length;) {
		ssize_t put = write(fd, text->at + at, text->length - at);

		if (put <= 0)
			return false;
		at += (size_t)put;
	}
	return true;
}

/* ------------------------------------------------------------------ files with equal text */

/*
 * Each cache has about seventy files, most with the same text for all caches. Separate files would take a disk block
 * each, so files with equal text and mode are hard links to one file.
 */
#define KNOWN		1024u		/* entries; a power of two */
#define KNOWN_TEXT	32u

struct known {
	char path[4 * FS_NAME];		/* path relative to the top folder; "": empty entry */
	char text[KNOWN_TEXT];
	size_t length;
	mode_t mode;
};

struct copying {
	struct fs_tree *tree;
	int top;
	bool cannot_link;
	struct known known[KNOWN];
};

static struct known *known_of(struct copying *copying, const struct fs_text *text, mode_t mode)
{
	uint64_t hash = mode;

	for (size_t i = 0; i < text->length; i++)
		hash = (hash ^ (unsigned char)text->at[i]) * 0x100000001b3u;
	return &copying->known[(hash ^ hash >> 32) & (KNOWN - 1)];
}

/* Link a known file with the same text. EMLINK: the file has the most links allowed, so the caller writes a new file,
 * which replaces the known file. Returns: whether the link was made. */
static bool link_known(struct copying *copying, const struct known *known, const struct fs_text *text, mode_t mode,
		       int folder, const char *name)
{
	if (!*known->path || known->mode != mode || known->length != text->length ||
	    (text->length && memcmp(known->text, text->at, text->length)))
		return false;
	if (!linkat(copying->top, known->path, folder, name, 0))
		return true;
	copying->cannot_link = errno != EMLINK;
	return false;
}

static void know(struct copying *copying, struct known *known, const struct fs_text *text, mode_t mode, size_t dir,
		 const char *name)
{
	const struct fs_dir *dirs = copying->tree->dirs;
	char path[sizeof(known->path)];

	snprintf(known->path, sizeof(known->path), "%s", name);
	for (; dir; dir = dirs[dir].above) {
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", dirs[dir].name, known->path) >= sizeof(path)) {
			known->path[0] = '\0';
			return;
		}
		memcpy(known->path, path, sizeof(path));
	}
	known->mode = mode;
	known->length = text->length;
	if (text->length)
		memcpy(known->text, text->at, text->length);
}

static bool write_file(int folder, const char *name, mode_t mode, const struct fs_text *text)
{
	int fd = openat(folder, name, NEW_FILE, mode);
	bool ok = fd >= 0 && write_all(fd, text);
	int error = errno;

	if (fd >= 0 && close(fd) && ok)
		ok = false;
	else
		errno = error;
	return ok;
}

/* Copy one file, readable by its owner in any case. Skips files without readable text or with unknown figures. */
static bool copy_file(struct copying *copying, size_t dir, const struct fs_file *file, int folder)
{
	const struct fs_dir *at = &copying->tree->dirs[dir];
	struct fs_text text = { NULL, 0, 0 };
	const mode_t mode = file->mode | 0400;
	bool ok = true;

	if (file->show && file->show(copying->tree, at->index, file->what, &text)) {
		const bool small = at->kind != FS_GROUP && text.length <= KNOWN_TEXT && !copying->cannot_link;
		struct known *known = small ? known_of(copying, &text, mode) : NULL;

		if (!known || !link_known(copying, known, &text, mode, folder, file->name)) {
			ok = write_file(folder, file->name, mode, &text);
			if (ok && known)
				know(copying, known, &text, mode, dir, file->name);
		}
	}
	free(text.at);
	return ok;
}

/* Copy a folder, recursively. The depth is bounded by the depth of groups. */
static bool copy_folder(struct copying *copying, size_t at, int folder)
{
	struct fs_tree *tree = copying->tree;
	size_t count, first, below = fs_below(tree, at, &first);
	const struct fs_file *files = fs_files(tree->dirs[at].kind, &count);
	bool ok = true;

	for (size_t i = 0; ok && i < count; i++)
		ok = copy_file(copying, at, &files[i], folder);
	for (size_t i = first; ok && i < first + below; i++) {
		const char *name = tree->dirs[tree->order[i]].name;
		int fd = mkdirat(folder, name, 0755) ? -1 : openat(folder, name, FOLDER);

		ok = fd >= 0 && copy_folder(copying, tree->order[i], fd);
		int error = errno;
		if (fd >= 0)
			close(fd);
		errno = error;
	}
	return ok;
}

/* Returns: whether the folder is empty; if false, errno is the error, or 0 for a folder with entries. */
static bool is_empty(int folder)
{
	int copy = fcntl(folder, F_DUPFD_CLOEXEC, 0);
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *entry = NULL;
	int error = dir ? 0 : errno;

	while (dir && (entry = readdir(dir)) && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")))
		;
	if (dir)
		closedir(dir);
	errno = error;
	return dir && !entry;
}

/* Returns: whether the path is a symbolic link, which open() with O_NOFOLLOW reports as ENOTDIR. */
static bool is_link(const char *path)
{
	struct stat there;

	return !lstat(path, &there) && S_ISLNK(there.st_mode);
}

int fs_open_empty(const char *path, bool follow)
{
	int folder = open(path, follow ? FOLDER & ~O_NOFOLLOW : FOLDER);

	if (folder < 0 && errno == ENOTCONN)
		kmem_failed(1, "fs", "%s: a mount without a server is there; remove the mount with "
				     "fusermount3 -u %s", path, path);
	else if (folder < 0 && errno == ENOTDIR && !follow && is_link(path))
		kmem_failed(1, "fs", "%s: is a symbolic link, and links are not followed", path);
	else if (folder < 0)
		kmem_failed(1, "fs", "%s: %s", path, strerror(errno));
	else if (!is_empty(folder)) {
		kmem_failed(1, "fs", errno ? "%s: %s" : "%s: is not empty", path, strerror(errno));
		close(folder);
		return -1;
	}
	return folder;
}

/* Strip trailing slashes: a link with a trailing slash would be followed. */
static void cut_slashes(char *path)
{
	for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--)
		path[end - 1] = '\0';
}

int fs_copy(struct fs_tree *tree, char *into)
{
	cut_slashes(into);
	if (mkdir(into, 0755) && errno != EEXIST)
		return kmem_failed(1, "fs", "%s: %s", into, strerror(errno));
	int folder = fs_open_empty(into, false);
	if (folder < 0)
		return 1;
	struct copying *copying = kmem_need(calloc(1, sizeof(*copying)));
	copying->tree = tree;
	copying->top = folder;
	int status = copy_folder(copying, 0, folder) ? 0 :
			     kmem_failed(1, "fs", "%s: writing: %s; the copy is incomplete", into, strerror(errno));
	free(copying);
	close(folder);
	return status;
}
