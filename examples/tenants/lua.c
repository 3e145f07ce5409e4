/*
 * lua.c: a thousand tenants. Each tenant is a Lua state and a group with a limit of 1 MiB; all tenants share a
 * limit of 128 MiB. One script allocates too much and gets Lua's own error. The other 999 scripts get their
 * results. After the script has freed its memory, the script runs again.
 *
 * One function charges the memory: the allocator of a Lua state. Lua passes the group of the state to the function,
 * in any thread.
 */
#define TENANTS	1000
#define EACH	(1ul << 20)
#define ALL	(128ul << 20)
#define HOG	500		/* the tenant that allocates too much */

#include <lauxlib.h>
#include <lualib.h>

#include "tenants.h"

static const char honest[] = "local n, sum = ..., 0; squares = {}\n"
			     "for i = 1, n do squares[i] = i * i end\n"
			     "for i = 1, n do sum = sum + squares[i] end\n"
			     "return sum";
static const char greedy[] = "hoard = {}; while true do hoard[#hoard + 1] = ('x'):rep(1000) .. #hoard end";
static const char let_go[] = "hoard = nil; collectgarbage()";

static struct {
	lua_State *lua;
	lua_Integer result;
	const char *error;	/* on the state's stack */
} tenant[TENANTS];

static void *charge_and_allocate(void *group_of_state, void *block, size_t before, size_t bytes)
{
	MEMCG_SCOPE(group_of_state);

	(void)before;
	if (bytes)
		return kvrealloc(block, bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	kvfree(block);
	return NULL;
}

/* Runs script(number); both are on the stack. lua_pcall must call this function, because each step may lack memory. */
static int call(lua_State *lua)
{
	luaL_openlibs(lua);
	if (luaL_loadstring(lua, lua_touserdata(lua, 1)))
		return lua_error(lua);
	lua_pushvalue(lua, 2);
	lua_call(lua, 1, 1);
	return 1;
}

static void run(int i, const char *script)
{
	lua_State *lua = tenant[i].lua;

	lua_settop(lua, 0);
	lua_pushcfunction(lua, call);
	lua_pushlightuserdata(lua, (void *)script);
	lua_pushinteger(lua, 4 * i);
	tenant[i].error = lua_pcall(lua, 2, 1, 0) ? lua_tostring(lua, -1) : NULL;
	tenant[i].result = lua_tointeger(lua, -1);
}

static bool right(int i)
{
	lua_Integer n = 4 * i;

	return !tenant[i].error && tenant[i].result == n * (n + 1) * (2 * n + 1) / 6;
}

static void serve(int i)
{
	must((tenant[i].lua = lua_newstate(charge_and_allocate, group[i])), "a state");
	run(i, i == HOG ? greedy : honest);
}

int main(void)
{
	int good = 0;

	open_groups("scripts");
	serve_all(serve);
	for (int i = 0; i < TENANTS; i++)
		if (right(i))
			good++;
		else
			printf("tenant %d: %s\n", i, tenant[i].error ?: "wrong");
	printf("%d of %d scripts are right\n", good, TENANTS);
	print_tree(4);

	run(HOG, let_go);
	run(HOG, honest);
	printf("tenant %d, when it has let go: %s\n", HOG, right(HOG) ? "right" : "wrong");
	for (int i = 0; i < TENANTS; i++)
		lua_close(tenant[i].lua);
	close_groups();
	return 0;
}
