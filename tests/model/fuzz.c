/*
 * fuzz: feeds byte-code (model/machine.h) to the allocator. Built with -DKM_LIBFUZZER the file is an entry for
 * libFuzzer (tests/model/fuzz.sh). Without, as `make tests` builds it, a driver runs the named files, or the corpus
 * beside this source, each in a process of its own; and for the corpus INPUTS=n more inputs made from it, by SEED=n
 * and the numbers that follow; the same seed makes the same input. CHECK_LONG=1: as many as fit in an hour.
 * Disciplines: all.
 */
#include "machine.h"

static struct machine machine;

/* Forks are left out: a fuzzer counts branches of its own process only. */
static size_t run_input(const uint8_t *data, size_t bytes)
{
	static uint8_t code[1 << 16];
	size_t kept = 0;

	for (size_t at = 0; at + OP_BYTES <= bytes && kept < sizeof(code); at += OP_BYTES)
		if (decode(data[at]) != OP_FORK) {
			memcpy(code + kept, data + at, OP_BYTES);
			kept += OP_BYTES;
		}
	size_t failed = machine_run(&machine, code, kept);
	if (failed)
		fprintf(stderr, "operation %zu: %s\n", failed - 1, machine.why);
	return failed;
}

#ifdef KM_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (run_input(data, bytes))
		abort();
	return 0;
}
#else
#include <glob.h>
#include <time.h>

#include "kit/random.h"

#define MOST_BYTES (1u << 16)

static size_t read_file(const char *path, uint8_t *data)
{
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		exit(1);
	}
	size_t bytes = fread(data, 1, MOST_BYTES, file);
	fclose(file);
	return bytes;
}

/* Returns: 0, or the status of the input's process. */
static int run_apart(const uint8_t *data, size_t bytes)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(580);
		_exit(run_input(data, bytes) != 0);
	}
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static int run_file(const char *path)
{
	static uint8_t data[MOST_BYTES];
	int status = run_apart(data, read_file(path, data));

	if (status)
		printf("%s: status 0x%x\n", path, (unsigned)status);
	return status != 0;
}

/* ------------------------------------------------------------------ what is made of the corpus */

/* A few operations become others, come twice, or go; or the rest is another file's. */
static size_t change(uint8_t *data, size_t bytes, const uint8_t *other, size_t other_bytes, uint64_t *state)
{
	size_t ops = bytes / OP_BYTES;

	for (uint64_t n = 1 + random_next(state) % 12; n-- && ops;) {
		uint8_t *op = data + random_next(state) % ops * OP_BYTES;
		size_t behind = (size_t)(data + ops * OP_BYTES - op);
		uint64_t how = random_next(state) % 8;

		if (how < 4) {
			op[random_next(state) % OP_BYTES] = (uint8_t)random_next(state);
		} else if (how == 4 && ops > 1) {
			memmove(op, op + OP_BYTES, behind - OP_BYTES);
			ops--;
		} else if (how < 7 && (ops + 1) * OP_BYTES < MOST_BYTES) {
			memmove(op + OP_BYTES, op, behind);
			ops++;
		} else if ((size_t)(op - data) + other_bytes < MOST_BYTES) {
			memcpy(op, other, other_bytes);
			ops = ((size_t)(op - data) + other_bytes) / OP_BYTES;
		}
	}
	return ops * OP_BYTES;
}

static int run_changed(const glob_t *found, unsigned long seed)
{
	static uint8_t data[MOST_BYTES + OP_BYTES], other[MOST_BYTES];
	uint64_t state = seed;
	size_t bytes = read_file(found->gl_pathv[random_next(&state) % found->gl_pathc], data);
	size_t others = read_file(found->gl_pathv[random_next(&state) % found->gl_pathc], other);
	int status = run_apart(data, change(data, bytes, other, others, &state));

	if (status)
		printf("SEED=%lu INPUTS=1: status 0x%x\n", seed, (unsigned)status);
	return status != 0;
}

static unsigned long number_of(const char *name, unsigned long usual)
{
	const char *text = getenv(name);

	return text && *text ? strtoul(text, NULL, 0) : usual;
}

static int fuzz(const glob_t *found)
{
	unsigned long seed = number_of("SEED", 20261123), inputs = number_of("INPUTS", 200), count = 0;
	time_t end = time(NULL) + (getenv("CHECK_LONG") && !getenv("INPUTS") ? 3600 : 0);
	int failed = 0;

	for (; !failed && (count < inputs || time(NULL) < end); count++)
		failed += run_changed(found, seed + count);
	printf("SEED=%lu INPUTS=%lu: %d failed\n", seed, count, failed);
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0;
	glob_t found;

	for (int i = 1; i < argc; i++)
		failed += run_file(argv[i]);
	if (argc > 1)
		return failed != 0;
	if (glob("tests/model/corpus/*", 0, NULL, &found)) {
		fprintf(stderr, "no corpus: start this in the root of the repository\n");
		return 2;
	}
	for (size_t i = 0; i < found.gl_pathc; i++)
		failed += run_file(found.gl_pathv[i]);
	printf("%zu files, %d failed\n", found.gl_pathc, failed);
	failed += fuzz(&found);
	globfree(&found);
	return failed != 0;
}
#endif
