/*
 * guard_report.c: reports of errors with guarded objects, in the format and words of the kernel's KFENCE, so that
 * existing tools can parse the reports. Invariant: safe in a fault handler: nothing is allocated, and no lock is
 * waited for, except for a bounded time the end of another report. The stack of the access, the only step that may
 * crash, comes last.
 */
#include "guard.h"

#include "base/bits.h"
#include "os/die.h"
#include "os/os.h"
#include "inspect/stack.h"

#define PATIENT		1000u		/* number of waits of 2 ms */
#define SHOWN		16u		/* most overwritten bytes printed */
#define PLACE		256u
#define RULE "=================================================================="

static uint32_t speaking;		/* owner's lock of the output and of the two buffers below */
static uintptr_t frames[KM_STACK_FRAMES];
static struct km_stack_track here;

/* First word of title and of sentence; for an access the kind is inserted between that word and "at". */
static const struct {
	const char *title, *sentence;
	bool access;
} words[] = {
	[KM_GUARD_OUT_OF_BOUNDS] = { "out-of-bounds", "Out-of-bounds", true },
	[KM_GUARD_USE_AFTER_FREE] = { "use-after-free", "Use-after-free", true },
	[KM_GUARD_INVALID_ACCESS] = { "invalid", "Invalid", true },
	[KM_GUARD_CORRUPTION] = { "memory corruption", "Corrupted memory at", false },
	[KM_GUARD_INVALID_FREE] = { "invalid free", "Invalid free of", false },
	[KM_GUARD_DOUBLE_FREE] = { "double-free", "Double free of", false },
};
static const char *const kinds[] = { [KM_ACCESS] = "access", [KM_ACCESS_READ] = "read", [KM_ACCESS_WRITE] = "write" };

static unsigned number(const struct km_guard_slot *slot)
{
	struct km_guard_slot *first;

	km_guard_slots(&first);
	return (unsigned)(slot - first);
}

/* Format milliseconds as seconds. */
static const char *seconds(uint64_t ms, char *text, size_t bytes)
{
	km_format(text, bytes, "%lu.%03lus", (unsigned long)(ms / 1000), (unsigned long)(ms % 1000));
	return text;
}

static void say_frames(const uintptr_t *frame, unsigned count)
{
	char place[PLACE];

	for (unsigned i = 0; i < count && frame[i]; i++)
		km_warn(" %p %s", (void *)frame[i], km_stack_place(frame[i], place, sizeof(place)));
}

static void say_track(const char *what, const struct km_stack_track *track, const char *more)
{
	char at[32], ago[32];

	if (!track->when)
		return;
	km_warn("%s by thread %u on cpu %u at %s (%s ago)%s:", what, track->thread, track->cpu,
		seconds(track->when, at, sizeof(at)), seconds(km_os_now_ms() - track->when, ago, sizeof(ago)), more);
	say_frames(track->frame, KM_STACK_FRAMES);
	if (!track->frame[0])
		km_warn(" (the object was cached on a CPU: the stack of the free is unknown)");
}

static void say_object(const struct km_guard_slot *slot)
{
	const char *unseen = slot->unseen ? ", or later: not every free of this cache is observed" : "";

	km_warn("kfence-#%u: %p-%p, size=%u, cache=%s", number(slot), (void *)slot->object,
		(void *)(slot->object + slot->bytes - 1), slot->bytes, slot->name);
	say_track("allocated", &slot->track[0], unseen);
	say_track("freed", &slot->track[1], "");
}

/* Print the bytes from the first overwritten one on: hexadecimal if changed, else a point. */
static void say_corruption(const struct km_guard_slot *slot)
{
	const char *page = km_guard_page(slot), *end = page + km_guarded.page_bytes, *at = page;
	char text[4 * SHOWN + 1] = "";
	size_t length = 0;

	while (at < end && (*at == (char)km_guard_canary(at) ||
			    (size_t)(at - slot->object) < slot->bytes))
		at++;
	const char *last = at < slot->object ? slot->object : end;
	for (unsigned i = 0; i < SHOWN && at + i < last; i++) {
		if (at[i] == (char)km_guard_canary(at + i))
			length += km_format(text + length, sizeof(text) - length, " .");
		else
			length += km_format(text + length, sizeof(text) - length, " %02x", (unsigned char)at[i]);
	}
	km_warn("Corrupted memory at %p [%s ] (in kfence-#%u):", (const void *)at, text, number(slot));
}

/* Print the address; for an access outside of the object, also the distance and the side. */
static void say_what(enum km_guard_error error, const char *address, const struct km_guard_slot *slot,
		     const struct km_fault *fault)
{
	const char *sentence = words[error].sentence, *at = fault ? " at " : "";
	const char *kind = fault ? kinds[fault->access] : "";

	if (error == KM_GUARD_CORRUPTION) {
		say_corruption(slot);
	} else if (!slot) {
		km_warn("%s %s%s%p:", sentence, kind, at, address);
	} else if (error == KM_GUARD_OUT_OF_BOUNDS) {
		bool left = address < slot->object;
		size_t far = (size_t)(left ? slot->object - address : address - (slot->object + slot->bytes) + 1);

		km_warn("%s %s%s%p (%luB %s of kfence-#%u):", sentence, kind, at, address, (unsigned long)far,
			left ? "left" : "right", number(slot));
	} else if (fault || (slot->object && address != slot->object)) {
		km_warn("%s %s%s%p (in kfence-#%u, at its byte %ld):", sentence, kind, at, address, number(slot),
			(long)(address - slot->object));
	} else {
		km_warn("%s %p (in kfence-#%u):", sentence, address, number(slot));
	}
}

void km_guard_report(enum km_guard_error error, const void *address, const struct km_guard_slot *slot,
		     const struct km_fault *fault)
{
	char place[PLACE];

	km_debug(error < km_array_count(words) && !fault == !words[error].access, "an access is a fault");
	for (unsigned i = 0; i < PATIENT && km_swap_acquire(&speaking, 1u); i++)
		km_os_wait(&speaking, 1, 2);
	km_add(&km_guarded.reports, 1ul);
	if (!fault)
		km_stack_track(&here);
	uintptr_t pc = fault ? fault->pc : here.frame[0];
	km_warn(RULE);
	km_warn("BUG: KFENCE: %s%s%s in %s", words[error].title, fault ? " " : "",
		fault ? kinds[fault->access] : "", km_stack_place(pc, place, sizeof(place)));
	say_what(error, address, slot, fault);
	if (!fault)
		say_frames(here.frame, KM_STACK_FRAMES);
	else
		say_frames(&pc, 1);
	if (slot && slot->object)
		say_object(slot);
	km_warn("CPU: %u PID: %u thread %u", km_os_getcpu(), km_os_pid(), km_os_thread());
	unsigned count = fault ? km_stack_behind(fault, frames, KM_STACK_FRAMES) : 0;
	if (count) {
		km_warn("The access came from:");
		say_frames(frames, count);
	}
	km_warn(RULE);
	if (fault)
		km_warn(KM_MISUSE_TOLD);
	km_store_release(&speaking, 0u);
	km_os_wake(&speaking);
}

/* ------------------------------------------------------------------ a fault */

/* Find the object nearer to an address between two pages. Returns: NULL if neither neighbor holds an object. */
static struct km_guard_slot *nearest(const char *address, size_t page)
{
	struct km_guard_slot *slot;
	unsigned count = km_guard_slots(&slot);
	struct km_guard_slot *left = page ? &slot[page / 2 - 1] : NULL;
	struct km_guard_slot *right = page / 2 < count ? &slot[page / 2] : NULL;

	if (left && km_load(&left->state) == KM_GUARD_FREE)
		left = NULL;
	if (right && km_load(&right->state) == KM_GUARD_FREE)
		right = NULL;
	if (!left || !right)
		return left ?: right;
	return address - (left->object + left->bytes) <= right->object - address ? left : right;
}

/* If the program continues after errors, make the page accessible. */
static enum km_fault_end go_on(const char *address, struct km_guard_slot *beside)
{
	size_t bytes = km_guarded.page_bytes;

	if (!km_misuse_goes_on())
		return KM_FAULT_KNOWN;
	if (beside)
		km_store(&beside->sides, true);
	return km_os_unguard((void *)km_align_down((uintptr_t)address, (uintptr_t)bytes), bytes) ? KM_FAULT_KNOWN :
												 KM_FAULT_RESUMED;
}

enum km_fault_end km_guard_fault(const struct km_fault *fault)
{
	const char *address = fault->address;
	struct km_guard_slot *slot;

	if (!km_is_guarded(address))
		return KM_FAULT_NOT_OURS;
	size_t page = ((uintptr_t)address - km_guarded.start) / km_guarded.page_bytes;
	if (page & 1) {
		km_guard_slots(&slot);
		slot += page / 2;
		bool used = slot->object && km_load(&slot->state) == KM_GUARD_FREE;
		km_guard_report(used ? KM_GUARD_USE_AFTER_FREE : KM_GUARD_INVALID_ACCESS, address, used ? slot : NULL,
				fault);
		return go_on(address, NULL);
	}
	slot = nearest(address, page);
	km_guard_report(slot ? KM_GUARD_OUT_OF_BOUNDS : KM_GUARD_INVALID_ACCESS, address, slot, fault);
	return go_on(address, slot);
}
