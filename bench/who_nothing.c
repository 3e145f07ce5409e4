/* Nobody is behind the empty functions: there is nothing to say. */
#include "bench.h"

void bench_print_subject(void)
{
}
