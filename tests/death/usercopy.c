/*
 * usercopy: a copy beyond its object, or beyond the region named by the cache, ends the process with the kernel's
 * text; any other copy is permitted, from any byte of the object. For each engine.
 */
#define CHECK_FD 2
#include "kit/api.h"

static struct kmem_cache *whole, *region;
static char *object, *limited, *block;
static char text[4096];

static void begin(void)
{
	whole = make("whole", 100);
	region = kmem_cache_create_usercopy("region", 100, 8, 0, 16, 32, NULL);
	NEED(whole && region);
	object = kmem_cache_alloc(whole, GFP_KERNEL);
	limited = kmem_cache_alloc(region, GFP_KERNEL);
	block = kmalloc(64, GFP_KERNEL);
	NEED(object && limited && block);
}

static const char *at;
static size_t bytes;
static bool out;

static void ask(void)
{
	kmem_check_object_size(at, bytes, out);
}

/* Expects the end with this line, and with the line of every bad call. */
static void refused(const char *from, size_t count, bool to_user, const char *line)
{
	int lines;

	at = from;
	bytes = count;
	out = to_user;
	int status = said(ask, text, &lines);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines == 2 && strstr(text, line) &&
	      strstr(text, "copy exceeds the object; a backtrace shows the caller"),
	      "wanted: %s; said: %s", line, text);
}

static void allowed(void)
{
	begin();
	for (size_t offset = 0; offset <= 100; offset++)
		NEED(kmem_check_object_size(object + offset, 100 - offset, offset & 1));
	NEED(slob || kmem_check_object_size(limited + 16, 32, true));
	NEED(slob || kmem_check_object_size(limited + 40, 8, false));
	NEED(kmem_check_object_size(block, 64, true) && kmem_check_object_size(block, 0, true));
	NEED(kmem_check_object_size(text, sizeof(text), true) && kmem_check_object_size(NULL, 10, false));
	char *large = kmalloc(100000, GFP_KERNEL);
	NEED(kmem_check_object_size(large, 100000, true));
	kfree(large);
}

static void beyond(void)
{
	begin();
	refused(block, 4096, true, "usercopy: Kernel memory exposure attempt detected from SLUB object");
	refused(block, 4096, false, "usercopy: Kernel memory overwrite attempt detected to SLUB object");
	char *large = kmalloc(100000, GFP_KERNEL);
	refused(large, 4000000, true, "exposure attempt detected from SLUB object (offset 0, size 4000000)!");
	refused(text, SIZE_MAX, true, "detected from wrapped address");
	if (slob)
		return;
	refused(block, 4096, true, "from SLUB object 'kmalloc-64' (offset 0, size 4096)!");
	refused(object + 60, 60, true, "from SLUB object 'whole' (offset 60, size 60)!");
	refused(limited, 16, true, "from SLUB object 'region' (offset 0, size 16)!");
	refused(limited + 16, 33, false, "to SLUB object 'region' (offset 16, size 33)!");
	refused(limited + 15, 2, false, "to SLUB object 'region' (offset 15, size 2)!");
	refused(limited + 49, 1, true, "from SLUB object 'region' (offset 49, size 1)!");
}

static const struct test_case cases[] = { { "allowed", allowed }, { "beyond", beyond } };
API_MAIN(cases)
