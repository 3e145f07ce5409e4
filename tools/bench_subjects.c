/*
 * Who is measured: our engines through each interface and linkage, the peers that lie in
 * build/peers/, and the empty functions. What is missing is asked of scripts/peers and make
 * once; what still is missing then is named as such, and the run goes on without it.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "cache/cache.h"

static const char *const engines[] = { "sheaf", "slub", "slab", "slob" };
static const char *const peers[] = {
	"glibc",    "jemalloc",	 "mimalloc2", "mimalloc3",	 "gperftools",
	"snmalloc", "tcmalloc",	 "rpmalloc",  "tbbmalloc",	 "scudo",
	"hardened_malloc", "hardened_malloc_light", "dpdk",
};
#define ENGINES (sizeof(engines) / sizeof(*engines))
#define PEERS (sizeof(peers) / sizeof(*peers))

static size_t variant_room;

static bool wanted_linkage(const char *linkage)
{
	return !bench.options.linkages.count || bench_has(&bench.options.linkages, linkage);
}

/* Named by --subjects, or there is no such option. */
static bool wanted_subject(const char *subject)
{
	return !bench.options.subjects.count || bench_has(&bench.options.subjects, subject);
}

static bool wanted_engine(const char *engine)
{
	return wanted_subject(engine) &&
	       (!bench.options.engines.count || bench_has(&bench.options.engines, engine));
}

static bool exists(const char *under_root)
{
	char *path = bench_path(under_root);
	bool found = !access(path, R_OK);

	free(path);
	return found;
}

/* A worker kind and linkage of a subject; NULL where the linkage is not wanted. */
static struct variant *add(enum subject_kind kind, const char *subject, const char *api,
			   const char *linkage, const char *worker, const char *preload)
{
	struct variant *variant;

	if (!wanted_linkage(linkage))
		return NULL;
	bench.variants = kmem_grow(bench.variants, bench.variant_count, &variant_room,
				   sizeof(*bench.variants));
	variant = &bench.variants[bench.variant_count++];
	memset(variant, 0, sizeof(*variant));
	variant->kind = kind;
	variant->subject = subject;
	variant->api = api;
	variant->linkage = linkage;
	variant->worker = worker;
	variant->preload = preload;
	variant->discipline = "none";
	if (!strcmp(api, "malloc") && (preload || strcmp(linkage, "shared")))
		variant->owner = preload ? preload : worker;
	return variant;
}

static void add_interfaces(const char *engine)
{
	add(SUBJECT_OURS, engine, "kmem_cache", "shared", "build/bench/cache-shared", NULL);
	add(SUBJECT_OURS, engine, "kmem_cache", "static", "build/bench/cache-static", NULL);
	add(SUBJECT_OURS, engine, "kmem_cache", "inline", "build/bench/cache-inline", NULL);
	add(SUBJECT_OURS, engine, "kmalloc", "shared", "build/bench/kmalloc-shared", NULL);
	add(SUBJECT_OURS, engine, "kmalloc", "static", "build/bench/kmalloc-static", NULL);
	add(SUBJECT_OURS, engine, "malloc", "shared", "build/bench/malloc-shared",
	    "build/libkmem-malloc.so");
	add(SUBJECT_OURS, engine, "malloc", "static", "build/bench/malloc-kmem-static", NULL);
}

/* Through each interface and linkage, under each discipline asked for. Slob has none. */
static void add_engine(const char *engine)
{
	const struct names *disciplines = &bench.options.disciplines;
	size_t count = disciplines->count && strcmp(engine, "slob") ? disciplines->count : 1;

	for (size_t d = 0; d < count; d++) {
		size_t first = bench.variant_count;

		add_interfaces(engine);
		for (size_t i = first; i < bench.variant_count; i++)
			bench.variants[i].percpu = strcmp(engine, "slob") && disciplines->count ?
						   disciplines->name[d] : NULL;
	}
}

/* A kmem_cache under a discipline for one bench only. */
static void add_discipline(const char *only, const char *engine, const char *percpu)
{
	static const char *const linkages[] = { "static", "shared" };
	const struct names *disciplines = &bench.options.disciplines;

	if (disciplines->count && percpu && !bench_has(disciplines, percpu))
		return;
	for (size_t i = 0; i < 2; i++) {
		struct variant *variant =
			add(SUBJECT_OURS, engine, "kmem_cache", linkages[i],
			    bench_format("build/bench/cache-%s", linkages[i]), NULL);

		if (variant) {
			variant->only = only;
			variant->percpu = percpu;
		}
	}
}

/*
 * What the published tables were measured on is the transaction id and the compare-and-swap: the two
 * engines that had it run under it as well, beside the discipline of this machine.
 */
static void add_published_discipline(const char *engine)
{
	static const char *const only[] = { "bulk", "bulk-latency" };

	if (bench.options.disciplines.count || getenv("KMEM_PERCPU") ||
	    (strcmp(engine, "slub") && strcmp(engine, "slab")))
		return;
	for (size_t i = 0; i < 2; i++)
		if (bench_has(&bench.options.benches, only[i]))
			add_discipline(only[i], engine, "cmpxchg");
}

/* Disciplines are the subject of this table: KMEM_PERCPU does not choose here. */
static void add_slab_fastpath(const char *engine)
{
	if (!bench_has(&bench.options.benches, "slab-fastpath"))
		return;
	if (!strcmp(engine, "slab"))
		add_discipline("slab-fastpath", engine, "lock");
	if (!strcmp(engine, "slab") || !strcmp(engine, "slub")) {
		add_discipline("slab-fastpath", engine, "cmpxchg");
		add_discipline("slab-fastpath", engine, "rseq");
	}
	if (!strcmp(engine, "sheaf"))
		add_discipline("slab-fastpath", engine, NULL);
}

static void add_rule(const char *engine, const char *rule, bool fio)
{
	struct variant *variant;

	variant = add(SUBJECT_OURS, engine, "kmem_cache", "static", "build/bench/netio-static",
		      NULL);
	if (variant) {
		variant->only = "netio";
		variant->min_partial = rule;
	}
	variant = fio ? add(SUBJECT_OURS, engine, "malloc", "shared", "build/bench/fio-shared",
			    "build/libkmem-malloc.so") : NULL;
	if (variant) {
		variant->only = "netio";
		variant->min_partial = rule;
	}
}

/* SLAB, SLUB with each rule for its partial slabs, and sheaf, as fio's malloc and as caches. */
static void add_netio(const char *engine)
{
	bool fio = !access("/usr/bin/fio", X_OK) && !access(BENCH_FIO_EXAMPLE, R_OK);

	if (!bench_has(&bench.options.benches, "netio") || !strcmp(engine, "slob"))
		return;
	if (!fio)
		bench_without("fio", "not here; 'scripts/need fio fio-examples' installs it");
	if (strcmp(engine, "slub")) {
		add_rule(engine, NULL, fio);
		return;
	}
	add_rule(engine, "static", fio);
	add_rule(engine, "size", fio);
	add_rule(engine, "half", fio);
}

/* How charges are kept: one variant each, so that they run in turn. The order is that of the rows. */
static const char *const accountings[] = { "off", "v1-drain", "v1-keep", "v2-drain", "v2-keep", "shelf" };
#define ACCOUNTINGS (sizeof(accountings) / sizeof(*accountings))

static void add_accounting(const char *engine, const char *linkage, const char *percpu)
{
	static const char *const apis[] = { "kmem_cache", "kmalloc" };

	for (size_t i = 0; i < 2 * ACCOUNTINGS; i++) {
		const char *api = apis[i / ACCOUNTINGS];
		struct variant *variant =
			add(SUBJECT_OURS, engine, api, linkage,
			    bench_format("build/bench/account-%s-%s", i / ACCOUNTINGS ? api : "cache",
					 linkage), NULL);

		if (!variant)
			continue;
		variant->only = "memcg";
		variant->accounting = accountings[i % ACCOUNTINGS];
		variant->percpu = percpu;
	}
}

static void add_memcg(const char *engine)
{
	static const char *const linkages[] = { "static", "shared" };
	const struct names *disciplines = &bench.options.disciplines;

	if (!bench_has(&bench.options.benches, "memcg"))
		return;
	if (!strcmp(engine, "slob")) {
		bench_without(engine, "its objects are never charged");
		return;
	}
	for (size_t l = 0; l < 2; l++)
		for (size_t d = 0; d < (disciplines->count ? disciplines->count : 1); d++)
			add_accounting(engine, linkages[l],
				       disciplines->count ? disciplines->name[d] : NULL);
}

/* The charging code on CPUs that are not there. One of its two functions is asked under cmpxchg only. */
static void add_model(void)
{
	if (!bench_has(&bench.options.benches, "memcg") || !wanted_subject("model"))
		return;
	for (size_t i = 1; i + 1 < ACCOUNTINGS; i++) {
		struct variant *variant = add(SUBJECT_MODEL, "model", "kmalloc", "static",
					      "build/bench/account-model-static", NULL);

		if (!variant)
			continue;
		variant->only = "memcg";
		variant->accounting = accountings[i];
		variant->percpu = "cmpxchg";
	}
}

/* No allocator: the machine itself. */
static void add_processor(void)
{
	struct variant *variant;

	if (!bench_has(&bench.options.benches, "forwarding") || !wanted_subject("processor"))
		return;
	variant = add(SUBJECT_PROCESSOR, "processor", "none", "static", "build/bench/forwarding-static", NULL);
	if (variant)
		variant->only = "forwarding";
}

static void find_engines(void)
{
	for (size_t i = 0; i < ENGINES; i++) {
		if (!wanted_engine(engines[i]))
			continue;
		if (!km_engine_find(engines[i])) {
			bench_without(engines[i], "this library has no such engine");
			continue;
		}
		add_engine(engines[i]);
		add_published_discipline(engines[i]);
		add_slab_fastpath(engines[i]);
		add_netio(engines[i]);
		add_memcg(engines[i]);
	}
}

static const char *peer_version(const char *peer)
{
	char *path = bench_format("%s/build/peers/%s/version", bench.root, peer);
	FILE *in = fopen(path, "r");
	char line[160];

	free(path);
	if (!in)
		return NULL;
	if (!fgets(line, sizeof(line), in))
		line[0] = '\0';
	fclose(in);
	line[strcspn(line, "\n")] = '\0';
	return bench_format("%s", line);
}

static void add_peer(const char *peer)
{
	const char *shared = bench_format("build/peers/%s/lib.so", peer);
	const char *archive = bench_format("build/peers/%s/lib.a", peer);
	const char *worker = bench_format("build/bench/malloc-%s-static", peer);
	size_t first = bench.variant_count;

	if (!strcmp(peer, "glibc")) {
		add(SUBJECT_PEER, peer, "malloc", "shared", "build/bench/malloc-shared", NULL);
		add(SUBJECT_PEER, peer, "malloc", "static", worker, NULL);
	} else if (!strcmp(peer, "dpdk")) {
		add(SUBJECT_PEER, peer, "bulk", "static", "build/bench/dpdk-static", NULL);
		add(SUBJECT_PEER, peer, "bulk", "inline", "build/bench/dpdk-inline", NULL);
	} else {
		if (exists(shared))
			add(SUBJECT_PEER, peer, "malloc", "shared", "build/bench/malloc-shared",
			    shared);
		if (exists(archive))
			add(SUBJECT_PEER, peer, "malloc", "static", worker, NULL);
		else
			bench_without(peer, "not as an archive: no static rows");
	}
	if (!strcmp(peer, "jemalloc") && exists(shared))
		add(SUBJECT_PEER, peer, "bulk", "shared", "build/bench/jemalloc-shared", shared);
	if (!strcmp(peer, "jemalloc") && exists(archive))
		add(SUBJECT_PEER, peer, "bulk", "static", "build/bench/jemalloc-static", NULL);
	for (size_t i = first; i < bench.variant_count; i++)
		bench.variants[i].version = peer_version(peer);
}

/* Run a command in the root, its output on our stderr; its exit status. */
static int run_in_root(char *const *arguments)
{
	int status;
	pid_t child = bench_fork();

	if (child < 0)
		bench_fatal("cannot start %s", arguments[0]);
	if (!child) {
		unsetenv("MAKEFLAGS");
		unsetenv("MAKELEVEL");
		unsetenv("MFLAGS");
		if (chdir(bench.root) || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
			_exit(127);
		execvp(arguments[0], arguments);
		_exit(127);
	}
	status = bench_wait(child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* A peer with a log but no version file could not be had. */
static bool was_tried(const char *peer)
{
	return exists(bench_format("build/peers/%s.log", peer));
}

/*
 * A peer without a version file was never brought. Bringing one installs packages and compiles for minutes: only who
 * asks for that gets it (--fetch). The system's own malloc is there anyway, and takes neither.
 */
static void bring_peers(void)
{
	char *arguments[PEERS + 2] = { "scripts/peers" };
	size_t count = 1;

	for (size_t i = 0; i < PEERS; i++) {
		if (!wanted_subject(peers[i]) || peer_version(peers[i]) || was_tried(peers[i]))
			continue;
		if (bench.options.fetch || !strcmp(peers[i], "glibc"))
			arguments[count++] = (char *)peers[i];
	}
	if (count == 1 || !exists("scripts/peers"))
		return;
	if (bench.options.fetch)
		fputs("kmem bench: bringing the peers that are not there yet; this takes minutes, once\n", stderr);
	run_in_root(arguments);
}

/* What a table of peers cannot do without, as far as this call asked for it. */
static void check_must(void)
{
	static const char *const must[] = { "glibc", "jemalloc", "gperftools" };

	for (size_t i = 0; i < sizeof(must) / sizeof(*must); i++)
		if (wanted_subject(must[i]) && !peer_version(must[i]))
			bench.must_missing = true;
	if ((wanted_subject("mimalloc2") || wanted_subject("mimalloc3")) &&
	    !peer_version("mimalloc2") && !peer_version("mimalloc3"))
		bench.must_missing = true;
}

static void check_subjects(void)
{
	const struct names *subjects = &bench.options.subjects;

	for (size_t i = 0; i < subjects->count; i++) {
		const char *name = subjects->name[i];
		bool known = !strcmp(name, "nothing") || !strcmp(name, "published") ||
			     !strcmp(name, "model") || !strcmp(name, "processor");

		for (size_t k = 0; k < ENGINES; k++)
			known |= !strcmp(name, engines[k]);
		for (size_t k = 0; k < PEERS; k++)
			known |= !strcmp(name, peers[k]);
		if (!known)
			bench_usage("--subjects: there is no '%s'", name);
	}
}

/* The other tables are about ours alone. */
static bool peers_take_part(void)
{
	static const char *const benches[] = { "fastpath", "bulk", "worst", "peers" };
	bool any = false;

	for (size_t i = 0; i < sizeof(benches) / sizeof(*benches); i++)
		any |= bench_has(&bench.options.benches, benches[i]);
	return any;
}

bool bench_is_ours(const struct variant *variant)
{
	return variant->kind == SUBJECT_OURS || variant->kind == SUBJECT_MODEL || variant->kind == SUBJECT_PROCESSOR;
}

const struct variant *bench_next_peer(const struct variant *peer)
{
	const struct variant *end = bench.variants + bench.variant_count;

	for (const struct variant *v = peer ? peer + 1 : bench.variants; v < end; v++)
		if (v->kind == SUBJECT_PEER && v->version && !(peer && !strcmp(peer->subject, v->subject)))
			return v;
	return NULL;
}

static void find_peers(void)
{
	bring_peers();
	check_must();
	for (size_t i = 0; i < PEERS; i++) {
		if (!wanted_subject(peers[i]))
			continue;
		if (peer_version(peers[i]))
			add_peer(peers[i]);
		else
			bench_without(peers[i], was_tried(peers[i]) ?
				      "cannot be had here (scripts/peers tries again)" :
				      "not here; --fetch, or scripts/peers, brings it");
	}
}

void bench_find_subjects(void)
{
	check_subjects();
	find_engines();
	add_model();
	add_processor();
	if (peers_take_part())
		find_peers();
	/* The empty functions stand in every table of costs, whoever else was asked for. */
	add(SUBJECT_NOTHING, "nothing", "malloc", "shared", "build/bench/nothing-shared", NULL);
	add(SUBJECT_NOTHING, "nothing", "malloc", "static", "build/bench/nothing-static", NULL);
	add(SUBJECT_NOTHING, "nothing", "malloc", "inline", "build/bench/nothing-inline", NULL);
}

static bool planned(const struct variant *variant)
{
	for (size_t t = 0; t < bench.table_count; t++)
		for (size_t j = 0; j < bench.tables[t].job_count; j++)
			if (bench.tables[t].jobs[j].variant == variant)
				return true;
	return false;
}

static size_t add_target(char **arguments, size_t count, const char *target)
{
	for (size_t k = 0; k < count; k++)
		if (!strcmp(arguments[k], target))
			return count;
	arguments[count] = (char *)target;
	return count + 1;
}

/* Whether what the variant runs is there and newer than its sources; make failed for some. */
static bool up_to_date(const struct variant *variant)
{
	const char *preload = variant->kind == SUBJECT_OURS ? variant->preload : NULL;
	char *arguments[] = { "make", "-q", (char *)variant->worker, (char *)preload, NULL };

	return !run_in_root(arguments);
}

/* Have every worker that a planned job needs; drop the variants whose worker cannot be built. */
void bench_build_workers(void)
{
	char **arguments = kmem_need(calloc(2 * bench.variant_count + 5, sizeof(*arguments)));
	size_t count = 3;

	if (bench_stopped())
		return;
	arguments[0] = "make";
	arguments[1] = "-s";
	arguments[2] = "-k";
	for (size_t i = 0; i < bench.variant_count; i++) {
		const struct variant *variant = &bench.variants[i];

		if (!planned(variant))
			continue;
		if (variant->preload && variant->kind == SUBJECT_OURS)
			count = add_target(arguments, count, variant->preload);
		count = add_target(arguments, count, variant->worker);
	}
	if (count == 3)
		bench_fatal("nothing of what was asked for can be measured");
	if (!run_in_root(arguments) || bench_stopped())
		return;
	for (size_t i = 0; i < bench.variant_count; i++) {
		struct variant *variant = &bench.variants[i];

		if (!planned(variant) || up_to_date(variant))
			continue;
		variant->broken = true;
		bench_without(bench_format("%s %s %s", variant->subject, variant->api,
					   variant->linkage),
			      "its worker cannot be built");
		bench.ours_failed |= bench_is_ours(variant);
	}
}
