/*
 * each_name: every service of the system can be refused, and is refused here. Each function of os/os_linux.c and
 * os/os_node.c has a name for km_os_fault, or is in a table here, with the reason. Each name is refused forever, by
 * itself, from the first instruction on, to a program that uses all system calls, under the relevant options: the
 * program goes on with its memory, and loses none. A name without any call is reported as well.
 */
#include "nomem.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <kmem/memcg.h>

#include "os/os.h"

#define NAMES 48

/* ------------------------------------------------------------------ functions without a name */

static const struct {
	const char *functions, *why;
} unnamed[] = {
	{ "page_bytes address_limit is_limited limits_data limits_changed limit memory is_shut rseq_features "
	  "rseq_bytes rseq_aborts secure getenv now_ms",
	  "says a number, that of a poorer machine where the system says none" },
	{ "getcpu pid thread program abort", "can't fail" },
	{ "address_room", "by \"reserve\"; plenty where the system says nothing" },
	{ "set_address_limit set_address_room set_data_limit shut locks_all", "asks the system nothing" },
	{ "unguard reserve may_map refuses", "by \"unprotect\"; by \"reserve\"; by \"map\"" },
	{ "commit commit_node", "\"commit\", \"commit on node N\": one function below says it" },
	{ "unmap name wake wait event_add close", "has no result: what fails is as if it had not been called" },
	{ "prctl mlockall munlockall prlimit", "the program's own call: its error is the program's" },
	{ "possible_cpus", "by \"read\"" },
	{ "has_memory_policy same_opening file opening", "no is an answer (unit/standard_error, unit/node_files)" },
	{ "write open_truncated", "the caller's error, or a line that is not said (unit/standard_error)" },
};

static bool is_unnamed(const char *function)
{
	char all[256], want[64];

	snprintf(want, sizeof(want), " %s ", function);
	for (size_t i = 0; i < sizeof(unnamed) / sizeof(unnamed[0]); i++) {
		snprintf(all, sizeof(all), " %s ", unnamed[i].functions);
		if (strstr(all, want))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------ the names, by the source */

static char names[NAMES][32];
static unsigned name_count;

static void end_function(char *function, bool named)
{
	if (!*function)
		return;
	CHECK(named != is_unnamed(function), "km_os_%s: %s", function,
	      named ? "has a name, and stands in the table" : "can't be refused, and the table has no reason");
	*function = '\0';
}

static void read_source(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[512], function[64] = "";
	bool named = false;

	NEED(file, "start this in the root of the repository");
	while (fgets(line, sizeof(line), file)) {
		char *at = strstr(line, "km_os_"), *fault = strstr(line, "fault(\"");

		if (at && line[0] != '\t' && line[0] != ' ' && line[0] != '/' && !strchr(line, ';') &&
		    strchr(at, '(')) {
			snprintf(function, sizeof(function), "%.*s", (int)strcspn(at + 6, "("), at + 6);
			named = false;
		}
		if (fault) {
			NEED(name_count < NAMES);
			sscanf(fault + 7, "%31[^\"]", names[name_count++]);
			named = true;
		}
		if (line[0] == '}')
			end_function(function, named);
	}
	fclose(file);
}

/* ------------------------------------------------------------------ one of them is refused */

static char refused_name[32];	/* "": none, and what is asked is counted */
static unsigned asked;

static bool refuse(const char *call)
{
	if (!*refused_name || strncmp(call, refused_name, strlen(refused_name)))
		return false;
	if (strcmp(refused_name, "commit") == 0 && strcmp(call, "commit"))
		return false;
	asked++;
	return true;
}

/* Before any constructor: the library starts in one. */
static void before_start(int argc, char **argv, char **environment)
{
	(void)argc, (void)argv;
	for (; *environment; environment++)
		if (strncmp(*environment, "NOMEM_NAME=", 11) == 0) {
			strncpy(refused_name, *environment + 11, sizeof(refused_name) - 1);
			km_os_fault = refuse;
		}
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_start;

static void use_nodump(void)
{
	struct kmem_cache *cache = kmem_cache_create("secret", 200, NULL, SLAB_NODUMP);
	void *p[50];

	/* After a refusal the objects are allocated without a reservation. */
	if (cache)
		(void)kmem_reserve(cache, 100);
	for (int i = 0; cache && i < 50; i++)
		p[i] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_NOWARN);
	for (int i = 0; cache && i < 50; i++)
		if (p[i])
			kmem_cache_free(cache, p[i]);
	kmem_cache_destroy(cache);
}

/* The user protected the block, and freed it without a reset. */
static void use_protected(void)
{
	char *p = kvmalloc((size_t)9 << 20, GFP_KERNEL | __GFP_NOWARN);

	if (!p)
		return;
	madvise((void *)(((uintptr_t)p + 4095) & -4096ul), 1 << 20, MADV_DONTDUMP);
	mprotect((void *)(((uintptr_t)p + 4095) & -4096ul), 4096, PROT_READ);
	kvfree(p);
	kvfree(kvmalloc((size_t)9 << 20, GFP_KERNEL | __GFP_NOWARN));
}

static void use_groups(void)
{
	struct mem_cgroup *group = mem_cgroup_create(NULL, "refused", 0);

	if (!group)
		return;
	int fd = mem_cgroup_eventfd(group, 1u << MEMCG_MAX);
	if (fd >= 0)
		close(fd);
	for (int i = 0; i < 100; i++)
		kfree(kmalloc_in(group, 300, GFP_KERNEL | __GFP_NOWARN));
	mem_cgroup_put(group);
}

/* In a process of its own. Returns: 0 if the name was called, 9 if not. */
static int go_without(void)
{
	alarm(580);
	for (int i = 0; i < 2; i++) {
		script();
		use_nodump();
		use_protected();
		use_groups();
	}
	bool met = asked != 0;
	km_os_fault = NULL;
	kmem_shrink_all();
	NEED(kmem_check_all() == 0);
	return met ? 0 : 9;
}

/* ------------------------------------------------------------------ all of them */

/*
 * Names not called by a program like this one, or with no effect on its results, and the tests that refuse
 * them.
 */
static const struct {
	const char *name, *by;
} elsewhere[] = {
	{ "unprotect", "tests/unit/cached_huge_blocks.c" }, { "protect", "tests/unit/guard_reports.c" },
	{ "renew", "tests/unit/huge_block_advice.c" }, { "lock", "tests/unit/locked_regions.c" },
	{ "dump", "tests/promise/nodump.c" }, { "fence", "tests/nomem/memcg.c" },
	{ "allowed nodes", "tests/unit/node_files.c" }, { "bind", "tests/unit/node_files.c" },
	{ "rseq unregister", "tests/unit/child_of_vfork.c" },
};

static bool is_in_file(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[512], quoted[48];
	bool found = false;

	snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, quoted) != NULL;
	if (file)
		fclose(file);
	return found;
}

static int run_without(const char *name, const char *options)
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		setenv("NOMEM_NAME", name, 1);
		setenv("KMEM_OPTIONS", options, 1);
		/* A report at the end keeps a duplicate of standard error. */
		setenv("KMEM_STATS", "-", 1);
		setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
		if (strstr(options, "rseq"))
			unsetenv("KMEM_PERCPU");
		execl("/proc/self/exe", "each_name", "--without", NULL);
		_exit(4);
	}
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void refuse_name(const char *name)
{
	static const char *const options[] = { "percpu:rseq", "nodes:2,hardened:1,decay:0", "guard:1,decay:0" };
	bool met = false;

	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
		if (!strcmp(elsewhere[i].name, name)) {
			CHECK(is_in_file(elsewhere[i].by, name), "%s does not refuse \"%s\"", elsewhere[i].by, name);
			return;
		}
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		int status = run_without(name, options[i]);

		CHECK(status == 0 || status == 9, "without \"%s\", %s: %d", name, options[i], status);
		met |= status == 0;
	}
	CHECK(met, "no call asked for \"%s\"", name);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--without") == 0)
		return go_without();
	read_source("src/os/os_linux.c");
	read_source("src/os/os_node.c");
	strcpy(names[name_count++], "commit");
	strcpy(names[name_count++], "commit on node");
	for (unsigned i = 0; i < name_count; i++)
		refuse_name(names[i]);
	printf("%u names\n", name_count);
	return failures != 0;
}
