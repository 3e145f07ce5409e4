/*
 * debug_stack.c: where calls come from: the stack of a call into the library, and an address as a file with an offset.
 * Invariant: nothing here allocates, or waits for a lock that a thread may hold which is not there any more; libc is
 * asked for a stack only once it has been prepared for that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sys/auxv.h>

#include "../port/bits.h"
#include "../port/os.h"
#include "debug.h"

/*
 * The compiler's unwinder, which is there where C++ is, and else a library that is loaded when it is wanted. libc's
 * backtrace() is the same one, but goes on through the frame of a signal: the code that was interrupted may have moved
 * its stack pointer without saying so, and the step behind it read anything.
 */
struct _Unwind_Context;
typedef int trace_fn(struct _Unwind_Context *context, void *arg);
#define GO_ON	0
#define STOP	5
extern int _Unwind_Backtrace(trace_fn *trace, void *arg) __attribute__((weak));
extern uintptr_t _Unwind_GetIPInfo(struct _Unwind_Context *context, int *before) __attribute__((weak));
/* NULL: it does not know this function, and ends the process where it must go on from there. */
typedef const void *fde_fn(void *address, void *bases[3]);
extern const void *_Unwind_Find_FDE(void *address, void *bases[3]) __attribute__((weak));
#pragma weak dlopen
#pragma weak dlsym

/* Frames of the library that a call may pass before it is here, and more: beyond, they are the program's. */
#define OWN_FRAMES	32u

static struct {
	int (*backtrace)(trace_fn *trace, void *arg);	/* set last; NULL: nobody can be asked */
	uintptr_t (*ip)(struct _Unwind_Context *context, int *before);
} unwinder;
static bool wanted;			/* stacks are */
static bool over;			/* libc has given back what it needs to find files that came by dlopen */
static km_tls bool asking;		/* it is at work in this thread */
static unsigned first_pid;		/* of the process that the library started in; 0: not asked for */
static bool takes_lock;			/* the unwinder does, for each function that it looks for */

/* ------------------------------------------------------------------ objects of the process */

/* A file that is mapped. */
struct object {
	uintptr_t load;			/* what its own addresses are moved by */
	const char *name;		/* "": the program */
	const ElfW(Phdr) *headers;
	unsigned count;
};

#ifdef DLFO_STRUCT_HAS_EH_DBASE
/* glibc finds it without a lock, since 2.35; so does the unwinder of gcc 12 and later, which asks here as well. */
#pragma weak _dl_find_object
#define FINDS_AT_ONCE (_dl_find_object != NULL)

static bool find_at_once(uintptr_t address, struct object *object)
{
	struct dl_find_object found;

	if (_dl_find_object((void *)address, &found) || !found.dlfo_link_map->l_name)
		return false;
	object->load = found.dlfo_link_map->l_addr;
	object->name = found.dlfo_link_map->l_name;
	const ElfW(Ehdr) *head = found.dlfo_map_start;
	if (!*object->name) {
		object->headers = (const void *)getauxval(AT_PHDR);
		object->count = (unsigned)getauxval(AT_PHNUM);
	} else if (__builtin_memcmp(head->e_ident, ELFMAG, SELFMAG) == 0) {
		/* Its first page is that of the file, with few exceptions. */
		object->headers = (const void *)((const char *)head + head->e_phoff);
		object->count = head->e_phnum;
	}
	return true;
}
#else
#define FINDS_AT_ONCE false

static bool find_at_once(uintptr_t address km_unused, struct object *object km_unused)
{
	return false;
}
#endif

static bool is_first_process(void)
{
	return !km_os_is_shut() && km_os_pid() == km_load(&first_pid);
}

/*
 * Elsewhere the dynamic linker takes a lock that glibc's fork leaves to the child as another thread had it: it may not
 * be asked there, by us or by the unwinder. musl's fork waits for that lock.
 */
static bool may_ask_linker(void)
{
#ifdef __GLIBC__
	return FINDS_AT_ONCE || is_first_process();
#else
	return true;
#endif
}

struct search {
	uintptr_t address;
	struct object *object;
};

static int look(struct dl_phdr_info *info, size_t bytes km_unused, void *arg)
{
	struct search *search = arg;

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_LOAD ||
		    search->address - (info->dlpi_addr + header->p_vaddr) >= header->p_memsz)
			continue;
		*search->object = (struct object){
			.load = info->dlpi_addr, .name = info->dlpi_name ?: "",
			.headers = info->dlpi_phdr, .count = info->dlpi_phnum,
		};
		return 1;
	}
	return 0;
}

#ifdef __GLIBC__
#pragma weak _r_debug

/* The dynamic linker's list for debuggers, which changes by one store at a time, without its lock. */
static bool find_in_list(uintptr_t address, struct object *object)
{
	const struct link_map *map = &_r_debug ? _r_debug.r_map : NULL;

	for (; map; map = map->l_next) {
		struct search search = { address, object };
		struct dl_phdr_info info = { .dlpi_addr = map->l_addr, .dlpi_name = map->l_name };
		const ElfW(Ehdr) *head = (const void *)map->l_addr;

		if (!map->l_prev) {
			info.dlpi_phdr = (const void *)getauxval(AT_PHDR);
			info.dlpi_phnum = (ElfW(Half))getauxval(AT_PHNUM);
		} else if (head && __builtin_memcmp(head->e_ident, ELFMAG, SELFMAG) == 0) {
			info.dlpi_phdr = (const void *)((const char *)head + head->e_phoff);
			info.dlpi_phnum = head->e_phnum;
		}
		if (look(&info, sizeof(info), &search))
			return true;
	}
	return false;
}
#else
static bool find_in_list(uintptr_t address km_unused, struct object *object km_unused)
{
	return false;
}
#endif

static bool find(uintptr_t address, struct object *object)
{
	struct search search = { address, object };

	*object = (struct object){ .count = 0 };
	if (FINDS_AT_ONCE && (find_at_once(address, object) || !km_load(&over)))
		return object->name;
	if (!FINDS_AT_ONCE && may_ask_linker())
		return dl_iterate_phdr(look, &search);
	return find_in_list(address, object);
}

/* Characters that part words or lines stand there as octal digits, as in /proc/mounts. */
static size_t put_name(char *text, size_t bytes, const char *name)
{
	size_t length = 0;

	for (; *name && length + 5 < bytes; name++) {
		unsigned char c = (unsigned char)*name;

		if (c <= ' ' || c == '\\' || c == 0x7f)
			length += km_format(text + length, bytes - length, "\\%u%u%u", c >> 6, c >> 3 & 7, c & 7);
		else
			text[length++] = *name;
	}
	km_debug(length < bytes, "a name that is cut ends in its array");
	text[length] = '\0';
	return length;
}

/* The first bytes of what the linker has made to tell this file from others of its name; 0: it has made nothing. */
static uint32_t build_of(const struct object *object)
{
	for (unsigned i = 0; i < object->count; i++) {
		const ElfW(Phdr) *header = &object->headers[i];
		const char *at = (const char *)object->load + header->p_vaddr, *end = at + header->p_memsz;

		while (header->p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr)) + 8) {
			const ElfW(Nhdr) *note = (const void *)at;
			const unsigned char *id = (const unsigned char *)(note + 1) + 4;

			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && note->n_descsz >= 4)
				return (uint32_t)id[0] << 24 | id[1] << 16 | id[2] << 8 | id[3];
			size_t bytes = sizeof(*note) + km_align_up(note->n_namesz, 4) + km_align_up(note->n_descsz, 4);
			at += km_min(bytes, (size_t)(end - at));
		}
	}
	return 0;
}

/* Room for the offset and the build, behind a name that may be cut. */
#define OFFSET_BYTES	32u

const char *km_debug_place(uintptr_t address, char *text, size_t bytes)
{
	struct object object;
	char path[256];
	size_t length;

	km_debug(bytes > 2 * OFFSET_BYTES, "a place has room for a name");
	if (!find(address, &object)) {
		km_format(text, bytes, "%p", (void *)address);
		return text;
	}
	const char *name = *object.name ? object.name : km_os_program_path(path, sizeof(path));
	length = put_name(text, bytes - OFFSET_BYTES, name);
	length += km_format(text + length, bytes - length, "+0x%lx", address - object.load);
	uint32_t build = build_of(&object);
	if (build)
		km_format(text + length, bytes - length, "[%08x]", build);
	return text;
}

/* ------------------------------------------------------------------ names of functions */

/* The names that a file gives to others, as its headers lead to them: NULL where it has none. */
struct names {
	const ElfW(Sym) *symbol;
	size_t count;
	const char *text;
	size_t bytes;
};

/* Where the file was mapped to. */
static uintptr_t start_of(const struct object *object)
{
	uintptr_t first = UINTPTR_MAX;

	for (unsigned i = 0; i < object->count; i++)
		if (object->headers[i].p_type == PT_LOAD)
			first = km_min(first, (uintptr_t)object->headers[i].p_vaddr);
	return object->load + (first == UINTPTR_MAX ? 0 : km_align_down(first, KM_PAGE_SIZE));
}

/* Symbols of a table of this kind are counted by its last chain, which ends in an odd number. */
static size_t count_of(const uint32_t *hash)
{
	const uint32_t buckets = hash[0], first = hash[1];
	const uint32_t *bucket = hash + 4 + hash[2] * (sizeof(uintptr_t) / sizeof(*hash));
	uint32_t last = 0;

	for (uint32_t i = 0; i < buckets; i++)
		last = km_max(last, bucket[i]);
	if (last < first)
		return first;
	while (!(bucket[buckets + last - first] & 1))
		last++;
	return (size_t)last + 1;
}

/* Some dynamic linkers have made addresses of the file's offsets, others leave them. */
static const void *led_to(const struct object *object, uintptr_t value)
{
	return (const void *)(value < object->load ? object->load + value : value);
}

static struct names names_of(const struct object *object)
{
	struct names names = { .symbol = NULL };
	const ElfW(Dyn) *entry = NULL;

	for (unsigned i = 0; i < object->count; i++)
		if (object->headers[i].p_type == PT_DYNAMIC)
			entry = (const void *)(object->load + object->headers[i].p_vaddr);
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		const void *at = led_to(object, entry->d_un.d_ptr);

		if (entry->d_tag == DT_SYMTAB)
			names.symbol = at;
		else if (entry->d_tag == DT_STRTAB)
			names.text = at;
		else if (entry->d_tag == DT_STRSZ)
			names.bytes = entry->d_un.d_val;
		else if (entry->d_tag == DT_GNU_HASH)
			names.count = count_of(at);
		else if (entry->d_tag == DT_HASH && !names.count)
			names.count = ((const uint32_t *)at)[1];
	}
	if (!names.symbol || !names.text)
		names.count = 0;
	return names;
}

static bool is_function_at(const ElfW(Sym) *symbol, uintptr_t offset)
{
	unsigned type = symbol->st_info & 0xf;

	return symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_NOTYPE || type == STT_GNU_IFUNC) &&
	       offset - symbol->st_value < symbol->st_size;
}

bool km_debug_find_name(uintptr_t address, bool (*fits)(const char *name))
{
	struct object object;

	if (!find(address, &object))
		return false;
	const struct names names = names_of(&object);
	for (size_t i = 0; i < names.count; i++) {
		const ElfW(Sym) *symbol = &names.symbol[i];

		if (is_function_at(symbol, address - object.load) && symbol->st_name < names.bytes &&
		    fits(names.text + symbol->st_name))
			return true;
	}
	return false;
}

bool km_debug_find_file(uintptr_t address, char *path, size_t bytes, uintptr_t *start)
{
	struct object object;

	km_debug(bytes, "a path has room");
	if (!find(address, &object))
		return false;
	const char *name = *object.name ? object.name : km_os_program_path(path, bytes);
	if (name != path)
		km_format(path, bytes, "%s", name);
	*start = start_of(&object);
	return true;
}

/* ------------------------------------------------------------------ a stack */

/* Where the code of each of the library's files is: KM_CODE in port/cc.h makes the list, for the linker to join. */
struct code {
	int32_t start;			/* from here on */
	uint32_t bytes;
};
extern const struct code __start_km_code[] km_hidden, __stop_km_code[] km_hidden;

static bool is_listed(uintptr_t address)
{
	for (const struct code *code = __start_km_code; code < __stop_km_code; code++)
		if (address - ((uintptr_t)&code->start + (uintptr_t)(intptr_t)code->start) < code->bytes)
			return true;
	return false;
}

/* Places of calls are few, and the same again and again. */
static bool is_own(uintptr_t address)
{
	static uintptr_t others[64] km_sparse, own[64] km_sparse;
	unsigned at = address / 4 % km_array_count(own);

	if (km_load(&own[at]) == address)
		return true;
	if (km_load(&others[at]) == address)
		return false;
	bool listed = is_listed(address);
	km_debug(is_listed((uintptr_t)is_listed), "the library's own code is in its list");
	km_store(listed ? &own[at] : &others[at], address);
	return listed;
}

/* Those of a program: of the library's own, which come first, it is known how many were passed. */
struct frames {
	uintptr_t address[KM_DEBUG_FRAMES];
	unsigned count, passed;
};

static int note(struct _Unwind_Context *context, void *arg)
{
	struct frames *frames = arg;
	int interrupted = 0;
	uintptr_t address = unwinder.ip(context, &interrupted);

	if (!address)
		return STOP;
	if (!frames->count && frames->passed < OWN_FRAMES && is_own(address)) {
		frames->passed++;
		return interrupted ? STOP : GO_ON;
	}
	km_debug(frames->count < km_array_count(frames->address), "a frame has a place");
	frames->address[frames->count++] = address;
	return interrupted || frames->count == km_array_count(frames->address) ? STOP : GO_ON;
}

/* Of a program without a table of its functions the unwinder has a list, with a lock: fork leaves that as well to the
 * child as another thread had it. */
static bool has_table(void)
{
	struct object object;

	if (!find((uintptr_t)has_table, &object))
		return true;
	for (unsigned i = 0; i < object.count; i++)
		if (object.headers[i].p_type == PT_GNU_EH_FRAME)
			return true;
	return false;
}

static void prepare(void)
{
	struct frames frames = { .count = 0 };
	void *bases[3];

	if (!wanted || km_load(&unwinder.backtrace))
		return;
	void *library = !_Unwind_Backtrace && dlopen && dlsym ? dlopen("libgcc_s.so.1", RTLD_NOW) : NULL;
	int (*backtrace)(trace_fn *trace, void *arg) = _Unwind_Backtrace;
	fde_fn *find_fde = _Unwind_Find_FDE;
	unwinder.ip = _Unwind_GetIPInfo;
	if (library) {
		*(void **)&backtrace = dlsym(library, "_Unwind_Backtrace");
		*(void **)&unwinder.ip = dlsym(library, "_Unwind_GetIPInfo");
		*(void **)&find_fde = dlsym(library, "_Unwind_Find_FDE");
	}
	if (!backtrace || !unwinder.ip)
		return;
	/* The first time it may allocate. */
	asking = true;
	bool knows = !find_fde || find_fde((char *)prepare + 1, bases);
	if (knows)
		backtrace(note, &frames);
	asking = false;
	km_store(&takes_lock, !has_table());
	/* Release pairs with km_debug_track: the rest is known. */
	if (knows)
		km_store_release(&unwinder.backtrace, backtrace);
}

void km_debug_stack_over(void)
{
	km_store(&over, true);
}

void km_debug_stack_ready(bool tracks)
{
	if (!km_load(&first_pid))
		km_store(&first_pid, km_os_pid());
	wanted |= tracks || km_debug_may_track();
	prepare();
}

/* A static program tells the unwinder of itself by a constructor, which has run now; others may have run as well. */
__attribute__((constructor)) static void prepare_late(void)
{
	prepare();
}

/* Such a program takes itself from the unwinder's list behind all destructors without a priority, and frees what that
 * has of it with the lock held. */
__attribute__((destructor)) static void end_early(void)
{
	if (km_load(&takes_lock))
		km_debug_stack_over();
}

bool km_debug_has_stacks(void)
{
	return km_load(&unwinder.backtrace) != NULL;
}

bool km_debug_is_own(uintptr_t address)
{
	return is_own(address);
}

bool km_debug_is_early(const struct km_debug_track *track)
{
	return km_load(&unwinder.backtrace) && track->frame[0] && is_own(track->frame[0]);
}

/* NULL: nobody can be asked just now. */
static int (*usable_unwinder(void))(trace_fn *trace, void *arg)
{
	int (*backtrace)(trace_fn *trace, void *arg) = km_load_acquire(&unwinder.backtrace);

	if (!backtrace || asking || km_load(&over) || !may_ask_linker())
		return NULL;
	return !km_load(&takes_lock) || is_first_process() ? backtrace : NULL;
}

/* Its own frame is the first. */
static km_noinline void ask(struct frames *frames)
{
	int (*backtrace)(trace_fn *trace, void *arg) = usable_unwinder();
	int saved_errno = errno;

	if (backtrace) {
		asking = true;
		backtrace(note, frames);
		asking = false;
	}
	errno = saved_errno;
}

void km_debug_track(struct km_debug_track *track)
{
	struct frames frames = { .count = 0 };

	ask(&frames);
	if (!frames.count)
		frames.address[frames.count++] = (uintptr_t)__builtin_return_address(0);
	km_debug(frames.count <= KM_DEBUG_FRAMES, "a call comes from somewhere");
	__builtin_memset(track, 0, sizeof(*track));
	__builtin_memcpy(track->frame, frames.address, frames.count * sizeof(*track->frame));
	track->when = km_os_now_ms();
	track->cpu = km_os_getcpu();
	track->thread = km_os_thread();
}

struct behind {
	uintptr_t pc, *frame;
	unsigned count, most;
	bool met;
};

static int note_behind(struct _Unwind_Context *context, void *arg)
{
	struct behind *behind = arg;
	int interrupted;
	uintptr_t address = unwinder.ip(context, &interrupted);

	if (!address || behind->count == behind->most)
		return STOP;
	if (behind->met)
		behind->frame[behind->count++] = address;
	behind->met |= address == behind->pc;
	return GO_ON;
}

unsigned km_debug_stack_behind(uintptr_t pc, uintptr_t *frame, unsigned most)
{
	int (*backtrace)(trace_fn *trace, void *arg) = usable_unwinder();
	struct behind behind = { .pc = pc, .frame = frame, .most = most };

	if (backtrace) {
		asking = true;
		backtrace(note_behind, &behind);
		asking = false;
	}
	km_debug(behind.count <= most, "no more frames than have room");
	return behind.count;
}
