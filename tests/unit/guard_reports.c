/*
 * guard_reports: a fault at a guard page is reported with its kind: beside the nearer of two objects, of a freed
 * object, or of no object; a bad free as of an object's inside, a second free, or a free to another cache; a check
 * finds written bytes around an object. If the system refuses to close or open a page, the object is served
 * otherwise, and the page is closed later. Every request here has a guarded object, while there is room.
 */
#define _GNU_SOURCE
#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/cases.h"
#include "kit/heard.h"

#include "page/guard_range.h"
#include "os/os.h"
#include "os/os_signal.h"
#include "ext/guard/guard.h"

static struct kmem_cache *cache, *other;

static char *get(struct kmem_cache *from)
{
	char *p = kmem_cache_alloc(from, GFP_KERNEL);

	NEED(p && km_is_guarded(p));
	return p;
}

static enum km_fault_end touch(const char *address, enum km_access access)
{
	struct km_fault fault = { .address = address, .pc = (uintptr_t)touch, .access = access };

	return km_guard_fault(&fault);
}

/* Objects of two neighbouring slots; other objects were allocated before. */
static void neighbours(char **left, char **right)
{
	char *p[64];
	size_t page = km_guarded.page_bytes;

	for (unsigned i = 0; i < 64; i++) {
		p[i] = get(cache);
		for (unsigned j = 0; j < i; j++) {
			size_t a = ((uintptr_t)p[i] - km_guarded.start) / page;
			size_t b = ((uintptr_t)p[j] - km_guarded.start) / page;

			if (a == b + 2 || b == a + 2) {
				*left = a < b ? p[i] : p[j];
				*right = a < b ? p[j] : p[i];
				return;
			}
		}
	}
	NEED(!"two objects lie side by side");
}

static void accesses(void)
{
	size_t page = km_guarded.page_bytes;
	char *left, *right, line[64];
	static char here[1];

	CHECK(touch(here, KM_ACCESS) == KM_FAULT_NOT_OURS);
	neighbours(&left, &right);
	char *between = (char *)km_guarded.start + (((uintptr_t)left - km_guarded.start) / page + 1) * page;

	SAYS("right of kfence-#", CHECK(touch(between, KM_ACCESS_READ) == KM_FAULT_RESUMED));
	SAYS("left of kfence-#", touch(between + page - 1, KM_ACCESS_WRITE));
	SAYS("out-of-bounds access", touch(between, KM_ACCESS));
	kmem_cache_free(cache, left);
	SAYS("left of kfence-#", touch(between, KM_ACCESS_READ));
	kmem_cache_free(cache, right);
	SAYS("Invalid read at", touch(between, KM_ACCESS_READ));
	snprintf(line, sizeof(line), "at its byte %d", 5);
	SAYS(line, CHECK(touch(right + 5, KM_ACCESS_WRITE) == KM_FAULT_RESUMED));
	SAYS("use-after-free write", touch(right + 5, KM_ACCESS_WRITE));
	SAYS("freed by thread", touch(right, KM_ACCESS_READ));
	/* Before all slots, and in a slot never used. */
	SAYS("BUG: KFENCE", touch((char *)km_guarded.start, KM_ACCESS_READ));
	struct km_guard_slot *slot;
	unsigned count = km_guard_slots(&slot);
	NEED(!slot[count - 1].object);
	SAYS("Invalid write at", touch(km_guard_page(&slot[count - 1]), KM_ACCESS_WRITE));
	SAYS("Invalid read at", touch(km_guard_page(&slot[count - 1]) + page, KM_ACCESS_READ));
}

static void frees(void)
{
	struct km_guard_slot *slot;
	unsigned count = km_guard_slots(&slot);
	char *p = get(cache);

	SAYS("at its byte 8", kmem_cache_free(cache, p + 8));
	SAYS("Invalid free of", kmem_cache_free(other, p));
	SAYS(NULL, kmem_cache_free(cache, p));
	SAYS("Double free of", kmem_cache_free(cache, p));
	NEED(!slot[count - 1].object);
	SAYS("Invalid free of", kmem_cache_free(cache, km_guard_page(&slot[count - 1])));
}

static void written_around(void)
{
	char *p = get(cache);
	bool at_end = ((uintptr_t)p + 40) % km_guarded.page_bytes == 0;
	char *outside = at_end ? p - 3 : p + 42;

	*outside ^= 0x55;
	SAYS("Corrupted memory at", CHECK(kmem_cache_validate(cache) > 0));
	*outside ^= 0x55;
	SAYS(NULL, CHECK(kmem_cache_validate(cache) == 0));
	kmem_cache_free(cache, p);
}

static bool no_protect(const char *call)
{
	return strcmp(call, "protect") == 0;
}

static bool no_unprotect(const char *call)
{
	return strcmp(call, "unprotect") == 0;
}

static void system_refuses(void)
{
	char *p = get(cache);
	struct km_guard_slot *slot;
	unsigned count = km_guard_slots(&slot), open = 0;

	km_os_fault = no_protect;
	kmem_cache_free(cache, p);
	for (unsigned i = 0; i < count; i++)
		open += slot[i].open;
	CHECK_EQUAL(open, 1);
	/* The next one tries again. */
	kmem_cache_free(cache, get(cache));
	km_os_fault = NULL;
	kmem_cache_free(cache, get(cache));
	kmem_cache_free(cache, get(cache));
	for (unsigned i = 0; i < count; i++)
		CHECK(!slot[i].open);
	km_os_fault = no_unprotect;
	p = kmem_cache_alloc(cache, GFP_KERNEL);
	CHECK(p && !km_is_guarded(p));
	km_os_fault = NULL;
	kmem_cache_free(cache, p);
	CHECK(kmem_check_all() == 0);
}

static void ctor(void *object)
{
	memset(object, 7, 40);
}

static void prepared(void)
{
	struct kmem_cache_args args = { .ctor = ctor };
	struct kmem_cache *made = kmem_cache_create("made", 40, &args, 0);
	char *p;

	NEED(made);
	p = get(made);
	CHECK(p[0] == 7 && p[39] == 7);
	kmem_cache_free(made, p);
	p = kmem_cache_zalloc(cache, GFP_KERNEL);
	NEED(p && km_is_guarded(p));
	CHECK(!p[0] && !p[39]);
	kmem_cache_free(cache, p);
	void *many[5];
	unsigned guarded = 0;
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 5, many));
	for (unsigned i = 0; i < 5; i++)
		guarded += km_is_guarded(many[i]);
	CHECK(guarded);
	kmem_cache_free_bulk(cache, 5, many);
	kmem_cache_free_bulk(cache, 0, many);
	/* A destroyed cache reports the objects left; they have no cache from then on. */
	for (unsigned i = 0; i < 10; i++)
		p = get(made);
	SAYS("guarded", kmem_cache_destroy(made));
	p = (char *)km_align_down((uintptr_t)p, km_guarded.page_bytes) + km_guarded.page_bytes;
	SAYS("made", touch(p, KM_ACCESS));
}

static const struct test_case cases[] = {
	{ "accesses", accesses }, { "frees", frees }, { "written around", written_around },
	{ "system refuses", system_refuses }, { "prepared", prepared },
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return again(argv[0], "each", "guard:each,misuse:warn") != 0;
	cache = kmem_cache_create("guarded", 40, NULL, 0);
	other = kmem_cache_create("other", 200, NULL, 0);
	NEED(cache && other);
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), argv[1]);
}
