/*
 * child_of_vfork: in a program linked with libkmem only, vfork and clone are libc's. A tick stops a child that
 * shares its parent's memory and calls the library, with one line, and the parent goes on; with misuse:warn both
 * go on. Without restartable sequences such a child may call the library. Disciplines: all.
 */
#define _GNU_SOURCE
#define CHECK_FD 2
#include <sched.h>

#include "kit/api.h"
#include "kit/clock.h"
#include "os/die.h"
#include "percpu/pcpu.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define PHRASE	"): called by a vfork child in its parent's memory; KMEM_PERCPU=lock permits the call\n"

static char stack[1 << 16] __attribute__((aligned(16)));
static struct kmem_cache *cache;

static void use(void)
{
	kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
	ahead_ms++;
	kmem_tick();
}

static int in_clone(void *arg)
{
	use();
	return arg != NULL;
}

static int wait_status(pid_t child)
{
	int status;

	NEED(child > 0 && waitpid(child, &status, 0) == child);
	use();
	return status;
}

static int of_vfork(void)
{
	pid_t child = vfork();

	if (!child) {
		use();
		_exit(0);
	}
	return wait_status(child);
}

static int of_clone(void)
{
	return wait_status(clone(in_clone, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
}

/* A child with memory of its own may call the library, created by any call. */
static int of_copy(void)
{
	return wait_status(clone(in_clone, stack + sizeof(stack), SIGCHLD, NULL));
}

static int (*make_child)(void);
static bool warns;

/* The parent ends well if the child ends as expected. */
static void parent(void)
{
	const bool stopped = km_percpu.discipline == KM_DISCIPLINE_RSEQ && make_child != of_copy && !warns;

	if (warns)
		km_misuse_set(KM_MISUSE_WARN);
	int status = make_child();
	_exit(!(stopped ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT : status == 0));
}

static void look(const char *what, int (*child)(void))
{
	const bool told = km_percpu.discipline == KM_DISCIPLINE_RSEQ && child != of_copy;
	char text[4096];
	int lines;

	make_child = child;
	int status = said(parent, text, &lines);
	CHECK(status == 0 && lines == told && (!told || (strstr(text, "libkmem: vfork(0x") && strstr(text, PHRASE))),
	      "%s%s: status %#x, %d lines: %s", what, warns ? ", misuse:warn" : "", (unsigned)status, lines, text);
}

int main(void)
{
	cache = make("used", 100);
	use();
	for (int i = 0; i < 2; i++) {
		warns = i;
		look("vfork", of_vfork);
		look("clone", of_clone);
		look("a copy", of_copy);
	}
	return failures != 0;
}
