/*
 * malloc_early.c: malloc works at any time: in the first function of the program, in constructors, in exit
 * handlers and in destructors; each may free the blocks of another. Disciplines: all
 */
#include "kit/malloc.h"

static char *first, *constructed;

static void before_constructors(int argc, char **argv, char **environment)
{
	first = malloc(1000);
	fill(first, 1000, 1);
	free(malloc(1));
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) =
	before_constructors;

__attribute__((constructor(101))) static void constructor(void)
{
	constructed = calloc(3, 100000);
	fill(constructed, 300000, 2);
}

__attribute__((destructor(101))) static void destructor(void)
{
	NEED(is_filled(constructed, 300000, 2));
	free(constructed);
	free(malloc(77777));
}

static void at_exit(void)
{
	NEED(is_filled(first, 1000, 1));
	first = realloc(first, 2000);
	NEED(is_filled(first, 1000, 1));
	free(first);
}

int main(void)
{
	check_ours();
	atexit(at_exit);
	NEED(is_filled(first, 1000, 1) && is_filled(constructed, 300000, 2));
	return 0;
}
