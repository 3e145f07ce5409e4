/*
 * tenants.h: the groups of a redis-server with libkmem. Each database and each client is a group. The scripts of a
 * client are a child group with a limit. tenants.patch calls the macros below where redis changes from one database
 * or client to another. Without KMEM_TENANTS the macros are empty.
 */
#ifndef KMEM_REDIS_TENANTS_H
#define KMEM_REDIS_TENANTS_H

#ifdef KMEM_TENANTS
#include <lua.h>

#include <kmem/memcg.h>

/* The groups of a connected client: `group` for the client, `scripts` (a child) from the first script on. */
struct tenant {
	struct mem_cgroup *group, *scripts;
};

/* Limit on the scripts of one client, in bytes; 0: no limit. CONFIG SET lua-memory-per-client. */
extern unsigned long long tenant_script_limit;

/* Return NULL without memory; allocations are then uncharged. */
struct tenant *tenant_client(unsigned long long id);
void tenant_gone(struct tenant *tenant);
struct mem_cgroup *tenant_database(int id);
lua_State *tenant_lua_open(void);
/* Charges Lua's allocations to the scripts of this client until tenant_script_end. NULL: to group `lua`, without
 * a limit. */
void tenant_script_begin(struct tenant *tenant, lua_State *lua);
void tenant_script_end(lua_State *lua, int error);
/*
 * Sets whether Lua's allocations may exceed the script's limit. redis sets this in its own code below a script,
 * because an error of Lua would jump out of this code. libkmem refuses the next allocation of the script instead.
 */
void tenant_script_insists(int on);
/* Returns the section `kmem` of INFO. */
const char *tenant_info(void);

#undef lua_open
#define lua_open() tenant_lua_open()

#define CHARGE_CLIENT(c) MEMCG_SCOPE((c)->tenant ? (c)->tenant->group : NULL)
#define CHARGE_DATABASE(id) MEMCG_SCOPE(tenant_database(id))
#else
#define CHARGE_CLIENT(c)
#define CHARGE_DATABASE(id)
#define tenant_script_begin(tenant, lua)
#define tenant_script_end(lua, error)
#define tenant_script_insists(on)
#endif

#endif
