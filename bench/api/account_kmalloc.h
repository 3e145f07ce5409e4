/* The work's operations over kmalloc with GFP_KERNEL_ACCOUNT, or without __GFP_ACCOUNT if uncharged. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <kmem/kmem.h>

#include "api/account.h"

struct api {
	size_t size;
	void *others;		/* the object of the other group, or NULL */
};

bench_inline void *api_alloc(struct api api)
{
	/* Constant gfp, as in programs. */
	return bench_amounts.account ? kmalloc(api.size, GFP_KERNEL_ACCOUNT) : kmalloc(api.size, GFP_KERNEL);
}

bench_inline void api_free(struct api api, void *object)
{
	(void)api;
	kfree(object);
}

bench_inline struct api api_open(size_t size)
{
	struct api api = { size, NULL };

	account_start();
	if (account_other()) {
		MEMCG_SCOPE(account_other());
		api.others = api_alloc(api);
		bench_check(api.others);
	}
	return api;
}

bench_inline void api_close(struct api api)
{
	api_free(api, api.others);
}

#endif
