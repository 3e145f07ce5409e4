/*
 * tenants.h: common parts of the examples: TENANTS groups below one parent, four threads for the tenants,
 * and a printed tree of groups. An example must first define TENANTS, EACH (limit of one tenant, in
 * bytes) and ALL (limit of the parent, in bytes).
 */
#include <kmem/memcg.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4

static struct mem_cgroup *everyone, *group[TENANTS];

static void must(bool done, const char *what)
{
	if (done)
		return;
	perror(what);
	exit(1);
}

static inline void open_groups(const char *name)
{
	must((everyone = mem_cgroup_create(NULL, name, 0)), "a group");
	must(mem_cgroup_set_max(everyone, ALL) == 0, "a limit");
	for (int i = 0; i < TENANTS; i++) {
		char tenant_name[MEMCG_NAME_MAX];

		snprintf(tenant_name, sizeof(tenant_name), "tenant %d", i);
		must((group[i] = mem_cgroup_create(everyone, tenant_name, 0)), "a group");
		must(mem_cgroup_set_max(group[i], EACH) == 0, "a limit");
	}
}

/* Requires: all charged memory is freed. The parent's charge is then 0. */
static inline void close_groups(void)
{
	for (int i = 0; i < TENANTS; i++)
		mem_cgroup_put(group[i]);
	mem_cgroup_drain(everyone);
	printf("all closed: %lu bytes\n", (unsigned long)mem_cgroup_current(everyone));
	mem_cgroup_put(everyone);
}

/* ------------------------------------------------------------------ thread i serves tenants i, i + THREADS, ... */

static void (*serve_one)(int tenant);

static void *serve_some(void *first)
{
	for (int i = (int)(intptr_t)first; i < TENANTS; i += THREADS)
		serve_one(i);
	return NULL;
}

static inline void serve_all(void (*serve)(int tenant))
{
	pthread_t thread[THREADS];

	serve_one = serve;
	for (intptr_t i = 0; i < THREADS; i++)
		must(pthread_create(&thread[i], NULL, serve_some, (void *)i) == 0, "a thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

/* ------------------------------------------------------------------ the tree */

struct row {
	uint64_t bytes, peak, refused;
	const char *name;
};

static int larger(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static struct row row_of(struct mem_cgroup *at)
{
	return (struct row){
		.bytes = mem_cgroup_current(at),
		.peak = mem_cgroup_peak(at),
		.refused = mem_cgroup_events(at, MEMCG_OOM),
		.name = mem_cgroup_name(at),
	};
}

static void print_row(const struct row *row)
{
	printf("%12lu %12lu %8lu  %s\n", (unsigned long)row->bytes, (unsigned long)row->peak,
	       (unsigned long)row->refused, row->name);
}

static int collect(struct mem_cgroup *at, unsigned int depth, void *rows)
{
	struct row **next = rows;

	if (depth)
		*(*next)++ = row_of(at);
	return 0;
}

/* Prints the `most` largest tenants, the sum of the other tenants, and the parent. Drains the stocks first,
 * because stocks count as charged. */
static inline void print_tree(int most)
{
	static struct row rows[TENANTS];
	struct row *end = rows, others = { .name = "all others" }, all;

	mem_cgroup_drain(everyone);
	mem_cgroup_walk(everyone, collect, &end);
	qsort(rows, (size_t)(end - rows), sizeof(rows[0]), larger);
	printf("\n%12s %12s %8s  %s\n", "bytes", "peak", "refused", "group");
	for (struct row *row = rows; row < end; row++) {
		if (row - rows < most) {
			print_row(row);
			continue;
		}
		others.bytes += row->bytes;
		others.peak = row->peak > others.peak ? row->peak : others.peak;
		others.refused += row->refused;
	}
	print_row(&others);
	all = row_of(everyone);
	print_row(&all);
	printf("\n");
}
