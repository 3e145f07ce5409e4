/*
 * function_names_dw.c: names of functions by libdw: symbols of the file and of the debug file that belongs to the
 * file, source lines and inlined functions. Invariant: a file that libdw cannot read has no
 * names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "function_names.h"
#include "file_helper.h"

/* Check a path that libdw would open: `folder` + `name` + `more` beside `file`. Names come from untrusted files, and
 * an open of a pipe or of a file on a server waits. Returns: true: libdw may open the path: a local regular file or
 * folder, or an error other than a timeout, e.g. no such file. */
static bool may_be(const char *file, const char *folder, const char *name, const char *more)
{
	const char *end = strrchr(file, '/');
	struct opened there;
	char *path;

	if (asprintf(&path, "%.*s%s%s%s", end ? (int)(end - file) + 1 : 0, file, folder, name, more) < 0)
		kmem_need(NULL);
	bool may = opened_look(path, &there) ? !there.far && (S_ISREG(there.status.st_mode) ||
							      S_ISDIR(there.status.st_mode)) : errno != ETIMEDOUT;
	free(path);
	return may;
}

/* Check all paths that libdw tries for a debug file. `beside` is the name from the file's debug link. NULL: no link;
 * libdw then tries the file's name with ".debug", and the plain name in other folders. */
static bool may_open(const char *file, const char *beside)
{
	static const char *const folders[] = { "", ".debug/", ".dwz/" };
	const char *end = strrchr(file, '/'), *own = end ? end + 1 : file;
	bool may = !beside || !strchr(beside, '/');

	for (size_t i = 0; may && i < KMEM_COUNT(folders); i++)
		may = may_be(file, folders[i], beside ?: own, beside ? "" : ".debug") &&
		      (beside || !i || may_be(file, folders[i], own, ""));
	return may;
}

/* Find the debug file. libdw searches beside a symbolic link and beside the link's target, so both are checked. If a
 * check fails, libdw searches by build id only. */
static int find_debuginfo(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, const char *file,
			  const char *beside, GElf_Word sum, char **found)
{
	bool near = file && may_be(file, "", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, "");
	char *real = near ? realpath(file, NULL) : NULL;
	bool may = !file || (near && may_open(file, beside) && (!real || may_open(real, beside)));

	free(real);
	return may ? dwfl_standard_find_debuginfo(module, data, name, base, file, beside, sum, found) :
		     dwfl_build_id_find_debuginfo(module, data, name, base, file, beside, sum, found);
}

/* Check the alternate debug file, shared by several debug files (.gnu_debugaltlink), because libdw opens the file
 * when shared data is needed. Returns: true: no alternate file, or libdw may open the file. */
static bool may_share(Dwfl_Module *module)
{
	const char *file = NULL, *debug = NULL, *name;
	const void *build;
	Dwarf_Addr bias;
	Dwarf *dwarf = dwfl_module_getdwarf(module, &bias);

	dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, &file, &debug);
	return !dwarf || dwelf_dwarf_gnu_debugaltlink(dwarf, &name, &build) <= 0 ||
	       may_be(*name == '/' ? "" : debug ?: file ?: "", "", name, "");
}

/* Required by some functions of libdwfl, although no process is inspected. */
static char *debug_path;
static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf, .find_debuginfo = find_debuginfo,
	.section_address = dwfl_offline_section_address, .debuginfo_path = &debug_path,
};

/* Open the module of an image with the addresses of the file, without a load bias. */
static Dwfl_Module *open_module(struct image *image)
{
	/* libdw must not open a file without bytes, because the open may wait for a server. */
	Dwfl *dwfl = image->bytes ? dwfl_begin(&callbacks) : NULL;
	Dwfl_Module *module = NULL;

	if (!dwfl)
		return NULL;
	dwfl_report_begin(dwfl);
	module = dwfl_report_elf(dwfl, image->path, image->path, image->copy, 0, true);
	dwfl_report_end(dwfl, NULL, NULL);
	return module && may_share(module) ? module : NULL;
}

/* Demangle a C++ name by libstdc++, if installed. Returns: a text valid for the next MOST_NAMES calls; `name` if not
 * mangled. */
static const char *readable(const char *name)
{
	static char *(*demangle)(const char *name, char *text, size_t *bytes, int *status);
	static char *texts[MOST_NAMES];
	static size_t next;
	static char plain[256];
	static bool looked;
	int status = 0;

	if (name && strchr(name, '@')) {
		/* Cut off the symbol version (name@VERSION). */
		snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name, "@"), name);
		name = plain;
	}
	if (!name || strncmp(name, "_Z", 2))
		return name;
	void *library = looked ? NULL : dlopen("libstdc++.so.6", RTLD_NOW);
	looked = true;
	if (library)
		*(void **)&demangle = dlsym(library, "__cxa_demangle");
	char *text = demangle ? demangle(name, NULL, NULL, &status) : NULL;
	if (!text)
		return name;
	free(texts[next]);
	texts[next] = text;
	next = (next + 1) % MOST_NAMES;
	return text;
}

/* ------------------------------------------------------------------ inlined functions */

static const char *function_of(Dwarf_Die *scope)
{
	Dwarf_Attribute attribute;
	const char *name = dwarf_formstring(dwarf_attr_integrate(scope, DW_AT_linkage_name, &attribute));

	return readable(name ?: dwarf_diename(scope));
}

/* Set source and line of the call of an inlined function. */
static void call_of(Dwarf_Die *unit, Dwarf_Die *scope, struct name *name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word file = 0, line = 0;
	Dwarf_Files *files;
	size_t count;

	name->source = NULL;
	if (dwarf_formudata(dwarf_attr(scope, DW_AT_call_file, &attribute), &file) == 0 &&
	    dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count)
		name->source = dwarf_filesrc(files, file, NULL, NULL);
	if (dwarf_formudata(dwarf_attr(scope, DW_AT_call_line, &attribute), &line) == 0)
		name->line = (int)line;
}

static bool is_function(Dwarf_Die *scope)
{
	int tag = dwarf_tag(scope);

	return tag == DW_TAG_inlined_subroutine || tag == DW_TAG_subprogram;
}

/* Get the scopes around an address, from the inside outwards. dwarf_getscopes() continues from the innermost function
 * to the function's abstract definition; the scopes around the call are the parents of the innermost function's
 * entry. */
static int scopes_around(Dwarf_Die *unit, Dwarf_Addr address, Dwarf_Die **around)
{
	Dwarf_Die *scopes = NULL;
	int count = dwarf_getscopes(unit, address, &scopes), found = 0;

	for (int i = 0; i < count && !found; i++)
		if (is_function(&scopes[i]))
			found = dwarf_getscopes_die(&scopes[i], around);
	free(scopes);
	return found;
}

/* Add the inlined functions at an address, innermost first. names[0] gets the source line of the address; each next
 * name gets the line that calls the name before. Returns: the number of inlined functions. */
static size_t put_inlined(Dwfl_Module *module, uint64_t address, struct name names[MOST_NAMES])
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = dwfl_module_addrdie(module, address, &bias), *scopes = NULL;
	size_t inlined = 0;

	/* libdwfl may return the preceding unit if the unit of the address has no debugging information. */
	if (!unit || dwarf_haspc(unit, address - bias) != 1)
		return 0;
	Dwfl_Line *line = dwfl_module_getsrc(module, address);
	if (line)
		names[0].source = dwfl_lineinfo(line, NULL, &names[0].line, NULL, NULL, NULL);
	int count = scopes_around(unit, address - bias, &scopes);
	for (int i = 0; i < count && inlined + 1 < MOST_NAMES && dwarf_tag(&scopes[i]) != DW_TAG_subprogram; i++) {
		if (dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine)
			continue;
		names[inlined + 1] = names[inlined];
		names[inlined].function = function_of(&scopes[i]) ?: "?";
		call_of(unit, &scopes[i], &names[++inlined]);
	}
	free(scopes);
	return inlined;
}

size_t names_at(struct image *image, uint64_t address, struct name names[MOST_NAMES])
{
	GElf_Off into;
	GElf_Sym symbol;

	if (!image->opened)
		image->names = open_module(image);
	image->opened = true;
	Dwfl_Module *module = image->names;
	const char *function = module ? dwfl_module_addrinfo(module, address, &into, &symbol, NULL, NULL, NULL) : NULL;
	if (!function || (symbol.st_size ? into >= symbol.st_size : into != 0))
		return 0;
	names[0] = (struct name){ .function = NULL };
	size_t inlined = put_inlined(module, address, names);
	names[inlined].function = readable(function);
	names[inlined].start = address - into;
	names[inlined].bytes = symbol.st_size;
	return inlined + 1;
}
