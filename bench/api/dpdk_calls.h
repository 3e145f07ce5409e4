/*
 * The work's operations over DPDK's mempool behind one plain call each, for a comparison with called libraries; the
 * definitions are in api/dpdk_calls.c.
 */
#ifndef BENCH_API_H
#define BENCH_API_H

#include "frame/bench.h"

struct rte_mempool;

struct api {
	struct rte_mempool *pool;
};

struct api api_open(size_t size);
void api_close(struct api api);
void *dpdk_alloc(struct rte_mempool *pool);
void dpdk_free(struct rte_mempool *pool, void *object);
bool dpdk_alloc_bulk(struct rte_mempool *pool, size_t count, void **objects);
void dpdk_free_bulk(struct rte_mempool *pool, size_t count, void **objects);

bench_inline void *api_alloc(struct api api)
{
	return dpdk_alloc(api.pool);
}

bench_inline void api_free(struct api api, void *object)
{
	dpdk_free(api.pool, object);
}

bench_inline bool api_alloc_bulk(struct api api, size_t count, void **objects)
{
	return dpdk_alloc_bulk(api.pool, count, objects);
}

bench_inline void api_free_bulk(struct api api, size_t count, void **objects)
{
	dpdk_free_bulk(api.pool, count, objects);
}

#endif
