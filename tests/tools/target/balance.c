/*
 * balance.c: a program whose blocks were touched in part, and of which some were freed. It says how many KiB of what
 * it has it has touched, and "ready", and waits.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>

#define HALVES	100
#define WHOLES	300
#define OBJECTS	200000

int main(void)
{
	static char *whole[WHOLES];
	size_t touched = 0;

	for (int i = 0; i < HALVES; i++) {
		char *half = kvmalloc(1 << 20, GFP_KERNEL);

		memset(half, 1, 1 << 19);
		touched += 1 << 19;
	}
	for (int i = 0; i < WHOLES; i++) {
		whole[i] = kvmalloc(270000, GFP_KERNEL);
		memset(whole[i], 1, ksize(whole[i]));
		touched += ksize(whole[i]);
	}
	for (int i = 0; i < OBJECTS; i++) {
		memset(kmalloc(128, GFP_KERNEL), 1, 128);
		touched += 128;
	}
	for (int i = 0; i < WHOLES; i += 25) {
		touched -= ksize(whole[i]);
		kvfree(whole[i]);
	}
	printf("touched %zu\nready\n", touched >> 10);
	fflush(stdout);
	pause();
	return 0;
}
