/*
 * event_names.c: an event's name is derived from its constant, in the form of the kernel's files: the name of
 * KMEM_BARN_GET is "barn_get". The test reads the header itself, so that a new event cannot be forgotten.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kmem/stats.h>

int main(void)
{
	char line[512];
	unsigned event = 0, wrong = 0;
	bool inside = false;
	FILE *header = fopen("include/kmem/stats.h", "r");

	if (!header) {
		perror("include/kmem/stats.h");
		return 1;
	}
	while (fgets(line, sizeof(line), header)) {
		inside |= !strncmp(line, "enum kmem_event {", 17);
		if (!inside)
			continue;
		if (strchr(line, '}'))
			break;
		if (strchr(line, '*'))
			continue;
		for (char *word = strtok(line, ", \t\n"); word; word = strtok(NULL, ", \t\n")) {
			if (strncmp(word, "KMEM_", 5) || !strcmp(word, "KMEM_NR_EVENTS"))
				continue;
			for (char *at = word; *at; at++)
				*at = (char)tolower(*at);
			const char *name = kmem_event_name((enum kmem_event)event++);
			if (!name || strcmp(name, word + 5)) {
				printf("event %u, %s: it is called %s\n", event - 1, word + 5, name ? name : "NULL");
				wrong++;
			}
		}
	}
	fclose(header);
	if (event != KMEM_NR_EVENTS)
		printf("%u events in the header, %d in the library\n", event, KMEM_NR_EVENTS);
	return wrong || event != KMEM_NR_EVENTS || kmem_event_name(KMEM_NR_EVENTS);
}
