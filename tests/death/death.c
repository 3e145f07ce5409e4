/*
 * death: one misuse per case, each in a process of its own: the signal at the end, and every line of output, to the
 * letter. Each case runs three times, under misuse:abort, misuse:warn and misuse:trap. After a warning no data may
 * be damaged: everything is checked, and the library must go on working. Disciplines: all, and each engine.
 *
 * A case writes its expected lines to descriptor 3, because only the case knows the addresses.
 */
#include "death.h"

/* ------------------------------------------------------------------ freed twice */

static void double_free_shrink(void)
{
	struct kmem_cache *cache = cache_of("twice", 64, 0);
	void *keep = get(cache), *p = get(cache);

	expect("kmem_cache_free(twice, %p): object already free", p);
	kmem_cache_free(cache, p);
	kmem_cache_free(cache, p);
	kmem_cache_shrink(cache);
	kmem_cache_free(cache, keep);
}

/*
 * Twice in a row, on one CPU: engine slub (by the top of its freelist) and slob find the double free at once. Other
 * engines allocate the object twice, and find the double free when both pointers are back in the slab.
 */
static void double_free_in_a_row(void)
{
	struct kmem_cache *cache = cache_of("twice", 64, 0);

	stay_here();
	void *keep = get(cache), *p = get(cache);
	expect("kmem_cache_free(twice, %p): object already free", p);
	kmem_cache_free(cache, p);
	kmem_cache_free(cache, p);
	if (slob || km_options.engine->front == KM_PERCPU_FREELIST) {
		after_warning();
	} else {
		NEED(get(cache) == p);
		NEED(get(cache) == p);
		kmem_cache_free(cache, p);
		kmem_cache_free(cache, p);
	}
	kmem_cache_shrink(cache);
	kmem_cache_free(cache, keep);
}

/* Twice in a row, and only frees after it: found when the sheaf spills, or is drained. */
static void double_free_spill(void)
{
	static void *objects[OBJECTS];
	struct kmem_cache *cache = cache_of("twice", 48, 0);

	for (int i = 0; i < OBJECTS; i++)
		objects[i] = get(cache);
	expect("kmem_cache_free(twice, %p): object already free", objects[7]);
	kmem_cache_free(cache, objects[7]);
	for (int i = 0; i < OBJECTS; i++)
		kmem_cache_free(cache, objects[i]);
	kmem_cache_shrink(cache);
}

static void double_free_checked(void)
{
	struct kmem_cache *cache = cache_of("checked", 64, SLAB_CONSISTENCY_CHECKS);
	void *keep = get(cache), *p = get(cache);

	kmem_cache_free(cache, p);
	expect("kmem_cache_free(checked, %p): object already free", p);
	kmem_cache_free(cache, p);
	after_warning();
	kmem_cache_free(cache, keep);
}

/* KMEM_OPTIONS=check:1 does the same for every cache. */
static void double_free_option(void)
{
	void *keep = kmalloc(64, GFP_KERNEL), *p = blind(kmalloc(64, GFP_KERNEL));

	kfree(p);
	expect("%s%p): object already free", slob ? "kfree(" : "kmem_cache_free(kmalloc-64, ", p);
	kfree(p);
	after_warning();
	kfree(keep);
}

static void double_kfree(void)
{
	void *keep = kmalloc(100, GFP_KERNEL), *p = blind(kmalloc(100, GFP_KERNEL));

	expect("%s%p): object already free", slob ? "kfree(" : "kmem_cache_free(kmalloc-128, ", p);
	kfree(p);
	kfree(p);
	kmem_shrink_all();
	kfree(keep);
}

static void double_bulk(void)
{
	struct kmem_cache *cache = cache_of("twice", 256, 0);
	void *objects[40];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 40, objects));
	expect("kmem_cache_free(twice, %p): object already free", objects[3]);
	objects[20] = objects[3];
	kmem_cache_free_bulk(cache, 40, objects);
	kmem_cache_shrink(cache);
}

static void double_kfree_pages(void)
{
	void *p = blind(kmalloc(20000, GFP_KERNEL));

	NEED(p);
	kfree(p);
	expect("kfree(%p): pointer is not from this allocator", p);
	kfree(p);
}

static void double_kfree_mapping(void)
{
	void *p = blind(kvmalloc(8 << 20, GFP_KERNEL));

	NEED(p);
	kfree(p);
	expect("kfree(%p): pointer is not from this allocator", p);
	kfree(p);
}

#include "groups.h"
#include "sheaves.h"
#include "deferred.h"

/* ------------------------------------------------------------------ pointers of other owners */

static void kfree_stack(void)
{
	char local[64];
	void *p = blind(local);

	expect("kfree(%p): pointer is not from this allocator", p);
	kfree(p);
	after_warning();
}

static void kfree_mapping(void)
{
	void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect("kfree(%p): pointer is not from this allocator", p);
	kfree(blind(p));
}

static void kfree_malloced(void)
{
	void *p = malloc(100);

	expect("kfree(%p): pointer is not from this allocator", p);
	kfree(blind(p));
}

/* Inside the library's reserved range, in a page never allocated. */
static void kfree_unused_page(void)
{
	void *object = kmalloc(64, GFP_KERNEL);
	const struct km_range *range = km_arena_range(0);
	char *base = range->base, *last = base + (range->ready - 1) * 4096 + 64;

	expect("kfree(%p): pointer is not from this allocator", base);
	kfree(blind(base));
	expect("kfree(%p): pointer is not from this allocator", last);
	kfree(blind(last));
	kfree(object);
}

static void wild_addresses(void)
{
	static const uintptr_t wild[] = { 17, 4095, 1ull << 46, UINTPTR_MAX, UINTPTR_MAX - 4095,
					  1ull << 63 };

	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		expect("kfree(%p): pointer is not from this allocator", (void *)wild[i]);
		kfree(blind((void *)wild[i]));
	}
}

static void kfree_bulk_stack(void)
{
	char local[64];
	void *objects[3] = { kmalloc(64, GFP_KERNEL), blind(local), kmalloc(64, GFP_KERNEL) };

	expect("kfree_bulk(%p): pointer is not from this allocator", (void *)local);
	kfree_bulk(3, objects);
}

static void free_stack(void)
{
	struct kmem_cache *cache = cache_of("foreign", 64, 0);
	char local[64];

	kmem_cache_free(cache, get(cache));
	expect("kmem_cache_free(foreign, %p): pointer is not from this allocator", (void *)local);
	kmem_cache_free(cache, blind(local));
	kmem_cache_shrink(cache);
}

static void free_stack_checked(void)
{
	struct kmem_cache *cache = cache_of("checked", 64, SLAB_CONSISTENCY_CHECKS);
	char local[64];

	expect("kmem_cache_free(checked, %p): pointer is not from this allocator", (void *)local);
	kmem_cache_free(cache, blind(local));
	after_warning();
}

static void free_null_checked(void)
{
	struct kmem_cache *cache = cache_of("checked", 64, SLAB_CONSISTENCY_CHECKS);

	expect("kmem_cache_free(checked, 0x0): NULL freed");
	kmem_cache_free(cache, blind(NULL));
	after_warning();
}

/* A miss notices without any option. */
static void free_null_miss(void)
{
	struct kmem_cache *cache = cache_of("closed", 64, SLAB_NO_SHEAVES);

	expect("kmem_cache_free(closed, 0x0): NULL freed");
	kmem_cache_free(cache, blind(NULL));
	after_warning();
}

static void ksize_stack(void)
{
	char local[64];

	expect("ksize(%p): pointer is not from this allocator", (void *)local);
	NEED(ksize(blind(local)) == 0);
}

static void krealloc_stack(void)
{
	char local[64];

	expect("ksize(%p): pointer is not from this allocator", (void *)local);
	NEED(krealloc(blind(local), 200, GFP_KERNEL) == NULL);
}

/* ------------------------------------------------------------------ not the start */

static void kfree_interior(void)
{
	char *p = kmalloc(64, GFP_KERNEL);

	expect("kfree(%s%p): pointer is not the start of an object", slob ? "" : "kmalloc-64, ", p + 8);
	kfree(blind(p + 8));
	after_warning();
	kfree(p);
}

static void kfree_interior_odd(void)
{
	char *p = kmalloc(192, GFP_KERNEL);

	expect("kfree(%s%p): pointer is not the start of an object", slob ? "" : "kmalloc-192, ", p + 191);
	kfree(blind(p + 191));
	kfree(p);
}

static void free_interior(void)
{
	struct kmem_cache *cache = cache_of("inside", 80, 0);
	char *p = get(cache);

	expect("kmem_cache_free(inside, %p): pointer is not the start of an object", p + 16);
	kmem_cache_free(cache, blind(p + 16));
	kmem_cache_shrink(cache);
	kmem_cache_free(cache, p);
}

/* The room behind the last object of a slab is no object; in slob the room is free memory. */
static void kfree_tail(void)
{
	struct kmem_cache *cache = cache_of("tail", 600, 0);
	char *p = get(cache);
	struct kmem_cache_stats stats;
	uintptr_t slab;

	kmem_cache_get_stats(cache, &stats);
	slab = (uintptr_t)p & ~((uintptr_t)stats.pages_per_slab * 4096 - 1);
	char *tail = (char *)slab + (size_t)stats.objects_per_slab * stats.size;
	NEED((uintptr_t)tail < slab + stats.pages_per_slab * 4096ul);
	expect(slob ? "kfree(%p): object already free" :
		      "kfree(tail, %p): pointer is not the start of an object", tail);
	kfree(blind(tail));
	after_warning();
	kmem_cache_free(cache, p);
}

static void kfree_inside_mapping(void)
{
	char *p = kvmalloc(6 << 20, GFP_KERNEL);

	NEED(p);
	expect("kfree(%p): pointer is not the start of an object", p + 4096);
	kfree(blind(p + 4096));
	kfree(p);
}

static void kfree_inside_pages(void)
{
	char *p = kmalloc(64 << 10, GFP_KERNEL);

	NEED(p);
	expect("kfree(%p): pointer is not the start of an object", p + 64);
	kfree(blind(p + 64));
	expect("kfree(%p): pointer is not from this allocator", p + 8192);
	kfree(blind(p + 8192));
	kfree(p);
}

/* ------------------------------------------------------------------ wrong cache, dead cache */

static void wrong_cache(void)
{
	struct kmem_cache *a = cache_of("a", 64, 0), *b = cache_of("b", slob ? 128 : 64, 0);
	void *p = get(a);

	kmem_cache_free(b, get(b));
	expect("kmem_cache_free(b, %p): object belongs to different cache%s", p, slob ? "" : " a");
	kmem_cache_free(b, p);
	kmem_cache_shrink(b);
	kmem_cache_free(a, p);
}

static void wrong_cache_checked(void)
{
	struct kmem_cache *a = cache_of("a", 64, 0);
	struct kmem_cache *b = cache_of("b", slob ? 128 : 64, SLAB_CONSISTENCY_CHECKS);
	void *p = get(a);

	expect("kmem_cache_free(b, %p): object belongs to different cache%s", p, slob ? "" : " a");
	kmem_cache_free(b, p);
	after_warning();
	kmem_cache_free(a, p);
}

static void wrong_cache_bulk(void)
{
	struct kmem_cache *a = cache_of("a", 64, 0);
	struct kmem_cache *b = cache_of("b", slob ? 128 : 64, SLAB_CONSISTENCY_CHECKS);
	void *p = get(a), *objects[3] = { get(b), p, get(b) };

	expect("kmem_cache_free(b, %p): object belongs to different cache%s", p, slob ? "" : " a");
	kmem_cache_free_bulk(b, 3, objects);
	after_warning();
	kmem_cache_free(a, p);
}

static void kfree_of_dead_cache(void)
{
	struct kmem_cache *cache = cache_of("gone", 64, 0);
	void *p = get(cache);

	expect("kmem_cache_destroy(gone): Slab cache still has objects");
	if (!slob)
		expect("  object %p, offset %u", p, (unsigned)((uintptr_t)p & 4095));
	expect("  1 objects in %d slabs stay allocated, and are never reused", !slob);
	kmem_cache_destroy(cache);
	/* The leaked memory stays readable. */
	NEED(*(unsigned char *)p == 0x5a);
	expect("kfree(%p): %s", p, slob ? "object is not from kmalloc" : "cache is destroyed");
	kfree(p);
	after_warning();
}

static void free_into_dead_cache(void)
{
	struct kmem_cache *cache = cache_of("gone", 64, 0);
	struct kmem_cache *other = cache_of("other", 64, 0);
	void *p = get(other);

	kmem_cache_free(cache, get(cache));
	kmem_cache_destroy(cache);
	expect("kmem_cache_free(gone, %p): cache is destroyed", p);
	kmem_cache_free(blind(cache), p);
	after_warning();
	kmem_cache_free(other, p);
}

static void alloc_from_dead_cache(void)
{
	struct kmem_cache *cache = cache_of("gone", 64, 0);

	kmem_cache_free(cache, get(cache));
	kmem_cache_destroy(cache);
	expect("kmem_cache_alloc(gone, %p): cache is destroyed", (void *)cache);
	NEED(kmem_cache_alloc(blind(cache), GFP_KERNEL) == NULL);
	after_warning();
}

static void destroy_twice(void)
{
	struct kmem_cache *cache = cache_of("gone", 64, 0);

	kmem_cache_destroy(cache);
	expect("kmem_cache_destroy(gone, %p): cache is destroyed", (void *)cache);
	kmem_cache_destroy(blind(cache));
	after_warning();
}

/* ------------------------------------------------------------------ bad flags */

static void bad_gfp(void)
{
	struct kmem_cache *cache = cache_of("gfp", 64, 0);

	expect("kmem_cache_alloc(gfp, 0x80001b00): unexpected gfp bits");
	kmem_cache_free(cache, kmem_cache_alloc(cache, 0x80001b00u));
	after_warning();
}

static void bad_gfp_bulk(void)
{
	struct kmem_cache *cache = cache_of("gfp", 64, SLAB_NO_SHEAVES);
	void *objects[1];

	expect("kmem_cache_alloc(gfp, 0x80001b01): unexpected gfp bits");
	if (kmem_cache_alloc_bulk(cache, 0x80001b01u, 1, objects))
		kmem_cache_free_bulk(cache, 1, objects);
}

static void bad_gfp_large(void)
{
	expect("kmalloc(0x80001b00): unexpected gfp bits");
	kfree(kmalloc(100000, 0x80001b00u));
	after_warning();
}

static void bad_gfp_mapping(void)
{
	expect("kvmalloc(0x80001b00): unexpected gfp bits");
	kfree(kvmalloc(8 << 20, 0x80001b00u));
	after_warning();
}

/* ------------------------------------------------------------------ refused, and never deadly */

static void refuse(void *p, int error)
{
	NEED(!p);
	NEED(errno == error);
	errno = 0;
}

static void absurd_sizes(void)
{
	void *p = kmalloc(100, GFP_KERNEL), *objects[2];

	expect_beyond("kmalloc", "18446744073709551615", "4194304");
	refuse(kmalloc(SIZE_MAX, GFP_KERNEL), EINVAL);
	expect_beyond("kmalloc", "4194305", "4194304");
	refuse(kmalloc(KMALLOC_MAX_SIZE + 1, GFP_KERNEL), EINVAL);
	refuse(kmalloc(KMALLOC_MAX_SIZE + 1, GFP_KERNEL | __GFP_NOWARN), EINVAL);
	refuse(kmalloc(SIZE_MAX - 6, GFP_NOWAIT), EINVAL);
	refuse(kcalloc(SIZE_MAX / 2, 3, GFP_KERNEL), ENOMEM);
	refuse(kmalloc_array(1ul << 32, 1ul << 32, GFP_KERNEL), ENOMEM);
	refuse(krealloc_array(p, 1ul << 32, 1ul << 32, GFP_KERNEL), ENOMEM);
	refuse(kvmalloc_array(1ul << 32, 1ul << 32, GFP_KERNEL), ENOMEM);
	expect_beyond("kvmalloc", "2147483648", "2147483647");
	refuse(kvmalloc(1ul << 31, GFP_KERNEL), EINVAL);
	expect_beyond("kmalloc", "18446744073709551614", "4194304");
	refuse(krealloc(p, SIZE_MAX - 1, GFP_KERNEL), EINVAL);
	NEED(!kmalloc_bulk(SIZE_MAX, GFP_KERNEL | __GFP_NOWARN, 2, objects));
	NEED(!kmem_cache_alloc_bulk(cache_of("bulk", 8, 0), GFP_KERNEL, 0, objects));
	kfree(p);
}

static void bad_creation(void)
{
	struct kmem_cache_args args = { 0 };

#define REFUSE(name, size, why)                                                                    \
	do {                                                                                       \
		expect("kmem_cache_create(%s): %s", (name) ? (name) : "(null)", why);              \
		refuse(kmem_cache_create(blind((void *)(uintptr_t)(name)), size, &args, flags), EINVAL); \
	} while (0)
#define BAD_FREEPTR	"freeptr_offset needs a constructor or SLAB_TYPESAFE_BY_RCU, and an aligned place in the object"
	slab_flags_t flags = 0;
	char *none = NULL;

	REFUSE(none, 64, "the name is NULL or empty");
	REFUSE("", 64, "the name is NULL or empty");
	REFUSE("x", 0, "size 0");
	/* One line, for any name. */
	expect("kmem_cache_create(two_lines): size 0");
	refuse(kmem_cache_create("two\nlines", 0, &args, 0), EINVAL);
	REFUSE("x", (4u << 20) + 1, "size above KMALLOC_MAX_SIZE");
	REFUSE("x", UINT_MAX, "size above KMALLOC_MAX_SIZE");
	flags = 1;
	REFUSE("x", 64, "unknown flags");
	flags = 0;
	args.align = 3;
	REFUSE("x", 64, "align is not a power of two up to 4096");
	args.align = 8192;
	REFUSE("x", 64, "align is not a power of two up to 4096");
	args = (struct kmem_cache_args){ .sheaf_capacity = 1023 };
	REFUSE("x", 64, "sheaf_capacity above 1022");
	args = (struct kmem_cache_args){ .engine = "nothing" };
	REFUSE("x", 64, "unknown engine; KMEM_OPTIONS=help lists the engines");
	args = (struct kmem_cache_args){ .use_freeptr_offset = true, .freeptr_offset = 8 };
	REFUSE("x", 64, BAD_FREEPTR);
	flags = SLAB_TYPESAFE_BY_RCU;
	args.freeptr_offset = 4;
	REFUSE("x", 64, BAD_FREEPTR);
	args.freeptr_offset = 64;
	REFUSE("x", 64, BAD_FREEPTR);
	args.freeptr_offset = UINT_MAX - 7;
	REFUSE("x", 64, BAD_FREEPTR);
	flags = 0;
	args = (struct kmem_cache_args){ .useroffset = 60, .usersize = 8 };
	expect("kmem_cache_create(soft): the usercopy region is not inside of the object, and is ignored");
	struct kmem_cache *cache = kmem_cache_create("soft", 64, &args, 0);
	NEED(cache);
	expect("kmem_cache_create(soft): a cache of that name exists");
	struct kmem_cache *again = cache_of("soft", 64, 0);
	NEED(kmem_cache_set_min_partial(cache, 1048577) == -EINVAL);
	kmem_cache_destroy(again);
	kmem_cache_destroy(cache);
	kmem_cache_destroy(NULL);
#undef REFUSE
}

static void slab_panic(void)
{
	expect("kmem_cache_create(dear): size 0");
	kmem_cache_create("dear", 0, NULL, SLAB_PANIC);
}

static bool no_more(const char *call)
{
	return strcmp(call, "commit") == 0 || strcmp(call, "map") == 0;
}

static void nofail_exhausted(void)
{
	struct kmem_cache *cache = cache_of("last", 4096, 0);

	km_os_fault = no_more;
	expect("last: out of memory, 4096 bytes with __GFP_NOFAIL");
	for (;;)
		(void)!kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOFAIL);
}

static void construct(void *object)
{
	*(uint64_t *)object = 7;
}

/* Said once; the object is as constructed. */
static void zero_constructed(void)
{
	struct kmem_cache *cache = kmem_cache_create("constructed", 64, 0, 0, construct);
	uint64_t *p;

	NEED(cache);
	expect("kmem_cache_alloc(constructed): __GFP_ZERO is ignored, because the cache has a constructor");
	for (int i = 0; i < 3; i++) {
		p = kmem_cache_zalloc(cache, GFP_KERNEL);
		NEED(p && *p == 7);
		kmem_cache_free(cache, p);
	}
	kmem_cache_destroy(cache);
}

static struct kmem_cache *constructing;

static void construct_by_itself(void *object)
{
	(void)object;
	errno = 0;
	NEED(!kmem_cache_alloc(constructing, GFP_KERNEL | __GFP_NOWARN) && errno == ENOMEM);
	after_warning();
}

static void own_constructor(void)
{
	constructing = kmem_cache_create("itself", 2000, 0, SLAB_NO_MERGE, construct_by_itself);
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(constructing, &stats);
	/* Engine slob is asked twice, by the shortest way and by the long one. */
	for (unsigned i = slob ? 2 : stats.objects_per_slab; i; i--)
		expect("kmem_cache_alloc(itself, 0x0): called by the cache's own constructor");
	void *object = kmem_cache_alloc(constructing, GFP_KERNEL);
	after_warning();
	NEED(object);
	kmem_cache_free(constructing, object);
	kmem_cache_destroy(constructing);
}

static void nothing_wrong(void)
{
	kfree(NULL);
	kfree(ZERO_SIZE_PTR);
	kfree(kmalloc(0, GFP_KERNEL));
	kvfree(NULL);
	kfree_sensitive(NULL);
	kfree_bulk(0, NULL);
	kmem_cache_free_bulk(NULL, 2, (void *[]){ NULL, kmalloc(9, GFP_KERNEL) });
	NEED(ksize(NULL) == 0 && ksize(ZERO_SIZE_PTR) == 0);
}

/* ------------------------------------------------------------------ the table */

enum outcome { MISUSE, PANIC, FINE };

#define CASE(f, result, vague) { .name = #f, .run = f, .outcome = result, .vague_in_chains = vague }
#define MISUSED(f) CASE(f, MISUSE, false)
#define VAGUE(f) CASE(f, MISUSE, true)
#define PANICS(f) CASE(f, PANIC, false)
#define HARMLESS(f) CASE(f, FINE, false)

static const struct death {
	const char *name;
	void (*run)(void);
	enum outcome outcome;
	const char *options;
	/* A chain of free objects is checked as a whole: engine slub finds the damage, and may name another object
	 * of the same slab. SLAB_CONSISTENCY_CHECKS names the right one. */
	bool vague_in_chains;
} deaths[] = {
	MISUSED(double_free_shrink), MISUSED(double_free_in_a_row), VAGUE(double_free_spill),
	MISUSED(double_free_checked),
	{ .name = "double_free_option", .run = double_free_option, .outcome = MISUSE, .options = "check:1" },
	MISUSED(double_kfree), VAGUE(double_bulk), MISUSED(double_kfree_pages),
	MISUSED(double_kfree_mapping), MISUSED(sheaf_returned_twice), MISUSED(array_returned_twice),
	MISUSED(sheaf_of_other_cache), MISUSED(sheaf_of_like_cache), MISUSED(sheaf_of_dead_cache),
	MISUSED(bad_gfp_sheaf), MISUSED(kfree_stack), MISUSED(kfree_mapping),
	MISUSED(kfree_malloced), MISUSED(kfree_unused_page), MISUSED(wild_addresses),
	MISUSED(kfree_bulk_stack), MISUSED(free_stack), MISUSED(free_stack_checked),
	MISUSED(free_null_checked), MISUSED(free_null_miss), MISUSED(ksize_stack),
	MISUSED(krealloc_stack), MISUSED(kfree_interior), MISUSED(kfree_interior_odd),
	VAGUE(free_interior), MISUSED(kfree_tail), MISUSED(kfree_inside_mapping),
	MISUSED(kfree_inside_pages), MISUSED(wrong_cache), MISUSED(wrong_cache_checked),
	MISUSED(wrong_cache_bulk), MISUSED(kfree_of_dead_cache), MISUSED(free_into_dead_cache),
	MISUSED(alloc_from_dead_cache), MISUSED(destroy_twice), MISUSED(bad_gfp),
	MISUSED(bad_gfp_bulk), MISUSED(bad_gfp_large), MISUSED(bad_gfp_mapping),
	HARMLESS(absurd_sizes), HARMLESS(bad_creation), HARMLESS(zero_constructed), PANICS(slab_panic),
	PANICS(nofail_exhausted), HARMLESS(nothing_wrong), MISUSED(deferred_pages),
	MISUSED(deferred_mapping), MISUSED(deferred_object), MISUSED(handler_stranger),
	MISUSED(double_free_circle), MISUSED(double_free_uncounted), MISUSED(written_link), MISUSED(group_put_twice),
	MISUSED(group_gone_active), MISUSED(group_gone_reused), MISUSED(shrinker_removes_itself),
	MISUSED(uncharged_twice), MISUSED(uncharged_minus_one), MISUSED(parent_put_twice),
	MISUSED(own_constructor),
};

/* Does everything still work? */
static void work_on(void)
{
	struct kmem_cache *cache = cache_of("after", 72, 0);

	NEED(kmem_check_all() == 0);
	churn(cache);
	struct kmem_cache_stats stats;
	kmem_cache_get_stats(cache, &stats);
	NEED(stats.active_objects == 0);
	kmem_cache_destroy(cache);
	for (size_t size = 1; size < 50000; size = size * 3 / 2 + 1)
		kfree(kmalloc(size, GFP_KERNEL));
	kmem_shrink_all();
	NEED(kmem_check_all() == 0);
}

static int child(const char *name)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	alarm(580);
	mode = getenv("DEATH_MODE");
	slob = km_options.engine->shared_pages;
	for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++)
		if (strcmp(deaths[i].name, name) == 0) {
			deaths[i].run();
			work_on();
			return 0;
		}
	return 2;
}

/* ------------------------------------------------------------------ the parent */

static size_t read_all(int fd, char *text, size_t bytes)
{
	size_t length = 0;
	ssize_t n;

	while (length < bytes - 1 && (n = read(fd, text + length, bytes - 1 - length)) > 0)
		length += (size_t)n;
	text[length] = '\0';
	close(fd);
	return length;
}

static int run(const struct death *death, const char *engine, const char *how, char *said,
	       char *wanted, size_t bytes)
{
	char options[256];
	int err[2], out[2], status;

	snprintf(options, sizeof(options), "engine:%s,misuse:%s%s%s", engine, how,
		 death->options ? "," : "", death->options ? death->options : "");
	if (pipe(err) || pipe(out))
		return -1;
	pid_t pid = fork();
	if (!pid) {
		/* Above 2 and 3 first, so that the move of one does not close the other. */
		int e = fcntl(err[1], F_DUPFD_CLOEXEC, 10), o = fcntl(out[1], F_DUPFD_CLOEXEC, 10);

		setenv("KMEM_OPTIONS", options, 1);
		setenv("DEATH_MODE", how, 1);
		dup2(e, 2);
		dup2(o, 3);
		execl("/proc/self/exe", "death", death->name, NULL);
		_exit(4);
	}
	close(err[1]);
	close(out[1]);
	read_all(err[0], said, bytes);
	read_all(out[0], wanted, bytes);
	waitpid(pid, &status, 0);
	return status;
}

/* The same function and cache, and one line at least. */
static bool lines_alike(const char *said, const char *wanted)
{
	const char *comma = strchr(wanted, ',');

	return comma && strncmp(said, wanted, (size_t)(comma - wanted)) == 0;
}

/* Under abort and trap only the first line appears: the other lines belong to misuses not reached. */
static bool lines_match(const struct death *death, const char *how, const char *said,
			const char *wanted)
{
	if (strcmp(said, wanted) == 0)
		return true;
	return death->outcome == MISUSE && strcmp(how, "warn") != 0 && *said &&
	       strncmp(said, wanted, strlen(said)) == 0 && said[strlen(said) - 1] == '\n';
}

static bool status_fits(const struct death *death, const char *how, int status)
{
	if (death->outcome == PANIC)
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
	if (death->outcome == FINE || strcmp(how, "warn") == 0)
		return WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return WIFSIGNALED(status) &&
	       WTERMSIG(status) == (strcmp(how, "trap") == 0 ? SIGILL : SIGABRT);
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	static const char *const modes[] = { "abort", "warn", "trap" };
	static char said[65536], wanted[65536];
	int failed = 0, total = 0;

	if (argc == 2)
		return child(argv[1]);
	for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++) {
		if (!km_engine_find(engines[e]))
			continue;
		for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++)
			for (size_t m = 0; m < 3; m++) {
				int status = run(&deaths[i], engines[e], modes[m], said, wanted,
						 sizeof(said));

				total++;
				bool vague = deaths[i].vague_in_chains &&
					     km_engine_find(engines[e])->front == KM_PERCPU_FREELIST;
				if (status_fits(&deaths[i], modes[m], status) &&
				    (vague ? lines_alike(said, wanted) :
					     lines_match(&deaths[i], modes[m], said, wanted)))
					continue;
				printf("%s, %s, misuse:%s: status 0x%x\n said:\n%s wanted:\n%s",
				       deaths[i].name, engines[e], modes[m], (unsigned)status, said,
				       wanted);
				failed++;
			}
	}
	printf("%d of %d misuses ended as they should\n", total - failed, total);
	return failed != 0;
}
