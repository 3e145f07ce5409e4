/*
 * metrics: the output of kmem_metrics: counters never fall when caches are destroyed, private groups' caches too. The
 * number of series is at most the documented one, for those with the most memory. Caches of one name and groups of
 * one path are one series. Signal handlers may call the function where documented, and get -EBUSY elsewhere. A full
 * pipe or a pipe without a reader is an error, and no signal. Without memory the result is -ENOMEM.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <kmem/kmem.h>
#include <kmem/memcg.h>
#include <kmem/stats.h>

#include "kit/printed.h"
#include "os/os.h"
#include "inspect/openmetrics.h"

#define TEXT_BYTES ((size_t)8 << 20)
static char *text;

static void take(void)
{
	int fd = open_file();

	NEED(kmem_metrics(fd) == 0);
	read_back(fd, text, TEXT_BYTES);
	NEED(!strcmp(text + strlen(text) - 6, "# EOF\n"));
}

/* Returns: the value of a series; -1: no such series. */
static long value_of(const char *series)
{
	char line[512];

	snprintf(line, sizeof(line), "\n%s ", series);
	const char *at = strstr(text, line);
	NEED(!at || !strstr(at + 1, line), "%s is there twice", series);
	return at ? atol(at + strlen(line)) : -1;
}

static unsigned count(const char *words)
{
	unsigned times = 0;

	for (const char *at = text; (at = strstr(at, words)); at++)
		times++;
	return times;
}

/* ------------------------------------------------------------------ counters */

static void use(struct kmem_cache *cache, struct mem_cgroup *group)
{
	void *objects[200];

	for (size_t i = 0; i < 200; i++) {
		objects[i] = group ? kmem_cache_alloc_in(cache, group, GFP_KERNEL) :
				     kmem_cache_alloc(cache, GFP_KERNEL);
		NEED(objects[i]);
	}
	for (size_t i = 0; i < 200; i++)
		kmem_cache_free(cache, objects[i]);
}

static struct kmem_cache *make(void)
{
	struct kmem_cache *cache = kmem_cache_create("counted", 1000, 0, SLAB_NO_MERGE, NULL);

	NEED(cache);
	return cache;
}

static void counters(void)
{
	static const char taken[] = "kmem_cache_slabs_taken_total{cache=\"counted\"}", all[] = "kmem_slabs_taken_total";
	struct kmem_cache *first = make(), *second = make();
	struct mem_cgroup *group = mem_cgroup_create(NULL, "private", MEM_CGROUP_PRIVATE);

	NEED(group);
	use(first, NULL);
	use(second, NULL);
	use(first, group);
	take();
	long of_name = value_of(taken), of_all = value_of(all);
	NEED(of_name >= 3 && of_all >= of_name);
	/* A private group's cache goes, then one of two of a name; the other one counts on. */
	mem_cgroup_put(group);
	kmem_shrink_all();
	take();
	CHECK(value_of(taken) >= of_name && value_of(all) >= of_all, "%ld", value_of(taken));
	kmem_cache_destroy(first);
	take();
	CHECK(value_of(taken) >= of_name && value_of(all) >= of_all, "%ld", value_of(taken));
	CHECK(value_of("kmem_cache_slabs_given_back_total{cache=\"counted\"}") > 0);
	/* The last cache of the name: its series ends, and the process's series does not fall. */
	kmem_cache_destroy(second);
	take();
	CHECK(value_of(taken) == -1 && value_of(all) >= of_all);
	of_all = value_of(all);
	kmem_cache_destroy(make());
	take();
	CHECK(value_of(all) >= of_all);
}

/* ------------------------------------------------------------------ bounds, and what is one */

#define MANY 1500

static struct km_metrics made;

static void write_made(bool classic)
{
	struct km_writer writer = { .fd = open_file() };

	made.classic = classic;
	km_metrics_print(&writer, &made);
	NEED(km_print_end(&writer) == 0);
	read_back(writer.fd, text, TEXT_BYTES);
}

static void make_rows(void)
{
	made.caches = calloc(MANY, sizeof(*made.caches));
	made.groups = calloc(MANY, sizeof(*made.groups));
	made.order = calloc(MANY, sizeof(*made.order));
	NEED(made.caches && made.groups && made.order);
	made.process.version = made.process.discipline = made.process.reason = made.process.hardened = "";
	made.most_caches = made.most_groups = KM_METRICS_MOST;
}

static void add_cache(const char *name, unsigned long objects)
{
	struct kmem_cache_stats stats = { .engine = "sheaf", .size = 10, .active_objects = objects, .total_slabs = 1,
					  .pages_per_slab = 1, .alloc_slab = 7 };

	snprintf(stats.name, sizeof(stats.name), "%s", name);
	km_metrics_cache(&made.caches[made.cache_count++], &stats, NULL);
}

static void add_group(const char *name, unsigned depth, uint64_t current)
{
	struct km_metrics_group *group = &made.groups[made.group_count++];

	*group = (struct km_metrics_group){ .stats = { .depth = depth, .current = current, .max = MEMCG_NO_LIMIT,
						       .high = MEMCG_NO_LIMIT, .failcnt = 1 } };
	snprintf(group->stats.name, sizeof(group->stats.name), "%s", name);
}

static void bounds(void)
{
	char name[32];

	make_rows();
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		add_cache(name, 1000 + i);
		add_group(name, 1, i);
	}
	write_made(false);
	CHECK(count("\nkmem_cache_live_bytes{") == KM_METRICS_MOST);
	CHECK(count("\nkmem_group_current_bytes{") == KM_METRICS_MOST);
	CHECK(value_of("kmem_caches_omitted") == MANY - KM_METRICS_MOST);
	CHECK(value_of("kmem_groups_omitted") == MANY - KM_METRICS_MOST && value_of("kmem_groups") == MANY);
	CHECK(value_of("kmem_cache_live_bytes{cache=\"n1499\"}") == 24990);
	CHECK(value_of("kmem_cache_live_bytes{cache=\"n499\"}") == -1);
	CHECK(value_of("kmem_group_current_bytes{group=\"n500\"}") == 500);
	CHECK(value_of("kmem_group_current_bytes{group=\"n499\"}") == -1);
	CHECK(value_of("kmem_slabs_taken_total") == 7l * MANY);
}

static void alike(void)
{
	made.cache_count = made.group_count = 0;
	add_cache("a", 1);
	add_cache("bad\xff", 2);
	add_cache("a", 3);
	add_cache("bad\xed\xa0\x80", 4);
	add_cache("bad?", 5);
	add_cache("\"\\", 6);
	add_cache("x\xc3\xa4\xf0\x9f\x90\x98", 7);
	add_group("a", 1, 10);
	add_group("b", 2, 5);
	add_group("c\n", 3, 1);
	add_group("a", 1, 20);
	add_group("b", 2, 6);
	add_group("a/b", 1, 7);
	/* Two names of one FNV-1a hash: an attacker who chooses names can find such a pair. */
	add_group("8yn0iYCKYHlIj4-BwPqk", 1, 100);
	add_group("GReLUrM4wMqfg9yzV3KQ", 1, 200);
	add_group("8yn0iYCKYHlIj4-BwPqk", 1, 300);
	write_made(false);
	CHECK(value_of("kmem_group_current_bytes{group=\"8yn0iYCKYHlIj4-BwPqk\"}") == 400);
	CHECK(value_of("kmem_group_current_bytes{group=\"GReLUrM4wMqfg9yzV3KQ\"}") == 200);
	CHECK(value_of("kmem_cache_live_objects{cache=\"a\"}") == 4);
	CHECK(value_of("kmem_cache_slabs_taken_total{cache=\"a\"}") == 14);
	CHECK(value_of("kmem_cache_live_objects{cache=\"bad?\"}") == 7);
	CHECK(value_of("kmem_cache_live_objects{cache=\"bad" "???\"}") == 4);
	CHECK(value_of("kmem_cache_live_objects{cache=\"\\\"\\\\\"}") == 6);
	CHECK(value_of("kmem_cache_live_objects{cache=\"x\xc3\xa4\xf0\x9f\x90\x98\"}") == 7);
	CHECK(value_of("kmem_group_current_bytes{group=\"a\"}") == 30);
	CHECK(value_of("kmem_group_current_bytes{group=\"a/b\"}") == 18);
	CHECK(value_of("kmem_group_current_bytes{group=\"a/b/c?\"}") == 1);
	CHECK(value_of("kmem_group_failures_total{group=\"a/b\"}") == 3);
	CHECK(value_of("kmem_slabs_taken_total") == 49 && value_of("kmem_groups_omitted") == 0);
	/* No limit is none, and neither is a protection of nothing. */
	CHECK(!strstr(text, "\nkmem_group_max_bytes{") && !strstr(text, "\nkmem_group_min_bytes{"));
	CHECK(strstr(text, "# TYPE kmem_group_failures counter\n") && strstr(text, "# TYPE kmem_cache info\n"));
	CHECK(strstr(text, "# UNIT kmem_purged_bytes bytes\n"));
	write_made(true);
	CHECK(strstr(text, "# TYPE kmem_group_failures_total counter\n"));
	CHECK(strstr(text, "# TYPE kmem_cache_info gauge\n"));
	CHECK(!strstr(text, "# UNIT") && !strstr(text, "# EOF"));
}

/* The deepest group: the path is whole, and no deeper group is possible. */
static void deep(void)
{
	char name[MEMCG_NAME_MAX];

	made.cache_count = made.group_count = 0;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (unsigned i = 1; i <= MEMCG_DEPTH_MAX; i++)
		add_group(name, i, 1);
	write_made(false);
	const char *at = strstr(text, "# TYPE kmem_group_peak_bytes");
	NEED(at);
	while (at > text && strncmp(at, "\"}", 2))
		at--;
	CHECK(!strncmp(at - 64, "/xxx", 4));
	CHECK(value_of("kmem_groups_omitted") == 0 && count("\nkmem_group_current_bytes{") == MEMCG_DEPTH_MAX);
}

static void labels(void)
{
	static const struct km_metrics_label two[] = { { "program", "a\"b" }, { "n", "1" } };

	made.labels = two;
	made.label_count = 2;
	write_made(false);
	CHECK(value_of("kmem_caches{program=\"a\\\"b\",n=\"1\"}") == 0);
	CHECK(km_metrics_is_label("program") && km_metrics_is_label("_a1") && !km_metrics_is_label("") &&
	      !km_metrics_is_label("1a") && !km_metrics_is_label("__a") && !km_metrics_is_label("a-b") &&
	      !km_metrics_is_label("cache"));
}

/* ------------------------------------------------------------------ contexts and descriptors of the call */

static int handler_fd, handler_result;

static void in_handler(int number)
{
	(void)number;
	handler_result = kmem_metrics(handler_fd);
}

static int ask_inside(struct kmem_cache *cache, void *arg)
{
	(void)cache;
	(void)arg;
	raise(SIGUSR1);
	return 1;
}

static void handlers(void)
{
	signal(SIGUSR1, in_handler);
	handler_fd = open_file();
	NEED(raise(SIGUSR1) == 0);
	CHECK_EQUAL(handler_result, 0);
	read_back(handler_fd, text, TEXT_BYTES);
	CHECK(strstr(text, "\n# EOF\n"));
	/* The registry is this thread's. */
	handler_fd = open_file();
	NEED(kmem_for_each_cache(ask_inside, NULL) == 1);
	CHECK_EQUAL(handler_result, -EBUSY);
	CHECK_EQUAL((long)lseek(handler_fd, 0, SEEK_END), 0);
	close(handler_fd);
}

static volatile sig_atomic_t pipes;

static void on_pipe(int number)
{
	(void)number;
	pipes++;
}

static void descriptors(void)
{
	sigset_t pipe_set, pending;
	int ends[2];

	CHECK_EQUAL(kmem_metrics(-1), -EBADF);
	signal(SIGPIPE, on_pipe);
	NEED(pipe(ends) == 0 && close(ends[0]) == 0);
	CHECK_EQUAL(kmem_metrics(ends[1]), -EPIPE);
	CHECK_EQUAL(kmem_print_json(ends[1]), -EPIPE);
	CHECK_EQUAL(kmem_print_slabinfo(ends[1]), -EPIPE);
	CHECK_EQUAL((int)pipes, 0);
	/* One of the program's own stays. */
	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	NEED(sigprocmask(SIG_BLOCK, &pipe_set, NULL) == 0 && raise(SIGPIPE) == 0);
	CHECK_EQUAL(kmem_metrics(ends[1]), -EPIPE);
	NEED(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1);
	NEED(sigprocmask(SIG_UNBLOCK, &pipe_set, NULL) == 0);
	CHECK_EQUAL((int)pipes, 1);
	close(ends[1]);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && close(ends[0]) == 0);
	CHECK_EQUAL(kmem_metrics(ends[1]), -EPIPE);
	CHECK_EQUAL((int)pipes, 1);
	close(ends[1]);
	NEED(pipe2(ends, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
	CHECK_EQUAL(kmem_metrics(ends[1]), -EAGAIN);
	close(ends[0]);
	close(ends[1]);
}

/* A file at its size limit: an error, no signal, and the program's own pending signal stays. */
static void limited_files(void)
{
	static const rlim_t limits[] = { 0, 4096 };
	sigset_t limit_set, pending;
	struct rlimit before;

	signal(SIGXFSZ, on_pipe);
	pipes = 0;
	sigemptyset(&limit_set);
	sigaddset(&limit_set, SIGXFSZ);
	NEED(getrlimit(RLIMIT_FSIZE, &before) == 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct rlimit limit = { limits[i], before.rlim_max };
		int fd = km_os_memory_file("limited");

		NEED(fd >= 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
		for (unsigned row = 0; row < 4096 / 16; row++)
			km_os_write_no_signal(fd, "sixteen letters.", 16);
		CHECK_EQUAL(kmem_metrics(fd), -EFBIG);
		CHECK_EQUAL(kmem_print_json(fd), -EFBIG);
		CHECK_EQUAL((int)pipes, 0);
		NEED(sigprocmask(SIG_BLOCK, &limit_set, NULL) == 0 && raise(SIGXFSZ) == 0);
		CHECK_EQUAL(kmem_metrics(fd), -EFBIG);
		NEED(sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1);
		NEED(sigprocmask(SIG_UNBLOCK, &limit_set, NULL) == 0);
		CHECK_EQUAL((int)pipes, 1);
		pipes = 0;
		NEED(setrlimit(RLIMIT_FSIZE, &before) == 0 && close(fd) == 0);
	}
}

/* A reader of a few bytes at a time, and signals that interrupt the writer. */
static void *nibble(void *arg)
{
	const int *ends = arg;
	size_t bytes = 0;
	ssize_t got;

	while ((got = read(ends[0], text + bytes, 700)) > 0) {
		bytes += (size_t)got;
		pthread_kill(*(pthread_t *)&ends[2], SIGUSR2);
	}
	text[bytes] = '\0';
	return NULL;
}

static void nothing(int number)
{
	(void)number;
}

static void interrupted(void)
{
	struct sigaction action = { .sa_handler = nothing };	/* no SA_RESTART */
	struct {
		int ends[2];
		pthread_t writer;
	} given = { .writer = pthread_self() };
	pthread_t reader;

	NEED(sigaction(SIGUSR2, &action, NULL) == 0);
	NEED(pipe(given.ends) == 0 && fcntl(given.ends[1], F_SETPIPE_SZ, 4096) > 0);
	NEED(pthread_create(&reader, NULL, nibble, &given) == 0);
	CHECK_EQUAL(kmem_metrics(given.ends[1]), 0);
	close(given.ends[1]);
	NEED(pthread_join(reader, NULL) == 0);
	CHECK(count("# EOF\n") == 1 && !strcmp(text + strlen(text) - 6, "# EOF\n"));
	close(given.ends[0]);
}

static bool no_mapping(const char *call)
{
	return !strcmp(call, "map");
}

static void refused(void)
{
	int fd = open_file();

	km_os_fault = no_mapping;
	CHECK_EQUAL(kmem_metrics(fd), -ENOMEM);
	km_os_fault = NULL;
	CHECK_EQUAL((long)lseek(fd, 0, SEEK_END), 0);
	close(fd);
}

int main(void)
{
	text = malloc(TEXT_BYTES);
	NEED(text);
	counters();
	bounds();
	alike();
	deep();
	labels();
	handlers();
	descriptors();
	limited_files();
	interrupted();
	refused();
	return failures != 0;
}
