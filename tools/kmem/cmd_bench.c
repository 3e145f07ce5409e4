/*
 * cmd_bench.c: `kmem bench`: replace this process with the driver, a Python package. The driver plans, starts the
 * workers in turn and prints; the driver measures nothing. Order of search: the driver of the tree that contains this
 * command, the installed driver, the driver of the tree around the current directory. This order keeps workers and
 * driver at one version where possible.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "paths.h"

#define SYSTEM_PYTHON "/usr/bin/python3"	/* an absolute path: Python locates its libraries by the path */
#define OPTIONS 6				/* number of leading arguments in `ours` */

static __attribute__((format(printf, 1, 2))) char *format(const char *how, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, how);
	if (vasprintf(&text, how, arguments) < 0)
		text = NULL;
	va_end(arguments);
	return kmem_need(text);
}

/* Returns: the folder, if the folder contains the driver; else NULL. */
static char *driver(char *folder)
{
	return access(format("%s/__main__.py", folder), R_OK) ? NULL : folder;
}

/* Returns: the nearest folder above `path` with bench/meson.build; NULL: none. */
static char *tree_above(const char *path)
{
	char *tree = format("%s", path), *slash;

	while ((slash = strrchr(tree, '/'))) {
		if (!access(format("%s/bench/meson.build", tree), R_OK))
			return tree;
		*slash = '\0';
	}
	return NULL;
}

/* Find the installed driver: beside the command, because an installation may be moved, or in KMEM_DATADIR. */
static char *installed(const char *self)
{
	char *moved = driver(format("%.*s/../share/kmem/driver", (int)(strrchr(self, '/') - self), self));

	return moved ? moved : driver(format("%s", KMEM_DATADIR "/kmem/driver"));
}

int cmd_bench(int argc, char **argv)
{
	char *self = kmem_need(realpath("/proc/self/exe", NULL)), *here = getcwd(NULL, 0);
	char *tree = tree_above(self), *folder = tree ? NULL : installed(self);
	char **arguments = kmem_need(calloc((size_t)argc + OPTIONS, sizeof(*arguments)));

	if (!tree && here)
		tree = tree_above(here);
	/* Compiled modules go to the tree's build folder; an installed driver writes none. */
	char *cache = folder ? "pycache_prefix=/dev/null" : format("pycache_prefix=%s/build/pycache", tree);

	if (!folder && !tree)
		return kmem_failed(1, "bench", "the source tree is needed: run kmem bench inside of a clone");
	char *const ours[] = { SYSTEM_PYTHON, "-I", "-X", cache, folder ? folder : format("%s/bench/driver", tree),
			       tree ? tree : "" };

	memcpy(arguments, ours, sizeof(ours));
	memcpy(arguments + OPTIONS, argv + 1, (size_t)argc * sizeof(*argv));
	execv(arguments[0], arguments);
	arguments[0] = "python3";
	execvp(arguments[0], arguments);
	return kmem_failed(1, "bench", errno == ENOENT ? "Python is missing: apt-get install python3 python3-rich" :
							 "cannot start python3");
}
