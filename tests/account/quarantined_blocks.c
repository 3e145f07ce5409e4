/*
 * quarantined_blocks.c: debugged blocks of whole pages (KMEM_DEBUG, "large") charged to a group. A freed block is kept
 * for a while: uncharged, of no group, and longer than its group. All blocks of a private group are freed at once, and
 * then kept as other blocks. Disciplines: all
 */
#include "kit/heard.h"
#include "kit/charged_objects.h"

#define BYTES	100000ul	/* whole pages */
#define LONG	(6ul << 20)	/* a mapping */
#define MANY	100

static void *get(struct mem_cgroup *group, size_t bytes)
{
	MEMCG_SCOPE(group);
	void *p = kvmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	NEED(p);
	memset(p, 1, bytes);
	return p;
}

static bool has(struct mem_cgroup *group, void *p)
{
	struct mem_cgroup *objcg = mem_cgroup_from_obj(p);
	bool same = objcg == group;

	if (objcg)
		mem_cgroup_put(objcg);
	return same;
}

/* Others are kept instead. */
static void push_out(void)
{
	for (int i = 0; i < MANY; i++)
		kfree(kmalloc(BYTES, GFP_KERNEL));
	for (int i = 0; i < 4; i++)
		kvfree(kvmalloc(LONG, GFP_KERNEL));
	NEED(kmem_check_all() == 0);
}

/* Kept blocks do not count against a limit. */
static void room_at_a_limit_by(struct mem_cgroup *group)
{
	NEED(mem_cgroup_set_max(group, LONG + (1 << 20)) == 0);
	for (int i = 0; i < MANY; i++) {
		void *p = get(group, i % 20 ? BYTES : LONG);

		NEED(has(group, p) && drained(group) >= BYTES);
		kvfree(p);
		NEED(!has(group, p) && drained(group) == 0, "(%zu)", (size_t)drained(group));
	}
	mem_cgroup_put(group);
	push_out();
}

static void room_at_a_limit(void)
{
	room_at_a_limit_by(group_below(NULL, "limited"));
	room_at_a_limit_by(private_group("limited, private"));
}

static int seen;

static void count(struct kmem_cache *cache, void *object, void *arg)
{
	(void)arg;
	NEED(!cache && *(char *)object == 1);
	seen++;
}

/* Some were freed before, and others not. */
static void all_at_once(void)
{
	struct mem_cgroup *group = private_group("at once"), *other = private_group("other");
	void *kept = get(other, BYTES), *p[MANY];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MANY; i++)
			p[i] = get(group, i % 25 ? BYTES : LONG);
		for (int i = 0; i < MANY; i += 2)
			kvfree(p[i]);
		seen = 0;
		NEED(mem_cgroup_destroy_all(group, count, NULL) == 0 && seen == MANY / 2, "(%d)", seen);
		NEED(drained(group) == 0 && kmem_check_all() == 0);
		NEED(mem_cgroup_destroy_all(group, count, NULL) == 0 && seen == MANY / 2);
		NEED(has(other, kept) && drained(other) >= BYTES);
	}
	mem_cgroup_put(group);
	push_out();
	NEED(mem_cgroup_destroy_all(other, NULL, NULL) == 0 && drained(other) == 0);
	mem_cgroup_put(other);
}

/* A block freed with its group is checked as a block freed by itself. */
static void wrong_after_the_end(void)
{
	struct mem_cgroup *group = private_group("ended");
	char *p = get(group, BYTES);

	NEED(mem_cgroup_destroy_all(group, NULL, NULL) == 0);
	SAYS("Object already free", kfree(p));
	p[5] = 1;
	SAYS("Poison overwritten", NEED(kmem_check_all() != 0));
	mem_cgroup_put(group);
	push_out();
}

static const struct test_case cases[] = {
	{ "room at a limit", room_at_a_limit },
	{ "all at once", all_at_once },
	{ "wrong after the end", wrong_after_the_end },
};

int main(int argc, char **argv)
{
	static const char *const variants[] = { "P,large;-", "FZPU,large;-" };
	int failed = 0;

	if (argc > 1)
		return strcmp(argv[1], "slob") ? api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), "") : 0;
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
		setenv("KMEM_DEBUG", variants[i], 1);
		failed |= api_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), "");
	}
	return failed;
}
