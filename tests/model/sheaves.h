/*
 * sheaves.h: the machine's operations on prefilled sheaves: a cache has one at a time, and the model knows the
 * number of its objects. Included by machine.h.
 */
#ifndef MODEL_SHEAVES_H
#define MODEL_SHEAVES_H

/* As many as before, less or more by what is known. */
static void sheaf_holds(struct machine *m, struct model_cache *c, unsigned least)
{
	unsigned size = kmem_cache_sheaf_size(c->sheaf);

	if (size < least)
		fail(m, "%s: a sheaf of %u, not %u at least", m->name, size, least);
	c->in_sheaf = size;
}

static void op_prefill(struct machine *m, unsigned a, unsigned b)
{
	int index;
	struct model_cache *c = some_cache(m, a, &index);
	unsigned n = (unsigned)some_count(b);

	if (!c || c->sheaf || !room(m, n, c->size))
		return;
	c->sheaf = kmem_cache_prefill_sheaf(c->cache, GFP_KERNEL, n);
	if (c->sheaf)
		sheaf_holds(m, c, n);
	else if (n)
		fail(m, "%s(%u): NULL", m->name, n);
}

static void op_from_sheaf(struct machine *m, unsigned a, unsigned b, unsigned c)
{
	int index;
	struct model_cache *cache = some_cache(m, a, &index);
	unsigned n = (unsigned)some_count(b);
	bool zero = c % 4 == 0;

	if (!cache || !cache->sheaf || !room(m, n, cache->size))
		return;
	for (; n && !m->failed; n--) {
		void *p = kmem_cache_alloc_from_sheaf(cache->cache,
						      zero ? GFP_NOWAIT | __GFP_ZERO : GFP_NOWAIT,
						      cache->sheaf);

		if (!p != !cache->in_sheaf)
			fail(m, "%s: %p of a sheaf of %u", m->name, p, cache->in_sheaf);
		if (!p)
			break;
		cache->in_sheaf--;
		born(m, p, cache->size, index, cache->align, zero && !cache->constructed);
	}
	sheaf_holds(m, cache, cache->in_sheaf);
}

static void op_refill(struct machine *m, unsigned a, unsigned b)
{
	int index;
	struct model_cache *c = some_cache(m, a, &index);
	unsigned n = (unsigned)some_count(b);

	if (!c || !c->sheaf || !room(m, n, c->size))
		return;
	int error = kmem_cache_refill_sheaf(c->cache, GFP_KERNEL, &c->sheaf, n);
	if (error)
		fail(m, "%s(%u): %d", m->name, n, error);
	sheaf_holds(m, c, n > c->in_sheaf ? n : c->in_sheaf);
}

static void return_sheaf(struct model_cache *c, gfp_t gfp)
{
	kmem_cache_return_sheaf(c->cache, gfp, c->sheaf);
	c->sheaf = NULL;
	c->in_sheaf = 0;
}

static void op_return(struct machine *m, unsigned a, unsigned b)
{
	int index;
	struct model_cache *c = some_cache(m, a, &index);

	if (c)
		return_sheaf(c, b & 1 ? GFP_NOWAIT : GFP_KERNEL);
}

#endif
