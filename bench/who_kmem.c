/* Who is behind the kmem_ functions in this process: version and discipline. */
#include <kmem/kmem.h>
#include <stdio.h>

#include "bench.h"

void bench_print_subject(void)
{
	if (!slab_is_available())
		bench_die("the library did not start");
	printf("info discipline %s\n", kmem_percpu_discipline());
	printf("info version %s\n", kmem_version());
}
