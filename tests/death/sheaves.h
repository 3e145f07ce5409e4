/* sheaves.h: prefilled sheaves returned wrongly. Included by death.c, behind its helpers. */
#ifndef DEATH_SHEAVES_H
#define DEATH_SHEAVES_H

static void sheaf_twice(unsigned n)
{
	struct kmem_cache *cache = cache_of("sheaves", 64, 0);
	struct slab_sheaf *sheaf;

	/* With room for the sheaf on the CPU, and without. */
	kmem_cache_free(cache, get(cache));
	for (int i = 0; i < 2; i++) {
		struct slab_sheaf *other = kmem_cache_prefill_sheaf(cache, GFP_KERNEL, n);

		sheaf = blind(kmem_cache_prefill_sheaf(cache, GFP_KERNEL, n));
		NEED(sheaf && other);
		if (i)
			kmem_cache_return_sheaf(cache, GFP_KERNEL, other);
		kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
		expect("kmem_cache_return_sheaf(sheaves, %p): not a prefilled sheaf of this cache",
		       (void *)sheaf);
		kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
		expect("kmem_cache_refill_sheaf(sheaves, %p): not a prefilled sheaf of this cache",
		       (void *)sheaf);
		NEED(kmem_cache_refill_sheaf(cache, GFP_KERNEL, &sheaf, 1) == -EINVAL);
		if (!i)
			kmem_cache_return_sheaf(cache, GFP_KERNEL, other);
	}
	kmem_cache_shrink(cache);
}

static void sheaf_returned_twice(void)
{
	sheaf_twice(5);
}

static void array_returned_twice(void)
{
	sheaf_twice(1000);
}

/* Recognized by the capacity, by its objects, or, for an array, always. */
static void sheaf_of_other_cache(void)
{
	struct kmem_cache *mine = cache_of("mine", 64, 0), *like = cache_of("like", 64, 0);
	struct kmem_cache *other = cache_of("other", 4096, 0);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(mine, GFP_KERNEL, 5);
	struct slab_sheaf *array = kmem_cache_prefill_sheaf(mine, GFP_KERNEL, 1000);

	NEED(sheaf && array);
	expect("kmem_cache_return_sheaf(other, %p): not a prefilled sheaf of this cache", (void *)sheaf);
	kmem_cache_return_sheaf(other, GFP_KERNEL, sheaf);
	expect("kmem_cache_return_sheaf(like, %p): not a prefilled sheaf of this cache", (void *)array);
	kmem_cache_return_sheaf(like, GFP_KERNEL, array);
	kmem_cache_return_sheaf(mine, GFP_KERNEL, sheaf);
	kmem_cache_return_sheaf(mine, GFP_KERNEL, array);
}

static void sheaf_of_like_cache(void)
{
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_cache *mine = kmem_cache_create("mine", 64, &args, 0);
	struct kmem_cache *like = kmem_cache_create("like", 64, &args, 0);
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(mine, GFP_KERNEL, 5);
	void *p = kmem_cache_alloc_from_sheaf(mine, GFP_KERNEL, sheaf);

	NEED(p);
	/* The next one: a slab's objects lie in a row. */
	expect("kmem_cache_return_sheaf(like, %p): object belongs to different cache mine", (char *)p + 64);
	kmem_cache_return_sheaf(like, GFP_KERNEL, sheaf);
	kmem_cache_return_sheaf(mine, GFP_KERNEL, sheaf);
	kmem_cache_free(mine, p);
}

static void sheaf_of_dead_cache(void)
{
	struct kmem_cache *cache = cache_of("dead", 64, 0);

	kmem_cache_destroy(cache);
	expect("kmem_cache_prefill_sheaf(dead, %p): cache is destroyed", (void *)cache);
	NEED(!kmem_cache_prefill_sheaf(blind(cache), GFP_KERNEL, 5));
	after_warning();
}

static void bad_gfp_sheaf(void)
{
	struct kmem_cache *cache = cache_of("gfp", 64, 0);

	expect("kmem_cache_prefill_sheaf(gfp, 0x80001b00): unexpected gfp bits");
	struct slab_sheaf *sheaf = kmem_cache_prefill_sheaf(cache, 0x80001b00u, 5);
	after_warning();
	kmem_cache_return_sheaf(cache, GFP_KERNEL, sheaf);
}

#endif
