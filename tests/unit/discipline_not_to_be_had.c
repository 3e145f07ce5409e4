/*
 * discipline_not_to_be_had.c: a requested discipline that is unavailable is reported in a line; an available one,
 * or a default, is not. The system here refuses membarrier, so rseq is unavailable.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <kmem/kmem.h>

#include "kit/refuse.h"
#include "kit/check.h"

static const struct {
	const char *discipline, *options, *says;
} cases[] = {
	{ "rseq", "", "libkmem: discipline rseq is not available: " },
	{ "", "percpu:rseq", "libkmem: discipline rseq is not available: " },
	{ "auto", "", "" },
	{ "", "", "" },
	{ "lock", "", "" },
	{ "cmpxchg", "", "" },
};

static void refuse_membarrier(void)
{
	if (!refuse_call(SYS_membarrier, EPERM)) {
		puts("no filters here");
		exit(77);
	}
}

static void run(size_t i, char *said, size_t bytes)
{
	int out[2], status;
	size_t length = 0;
	ssize_t got;

	NEED(pipe(out) == 0);
	pid_t pid = fork();
	if (!pid) {
		dup2(out[1], 2);
		close(out[0]);
		close(out[1]);
		setenv("KMEM_PERCPU", cases[i].discipline, 1);
		setenv("KMEM_OPTIONS", cases[i].options, 1);
		if (!*cases[i].discipline)
			unsetenv("KMEM_PERCPU");
		execl("/proc/self/exe", "forced", "run", (char *)NULL);
		_exit(8);
	}
	close(out[1]);
	while ((got = read(out[0], said + length, bytes - 1 - length)) > 0)
		length += (size_t)got;
	said[length] = '\0';
	close(out[0]);
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
	char said[512];

	if (argc > 1)
		return !strcmp(kmem_percpu_discipline(), "rseq");
	refuse_membarrier();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run(i, said, sizeof(said));
		const char *end = strchr(said, '\n');

		printf("%s %s: %s\n", cases[i].discipline, cases[i].options, said);
		CHECK(strncmp(said, cases[i].says, strlen(cases[i].says)) == 0);
		CHECK(*cases[i].says ? end && !end[1] : !*said);
	}
	return failures != 0;
}
