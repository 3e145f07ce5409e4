/*
 * usercopy_guarded: kmem_check_object_size for guarded objects: an object ends with the requested bytes, the
 * cache's region holds for guarded objects as well, and no byte of a freed object may be copied. For each engine.
 */
#define CHECK_FD 2
#include "kit/api.h"
#include "page/guard_range.h"

static struct kmem_cache *region;
static char *limited, *block;
static char text[4096];

static void begin(void)
{
	region = kmem_cache_create_usercopy("region", 64, 8, 0, 8, 8, NULL);
	NEED(region);
	limited = kmem_cache_alloc(region, GFP_KERNEL);
	block = kmalloc(24, GFP_KERNEL);
	NEED(limited && km_is_guarded(limited) && block && km_is_guarded(block));
}

static const char *at;
static size_t bytes;

static void ask(void)
{
	kmem_check_object_size(at, bytes, true);
}

static void refused(const char *from, size_t count, const char *line)
{
	int lines;

	at = from;
	bytes = count;
	int status = said(ask, text, &lines);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 2 && strstr(text, line),
	      "wanted: %s; said: %s", line, text);
}

static void allowed(void)
{
	begin();
	for (size_t offset = 0; offset <= 24; offset++)
		NEED(kmem_check_object_size(block + offset, 24 - offset, true));
	NEED(kmem_check_object_size(limited + 8, 8, true) && kmem_check_object_size(limited + 16, 0, true));
	NEED(kmem_check_object_size(block + 4096, 0, true));
}

static void beyond(void)
{
	begin();
	refused(block, 25, "from SLUB object 'kmalloc");
	refused(block + 20, 5, "(offset 20, size 5)!");
	refused(block, 4000, "(offset 0, size 4000)!");
	refused(limited, 64, "from SLUB object 'region' (offset 0, size 64)!");
	refused(limited + 8, 9, "from SLUB object 'region' (offset 8, size 9)!");
	/* An object is at the left or right end of its page: the byte before is in another page, or in the same. */
	refused(block - 1, 2, "from SLUB object ");
	kmem_cache_free(region, limited);
	refused(limited + 8, 8, "from free SLUB object 'region'");
	kfree(block);
	refused(block, 24, "from free SLUB object 'kmalloc");
}

static const struct test_case cases[] = { { "allowed", allowed }, { "beyond", beyond } };
API_MAIN_OPTIONS(cases, ",guard:each")
