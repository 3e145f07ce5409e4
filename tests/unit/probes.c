/*
 * probes: the notes of the probes are in the file, with names and numbers of arguments. A breakpoint at each shows
 * the values. While a tracer is attached each call passes its probe once, with its arguments, through every
 * function, and after the tracer's end hits are hits again, and pass no probe. For each engine. Not with hardened:
 * hits by the public sheaf are looked at, which is closed.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>

#include "kit/api.h"

#include <kmem/memcg.h>
#include <stdlib.h>

#include "alloc/fast_path.h"
#include "ext/usdt/usdt.h"

/* ------------------------------------------------------------------ the notes of this program */

enum { MOST = 64 };
static struct probe {
	uintptr_t at, semaphore;
	char name[32], arguments[96];
	unsigned count;				/* of arguments */
} probes[MOST];
static unsigned probe_count;
extern const char __ehdr_start[];

static unsigned words(const char *text)
{
	unsigned count = *text != '\0';

	for (; *text; text++)
		count += *text == ' ';
	return count;
}

/* Reads a note, behind its header of three words. The base is the note's address of the section. */
static void read_note(const uint32_t *note, uintptr_t bias)
{
	const char *owner = (const char *)(note + 3);
	const uint64_t *address = (const uint64_t *)(owner + (note[0] + 3) / 4 * 4);
	const char *provider = (const char *)(address + 3), *name = provider + strlen(provider) + 1;
	struct probe *probe = &probes[probe_count++];

	const bool ours = !strcmp(provider, "kmem");

	NEED(probe_count < MOST && note[2] == 3 && !strcmp(owner, "stapsdt") &&
	     (ours || !strcmp(provider, "otel_memory")));
	probe->at = address[0] + bias;
	probe->semaphore = address[2] ? address[2] + bias : 0;
	snprintf(probe->name, sizeof(probe->name), "%s%s", ours ? "" : "otel_memory:", name);
	snprintf(probe->arguments, sizeof(probe->arguments), "%s", name + strlen(name) + 1);
	probe->count = words(probe->arguments);
}

static void read_notes(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	struct stat status;

	NEED(fd >= 0 && fstat(fd, &status) == 0);
	const char *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	NEED(file != MAP_FAILED);
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
	const Elf64_Shdr *section = (const Elf64_Shdr *)(file + head->e_shoff);
	const char *names = file + section[head->e_shstrndx].sh_offset;
	for (unsigned i = 0; i < head->e_shnum; i++) {
		if (strcmp(names + section[i].sh_name, ".note.stapsdt"))
			continue;
		const char *at = file + section[i].sh_offset, *end = at + section[i].sh_size;
		while (at < end) {
			const uint32_t *note = (const uint32_t *)at;

			read_note(note, head->e_type == ET_DYN ? (uintptr_t)__ehdr_start : 0);
			at += 12 + (note[0] + 3) / 4 * 4 + (note[1] + 3) / 4 * 4;
		}
	}
	munmap((void *)file, (size_t)status.st_size);
	close(fd);
}

static const struct {
	const char *name;
	unsigned count;
	bool counted;				/* has a semaphore */
} expected[] = {
	{ "kmalloc", 7, true }, { "kmem_cache_alloc", 8, true }, { "kfree", 2, true }, { "kmem_cache_free", 3, true },
	{ "slab_alloc", 4, false }, { "slab_free", 3, false }, { "refill", 3, false }, { "charge", 4, false },
	{ "otel_memory:alloc", 3, true }, { "otel_memory:free", 1, true },
};

static struct probe *probe_of(const char *name)
{
	for (unsigned i = 0; i < probe_count; i++)
		if (!strcmp(probes[i].name, name))
			return &probes[i];
	return NULL;
}

/* ------------------------------------------------------------------ a breakpoint over each */

struct hit {
	char name[32];
	uintptr_t value[8];
};
static struct hit hits[4096];
static unsigned hit_count;

static uintptr_t value_of(const char *name, const ucontext_t *context)
{
#ifdef __x86_64__
	static const struct { const char *name; int index; } registers[] = {
		{ "%rax", REG_RAX }, { "%rbx", REG_RBX }, { "%rcx", REG_RCX }, { "%rdx", REG_RDX },
		{ "%rsi", REG_RSI }, { "%rdi", REG_RDI }, { "%rbp", REG_RBP }, { "%r8", REG_R8 }, { "%r9", REG_R9 },
		{ "%r10", REG_R10 }, { "%r11", REG_R11 }, { "%r12", REG_R12 }, { "%r13", REG_R13 },
		{ "%r14", REG_R14 }, { "%r15", REG_R15 },
	};
	size_t length = strcspn(name, " ");

	for (size_t i = 0; i < sizeof(registers) / sizeof(*registers); i++)
		if (strlen(registers[i].name) == length && !strncmp(registers[i].name, name, length))
			return (uintptr_t)context->uc_mcontext.gregs[registers[i].index];
#else
	if (*name == 'x')
		return context->uc_mcontext.regs[atoi(name + 1)];
#endif
	NEED(!"a register that is none");
	return 0;
}

static void on_trap(int number, siginfo_t *info, void *arg)
{
	ucontext_t *context = arg;
#ifdef __x86_64__
	uintptr_t at = (uintptr_t)context->uc_mcontext.gregs[REG_RIP] - 1;
#else
	uintptr_t at = context->uc_mcontext.pc;
	context->uc_mcontext.pc += 4;
#endif
	(void)number, (void)info;
	for (unsigned i = 0; i < probe_count; i++) {
		const char *argument = probes[i].arguments;

		if (probes[i].at != at)
			continue;
		NEED(hit_count < sizeof(hits) / sizeof(*hits));
		strcpy(hits[hit_count].name, probes[i].name);
		for (unsigned j = 0; j < probes[i].count; j++, argument += strcspn(argument, " ") + 1)
			hits[hit_count].value[j] = value_of(strchr(argument, '@') + 1, context);
		hit_count++;
		return;
	}
	NEED(!"a trap that is none of ours");
}

static void arm(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };

	sigaction(SIGTRAP, &action, NULL);
	for (unsigned i = 0; i < probe_count; i++) {
		void *page = (void *)(probes[i].at & -4096ul);

		NEED(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
#ifdef __x86_64__
		NEED(*(uint8_t *)probes[i].at == 0x90);
		*(volatile uint8_t *)probes[i].at = 0xcc;
#else
		*(volatile uint32_t *)probes[i].at = 0xd4200000;
#endif
		__builtin___clear_cache((char *)probes[i].at, (char *)probes[i].at + 4);
	}
}

/* The only probe of this name since the last clear. */
static const struct hit *only(const char *name)
{
	const struct hit *found = NULL;

	/*
	 * A handler writes the hits. The compiler assumes that malloc changes no static variable of this
	 * file.
	 */
	__asm__ volatile("" : : : "memory");
	for (unsigned i = 0; i < hit_count; i++)
		if (!strcmp(hits[i].name, name)) {
			NEED(!found, "%s twice", name);
			found = &hits[i];
		}
	NEED(found, "no %s", name);
	return found;
}

static void clear(void)
{
	hit_count = 0;
}

/* ------------------------------------------------------------------ */

/* Misses until the library has seen the tracer's state. */
static void until(bool probing)
{
	static void *kept[200000];
	unsigned count = 0;

	while (km_load(&km_alloc_probing) != probing) {
		NEED(count < sizeof(kept) / sizeof(*kept));
		NEED((kept[count++] = kmalloc(64, GFP_KERNEL)));
		clear();
	}
	while (count)
		kfree(kept[--count]);
	clear();
}

static void attach(int by)
{
	km_probe_counts.of.kmalloc += by;
	km_probe_counts.of.kmem_cache_alloc += by;
	km_probe_counts.of.kfree += by;
	km_probe_counts.of.kmem_cache_free += by;
	until(by > 0);
}

static void notes(void)
{
	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		const struct probe *probe = probe_of(expected[i].name);

		CHECK(probe && probe->count == expected[i].count && !probe->semaphore == !expected[i].counted,
		      "%s", expected[i].name);
	}
	CHECK_EQUAL(probe_of("kmalloc")->semaphore, (uintptr_t)&km_probe_counts.of.kmalloc);
	CHECK_EQUAL(probe_of("kmem_cache_free")->semaphore, (uintptr_t)&km_probe_counts.of.kmem_cache_free);
}

static void caches(void)
{
	struct kmem_cache *cache = make("traced", 100);
	void *p, *many[10];

	attach(1);
	for (int i = 0; i < 100; i++) {
		clear();
		p = kmem_cache_alloc(cache, GFP_KERNEL);
		const struct hit *hit = only("kmem_cache_alloc");
		NEED(hit->value[1] == (uintptr_t)p && !strcmp((char *)hit->value[2], "traced"));
		NEED(hit->value[3] == 100 && hit->value[4] >= 100 && hit->value[5] == GFP_KERNEL);
		NEED((int)hit->value[6] == NUMA_NO_NODE && hit->value[7] == 0);
#if defined(__x86_64__) && !defined(KM_DEBUG)
		NEED(hit->value[0] - (uintptr_t)caches < 4096);
#endif
		clear();
		kmem_cache_free(cache, p);
		hit = only("kmem_cache_free");
		NEED(hit->value[1] == (uintptr_t)p && !strcmp((char *)hit->value[2], "traced"));
	}
	clear();
	NEED(kmem_cache_alloc_bulk(cache, GFP_KERNEL, 10, many));
	kmem_cache_free_bulk(cache, 10, many);
	unsigned in = 0, out = 0;
	for (unsigned i = 0; i < hit_count; i++) {
		in += !strcmp(hits[i].name, "kmem_cache_alloc");
		out += !strcmp(hits[i].name, "kmem_cache_free");
	}
	CHECK_EQUAL(in, 10);
	CHECK_EQUAL(out, 10);
	/* A cache created meanwhile. */
	struct kmem_cache *later = make("later", 40);
	clear();
	p = kmem_cache_zalloc(later, GFP_KERNEL);
	NEED(only("kmem_cache_alloc")->value[5] & __GFP_ZERO && all(p, 0, 40));
	kmem_cache_free(later, p);
	attach(-1);
	for (int i = 0; i < 100; i++) {
		kmem_cache_free(cache, kmem_cache_alloc(cache, GFP_KERNEL));
		kmem_cache_free(later, kmem_cache_alloc(later, GFP_KERNEL));
	}
	for (unsigned i = 0; i < hit_count; i++)
		NEED(strcmp(hits[i].name, "kmem_cache_alloc") && strcmp(hits[i].name, "kmem_cache_free"));
	if (!strcmp(kmem_percpu_discipline(), "rseq"))
		NEED(!cache->ext.hooks &&
		     !cache->fast.pcs.front.open.pcs ==
			     (cache->layout.engine->front != KM_PERCPU_SHEAVES));
	gone(cache);
	gone(later);
}

static void sizes(void)
{
	static const size_t size[] = { 1, 100, 4000, 8192, 8193, 100000, 3 << 20 };

	attach(1);
	for (unsigned i = 0; i < 7 * 20; i++) {
		size_t bytes = size[i % 7];

		clear();
		void *p = kmalloc(bytes, GFP_KERNEL | __GFP_NOWARN);
		const struct hit *hit = only("kmalloc");
		/* A request for whole pages is recorded in whole pages. */
		size_t asked = bytes > KMALLOC_MAX_CACHE_SIZE ? (bytes + 4095) & -4096ul : bytes;
		NEED(hit->value[1] == (uintptr_t)p && hit->value[2] == asked && hit->value[3] >= bytes, "%zu", bytes);
		NEED(hit->value[4] == (GFP_KERNEL | __GFP_NOWARN));
#if defined(__x86_64__) && !defined(KM_DEBUG)
		NEED(slob || bytes > 8192 || hit->value[0] - (uintptr_t)sizes < 4096);
#endif
		clear();
		kfree(p);
		NEED(only("kfree")->value[1] == (uintptr_t)p);
		clear();
		p = malloc(bytes);
		NEED(only("kmalloc")->value[1] == (uintptr_t)p && only("kmalloc")->value[2] == bytes);
		clear();
		free(p);
		NEED(only("kfree")->value[1] == (uintptr_t)p);
	}
	attach(-1);
	for (unsigned i = 0; i < 100; i++)
		kfree(kmalloc(100, GFP_KERNEL));
	for (unsigned i = 0; i < hit_count; i++)
		NEED(strcmp(hits[i].name, "kmalloc") && strcmp(hits[i].name, "kfree"));
	NEED(kmem_check_all() == 0);
}

static void objcgs(void)
{
	struct mem_cgroup *group = slob ? NULL : mem_cgroup_create(NULL, "group", 0);
	struct kmem_cache *cache = make("charged", 64);
	void *objects[100];

	if (!group)
		return;
	struct mem_cgroup *former = set_active_memcg(group);
	for (int round = 0; round < 2; round++) {
		/* Some lie charged when the tracer comes. */
		for (int i = 0; i < 100; i++)
			NEED((objects[i] = kmem_cache_alloc(cache, GFP_KERNEL_ACCOUNT)));
		for (int i = 0; i < 100; i++)
			kmem_cache_free(cache, objects[i]);
		attach(1);
		for (int i = 0; i < 100; i++) {
			clear();
			void *p = kmem_cache_alloc(cache, GFP_KERNEL_ACCOUNT);
			NEED(only("kmem_cache_alloc")->value[1] == (uintptr_t)p);
			clear();
			kmem_cache_free(cache, p);
			NEED(only("kmem_cache_free")->value[1] == (uintptr_t)p);
		}
		attach(-1);
	}
	set_active_memcg(former);
	gone(cache);
	mem_cgroup_put(group);
}

static void slabs(void)
{
	struct kmem_cache *cache = make("slabs", 3000);

	clear();
	void *p = kmem_cache_alloc(cache, GFP_KERNEL);
	kmem_cache_free(cache, p);
	kmem_cache_shrink(cache);
	bool came = false, went = false;
	for (unsigned i = 0; i < hit_count; i++) {
		came |= !strcmp(hits[i].name, "slab_alloc") && !strcmp((char *)hits[i].value[0], "slabs");
		went |= !strcmp(hits[i].name, "slab_free") && !strcmp((char *)hits[i].value[0], "slabs");
	}
	NEED((came && went) || slob);
	gone(cache);
}

#define ARMED(name) static void armed_##name(void) { read_notes(); arm(); name(); NEED(!failures); }
static void read_only(void) { read_notes(); notes(); NEED(!failures); }
ARMED(caches)
ARMED(sizes)
ARMED(objcgs)
ARMED(slabs)

static const struct test_case cases[] = {
	{ "notes", read_only }, { "caches", armed_caches }, { "sizes", armed_sizes }, { "payers", armed_objcgs },
	{ "slabs", armed_slabs },
};
API_MAIN(cases)
