/* The rows for programs: one JSON object, or CSV with a header line. Field names are a contract. */
#include <string.h>

#include "bench.h"

static void put_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(out, "\\%c", *p);
		else if (*p < 0x20)
			fprintf(out, "\\u%04x", *p);
		else
			fputc(*p, out);
	}
	fputc('"', out);
}

static void put_field(FILE *out, const char *key, const char *text)
{
	if (!text)
		return;
	fprintf(out, "\"%s\": ", key);
	put_string(out, text);
	fputs(", ", out);
}

static void put_count(FILE *out, const char *key, unsigned long number)
{
	if (number)
		fprintf(out, "\"%s\": %lu, ", key, number);
}

static void put_peers(FILE *out)
{
	bool first = true;

	fputs("\"peers\": {", out);
	for (const struct variant *peer = NULL; (peer = bench_next_peer(peer)); first = false) {
		fputs(first ? "" : ", ", out);
		put_string(out, peer->subject);
		fputs(": ", out);
		put_string(out, peer->version);
	}
	fputs("}, \"without\": [", out);
	for (size_t i = 0; i < bench.without_count; i++) {
		fputs(i ? ", " : "", out);
		put_string(out, bench.without[i]);
	}
	fputs("]", out);
}

/* The tables that were cut short, with the rounds that they have. */
static void put_incomplete(FILE *out)
{
	bool first = true;

	fputs(", \"incomplete\": [", out);
	for (size_t t = 0; t < bench.table_count; t++) {
		const struct table *table = &bench.tables[t];

		if (!bench_incomplete(table))
			continue;
		fputs(first ? "{" : ", {", out);
		put_field(out, "bench", table->bench);
		put_field(out, "why", bench_cut_by(table));
		fprintf(out, "\"rounds\": %u, \"planned\": %u}", table->complete, table->rounds);
		first = false;
	}
	fputs("]", out);
}

static void put_environment(FILE *out)
{
	const struct environment *e = &bench.environment;

	fputs("{\"environment\": {", out);
	put_field(out, "date", e->date);
	put_field(out, "cpu", e->cpu);
	fprintf(out, "\"cores\": %ld, \"tsc_ghz\": %.4f, ", e->cores, e->tsc_ghz);
	fprintf(out, "\"clock_ratio_before\": %.4f, \"clock_ratio_after\": %.4f, \"noisy\": %s, ",
		e->clock_before, e->clock_after, e->noisy ? "true" : "false");
	put_field(out, "kernel", e->kernel);
	put_field(out, "libc", e->libc);
	put_field(out, "compiler", e->compiler);
	put_field(out, "flags", e->flags);
	put_field(out, "library_flags", e->library_flags);
	put_field(out, "commit", e->commit);
	put_field(out, "discipline", e->discipline);
	fprintf(out, "\"rounds\": %u, \"quick\": %s, ", e->rounds,
		bench.options.quick ? "true" : "false");
	put_peers(out);
	put_incomplete(out);
	fputs("},\n \"rows\": [", out);
}

/* Of latency each run's figure as well, in the order of the runs. */
static void put_figures(FILE *out, const struct row *row)
{
	fprintf(out, "\"median\": %.4f, \"min\": %.4f, \"max\": %.4f, ", row->median, row->min,
		row->max);
	if (row->count > 1)
		fprintf(out, "\"avg\": %.4f, ", row->avg);
	if (row->sd > 0)
		fprintf(out, "\"sd\": %.4f, ", row->sd);
	put_count(out, "planned", row->planned);
	fprintf(out, "\"rounds\": %zu", row->count);
	for (size_t i = 0; !strcmp(row->work, "latency") && !row->settled && i < row->count; i++)
		fprintf(out, "%s%.0f", i ? ", " : ", \"values\": [", row->values[i]);
	fputs(strcmp(row->work, "latency") || row->settled ? "}" : "]}", out);
}

static void put_row(FILE *out, const struct row *row)
{
	fputc('{', out);
	put_field(out, "bench", row->bench);
	put_field(out, "work", row->work);
	put_field(out, "subject", row->subject);
	put_field(out, "of", row->of);
	put_field(out, "version", row->version);
	put_field(out, "api", row->api);
	put_field(out, "linkage", row->linkage);
	put_field(out, "discipline", row->discipline);
	put_field(out, "accounting", row->accounting ? row->accounting : "off");
	put_field(out, "memcg", row->memcg);
	put_count(out, "size", row->size);
	put_count(out, "batch", row->batch);
	put_count(out, "threads", row->threads);
	put_count(out, "match", row->match);
	put_count(out, "objects", row->objects);
	put_count(out, "groups", row->groups);
	put_field(out, "payers", row->payers);
	put_count(out, "transfer_ns", row->transfer);
	put_field(out, "touch", row->touch);
	put_field(out, "state", row->state);
	put_field(out, "min_partial", row->min_partial);
	put_field(out, "time", row->time);
	put_field(out, "label", row->label);
	if (bench.options.quick && row->kind != SUBJECT_PUBLISHED)
		fputs("\"quick\": true, ", out);
	put_field(out, "unit", row->unit);
	put_field(out, "measure", row->measure);
	put_field(out, "at", row->at);
	put_figures(out, row);
}

void bench_print_json(FILE *out)
{
	bool first = true;

	put_environment(out);
	for (size_t t = 0; t < bench.table_count; t++)
		for (size_t i = 0; i < bench.tables[t].row_count; i++) {
			fputs(first ? "\n  " : ",\n  ", out);
			put_row(out, &bench.tables[t].rows[i]);
			first = false;
		}
	fputs("\n]}\n", out);
}

static void put_cell(FILE *out, const char *text)
{
	if (text && strpbrk(text, ",\"\n")) {
		fputc('"', out);
		for (; *text; text++)
			fprintf(out, *text == '"' ? "\"%c" : "%c", *text);
		fputc('"', out);
	} else if (text) {
		fputs(text, out);
	}
	fputc(',', out);
}

static void put_number(FILE *out, unsigned long number)
{
	if (number)
		fprintf(out, "%lu", number);
	fputc(',', out);
}

void bench_print_csv(FILE *out)
{
	fputs("bench,work,subject,of,version,api,linkage,discipline,accounting,memcg,size,batch,"
	      "threads,match,objects,groups,payers,transfer_ns,"
	      "touch,state,min_partial,time,label,quick,unit,measure,at,"
	      "median,min,max,avg,sd,rounds,planned\n", out);
	for (size_t t = 0; t < bench.table_count; t++)
		for (size_t i = 0; i < bench.tables[t].row_count; i++) {
			const struct row *row = &bench.tables[t].rows[i];
			const char *const texts[] = { row->bench,   row->work,	row->subject,
						      row->of,	    row->version, row->api,
						      row->linkage, row->discipline,
						      row->accounting ? row->accounting : "off",
						      row->memcg };

			for (size_t k = 0; k < sizeof(texts) / sizeof(*texts); k++)
				put_cell(out, texts[k]);
			put_number(out, row->size);
			put_number(out, row->batch);
			put_number(out, row->threads);
			put_number(out, row->match);
			put_number(out, row->objects);
			put_number(out, row->groups);
			put_cell(out, row->payers);
			put_number(out, row->transfer);
			put_cell(out, row->touch);
			put_cell(out, row->state);
			put_cell(out, row->min_partial);
			put_cell(out, row->time);
			put_cell(out, row->label);
			put_cell(out, bench.options.quick && row->kind != SUBJECT_PUBLISHED ?
					      "true" : NULL);
			put_cell(out, row->unit);
			put_cell(out, row->measure);
			put_cell(out, row->at);
			fprintf(out, "%.4f,%.4f,%.4f,%.4f,%.4f,%zu,", row->median, row->min,
				row->max, row->avg, row->sd, row->count);
			if (row->planned)
				fprintf(out, "%u", row->planned);
			fputc('\n', out);
		}
}
