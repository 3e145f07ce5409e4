/*
 * hardened_traced: a cache created while a tracer is attached (all caches of a program under heaptrack) is hardened
 * as any other cache, with the tracer attached and after its end; and so is a cache older than the tracer. Bad frees
 * end the process at once, and freed objects are zeros.
 */
#define _GNU_SOURCE
#define CHECK_FD 2
#include "kit/api.h"
#include "kit/tracer.h"

static struct kmem_cache *cache, *other;
static char text[4096];

static void *get(void)
{
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(p);
	memset(p, 0x5a, 64);
	__asm__ volatile("" : "+r"(p));
	return p;
}

static void twice(void)
{
	void *p = get();

	kmem_cache_free(cache, p);
	kmem_cache_free(cache, p);
}

static void twice_beneath(void)
{
	void *p = get(), *q = get();

	kmem_cache_free(cache, p);
	kmem_cache_free(cache, q);
	kmem_cache_free(cache, p);
}

static void twice_in_array(void)
{
	void *p = get(), *many[] = { p, p };

	kmem_cache_free_bulk(cache, 2, many);
}

static void inside(void)
{
	kmem_cache_free(cache, (char *)get() + 8);
}

static void of_other_cache(void)
{
	kmem_cache_free(cache, kmem_cache_alloc(other, GFP_KERNEL));
}

static void ends(const char *when, const char *name, void (*run)(void), const char *phrase)
{
	int lines, status = said(run, text, &lines);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 1 && strstr(text, phrase),
	      "%s, %s: status %#x, said: %s", when, name, (unsigned)status, text);
}

static void all_are_found(const char *when)
{
	ends(when, "twice", twice, "object already free");
	ends(when, "twice beneath", twice_beneath, "object already free");
	ends(when, "twice in array", twice_in_array, "object already free");
	ends(when, "inside", inside, "pointer is not the start of an object");
	/* Shared pages do not name a cache. */
	if (!slob)
		ends(when, "of other cache", of_other_cache, "object belongs to different cache");
	/* Permitted calls go on. */
	for (unsigned i = 0; i < 1000; i++) {
		unsigned char *p = get();

		kmem_cache_free(cache, p);
		p = kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(p);
		/* Of engines with shared pages the first words are the list's. */
		for (unsigned j = 0; !slob && j < 64; j++)
			CHECK(j - cache->layout.freeptr < 8 || !p[j], "%s: byte %u is %#x", when, j, p[j]);
		kmem_cache_free(cache, p);
	}
}

static void made_meanwhile(void)
{
	tracer_is(true);
	cache = make("traced", 64);
	other = make("other", 64);
	all_are_found("attached");
	tracer_is(false);
	all_are_found("gone");
	tracer_is(true);
	all_are_found("attached again");
	tracer_is(false);
	gone(cache);
	gone(other);
}

static void made_before(void)
{
	cache = make("traced", 64);
	other = make("other", 64);
	all_are_found("before");
	tracer_is(true);
	all_are_found("attached");
	tracer_is(false);
	all_are_found("gone");
	gone(cache);
	gone(other);
}

static const struct test_case cases[] = { { "made meanwhile", made_meanwhile }, { "made before", made_before } };
API_MAIN_OPTIONS(cases, ",hardened:1")
