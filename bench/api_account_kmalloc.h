/* The work's verbs over kmalloc with GFP_KERNEL_ACCOUNT, or without where nobody pays. */
#ifndef BENCH_API_H
#define BENCH_API_H

#include <kmem/kmem.h>

#include "account.h"

struct api {
	size_t size;
	gfp_t gfp;
	void *others;		/* the other group's object, or NULL */
};

bench_inline void *api_alloc(struct api api)
{
	return kmalloc(api.size, api.gfp);
}

bench_inline void api_free(struct api api, void *object)
{
	(void)api;
	kfree(object);
}

bench_inline struct api api_open(size_t size)
{
	struct api api = { size, bench_amounts.account ? GFP_KERNEL_ACCOUNT : GFP_KERNEL, NULL };

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
