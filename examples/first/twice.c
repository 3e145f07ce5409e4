/* twice.c: the same object is freed twice. With KMEM_OPTIONS=check:1 the second free is one line, and the end.
 * gcc warns of it as well, where it is not told not to, as here by meson.build: -Wuse-after-free. */
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
