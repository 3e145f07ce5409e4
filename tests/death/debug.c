/*
 * debug: debugging finds each kind of misuse through kmem_cache, kmalloc and malloc, for each engine, each in a
 * process of its own; the test checks the end of the process and the report's title. Under misuse:warn the process
 * goes on: all damage is repaired, checked, and the cache works. A correct use is not reported.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "cache/cache.h"
#include "kit/clock.h"
#include "ext/debug/debug.h"

#include "steps.h"

#define FLAGS (SLAB_CONSISTENCY_CHECKS | SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER)
#define SIZE 40

#define NEED(condition)                                                                            \
	((condition) ? (void)0 : (dprintf(2, "case: %s does not hold\n", #condition), _exit(3)))

static void *blind(void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

/* ------------------------------------------------------------------ interfaces */

static struct kmem_cache *mine, *other;

static void *cache_get(void)
{
	if (!mine)
		NEED((mine = kmem_cache_create("mine", SIZE, NULL, FLAGS)));
	return kmem_cache_alloc(mine, GFP_KERNEL);
}

static void cache_put(void *p) { kmem_cache_free(mine, p); }
static void *kmalloc_get(void) { return kmalloc(SIZE, GFP_KERNEL); }
static void kmalloc_put(void *p) { kfree(p); }
static void *malloc_get(void) { return malloc(SIZE); }
static void malloc_put(void *p) { free(p); }

static const struct door {
	const char *name;
	void *(*get)(void);
	void (*put)(void *p);
	const char *zone;		/* the red zone behind the user's bytes */
} doors[] = {
	{ "cache", cache_get, cache_put, "Right Redzone" },
	{ "kmalloc", kmalloc_get, kmalloc_put, "kmalloc Redzone" },
	{ "malloc", malloc_get, malloc_put, "kmalloc Redzone" },
}, *door;

static unsigned char *get(void)
{
	unsigned char *p = blind(door->get());

	NEED(p);
	memset(p, 0x11, SIZE);
	return p;
}

static void put(void *p)
{
	door->put(blind(p));
}

/* ------------------------------------------------------------------ kinds */

static void over_by_one(void)
{
	unsigned char *p = get();

	p[SIZE] = 1;
	put(p);
}

static void over_by_many(void)
{
	unsigned char *p = get();

	memset(p + SIZE, 1, 16);
	put(p);
}

/* So far that the debug bytes themselves are lost. */
static void over_by_very_many(void)
{
	unsigned char *p = get();

	memset(p + SIZE, 1, 60);
	put(p);
}

static void under_by_one(void)
{
	unsigned char *p = get();

	p[-1] = 1;
	put(p);
}

static void under_by_many(void)
{
	unsigned char *p = get();

	memset(p - 8, 1, 8);
	put(p);
}

/* The next allocation of a free object finds a write to the object. */
static void written_after_free(void)
{
	unsigned char *p = get();

	put(p);
	p[3] = 1;
	for (int i = 0; i < 3000; i++)
		if (get() == p)
			return;
}

/* ... or looks. */
static void written_last_byte(void)
{
	unsigned char *p = get();
	size_t size = kmem_cache_of(p)->layout.object_size;

	put(p);
	p[size - 1] = 1;
	kmem_check_all();
}

static void freed_twice(void)
{
	unsigned char *p = get();

	put(p);
	put(p);
}

static void freed_twice_later(void)
{
	unsigned char *p = get(), *q = get(), *r = get();

	put(p);
	put(q);
	put(p);
	put(r);
}

static void *put_in_thread(void *p)
{
	put(p);
	return NULL;
}

static void freed_twice_by_threads(void)
{
	unsigned char *p = get();
	pthread_t thread;

	put(p);
	NEED(!pthread_create(&thread, NULL, put_in_thread, p));
	pthread_join(thread, NULL);
}

static void into_other_cache(void)
{
	unsigned char *p = get();

	NEED((other = kmem_cache_create("other", SIZE, NULL, FLAGS)));
	kmem_cache_free(other, p);
	put(p);
}

static void interior(void)
{
	unsigned char *p = get();

	put(p + 8);
	put(p);
}

/* In the red zone before the object. */
static void before_the_start(void)
{
	unsigned char *p = get();

	put(p - 8);
	put(p);
}

/* Of a size with a rest at the end of the slab. */
static void slab_padding(void)
{
	struct km_debug_region padding = { .bytes = 0 };
	unsigned char *p = get();

	for (size_t size = SIZE; size < 8192; size += size / 2) {
		padding = km_debug_slab_padding(kmem_cache_of(p), km_page_head(km_page_of(p)));
		if (padding.bytes)
			break;
		put(p);
		if (door->get == cache_get) {
			kmem_cache_destroy(mine);
			NEED((mine = kmem_cache_create("mine", (unsigned)size, NULL, FLAGS)));
		}
		NEED((p = blind(door->get == malloc_get ? malloc(size) : door->get == cache_get ? get() :
									  kmalloc(size, GFP_KERNEL))));
	}
	NEED(padding.bytes);
	padding.at[padding.bytes - 1] = 1;
	put(p);
}

/* ------------------------------------------------------------------ what lies beside an object */

static struct kmem_cache *cache_of(void *p)
{
	return kmem_cache_of(p) ?: mine;
}

static unsigned char *word_of(void *p)
{
	return (unsigned char *)km_debug_word(cache_of(p), p);
}

static void **link_of(void *p)
{
	return (void **)((char *)p + cache_of(p)->layout.freeptr);
}

/* The whole slot is unchanged: no check poisons a part of it. */
static void still_whole(const unsigned char *p)
{
	for (unsigned i = 0; i < SIZE; i++)
		NEED(p[i] == 0x11);
}

static void state_of_live(void)
{
	unsigned char *p = get();

	word_of(p)[0] ^= 1;
	NEED(kmem_cache_validate(cache_of(p)) == 1);
	still_whole(p);
	NEED(kmem_cache_validate(cache_of(p)) == 0);
	put(p);
}

/* Any valid state word, copied from another object or from another time, proves no state. */
static void state_of_another(void)
{
	unsigned char *p = get(), *q = get();

	put(q);
	memcpy(word_of(p), word_of(q), 8);
	put(p);
}

static void state_of_free(void)
{
	unsigned char *p = get();

	put(p);
	memset(word_of(p), 0xcc, 4);
	kmem_check_all();
}

static void bytes_asked(void)
{
	unsigned char *p = get();

	word_of(p)[4] += 4;
	put(p);
}

static void track(void)
{
	unsigned char *p = get();

	km_debug_marks(cache_of(p), p)[0].who ^= 0x100;
	put(p);
}

static void track_of_free(void)
{
	unsigned char *p = get();

	put(p);
	km_debug_marks(cache_of(p), p)[1].who += (uint64_t)1 << 32;
	kmem_check_all();
}

static void link_of_live(void)
{
	unsigned char *p = get();

	*link_of(p) = NULL;
	put(p);
}

static void link_of_free(void)
{
	unsigned char *p = get();

	put(get());
	put(p);
	memset(link_of(p), 0x41, 8);
	for (int i = 0; i < 3000; i++)
		if (get() == p)
			return;
}

/* None of them is had twice. */
static void had_once(unsigned char **objects, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < i; j++)
			NEED(objects[i] != objects[j]);
	for (unsigned i = 0; i < n; i++)
		put(objects[i]);
}

static void link_to(int from, int to)
{
	unsigned char *objects[6];

	for (int i = 0; i < 6; i++)
		objects[i] = get();
	for (int i = 0; i < 5; i++)
		put(objects[i]);
	*link_of(objects[from]) = objects[to];
	for (int i = 0; i < 5; i++)
		objects[i] = get();
	had_once(objects, 6);
}

/* Freed in this order, each object links to the one before. */
static void link_to_live(void) { link_to(3, 5); }
static void link_in_circle(void) { link_to(2, 4); }
static void link_past_others(void) { link_to(3, 0); }

static void link_to_itself(void)
{
	unsigned char *p = get(), *q = get(), *r;

	put(p);
	put(q);
	*link_of(q) = q;
	put(get());
	r = get();
	q = get();
	NEED(q != r);
	put(q);
	put(r);
}

/* Objects freed by a handler that interrupted the allocator wait, linked by the same word. */
static void link_of_waiting(void *to)
{
	unsigned char *p = get(), *q = get();
	struct km_busy_was was = km_busy_begin();

	put(p);
	put(q);
	km_busy_end(was);
	*link_of(q) = to;
	put(get());
	NEED(cache_of(q)->state.deferred == NULL);
}

static void waiting_to_nowhere(void) { link_of_waiting((void *)0x4141414141414141); }
static void waiting_to_live(void) { link_of_waiting(get()); }

static void waiting(void)
{
	unsigned char *p = get(), *q = get();
	struct km_busy_was was = km_busy_begin();

	put(p);
	put(q);
	km_busy_end(was);
	NEED(kmem_cache_validate(cache_of(p)) == 0);
	NEED(get() != get());
}

/* The slab has gone by then. */
static void written_after_last_free(void)
{
	unsigned char *p = get();
	struct kmem_cache *cache = cache_of(p);

	put(p);
	p[3] = 1;
	kmem_cache_shrink(cache);
}

static void over_at_destruction(void)
{
	unsigned char *p = get();

	p[SIZE] = 1;
	NEED(door->get == cache_get);
	kmem_cache_destroy(mine);
	mine = NULL;
}

/* The engine's list has an allocated object. */
static void in_use(void)
{
	unsigned char *p = get();

	NEED(cache_of(p)->ext.hooks->on_alloc(cache_of(p), p, GFP_KERNEL) == KM_LOST);
	still_whole(p);
	put(p);
}

static void validated(void)
{
	unsigned char *p = get();

	p[SIZE] = 1;
	NEED(kmem_cache_validate(kmem_cache_of(p)) == 1);
	NEED(kmem_cache_validate(kmem_cache_of(p)) == 0);
	put(p);
}

/* Objects of a typesafe cache are not poisoned, and not checked for poison at the cache's end. */
static void typesafe_goes(void)
{
	struct kmem_cache *typesafe = kmem_cache_create("typesafe", SIZE, NULL, FLAGS | SLAB_TYPESAFE_BY_RCU);
	unsigned char *p = typesafe ? kmem_cache_alloc(typesafe, GFP_KERNEL) : NULL;

	NEED(p);
	memset(p, 0x11, SIZE);
	kmem_cache_free(typesafe, p);
	kmem_cache_destroy(typesafe);
}

static void nothing_wrong(void)
{
	unsigned char *p = get(), *q = get();

	put(p);
	NEED(p[20] == 0x6b);
	put(q);
	for (int i = 0; i < 3000; i++)
		put(get());
}

/* A block of whole pages has exactly the requested bytes, after any growth and shrinking. */
static void blocks_change(void)
{
	static const size_t sizes[] = { 14000, 11065, 15056, 300000, 290000, 299999, 9000, 4000000, 20000 };
	unsigned char *p = NULL, *q = NULL;
	size_t before = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i], both = before < size ? before : size;

		NEED((p = realloc(p, size)));
		NEED((q = krealloc(q, size, GFP_KERNEL)));
		NEED(!before || (p[both - 1] == 7 && q[both - 1] == 7));
		NEED(malloc_usable_size(p) >= size);
		NEED(size < 200000 || malloc_usable_size(p) == size);
		memset(p, 7, size);
		memset(q, 7, size);
		before = size;
	}
	free(p);
	kfree(q);
}

#define ZONE "%"
static const struct kind {
	const char *name;
	void (*run)(void);
	const char *title, *phrase;	/* NULL: no report */
	bool shared;			/* the same where caches share pages */
	const char *linked;		/* the title where free objects are linked */
	enum { ANY, LINKED, CACHES } only;	/* these engines and this interface only */
	bool bare;			/* the report is of no object */
} kinds[] = {
#define PHRASE "object or its surroundings were overwritten"
#define OVERWRITTEN(name, what) { #name, name, what " overwritten", PHRASE, false }
	{ "over_by_one", over_by_one, ZONE " overwritten", PHRASE, true },
	{ "over_by_many", over_by_many, ZONE " overwritten", PHRASE, true },
	{ "over_by_very_many", over_by_very_many, "Right Redzone overwritten", PHRASE, true },
	OVERWRITTEN(under_by_one, "Left Redzone"), OVERWRITTEN(under_by_many, "Left Redzone"),
	OVERWRITTEN(written_after_free, "Poison"), OVERWRITTEN(written_last_byte, "End Poison"),
	{ "slab_padding", slab_padding, "Padding overwritten", PHRASE, .bare = true },
	OVERWRITTEN(validated, ZONE),
	{ "freed_twice", freed_twice, "Object already free", "object already free", false },
	{ "freed_twice_later", freed_twice_later, "Object already free", "object already free", false },
	{ "freed_twice_by_threads", freed_twice_by_threads, "Object already free", "object already free", false },
	{ "into_other_cache", into_other_cache, "Object belongs to different cache",
	  "object belongs to different cache", false },
	{ "interior", interior, "Invalid object pointer", "pointer is not the start of an object", false },
	{ "before_the_start", before_the_start, "Invalid object pointer", "pointer is not the start of an object",
	  false },
	OVERWRITTEN(state_of_live, "Object state"), OVERWRITTEN(state_of_another, "Object state"),
	OVERWRITTEN(state_of_free, "Object state"), OVERWRITTEN(bytes_asked, "Object state"),
	OVERWRITTEN(track, "Alloc track"), OVERWRITTEN(track_of_free, "Free track"),
	{ "written_after_last_free", written_after_last_free, "Poison overwritten", PHRASE, .only = CACHES },
	{ "link_of_live", link_of_live, "Freepointer corrupt", PHRASE, true },
	{ "link_of_free", link_of_free, "Freepointer corrupt", PHRASE, false, "Freechain corrupt" },
#define CHAIN(name, what) { #name, name, NULL, PHRASE, false, what, LINKED, .bare = true }
	CHAIN(link_to_live, "Freechain corrupt"), CHAIN(link_in_circle, "Freelist cycle detected"),
	CHAIN(link_past_others, "Wrong object count. Counter is "), CHAIN(link_to_itself, "Freelist cycle detected"),
	{ "over_at_destruction", over_at_destruction, "Right Redzone overwritten", PHRASE, false, NULL, CACHES },
	{ "in_use", in_use, "Object in use on freelist", PHRASE, false },
	{ "waiting_to_nowhere", waiting_to_nowhere, "Freechain corrupt", PHRASE, false },
	{ "waiting_to_live", waiting_to_live, "Freechain corrupt", PHRASE, false },
	{ "waiting", waiting, NULL, NULL, true },
	{ "nothing_wrong", nothing_wrong, NULL, NULL, true },
	{ "typesafe_goes", typesafe_goes, NULL, NULL, true }, { "blocks_change", blocks_change, NULL, NULL, true },
};

static int child(const char *kind, const char *by)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	alarm(580);
	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++)
		if (!strcmp(doors[i].name, by))
			door = &doors[i];
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, kind))
			kinds[i].run();
	NEED(kmem_check_all() == 0);
	put(get());
	return 0;
}

/* ------------------------------------------------------------------ the parent */

static int run(const struct kind *kind, const struct door *by, const char *engine, const char *mode, char *said,
	       size_t bytes)
{
	char options[64];
	size_t length = 0;
	int err[2], status;
	ssize_t n;

	snprintf(options, sizeof(options), "engine:%s,misuse:%s", engine, mode);
	if (pipe(err))
		return -1;
	pid_t pid = fork();
	if (!pid) {
		setenv("KMEM_OPTIONS", options, 1);
		setenv("KMEM_DEBUG", "FZPU,kmalloc-*,malloc-*,large;-", 1);
		dup2(err[1], 2);
		execl("/proc/self/exe", "debug", kind->name, by->name, NULL);
		_exit(4);
	}
	close(err[1]);
	while (length < bytes - 1 && (n = read(err[0], said + length, bytes - 1 - length)) > 0)
		length += (size_t)n;
	said[length] = '\0';
	close(err[0]);
	waitpid(pid, &status, 0);
	return status;
}

/* Checks the title in its line, the stack of the allocation, and the phrase in the last line. */
static bool fits(const struct kind *kind, const struct door *by, const char *what, bool warned, const char *said)
{
	char title[128];

	if (!what)
		return !*said;
	bool zone = *what == *ZONE;
	snprintf(title, sizeof(title), " (Not tainted): %s%s", zone ? by->zone : "", what + zone);
	const char *bug = strstr(said, "libkmem: BUG ");
	if (!bug || !strstr(bug, title) || !strstr(bug, kind->phrase))
		return false;
	/* The line below the report: the next step prints stacks. */
	if (!kind->bare && !strstr(strstr(bug, kind->phrase), TOLD))
		return false;
	/* One damage, one report; a destroyed cache adds a report of its own. */
	const char *more = strstr(bug + 1, "libkmem: BUG ");
	if (more && !(warned && kind->run == over_at_destruction && strstr(more, ": Objects remaining on ")))
		return false;
	if (strncmp(said, "libkmem: =====", 14) && kind->run != over_at_destruction)
		return false;
	if (!kind->bare && !strstr(bug, "Allocated in "))
		return false;
	return !warned == !strstr(bug, "libkmem: FIX ");
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES }, *const modes[] = { "abort", "warn" };
	static char said[65536];
	int failed = 0, total = 0;

	if (argc == 3)
		return child(argv[1], argv[2]);
	for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++) {
		const struct km_engine *engine = km_engine_find(engines[e]);
		bool shared = engine->shared_pages, linked = engine->front == KM_PERCPU_FREELIST;

		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) * 6; i++) {
			const struct kind *kind = &kinds[i / 6];
			const struct door *by = &doors[i % 3];
			bool warn = i / 3 % 2;

			/* In engines with shared pages only the zone behind a cache's objects exists. */
			if (shared && (by->get != cache_get || !kind->shared))
				continue;
			if ((kind->only == LINKED && !linked) || (kind->only == CACHES && by->get != cache_get))
				continue;
			const char *what = linked && kind->linked ? kind->linked : kind->title;
			int status = run(kind, by, engines[e], modes[warn], said, sizeof(said));
			bool ends = what && !warn;

			total++;
			if ((ends ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT : status == 0) &&
			    fits(kind, by, what, warn, said))
				continue;
			printf("%s, %s, %s, misuse:%s: status 0x%x\n said:\n%s\n", kind->name, by->name, engines[e],
			       modes[warn], (unsigned)status, said);
			failed++;
		}
	}
	printf("%d of %d ended as they should\n", total - failed, total);
	return failed != 0;
}
