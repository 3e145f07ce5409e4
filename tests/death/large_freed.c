/*
 * large_freed: misuse of a freed large block in the quarantine of a debugged (poisoned) cache. A call that asks for the
 * size of the block, resizes the block or frees the block prints a report and ends the process.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/malloc.h"
#include <kmem/kmem.h>

static void *freed(size_t size)
{
	void *p = malloc(size);

	NEED(p);
	free(p);
	__asm__ volatile("" : "+r"(p));
	return p;
}

static void asked(size_t size) { malloc_usable_size(freed(size)); }
static void asked_ksize(size_t size) { ksize(freed(size)); }
static void grown(size_t size) { NEED(!realloc(freed(size), size * 2)); }
static void shrunk(size_t size) { NEED(!realloc(freed(size), 100)); }
static void kgrown(size_t size) { NEED(!krealloc(freed(size), size * 2, GFP_KERNEL)); }
static void again(size_t size) { free(freed(size)); }
static void again_to_slab(size_t size) { kmem_free_to_slab(freed(size)); }
static void wiped(size_t size) { kfree_sensitive(freed(size)); }

static const struct {
	const char *name;
	void (*run)(size_t size);
} doors[] = {
	{ "malloc_usable_size", asked }, { "ksize", asked_ksize }, { "realloc", grown }, { "realloc", shrunk },
	{ "ksize", kgrown }, { "kfree", again }, { "kfree", again_to_slab }, { "ksize", wiped },
};

static void ends(size_t door, size_t size)
{
	char said[8192], line[64];
	size_t length = 0;
	int err[2], status;
	ssize_t n;

	NEED(!pipe(err));
	pid_t child = fork();
	if (!child) {
		dup2(err[1], 2);
		close(err[1]);
		doors[door].run(size);
		_exit(0);
	}
	close(err[1]);
	while (length < sizeof(said) - 1 && (n = read(err[0], said + length, sizeof(said) - 1 - length)) > 0)
		length += (size_t)n;
	said[length] = '\0';
	close(err[0]);
	NEED(waitpid(child, &status, 0) == child);
	snprintf(line, sizeof(line), "%s(", doors[door].name);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(said, line) &&
	      strstr(said, "object already free"), "%zu bytes, %s, door %zu: status %#x, said: %s", size,
	      doors[door].name, door, (unsigned)status, said);
}

int main(void)
{
	if (!getenv("KMEM_DEBUG")) {
		setenv("KMEM_DEBUG", "P,large", 1);
		execl("/proc/self/exe", "large_freed", (char *)NULL);
	}
	check_ours();
	for (size_t door = 0; door < sizeof(doors) / sizeof(doors[0]); door++)
		for (size_t size = 40000; size < 8000000; size *= 5)
			ends(door, size);
	return failures != 0;
}
