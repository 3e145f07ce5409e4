/*
 * sessions.c: a server that uses malloc only, for docs/leak-or-kept.md. The server opens 200,000 sessions of 64 bytes.
 * The argument says what becomes of the sessions:
 *   closed      the server frees all sessions
 *   scattered   the server frees all sessions except one in 64
 *   held        the server frees no session; a list has all sessions
 *   forgotten   the server frees no session; no pointer to a session is left
 * Then the server prints "ready" and handles a small request every 0.1 s.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSIONS 200000

struct session {
	struct session *next;
	char user[56];
};

static struct session *list;

static __attribute__((noinline)) void open_session(int number)
{
	struct session *session = malloc(sizeof(*session));

	if (!session)
		exit(1);
	snprintf(session->user, sizeof(session->user), "user %d", number);
	session->next = list;
	list = session;
}

/* Frees the sessions of the list, except the first session of each `run` sessions; a `run` of 0 frees all sessions. */
static void close_sessions(int run)
{
	struct session *kept = NULL, *next;
	int i = 0;

	for (struct session *session = list; session; session = next) {
		next = session->next;
		if (run && i++ % run == 0) {
			session->next = kept;
			kept = session;
		} else {
			free(session);
		}
	}
	list = kept;
}

static void handle_request(void)
{
	char *volatile request = malloc(100);

	free(request);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "closed";

	for (int i = 0; i < SESSIONS; i++)
		open_session(i);
	if (!strcmp(mode, "closed"))
		close_sessions(0);
	else if (!strcmp(mode, "scattered"))
		close_sessions(64);
	else if (!strcmp(mode, "forgotten"))
		list = NULL;
	puts("ready");
	fflush(stdout);
	for (;;) {
		handle_request();
		usleep(100000);
	}
}
