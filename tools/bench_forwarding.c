/*
 * The table `forwarding`: no allocator, the processor alone. What a store costs that the next load reads, by the form
 * of the address: why hits address the shelf's word by one register. The worker names each figure's form.
 */
#include "bench.h"

#define FORMS_MS 200u	/* eight forms */

void bench_plan_forwarding(struct variant *variant)
{
	struct plan_cell *cell;

	if (variant->kind != SUBJECT_PROCESSOR || !bench_wanted_work("forwarding"))
		return;
	cell = bench_add_cell(bench_add_job(variant, 1), "forwarding", "forwarding", 0, 0, 0);
	cell->touch = NULL;
	cell->ms = FORMS_MS;
}
