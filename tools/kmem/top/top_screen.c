/*
 * top_screen.c: the screen of `kmem top`, with ncurses. Invariant: the terminal is restored before any message is
 * printed, whether a key, a signal or the end of the last process ended the loop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "top/top.h"

/* Must be included last: term.h defines macros with common names. */
#include <curses.h>
#include <term.h>

#define LEAST_DELAY	0.1
#define PATIENCE_MS	1000	/* longest wait for a read in progress, at exit */
#define MOST_DELAY	3600.0
#define HEAD_LINES	4	/* title, equation, note, heads; the help line is the last line */

static volatile sig_atomic_t ended_by;
static int wake[2];			/* pipe; readable once the program must end */

static void on_signal(int number)
{
	ended_by = number;
}

struct screen {
	const struct top_targets *targets;
	struct top_view view;
	double delay, next;		/* seconds between samples; time of the next sample */
	struct top_sample sample;
	size_t first;			/* index of the topmost row on the screen, among the shown rows */
	bool help, quits;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------ drawing */

static void put_line(int line, const char *text, int attributes)
{
	if (line < 0 || line >= LINES)
		return;
	attrset(attributes);
	mvaddstr(line, 0, text);
	attrset(A_NORMAL);
}

static const char *const help_lines[] = {
	"NAME    processes; below each: caches, memory outside of caches, groups",
	"RES     resident: ALLOC + CACHED + FREE; metadata has RES only",
	"ALLOC   allocated objects                 CACHED  free objects, cached",
	"FREE    the rest of slabs and free pages  PURGE  memory that kmem shrink returns",
	"PINNED  slabs with less than a tenth in use       RATE/s  growth of ALLOC",
	"",
	"q quit       m allocated    y cached    f free    u purgeable    p pinned",
	"t rate          s resident (what it starts with)    n name    r reversed",
	"a rows without memory too       g all processes as one",
	"up, down, PgUp, PgDn, Home, End move    + - slower, faster    space now",
	"",
	"Any key goes back.",
};

static void draw_help(void)
{
	for (size_t i = 0; i < sizeof(help_lines) / sizeof(*help_lines); i++)
		mvaddnstr((int)i, 0, help_lines[i], COLS);
}

static size_t lines_of_rows(void)
{
	return LINES > HEAD_LINES + 1 ? (size_t)LINES - HEAD_LINES - 1 : 0;
}

/* Draw the note: the last failed read, else the breakdown of memory outside libkmem. */
static void draw_note(const struct screen *screen)
{
	const struct top_sample *sample = &screen->sample;
	char text[200] = "";

	if (sample->result == INFO_OK)
		snprintf(text, sizeof(text), "%.*s", (int)sizeof(text) - 1, top_other_text(sample, COLS).text);
	else if (sample->result == INFO_PARTLY)
		snprintf(text, sizeof(text), "%d: caches are created and destroyed too fast: some are "
					     "missing", (int)sample->unread);
	else
		snprintf(text, sizeof(text), "%d: can't be read", (int)sample->unread);
	text[COLS < (int)sizeof(text) ? COLS : (int)sizeof(text) - 1] = '\0';
	put_line(2, text, A_NORMAL);
}

static void draw(struct screen *screen)
{
	const struct top_sample *sample = &screen->sample;
	size_t room = lines_of_rows();
	char help[128];

	erase();
	if (screen->help) {
		draw_help();
		refresh();
		return;
	}
	put_line(0, top_title(sample, COLS).text, A_NORMAL);
	put_line(1, top_equation_text(sample, COLS).text, A_BOLD);
	draw_note(screen);
	put_line(3, top_heads(&screen->view, COLS).text, A_REVERSE);
	if (screen->first + room > sample->shown)
		screen->first = sample->shown > room ? sample->shown - room : 0;
	for (size_t i = 0; i < room && screen->first + i < sample->shown; i++) {
		const struct top_row *row = &sample->rows[sample->order[screen->first + i]];

		put_line(HEAD_LINES + (int)i, top_row_text(sample, row, COLS).text,
			 row->kind == TOP_PROCESS ? A_BOLD : A_NORMAL);
	}
	snprintf(help, sizeof(help), "q quit  h help  sort: s m y f u p t n, r reversed  a all  g as one  every %.1f s",
		 screen->delay);
	help[COLS < (int)sizeof(help) ? COLS : (int)sizeof(help) - 1] = '\0';
	/* The last column of the last line stays empty: a terminal would scroll. */
	put_line(LINES > HEAD_LINES ? LINES - 1 : -1, help, A_DIM);
	refresh();
}

/* ------------------------------------------------------------------ samples */

static bool take(struct screen *screen)
{
	struct top_sample before = screen->sample;

	screen->sample = (struct top_sample){ 0 };
	bool ok = top_take(screen->targets, &screen->view, &screen->sample);
	if (before.count)
		top_rates(&screen->sample, &before);
	top_clear(&before);
	top_sort(&screen->sample, &screen->view);
	screen->next = now() + screen->delay;
	return ok;
}

/* ------------------------------------------------------------------ keys */

static bool sort_key(struct screen *screen, int key)
{
	static const char keys[TOP_SORTS + 1] = "smyfuptn";
	const char *at = key > 0 && key < 128 ? strchr(keys, key) : NULL;

	if (!at || !*at)
		return false;
	screen->view.sort = (enum top_sort)(at - keys);
	return true;
}

static void scroll_by(struct screen *screen, long rows)
{
	long first = (long)screen->first + rows;

	screen->first = first < 0 ? 0 : (size_t)first;
}

static void other_key(struct screen *screen, int key)
{
	long page = (long)lines_of_rows();

	switch (key) {
	case KEY_UP: scroll_by(screen, -1); break;
	case KEY_DOWN: scroll_by(screen, 1); break;
	case KEY_PPAGE: scroll_by(screen, -page); break;
	case KEY_NPAGE: scroll_by(screen, page); break;
	case KEY_HOME: screen->first = 0; break;
	case KEY_END: screen->first = screen->sample.shown; break;
	case 'q': screen->quits = true; break;
	case 'h': case '?': screen->help = true; break;
	case 'r': screen->view.reverse = !screen->view.reverse; break;
	case 'a': screen->view.all = !screen->view.all; break;
	case 'g': screen->view.merged = !screen->view.merged; screen->next = 0; break;
	case ' ': screen->next = 0; break;
	case '+': screen->delay = screen->delay * 2 > MOST_DELAY ? MOST_DELAY : screen->delay * 2; break;
	case '-': screen->delay = screen->delay / 2 < LEAST_DELAY ? LEAST_DELAY : screen->delay / 2; break;
	default: break;		/* also KEY_RESIZE: the loop redraws the screen */
	}
}

/* Wait for a key or the time of the next sample. */
static void wait_for_key(struct screen *screen)
{
	double left = screen->next - now();
	struct pollfd from[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = wake[0], .events = POLLIN } };

	/* ncurses may hold keys that were read earlier. */
	timeout(0);
	int key = getch();
	if (key == ERR) {
		poll(from, 2, left > 0 ? (int)(left * 1000) + 1 : 0);
		key = getch();
	}
	if (key == ERR)
		return;
	if (screen->help && key != KEY_RESIZE)
		screen->help = false;
	else if (!sort_key(screen, key))
		other_key(screen, key);
	top_sort(&screen->sample, &screen->view);
}

/* ------------------------------------------------------------------ the terminal */

/* Returns: NULL, or why there is no screen, e.g. a terminal that cannot position its cursor. */
static const char *why_no_screen(void)
{
	const char *term = getenv("TERM");
	int error;

	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
		return "kmem top needs a terminal; kmem top --once prints the same once";
	if (!term || !*term || setupterm(NULL, STDOUT_FILENO, &error) != OK)
		return "TERM is not set, or names an unknown terminal; kmem top --once prints the same once";
	if (!tigetstr("cup") || tigetstr("cup") == (char *)-1)
		return "the terminal cannot place its cursor (TERM); kmem top --once prints the same once";
	return NULL;
}

/* Wait for a signal in a thread of its own. Kernel: a blocked read of another process's memory is not interrupted by
 * a signal handler. */
static void *wait_for_signal(void *signals)
{
	int number;

	sigwait(signals, &number);
	ended_by = number;
	if (write(wake[1], "", 1) == 1)
		poll(NULL, 0, PATIENCE_MS);
	endwin();
	_exit(number == SIGINT ? 0 : 128 + number);
}

static void restore(void)
{
	endwin();
}

/* Block the ending signals until the screen exists. A write to a closed terminal raises SIGPIPE. */
static void block_signals(sigset_t *signals)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGPIPE, &action, NULL);
	sigemptyset(signals);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGTERM);
	sigaddset(signals, SIGHUP);
	sigaddset(signals, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, signals, NULL);
}

/* Start the signal thread. Returns: 0 or an errno. */
static int catch_signals(sigset_t *signals)
{
	sigset_t all, before;
	pthread_t waits;

	if (pipe2(wake, O_CLOEXEC))
		return errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&waits, NULL, wait_for_signal, signals);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	info_before_the_end = restore;
	return error;
}

/* Run the screen loop. Returns: false if no process is left. */
static bool watch(struct screen *screen)
{
	while (!ended_by && !screen->quits) {
		if (now() >= screen->next && !take(screen))
			return false;
		draw(screen);
		wait_for_key(screen);
	}
	return true;
}

/* Print one line for the failed sample, or for an ended process. Returns: the exit status. */
static int complain(const struct screen *screen)
{
	const struct top_sample *sample = &screen->sample;

	if (sample->result != INFO_GONE && sample->result != INFO_NONE)
		return top_complain(screen->targets, sample);
	return kmem_failed(1, "top", "%d: the process has ended, or runs another program now", (int)sample->unread);
}

int top_screen(const struct top_targets *targets, struct top_view view, double delay)
{
	struct screen screen = { .targets = targets, .view = view, .delay = delay };
	const char *why = why_no_screen();

	if (why)
		return kmem_failed(1, "top", "%s", why);
	/* Report unreadable processes before the screen starts. */
	if (!take(&screen))
		return top_complain(targets, &screen.sample);
	static sigset_t signals;
	block_signals(&signals);
	setlocale(LC_CTYPE, "");
	SCREEN *terminal = newterm(NULL, stdout, stdin);
	if (!terminal)
		return kmem_failed(1, "top", "the terminal has no screen (TERM); kmem top --once prints the same once");
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	int error = catch_signals(&signals);
	screen.next = now() + (delay < 1 ? delay : 1);	/* show first rates after at most 1 s */
	bool left = error || watch(&screen);
	endwin();
	delscreen(terminal);
	int status = left ? 0 : complain(&screen);
	top_clear(&screen.sample);
	if (error)
		return kmem_failed(1, "top", "%s", strerror(error));
	return ended_by && ended_by != SIGINT ? 128 + ended_by : status;
}
