/*
 * malloc_resized_aligned: promises about an address also hold for the address returned by a resizing call, for an
 * object that stays and for one that moves: kmalloc's alignment for krealloc and krealloc_array, for kvrealloc up to
 * 8 KiB and a page beyond, malloc's for realloc and reallocarray, also for kmalloc objects. Contents stay. A size
 * beyond the limit is refused, also for an object with enough room. Guarded, hardened and debugged, too.
 */
#include <errno.h>
#include <limits.h>

#include "kit/api.h"

static const size_t sizes[] = {
	1, 8, 16, 24, 32, 40, 56, 64, 65, 96, 128, 192, 256, 384, 1000, 1024, 3000, 4096, 8192, 12288,
	16384, 20000, 65536,
};
#define SIZES (sizeof(sizes) / sizeof(*sizes))
#define FROM 3				/* of each, because half of them may lie right by chance */

static size_t natural(size_t size)
{
	size_t divisor = size & -size;

	return divisor > 8 ? divisor : 8;
}

static size_t kv_natural(size_t size)
{
	return size > 8192 ? 4096 : natural(size);
}

/* C: an object is aligned for each type of at most the object's size. */
static size_t of_malloc(size_t size)
{
	return size < 16 ? 8 : 16;
}

static void *k(void *p, size_t size) { return krealloc(p, size, GFP_KERNEL); }
static void *k_array(void *p, size_t size) { return krealloc_array(p, 1, size, GFP_KERNEL); }
static void *k_zero(void *p, size_t size) { return krealloc(p, size, GFP_KERNEL | __GFP_ZERO); }
static void *kv(void *p, size_t size) { return kvrealloc(p, size, GFP_KERNEL); }
static void *array(void *p, size_t size) { return reallocarray(p, 1, size); }

static void *get(size_t size) { return kmalloc(size, GFP_KERNEL); }
static void *get_v(size_t size) { return kvmalloc(size, GFP_KERNEL); }

static const struct call {
	const char *name;
	void *(*get)(size_t size);
	void *(*resize)(void *p, size_t size);
	size_t (*align)(size_t size);
} calls[] = {
	{ "krealloc", get, k, natural }, { "krealloc_array", get, k_array, natural },
	{ "krealloc, zeros", get, k_zero, natural },
	{ "kvrealloc", get_v, kv, kv_natural }, { "realloc", malloc, realloc, of_malloc },
	{ "realloc of kmalloc's", get, realloc, of_malloc }, { "reallocarray", malloc, array, of_malloc },
};

static void resize(const struct call *call, size_t before, size_t size)
{
	void *objects[FROM];

	for (int i = 0; i < FROM; i++)
		NEED(objects[i] = call->get(before));
	for (int i = 0; i < FROM; i++) {
		memset(objects[i], i + 1, before);
		void *p = call->resize(objects[i], size);
		NEED(p && (uintptr_t)p % call->align(size) == 0, "(%s, %zu to %zu: %p)", call->name, before, size, p);
		NEED(all(p, i + 1, before < size ? before : size));
		free(p);
	}
}

static void stays_aligned(void)
{
	for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++)
		for (size_t i = 0; i < SIZES; i++)
			for (size_t j = 0; j < SIZES; j++)
				resize(&calls[c], sizes[i], sizes[j]);
	NEED(kmem_check_all() == 0);
}

static void too_long(void)
{
	char *p = kvmalloc(INT_MAX, GFP_KERNEL | __GFP_NOWARN), *q = kvmalloc(KMALLOC_MAX_SIZE + 9000, GFP_KERNEL);

	*q = 7;
	errno = 0;
	NEED(!krealloc(q, KMALLOC_MAX_SIZE + 1, GFP_KERNEL | __GFP_NOWARN) && errno == EINVAL && *q == 7);
	kvfree(q);
	/* A machine may lack the address space. */
	if (!p)
		return;
	*p = 7;
	NEED(!kvrealloc(p, (size_t)INT_MAX + 1, GFP_KERNEL | __GFP_NOWARN) && errno == EINVAL && *p == 7);
	NEED(kvrealloc(p, INT_MAX, GFP_KERNEL) == p && *p == 7);
	kvfree(p);
}

static const struct test_case cases[] = { { "stays aligned", stays_aligned }, { "beyond the limit", too_long } };

int main(int argc, char **argv)
{
	static const char *const options[] = { "", ",hardened:1", ",guard:each" };
	int failed = 0;

	for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]) && (argc == 1 || !i); i++)
		failed |= api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), options[i]);
	if (argc == 1) {
		setenv("KMEM_DEBUG", "FZPU", 1);
		failed |= api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), "");
	}
	return failed;
}
