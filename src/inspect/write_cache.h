/* write_cache.h: writes from outside the process to files of a cache, modeled on the kernel's files. */
#ifndef KM_INSPECT_WRITE_CACHE_H
#define KM_INSPECT_WRITE_CACHE_H

#include "base/cc.h"

struct kmem_mail_request;

/* Returns: true if the request writes to a cache file, and the texts and numbers are well formed. */
bool km_written_fits(const struct kmem_mail_request *request);
/*
 * Execute a write on all caches of the name. Returns: 0, or the first error of a cache of that name; -ENOENT: no
 * cache; -EAGAIN: try later. Context: the registry is locked, km_thread.busy is set.
 */
int km_written_serve(const struct kmem_mail_request *request);

#endif
