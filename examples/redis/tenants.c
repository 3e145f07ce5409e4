/*
 * tenants.c: the groups of a redis-server (databases, clients, scripts of clients, Lua itself) and the section
 * `kmem` of INFO. `kmem info --memcg PID` shows the same tree from outside. Invariant: libkmem refuses no
 * allocation of redis' own code, because only scripts have a limit. A script is refused in Lua's code, and Lua
 * reports an error.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tenants.h"

/* redis-cli and redis-benchmark are linked with the same flags, and have no Lua. */
#pragma weak lua_gc
#pragma weak lua_atpanic
#pragma weak lua_newstate
#pragma weak lua_tolstring

unsigned long long tenant_script_limit;

/* libkmem charges objects of redis' own caches and blocks of malloc. */
slab_flags_t je_flags = SLAB_ACCOUNT;

__attribute__((constructor)) static void account(void)
{
	if (mem_cgroup_account_malloc(true))
		fputs("tenants: malloc is not libkmem's\n", stderr);
}

/* Parents, created with the first child. NULL (no memory) is the root group: uncharged. */
static struct mem_cgroup *databases, *clients, *lua_itself;

static struct mem_cgroup *parent(struct mem_cgroup **above, const char *name)
{
	if (!*above)
		*above = mem_cgroup_create(NULL, name, 0);
	return *above;
}

/* ------------------------------------------------------------------ databases and clients */

struct mem_cgroup *tenant_database(int id)
{
	static struct mem_cgroup **group;
	static int count;
	char name[MEMCG_NAME_MAX];

	if (id < 0)
		return NULL;
	if (id < count && group[id])
		return group[id];
	if (id >= count) {
		struct mem_cgroup **more = realloc(group, (size_t)(id + 1) * sizeof(*more));

		if (!more)
			return NULL;
		for (group = more; count <= id; count++)
			group[count] = NULL;
	}
	snprintf(name, sizeof(name), "db%d", id);
	return group[id] = mem_cgroup_create(parent(&databases, "databases"), name, 0);
}

struct tenant *tenant_client(unsigned long long id)
{
	struct tenant *tenant = calloc(1, sizeof(*tenant));
	char name[MEMCG_NAME_MAX];

	snprintf(name, sizeof(name), "client_%llu", id);
	if (tenant)
		tenant->group = mem_cgroup_create(parent(&clients, "clients"), name, 0);
	return tenant;
}

/* Closes the group of a client. Garbage of the client's scripts is then charged to the group of all clients, until Lua
 * collects the garbage. */
void tenant_gone(struct tenant *tenant)
{
	if (!tenant)
		return;
	mem_cgroup_put(tenant->scripts);
	mem_cgroup_put(tenant->group);
	free(tenant);
}

/* ------------------------------------------------------------------ moves by defragmentation */

/* redis allocates the new block, frees the old block, and allocates nothing between these two calls. */
static struct mem_cgroup *mover, *before;

void je_move_begins(const void *block)
{
	mover = mem_cgroup_from_obj(block);
	before = set_active_memcg(mover);
}

void je_move_ends(void)
{
	set_active_memcg(before);
	mem_cgroup_put(mover);
}

/* ------------------------------------------------------------------ scripts */

static struct mem_cgroup *script;	/* group of the running script; NULL: none */
static int insists;

static void *lua_memory(void *unused, void *block, size_t before, size_t bytes)
{
	struct mem_cgroup *group = script ?: parent(&lua_itself, "lua");
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_NOWARN | (script && insists ? __GFP_NOFAIL : 0);

	(void)unused, (void)before;
	if (!bytes) {
		kvfree(block);
		return NULL;
	}
	MEMCG_SCOPE(group);
	return kvrealloc(block, bytes, gfp);
}

static int panic(lua_State *lua)
{
	fprintf(stderr, "Lua: an error outside of any script: %s\n", lua_tostring(lua, -1));
	return 0;
}

lua_State *tenant_lua_open(void)
{
	lua_State *lua = lua_newstate(lua_memory, NULL);

	if (lua)
		lua_atpanic(lua, panic);
	return lua;
}

/* Charges Lua's memory to the client's scripts. Collects garbage of earlier scripts above half of the limit. */
void tenant_script_begin(struct tenant *tenant, lua_State *lua)
{
	uint64_t max = tenant_script_limit ?: MEMCG_NO_LIMIT;

	if (!tenant || !tenant->group)
		return;
	if (!tenant->scripts && !(tenant->scripts = mem_cgroup_create(tenant->group, "scripts", 0)))
		return;
	if (mem_cgroup_max(tenant->scripts) != max)
		mem_cgroup_set_max(tenant->scripts, max);
	if (mem_cgroup_current(tenant->scripts) > max / 2)
		lua_gc(lua, LUA_GCCOLLECT, 0);
	script = tenant->scripts;
}

void tenant_script_end(lua_State *lua, int error)
{
	script = NULL;
	insists = 0;
	if (error == LUA_ERRMEM)
		lua_gc(lua, LUA_GCCOLLECT, 0);
}

void tenant_script_insists(int on)
{
	insists = on;
}

/* ------------------------------------------------------------------ INFO kmem */

/* Number of clients in INFO: the clients with the most bytes. */
#define SHOWN 16

struct shown {
	struct mem_cgroup *group;
	uint64_t bytes, scripts;
};

static char text[16384];
static size_t length;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	int n = vsnprintf(text + length, sizeof(text) - length, format, list);
	va_end(list);
	if (n > 0 && (size_t)n < sizeof(text) - length)
		length += (size_t)n;
}

static void say_whole(const char *name, struct mem_cgroup *group)
{
	if (group) {
		mem_cgroup_drain(group);
		say("kmem_%s:%llu\r\n", name, (unsigned long long)mem_cgroup_current(group));
	}
}

static int say_database(struct mem_cgroup *group, unsigned int depth, void *unused)
{
	(void)unused;
	if (depth == 1 && mem_cgroup_peak(group))
		say("kmem_%s:bytes=%llu,peak=%llu\r\n", mem_cgroup_name(group),
		    (unsigned long long)mem_cgroup_current(group), (unsigned long long)mem_cgroup_peak(group));
	return 0;
}

/* Inserts a client into the list, sorted by bytes. The walk visits the scripts of a client directly after the
 * client. */
static int find_largest(struct mem_cgroup *group, unsigned int depth, void *list)
{
	struct shown *shown = list, one = { .group = group, .bytes = mem_cgroup_current(group) };

	for (int i = 0; depth == 2 && i < SHOWN; i++)
		if (shown[i].group == mem_cgroup_parent(group))
			shown[i].scripts = one.bytes;
	for (int i = 0; depth == 1 && i < SHOWN; i++)
		if (!shown[i].group || shown[i].bytes < one.bytes) {
			struct shown next = shown[i];

			shown[i] = one;
			one = next;
			if (!one.group)
				break;
		}
	return 0;
}

const char *tenant_info(void)
{
	struct shown shown[SHOWN] = { { NULL, 0, 0 } };

	length = 0;
	say_whole("databases", databases);
	if (databases)
		mem_cgroup_walk(databases, say_database, NULL);
	say_whole("clients", clients);
	if (clients)
		mem_cgroup_walk(clients, find_largest, shown);
	for (int i = 0; i < SHOWN && shown[i].group; i++)
		say("kmem_%s:bytes=%llu,scripts=%llu,peak=%llu\r\n", mem_cgroup_name(shown[i].group),
		    (unsigned long long)shown[i].bytes, (unsigned long long)shown[i].scripts,
		    (unsigned long long)mem_cgroup_peak(shown[i].group));
	say_whole("lua", lua_itself);
	say("kmem_script_limit:%llu\r\n", tenant_script_limit);
	return text;
}
