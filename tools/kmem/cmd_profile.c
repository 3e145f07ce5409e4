/*
 * cmd_profile.c: `kmem profile`, shows the code of a running program by allocated memory. A request in the program's
 * mailbox starts sampling for some time (ext/profile/profile.c). This command reads the samples from the process's
 * memory (record: <kmem/record.h>) and names the functions. If the program has sampled since its start
 * (KMEM_OPTIONS=profile), the command sends no request and only reads. Invariant: the record is untrusted: each
 * size, count and index is checked, and each text is terminated.
 *
 * Exit status: 0; 1 what could not be done; 2 wrong usage.
 */
#define _GNU_SOURCE
#include "profile_data.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "request.h"
#include "info/info.h"
#include "cache/option_text.h"
#include "command.h"
#include "top/top.h"

#define LEAST_SECONDS	0.1
#define MOST_SECONDS	86000
#define GRACE_S		2u		/* then the program stops sampling without a request */
#define OVER_MS		1000u		/* wait for the answer to the request to stop, ms */
#define MOST_FILES	8u
#define MOST_SITES	(4 * KMEM_PROFILE_SITES)	/* limit for another build of the library */
#define MOST_EACH	4096u
#define MOST_SLOTS	(1u << 20)
#define SHOWN		10u
#define FEW		20u	/* fewer samples make shares meaningless */

static const char usage_text[] =
	"usage: kmem profile [OPTION...] PID\n"
	"Print the functions with the most allocated memory in a running program.\n"
	"  --seconds=N      time of the profile (30); for a program started with\n"
	"                   KMEM_OPTIONS=profile:512K optional\n"
	"  --mean=BYTES     mean distance of two samples (512K)\n"
	"  --cache=NAME     only objects of this cache\n"
	"  --group=NAME     only threads of this group, by name or number\n"
	"  --output=FILE    write a file: .pb.gz for pprof, .html or .svg with a flame\n"
	"                   graph, .txt with a line for each stack; may be repeated\n"
	"                   (default: kmem.PID.pb.gz and kmem.PID.html)\n"
	"  --wait=SECONDS   time to wait for the program (10); the program serves the\n"
	"                   request at its next allocation or free\n"
	"Example:\n"
	"  kmem profile --seconds=10 --output=redis.svg $(pidof redis-server)\n";

struct wish {
	pid_t pid;
	double seconds;			/* 0: no --seconds */
	unsigned long mean;
	unsigned wait_ms;
	const char *cache, *group;
	const char *file[MOST_FILES];
	unsigned files;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
	(void)number;
	interrupted = 1;
}

/* ------------------------------------------------------------------ the record */

struct reading {
	struct kmem_profile_record head;
	char *sites;			/* head.sites elements of head.site_bytes bytes */
	struct sum {
		uint64_t bytes, parts;
	} *out;				/* not freed, for each site */
};

static const struct kmem_profile_site *site_at(const struct reading *reading, size_t i)
{
	return (const void *)(reading->sites + i * reading->head.site_bytes);
}

/* Returns: the address of the profile record in the process, or NULL after an error message. */
static const void *find_record(struct target *target, pid_t pid)
{
	static struct info_root roots[INFO_MAX_ROOTS];

	if (!target_roots_in_use(target, roots))
		info_complain("profile", pid, target->result, target->version);
	else if (!layout_has(&roots[0].layout, "root.profile"))
		kmem_failed(1, "profile", "%d: runs libkmem %s, which takes no profiles", pid, target->version);
	else if (!roots[0].record.profile)
		kmem_failed(1, "profile", "%d: is linked without profiles; link with -Wl,-u,km_profiling", pid);
	else
		return roots[0].record.profile;
	return NULL;
}

/* Prints an error message. Returns: false. */
static bool has_gone(pid_t pid)
{
	kmem_failed(1, "profile", "%d: the process has ended, or runs another program now", pid);
	return false;
}

static bool unreadable(struct target *target, pid_t pid)
{
	if (!target_is_same(target))
		return has_gone(pid);
	info_complain("profile", pid, target->result, target->version);
	return false;
}

static bool is_sound(const struct kmem_profile_record *head)
{
	return head->site_bytes >= sizeof(struct kmem_profile_site) && head->site_bytes <= MOST_EACH &&
	       head->site_bytes % sizeof(uint64_t) == 0 && head->sites && head->sites <= MOST_SITES &&
	       head->slots && head->slots <= MOST_SLOTS && head->slot_bytes >= sizeof(struct kmem_profile_slot) &&
	       head->slot_bytes <= MOST_EACH && head->slot_bytes % sizeof(uint64_t) == 0 &&
	       head->frames == KMEM_PROFILE_FRAMES && head->mean;
}

static bool read_head(struct target *target, pid_t pid, const void *from, struct kmem_profile_record *head)
{
	if (!target_read(target, head, from, sizeof(*head)))
		return unreadable(target, pid);
	if (head->version != KMEM_PROFILE_VERSION)
		kmem_failed(1, "profile", "%d: its record has another version: use the kmem of the same libkmem", pid);
	return head->version == KMEM_PROFILE_VERSION;
}

/* Adds a live sample to the not-freed figures of the sample's site, scaled by the sampling probability. */
static void add_out(struct reading *reading, const struct kmem_profile_slot *slot)
{
	const uint64_t bytes = slot->what & KMEM_PROFILE_MOST_BYTES, site = slot->what >> KMEM_PROFILE_SITE_SHIFT;

	if (slot->p <= 1 || !bytes || site >= reading->head.sites)
		return;
	const double times = -1 / expm1(-(double)bytes / (double)reading->head.mean);
	reading->out[site].bytes += (uint64_t)((double)bytes * times + 0.5);
	reading->out[site].parts += (uint64_t)(KMEM_PROFILE_PART * times + 0.5);
}

static bool read_slots(struct target *target, struct reading *reading)
{
	const struct kmem_profile_record *head = &reading->head;
	char *slots = target_room(target, head->slots, head->slot_bytes);
	bool read = slots && target_read(target, slots, head->slot, (size_t)head->slots * head->slot_bytes);

	reading->out = target_keep(target, head->sites, sizeof(*reading->out));
	read = read && reading->out;
	for (size_t i = 0; read && i < head->slots; i++)
		add_out(reading, (const void *)(slots + i * head->slot_bytes));
	free(slots);
	return read;
}

/* Reads the whole record: head, slots, sites. Returns: false after an error message. */
static bool read_all(struct target *target, pid_t pid, const void *from, struct reading *reading)
{
	if (!read_head(target, pid, from, &reading->head))
		return false;
	if (!is_sound(&reading->head) || !reading->head.site) {
		kmem_failed(1, "profile", "%d: the process has no profile", pid);
		return false;
	}
	size_t bytes = (size_t)reading->head.sites * reading->head.site_bytes;
	target->budget.end_ms = 0;
	target_budget(target);
	reading->sites = target_keep(target, 1, bytes);
	/* The library adds a sample to a site before the sample takes a slot. Slots are read before sites, so no site
	 * has more bytes not freed than bytes allocated. */
	if (!reading->sites || !read_slots(target, reading) ||
	    !target_read(target, reading->sites, reading->head.site, bytes))
		return unreadable(target, pid);
	return true;
}

/* ------------------------------------------------------------------ stacks */

static const char *text_of(const char *text, size_t bytes)
{
	char *copy = kmem_need(calloc(1, bytes + 1));

	memcpy(copy, text, bytes);
	info_printable(copy, copy, bytes + 1);
	return copy;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static bool is_wanted(const struct wish *wish, const struct kmem_profile_site *site, const char *cache,
		      const char *group)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", site->group);
	return (!wish->cache || !strcmp(cache, wish->cache)) &&
	       (!wish->group || !strcmp(group, wish->group) || (site->group && !strcmp(number, wish->group)));
}

static uint64_t parts_of(const struct kmem_profile_site *site)
{
	return site->each ? (uint64_t)((double)site->bytes / site->each * KMEM_PROFILE_PART) : site->parts;
}

/* Adds the stack of a site, if wanted by --cache and --group. `before`: the site in an earlier reading, or NULL. */
static void add_stack(struct profile *profile, const struct wish *wish, const struct kmem_profile_site *site,
		      const struct sum *out, const struct kmem_profile_site *before)
{
	const char *cache = text_of(site->cache, sizeof(site->cache));
	const char *group = text_of(site->group_name, sizeof(site->group_name));
	unsigned depth = site->depth < KMEM_PROFILE_FRAMES ? site->depth : KMEM_PROFILE_FRAMES;

	if (!is_wanted(wish, site, cache, group))
		return;
	profile->stack = kmem_grow(profile->stack, profile->stacks, &profile->stack_room, sizeof(*profile->stack));
	struct stack *stack = &profile->stack[profile->stacks++];
	*stack = (struct stack){
		.bytes = less(site->bytes, before ? before->bytes : 0),
		.parts = less(parts_of(site), before ? parts_of(before) : 0),
		.out_bytes = out->bytes < site->bytes ? out->bytes : site->bytes, .out_parts = out->parts,
		.samples = (uint32_t)less(site->samples, before ? before->samples : 0),
		.cache = *cache ? cache : "large", .group = group, .depth = depth,
		.frame = kmem_need(calloc(depth + 1, sizeof(*stack->frame))),
	};
	for (unsigned i = 0; i < depth; i++)
		stack->frame[i] = profile_frame(profile, site->frame[i]);
	profile->samples += stack->samples;
}

static int by_out(const void *a, const void *b)
{
	const struct stack *x = a, *y = b;

	if (x->out_bytes != y->out_bytes)
		return x->out_bytes < y->out_bytes ? 1 : -1;
	return x->bytes == y->bytes ? 0 : x->bytes < y->bytes ? 1 : -1;
}

static void build(struct profile *profile, const struct wish *wish, const struct reading *now,
		  const struct reading *before)
{
	const bool follows = before && before->sites && before->head.number == now->head.number &&
			     before->head.sites == now->head.sites;

	profile->mean = now->head.mean;
	profile->lost = now->head.lost;
	profile->untracked = now->head.untracked;
	for (size_t i = 0; i < now->head.sites; i++) {
		const struct kmem_profile_site *site = site_at(now, i);
		const struct kmem_profile_site *old = follows ? site_at(before, i) : NULL;

		if (site->hash > 1 && site->depth)
			add_stack(profile, wish, site, &now->out[i], old && old->hash == site->hash ? old : NULL);
	}
	qsort(profile->stack, profile->stacks, sizeof(*profile->stack), by_out);
	profile->nothing_out = profile->samples && !profile->stack[0].out_bytes;
}

/* ------------------------------------------------------------------ what is printed */

static const char *amount(uint64_t bytes, char text[16])
{
	static const char units[] = "BKMGTP";
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1000 && unit < 5; unit++)
		value /= 1024;
	snprintf(text, 16, unit && value < 99.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
	return text;
}

struct row {
	const char *name;
	uint64_t bytes, out, shown;
};

static int by_row(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->out != y->out)
		return x->out < y->out ? 1 : -1;
	return x->bytes == y->bytes ? 0 : x->bytes < y->bytes ? 1 : -1;
}

static void add_row(struct row *rows, size_t *count, const char *name, const struct profile *profile,
		    const struct stack *stack)
{
	size_t i = 0;

	while (i < *count && strcmp(rows[i].name, name))
		i++;
	if (i == *count)
		rows[(*count)++] = (struct row){ .name = kmem_need(strdup(name)) };
	rows[i].bytes += stack->bytes;
	rows[i].out += stack->out_bytes;
	rows[i].shown += profile_shown(profile, stack);
}

/* Checks by name for an allocation wrapper; the caller of a wrapper says more than the wrapper. */
static bool is_wrapper(const char *name)
{
	return strcasestr(name, "alloc") || strcasestr(name, "strdup") || !strncmp(name, "operator new", 12);
}

/* Returns: the innermost function of a stack that is no allocation wrapper, else the innermost function. */
static const char *asker(const struct profile *profile, const struct stack *stack)
{
	for (unsigned i = 0; i < stack->depth; i++)
		for (unsigned step = 0; step < profile_steps(profile, stack->frame[i]); step++) {
			const char *name = profile_frame_name(profile, stack->frame[i], step);

			if (!is_wrapper(name))
				return name;
		}
	return profile_frame_name(profile, stack->frame[0], 0);
}

/* Checks whether any frame of the stack is in the function. */
static bool is_within(const struct profile *profile, const struct stack *stack, const char *name)
{
	for (unsigned i = 0; i < stack->depth; i++)
		for (unsigned step = 0; step < profile_steps(profile, stack->frame[i]); step++)
			if (!strcmp(profile_frame_name(profile, stack->frame[i], step), name))
				return true;
	return false;
}

/* Print a function's row: the bytes asked for by the function itself, and together with the functions called by it. */
static void print_row(const struct profile *profile, const struct row *row, uint64_t all)
{
	uint64_t within = 0;
	char text[2][16];

	for (size_t i = 0; i < profile->stacks; i++)
		if (is_within(profile, &profile->stack[i], row->name))
			within += profile_shown(profile, &profile->stack[i]);
	printf("%10s %10s %6.1f %5.1f  %.70s\n", amount(row->out, text[0]), amount(row->bytes, text[1]),
	       all ? 100.0 * (double)row->shown / (double)all : 0.0, all ? 100.0 * (double)within / (double)all : 0.0,
	       row->name);
}

/* Prints a table of functions. A stack counts for the innermost function without allocation wrappers. */
static void print(const struct profile *profile)
{
	struct row *rows = kmem_need(calloc(profile->stacks + 1, sizeof(*rows))), sum = { .name = "all" };
	char text[2][16];
	size_t count = 0;

	for (size_t i = 0; i < profile->stacks; i++) {
		const struct stack *stack = &profile->stack[i];

		sum.bytes += stack->bytes;
		sum.out += stack->out_bytes;
		add_row(rows, &count, asker(profile, stack), profile, stack);
	}
	const uint64_t all = profile->nothing_out ? sum.bytes : sum.out;
	const double whole = all ? 100.0 : 0.0;
	printf("%d (%s): %.1f s, %llu samples, one for %s on the average\n", (int)profile->pid, profile->program,
	       (double)profile->ms / 1000, (unsigned long long)profile->samples, amount(profile->mean, text[0]));
	if (profile->nothing_out)
		printf("no sampled object is allocated now: shares and pictures show all sampled allocations\n");
	printf("%10s %10s %6s %5s  %s\n", "OUT", "ALLOCATED",
	       profile->nothing_out ? "ALLOC%" : "OUT%", "CUM%", "FUNCTION");
	printf("%10s %10s %6.1f %5.1f  all\n", amount(sum.out, text[0]), amount(sum.bytes, text[1]), whole, whole);
	qsort(rows, count, sizeof(*rows), by_row);
	for (size_t i = 0; i < count && i < SHOWN; i++)
		print_row(profile, &rows[i], all);
	free(rows);
	if (profile->lost || profile->untracked)
		kmem_failed(0, "profile", "%d: %llu samples are missing because of too many stacks, and the state of "
					  "%llu samples is unknown: use a larger --mean", (int)profile->pid,
			    (unsigned long long)profile->lost, (unsigned long long)profile->untracked);
}

/* With few samples, prints a note if more resident memory came from the system than from libkmem (mmap, or another
 * malloc). */
static void tell_of_others(const struct profile *profile)
{
	const struct top_targets targets = { .pids = &profile->pid, .count = 1 };
	const struct top_view view = { .sort = TOP_BY_RESIDENT };
	struct top_sample sample = { .rows = NULL };
	char text[2][16];

	if (profile->samples >= FEW || !top_take(&targets, &view, &sample))
		return;
	const struct top_equation *sum = &sample.sum;
	unsigned long others = sum->other - sum->files;
	if (!sum->unknown && others > sum->live)
		kmem_failed(0, "profile", "%d: few samples: %s of its memory come from libkmem, %s from mmap or "
					  "another malloc", (int)profile->pid, amount(sum->live, text[0]),
			    amount(others, text[1]));
	top_clear(&sample);
}

/* ------------------------------------------------------------------ files */

static const struct {
	const char *end;
	bool (*write)(const struct profile *profile, FILE *to);
} formats[] = {
	{ ".pb.gz", profile_write_pprof }, { ".html", profile_write_html }, { ".svg", profile_write_svg },
	{ ".txt", profile_write_folded },
};

static unsigned format_of(const char *name)
{
	size_t length = strlen(name);

	for (unsigned i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		size_t end = strlen(formats[i].end);

		if (length > end && !strcmp(name + length - end, formats[i].end))
			return i;
	}
	kmem_usage("profile", "--output: '%s' must end in .pb.gz, .html, .svg or .txt", name);
}

struct filling {
	const struct profile *profile;
	const char *name;
};

/* Writes the profile to `fd`. Returns: 0 or an errno. */
static int fill_file(int fd, void *arg)
{
	const struct filling *filling = arg;
	const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *to = copy >= 0 ? fdopen(copy, "w") : NULL;

	if (!to)
		return errno;
	int error = formats[format_of(filling->name)].write(filling->profile, to) ? 0 : errno ?: EIO;
	return fclose(to) && !error ? errno : error;
}

static int write_file(const struct profile *profile, const char *name)
{
	int status = kmem_replace("profile", name, fill_file, &(struct filling){ profile, name });

	if (!status)
		printf("%s\n", name);
	return status;
}

static int write_files(const struct profile *profile, const struct wish *wish)
{
	int status = 0;

	for (unsigned i = 0; i < wish->files; i++)
		status |= write_file(profile, wish->file[i]);
	if ((fflush(stdout) || ferror(stdout)) && !status)
		return kmem_failed(1, "profile", "writing: %s", strerror(errno));
	return status;
}

/* ------------------------------------------------------------------ a profile */

static void read_program(struct profile *profile, pid_t thread)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/%d/comm", (int)thread);
	FILE *from = fopen(name, "re");
	if (!from || !fgets(profile->program, sizeof(profile->program), from))
		strcpy(profile->program, "?");
	profile->program[strcspn(profile->program, "\n")] = '\0';
	info_printable(profile->program, profile->program, sizeof(profile->program));
	if (from)
		fclose(from);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void sleep_until(uint64_t end)
{
	struct sigaction action = { .sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND }, before;

	sigaction(SIGINT, &action, &before);
	for (uint64_t now; !interrupted && (now = now_ms()) < end;)
		usleep(1000u * (unsigned)(end - now < 100 ? end - now : 100));
	sigaction(SIGINT, &before, NULL);
}

static int why_not(pid_t pid, const struct kmem_mail_request *request, int error)
{
	(void)request;
	if (error == EBUSY)
		return kmem_failed(1, "profile", "%d: another command takes a profile of this process", pid);
	return kmem_failed(1, "profile", "%d: %s", pid,
			   error == EINVAL ? "the process takes no profiles" : strerror(error));
}

/* Asks the process to take a profile. Returns: 0, or 1 after an error message. */
static int ask_for(const struct wish *wish, const char *letters)
{
	struct kmem_mail_request request = { .command = KMEM_MAIL_PROFILE };

	strcpy(request.cache, wish->cache ?: "");
	snprintf(request.letters, sizeof(request.letters), "%s", letters);
	return kmem_ask("profile", wish->pid, &request, wish->wait_ms, why_not);
}

/* Starts a profile in the process, waits, reads the record, and stops the profile. */
static int take(struct target *target, const struct wish *wish, const void *from, struct reading *now)
{
	double seconds = wish->seconds > 0 ? wish->seconds : 30;
	char letters[KMEM_MAIL_LETTERS];

	snprintf(letters, sizeof(letters), "%lu:%lu", wish->mean, (unsigned long)seconds + 1 + GRACE_S);
	if (ask_for(wish, letters))
		return 1;
	sleep_until(now_ms() + (uint64_t)(seconds * 1000));
	if (!read_all(target, wish->pid, from, now))
		return 1;
	/* Without an answer, sampling still ends after GRACE_S, at the program's next sample or slow path. */
	struct kmem_mail_request over = { .command = KMEM_MAIL_PROFILE, .letters = "0" };
	kmem_tell(wish->pid, &over, OVER_MS);
	return 0;
}

/* Reads a profile running since the program's start. With --seconds, reads twice, for the difference. */
static int look_at(struct target *target, const struct wish *wish, const void *from, struct reading *before,
		   struct reading *now)
{
	if (wish->seconds > 0) {
		if (!read_all(target, wish->pid, from, before))
			return 1;
		sleep_until(now_ms() + (uint64_t)(wish->seconds * 1000));
	}
	return !read_all(target, wish->pid, from, now);
}

/* Checks the output files before sampling starts. Returns: false after an error message. */
static bool can_write(const struct wish *wish)
{
	bool all = true;

	for (unsigned i = 0; all && i < wish->files; i++)
		all = kmem_is_replaceable("profile", wish->file[i]);
	return all;
}

static int run(const struct wish *wish)
{
	if (!can_write(wish))
		return 1;
	struct target target = { .pid = target_thread(wish->pid) };
	struct profile profile = { .pid = wish->pid, .thread = target.pid };
	struct reading before = { .sites = NULL }, now = { .sites = NULL };

	/* Remember the present program: after exec(), the new program's record may lie at another address or at the
	 * same one. */
	target_see(&target);
	const void *from = find_record(&target, wish->pid);
	struct kmem_profile_record head;
	struct timespec time;

	if (!from || !read_head(&target, wish->pid, from, &head))
		return 1;
	read_program(&profile, target.pid);
	clock_gettime(CLOCK_REALTIME, &time);
	uint64_t began = now_ms();
	bool goes_on = head.state == KMEM_PROFILE_ON && !head.ends_ms;
	if (goes_on ? look_at(&target, wish, from, &before, &now) : take(&target, wish, from, &now))
		return 1;
	profile.ms = now_ms() - (goes_on && wish->seconds <= 0 ? now.head.began_ms : began);
	profile.began_ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
	profile_maps(&profile, target.pid);
	if (!target_is_same(&target))
		return !has_gone(wish->pid);
	build(&profile, wish, &now, &before);
	profile_name_all(&profile);
	print(&profile);
	if (!wish->cache && !wish->group)
		tell_of_others(&profile);
	return write_files(&profile, wish);
}

/* ------------------------------------------------------------------ the command */

static unsigned long mean_of(const char *text)
{
	uint64_t bytes;

	if (!km_parse_bytes(text, &bytes) || bytes > 999999999)
		kmem_usage("profile", "--mean: '%s' is not a number of bytes, for example 512K", text);
	return (unsigned long)bytes;
}

static void read_option(struct wish *wish, int code)
{
	switch (code) {
	case 's':
		wish->seconds = kmem_seconds("profile", optarg, LEAST_SECONDS, MOST_SECONDS);
		break;
	case 'm':
		wish->mean = mean_of(optarg);
		break;
	case 'c':
		if (strlen(optarg) >= KMEM_MAIL_NAME)
			kmem_usage("profile", "--cache: '%s': a name has at most %u characters", optarg,
				   KMEM_MAIL_NAME - 1);
		wish->cache = optarg;
		break;
	case 'g':
		wish->group = optarg;
		break;
	case 'o':
		if (wish->files == MOST_FILES)
			kmem_usage("profile", "--output: at most %u files", MOST_FILES);
		format_of(optarg);
		wish->file[wish->files++] = optarg;
		break;
	case 'w':
		wish->wait_ms = kmem_ask_wait("profile", optarg);
		break;
	}
}

/* Adds the default output files, kmem.PID.pb.gz and kmem.PID.html. */
static void add_own_files(struct wish *wish)
{
	static const char *const ends[] = { ".pb.gz", ".html" };

	for (size_t i = 0; i < KMEM_COUNT(ends); i++) {
		char *name;

		if (asprintf(&name, "kmem.%d%s", (int)wish->pid, ends[i]) < 0)
			kmem_need(NULL);
		wish->file[wish->files++] = name;
	}
}

int cmd_profile(int argc, char **argv)
{
	static const struct option known[] = {
		{ "seconds", required_argument, NULL, 's' }, { "mean", required_argument, NULL, 'm' },
		{ "cache", required_argument, NULL, 'c' }, { "group", required_argument, NULL, 'g' },
		{ "output", required_argument, NULL, 'o' }, { "wait", required_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	struct wish wish = { .mean = KMEM_PROFILE_MEAN, .wait_ms = KMEM_ASK_MS };
	int code;

	while ((code = kmem_next_option("profile", usage_text, argc, argv, ":s:m:c:g:o:w:", known)) != -1)
		read_option(&wish, code);
	if (argc - optind == 1)
		argv[optind] = info_process("profile", argv[optind], false);
	if (argc - optind != 1 || !info_is_number(argv[optind]))
		kmem_usage("profile", "a process is missing: give the number or the name");
	wish.pid = atoi(argv[optind]);
	if (!wish.files)
		add_own_files(&wish);
	return run(&wish);
}
