/*
 * profile.h: what files call of profile.c: a request from outside.
 */
#ifndef KM_PROFILE_H
#define KM_PROFILE_H

#include "cache/mailbox.h"
#include "alloc/profile_record.h"

/* KM_MAIL_PROFILE, with the registry locked: 0 or -errno. */
int km_profile_ask(const struct km_mail_request *request);
/* For tests: the same samples each time; 0: others. */
void km_profile_seed(uint64_t seed);

#endif
