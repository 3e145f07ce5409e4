/*
 * fuzz: feeds byte-code (model/machine.h) to the allocator. Built with -DKM_LIBFUZZER it is an entry for libFuzzer
 * (tests/model/fuzz.sh); without, as `make check` builds it, a driver that runs the files named, or the corpus beside
 * this source, each in a process of its own. Disciplines: all.
 */
#include "machine.h"

static struct machine machine;

/* Forks are left out: a fuzzer counts what its own process does. */
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

static int run_file(const char *path)
{
	static uint8_t data[1 << 16];
	FILE *file = fopen(path, "rb");
	int status;

	if (!file) {
		perror(path);
		return 1;
	}
	size_t bytes = fread(data, 1, sizeof(data), file);
	fclose(file);
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		alarm(580);
		_exit(run_input(data, bytes) != 0);
	}
	if (waitpid(pid, &status, 0) == pid && !status)
		return 0;
	printf("%s: status 0x%x\n", path, (unsigned)status);
	return 1;
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
	globfree(&found);
	return failed != 0;
}
#endif
