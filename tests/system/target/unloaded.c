/*
 * unloaded.c: with FRAME defined, a library: one function with a frame of FRAME bytes, and a call of a callback.
 * Without FRAME, a program: the program loads each named library, calls the function, and unloads the library before
 * the next one. In the end the program prints the call stacks of its allocated blocks.
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
