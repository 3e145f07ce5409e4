/*
 * What the files of `kmem fs` share: a running program's numbers as folders and files with the kernel's names, made of
 * one snapshot; and what becomes of a text that is written to such a file. Invariant: a name of a folder has no slash,
 * no blank and nothing that a terminal should not get, and is neither "." nor ".."; those of one folder differ.
 */
#ifndef KMEM_COMMAND_FS_H
#define KMEM_COMMAND_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "info/info.h"

#define FS_NAME		96
#define FS_VALUE	128	/* bytes of what is written, with its NUL. Kernel: MAX_SLABINFO_WRITE */

/* Of an array in order: the place of the first that is not before the key. */
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

/* A text that grows. Start with zeros; free .at. */
struct fs_text {
	char *at;
	size_t length, room;
};
void fs_print(struct fs_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The kinds of folders, by the files in them. */
enum fs_kind { FS_PLAIN, FS_PROC, FS_CACHE, FS_TRACES, FS_GROUP, FS_KINDS };

struct fs_dir {
	char name[FS_NAME];
	size_t above;			/* its place in the tree; the first is below itself */
	enum fs_kind kind;
	size_t index;			/* the cache's or the group's place in the snapshot */
};

/* A cache of a private group, by its place in the snapshot. */
struct fs_private {
	unsigned group;
	size_t cache;
};

struct fs_objects;
struct maps;
struct fs_tree {
	struct snapshot snapshot;
	struct fs_objects *objects;	/* fs/fs_traces.c; NULL: nobody looked */
	struct fs_private *private;	/* fs/fs_groups.c: by the group's number; NULL: nobody looked */
	size_t private_count;
	struct maps *maps;		/* fs_maps; NULL: nobody asked */
	struct fs_tree *whole;		/* of one file alone: that which has the mappings */
	struct fs_dir *dirs;		/* each behind the one that it is below */
	size_t count, room;
	size_t *order;			/* of all but the first: by the folder above, then by name */
};

struct fs_file {
	const char *name;
	mode_t mode;			/* as the kernel has it */
	/* Its text, of the cache or group at `index`. False: the process's build does not tell. NULL: it can't be
	 * read. */
	bool (*show)(struct fs_tree *tree, size_t index, unsigned long what, struct fs_text *text);
	unsigned long what;		/* for `show` */
	unsigned command;		/* enum km_mail_command of what is written; 0: it can't be written to */
};

/* ---- fs/fs_tree.c */

/* Take a snapshot, and make its folders; wait for no caches that come and go too fast. On failure nothing is to be
 * cleared, and snapshot.version is that of its libkmem, as far as it is known. */
enum info_result fs_take(pid_t pid, struct fs_tree *tree);
/* Of the folder's cache or group a tree of its own, as it is now, with the folder as its first. It borrows `whole`. */
enum info_one fs_take_one(struct fs_tree *whole, size_t dir, const struct fs_file *file, bool counts,
			  struct fs_tree *one);
void fs_clear(struct fs_tree *tree);
/* The process's mappings, once for all files; NULL: they can't be read. */
struct maps *fs_maps(struct fs_tree *tree);
/* Those below: dirs[order[i]] for i from *first on; how many. */
size_t fs_below(const struct fs_tree *tree, size_t dir, size_t *first);
const struct fs_file *fs_files(enum fs_kind kind, size_t *count);
/* What a path from the root of the files names: a folder (*file NULL) or a file there. False: nothing. */
bool fs_find(const struct fs_tree *tree, const char *path, size_t *dir, const struct fs_file **file);

/* ---- fs/fs_caches.c, fs/fs_groups.c */
extern const struct fs_file fs_cache_files[], fs_group_files[];
extern const size_t fs_cache_file_count, fs_group_file_count;
bool fs_show_slabinfo(struct fs_tree *tree, size_t unused, unsigned long what, struct fs_text *text);
/* "FUNCTION+0x10/0x20" as the kernel has it, or FILE+0xOFFSET, or the address. */
void fs_print_place(struct fs_text *text, const struct maps *maps, unsigned long address);

/* ---- fs/fs_traces.c */
extern const struct fs_file fs_trace_files[];
extern const size_t fs_trace_file_count;
/* Of which caches' objects is it known by whom they were allocated? profiled: of some of each. */
bool fs_is_tracked(const struct info_cache *cache);
bool fs_is_profiled(const struct snapshot *snapshot);
void fs_clear_objects(struct fs_tree *tree);

/* ---- fs/fs_store.c: what is written to a file reaches the process: 0 or an errno. */
int fs_store(const struct fs_tree *tree, size_t dir, const struct fs_file *file, const char *value, unsigned wait_ms);

/* ---- fs/fs_copy.c: all of them into a folder, which is made, or empty: the exit status. */
/* Slashes at the end of `into` go. */
int fs_copy(struct fs_tree *tree, char *into);
/* An empty folder; -1: it is none, or a link that is not to be followed, which was said. */
int fs_open_empty(const char *path, bool follow);

/* ---- fs/fs_mount.c, or fs_mount_none.c: until a signal or the end of the process ends it: the exit status. */
int fs_mount(pid_t pid, const char *at, unsigned wait_ms);

#endif
