/*
 * profile_pprof.c: writes a profile for pprof: a protocol buffer message, profile.proto, in gzip's format. Each stack
 * has four values, named as in heap profiles of other allocators. Invariant: a nested message is complete before
 * being put into another message.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "function_names.h"
#include "profile_data.h"

/* ------------------------------------------------------------------ bytes */

struct bytes {
	uint8_t *at;
	size_t count, room;
};

static void put(struct bytes *bytes, const void *from, size_t count)
{
	if (bytes->room - bytes->count < count) {
		bytes->room = (bytes->room + count) * 2;
		bytes->at = kmem_need(realloc(bytes->at, bytes->room));
	}
	memcpy(bytes->at + bytes->count, from, count);
	bytes->count += count;
}

static void put_varint(struct bytes *bytes, uint64_t value)
{
	uint8_t byte;

	do {
		byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		put(bytes, &byte, 1);
	} while (value >>= 7);
}

static void put_number(struct bytes *bytes, unsigned field, uint64_t value)
{
	put_varint(bytes, field << 3);
	put_varint(bytes, value);
}

static void put_text(struct bytes *bytes, unsigned field, const void *text, size_t count)
{
	put_varint(bytes, field << 3 | 2);
	put_varint(bytes, count);
	put(bytes, text, count);
}

/* Appends the message `part` as a field of `bytes`, and empties `part`. */
static void put_message(struct bytes *bytes, unsigned field, struct bytes *part)
{
	put_text(bytes, field, part->at, part->count);
	part->count = 0;
}

/* ------------------------------------------------------------------ strings, each once */

struct strings {
	const char **text;
	size_t count, room, *place, places;
};

static size_t hash(const char *text)
{
	size_t sum = 5381;

	while (*text)
		sum = sum * 33 ^ (unsigned char)*text++;
	return sum;
}

static void make_room(struct strings *strings)
{
	free(strings->place);
	strings->places = strings->places ? strings->places * 2 : 1024;
	strings->place = kmem_need(calloc(strings->places, sizeof(*strings->place)));
	for (size_t i = 0; i < strings->count; i++) {
		size_t at = hash(strings->text[i]);

		while (strings->place[at % strings->places])
			at++;
		strings->place[at % strings->places] = i + 1;
	}
}

static uint64_t string(struct strings *strings, const char *text)
{
	size_t at = hash(text);

	if (strings->count * 2 >= strings->places)
		make_room(strings);
	for (;; at++) {
		size_t place = strings->place[at % strings->places];

		if (place && !strcmp(strings->text[place - 1], text))
			return place - 1;
		if (!place)
			break;
	}
	strings->text = kmem_grow(strings->text, strings->count, &strings->room, sizeof(*strings->text));
	strings->text[strings->count] = text;
	strings->place[at % strings->places] = strings->count + 1;
	return strings->count++;
}

/* ------------------------------------------------------------------ the message */

enum { PROFILE_SAMPLE_TYPE = 1, PROFILE_SAMPLE, PROFILE_MAPPING, PROFILE_LOCATION, PROFILE_FUNCTION, PROFILE_STRING,
       PROFILE_TIME_NANOS = 9, PROFILE_DURATION_NANOS, PROFILE_PERIOD_TYPE, PROFILE_PERIOD, PROFILE_COMMENT,
       PROFILE_DEFAULT_TYPE };

static void put_type(struct bytes *to, struct bytes *part, unsigned field, uint64_t type, uint64_t unit)
{
	put_number(part, 1, type);
	put_number(part, 2, unit);
	put_message(to, field, part);
}

static void put_label(struct bytes *to, struct strings *strings, const char *key, const char *value)
{
	struct bytes part = { NULL, 0, 0 };

	if (!*value)
		return;
	put_number(&part, 1, string(strings, key));
	put_number(&part, 2, string(strings, value));
	put_message(to, 3, &part);
	free(part.at);
}

static uint64_t objects(uint64_t parts)
{
	return (parts + KMEM_PROFILE_PART / 2) / KMEM_PROFILE_PART;
}

static void put_sample(struct bytes *to, struct strings *strings, const struct stack *stack)
{
	const uint64_t values[] = {
		objects(stack->parts), stack->bytes, objects(stack->out_parts), stack->out_bytes,
	};
	struct bytes sample = { NULL, 0, 0 }, part = { NULL, 0, 0 };

	for (unsigned i = 0; i < stack->depth; i++)
		put_varint(&part, stack->frame[i] + 1);
	put_message(&sample, 1, &part);
	for (unsigned i = 0; i < 4; i++)
		put_varint(&part, values[i]);
	put_message(&sample, 2, &part);
	put_label(&sample, strings, "cache", stack->cache);
	put_label(&sample, strings, "group", stack->group);
	put_message(to, PROFILE_SAMPLE, &sample);
	free(sample.at);
	free(part.at);
}

static void put_location(struct bytes *to, const struct frame *frame, unsigned id)
{
	struct bytes location = { NULL, 0, 0 }, part = { NULL, 0, 0 };

	put_number(&location, 1, id);
	if (frame->mapped >= 0)
		put_number(&location, 2, (uint64_t)frame->mapped + 1);
	/* pc is a return address; pc - 1 lies in the call instruction. */
	put_number(&location, 3, frame->pc - 1);
	for (unsigned i = 0; i < frame->count; i++) {
		put_number(&part, 1, frame->steps[i].function + 1);
		put_number(&part, 2, (uint64_t)frame->steps[i].line);
		put_message(&location, 4, &part);
	}
	put_message(to, PROFILE_LOCATION, &location);
	free(location.at);
	free(part.at);
}

static void put_tables(struct bytes *to, struct strings *strings, const struct profile *profile)
{
	struct bytes part = { NULL, 0, 0 };

	for (size_t i = 0; i < profile->mappings; i++) {
		const struct mapped *mapped = &profile->mapped[i];

		put_number(&part, 1, i + 1);
		put_number(&part, 2, mapped->start);
		put_number(&part, 3, mapped->end);
		put_number(&part, 4, mapped->offset);
		put_number(&part, 5, string(strings, mapped->path));
		/* has_functions: pprof need not look up names again. */
		put_number(&part, 7, true);
		put_message(to, PROFILE_MAPPING, &part);
	}
	for (size_t i = 0; i < profile->frames; i++)
		put_location(to, &profile->frame[i], (unsigned)i + 1);
	for (size_t i = 0; i < profile->functions; i++) {
		const struct function *function = &profile->function[i];

		put_number(&part, 1, i + 1);
		put_number(&part, 2, string(strings, function->name));
		put_number(&part, 3, string(strings, function->name));
		put_number(&part, 4, string(strings, function->source));
		put_message(to, PROFILE_FUNCTION, &part);
	}
	free(part.at);
}

static void put_profile(struct bytes *to, const struct profile *profile)
{
	static const char *const types[][2] = {
		{ "alloc_objects", "count" }, { "alloc_space", "bytes" },
		{ "inuse_objects", "count" }, { "inuse_space", "bytes" },
	};
	struct strings strings = { NULL, 0, 0, NULL, 0 };
	struct bytes part = { NULL, 0, 0 };

	string(&strings, "");
	for (unsigned i = 0; i < 4; i++)
		put_type(to, &part, PROFILE_SAMPLE_TYPE, string(&strings, types[i][0]), string(&strings, types[i][1]));
	for (size_t i = 0; i < profile->stacks; i++)
		put_sample(to, &strings, &profile->stack[i]);
	put_tables(to, &strings, profile);
	put_number(to, PROFILE_TIME_NANOS, profile->began_ns);
	put_number(to, PROFILE_DURATION_NANOS, profile->ms * 1000000);
	put_type(to, &part, PROFILE_PERIOD_TYPE, string(&strings, "space"), string(&strings, "bytes"));
	put_number(to, PROFILE_PERIOD, profile->mean);
	put_number(to, PROFILE_DEFAULT_TYPE, string(&strings, profile->nothing_out ? "alloc_space" : "inuse_space"));
	for (size_t i = 0; i < strings.count; i++)
		put_text(to, PROFILE_STRING, strings.text[i], strlen(strings.text[i]));
	free(strings.text);
	free(strings.place);
	free(part.at);
}

/* ------------------------------------------------------------------ gzip, without compressing */

static uint32_t checksum(const uint8_t *at, size_t count)
{
	uint32_t crc = ~0u;

	while (count--) {
		crc ^= *at++;
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

static void put_little(struct bytes *to, uint64_t value, unsigned count)
{
	for (; count--; value >>= 8)
		put(to, &(uint8_t){ (uint8_t)value }, 1);
}

static void put_gzip(struct bytes *to, const struct bytes *from)
{
	static const uint8_t head[] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3 };
	size_t done = 0;

	put(to, head, sizeof(head));
	do {
		size_t now = from->count - done < 65535 ? from->count - done : 65535;

		put_little(to, done + now == from->count, 1);
		put_little(to, now, 2);
		put_little(to, ~now, 2);
		put(to, from->at + done, now);
		done += now;
	} while (done < from->count);
	put_little(to, checksum(from->at, from->count), 4);
	put_little(to, from->count, 4);
}

bool profile_write_pprof(const struct profile *profile, FILE *to)
{
	struct bytes message = { NULL, 0, 0 }, packed = { NULL, 0, 0 };

	put_profile(&message, profile);
	put_gzip(&packed, &message);
	bool done = fwrite(packed.at, packed.count, 1, to) == 1;
	free(message.at);
	free(packed.at);
	return done;
}
