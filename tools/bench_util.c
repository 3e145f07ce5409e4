/* Small helpers of `kmem bench`: texts, lists of names, the terminal, and where the project's tree is. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

struct bench bench;

char *bench_format(const char *format, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	return kmem_need(text);
}

char *bench_path(const char *under_root)
{
	return bench_format("%s/%s", bench.root, under_root);
}

int bench_terminal(FILE *out)
{
	struct winsize size;

	if (!isatty(fileno(out)))
		return 0;
	/* A terminal that does not know its own width has that of most. */
	return ioctl(fileno(out), TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

double bench_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void bench_without(const char *name, const char *why)
{
	const char *text = bench_format("%s: %s", name, why);

	for (size_t i = 0; i < bench.without_count; i++)
		if (!strcmp(bench.without[i], text))
			return;
	if (bench.without_count < sizeof(bench.without) / sizeof(*bench.without))
		bench.without[bench.without_count++] = text;
}

bool bench_has(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (!strcmp(names->name[i], name))
			return true;
	return false;
}

bool bench_same(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

bool bench_has_word(const char *words, const char *word)
{
	const char *at = words;
	size_t length = strlen(word);

	for (; (at = strstr(at, word)); at += length)
		if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' '))
			return true;
	return false;
}

/* The nearest directory above `path` that holds the benches; cuts path to it. */
static bool root_above(char *path)
{
	char *slash, probe[PATH_MAX + 32];

	while ((slash = strrchr(path, '/'))) {
		snprintf(probe, sizeof(probe), "%s/bench/bench.mk", path);
		if (!access(probe, R_OK))
			return true;
		*slash = '\0';
	}
	return false;
}

/* The tree that this command was built in; else the one around the current directory. */
void bench_find_root(void)
{
	ssize_t length = readlink("/proc/self/exe", bench.root, PATH_MAX - 1);

	if (length > 0) {
		bench.root[length] = '\0';
		if (root_above(bench.root))
			return;
	}
	if (getcwd(bench.root, PATH_MAX) && root_above(bench.root))
		return;
	bench_fatal("needs the project's tree: run it inside of a clone");
}
