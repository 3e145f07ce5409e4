/* The empty functions have no library: no line is printed. */
#include "frame/bench.h"

void bench_print_subject(void)
{
}
