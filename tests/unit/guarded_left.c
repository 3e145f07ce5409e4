/*
 * guarded_left: a cache is destroyed while a guarded object is allocated. During the report another thread frees
 * the object, and another cache gets the slot: the slot stays with this other cache.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>
#include <kmem/stats.h>

#include "kit/check.h"
#include "page/guard_range.h"
#include "os/os.h"

int __real_km_os_write(int fd, const void *bytes, size_t count);
int __wrap_km_os_write(int fd, const void *bytes, size_t count);

static struct kmem_cache *one, *other;
static void *object, *again;
static __thread bool destroys;

static void *free_and_have(void *unused)
{
	kfree(object);
	again = kmem_cache_alloc(other, GFP_KERNEL);
	return unused;
}

int __wrap_km_os_write(int fd, const void *bytes, size_t count)
{
	pthread_t thread;

	if (destroys && !again && memmem(bytes, count, ", guarded", 9)) {
		NEED(pthread_create(&thread, NULL, free_and_have, NULL) == 0);
		pthread_join(thread, NULL);
	}
	return __real_km_os_write(fd, bytes, count);
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		setenv("KMEM_OPTIONS", "guard:each,guard_objects:1", 1);
		execl("/proc/self/exe", argv[0], "guarded", NULL);
		NEED(!"no exec");
	}
	one = kmem_cache_create("one", 64, NULL, SLAB_NO_MERGE);
	other = kmem_cache_create("other", 64, NULL, SLAB_NO_MERGE);
	NEED(one && other && (object = kmem_cache_alloc(one, GFP_KERNEL)) && km_is_guarded(object));
	destroys = true;
	kmem_cache_destroy(one);
	destroys = false;
	NEED(again && km_is_guarded(again));
	CHECK(kmem_cache_of(again) == other);
	kmem_cache_free(other, again);
	NEED(kmem_check_all() == 0);
	kmem_cache_destroy(other);
	return failures != 0;
}
