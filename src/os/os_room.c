/*
 * os_room.c: address space worth a reservation, and lengths that the system would map. Invariant: errno does not
 * change.
 */
#include <sys/auxv.h>
#include <sys/resource.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "die.h"
#include "os_call.h"

static size_t room;	/* bytes of address space for reservations; 0: not yet computed */

static bool is_given_back(void *p, size_t bytes)
{
	if (p)
		km_os_unmap(p, km_align_up(bytes, km_os_page_bytes()));
	return p != NULL;
}

bool km_os_may_map(size_t bytes)
{
	return is_given_back(km_os_map(bytes, KM_PAGE_SIZE), bytes);
}

static bool may_reserve(size_t bytes)
{
	return is_given_back(km_os_reserve_whole(bytes, KM_PAGE_SIZE), bytes);
}

bool km_os_refuses(size_t bytes)
{
	return !km_os_may_map(bytes) && (bytes > km_os_memory() || km_os_may_map(KM_PAGE_SIZE));
}

/* Names the limit that is reached. Pages are reserved in parts of an eighth of RLIMIT_AS, and committed in steps of 4
 * MiB, so `bytes` may be refused below the limit. */
void km_os_tell_shortage(char *text, size_t room, size_t bytes)
{
	const size_t as = km_os_limit(RLIMIT_AS), data = km_os_limit(RLIMIT_DATA);
	const size_t step = km_min(km_max(bytes, (size_t)4 << 20), SIZE_MAX / 2);
	const bool limited = as != SIZE_MAX && !may_reserve(km_max(step, as / 8));

	if (limited || (data != SIZE_MAX && !km_os_may_map(step)))
		km_format(text, room, "process limit RLIMIT_%s (%lu bytes)", limited ? "AS" : "DATA",
			  (unsigned long)(limited ? as : data));
	else
		km_format(text, room, may_reserve(step) ? "system memory" : "address space");
}

/* Returns: true if the host of this process spends memory and time on inaccessible address space. User-mode emulators
 * do, and have no vDSO. A page table has a word for 4 KiB, and each page of these words costs a fault. */
static bool reserving_costs(void)
{
	const size_t bytes = (size_t)256 << 20;
	struct rusage before = { .ru_minflt = 0 }, after = before;

	if (getauxval(AT_SYSINFO_EHDR))
		return false;
	KM_CALL(getrusage(RUSAGE_SELF, &before));
	void *p = km_os_reserve(bytes, KM_PAGE_SIZE);
	KM_CALL(getrusage(RUSAGE_SELF, &after));
	is_given_back(p, bytes);
	return after.ru_minflt - before.ru_minflt >= (long)(bytes / KM_PAGE_SIZE * sizeof(void *) / KM_PAGE_SIZE);
}

size_t km_os_address_room(void)
{
	if (km_unlikely(!km_load(&room)))
		km_store(&room, reserving_costs() ? (size_t)8 << 30 : SIZE_MAX);
	return km_min(km_os_address_limit(), km_load(&room));
}

void km_os_set_address_room(size_t bytes)
{
	km_debug(bytes, "the limit leaves some room");
	km_store(&room, bytes);
}
