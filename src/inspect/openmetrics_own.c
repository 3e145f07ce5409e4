/*
 * openmetrics_own.c: statistics of this process as OpenMetrics. Invariant: no object is allocated, neither for the
 * program nor for the library: a mapping, unmapped before the call returns, holds the snapshot. During the output no
 * lock is held, and the thread is not busy.
 */
#include <errno.h>

#include "cache/cache.h"
#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "openmetrics.h"

/* Returns: room for `count` caches or groups, and for more that may be created meanwhile. */
static size_t with_more(size_t count)
{
	return count + count / 4 + 64;
}

struct taking {
	struct km_metrics *metrics;
	size_t cache_room, group_room;
};

static int take_cache(struct kmem_cache *cache, void *arg)
{
	const struct taking *taking = arg;
	struct km_metrics *metrics = taking->metrics;
	struct kmem_cache_stats stats;

	if (cache->ext.shadow_of)
		return 0;
	if (metrics->cache_count == taking->cache_room) {
		metrics->caches_left_out++;
		return 0;
	}
	kmem_cache_get_stats(cache, &stats);
	km_metrics_cache(&metrics->caches[metrics->cache_count++], &stats,
			 cache->memcg.child_of ? cache->memcg.child_of->registry.name : NULL);
	return 0;
}

static void take_group(const struct km_group_stats *stats, void *arg)
{
	const struct taking *taking = arg;
	struct km_metrics *metrics = taking->metrics;

	km_debug(metrics->group_count <= taking->group_room, "a group is added to an array with room");
	if (metrics->group_count < taking->group_room)
		metrics->groups[metrics->group_count++] = (struct km_metrics_group){ .stats = *stats };
	else
		metrics->groups_left_out++;
}

/* Take the snapshot. Returns: the mapping, or NULL without memory. */
static void *take(struct km_metrics *metrics, size_t *bytes)
{
	struct taking taking = { .metrics = metrics };

	taking.cache_room = with_more(km_registry_count());
	taking.group_room = km_has_accounting() ? with_more(km_charge_ops->groups(NULL, NULL)) : 0;
	*bytes = taking.cache_room * sizeof(*metrics->caches) + taking.group_room * sizeof(*metrics->groups) +
		 km_max(taking.cache_room, taking.group_room) * sizeof(*metrics->order);
	metrics->caches = km_os_map(*bytes, KM_PAGE_SIZE);
	if (!metrics->caches)
		return NULL;
	metrics->groups = (void *)(metrics->caches + taking.cache_room);
	metrics->order = (void *)(metrics->groups + taking.group_room);
	km_debug(metrics->caches && !metrics->cache_count, "a new mapping has no rows");
	metrics->process = km_print_own_process();
	kmem_get_stats(&metrics->stats);
	metrics->resident_used = metrics->resident_free = metrics->resident_records = metrics->rss = KM_UNKNOWN;
	km_registry_visit(take_cache, &taking);
	if (taking.group_room)
		km_charge_ops->groups(take_group, &taking);
	return metrics->caches;
}

int kmem_metrics(int fd)
{
	struct km_metrics metrics = { .most_caches = KM_METRICS_MOST, .most_groups = KM_METRICS_MOST };
	struct km_writer writer = { .fd = fd, .no_signal = true };
	size_t bytes;

	if (!km_boot())
		return -ENOMEM;
	/* Called from a signal handler inside the allocator: this thread may hold the locks. */
	if (km_thread.busy)
		return -EBUSY;
	struct km_busy_was was = km_busy_begin();
	void *mapping = take(&metrics, &bytes);
	km_busy_end(was);
	if (!mapping)
		return -ENOMEM;
	km_metrics_print(&writer, &metrics);
	int error = km_print_end(&writer);
	km_os_unmap(mapping, bytes);
	return error;
}
