/*
 * gfp_bits.c: undefined gfp bits are reported at every call, for any cached objects: on hits, for krealloc in place,
 * for zero bytes and for overflowing products, from a prefilled sheaf, inline; once for each call with one result.
 * The call goes on, as after any warning. Disciplines: all.
 */
#include <kmem/memcg.h>

#include "kit/charged_objects.h"
#include "os/die.h"

static unsigned found;

void __wrap_km_misuse(enum km_misuse what, const char *function, const void *object, const char *cache);
void __wrap_km_misuse(enum km_misuse what, const char *function, const void *object, const char *cache)
{
	NEED(what == KM_MISUSE_BAD_GFP && function);
	found++;
}

/* The lowest bit, the highest, one beside the bits that change a hit, one above the others; and no bit. */
static const gfp_t bits[] = { 0x00000008u, 0x00000080u, 0x00400000u, 0x80000000u, 0 };
static gfp_t bad;

/* Hides the value from the compiler: otherwise the inline hits would be compiled for the value. */
static gfp_t with(gfp_t gfp)
{
	__asm__ volatile("" : "+r"(gfp));
	return gfp | bad;
}

/* Reports since the last check: one, if there is a bad bit. */
#define SAID()                                                                                     \
	do {                                                                                       \
		NEED(found == (bad != 0));                                                         \
		found = 0;                                                                         \
	} while (0)
/* A request for many objects may report once for each. */
#define SAID_OF_MANY()                                                                             \
	do {                                                                                       \
		NEED((found != 0) == (bad != 0));                                                  \
		found = 0;                                                                         \
	} while (0)

#define FOR_EACH_BIT for (unsigned i_ = 0; i_ < sizeof(bits) / sizeof(bits[0]) && (bad = bits[i_], 1); i_++)

/* Caches some objects. */
static void warm(struct kmem_cache *cache)
{
	void *objects[8];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 8, objects));
	kmem_cache_free_bulk(cache, 8, objects);
}

static void of_a_cache(struct kmem_cache *cache)
{
	void *objects[4], *p;

	FOR_EACH_BIT {
		warm(cache);
		NEED((p = kmem_cache_alloc(cache, with(GFP_KERNEL))) != NULL);
		SAID();
		kmem_cache_free(cache, p);
		NEED((p = kmem_cache_alloc_inline(cache, with(GFP_KERNEL))) != NULL);
		SAID();
		kmem_cache_free_inline(cache, p);
		NEED((p = kmem_cache_zalloc(cache, with(GFP_KERNEL))) != NULL);
		SAID();
		kmem_cache_free(cache, p);
		NEED((p = kmem_cache_alloc_node(cache, with(GFP_KERNEL), 0)) != NULL);
		SAID();
		kmem_cache_free(cache, p);
		NEED(kmem_cache_alloc_bulk(cache, with(GFP_KERNEL), 1, objects));
		SAID();
		kmem_cache_free_bulk(cache, 1, objects);
		NEED(kmem_cache_alloc_bulk(cache, with(GFP_KERNEL), 4, objects));
		SAID_OF_MANY();
		kmem_cache_free_bulk(cache, 4, objects);
		NEED(!kmem_cache_alloc_bulk(cache, with(GFP_KERNEL), 0, objects));
		SAID();
	}
}

static void caches(void)
{
	struct kmem_cache *cache = make("plain", 64);

	of_a_cache(cache);
	gone(cache);
}

static void caches_without_pcs(void)
{
	struct kmem_cache *cache = kmem_cache_create("checked", 64, NULL, SLAB_CONSISTENCY_CHECKS);

	NEED(cache);
	of_a_cache(cache);
	gone(cache);
}

/* Hits of charged objects. */
static void in_groups(void)
{
	struct mem_cgroup *const groups[] = { mem_cgroup_create(NULL, "shared", 0), private_group("private") };

	for (unsigned i = 0; !slob && i < 2; i++) {
		struct kmem_cache *cache = charged(i ? "charged privately" : "charged", 64);

		NEED(groups[i]);
		set_active_memcg(groups[i]);
		of_a_cache(cache);
		FOR_EACH_BIT {
			void *p;

			kfree(kmalloc(64, GFP_KERNEL_ACCOUNT));
			NEED((p = kmalloc(64, with(GFP_KERNEL_ACCOUNT))) != NULL);
			SAID();
			kfree(p);
			NEED((p = kmalloc_in(groups[i], 64, with(GFP_KERNEL))) != NULL);
			SAID();
			kfree(p);
			NEED((p = kmem_cache_alloc_in(cache, groups[i], with(GFP_KERNEL))) != NULL);
			SAID();
			kmem_cache_free(cache, p);
		}
		set_active_memcg(NULL);
	}
}

static void sheaves(void)
{
	struct kmem_cache *cache = make("sheaves", 64);
	struct slab_sheaf *sheaf;
	void *p;

	FOR_EACH_BIT {
		NEED((sheaf = kmem_cache_prefill_sheaf(cache, with(GFP_KERNEL), 4)) != NULL);
		SAID();
		NEED((p = kmem_cache_alloc_from_sheaf(cache, with(GFP_NOWAIT), sheaf)) != NULL);
		SAID();
		kmem_cache_free(cache, p);
		NEED((p = kmem_cache_alloc_from_sheaf_inline(cache, with(GFP_NOWAIT), sheaf)) != NULL);
		SAID();
		kmem_cache_free(cache, p);
		NEED(kmem_cache_refill_sheaf(cache, with(GFP_KERNEL), &sheaf, 1) == 0);
		SAID();
		kmem_cache_return_sheaf(cache, with(GFP_KERNEL), sheaf);
		SAID();
		kmem_cache_return_sheaf(cache, with(GFP_KERNEL), NULL);
		SAID();
	}
	gone(cache);
}

/* Checks the result, a block or NULL, and frees a block. */
static void got(void *p, bool some)
{
	SAID();
	NEED(some == !ZERO_OR_NULL_PTR(p));
	kfree(p);
}

static void of_kmalloc(void)
{
	static const size_t sizes[] = { 1, 8, 64, 100, 5000, 8192, 8193, 100000, KMALLOC_MAX_SIZE };
	volatile size_t many = SIZE_MAX / 2;

	FOR_EACH_BIT {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			kfree(kmalloc(sizes[i], GFP_KERNEL));
			got(kmalloc(sizes[i], with(GFP_KERNEL)), true);
			got(kmalloc_account(sizes[i], with(GFP_KERNEL)), true);
			got(kzalloc(sizes[i], with(GFP_KERNEL)), true);
			got(kmalloc_node(sizes[i], with(GFP_KERNEL), 0), true);
			got(kvmalloc(sizes[i] * 2, with(GFP_KERNEL)), true);
			got(kcalloc(1, sizes[i], with(GFP_KERNEL)), true);
		}
		got(kmalloc(0, with(GFP_KERNEL)), false);
		got(kvmalloc(0, with(GFP_KERNEL)), false);
		got(kmalloc(many, with(GFP_NOWAIT)), false);
		got(kvmalloc(many, with(GFP_NOWAIT)), false);
		got(kmalloc_array(many, 4, with(GFP_KERNEL)), false);
		got(kvmalloc_array(many, 4, with(GFP_KERNEL)), false);
		got(kmemdup("four", 4, with(GFP_KERNEL)), true);
		got(kmemdup(NULL, 4, with(GFP_KERNEL)), false);
		got(kstrdup("four", with(GFP_KERNEL)), true);
		got(kstrdup(NULL, with(GFP_KERNEL)), false);
	}
}

static void of_krealloc(void)
{
	static const size_t sizes[] = { 100, 110, 20, 3, 9000, 100000, 99000, 50000, 8 };
	volatile size_t many = SIZE_MAX / 2;

	FOR_EACH_BIT {
		void *p = NULL, *q = NULL;

		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			NEED((p = krealloc(p, sizes[i], with(GFP_KERNEL))) != NULL);
			SAID();
			NEED((q = kvrealloc(q, sizes[i] * 100, with(GFP_KERNEL))) != NULL);
			SAID();
		}
		NEED(!krealloc_array(p, many, 4, with(GFP_KERNEL)));
		SAID();
		got(krealloc(p, 0, with(GFP_KERNEL)), false);
		got(kvrealloc(q, 0, with(GFP_KERNEL)), false);
	}
}

static void of_kmalloc_bulk(void)
{
	void *objects[4];

	FOR_EACH_BIT {
		for (size_t size = 64; size < 100000; size *= 30) {
			NEED(kmalloc_bulk(size, with(GFP_KERNEL), 4, objects));
			SAID_OF_MANY();
			kfree_bulk(4, objects);
		}
		NEED(!kmalloc_bulk(64, with(GFP_KERNEL), 0, objects));
		SAID();
	}
}

static const struct test_case cases[] = {
	{ "caches", caches },
	{ "caches without sheaves", caches_without_pcs },
	{ "in groups", in_groups },
	{ "prefilled sheaves", sheaves },
	{ "kmalloc", of_kmalloc },
	{ "krealloc", of_krealloc },
	{ "kmalloc_bulk", of_kmalloc_bulk },
};

API_MAIN(cases)
