/* Nobody is behind the empty functions: there is nothing to say. */
#include "frame/bench.h"

void bench_print_subject(void)
{
}
