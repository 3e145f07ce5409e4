/* twice.c: a double free. With KMEM_OPTIONS=check:1 the second free prints one line and ends the process. gcc warns
 * with -Wuse-after-free; meson.build disables this warning. */
#include <kmem/kmem.h>

struct session {
	char user[32];
	long token;
};

int main(void)
{
	struct kmem_cache *sessions = KMEM_CACHE(session, SLAB_PANIC);
	struct session *session = kmem_cache_zalloc(sessions, GFP_KERNEL);

	kmem_cache_free(sessions, session);
	kmem_cache_free(sessions, session);
	return 0;
}
