/*
 * mailbox.c: requests from outside the process (cache/mailbox.h), and settling of draining shadow caches. Invariants:
 * a request is copied first, and every part of the copy is validated. No thread waits for a lock here, so requests
 * cannot deadlock a program. Each request is executed once and answered once, by number. A request prints at most one
 * line on standard error, except a requested report.
 */
#include <errno.h>

#include "cache/cache.h"
#include "cache/mailbox.h"
#include "os/die.h"
#include "os/os.h"
#include "percpu/pcpu.h"
#include "os/stderr.h"
#include "stack.h"
#include "write_cache.h"

#define LOOK_MS		200u		/* time between checks of draining shadow caches */
#define KEPT_MS		10000u		/* longest time with closed gates per request; the command may be dead */

static struct {
	uint64_t next_look;
	struct km_reclaim_round shrink;	/* shrink round over all caches */
	uint32_t before;		/* number answered before the last one */
	uint32_t kept_for;		/* request with kept closed gates */
	uint64_t kept_until;
} control;

/* ------------------------------------------------------------------ one request */

struct kmem_mail_report km_control_report km_sparse;

struct order {
	struct kmem_mail_request request;
	slab_flags_t flags;
	unsigned count;			/* number of caches of that name */
	int result;
	unsigned damages;
	bool report;			/* print the leak report after the answer */
	bool writes;			/* write to a cache file */
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

static void read_order(struct order *order)
{
	struct kmem_mail_request *request = &order->request;

	*order = (struct order){ .result = -EINVAL };
	for (size_t i = 0; i < sizeof(*request); i++)
		((char *)request)[i] = km_load((const char *)&km_mail.request + i);
	const bool ended = is_ended(request->cache, sizeof(request->cache)) &&
			   is_ended(request->letters, sizeof(request->letters));
	bool fits = false;
	switch (request->command) {
	case KMEM_MAIL_LEAKS:
		fits = true;
		break;
	case KMEM_MAIL_PROFILE:
	case KMEM_MAIL_SHRINK:
	case KMEM_MAIL_GROUP:
		fits = ended;
		break;
	case KMEM_MAIL_VALIDATE:
		fits = ended && request->cache[0];
		break;
	case KMEM_MAIL_ACCOUNT:
		fits = ended && (is_on(order) || !__builtin_strcmp(request->letters, "off"));
		break;
	case KMEM_MAIL_DEBUG:
		if (!km_debug_ops) {
			order->result = -EOPNOTSUPP;
			return;
		}
		fits = ended && request->cache[0] && km_debug_ops->letters(request->letters, &order->flags);
		break;
	default:
		order->writes = fits = ended && km_written_fits(request);
	}
	order->result = fits ? 0 : -EINVAL;
}

static int serve_cache(struct kmem_cache *cache, void *arg)
{
	struct order *order = arg;

	if (cache->ext.shadow_of || __builtin_strcmp(cache->registry.name, order->request.cache) != 0)
		return 0;
	order->count++;
	int error = km_debug_ops->switch_flags(cache, order->flags);
	order->result = order->result ?: error;
	return 0;
}

static bool is_for_all(const struct order *order)
{
	return order->request.cache[0] == '*' && !order->request.cache[1];
}

/* Validate a matching cache. A shadow cache is validated together with its cache. */
static int validate_cache(struct kmem_cache *cache, void *arg)
{
	struct order *order = arg;

	if (cache->ext.shadow_of ||
	    (!is_for_all(order) &&
	     __builtin_strcmp(cache->registry.name, order->request.cache) != 0))
		return 0;
	order->count++;
	order->damages += (unsigned)kmem_cache_validate(cache);
	return 0;
}

/*
 * Validate caches. The lines go to the caller and to standard error; the program continues after any damage. An
 * object in use by another thread during the check would look damaged, and be "repaired". Therefore a program with
 * several threads is refused with -EBUSY.
 */
static void validate(struct order *order, uint32_t number)
{
	struct km_heard heard = { .text = km_control_report.text, .bytes = sizeof(km_control_report.text) };

	const bool holds = km_options.observed && km_observer_ops->hold();

	if ((km_options.observed && !holds) || km_os_threads() != 1) {
		order->result = -EBUSY;
		goto end;
	}
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
	km_control_report.number = number;
	order->result = order->count ? 0 : -ENOENT;
end:
	if (holds)
		km_observer_ops->let_go();
}

/* Print the change. No letters mean all letters. */
static void say_debugged(const struct order *order)
{
	const char *cache = order->request.cache, *letters = order->request.letters;

	const bool lacks = order->flags & SLAB_STORE_USER && !km_stack_is_there();

	if (!order->flags)
		km_warn("%s: new objects are not debugged any more, as requested by another process", cache);
	else
		km_warn("%s: new objects are debugged with \"%s\", as requested by another process%s", cache,
			letters[0] ? letters : "FZPU", lacks ? "; stacks have one frame" : "");
}

/* Caches of one name are shrunk at once; a round over all caches may take several ticks. */
static bool is_for_named(const struct order *order)
{
	return order->request.command == KMEM_MAIL_SHRINK && order->request.cache[0];
}

/* Write to a file of a group. */
static int write_group(const struct kmem_mail_request *request)
{
	return km_has_accounting() ? km_charge_ops->write(request->cache, request->letters) : -ENOENT;
}

/*
 * Execute a request. A completed request is answered before another thread or the next tick can see the request as
 * open. A request stopped by a lock (-EAGAIN) has changed nothing and stays open. Context: the registry is locked.
 */
static void serve(struct order *order, uint32_t number)
{
	if (order->request.command == KMEM_MAIL_LEAKS) {
		order->report = km_debug_ops && km_debug_ops->has_tracks();
		order->result = order->report ? 0 : -ENODATA;
	} else if (order->request.command == KMEM_MAIL_PROFILE) {
		order->result = order->result ?: km_profile_ops ? km_profile_ops->ask(&order->request) : -EOPNOTSUPP;
	} else if (order->request.command == KMEM_MAIL_VALIDATE && !order->result) {
		validate(order, number);
	} else if (order->request.command == KMEM_MAIL_ACCOUNT && !order->result) {
		order->result = km_has_accounting() ? km_charge_ops->account_malloc(is_on(order)) : -EOPNOTSUPP;
	} else if (order->writes) {
		order->result = km_written_serve(&order->request);
		if (order->result == -EAGAIN)
			return;
	} else if (order->request.command == KMEM_MAIL_GROUP && !order->result) {
		order->result = write_group(&order->request);
		if (order->result == -EAGAIN)
			return;
	} else if (is_for_named(order) && !order->result) {
		order->result = km_reclaim_named(order->request.cache);
		if (order->result == -EAGAIN)
			return;
	} else if (order->request.command == KMEM_MAIL_DEBUG && !order->result) {
		km_registry_each(serve_cache, order);
		if (!order->count)
			order->result = -ENOENT;
		else if (!order->result)
			say_debugged(order);
	}
	km_debug(km_thread.busy && order->result <= 0, "a request ends in an error, or in none");
	km_mail.done = order->request;
	km_store(&km_mail.result, order->result);
	km_store(&control.before, km_load(&km_mail.answered));
	/* Release pairs with look_for_mail, and with the reader in another process. */
	km_store_release(&km_mail.answered, number);
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
	read_order(&order);
	/* End an expired profile, so that a new profile can start. */
	if (order.request.command == KMEM_MAIL_PROFILE)
		km_probes_look();
	/* False: the round is not complete, or another thread works on the round. */
	if (order.request.command == KMEM_MAIL_SHRINK && !order.result && !is_for_named(&order) &&
	    !km_reclaim_part(&control.shrink, number))
		return;
	/* Validation, draining of sheaves and closing of size classes wait for cache locks. */
	const bool waits = order.request.command == KMEM_MAIL_VALIDATE || order.request.command == KMEM_MAIL_ACCOUNT ||
			   order.request.command == KMEM_MAIL_GROUP || is_for_named(&order);
	if ((waits || order.writes) && km_thread.locks_held)
		return;
	if (!km_registry_trylock())
		return;
	/* Another thread may have answered meanwhile. */
	if (number != km_load(&km_mail.answered) && number == km_load(&km_mail.asked))
		serve(&order, number);
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

/*
 * Keep the fast-path gates closed until the request is answered or withdrawn, so that every call may tick. Otherwise
 * a request that needs several ticks or a lock would be stranded by a program back on the fast path. Concurrent
 * threads may set the deadline twice.
 */
static void keep_ways(void)
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
	keep_ways();
	look_at_shadows();
}

const struct km_control_ops km_control = { .tick = tick, .report = &km_control_report };
KM_REGISTER(km_control_ops, km_control);
