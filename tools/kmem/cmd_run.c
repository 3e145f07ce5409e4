/*
 * cmd_run.c: `kmem run`, starts a program with libkmem-malloc.so preloaded. The command prepares the environment and
 * calls execvp. Invariant: no process stays between the shell and the program, so signals, exit status and terminal
 * are the program's own.
 *
 * Exit status: the program's; 2 wrong usage; 127 no such program; 126 the program, the library, or the file for
 * statistics can't be used.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <kmem/memcg.h>
#include <kmem/record.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/option_text.h"
#include "slab/engines.h"
#include "command.h"
#include "paths.h"
#include "ext/debug/debug_letters.h"

#define LIBRARY "libkmem-malloc.so"
#define MOST_DEBUG 511		/* bytes of KMEM_DEBUG */
#define MOST_FAIL 400		/* bytes of KMEM_FAILSLAB, without the words of set_fail */

static const char usage_text[] =
	"usage: kmem run [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
	"Start a program with libkmem as its malloc.\n"
	"  --engine NAME      engine of all caches: " KM_ENGINES(KM_ENGINE_QUOTED, ", ") "\n"
	"  --percpu NAME      per-CPU discipline: auto, rseq, cmpxchg, lock\n"
	"  --limit SIZE       limit of the program's memory, for example 512M or 1.5G;\n"
	"                     malloc fails with ENOMEM at the limit\n"
	"  --group NAME       name of the group charged (default: the program's name)\n"
	"  --hardened         validate each free, and more: kmem_options(7)\n"
	"  --debug SETTINGS   caches to debug: FZPU, or FZPU,malloc-*: kmem_debug(7)\n"
	"  --fail SETTINGS    fail allocations on purpose: 1,5,0,-1: kmem_debug(7)\n"
	"  --guard[=MS|each]  guard an object each MS milliseconds (100), or each object\n"
	"  --options K:V,...  any other options: kmem_options(7)\n"
	"  --leaks[=FILE]     at the end, print the callers of allocations without a free\n"
	"                     to stderr or to FILE; %p in the name is the process id\n"
	"  --stats[=FILE]     at the end, print slabinfo to stderr, or JSON to FILE\n"
	"The variable KMEM_LIBRARY names another " LIBRARY ".\n"
	"Example:\n"
	"  kmem run --limit 512M -- redis-server\n";

struct run_options {
	const char *engine, *percpu, *limit, *group, *options, *stats, *leaks, *debug, *fail, *hardened,
		   *guard;
};

static void check_name(const char *option, const char *name, const char *const *known)
{
	char list[128] = "";

	for (size_t i = 0; known[i]; i++) {
		if (!strcmp(name, known[i]))
			return;
		strcat(strcat(list, i ? ", " : ""), known[i]);
	}
	kmem_usage("run", "--%s: unknown value '%s'; the values are %s", option, name, list);
}

/* Rejects a bad group name. The library would shorten the name and replace characters, and the user could not
 * find the group by the given name. */
static void check_group(const char *name)
{
	if (!*name || strlen(name) >= MEMCG_NAME_MAX)
		kmem_usage("run", "--group: a name has 1 to %d bytes", MEMCG_NAME_MAX - 1);
	for (; *name; name++)
		if (*name == ',' || *name == '/' || (unsigned char)*name < ' ' || *name == 0x7f)
			kmem_usage("run", "--group: a name must not have a comma, slash or control character");
}

static void check_limit(const char *text)
{
	uint64_t bytes;

	if (!km_parse_bytes(text, &bytes))
		kmem_usage("run", "--limit: '%s' is not a size: give bytes, or a number with K, M, G or T, for "
				  "example 512M or 1.5G", text);
}

static void check_fail(const char *text)
{
	char bad[KM_FAILING_WORD];

	if (strlen(text) > MOST_FAIL)
		kmem_usage("run", "--fail: longer than %d bytes", MOST_FAIL);
	if (!km_failing_fits(text, bad))
		kmem_usage("run", "--fail: bad setting '%s'", bad);
}

static void check_guard(const char *text)
{
	if (km_option_apply("guard", text) != KM_OPTION_FITS)
		kmem_usage("run", "--guard: '%s' is neither milliseconds nor each", text);
}

/* Checks --options by applying each pair to the command's own copy of the library. */
static void check_options(const char *text)
{
	char pair[512];

	while (*text) {
		size_t length = strcspn(text, ",");

		if (length >= sizeof(pair))
			kmem_usage("run", "--options: longer than %zu bytes", sizeof(pair) - 1);
		snprintf(pair, sizeof(pair), "%.*s", (int)length, text);
		text += length + (text[length] == ',');
		char *colon = strchr(pair, ':');
		if (colon == pair || (!colon && *pair && strcmp(pair, "help")))
			kmem_usage("run", "--options: '%s' is not key:value", pair);
		if (colon)
			*colon = '\0';
		if (!colon || !strcmp(pair, "help"))	/* empty, or help: printed by the program */
			continue;
		switch (km_option_apply(pair, colon + 1)) {
		case KM_OPTION_FITS:
			break;
		case KM_OPTION_BAD:
			kmem_usage("run", "--options: bad value for %s: '%s'; KMEM_OPTIONS=help lists all values",
				   pair, colon + 1);
		case KM_OPTION_UNKNOWN:
			kmem_usage("run", "--options: unknown key '%s'; KMEM_OPTIONS=help lists all keys", pair);
		}
	}
}

static const char *file_of(const char *option, const char *name)
{
	if (name && !*name)
		kmem_usage("run", "--%s=: the name of the file is missing", option);
	return name ?: "-";
}

static void check_debug(const char *text)
{
	char letter;

	if (strlen(text) > MOST_DEBUG)
		kmem_usage("run", "--debug: longer than %d bytes", MOST_DEBUG);
	if (!km_debug_fits(text, &letter))
		kmem_usage("run", "--debug: unknown letter '%c'; KMEM_DEBUG=help lists all letters", letter);
}

static const struct option known[] = {
	{ "engine", required_argument, NULL, 'e' },
	{ "percpu", required_argument, NULL, 'p' },
	{ "limit", required_argument, NULL, 'l' },
	{ "group", required_argument, NULL, 'g' },
	{ "hardened", no_argument, NULL, 'H' },
	{ "debug", required_argument, NULL, 'd' },
	{ "fail", required_argument, NULL, 'f' },
	{ "guard", optional_argument, NULL, 'u' },
	{ "options", required_argument, NULL, 'o' },
	{ "leaks", optional_argument, NULL, 'k' },
	{ "stats", optional_argument, NULL, 's' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int parse(int argc, char **argv, struct run_options *options)
{
	static const char *const engines[] = { KM_ENGINE_NAMES NULL };
	static const char *const disciplines[] = { "auto", "rseq", "cmpxchg", "lock", NULL };
	int code;

	/* "+": words after the program's name belong to the program. */
	while ((code = kmem_next_option("run", usage_text, argc, argv, "+:", known)) != -1) {
		switch (code) {
		case 'e':
			check_name("engine", options->engine = optarg, engines);
			break;
		case 'p':
			check_name("percpu", options->percpu = optarg, disciplines);
			break;
		case 'l':
			check_limit(options->limit = optarg);
			break;
		case 'g':
			check_group(options->group = optarg);
			break;
		case 'H':
			options->hardened = "1";
			break;
		case 'd':
			check_debug(options->debug = optarg);
			break;
		case 'f':
			check_fail(options->fail = optarg);
			break;
		case 'u':
			check_guard(options->guard = optarg ?: "100");
			break;
		case 'o':
			check_options(options->options = optarg);
			break;
		case 's':
			options->stats = file_of("stats", optarg);
			break;
		case 'k':
			options->leaks = file_of("leaks", optarg);
			break;
		}
	}
	if (optind >= argc)
		kmem_usage("run", "a program is missing: kmem run [OPTION...] -- PROGRAM");
	return optind;
}

/* ------------------------------------------------------------------ where things are */

/* Finds the library folder of an installation moved as a whole. The common part of KMEM_BINDIR and KMEM_LIBDIR is
 * dropped; the rest of KMEM_BINDIR must be the end of `self` (the command's folder), and the rest of KMEM_LIBDIR
 * replaces that end. Returns: `path`, or NULL if the command's folder has another name. */
static const char *beside(const char *self, char *path, size_t bytes)
{
	const char *bin = KMEM_BINDIR, *lib = KMEM_LIBDIR;
	size_t common = 0, i = 0, length = strlen(self);

	for (; bin[i] && bin[i] == lib[i]; i++)
		if (bin[i] == '/')
			common = i + 1;
	bin += common;
	lib += common;
	if (length <= strlen(bin) || strcmp(self + length - strlen(bin), bin) ||
	    self[length - strlen(bin) - 1] != '/')
		return NULL;
	snprintf(path, bytes, "%.*s%s", (int)(length - strlen(bin)), self, lib);
	return path;
}

/* Looks for the library in a folder, by soname and by the linker's name. `resolved`: the path without links. */
static bool in_folder(const char *folder, char *resolved)
{
	static const char *const names[] = { LIBRARY "." KMEM_SOVERSION, LIBRARY };
	char candidate[PATH_MAX * 2];

	for (size_t i = 0; folder && i < sizeof(names) / sizeof(*names); i++) {
		int length = snprintf(candidate, sizeof(candidate), "%s/%s", folder, names[i]);

		if (length < (int)sizeof(candidate) && realpath(candidate, resolved))
			return true;
	}
	return false;
}

/* Finds the library, in this order: $KMEM_LIBRARY; the command's folder (build/); the library folder of a moved
 * installation; ../lib; KMEM_LIBDIR. Returns: 0, or the exit status after an error message. */
static int find_library(char *path, size_t bytes)
{
	const char *named = getenv("KMEM_LIBRARY");
	char self[PATH_MAX], moved[PATH_MAX * 2], up[PATH_MAX + 8], resolved[PATH_MAX];

	if (named && *named) {
		if (!realpath(named, resolved))
			return kmem_failed(126, "run", "KMEM_LIBRARY=%s: %s", named,
					   strerror(errno));
	} else {
		ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

		if (length < 0)
			return kmem_failed(126, "run", "/proc/self/exe: %s", strerror(errno));
		self[length] = '\0';
		*strrchr(self, '/') = '\0';
		snprintf(up, sizeof(up), "%s/../lib", self);
		if (!in_folder(self, resolved) && !in_folder(beside(self, moved, sizeof(moved)), resolved) &&
		    !in_folder(up, resolved) && !in_folder(KMEM_LIBDIR, resolved))
			return kmem_failed(126, "run", "no " LIBRARY " in %s, %s or %s", self, up, KMEM_LIBDIR);
	}
	/* The dynamic loader splits LD_PRELOAD at spaces and colons, and has no way to quote them. */
	if (strpbrk(resolved, " :"))
		return kmem_failed(126, "run",
				   "%s: a path with a space or colon cannot be preloaded; set KMEM_LIBRARY to "
				   "another path", resolved);
	return snprintf(path, bytes, "%s", resolved) < (int)bytes ? 0 :
	       kmem_failed(126, "run", "path too long");
}

/* Returns: the path of the file that execvp would run, or NULL. */
static const char *find_program(const char *name, char *path, size_t bytes)
{
	const char *at = getenv("PATH") ?: "/bin:/usr/bin";

	if (strchr(name, '/'))
		return name;
	for (; *at; at += *at == ':') {
		size_t length = strcspn(at, ":");

		snprintf(path, bytes, "%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
		at += length;
		if (access(path, X_OK) == 0)
			return path;
	}
	return NULL;
}

/* ------------------------------------------------------------------ what the program is */

struct image {
	const char *bytes;
	size_t length;
	const Elf64_Ehdr *head;
	const Elf64_Phdr *segments;
};

/* Returns: `length` bytes of the file at offset `at`, or NULL if the file is shorter. */
static const void *part(const struct image *image, uint64_t at, uint64_t length)
{
	return at <= image->length && length <= image->length - at ? image->bytes + at : NULL;
}

/* Maps an ELF file and finds the program headers. Returns: false for an unreadable file or no 64-bit ELF file. */
static bool open_image(const char *path, struct image *image)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;

	memset(image, 0, sizeof(*image));
	if (fd < 0)
		return false;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
		void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (map != MAP_FAILED)
			*image = (struct image){ .bytes = map, .length = (size_t)status.st_size };
	}
	close(fd);
	image->head = part(image, 0, sizeof(*image->head));
	if (!image->head || memcmp(image->head->e_ident, ELFMAG, SELFMAG) ||
	    image->head->e_ident[EI_CLASS] != ELFCLASS64 || image->head->e_phentsize != sizeof(Elf64_Phdr))
		return false;
	image->segments = part(image, image->head->e_phoff, image->head->e_phnum * sizeof(Elf64_Phdr));
	return image->segments;
}

static const Elf64_Phdr *segment_of(const struct image *image, unsigned type)
{
	for (unsigned i = 0; i < image->head->e_phnum; i++)
		if (image->segments[i].p_type == type)
			return &image->segments[i];
	return NULL;
}

/* Finds the bytes of the file for a virtual address. *length: bytes from there to the end of the segment in the file.
 * Returns: NULL if no PT_LOAD segment holds the address. */
static const char *loaded(const struct image *image, uint64_t address, uint64_t *length)
{
	for (unsigned i = 0; i < image->head->e_phnum; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (segment->p_type != PT_LOAD || address - segment->p_vaddr >= segment->p_filesz)
			continue;
		*length = segment->p_filesz - (address - segment->p_vaddr);
		return part(image, segment->p_offset + (address - segment->p_vaddr), *length);
	}
	return NULL;
}

static const Elf64_Dyn *dynamic_part(const struct image *image, size_t *count)
{
	const Elf64_Phdr *segment = segment_of(image, PT_DYNAMIC);
	const Elf64_Dyn *dynamic = segment ? part(image, segment->p_offset, segment->p_filesz) : NULL;

	*count = dynamic ? segment->p_filesz / sizeof(*dynamic) : 0;
	return dynamic;
}

/* Recognizes the dynamic loader run as a program (ld.so PROGRAM): the loader preloads into the named program. The
 * loader's file is a shared object without PT_INTERP, like a static program, but without DF_1_PIE. */
static bool is_loader(const struct image *image)
{
	size_t count;
	const Elf64_Dyn *dynamic = dynamic_part(image, &count);

	if (image->head->e_type != ET_DYN || segment_of(image, PT_INTERP) || !dynamic)
		return false;
	for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++)
		if (dynamic[i].d_tag == DT_FLAGS_1 && dynamic[i].d_un.d_val & DF_1_PIE)
			return false;
	return true;
}

#define MUST_BE_FIRST	"whose malloc must come first: build the program without it, or link the program with libkmem"
#define FINDS_NOTHING	"which finds no leaks of libkmem's malloc: build the program without it (kmem run --leaks " \
			"reports leaks), or link the program with libkmem"

struct sanitizer {
	const char *library, *name, *why;
};

/* Returns: the sanitizer among the program's DT_NEEDED libraries, or NULL. A sanitizer's library has a malloc too.
 * Behind a preloaded libkmem, programs with the other sanitizers do not run; LeakSanitizer runs, but sees no block. A
 * sanitizer linked statically comes before all libraries, hence needs no check. */
static const struct sanitizer *sanitizer_of(const struct image *image)
{
	static const struct sanitizer runtimes[] = {
		{ "libasan.so", "AddressSanitizer", MUST_BE_FIRST },
		{ "libclang_rt.asan", "AddressSanitizer", MUST_BE_FIRST },
		{ "libhwasan.so", "HWAddressSanitizer", MUST_BE_FIRST },
		{ "libtsan.so", "ThreadSanitizer", MUST_BE_FIRST },
		{ "libclang_rt.tsan", "ThreadSanitizer", MUST_BE_FIRST },
		{ "liblsan.so", "LeakSanitizer", FINDS_NOTHING },
	};
	size_t count;
	const Elf64_Dyn *dynamic = dynamic_part(image, &count);
	const char *names = NULL;
	uint64_t length = 0;

	for (size_t i = 0; i < count; i++)
		if (dynamic[i].d_tag == DT_STRTAB)
			names = loaded(image, dynamic[i].d_un.d_ptr, &length);
	for (size_t i = 0; names && i < count && dynamic[i].d_tag != DT_NULL; i++) {
		uint64_t at = dynamic[i].d_un.d_val;

		for (size_t k = 0; k < sizeof(runtimes) / sizeof(*runtimes) && dynamic[i].d_tag == DT_NEEDED; k++)
			if (at < length && !strncmp(names + at, runtimes[k].library,
						    strnlen(runtimes[k].library, length - at)))
				return &runtimes[k];
	}
	return NULL;
}

/* Checks whether a static program was linked with libkmem. Such a program takes the options from the environment. */
static bool has_libkmem(const struct image *image)
{
	return memmem(image->bytes, image->length, KMEM_RECORD_MAGIC, sizeof(KMEM_RECORD_MAGIC)) &&
	       memmem(image->bytes, image->length, "KMEM_OPTIONS", strlen("KMEM_OPTIONS"));
}

/* Checks a program without a dynamic loader; LD_PRELOAD has no effect there. `promise`: a user's option that would
 * have no effect, or NULL. Returns: 0, or 126 if an option would have no effect. */
static int check_static(const struct image *image, const char *path, const char *promise)
{
	if (has_libkmem(image))
		return 0;
	if (promise)
		return kmem_failed(126, "run", "--%s: %s is linked without a dynamic loader, and cannot load "
					       "libkmem; link the program with libkmem-malloc.a, or "
					       "dynamically", promise, path);
	return kmem_failed(0, "run", "%s is linked without a dynamic loader, and runs without libkmem", path);
}

/* Prints a message for a program without dynamic loader or with a sanitizer.
 * Returns: 0, or the exit status if the program must not be started. */
static int check_program(const char *path, char **arguments, const char *promise)
{
	struct image image;
	const struct sanitizer *sanitizer;
	int status = 0;

	if (open_image(path, &image)) {
		if (is_loader(&image) && *arguments && strchr(*arguments, '/')) {
			munmap((void *)image.bytes, image.length);
			return check_program(*arguments, arguments + 1, promise);
		}
		if (!segment_of(&image, PT_INTERP) && !is_loader(&image))
			status = check_static(&image, path, promise);
		else if ((sanitizer = sanitizer_of(&image)))
			status = kmem_failed(126, "run", "%s has %s, %s", path, sanitizer->name, sanitizer->why);
	}
	if (image.bytes)
		munmap((void *)image.bytes, image.length);
	return status;
}

/* ------------------------------------------------------------------ the environment */

static bool set_joined(const char *name, const char *first, char separator, const char *second)
{
	char *text;

	if (!first || !*first)
		return setenv(name, second, 1) == 0;
	if (!*second)
		return setenv(name, first, 1) == 0;
	if (asprintf(&text, "%s%c%s", first, separator, second) < 0)
		return false;
	bool ok = setenv(name, text, 1) == 0;
	free(text);
	return ok;
}

/* Finds a key's value in the text of KMEM_OPTIONS. Of several equal keys the last one counts. *length: the value's
 * bytes. Returns: the value, or NULL without such a key. */
static const char *option_value(const char *text, const char *key, size_t *length)
{
	const char *value = NULL;
	size_t key_length = strlen(key);

	while (text && *text) {
		size_t pair = strcspn(text, ",");

		if (pair > key_length && !strncmp(text, key, key_length) && text[key_length] == ':') {
			value = text + key_length + 1;
			*length = pair - key_length - 1;
		}
		text += pair + (text[pair] == ',');
	}
	return value;
}

static bool engine_is_slob(void)
{
	size_t length = 0;
	const char *engine = option_value(getenv("KMEM_OPTIONS"), "engine", &length);

	return engine && length == strlen("slob") && !strncmp(engine, "slob", length);
}

/* Rejects options unsupported by engine slob, so the message appears once, not in each started program. */
static void check_slob(const struct run_options *options)
{
	if (options->limit || options->group)
		kmem_usage("run", "%s: engine slob does not record the group of an object; use another engine",
			   options->limit ? "--limit" : "--group");
	if (options->leaks)
		kmem_usage("run", "--leaks: engine slob records no stacks of allocations; use another engine");
}

/* With engine slob, malloc's blocks support only the consistency check of a free (F). Puts a list for the cache
 * kmalloc in front of `debug`, without the other flags; the first list that names a cache decides.
 * Returns: false if memory ran out. */
static bool spare_slob(const char *debug)
{
	const slab_flags_t others = KMEM_RECORD_DEBUG_FLAGS & ~SLAB_CONSISTENCY_CHECKS;
	char letter, *text;
	bool low;

	if (!debug || !*debug || strlen(debug) > MOST_DEBUG || !km_debug_fits(debug, &letter) || !strcmp(debug, "help"))
		return true;
	km_debug_read(debug);
	slab_flags_t flags = km_debug_flags_of("kmalloc", 0, &low);
	if (!(flags & others))
		return true;
	kmem_failed(0, "run", "engine slob: malloc's blocks have no room for debugging data; use another engine");
	if (asprintf(&text, "%s,kmalloc;%s", flags & SLAB_CONSISTENCY_CHECKS ? "F" : "-", debug) < 0)
		return false;
	bool ok = strlen(text) > MOST_DEBUG || setenv("KMEM_DEBUG", text, 1) == 0;
	free(text);
	return ok;
}

static bool set_option(const char *key, const char *value)
{
	static const char name[] = "KMEM_OPTIONS";
	char pair[128];

	snprintf(pair, sizeof(pair), "%s:%s", key, value ? value : "");
	return !value || set_joined(name, getenv(name), ',', pair);
}

/* Puts the library in front of LD_PRELOAD, but behind heaptrack, because heaptrack passes calls on to the next
 * malloc. */
static bool set_preload(const char *library)
{
	const char *before = getenv("LD_PRELOAD") ?: "";

	return strstr(before, "libheaptrack") ? set_joined("LD_PRELOAD", before, ':', library) :
						set_joined("LD_PRELOAD", library, ':', before);
}

/* Appends to KMEM_OPTIONS, --options before the single options, because the last of equal keys counts. */
static bool set_options(const struct run_options *options)
{
	static const char name[] = "KMEM_OPTIONS";

	/* --hardened goes first, so --options may undo parts of --hardened. */
	if (!set_option("hardened", options->hardened) ||
	    (options->options && !set_joined(name, getenv(name), ',', options->options)) ||
	    !set_option("engine", options->engine) || !set_option("percpu", options->percpu) ||
	    !set_option("guard", options->guard) || !set_option("memcg_limit", options->limit) ||
	    !set_option("memcg_group", options->group))
		return false;
	if (options->percpu)
		/* KMEM_PERCPU has precedence over KMEM_OPTIONS. */
		unsetenv("KMEM_PERCPU");
	if (options->debug && setenv("KMEM_DEBUG", *options->debug ? options->debug : "FZPU", 1))
		return false;
	if (!engine_is_slob())
		return true;
	check_slob(options);
	return spare_slob(getenv("KMEM_DEBUG"));
}

/* Checks before the start whether the report can be written. The program writes the report at exit, when an error can
 * no longer change the exit status. The library replaces %p by the process id, so a folder with %p is not checked.
 * Returns: 0, or 126 after an error message. */
static int check_report(const char *option, const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	char folder[PATH_MAX * 2];
	struct stat status;
	int error = 0;

	snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path);
	if (strstr(folder, "%p"))
		return 0;
	if (!strstr(name, "%p") && stat(path, &status) == 0)
		error = S_ISDIR(status.st_mode) ? EISDIR : access(path, W_OK) ? errno : 0;
	else if (access(folder, W_OK | X_OK))
		error = errno;
	return error ? kmem_failed(126, "run", "--%s=%s: %s", option, path, strerror(error)) : 0;
}

/* Sets `variable` to the report's absolute path, because the program may change directory before the report is
 * written. Returns: 0, or 126 after an error message. */
static int set_report(const char *option, const char *variable, const char *file)
{
	char here[PATH_MAX], path[PATH_MAX * 2];

	if (!strcmp(file, "-")) {
		snprintf(path, sizeof(path), "-");
	} else if (*file == '/') {
		snprintf(path, sizeof(path), "%s", file);
	} else {
		if (!getcwd(here, sizeof(here)))
			return kmem_failed(126, "run", "current directory: %s", strerror(errno));
		snprintf(path, sizeof(path), "%s/%s", here, file);
	}
	int status = strcmp(path, "-") ? check_report(option, path) : 0;
	if (status)
		return status;
	return setenv(variable, path, 1) ? kmem_failed(126, "run", "out of memory") : 0;
}

/* Sets KMEM_LEAKS, and KMEM_SYMBOLS to this command: the library passes the report through `kmem symbols`, because
 * the library itself can't name functions. */
static int set_leaks(const struct run_options *options)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (length > 0) {
		self[length] = '\0';
		if (setenv("KMEM_SYMBOLS", self, 1))
			return kmem_failed(126, "run", "out of memory");
	}
	return set_report("leaks", "KMEM_LEAKS", options->leaks);
}

/* Sets KMEM_FAILSLAB. ignore-gfp-wait=N: all requests of malloc may wait, so ignoring such requests would leave no
 * failure. The seed is chosen here, so all processes started by the program share one seed, and a repeated run with
 * the same seed meets the same failures. `settings` come last, hence a user's seed counts. */
static bool set_fail(const char *settings, const char *program, const char *name)
{
	char text[512], callers[512];
	unsigned seed = 0;

	if (!settings)
		return true;
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (unsigned)getpid();
	int length = snprintf(text, sizeof(text), "ignore-gfp-wait=N,seed=%u,%s", seed % 1000000, settings);
	if (program)
		kmem_fail_callers(settings, program, name, callers, sizeof(text) - (size_t)length);
	strcat(text, program ? callers : "");
	return setenv("KMEM_FAILSLAB", text, 1) == 0;
}

int cmd_run(int argc, char **argv)
{
	struct run_options options = { .engine = NULL };
	char library[PATH_MAX], found[PATH_MAX];
	int first = parse(argc, argv, &options);
	int status = find_library(library, sizeof(library));

	if (status)
		return status;
	if (!set_options(&options) ||
	    !set_preload(library))
		return kmem_failed(126, "run", "out of memory");
	if ((options.stats && (status = set_report("stats", "KMEM_STATS", options.stats))) ||
	    (options.leaks && (status = set_leaks(&options))))
		return status;
	const char *program = find_program(argv[first], found, sizeof(found));
	const char *promise = options.limit ? "limit" : options.hardened ? "hardened" : options.leaks ? "leaks" :
			      options.fail ? "fail" : options.group ? "group" : NULL;
	if (program && (status = check_program(program, argv + first + 1, promise)))
		return status;
	if (!set_fail(options.fail, program, argv[first]))
		return kmem_failed(126, "run", "out of memory");
	execvp(argv[first], argv + first);
	status = errno == ENOENT || errno == ENOTDIR ? 127 : 126;
	return kmem_failed(status, "run", "%s: %s", argv[first], strerror(errno));
}
