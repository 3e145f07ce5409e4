/* top_targets.c: lists the processes of a sample: named processes, processes of a cgroup tree, or all of the user. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "top/top.h"

#define CGROUPS	"/sys/fs/cgroup"

struct pids {
	pid_t *pid;
	size_t count, room;
};

static void add_pid(struct pids *pids, pid_t pid)
{
	pids->pid = kmem_grow(pids->pid, pids->count, &pids->room, sizeof(*pids->pid));
	pids->pid[pids->count++] = pid;
}

/* ------------------------------------------------------------------ a cgroup */

static void add_folder(struct pids *pids, const char *folder)
{
	char path[4096];
	int pid;

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	FILE *procs = fopen(path, "re");
	while (procs && fscanf(procs, "%d", &pid) == 1)
		if (pid > 0 && pid != getpid())
			add_pid(pids, pid);
	if (procs)
		fclose(procs);
}

static bool add_cgroup(struct pids *pids, const char *folder)
{
	char *const roots[] = { (char *)(uintptr_t)folder, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
	bool found = false;
	FTSENT *entry;

	while (tree && (entry = fts_read(tree)))
		if (entry->fts_info == FTS_D) {
			found = true;
			add_folder(pids, entry->fts_path);
		}
	if (tree)
		fts_close(tree);
	return found;
}

static bool is_cgroup(const char *folder)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	return access(path, R_OK) == 0;
}

/* Find the folder of a cgroup v2 path below the mount points. Returns: NULL if absent. */
static char *folder_of(const char *path)
{
	static const char *const roots[] = { CGROUPS, CGROUPS "/unified" };
	char *folder = NULL;

	for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++) {
		free(folder);
		if (asprintf(&folder, "%s/%s", roots[i], path) < 0)
			folder = kmem_need(NULL);
		if (is_cgroup(folder))
			return folder;
	}
	free(folder);
	return NULL;
}

/* Find the cgroup folder of a process, from the line "0::/path" of its cgroup file. */
static char *folder_of_process(const char *pid)
{
	char path[64], line[4096], *folder = NULL;

	snprintf(path, sizeof(path), "/proc/%s/cgroup", pid);
	FILE *cgroups = fopen(path, "re");
	while (cgroups && !folder && fgets(line, sizeof(line), cgroups)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "0::", 3))
			folder = folder_of(line + 3);
	}
	if (cgroups)
		fclose(cgroups);
	return folder;
}

char *top_cgroup(const char *name)
{
	char *folder = info_is_number(name) ? folder_of_process(name) :
		       *name == '/' && is_cgroup(name) ? kmem_need(strdup(name)) : folder_of(name);

	if (!folder)
		exit(kmem_failed(1, "top", "%.200s: %s", name, info_is_number(name) ?
				 "no such process, or the process is in no cgroup of version 2" :
				 "no such cgroup, or its cgroup.procs can't be read"));
	return folder;
}

/* ------------------------------------------------------------------ all of them */

bool top_pids(const struct top_targets *targets, pid_t **found, size_t *count)
{
	struct pids pids = { 0 };
	bool ok = true;

	if (targets->cgroup) {
		ok = add_cgroup(&pids, targets->cgroup);
	} else if (targets->pids) {
		for (size_t i = 0; i < targets->count; i++)
			add_pid(&pids, targets->pids[i]);
	} else {
		pids.pid = info_own_processes(&pids.count);
		ok = pids.pid != NULL;
	}
	*found = pids.pid;
	*count = pids.count;
	return ok;
}
