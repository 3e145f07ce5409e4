/*
 * slob: misuses specific to engine slob, with shared pages and objects that do not name their cache: every line of
 * output, to the letter, and the end of the process, under misuse:abort, misuse:warn and misuse:trap. After a warning
 * no data may be damaged. Once with slob as the process's engine, once for a slob cache beside others.
 */
#include "kit/api.h"

#include <sys/mman.h>

#include "cache/cache.h"
#include "engines/slob/slob.h"
#include "os/die.h"

#include "steps.h"

#define WANTED 4096

static char *wanted;			/* the expected lines of the case; shared by parent and child */
static enum km_misuse_action action;

static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

static struct kmem_cache *fresh(const char *name, unsigned size, slab_flags_t flags)
{
	struct kmem_cache_args args = { .engine = "slob" };
	struct kmem_cache *cache = kmem_cache_create(name, size, &args, flags);

	NEED(cache);
	return cache;
}

static char *get(struct kmem_cache *cache)
{
	char *p = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(p);
	memset(p, 0x5a, kmem_cache_size(cache));
	return blind(p);
}

/* Announces the only line of the next misuse. */
static void expect(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void expect(const char *format, ...)
{
	char line[256], step[128];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	size_t used = strlen(wanted);
	snprintf(wanted + used, WANTED - used, "libkmem: %s%s\n", line, next_step(line, step));
}

/* ------------------------------------------------------------------ a cache's object and kfree */

static void kfree_object(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *p = get(cache);

	expect("kfree(%p): object is not from kmalloc", (void *)p);
	kfree(p);
	NEED(p[0] == 0x5a && p[63] == 0x5a);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

/* The flag alone does not make a cache kmalloc's. */
static void kfree_pretended(void)
{
	struct kmem_cache *cache = fresh("pretended", 64, SLAB_KMALLOC);
	char *p = get(cache);

	expect("kfree(%p): object is not from kmalloc", (void *)p);
	kfree(p);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

/* An object as long as a header, right in front, is none. */
static void kfree_behind_object(void)
{
	struct kmem_cache *cache = fresh("tiny", 8, 0);
	char *front = get(cache), *p = get(cache);

	NEED(p == front + 8);
	expect("kfree(%p): object is not from kmalloc", (void *)p);
	kfree(p);
	kmem_cache_free(cache, front);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

static void kfree_bulk_object(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *p = get(cache);
	void *objects[4] = { kmalloc(64, GFP_KERNEL), p, NULL, kmalloc(9, GFP_KERNEL) };

	expect("kfree_bulk(%p): object is not from kmalloc", (void *)p);
	kfree_bulk(4, objects);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

static void free_bulk_without_cache(void)
{
	struct kmem_cache *cache = fresh("mine", 200, 0);
	char *p = get(cache);
	void *objects[1] = { p };

	expect("kfree_bulk(%p): object is not from kmalloc", (void *)p);
	kmem_cache_free_bulk(NULL, 1, objects);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

/* An object of whole pages names its cache: the usual rule holds. */
static void kfree_large_object(void)
{
	struct kmem_cache *cache = fresh("wide", 5000, 0);
	char *p = get(cache);

	expect("kfree(wide, %p): object is not from kmalloc", (void *)p);
	kfree(p);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

static void ksize_object(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *p = get(cache);

	expect("ksize(%p): object is not from kmalloc", (void *)p);
	NEED(ksize(p) == 0);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

static void krealloc_object(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *p = get(cache);

	expect("ksize(%p): object is not from kmalloc", (void *)p);
	NEED(!krealloc(p, 100, GFP_KERNEL));
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ another cache */

/* A cache of another size; a cache of the same size cannot be told from it. */
static void other_size(void)
{
	struct kmem_cache *a = fresh("a", 64, 0), *b = fresh("b", 56, 0);
	char *p = get(a), *behind = get(a);

	expect("kmem_cache_free(b, %p): object belongs to different cache", (void *)p);
	kmem_cache_free(b, p);
	kmem_cache_free(a, p);
	kmem_cache_free(a, behind);
	kmem_cache_destroy(a);
	kmem_cache_destroy(b);
}

static void of_sheaf(void)
{
	struct kmem_cache_args args = { .engine = "sheaf" };
	struct kmem_cache *a = fresh("a", 64, 0);
	struct kmem_cache *b = kmem_cache_create("b", 64, &args, SLAB_CONSISTENCY_CHECKS);
	char *p = get(a), *q = get(b);

	expect("kmem_cache_free(b, %p): object belongs to different cache", (void *)p);
	kmem_cache_free(b, p);
	expect("kmem_cache_free(a, %p): object belongs to different cache b", (void *)q);
	kmem_cache_free(a, q);
	kmem_cache_free(a, p);
	kmem_cache_free(b, q);
	kmem_cache_destroy(a);
	kmem_cache_destroy(b);
}

static void of_kmalloc(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *p = kmalloc(64, GFP_KERNEL);

	expect("kmem_cache_free(mine, %p): object belongs to different cache%s", (void *)p,
	       slob ? "" : " kmalloc-64");
	kmem_cache_free(cache, p);
	kfree(p);
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ twice, and not the start */

static void twice(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *keep = get(cache), *p = get(cache), *q = get(cache), *r = get(cache);

	kmem_cache_free(cache, p);
	kmem_cache_free(cache, q);
	/* In the middle of what is free by now. */
	expect("kmem_cache_free(mine, %p): object already free", (void *)q);
	kmem_cache_free(cache, q);
	expect("kmem_cache_free(mine, %p): object already free", (void *)p);
	kmem_cache_free(cache, p);
	expect("kfree(%p): object already free", (void *)p);
	kfree(p);
	kmem_cache_free(cache, keep);
	kmem_cache_free(cache, r);
	kmem_cache_destroy(cache);
}

static void twice_typed(void)
{
	struct kmem_cache *cache = fresh("typed", 64, SLAB_TYPESAFE_BY_RCU);
	char *p = get(cache);

	kmem_cache_free(cache, p);
	expect("kmem_cache_free(typed, %p): object already free", (void *)p);
	kmem_cache_free(cache, p);
	expect("kfree(%p): object already free", (void *)p);
	kfree(p);
	kmem_cache_destroy(cache);
}

static void twice_typed_large(void)
{
	struct kmem_cache *cache = fresh("typed", 9000, SLAB_TYPESAFE_BY_RCU);
	char *p = get(cache);

	kmem_cache_free(cache, p);
	expect("kmem_cache_free(typed, %p): object already free", (void *)p);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

static void interior(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *p = get(cache);

	expect("kmem_cache_free(mine, %p): pointer is not the start of an object", (void *)(p + 8));
	kmem_cache_free(cache, p + 8);
	expect("kmem_cache_free(mine, %p): pointer is not the start of an object", (void *)(p + 3));
	kmem_cache_free(cache, p + 3);
	expect("kfree(%p): pointer is not the start of an object", (void *)(p + 24));
	kfree(p + 24);
	kmem_cache_free(cache, p);
	kmem_cache_destroy(cache);
}

/* The header in front of kmalloc's block is no object. */
static void header(void)
{
	struct kmem_cache *cache = fresh("mine", 64, 0);
	char *p = kmalloc(64, GFP_KERNEL);

	if (slob) {
		expect("kmem_cache_free(mine, %p): pointer is not the start of an object", (void *)(p - 8));
		kmem_cache_free(cache, p - 8);
		expect("kfree(%p): pointer is not the start of an object", (void *)(p - 8));
		kfree(p - 8);
	}
	kfree(p);
	kmem_cache_destroy(cache);
}

/* ------------------------------------------------------------------ written where nothing was to be written */

static void overrun(void)
{
	uint32_t *p = kmalloc(64, GFP_KERNEL), *q = kmalloc(64, GFP_KERNEL);

	if (slob) {
		uint32_t was = q[-2];

		q[-2] = 0x41414141;
		expect("kfree(kmalloc, %p): size in front of the object was overwritten", (void *)q);
		kfree(q);
		q[-2] = 5;
		expect("kfree(kmalloc, %p): size in front of the object was overwritten", (void *)q);
		kfree(q);
		q[-2] = was;
	}
	kfree(p);
	kfree(q);
}

/* The page is given up: allocated objects stay unchanged, objects freed in the page are lost. */
static void after_free(bool by_alloc)
{
	struct kmem_cache *cache = fresh("mine", 64, 0), *other;
	char *keep = get(cache), *p = get(cache), *q = get(cache);

	kmem_cache_free(cache, p);
	memset(p, 0x41, 64);
	expect("slob(mine, %p): free memory of this page was written to",
	       (void *)((uintptr_t)p & ~4095ul));
	if (by_alloc)
		NEED((uintptr_t)(other = kmem_cache_alloc(cache, GFP_KERNEL)) >> 12 != (uintptr_t)p >> 12);
	else
		kmem_cache_free(cache, q), q = NULL;
	if (by_alloc)
		kmem_cache_free(cache, other);
	NEED(keep[0] == 0x5a && keep[63] == 0x5a);
	kmem_cache_free(cache, keep);
	if (q)
		kmem_cache_free(cache, q);
	kmem_cache_destroy(cache);
}

static void after_free_alloc(void)
{
	after_free(true);
}

static void after_free_free(void)
{
	after_free(false);
}

/* ------------------------------------------------------------------ the table */

static const struct misuse {
	const char *name;
	void (*run)(void);
} misuses[] = {
	{ "kfree of a cache's object", kfree_object },
	{ "kfree of an object of a cache that says it is kmalloc's", kfree_pretended },
	{ "kfree of one behind another", kfree_behind_object },
	{ "kfree_bulk of one", kfree_bulk_object },
	{ "kmem_cache_free_bulk without a cache", free_bulk_without_cache },
	{ "kfree of one with pages of its own", kfree_large_object },
	{ "ksize of one", ksize_object },
	{ "krealloc of one", krealloc_object },
	{ "freed to a cache of another size", other_size },
	{ "freed to another engine's, and the reverse", of_sheaf },
	{ "kmalloc's, freed to a cache", of_kmalloc },
	{ "twice", twice },
	{ "twice, typesafe", twice_typed },
	{ "twice, typesafe, pages of its own", twice_typed_large },
	{ "inside of an object", interior },
	{ "the header", header },
	{ "a header overwritten", overrun },
	{ "written after free, found by alloc", after_free_alloc },
	{ "written after free, found by free", after_free_free },
};
static const struct misuse *misuse;

static void run_one(void)
{
	km_misuse_set(action);
	misuse->run();
	NEED(kmem_check_all() == 0);
	for (size_t size = 1; size < 20000; size = size * 3 / 2 + 1)
		kfree(kmalloc(size, GFP_KERNEL));
	NEED(kmem_check_all() == 0);
}

/* Under abort and trap the first line is the last. */
static bool fits(int status, const char *text)
{
	if (action == KM_MISUSE_WARN || !*wanted)
		return status == 0 && strcmp(text, wanted) == 0;
	return WIFSIGNALED(status) && WTERMSIG(status) == (action == KM_MISUSE_TRAP ? SIGILL : SIGABRT) &&
	       strncmp(text, wanted, strlen(text)) == 0 && strchr(text, '\n') == text + strlen(text) - 1;
}

static void every_misuse(void)
{
	static const enum km_misuse_action actions[] = { KM_MISUSE_ABORT, KM_MISUSE_WARN, KM_MISUSE_TRAP };
	char text[4096];
	int lines, failed = 0;

	wanted = mmap(NULL, WANTED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(wanted != MAP_FAILED);
	for (size_t i = 0; i < sizeof(misuses) / sizeof(misuses[0]); i++)
		for (size_t how = 0; how < 3; how++) {
			misuse = &misuses[i];
			action = actions[how];
			wanted[0] = '\0';
			int status = said(run_one, text, &lines);
			if (fits(status, text))
				continue;
			printf("%s, %zu: status %#x\n said:\n%s wanted:\n%s", misuse->name, how,
			       (unsigned)status, text, wanted);
			failed++;
		}
	NEED(failed == 0);
}

static const struct test_case cases[] = {
	{ "every misuse", every_misuse },
};

API_MAIN(cases)
