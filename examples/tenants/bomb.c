/*
 * bomb.c: a decompression bomb. Eight requests have a compressed body: seven bodies are 200 kB of text, one body is
 * 64 MiB of zeros, compressed to 64 KiB. Each request is a group with a limit of 1 MiB. The limit stops the bomb;
 * the program unpacks the other bodies.
 *
 * Hooks of zlib charge zlib's own memory to the group of the request. The output is memory of libc, unknown to
 * libkmem. So the program charges the output by hand before the allocation, and uncharges the output when the
 * output is freed.
 */
#define TENANTS	8
#define EACH	(1ul << 20)
#define ALL	(4ul << 20)
#define BOMB	5
#define STEP	(64ul << 10)	/* bytes by which the output grows */

#include <zlib.h>

#include "tenants.h"

static struct body {
	unsigned char *packed, *output;
	unsigned long packed_bytes, plain_bytes, room, got;
	int status;
} body[TENANTS];

static void *take(void *request, unsigned int items, unsigned int size)
{
	MEMCG_SCOPE(request);

	return kvmalloc_array(items, size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
}

static void give(void *request, void *block)
{
	(void)request;
	kvfree(block);
}

/* Makes room for more output. Returns false at the limit of the request. */
static bool grow(struct body *b, z_stream *z)
{
	if (mem_cgroup_charge(z->opaque, GFP_KERNEL, STEP))
		return false;
	unsigned char *larger = realloc(b->output, b->room + STEP);
	if (!larger) {
		mem_cgroup_uncharge(z->opaque, STEP);
		return false;
	}
	b->output = larger;
	z->next_out = larger + b->room;
	z->avail_out = STEP;
	b->room += STEP;
	return true;
}

static void unpack(int i)
{
	struct body *b = &body[i];
	z_stream z = { .zalloc = take, .zfree = give, .opaque = group[i],
		       .next_in = b->packed, .avail_in = (unsigned int)b->packed_bytes };

	b->status = inflateInit(&z);
	while (b->status == Z_OK)
		b->status = z.avail_out || grow(b, &z) ? inflate(&z, Z_NO_FLUSH) : Z_MEM_ERROR;
	b->got = z.total_out;
	inflateEnd(&z);
}

/* Returns byte `at` of body `i`, unpacked. */
static unsigned char plain(int i, unsigned long at)
{
	return i == BOMB ? 0 : (unsigned char)('a' + at / (unsigned long)(i + 1) % 26);
}

static void pack(int i)
{
	struct body *b = &body[i];

	b->plain_bytes = i == BOMB ? 64ul << 20 : 200000;
	b->packed_bytes = compressBound(b->plain_bytes);
	b->packed = malloc(b->packed_bytes);
	unsigned char *all = malloc(b->plain_bytes);
	must(all && b->packed, "malloc");
	for (unsigned long at = 0; at < b->plain_bytes; at++)
		all[at] = plain(i, at);
	must(compress2(b->packed, &b->packed_bytes, all, b->plain_bytes, 9) == Z_OK, "compress2");
	free(all);
}

static bool right(int i)
{
	unsigned long at = 0;

	while (at < body[i].got && body[i].output[at] == plain(i, at))
		at++;
	return body[i].status == Z_STREAM_END && at == body[i].plain_bytes;
}

int main(void)
{
	open_groups("requests");
	serve_all(pack);
	serve_all(unpack);
	for (int i = 0; i < TENANTS; i++)
		printf("tenant %d: %6lu bytes became %7lu: %s\n", i, body[i].packed_bytes, body[i].got,
		       right(i) ? "right" : body[i].status == Z_MEM_ERROR ? "stopped at its limit" : "wrong");
	print_tree(2);

	for (int i = 0; i < TENANTS; i++) {
		mem_cgroup_uncharge(group[i], body[i].room);
		free(body[i].output);
		free(body[i].packed);
	}
	close_groups();
	return 0;
}
