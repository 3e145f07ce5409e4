/*
 * unloaded.c: with FRAME a library: a function with a frame of so many bytes, that calls back. Else a program that
 * calls the function of each library that is named, and unloads it before the next; then it prints by whom it has
 * blocks.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <kmem/stats.h>

#ifdef FRAME
void through(void (*back)(void))
{
	volatile char frame[FRAME];

	frame[0] = 1;
	back();
	frame[FRAME - 1] = frame[0];
}
#else
static int kept;
static void *block;

static __attribute__((noinline)) void back(void)
{
	void *p = malloc(3000);

	if (kept)
		block = p;
	else
		free(p);
}

static __attribute__((noinline)) void call(const char *name, int last)
{
	void *library = dlopen(name, RTLD_NOW);
	void (*through)(void (*)(void)) = library ? (void (*)(void (*)(void)))dlsym(library, "through") : NULL;

	if (!through)
		exit(2);
	fprintf(stderr, "at %p\n", (void *)through);
	/* Two times: the first may learn what the second finds. */
	through(back);
	kept = last;
	through(back);
	if (!last)
		dlclose(library);
}

int main(int argc, char **argv)
{
	int (*print)(int fd) = (int (*)(int))dlsym(RTLD_DEFAULT, "kmem_print_leaks");

	for (int i = 1; i < argc; i++)
		call(argv[i], i == argc - 1);
	return !block || !print || print(1);
}
#endif
