/*
 * init.c: the first process of the machine started by tests/system/kernels: runs each line of /tests, in the
 * form NAME=VALUE... PROGRAM ARGUMENT..., prints "RESULT status line", and turns the machine off.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void mount_at(const char *kind, const char *where)
{
	mkdir(where, 0755);
	if (mount(kind, where, kind, 0, NULL))
		perror(where);
}

static int run(char *line)
{
	char *words[16], *environment[8];
	int count = 0, variables = 0, status;

	for (char *word = strtok(line, " "); word && count < 15 && variables < 7; word = strtok(NULL, " "))
		if (!count && strchr(word, '='))
			environment[variables++] = word;
		else
			words[count++] = word;
	words[count] = environment[variables] = NULL;
	pid_t child = fork();
	if (!child) {
		execve(words[0], words, environment);
		perror(words[0]);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
	char line[256], copy[256];

	mount_at("proc", "/proc");
	mount_at("sysfs", "/sys");
	mount_at("devtmpfs", "/dev");
	mount_at("tmpfs", "/tmp");
	setvbuf(stdout, NULL, _IOLBF, 0);
	FILE *tests = fopen("/tests", "r");
	while (tests && fgets(line, sizeof(line), tests)) {
		line[strcspn(line, "\n")] = '\0';
		strcpy(copy, line);
		printf("RESULT %d %s\n", run(line), copy);
	}
	reboot(RB_POWER_OFF);
	return 1;
}
