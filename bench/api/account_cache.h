/* The work's operations over a kmem_cache with SLAB_ACCOUNT, or without SLAB_ACCOUNT if uncharged; and in batches. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <kmem/kmem.h>

#include "api/account.h"

struct api {
	struct kmem_cache *cache;
	void *others;		/* the object of the other group, or NULL */
};

bench_inline void *api_alloc(struct api api)
{
	return kmem_cache_alloc(api.cache, GFP_KERNEL);
}

bench_inline void api_free(struct api api, void *object)
{
	kmem_cache_free(api.cache, object);
}

bench_inline bool api_alloc_bulk(struct api api, size_t count, void **objects)
{
	return kmem_cache_alloc_bulk(api.cache, GFP_KERNEL, count, objects);
}

bench_inline void api_free_bulk(struct api api, size_t count, void **objects)
{
	kmem_cache_free_bulk(api.cache, count, objects);
}

bench_inline struct api api_open(size_t size)
{
	struct kmem_cache_args args = { .align = 0 };
	struct api api = { .others = NULL };

	account_start();
	api.cache = kmem_cache_create("bench", (unsigned int)size, &args,
				      bench_amounts.account ? SLAB_ACCOUNT : 0);
	if (!api.cache)
		bench_die("cannot make a cache");
	if (account_other()) {
		MEMCG_SCOPE(account_other());
		api.others = api_alloc(api);
		bench_check(api.others);
	}
	return api;
}

bench_inline void api_close(struct api api)
{
	if (api.others)
		api_free(api, api.others);
	kmem_cache_destroy(api.cache);
}

#endif
