/*
 * chosen.c: prints the discipline that the library chooses on this kernel, for tests/system/kernels.
 */
#include <kmem/kmem.h>
#include <stdio.h>

int main(void)
{
	struct kmem_cache *cache = kmem_cache_create("chosen", 64, 0, 0, NULL);
	void *object = cache ? kmem_cache_alloc(cache, GFP_KERNEL) : NULL;

	printf("chosen: %s\n%s\n", kmem_percpu_discipline(), kmem_percpu_reason());
	if (!object)
		return 1;
	kmem_cache_free(cache, object);
	kmem_cache_destroy(cache);
	return 0;
}
