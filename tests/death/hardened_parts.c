/*
 * hardened_parts: the parts of hardening beside the validation of a free, each by its option: zeros, a canary behind
 * the object, a quarantine. For each engine with an allocation state map; slob validates by its own marks, without
 * these parts.
 */
#define CHECK_FD 2
#include "kit/api.h"
#include "kit/clock.h"

#include "slab/engine.h"

#define SIZE 104
#define MANY 300

static struct kmem_cache *cache;
static char text[4096];

static unsigned char *get(void)
{
	unsigned char *p = kmem_cache_alloc(cache, GFP_KERNEL);

	NEED(p);
	__asm__ volatile("" : "+r"(p));
	return p;
}

/* The options of a case: the process begins again with them. */
static void with(const char *options, const char *name)
{
	char all[256];

	snprintf(all, sizeof(all), "%s,%s", getenv("KMEM_OPTIONS"), options);
	setenv("KMEM_OPTIONS", all, 1);
	execl("/proc/self/exe", "hardened_parts", name, "part", (char *)NULL);
	_exit(127);
}

static void ends(void (*run)(void), const char *line)
{
	int lines, status = said(run, text, &lines);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, line), "status %#x, said: %s",
	      (unsigned)status, text);
}

/*
 * ------------------------------------------------------------------ the parts, in a process with the options
 */

/* Freed bytes are zeros; an engine's link may lie in them, and in one place. */
static void zero_on_free(void)
{
	unsigned char *p = get();
	unsigned left = 0;

	memset(p, 0x5a, SIZE);
	kmem_cache_free(cache, p);
	__asm__ volatile("" : "+r"(p) : : "memory");
	for (unsigned i = 0; i < SIZE; i++) {
		NEED(p[i] != 0x5a || i / 8 == SIZE / 16);
		left += p[i] != 0;
	}
	NEED(left <= 8);
}

static void zero_on_alloc(void)
{
	for (int i = 0; i < MANY; i++) {
		unsigned char *p = get();

		NEED(all(p, 0, SIZE));
		memset(p, 0x5a, SIZE);
		kmem_cache_free(cache, p);
	}
	void *many[40];

	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 40, many));
	for (int i = 0; i < 40; i++)
		NEED(all(many[i], 0, SIZE));
	kmem_cache_free_bulk(cache, 40, many);
}

static unsigned beyond;

static void overflows(void)
{
	unsigned char *p = get();

	p[SIZE + beyond] ^= 1;
	kmem_cache_free(cache, p);
}

static void canary(void)
{
	for (beyond = 0; beyond < 8; beyond++)
		ends(overflows, "object or its surroundings were overwritten; KMEM_DEBUG=FZPU says who allocated it");
	unsigned char *p = get();
	memset(p, 0xff, SIZE);
	kmem_cache_free(cache, p);
	/* All bytes of ksize belong to the user. */
	p = get();
	NEED(ksize(p) >= SIZE);
	memset(HELD(p), 0xff, ksize(p));
	kfree_sensitive(p);
}

static void written_while_it_waits(void)
{
	unsigned char *p = get();

	kmem_cache_free(cache, p);
	__asm__ volatile("" : "+r"(p) : : "memory");
	p[40] = 1;
	for (int i = 0; i < 100 * MANY; i++)
		kmem_cache_free(cache, get());
}

/* A freed object is seldom the next one allocated; and all objects come back. */
static void quarantine(void)
{
	unsigned same = 0;

	for (int i = 0; i < MANY; i++) {
		void *p = get(), *q;

		kmem_cache_free(cache, p);
		q = get();
		same += p == q;
		kmem_cache_free(cache, q);
	}
	NEED(same < MANY / 4);
	ends(written_while_it_waits, "object or its surroundings were overwritten");
}

/*
 * Engine slub's link in a free object leads to an address of the attacker's choice: the address is
 * never allocated.
 */
static uintptr_t forged;
static void forge(void)
{
	unsigned char *p = get(), *q = get();

	kmem_cache_free(cache, q);
	kmem_cache_free(cache, p);
	__asm__ volatile("" : "+r"(p) : : "memory");
	((uintptr_t *)p)[SIZE / 2 / 8] = forged;
	for (int i = 0; i < MANY; i++)
		get();
}

/* A process with misuse:warn goes on without this freelist. */
static void forge_and_go_on(void)
{
	km_misuse_set(KM_MISUSE_WARN);
	forge();
}

static void links(void)
{
	static uintptr_t strange[16];
	struct kmem_cache *other = make("other", SIZE);
	unsigned char *mine = get();
	const uintptr_t wrong[] = { (uintptr_t)mine, (uintptr_t)mine + 8,
				    (uintptr_t)kmem_cache_alloc(other, GFP_KERNEL), (uintptr_t)strange,
				    0x4141414141414141, 4096 };

	for (size_t i = 0; cache->layout.engine->front == KM_PERCPU_FREELIST &&
			   i < sizeof(wrong) / sizeof(wrong[0]);
	     i++) {
		forged = wrong[i];
		ends(forge, "free memory of this page was written to");
		int lines, status = said(forge_and_go_on, text, &lines);
		CHECK(!status && lines == 1, "%zu: status %#x, said: %s", i, (unsigned)status, text);
	}
	kmem_cache_free(cache, mine);
}

static const struct part {
	const char *name, *options;
	void (*run)(void);
} parts[] = {
	{ "zero_on_free", "zero_on_free:1", zero_on_free },
	{ "zero_on_alloc", "zero_on_free:0,zero_on_alloc:1", zero_on_alloc },
	{ "canary", "canary:1", canary },
	{ "quarantine", "quarantine:1", quarantine },
	{ "all", "canary:1,quarantine:1", canary },
	{ "links", "zero_on_free:0", links },
};

static int part(const char *name)
{
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(parts[i].name, name) == 0) {
			cache = make("parts", SIZE);
			parts[i].run();
			if (!failures)
				gone(cache);
			return failures != 0;
		}
	return 2;
}

#define PART(index) static void part_##index(void) { with(parts[index].options, parts[index].name); }
PART(0) PART(1) PART(2) PART(3) PART(4) PART(5)

static const struct test_case cases[] = {
	{ "zeros when freed", part_0 }, { "zeros when handed out", part_1 }, { "canary", part_2 },
	{ "quarantine", part_3 }, { "all of them", part_4 }, { "links", part_5 },
};

int main(int argc, char **argv)
{
	if (argc > 2)
		return part(argv[1]);
	if (argc > 1 && strcmp(argv[1], "slob") == 0)
		return 0;
	return api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), ",hardened:1");
}
