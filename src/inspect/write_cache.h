/* write_cache.h: what is written from outside to files that look like the kernel's. */
#ifndef KM_INSPECT_WRITE_CACHE_H
#define KM_INSPECT_WRITE_CACHE_H

#include "base/cc.h"

struct km_mail_request;

/* Is it such a request, whose texts end, and are its numbers there? */
bool km_written_fits(const struct km_mail_request *request);
/* 0, or what the first cache of that name refuses it by; -ENOENT: there is none; -EAGAIN: not now. With the
 * registry locked, and km_thread_busy set. */
int km_written_serve(const struct km_mail_request *request);

#endif
