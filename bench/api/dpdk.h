/*
 * The work's operations over DPDK's mempool, as DPDK's users call the mempool: inline functions over a per-lcore cache
 * in front of a fixed pool. The pool is larger than any batch and never grows.
 */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <rte_mempool.h>

#include "frame/bench.h"

struct api {
	struct rte_mempool *pool;
};

struct api api_open(size_t size);
void api_close(struct api api);

bench_inline void *api_alloc(struct api api)
{
	void *object = NULL;

	if (rte_mempool_get(api.pool, &object))
		return NULL;
	return object;
}

bench_inline void api_free(struct api api, void *object)
{
	rte_mempool_put(api.pool, object);
}

bench_inline bool api_alloc_bulk(struct api api, size_t count, void **objects)
{
	return !rte_mempool_get_bulk(api.pool, objects, (unsigned int)count);
}

bench_inline void api_free_bulk(struct api api, size_t count, void **objects)
{
	rte_mempool_put_bulk(api.pool, objects, (unsigned int)count);
}

#endif
