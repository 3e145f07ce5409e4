/*
 * fs_tree.c: builds the folders of a snapshot: /proc, one folder in /sys/kernel/slab for each cache, and one in
 * /sys/fs/cgroup for each group. Names come from the process and may be any text. Invalid characters are
 * replaced. A folder named like a file beside it gets a leading underscore. Of equal names, the later folders get "~"
 * and their index in the snapshot. Invariant: all names within a folder differ.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/fs.h"
#include "info/info_print.h"
#include "command.h"
#include "leaks/maps.h"

/* ------------------------------------------------------------------ texts */

void fs_print(struct fs_text *text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int length = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	if (text->length + (size_t)length >= text->room) {
		text->room = text->room * 2 + (size_t)length + 64;
		text->at = kmem_need(realloc(text->at, text->room));
	}
	va_start(arguments, format);
	vsnprintf(text->at + text->length, text->room - text->length, format, arguments);
	va_end(arguments);
	text->length += (size_t)length;
}

/* ------------------------------------------------------------------ names */

/* Make a valid file name. Kernel: a slash also becomes an exclamation mark. */
static void clean(char to[FS_NAME], const char *from)
{
	km_text_take(to, FS_NAME - 23, from, " ", '_');
	for (char *slash = to; (slash = strchr(slash, '/'));)
		*slash = '!';
	if (!*to)
		strcpy(to, "_");
	else if (!strcmp(to, ".") || !strcmp(to, ".."))
		memset(to, '_', strlen(to));
}

static bool is_file(enum fs_kind kind, const char *name)
{
	size_t count;
	const struct fs_file *files = fs_files(kind, &count);

	for (size_t i = 0; i < count; i++)
		if (!strcmp(files[i].name, name))
			return true;
	return false;
}

static size_t add_dir(struct fs_tree *tree, size_t above, const char *name, enum fs_kind kind, size_t index)
{
	tree->dirs = kmem_grow(tree->dirs, tree->count, &tree->room, sizeof(*tree->dirs));
	struct fs_dir *dir = &tree->dirs[tree->count];

	*dir = (struct fs_dir){ .above = above, .kind = kind, .index = index };
	clean(dir->name, name);
	if (tree->count && is_file(tree->dirs[above].kind, dir->name)) {
		memmove(dir->name + 1, dir->name, strlen(dir->name) + 1);
		dir->name[0] = '_';
	}
	return tree->count++;
}

static int by_place(const void *a, const void *b, void *dirs)
{
	const struct fs_dir *x = (struct fs_dir *)dirs + *(const size_t *)a;
	const struct fs_dir *y = (struct fs_dir *)dirs + *(const size_t *)b;

	if (x->above != y->above)
		return x->above < y->above ? -1 : 1;
	int by_name = strcmp(x->name, y->name);
	return by_name ? by_name : (x > y) - (x < y);
}

/* Returns: whether the name ends in "~" and a number. */
static bool looks_told_apart(const char *name)
{
	const char *behind = strrchr(name, '~');

	return behind && behind[1] && !behind[1 + strspn(behind + 1, "0123456789")];
}

static bool are_alike(const struct fs_tree *tree, size_t i, size_t j)
{
	const struct fs_dir *x = &tree->dirs[tree->order[i]], *y = &tree->dirs[tree->order[j]];

	return x->above == y->above && !strcmp(x->name, y->name);
}

static bool some_are_alike(struct fs_tree *tree)
{
	qsort_r(tree->order, tree->count - 1, sizeof(*tree->order), by_place, tree->dirs);
	for (size_t i = 1; i < tree->count - 1; i++)
		if (are_alike(tree, i - 1, i))
			return true;
	return false;
}

/* Append "~" and the index to each folder with an earlier equal name. all: also to each name that already ends in "~"
 * and a number, to let no two names end in the same index. */
static void tell_apart(struct fs_tree *tree, bool all)
{
	/* Go backwards, so that each name is compared with an unchanged name. */
	for (size_t i = tree->count - 1; i-- > 0;) {
		struct fs_dir *dir = &tree->dirs[tree->order[i]];
		size_t length = strlen(dir->name);

		if ((i && are_alike(tree, i - 1, i)) || (all && looks_told_apart(dir->name)))
			snprintf(dir->name + length, FS_NAME - length, "~%zu", dir->index);
	}
}

static void put_in_order(struct fs_tree *tree)
{
	tree->order = kmem_need(calloc(tree->count, sizeof(*tree->order)));
	for (size_t i = 1; i < tree->count; i++)
		tree->order[i - 1] = i;
	if (some_are_alike(tree))
		tell_apart(tree, false);
	/* A changed name may equal an original name: repeat with all. */
	if (some_are_alike(tree))
		tell_apart(tree, true);
	qsort_r(tree->order, tree->count - 1, sizeof(*tree->order), by_place, tree->dirs);
}

/* ------------------------------------------------------------------ folders */

static void add_groups(struct fs_tree *tree, size_t root)
{
	const struct snapshot *snapshot = &tree->snapshot;
	struct info_names names = info_group_names(snapshot);
	size_t above[MEMCG_DEPTH_MAX + 1];

	for (size_t i = 0; i <= MEMCG_DEPTH_MAX; i++)
		above[i] = root;
	/* Each group precedes its children in the snapshot. */
	for (size_t i = 0; i < snapshot->group_count; i++) {
		const struct km_group_stats *group = &snapshot->groups[i];
		size_t depth = group->depth && group->depth <= MEMCG_DEPTH_MAX ? group->depth : 1;
		size_t dir = add_dir(tree, above[depth - 1], info_group_name(&names, group).text, FS_GROUP, i);

		for (; depth <= MEMCG_DEPTH_MAX; depth++)
			above[depth] = dir;
	}
	free(names.shared);
}

/* Add the folders of debug/slab, for all caches or for none, so that the names equal the names in slab. */
static void add_traces(struct fs_tree *tree, size_t kernel)
{
	const struct snapshot *snapshot = &tree->snapshot;
	bool all = fs_is_profiled(snapshot), some = all;

	for (size_t i = 0; i < snapshot->count; i++)
		some |= fs_is_tracked(&snapshot->caches[i]);
	if (!some)
		return;
	size_t slab = add_dir(tree, add_dir(tree, kernel, "debug", FS_PLAIN, 0), "slab", FS_PLAIN, 0);
	for (size_t i = 0; i < snapshot->count; i++)
		add_dir(tree, slab, snapshot->caches[i].stats.name,
			all || fs_is_tracked(&snapshot->caches[i]) ? FS_TRACES : FS_PLAIN, i);
}

static void build(struct fs_tree *tree)
{
	size_t top = add_dir(tree, 0, "", FS_PLAIN, 0), sys, kernel, slab;

	add_dir(tree, top, "proc", FS_PROC, 0);
	sys = add_dir(tree, top, "sys", FS_PLAIN, 0);
	kernel = add_dir(tree, sys, "kernel", FS_PLAIN, 0);
	slab = add_dir(tree, kernel, "slab", FS_PLAIN, 0);
	for (size_t i = 0; i < tree->snapshot.count; i++)
		add_dir(tree, slab, tree->snapshot.caches[i].stats.name, FS_CACHE, i);
	add_traces(tree, kernel);
	add_groups(tree, add_dir(tree, add_dir(tree, sys, "fs", FS_PLAIN, 0), "cgroup", FS_PLAIN, 0));
	put_in_order(tree);
}

enum info_result fs_take(pid_t pid, struct fs_tree *tree)
{
	*tree = (struct fs_tree){ .snapshot = { .in_full = true, .by_one = true } };
	enum info_result result = info_of_process(pid, &tree->snapshot);

	if (info_errno(result)) {
		char version[sizeof(tree->snapshot.version)];

		memcpy(version, tree->snapshot.version, sizeof(version));
		snapshot_clear(&tree->snapshot);
		memcpy(tree->snapshot.version, version, sizeof(version));
		return result;
	}
	build(tree);
	return result;
}

enum info_one fs_take_one(struct fs_tree *whole, size_t dir, const struct fs_file *file, bool counts,
			  struct fs_tree *one)
{
	const struct fs_dir *at = &whole->dirs[dir];
	enum info_one result = INFO_ONE_OF_ALL;

	*one = (struct fs_tree){ .whole = whole };
	if (at->kind == FS_CACHE)
		result = info_cache_again(&whole->snapshot, at->index, counts, &one->snapshot);
	else if (at->kind == FS_GROUP && (!counts || strcmp(file->name, "memory.numa_stat")))
		result = info_group_again(&whole->snapshot, at->index, &one->snapshot);
	if (result != INFO_ONE_READ) {
		fs_clear(one);
		return result;
	}
	one->dirs = kmem_need(calloc(1, sizeof(*one->dirs)));
	one->dirs[0] = (struct fs_dir){ .kind = at->kind };
	one->count = 1;
	return result;
}

struct maps *fs_maps(struct fs_tree *tree)
{
	if (tree->whole)
		return fs_maps(tree->whole);
	if (!tree->maps) {
		tree->maps = kmem_need(calloc(1, sizeof(*tree->maps)));
		maps_of_process((pid_t)tree->snapshot.thread, tree->maps);
	}
	return tree->maps->count ? tree->maps : NULL;
}

void fs_clear(struct fs_tree *tree)
{
	fs_clear_objects(tree);
	if (tree->maps)
		maps_clear(tree->maps);
	free(tree->maps);
	free(tree->private);
	snapshot_clear(&tree->snapshot);
	free(tree->dirs);
	free(tree->order);
	*tree = (struct fs_tree){ .count = 0 };
}

/* ------------------------------------------------------------------ lookup */

const struct fs_file *fs_files(enum fs_kind kind, size_t *count)
{
	static const struct fs_file proc[] = { { "slabinfo", 0600, fs_show_slabinfo, 0, KMEM_MAIL_TUNE } };

	static const struct {
		const struct fs_file *files;
		const size_t *count;
	} kinds[FS_KINDS] = {
		[FS_CACHE] = { fs_cache_files, &fs_cache_file_count },
		[FS_TRACES] = { fs_trace_files, &fs_trace_file_count },
		[FS_GROUP] = { fs_group_files, &fs_group_file_count },
	};

	*count = kind == FS_PROC ? 1 : kinds[kind].count ? *kinds[kind].count : 0;
	return kind == FS_PROC ? proc : kinds[kind].files;
}

/* Binary search among the subfolders. Returns: the index of the first folder not below the name. */
static size_t search(const struct fs_tree *tree, size_t above, const char *name)
{
	size_t low = 0, high = tree->count - 1;

	while (low < high) {
		size_t half = (low + high) / 2;
		const struct fs_dir *dir = &tree->dirs[tree->order[half]];

		if (dir->above < above || (dir->above == above && strcmp(dir->name, name) < 0))
			low = half + 1;
		else
			high = half;
	}
	return low;
}

size_t fs_below(const struct fs_tree *tree, size_t dir, size_t *first)
{
	*first = search(tree, dir, "");
	return search(tree, dir + 1, "") - *first;
}

static size_t find_dir(const struct fs_tree *tree, size_t above, const char *name)
{
	size_t at = search(tree, above, name);
	const struct fs_dir *dir = at < tree->count - 1 ? &tree->dirs[tree->order[at]] : NULL;

	return dir && dir->above == above && !strcmp(dir->name, name) ? tree->order[at] : 0;
}

bool fs_find(const struct fs_tree *tree, const char *path, size_t *dir, const struct fs_file **file)
{
	char name[FS_NAME];

	*dir = 0;
	*file = NULL;
	for (size_t length; *(path += strspn(path, "/")); path += length) {
		length = strcspn(path, "/");
		if (*file || length >= sizeof(name))
			return false;
		memcpy(name, path, length);
		name[length] = '\0';
		size_t count, below = find_dir(tree, *dir, name);
		const struct fs_file *files = fs_files(tree->dirs[*dir].kind, &count);

		for (size_t i = 0; !below && i < count && !*file; i++)
			*file = strcmp(files[i].name, name) ? NULL : &files[i];
		if (!below && !*file)
			return false;
		*dir = below ? below : *dir;
	}
	return true;
}
