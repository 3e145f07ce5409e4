/*
 * read_one.c: read one cache or one group of a snapshot again, without the rest of the process. The file server
 * reads single files this way. Invariant: a result comes from the same process memory as the snapshot, and from a
 * cache or group with the same name as in the snapshot; in all other cases the result is INFO_ONE_GONE or
 * INFO_ONE_OF_ALL.
 */
#include <stdlib.h>
#include <string.h>

#include "info/info.h"
#include "command.h"

struct info_source {
	struct target target;
	size_t count;
	struct info_root roots[];
};

struct info_source *info_source_make(const struct target *target, const struct info_root *roots, size_t count)
{
	struct info_source *source = kmem_need(malloc(sizeof(*source) + count * sizeof(*roots)));

	source->target = *target;
	source->count = count;
	memcpy(source->roots, roots, count * sizeof(*roots));
	return source;
}

void info_source_free(struct info_source *source)
{
	if (source)
		target_let_go(&source->target);
	free(source);
}

bool info_source_is_same(const struct snapshot *snapshot)
{
	return !snapshot->source || target_is_same(&snapshot->source->target);
}

static struct info_source *begin(const struct snapshot *of, unsigned root, struct snapshot *one)
{
	*one = (struct snapshot){ .in_full = of->in_full, .pid = of->pid, .thread = of->thread };
	one->stats.nodes = of->stats.nodes;
	if (of->source) {
		of->source->target.budget.end_ms = 0;
		target_budget(&of->source->target);
	}
	return of->source && root < of->source->count ? of->source : NULL;
}

enum info_one info_cache_again(const struct snapshot *of, size_t index, bool counts, struct snapshot *one)
{
	const struct info_cache *cache = &of->caches[index];
	struct info_source *source = begin(of, cache->root, one);

	if (!source)
		return INFO_ONE_OF_ALL;
	enum info_one result = walk_one(&source->target, &source->roots[cache->root], cache->address, counts, one);
	if (result == INFO_ONE_READ &&
	    (strcmp(one->caches[0].stats.name, cache->stats.name) || one->caches[0].shadow_of ||
	     one->caches[0].group != cache->group || !target_is_same(&source->target)))
		result = INFO_ONE_GONE;
	return result;
}

enum info_one info_group_again(const struct snapshot *of, size_t index, struct snapshot *one)
{
	const struct info_group_at *at = &of->group_at[index];
	const struct km_group_stats *group = &of->groups[index];
	struct info_source *source = begin(of, at->root, one);

	if (!source || !group->number || !at->address)
		return INFO_ONE_OF_ALL;
	return walk_group(&source->target, &source->roots[at->root], at->address, one) == INFO_OK &&
	       one->groups[0].number == group->number && one->groups[0].depth == group->depth &&
	       !strcmp(one->groups[0].name, group->name) && target_is_same(&source->target) ?
	       INFO_ONE_READ : INFO_ONE_GONE;
}
