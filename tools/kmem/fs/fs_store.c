/*
 * fs_store.c: turns text written to a file of `kmem fs` into a request (request.h); the process validates the value.
 * Invariant: text that forms no request is rejected here, with the kernel's errno.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"
#include "cache/option_text.h"
#include "fs/fs.h"
#include "command.h"

struct store {
	pid_t pid;
	const struct info_cache *cache;
	const struct km_group_stats *group;
	const char *file, *value;	/* name of the file; value without its newline */
	struct kmem_mail_request request;
};

/* Copy a text into a field of the request. Returns: false if the text is too long. */
static bool put(char *to, size_t bytes, const char *text)
{
	return (size_t)snprintf(to, bytes, "%s", text) < bytes;
}

static bool is(const struct store *store, const char *value)
{
	return !strcmp(store->value, value);
}

/* Set or clear failslab (A), and repeat the debug flags of the cache's new objects. */
static int store_failslab(struct store *store)
{
	static const struct {
		slab_flags_t flag;
		const char *letter;
	} letters[] = {
		{ SLAB_CONSISTENCY_CHECKS, "F" }, { SLAB_RED_ZONE, "Z" }, { SLAB_POISON, "P" },
		{ SLAB_STORE_USER, "U" }, { SLAB_TRACE, "T" },
	};
	char *to = store->request.letters;

	if (!is(store, "0") && !is(store, "1"))
		return EINVAL;
	/* With unknown debug flags the request would clear the flags. */
	if (store->cache->full->carried == INFO_UNKNOWN)
		return EOPNOTSUPP;
	for (size_t i = 0; i < KMEM_COUNT(letters); i++)
		if (store->cache->carried & letters[i].flag)
			strcat(to, letters[i].letter);
	strcat(to, is(store, "1") ? "A" : *to ? "" : "-");
	return 0;
}

/* Parse "NAME LIMIT BATCHCOUNT SHARED". */
static int store_slabinfo(struct store *store)
{
	size_t name = strcspn(store->value, " ");

	if (!name || name >= sizeof(store->request.cache) || !store->value[name])
		return EINVAL;
	memcpy(store->request.cache, store->value, name);
	return put(store->request.letters, sizeof(store->request.letters), store->value + name + 1) ? 0 : EINVAL;
}

/* Parse bytes or "max"; for memory.peak any text. */
static int store_group(struct store *store)
{
	const char *file = store->file + strlen("memory.");
	uint64_t bytes = 0;

	if (!store->group->number)
		return EOPNOTSUPP;
	if (is(store, "max"))
		bytes = MEMCG_NO_LIMIT;
	else if (strcmp(file, "peak") && !is(store, "0") && !km_parse_bytes(store->value, &bytes))
		return EINVAL;
	if (!strcmp(file, "reclaim") && bytes == MEMCG_NO_LIMIT)
		return EINVAL;
	snprintf(store->request.cache, sizeof(store->request.cache), "%u %lu", store->group->number,
		 (unsigned long)bytes);
	return put(store->request.letters, sizeof(store->request.letters), file) ? 0 : EINVAL;
}

static int store_cache(struct store *store)
{
	switch (store->request.command) {
	case KMEM_MAIL_DEBUG:
		return store_failslab(store);
	case KMEM_MAIL_SHRINK:
	case KMEM_MAIL_VALIDATE:
		return is(store, "1") ? 0 : EINVAL;
	case KMEM_MAIL_CLEAR:
		return is(store, "0") ? 0 : EINVAL;
	default:
		return put(store->request.letters, sizeof(store->request.letters), store->value) ? 0 : EINVAL;
	}
}

int fs_store(const struct fs_tree *tree, size_t dir, const struct fs_file *file, const char *value, unsigned wait_ms)
{
	const struct fs_dir *at = &tree->dirs[dir];
	char line[FS_VALUE];
	struct store store = {
		.pid = (pid_t)tree->snapshot.pid, .file = file->name, .value = line,
		.request = { .command = file->command },
	};
	int error;

	if (strlen(value) >= sizeof(line))
		return EINVAL;
	strcpy(line, value);
	for (size_t length = strlen(line); length && strchr(" \t\n", line[length - 1]); length--)
		line[length - 1] = '\0';
	if (at->kind == FS_GROUP) {
		store.group = &tree->snapshot.groups[at->index];
		error = store_group(&store);
	} else if (at->kind == FS_CACHE) {
		store.cache = &tree->snapshot.caches[at->index];
		put(store.request.cache, sizeof(store.request.cache), store.cache->stats.name);
		error = store_cache(&store);
	} else {
		error = store_slabinfo(&store);
	}
	return error ?: kmem_ask_quietly(store.pid, &store.request, wait_ms);
}
