/*
 * The files of a snapshot, written into a folder: a copy for tools that read files, and to look at later. Invariant:
 * nothing that is there is written over, or followed where it is a link.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/fs.h"
#include "kmem.h"

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

/* A file that its owner may read, whatever the kernel's may be; NULL of those that can't be read, or are not known. */
static bool copy_file(struct fs_tree *tree, const struct fs_dir *dir, const struct fs_file *file, int folder)
{
	struct fs_text text = { NULL, 0, 0 };
	bool ok = true;

	if (file->show && file->show(tree, dir->index, file->what, &text)) {
		int fd = openat(folder, file->name, NEW_FILE, file->mode | 0400);

		ok = fd >= 0 && write_all(fd, &text);
		int error = errno;
		if (fd >= 0 && close(fd) && ok)
			ok = false;
		else
			errno = error;
	}
	free(text.at);
	return ok;
}

/* As deep as groups are. */
static bool copy_folder(struct fs_tree *tree, size_t at, int folder)
{
	size_t count, first, below = fs_below(tree, at, &first);
	const struct fs_file *files = fs_files(tree->dirs[at].kind, &count);
	bool ok = true;

	for (size_t i = 0; ok && i < count; i++)
		ok = copy_file(tree, &tree->dirs[at], &files[i], folder);
	for (size_t i = first; ok && i < first + below; i++) {
		const char *name = tree->dirs[tree->order[i]].name;
		int fd = mkdirat(folder, name, 0755) ? -1 : openat(folder, name, FOLDER);

		ok = fd >= 0 && copy_folder(tree, tree->order[i], fd);
		int error = errno;
		if (fd >= 0)
			close(fd);
		errno = error;
	}
	return ok;
}

static bool is_empty(int folder)
{
	DIR *dir = fdopendir(dup(folder));
	struct dirent *entry = NULL;

	while (dir && (entry = readdir(dir)) && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")))
		;
	if (dir)
		closedir(dir);
	return dir && !entry;
}

/* The path's last name may be a link: then it is no folder (ENOTDIR). */
static bool is_link(const char *path)
{
	struct stat there;

	return !lstat(path, &there) && S_ISLNK(there.st_mode);
}

int fs_open_empty(const char *path, bool follow)
{
	int folder = open(path, follow ? FOLDER & ~O_NOFOLLOW : FOLDER);

	if (folder < 0 && errno == ENOTCONN)
		kmem_failed(1, "fs", "%s: something is mounted there whose server is gone: fusermount3 -u %s", path,
			    path);
	else if (folder < 0 && errno == ENOTDIR && !follow && is_link(path))
		kmem_failed(1, "fs", "%s: is a link, which is not followed", path);
	else if (folder < 0)
		kmem_failed(1, "fs", "%s: %s", path, strerror(errno));
	else if (!is_empty(folder)) {
		kmem_failed(1, "fs", "%s: is not empty", path);
		close(folder);
		return -1;
	}
	return folder;
}

/* A link that has a slash behind it would be followed. */
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
	int status = copy_folder(tree, 0, folder) ? 0 :
			     kmem_failed(1, "fs", "%s: writing: %s", into, strerror(errno));
	close(folder);
	return status;
}
