/*
 * escapes.c: a program that serves its mailbox itself, with a report unfit for a terminal; and one whose memory was
 * requested by a file with such a name (argv[0]). The test reads the program from another process.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kmem/kmem.h>

#include "cache/mailbox.h"

extern struct kmem_mail_report km_control_report;

int main(void)
{
	static const char text[] = "\033]0;x\a\033[2Jno damage\nnor \xc2\x9b" "31mhere\033[5m";
	struct kmem_cache *cache = kmem_cache_create("escapes", 3000, 0, SLAB_STORE_USER, NULL);
	volatile struct kmem_mail *mail = &km_mail;

	printf("ready %p\n", kmem_cache_alloc(cache, GFP_KERNEL));
	fflush(stdout);
	for (;;) {
		usleep(500);
		if (mail->asked == mail->answered)
			continue;
		memcpy((void *)&mail->done, (void *)&mail->request, sizeof(mail->done));
		memcpy(km_control_report.text, text, sizeof(text));
		km_control_report.length = sizeof(text) - 1;
		km_control_report.damages = 0;
		km_control_report.number = mail->asked;
		mail->result = 0;
		mail->answered = mail->asked;
	}
}
