/*
 * tenants.h: who pays for what in a redis-server that is built with libkmem. Each database and each client is a
 * group; a client's scripts are a group below it, with a limit. tenants.patch puts these words where redis changes
 * from one to another: without KMEM_TENANTS they are nothing, and redis is as it was.
 */
#ifndef KMEM_REDIS_TENANTS_H
#define KMEM_REDIS_TENANTS_H

#ifdef KMEM_TENANTS
#include <lua.h>

#include <kmem/memcg.h>

/* A connected client: what it holds, and below that its scripts, once it has run one. */
struct tenant {
	struct mem_cgroup *group, *scripts;
};

/* Bytes that the scripts of one client may have; 0: no limit. CONFIG SET lua-memory-per-client. */
extern unsigned long long tenant_script_limit;

/* NULL where there is no memory: then nobody pays. */
struct tenant *tenant_client(unsigned long long id);
void tenant_gone(struct tenant *tenant);
struct mem_cgroup *tenant_database(int id);
lua_State *tenant_lua_open(void);
/* Lua allocates for the scripts of this client from here to the end. NULL: for itself, without a limit. */
void tenant_script_begin(struct tenant *tenant, lua_State *lua);
void tenant_script_end(lua_State *lua, int error);
/*
 * In redis' own code that a script calls Lua's memory is still the script's, and beyond its limit: an error would
 * jump out of that code. The script's next allocation is refused instead.
 */
void tenant_script_insists(int on);
/* The section of INFO. */
const char *tenant_info(void);

#undef lua_open
#define lua_open() tenant_lua_open()

#define CLIENT_PAYS(c) MEMCG_SCOPE((c)->tenant ? (c)->tenant->group : NULL)
#define DATABASE_PAYS(id) MEMCG_SCOPE(tenant_database(id))
#else
#define CLIENT_PAYS(c)
#define DATABASE_PAYS(id)
#define tenant_script_begin(tenant, lua)
#define tenant_script_end(lua, error)
#define tenant_script_insists(on)
#endif

#endif
