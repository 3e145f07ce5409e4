/*
 * `netio`: packets over loopback sockets, in the shape of a network stack: pairs of a sender and a receiver (half of
 * the threads each), not pinned, a fixed number of packets. A packet is a descriptor of 256 bytes and a buffer of 2048,
 * 3072 or 4096, written whole, each from a separate cache. A sender makes bursts of 1 to 64 packets and writes the
 * packets to the socket; the socket's buffers bound the packets under way. The receiver frees the sender's packet, as
 * loopback does, and holds a descriptor and a buffer for each packet until 1 to 64 packets are read. So every cache
 * moves between empty and full slabs, from two threads.
 *
 * Reported: real, system and user time from the first packet to the last, and the slabs that the caches took from the
 * page allocator or returned until all objects were free again.
 */
#ifndef BENCH_WORK_NETIO_H
#define BENCH_WORK_NETIO_H

#include <arpa/inet.h>
#include <kmem/kmem.h>
#include <kmem/stats.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define NETIO_PAIRS 32u
#define NETIO_BURST 64u
#define NETIO_SIZES 3u
#define NETIO_SOCKET (128 << 10)	/* capacity of a socket, in bytes */

/* The start of a buffer, also on the wire. */
struct netio_head {
	struct netio_packet *packet;	/* the sender's packet, freed by the receiver */
	uint64_t sequence;
};

struct netio_packet {
	struct netio_head *buffer;
	unsigned int kind;		/* the buffer's cache */
};

static const unsigned int netio_sizes[NETIO_SIZES] = { 2048, 3072, 4096 };

static struct {
	struct kmem_cache *packets, *buffers[NETIO_SIZES];
	unsigned int amount;
	struct netio_pair {
		pthread_t sender, receiver;
		int out, in;
		uint64_t id;
	} pairs[NETIO_PAIRS];
} netio;

static struct netio_packet *netio_make(unsigned int kind)
{
	struct netio_packet *packet = kmem_cache_alloc(netio.packets, GFP_KERNEL);

	bench_check(packet);
	packet->kind = kind;
	packet->buffer = kmem_cache_alloc(netio.buffers[kind], GFP_KERNEL);
	bench_check(packet->buffer);
	return packet;
}

static void netio_drop(struct netio_packet *packet)
{
	kmem_cache_free(netio.buffers[packet->kind], packet->buffer);
	kmem_cache_free(netio.packets, packet);
}

/* The generators of receiver and sender give the same kinds, so sizes need not travel. */
static unsigned int netio_kind(uint64_t *random)
{
	return rng_index(rng_next(random), NETIO_SIZES);
}

static void netio_send(int socket, const void *from, size_t bytes)
{
	for (const char *at = from; bytes;) {
		ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);

		if (sent <= 0)
			bench_die("a packet could not be sent");
		at += sent;
		bytes -= (size_t)sent;
	}
}

static void *netio_sender(void *argument)
{
	const struct netio_pair *pair = argument;
	uint64_t kinds = pair->id, bursts = ~pair->id, sequence = 0;
	struct netio_packet *burst[NETIO_BURST];

	while (sequence < netio.amount) {
		unsigned int count = rng_between(rng_next(&bursts), 1, NETIO_BURST);

		if (count > netio.amount - sequence)
			count = (unsigned int)(netio.amount - sequence);
		for (unsigned int i = 0; i < count; i++) {
			unsigned int kind = netio_kind(&kinds);

			burst[i] = netio_make(kind);
			memset(burst[i]->buffer, (int)sequence, netio_sizes[kind]);
			burst[i]->buffer->packet = burst[i];
			burst[i]->buffer->sequence = sequence++;
		}
		/* Reads the kind first, because a sent packet may be freed at any time. */
		for (unsigned int i = 0; i < count; i++)
			netio_send(pair->out, burst[i]->buffer, netio_sizes[burst[i]->kind]);
	}
	return NULL;
}

static void *netio_receiver(void *argument)
{
	const struct netio_pair *pair = argument;
	uint64_t kinds = pair->id, wants = pair->id << 32;
	struct netio_packet *held[NETIO_BURST];
	unsigned int count = 0, want = 1;

	for (uint64_t sequence = 0; sequence < netio.amount; sequence++) {
		unsigned int kind = netio_kind(&kinds);
		struct netio_packet *packet = netio_make(kind);
		struct netio_head *head = packet->buffer;

		if (recv(pair->in, head, netio_sizes[kind], MSG_WAITALL) != netio_sizes[kind] ||
		    head->sequence != sequence || head->packet->kind != kind)
			bench_die("a packet arrived changed");
		netio_drop(head->packet);
		held[count++] = packet;
		if (count < want && sequence + 1 < netio.amount)
			continue;
		while (count)
			netio_drop(held[--count]);
		want = rng_between(rng_next(&wants), 1, NETIO_BURST);
	}
	return NULL;
}

static void netio_connect(struct netio_pair *pair)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), bytes = NETIO_SOCKET;

	pair->out = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || pair->out < 0 ||
	    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) ||
	    setsockopt(pair->out, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) ||
	    bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) ||
	    connect(pair->out, (struct sockaddr *)&address, length))
		bench_die("no connection over loopback");
	pair->in = accept(listener, NULL, NULL);
	if (pair->in < 0)
		bench_die("no connection over loopback");
	close(listener);
}

static double netio_slabs(struct kmem_cache *cache)
{
	struct kmem_cache_stats stats;

	kmem_cache_get_stats(cache, &stats);
	return (double)(stats.alloc_slab + stats.free_slab);
}

static double netio_seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Runs all threads, from the first to the last packet; prints the three times. */
static void netio_pass(unsigned int pairs)
{
	struct rusage before, after;
	uint64_t start = bench_now_ns();

	getrusage(RUSAGE_SELF, &before);
	for (unsigned int i = 0; i < pairs; i++)
		if (pthread_create(&netio.pairs[i].receiver, NULL, netio_receiver, &netio.pairs[i]) ||
		    pthread_create(&netio.pairs[i].sender, NULL, netio_sender, &netio.pairs[i]))
			bench_die("cannot make a thread");
	for (unsigned int i = 0; i < pairs; i++) {
		pthread_join(netio.pairs[i].sender, NULL);
		pthread_join(netio.pairs[i].receiver, NULL);
	}
	getrusage(RUSAGE_SELF, &after);
	bench_print("s", "real", "-", (double)(bench_now_ns() - start) / 1e9);
	bench_print("s", "sys", "-", netio_seconds(after.ru_stime) - netio_seconds(before.ru_stime));
	bench_print("s", "user", "-",
		    netio_seconds(after.ru_utime) - netio_seconds(before.ru_utime));
}

static void netio_run(const struct cell *cell)
{
	static const char *const names[NETIO_SIZES] = { "netio-2048", "netio-3072", "netio-4096" };
	unsigned int pairs = cell->threads / 2;
	double slabs;

	if (!pairs || pairs > NETIO_PAIRS)
		bench_die("netio takes 2 to 64 threads");
	netio.amount = bench_amounts.live_objects;
	netio.packets = kmem_cache_create("netio-packet", 256, 0, 0, NULL);
	for (unsigned int i = 0; i < NETIO_SIZES; i++)
		netio.buffers[i] = kmem_cache_create(names[i], netio_sizes[i], 0, 0, NULL);
	for (unsigned int i = 0; i < pairs; i++) {
		netio.pairs[i].id = i + 1;
		netio_connect(&netio.pairs[i]);
	}
	netio_pass(pairs);
	slabs = netio_slabs(netio.packets);
	for (unsigned int i = 0; i < NETIO_SIZES; i++)
		slabs += netio_slabs(netio.buffers[i]);
	bench_print("slabs", "-", "-", slabs);
	for (unsigned int i = 0; i < NETIO_SIZES; i++)
		kmem_cache_destroy(netio.buffers[i]);
	kmem_cache_destroy(netio.packets);
}

#endif
