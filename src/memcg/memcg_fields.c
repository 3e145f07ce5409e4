/*
 * memcg_fields.c: the offsets of groups' fields, for `kmem info`, as cache/cache_fields.c for caches. A separate
 * file, because a program without groups does not contain this table. Invariant: see base/fields.h.
 */
#include "memcg_group.h"

_Static_assert(KM_STOCK_SLOTS == KMEM_RECORD_STOCKS, "readers know the number");

#define VIEW(member)	KM_FIELD_IN("view", struct km_memcg_view, member)
#define GROUP(member)	KM_FIELD_IN("group", struct mem_cgroup, member)
#define OBJCG(member)	KM_FIELD_IN("objcg", struct obj_cgroup, member)

const struct kmem_record_field km_group_fields[] = {
	KM_FIELD_STRUCT("view", struct km_memcg_view),
	VIEW(root), VIEW(stocks), VIEW(stock_count),
	KM_FIELD_STRUCT("group", struct mem_cgroup),
	GROUP(memory.usage), GROUP(memory.peak), GROUP(memory.failcnt), GROUP(memory.max), GROUP(memory.high),
	GROUP(memory.low), GROUP(memory.min), GROUP(kmem.usage), GROUP(objcg), GROUP(parent), GROUP(online),
	GROUP(depth), GROUP(number), GROUP(children.next), GROUP(children.prev), GROUP(sibling.next),
	GROUP(sibling.prev), GROUP(objcgs.next),
	KM_FIELD_ARRAY("group", struct mem_cgroup, events), KM_FIELD_ARRAY("group", struct mem_cgroup, local),
	KM_FIELD_ARRAY("group", struct mem_cgroup, name),
	KM_FIELD_STRUCT("objcg", struct obj_cgroup),
	OBJCG(stock), OBJCG(nr_charged_bytes), OBJCG(home), OBJCG(link.next), OBJCG(link.prev),
	KM_FIELD_STRUCT("stock", struct km_stock),
	KM_FIELD_ARRAY("stock", struct km_stock, groups), KM_FIELD_ARRAY("stock", struct km_stock, pages),
};
const unsigned km_group_field_count = km_array_count(km_group_fields);
