/*
 * model: random programs of operations against the model of machine.h. Each program runs in a process of its own;
 * a failing program is reduced by deleting operations while the failure remains, and printed with its seed.
 * Disciplines: all; the program starts itself again for each engine, with one memory node and with two simulated
 * ones.
 *
 * SEED=n begins with this seed (the default is always the same), PROGRAMS=n runs n programs (by
 * default 12 under rseq, 6 under another discipline), OPS=n of n operations each.
 * `model FILE` replays a file of byte-code, `model -x WORD...` the operations as printed.
 */
#include "machine.h"
#include "kit/random.h"

#include <errno.h>

#include "cache/cache.h"

#define MAX_OPS 65536

static struct machine machine;
static bool quiet;

static void make_program(uint64_t seed, uint8_t *code, size_t ops)
{
	for (size_t i = 0; i < ops; i++) {
		uint64_t random = random_next(&seed);

		memcpy(code + i * OP_BYTES, &random, OP_BYTES);
	}
}

/* In a child: 0 passed, else the wait status. */
static int run(const uint8_t *code, size_t ops)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(2);
	}
	if (!pid) {
		if (quiet && !freopen("/dev/null", "w", stderr))
			_exit(3);
		alarm(580);
		size_t failed = machine_run(&machine, code, ops * OP_BYTES);
		if (failed)
			fprintf(stderr, "operation %zu: %s\n", failed - 1, machine.why);
		fflush(NULL);
		_exit(failed != 0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* Delete runs of operations, long ones first, while what is left still fails. At most some hundred runs. */
static size_t shrink(uint8_t *code, size_t ops)
{
	static uint8_t smaller[MAX_OPS * OP_BYTES];
	int runs = 0;

	quiet = true;
	for (size_t cut = ops / 2; cut > 0; cut /= 2) {
		for (size_t at = 0; at + cut <= ops && runs < 600;) {
			size_t left = ops - cut;

			memcpy(smaller, code, at * OP_BYTES);
			memcpy(smaller + at * OP_BYTES, code + (at + cut) * OP_BYTES,
			       (left - at) * OP_BYTES);
			runs++;
			if (run(smaller, left)) {
				memcpy(code, smaller, left * OP_BYTES);
				ops = left;
			} else {
				at += cut;
			}
		}
	}
	quiet = false;
	return ops;
}

static void print_program(const uint8_t *code, size_t ops)
{
	for (size_t i = 0; i < ops; i++) {
		const uint8_t *op = code + i * OP_BYTES;

		printf("  %3zu %-12s %3u %3u %3u   %02x%02x%02x%02x\n", i, op_names[decode(op[0])], op[1],
		       op[2], op[3], op[0], op[1], op[2], op[3]);
	}
}

static unsigned long number(const char *name, unsigned long otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoul(value, NULL, 0) : otherwise;
}

static int random_programs(void)
{
	static uint8_t code[MAX_OPS * OP_BYTES];
	unsigned long seed = number("SEED", 20260101), programs, ops = number("OPS", 1000);
	struct kmem_cache *probe = kmem_cache_create("probe", 8, NULL, 0);
	struct kmem_cache_stats stats;

	if (ops > MAX_OPS)
		ops = MAX_OPS;
	kmem_cache_get_stats(probe, &stats);
	kmem_cache_destroy(probe);
	programs = number("PROGRAMS", strcmp(kmem_percpu_discipline(), "rseq") ? 6 : 12);
	printf("SEED=%lu PROGRAMS=%lu OPS=%lu, engine %s, %u nodes, %s (%s)\n", seed, programs, ops,
	       stats.engine, km_node_count, kmem_percpu_discipline(), kmem_percpu_reason());
	for (unsigned long i = 0; i < programs; i++) {
		make_program(seed + i, code, ops);
		int status = run(code, ops);
		if (!status)
			continue;
		printf("SEED=%lu fails, status 0x%x; smaller:\n", seed + i, (unsigned)status);
		size_t left = shrink(code, ops);
		print_program(code, left);
		fflush(NULL);
		run(code, left);
		return 1;
	}
	return 0;
}

static int replay(const char *path)
{
	static uint8_t code[MAX_OPS * OP_BYTES];
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		return 2;
	}
	size_t bytes = fread(code, 1, sizeof(code), file);
	fclose(file);
	return run(code, bytes / OP_BYTES) != 0;
}

static int replay_words(int words, char **word)
{
	static uint8_t code[MAX_OPS * OP_BYTES];

	for (int i = 0; i < words && i < MAX_OPS; i++) {
		unsigned long op = strtoul(word[i], NULL, 16);

		for (int j = 0; j < OP_BYTES; j++)
			code[i * OP_BYTES + j] = (uint8_t)(op >> (24 - 8 * j));
	}
	return run(code, (size_t)words) != 0;
}

static int start_with(const char *engine, unsigned nodes)
{
	char options[64];
	int status;

	snprintf(options, sizeof(options), "engine:%s,nodes:%u", engine, nodes);
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		setenv("KMEM_OPTIONS", options, 1);
		execl("/proc/self/exe", "model", "--random", NULL);
		_exit(4);
	}
	return waitpid(pid, &status, 0) != pid || status;
}

int main(int argc, char **argv)
{
	static const char *const engines[] = { KM_ENGINE_NAMES };
	int failed = 0;

	if (argc == 2 && strcmp(argv[1], "--random") == 0)
		return random_programs();
	if (argc == 2)
		return replay(argv[1]);
	if (argc > 2 && strcmp(argv[1], "-x") == 0)
		return replay_words(argc - 2, argv + 2);
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
		for (unsigned nodes = 1; nodes <= 2 && km_engine_find(engines[i]); nodes++)
			failed |= start_with(engines[i], nodes);
	return failed;
}
