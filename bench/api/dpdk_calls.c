/* Definitions for api/dpdk_calls.h: each operation is one function in a separate object file. */
#include "api/dpdk.h"

void *dpdk_alloc(struct rte_mempool *pool);
void dpdk_free(struct rte_mempool *pool, void *object);
bool dpdk_alloc_bulk(struct rte_mempool *pool, size_t count, void **objects);
void dpdk_free_bulk(struct rte_mempool *pool, size_t count, void **objects);

void *dpdk_alloc(struct rte_mempool *pool)
{
	return api_alloc((struct api){ pool });
}

void dpdk_free(struct rte_mempool *pool, void *object)
{
	api_free((struct api){ pool }, object);
}

bool dpdk_alloc_bulk(struct rte_mempool *pool, size_t count, void **objects)
{
	return api_alloc_bulk((struct api){ pool }, count, objects);
}

void dpdk_free_bulk(struct rte_mempool *pool, size_t count, void **objects)
{
	api_free_bulk((struct api){ pool }, count, objects);
}
