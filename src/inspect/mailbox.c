/*
 * mailbox.c: requests from outside the process (cache/mailbox.h), and settling of draining shadow caches. Invariants:
 * a request is copied first, and every part of the copy is validated before any change. No thread waits for a lock
 * here, so requests cannot deadlock a program. Each request is executed once and answered once, by number. A request
 * prints at most one line on standard error, except a requested report.
 */
#include <errno.h>

#include "base/text.h"
#include "cache/cache.h"
#include "cache/mailbox.h"
#include "os/die.h"
#include "os/os.h"
#include "percpu/pcpu.h"
#include "os/stderr.h"
#include "stack.h"

#define LOOK_MS		200u		/* ms between two checks of debug shadow caches */
#define KEPT_MS		10000u		/* most ms that a request may shut the fast-path gate; its command may be
					 * dead */

static struct {
	uint64_t next_look;
	struct km_reclaim_round shrink;	/* state of a request to shrink all caches */
	uint32_t before;		/* request that was answered before the last one */
	uint32_t kept_for;		/* request for which the gate is kept shut */
	uint64_t kept_until;
} control;

struct kmem_mail_report km_control_report km_sparse;

#define MOST_NUMBERS	3u

/* A kind of request: what its command needs, and its functions. */
struct order;
struct kind {
	bool (*fits)(struct order *order);	/* checks the request's texts before any change; NULL: all texts are
						 * valid */
	/* Returns: 0 or -errno; -EAGAIN: a lock is held by another thread, nothing has changed, and the request stays
	 * open. */
	int (*serve)(struct order *order);
	bool has_texts, is_named;	/* the request must have two texts that end with NUL; the name of a cache must
					 * not be empty */
	bool waits;			/* the command waits for locks of caches or groups */
	uint8_t numbers;		/* how many numbers the text `letters` must have */
};

struct order {
	struct kmem_mail_request request;
	const struct kind *kind;	/* kind of the command; NULL: unknown command */
	uint32_t asked;			/* number of the request being served */
	slab_flags_t flags;
	unsigned long number[MOST_NUMBERS];
	unsigned count;			/* number of caches that the request names */
	int result;
	unsigned damages;
	bool report;			/* print the leak report after the answer */
};

static bool is_ended(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (!text[i])
			return true;
	return false;
}

static bool is_on(const struct order *order)
{
	return !__builtin_strcmp(order->request.letters, "on");
}

static bool is_for_all(const struct order *order)
{
	return order->request.cache[0] == '*' && !order->request.cache[1];
}

static bool is_named(const struct kmem_cache *cache, const struct order *order)
{
	return !cache->ext.shadow_of && __builtin_strcmp(cache->registry.name, order->request.cache) == 0;
}

/* ------------------------------------------------------------------ debugging */

static bool fits_debug(struct order *order)
{
	return !km_debug_ops || km_debug_ops->letters(order->request.letters, &order->flags);
}

static int debug_cache(struct kmem_cache *cache, void *arg)
{
	struct order *order = arg;

	if (!is_named(cache, order))
		return 0;
	order->count++;
	int error = km_debug_ops->switch_flags(cache, order->flags);
	order->result = order->result ?: error;
	return 0;
}

/* Change the debugging of new objects, and print the change. No letters mean all letters. */
static int serve_debug(struct order *order)
{
	const char *cache = order->request.cache, *letters = order->request.letters;
	const bool lacks = order->flags & SLAB_STORE_USER && !km_stack_is_there();

	if (!km_debug_ops)
		return -EOPNOTSUPP;
	km_registry_each(debug_cache, order);
	if (!order->count || order->result)
		return order->count ? order->result : -ENOENT;
	if (!order->flags)
		km_warn("%s: new objects are not debugged any more, as requested by another process", cache);
	else
		km_warn("%s: new objects are debugged with \"%s\", as requested by another process%s", cache,
			letters[0] ? letters : "FZPU", lacks ? "; stacks have one frame" : "");
	return 0;
}

static int serve_leaks(struct order *order)
{
	order->report = km_debug_ops && km_debug_ops->has_tracks();
	return order->report ? 0 : -ENODATA;
}

static int serve_profile(struct order *order)
{
	return km_profile_ops ? km_profile_ops->ask(&order->request) : -EOPNOTSUPP;
}

/* Validate a matching cache. A shadow cache is validated together with its cache. */
static int validate_cache(struct kmem_cache *cache, void *arg)
{
	struct order *order = arg;

	if (cache->ext.shadow_of || (!is_for_all(order) && !is_named(cache, order)))
		return 0;
	order->count++;
	order->damages += (unsigned)kmem_cache_validate(cache);
	return 0;
}

/* Validates caches. The lines go to the requesting process and to standard error; the program continues after any
 * damage. A program with several threads is refused with -EBUSY, because an object in use by another thread during the
 * check would look damaged, and be "repaired". */
static int serve_validate(struct order *order)
{
	struct km_heard heard = { .text = km_control_report.text, .bytes = sizeof(km_control_report.text) };
	const bool holds = km_options.observed && km_observer_ops->hold();
	const bool alone = (!km_options.observed || holds) && km_os_threads() == 1;

	if (alone) {
		km_debug(!km_thread.heard && km_thread.busy, "one validation on request runs at a time");
		km_thread.heard = &heard;
		km_registry_each(validate_cache, order);
		if (is_for_all(order)) {
			order->damages += (unsigned)(km_engines_check() + km_arena_check());
			if (km_block_hooks)
				order->damages += (unsigned)km_block_hooks->check();
		}
		km_thread.heard = NULL;
		km_control_report.damages = order->damages;
		km_control_report.length = (uint32_t)heard.length;
		km_control_report.number = order->asked;
	}
	if (holds)
		km_observer_ops->let_go();
	return !alone ? -EBUSY : order->count ? 0 : -ENOENT;
}

/* Caches of one name are shrunk at once; a round over all caches may take several ticks. */
static bool is_for_named(const struct order *order)
{
	return order->request.command == KMEM_MAIL_SHRINK && order->request.cache[0];
}

static int serve_shrink(struct order *order)
{
	return is_for_named(order) ? km_reclaim_named(order->request.cache) : 0;
}

/* ------------------------------------------------------------------ groups */

static int serve_group(struct order *order)
{
	return km_has_accounting() ? km_charge_ops->write(order->request.cache, order->request.letters) : -ENOENT;
}

static bool fits_account(struct order *order)
{
	return is_on(order) || !__builtin_strcmp(order->request.letters, "off");
}

static int serve_account(struct order *order)
{
	return km_has_accounting() ? km_charge_ops->account_malloc(is_on(order)) : -EOPNOTSUPP;
}

/* ------------------------------------------------------------------ writes to files of a cache, as the kernel's */

/* A request's letters: exactly the command's decimal numbers, separated by single blanks. */
static bool fits_numbers(struct order *order)
{
	const char *text = order->request.letters;

	for (unsigned i = 0; i < order->kind->numbers; i++)
		if ((i && *text++ != ' ') || !km_text_number(&text, UINT32_MAX, &order->number[i]))
			return false;
	return !*text;
}

/* Kernel: once a cache matches, values refused by slabinfo are ignored. */
static int tune(struct kmem_cache *cache, const unsigned long *number)
{
	if (!number[0] || !number[1] || number[1] > number[0])
		return 0;
	return km_cache_tune_locked(cache, (unsigned)number[0], (unsigned)number[1], (unsigned)number[2]);
}

/* Kernel, since 7.0: per-CPU partial slabs do not exist, and only 0 may be written. */
static int set_cpu_partial(struct kmem_cache *cache, unsigned long objects)
{
	if (!cache->layout.engine->chain.set_cpu_partial)
		return objects ? -EINVAL : 0;
	return cache->layout.engine->chain.set_cpu_partial(cache, objects);
}

static int write_one(struct kmem_cache *cache, const struct order *order)
{
	switch (order->request.command) {
	case KMEM_MAIL_MIN_PARTIAL:
		return kmem_cache_set_min_partial(cache, order->number[0]);
	case KMEM_MAIL_DEFRAG_RATIO:
		return kmem_cache_set_remote_node_defrag_ratio(cache, (unsigned)order->number[0]);
	case KMEM_MAIL_SHEAF_CAPACITY:
		return km_cache_set_capacity(cache, (unsigned)order->number[0]);
	case KMEM_MAIL_CPU_PARTIAL:
		return set_cpu_partial(cache, order->number[0]);
	case KMEM_MAIL_TUNE:
		return tune(cache, order->number);
	default:
		kmem_cache_clear_events(cache);
		return 0;
	}
}

/* A write also applies to the caches tuned with the cache; such a cache keeps the old value after a refusal. */
static int write_cache(struct kmem_cache *cache, void *arg)
{
	struct order *order = arg;
	const struct kmem_cache *leader = cache;

	while (leader && !is_named(leader, order))
		leader = leader->tune.tuned_with;
	if (!leader)
		return 0;
	km_debug(!cache->layout.dead, "a written cache exists");
	int error = write_one(cache, order);
	km_debug(error <= 0, "a write is accepted, or refused with an error");
	if (is_named(cache, order)) {
		order->count++;
		order->result = order->result ?: error;
	}
	return 0;
}

static int serve_write(struct order *order)
{
	km_registry_each(write_cache, order);
	return order->count ? order->result : -ENOENT;
}

/* ------------------------------------------------------------------ one request */

static const struct kind kinds[] = {
	[KMEM_MAIL_DEBUG] = { fits_debug, serve_debug, true, true, false, 0 },
	[KMEM_MAIL_LEAKS] = { NULL, serve_leaks, false, false, false, 0 },
	[KMEM_MAIL_PROFILE] = { NULL, serve_profile, true, false, false, 0 },
	[KMEM_MAIL_SHRINK] = { NULL, serve_shrink, true, false, false, 0 },
	[KMEM_MAIL_VALIDATE] = { NULL, serve_validate, true, true, true, 0 },
	[KMEM_MAIL_MIN_PARTIAL] = { fits_numbers, serve_write, true, true, true, 1 },
	[KMEM_MAIL_DEFRAG_RATIO] = { fits_numbers, serve_write, true, true, true, 1 },
	[KMEM_MAIL_SHEAF_CAPACITY] = { fits_numbers, serve_write, true, true, true, 1 },
	[KMEM_MAIL_CPU_PARTIAL] = { fits_numbers, serve_write, true, true, true, 1 },
	[KMEM_MAIL_TUNE] = { fits_numbers, serve_write, true, true, true, MOST_NUMBERS },
	[KMEM_MAIL_CLEAR] = { fits_numbers, serve_write, true, true, true, 0 },
	[KMEM_MAIL_GROUP] = { NULL, serve_group, true, false, true, 0 },
	[KMEM_MAIL_ACCOUNT] = { fits_account, serve_account, true, false, true, 0 },
};

static void read_order(struct order *order, uint32_t number)
{
	struct kmem_mail_request *request = &order->request;

	*order = (struct order){ .asked = number };
	for (size_t i = 0; i < sizeof(*request); i++)
		((char *)request)[i] = km_load((const char *)&km_mail.request + i);
	const bool ended = is_ended(request->cache, sizeof(request->cache)) &&
			   is_ended(request->letters, sizeof(request->letters));
	const struct kind *kind = request->command < km_array_count(kinds) ? &kinds[request->command] : kinds;
	order->kind = kind->serve ? kind : NULL;
	if (!order->kind || (kind->has_texts && !ended) || (kind->is_named && !request->cache[0]) ||
	    (kind->fits && !kind->fits(order)))
		order->result = -EINVAL;
}

/* Execute a request. A completed request is answered before another thread or the next tick can see the request as
 * open. Context: the registry is locked. */
static void serve(struct order *order)
{
	if (!order->result)
		order->result = order->kind->serve(order);
	if (order->result == -EAGAIN)
		return;
	km_debug(km_thread.busy && order->result <= 0, "a request ends in an error, or in none");
	km_mail.done = order->request;
	km_store(&km_mail.result, order->result);
	km_store(&control.before, km_load(&km_mail.answered));
	/* Release pairs with look_for_mail, and with the reader in another process. */
	km_store_release(&km_mail.answered, order->asked);
}

/* ------------------------------------------------------------------ ticks */

static void look_for_mail(void)
{
	/* Acquire: the request was written before. The writer is another process, with ordered system calls. */
	uint32_t number = km_load_acquire(&km_mail.asked);
	/* Acquire pairs with serve: control.before is set. */
	uint32_t answered = km_load_acquire(&km_mail.answered);
	struct order order;

	if (!km_options.control || number == answered)
		return;
	/* The request was withdrawn, or left to the parent of a fork, during its execution: ignore the number. */
	if (number == km_load(&control.before)) {
		km_cas_acquire(&km_mail.asked, &number, answered);
		return;
	}
	read_order(&order, number);
	/* End an expired profile, so that a new profile can start. */
	if (order.request.command == KMEM_MAIL_PROFILE)
		km_probes_look();
	/* False: the round is not complete, or another thread works on the round. */
	if (order.request.command == KMEM_MAIL_SHRINK && !order.result && !is_for_named(&order) &&
	    !km_reclaim_part(&control.shrink, number))
		return;
	if (!order.result && (order.kind->waits || is_for_named(&order)) && km_thread.locks_held)
		return;
	if (!km_registry_trylock())
		return;
	/* Only if no other thread has answered meanwhile, and the request is not withdrawn. */
	if (number != km_load(&km_mail.answered) && number == km_load(&km_mail.asked))
		serve(&order);
	km_registry_unlock();
	/* The reader of a pipe may be slow, so no lock is held here. */
	if (order.report)
		km_debug_ops->print_now(km_stderr(true));
}

static void look_at_shadows(void)
{
	uint64_t now = km_os_now_ms();

	if (!km_load(&km_shadows_drain) || now < km_load(&control.next_look) || !km_registry_trylock())
		return;
	km_store(&control.next_look, now + LOOK_MS);
	km_debug_ops->settle_all();
	km_registry_unlock();
}

/* Keeps the fast-path gate shut until the request is answered or withdrawn, so that every call may run a tick.
 * Otherwise a program whose calls are hits would not serve a request that needs several ticks. Several threads may set
 * the deadline, without harm. */
static void keep_gate_shut(void)
{
	const uint32_t number = km_load(&km_mail.asked);
	const bool open = km_options.control && number != km_load(&km_mail.answered);
	const uint64_t now = open ? km_os_now_ms() : 0;

	/* Release pairs with the acquire above: a visible number has its deadline. */
	if (open && km_load_acquire(&control.kept_for) != number) {
		km_store(&control.kept_until, now + KEPT_MS);
		km_store_release(&control.kept_for, number);
	}
	km_store(&km_gate_kept, open && now < km_load(&control.kept_until));
}

static void tick(void)
{
	km_debug(km_thread.busy && !km_thread.no_calls, "a tick belongs to a miss that may call the system");
	look_for_mail();
	keep_gate_shut();
	look_at_shadows();
}

const struct km_control_ops km_control = { .tick = tick, .report = &km_control_report };
KM_REGISTER(km_control_ops, km_control);
