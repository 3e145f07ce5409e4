/*
 * fs.h: interfaces shared by the files of `kmem fs`. A snapshot of a running program becomes a tree of folders and
 * files with the kernel's names. Text written to a file becomes a request. Invariant: a folder's name has no slash,
 * no blank and no control character, and is neither "." nor ".."; names within a folder are unique.
 */
#ifndef KMEM_COMMAND_FS_H
#define KMEM_COMMAND_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "info/info.h"

#define FS_NAME		96
#define FS_VALUE	128	/* most bytes of a written value, with its NUL. Kernel: MAX_SLABINFO_WRITE */

/* Binary search in a sorted array. Returns: the index of the first element not below the key. */
static inline size_t fs_first(const void *array, size_t count, size_t each, const void *key,
			      int (*compare)(const void *a, const void *b))
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare((const char *)array + middle * each, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Growing text. Zeros are an empty text; the caller frees .at. */
struct fs_text {
	char *at;
	size_t length, room;
};
void fs_print(struct fs_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Kinds of folders, by the files in each. */
enum fs_kind { FS_PLAIN, FS_PROC, FS_CACHE, FS_TRACES, FS_GROUP, FS_KINDS };

struct fs_dir {
	char name[FS_NAME];
	size_t above;			/* index of the parent folder; the root is its own parent */
	enum fs_kind kind;
	size_t index;			/* index of the cache or group in the snapshot */
};

/* Cache of a private group, as an index into the snapshot. */
struct fs_private {
	unsigned group;
	size_t cache;
};

struct fs_objects;
struct maps;
struct fs_tree {
	struct snapshot snapshot;
	struct fs_objects *objects;	/* fs/fs_traces.c; NULL: not read yet */
	struct fs_private *private;	/* fs/fs_groups.c: sorted by group number; NULL: not built yet */
	size_t private_count;
	struct maps *maps;		/* fs_maps; NULL: not read yet */
	struct fs_tree *whole;		/* for a tree of one file: the full tree with the mappings */
	struct fs_dir *dirs;		/* folders, each after its parent */
	size_t count, room;
	size_t *order;			/* indices of all folders but the root, by parent, then by name */
};

struct fs_file {
	const char *name;
	mode_t mode;			/* the mode of the kernel's file */
	/* Print the text for the cache or group at `index`. Returns: false if the process's build lacks the figure.
	 * NULL: not readable. */
	bool (*show)(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text);
	unsigned long what;		/* argument of `show` */
	unsigned command;		/* enum kmem_mail_command of a write; 0: not writable */
};

/* ---- fs/fs_tree.c */

/* Take a snapshot and build the folders, without waiting for caches that are created and destroyed too fast. On
 * failure the tree needs no fs_clear(), and snapshot.version is the version of the process's libkmem, if known. */
enum info_result fs_take(pid_t pid, struct fs_tree *tree);
/* Read the cache or group of one folder now, as a tree with this folder as root. The tree `one` borrows `whole`. */
enum info_one fs_take_one(struct fs_tree *whole, size_t dir, const struct fs_file *file, bool counts,
			  struct fs_tree *one);
void fs_clear(struct fs_tree *tree);
/* Read the process's mappings, once for all files. Returns: NULL if the mappings are unreadable. */
struct maps *fs_maps(struct fs_tree *tree);
/* Find the subfolders of a folder: dirs[order[i]] for i from *first. Returns: the number of subfolders. */
size_t fs_below(const struct fs_tree *tree, size_t dir, size_t *first);
const struct fs_file *fs_files(enum fs_kind kind, size_t *count);
/* Look up a path from the root: a folder (*file NULL) or a file in the folder. Returns: false if absent. */
bool fs_find(const struct fs_tree *tree, const char *path, size_t *dir, const struct fs_file **file);

/* ---- fs/fs_caches.c, fs/fs_groups.c */
extern const struct fs_file fs_cache_files[], fs_group_files[];
extern const size_t fs_cache_file_count, fs_group_file_count;
bool fs_show_slabinfo(struct fs_tree *tree, size_t unused, unsigned long what, struct fs_text *text);
/* Print a code address as the kernel's "FUNCTION+0x10/0x20", else FILE+0xOFFSET, else the address. */
void fs_print_place(struct fs_text *text, const struct maps *maps, unsigned long address);

/* ---- fs/fs_traces.c */
extern const struct fs_file fs_trace_files[];
extern const size_t fs_trace_file_count;
/* Returns: whether the objects of the cache have allocation stacks. profiled: sampled objects of every cache. */
bool fs_is_tracked(const struct info_cache *cache);
bool fs_is_profiled(const struct snapshot *snapshot);
void fs_clear_objects(struct fs_tree *tree);

/* ---- fs/fs_store.c: send a written value to the process as a request. Returns: 0 or an errno. */
int fs_store(const struct fs_tree *tree, size_t dir, const struct fs_file *file, const char *value, unsigned wait_ms);

/* ---- fs/fs_copy.c: copy all files into a folder, new or empty. Returns: the exit status. */
/* Strips slashes at the end of `into`. */
int fs_copy(struct fs_tree *tree, char *into);
/* Open an empty folder. Returns: the descriptor, or -1 after an error message. */
int fs_open_empty(const char *path, bool follow);

/* ---- fs/fs_mount.c, or fs_mount_none.c: serve until a signal or the process's end. Returns: the exit status. */
int fs_mount(pid_t pid, const char *at, unsigned wait_ms);

#endif
