/*
 * memcg.c: groups while memory, per-CPU words or rights run out: a failed creation returns ENOMEM and leaves no
 * trace. A group without a stock of its own is charged all the same, to the byte. A group that cannot be closed now
 * can be closed later. Disciplines: all
 */
#define _GNU_SOURCE
#include "kit/events.h"
#include "kit/groups.h"

#include "page/metadata.h"
#include "os/os.h"
#include "percpu/pcpu.h"
#include "memcg/memcg_group.h"
#include "kit/inside.h"

static bool refuse_memory(const char *call)
{
	return strcmp(call, "fence") != 0;
}

static uint64_t shrink_nothing(struct mem_cgroup *group, uint64_t bytes, void *arg)
{
	return 0;
}

/* Uses all metadata up, in small pieces. */
static void use_up_metadata(void)
{
	while (km_metadata_alloc(64, true))
		;
}

/* So many groups can be made from the rest; the next one is refused, at each possible place. */
static void none_left(void)
{
	struct mem_cgroup *top = group_below(NULL, "top");
	enum { MOST = 20 };

	for (size_t spare = 0; spare < 4; spare++) {
		void *pieces[8];
		struct mem_cgroup *groups[MOST];
		int made = 0;

		for (size_t i = 0; i < spare; i++)
			pieces[i] = km_metadata_alloc(i % 2 ? sizeof(struct obj_cgroup) : 2048, true);
		km_os_fault = refuse_memory;
		use_up_metadata();
		for (size_t i = 0; i < spare; i++)
			km_metadata_free(pieces[i], i % 2 ? sizeof(struct obj_cgroup) : 2048);
		errno = 0;
		while (made < MOST && (groups[made] = mem_cgroup_create(top, "one more", 0)))
			made++;
		CHECK(made < MOST && errno == ENOMEM);
		errno = 0;
		struct mem_cgroup_shrinker *shrinker = mem_cgroup_add_shrinker(top, 0, shrink_nothing, NULL);
		CHECK(!shrinker == (errno == ENOMEM));
		mem_cgroup_remove_shrinker(shrinker);
		errno = 0;
		CHECK(mem_cgroup_eventfd(top, 1) == -1 && errno == ENOMEM);
		/* Existing groups work on. */
		CHECK(charge(top, 100000));
		CHECK_EQUAL(drained(top), 100000);
		mem_cgroup_uncharge(top, 100000);
		while (made)
			mem_cgroup_put(groups[--made]);
		CHECK_EQUAL(mem_cgroup_offline(top), 0);
		mem_cgroup_put(top);
		km_os_fault = NULL;
		top = group_below(NULL, "top");
	}
}

/* Without words on the CPUs each charge goes to the counters, exactly. */
static void no_words(void)
{
	struct mem_cgroup *with = group_below(NULL, "with");

	for (size_t bytes = 4096; bytes >= 8; bytes /= 2)
		INSIDE(while (km_percpu_alloc(bytes)) {});
	struct mem_cgroup *top = group_below(with, "without"), *group = group_below(top, "below");
	CHECK(charge(group, 5000) && charge(with, 77));
	CHECK_EQUAL(mem_cgroup_current(group), 5000);
	CHECK_EQUAL(mem_cgroup_current(top), 5000);
	CHECK_EQUAL(drained(with), 5077);
	mem_cgroup_uncharge(group, 4000);
	CHECK_EQUAL(mem_cgroup_current(group), 1000);
	CHECK_EQUAL(mem_cgroup_offline(group), 0);
	CHECK_EQUAL(mem_cgroup_current(top), 1000);
	mem_cgroup_uncharge(group, 1000);
	CHECK_EQUAL(mem_cgroup_current(top), 0);
	mem_cgroup_put(group);
	mem_cgroup_put(top);
	CHECK_EQUAL(drained(with), 77);
	mem_cgroup_uncharge(with, 77);
	mem_cgroup_put(with);
}

static bool refuse_fence(const char *call)
{
	return strcmp(call, "fence") == 0;
}

/* Changes this CPU's word as a late sequence does after the stock was closed. */
static void comes_late(const struct obj_cgroup *objcg, int64_t bytes)
{
	*(uint64_t *)(km_area(km_cpu()) + objcg->words) += (uint64_t)bytes;
}

/*
 * A group ends although other CPUs cannot be stopped, and later changes are seen, also if all of the group's bytes
 * seem uncharged.
 */
static void goes_unfenced(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	struct obj_cgroup *objcg = group->objcg;

	CHECK(charge(group, 5000));
	km_os_fault = refuse_fence;
	CHECK_EQUAL(mem_cgroup_offline(group), 0);
	CHECK(!mem_cgroup_online(group));
	CHECK_EQUAL(mem_cgroup_current(top), 5000);
	if (!strcmp(kmem_percpu_discipline(), "rseq")) {
		CHECK(objcg->words);
		comes_late(objcg, 40);
		CHECK_EQUAL(drained(top), 4960);
		comes_late(objcg, -140);
		mem_cgroup_uncharge(group, 60);
		CHECK_EQUAL(mem_cgroup_current(top), 5040);
		/* All counted bytes are uncharged, and late bytes become known: these remain then. */
		mem_cgroup_uncharge(group, 5040);
		mem_cgroup_put(group);
		CHECK(!objcg->memcg);
	} else {
		mem_cgroup_uncharge(group, 5000);
		mem_cgroup_put(group);
	}
	CHECK_EQUAL(mem_cgroup_current(top), 0);
	/* The group's word has no new owner. */
	struct mem_cgroup *next = group_below(top, "next");
	CHECK(next->objcg->stock != objcg->words || !objcg->words);
	km_os_fault = NULL;
	mem_cgroup_put(next);
	mem_cgroup_put(top);
}

/* All bytes seem uncharged; the bytes charged late are not. */
static void seems_over(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	struct obj_cgroup *objcg = group->objcg;

	if (strcmp(kmem_percpu_discipline(), "rseq"))
		return;
	CHECK(charge(group, 100));
	mem_cgroup_uncharge(group, 100);
	km_os_fault = refuse_fence;
	CHECK_EQUAL(mem_cgroup_offline(group), 0);
	CHECK_EQUAL(mem_cgroup_current(top), 0);
	comes_late(objcg, -70);
	mem_cgroup_put(group);
	CHECK(objcg->memcg);
	CHECK_EQUAL(mem_cgroup_current(top), 70);
	km_objcg_uncharge(objcg, 70);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(group_below(top, "another"));
	CHECK(!objcg->memcg);
	km_os_fault = NULL;
	mem_cgroup_put(top);
}

/* Other CPUs can't be stopped now: what lies there stays, and what lies here does not; later both goes. */
static void no_fence(void)
{
	struct mem_cgroup *top = group_below(NULL, "top"), *group = group_below(top, "group");
	bool rseq = strcmp(kmem_percpu_discipline(), "rseq") == 0;

	CHECK(go_to_cpu(cpu_at(0)));
	CHECK(charge(group, 5000));
	km_os_fault = refuse_fence;
	if (cpu_at(1) >= 0) {
		CHECK(go_to_cpu(cpu_at(1)));
		mem_cgroup_drain(top);
		CHECK_EQUAL(mem_cgroup_current(group), rseq ? 2 * KM_PAGE_SIZE : 5000);
		CHECK(go_to_cpu(cpu_at(0)));
	}
	mem_cgroup_drain(top);
	CHECK_EQUAL(mem_cgroup_current(group), 5000);
	CHECK(charge(group, 100));
	km_os_fault = NULL;
	CHECK_EQUAL(drained(top), 5100);
	mem_cgroup_uncharge(group, 5100);
	mem_cgroup_put(group);
	CHECK_EQUAL(drained(top), 0);
	mem_cgroup_put(top);
}

static void none_left_in_a_child(void) { CHECK(in_process(none_left) == 0); }
static void no_words_in_a_child(void) { CHECK(in_process(no_words) == 0); }

static const struct test_case cases[] = {
	{ "no memory for a group", none_left_in_a_child },
	{ "no words on the CPUs", no_words_in_a_child },
	{ "no fence", no_fence },
	{ "a group goes unfenced", goes_unfenced },
	{ "it only seems to be over", seems_over },
};

int main(void)
{
	return run_in_turn(cases, sizeof(cases) / sizeof(cases[0]), 1);
}
