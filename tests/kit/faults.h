/*
 * faults.h: counts the page faults of this thread, without the faults of the program's own files. Code, constants and
 * variables lie in pages of files. A page of a file that was never touched, or that the system dropped to gain memory,
 * faults at the next access, and the access may be part of the measurement.
 */
#ifndef TESTS_KIT_FAULTS_H
#define TESTS_KIT_FAULTS_H

#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22
#define MADV_POPULATE_WRITE	23
#endif

/* The system may drop a page between program_pages() and the measurement: one of so many measurements must count no
 * fault. */
#define FAULTS_TRIES	5
#define FAULTS_PAGE	4096u

/* Reads or writes each page of one file. A page without write permission (RELRO) is only read. */
static int file_pages(struct dl_phdr_info *file, size_t size, void *unused)
{
	(void)size, (void)unused;
	for (unsigned i = 0; i < file->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = file->dlpi_phdr + i;
		uintptr_t begin = (file->dlpi_addr + part->p_vaddr) & -(uintptr_t)FAULTS_PAGE;
		uintptr_t end = file->dlpi_addr + part->p_vaddr + part->p_memsz;

		if (part->p_type != PT_LOAD)
			continue;
		for (; begin < end; begin += FAULTS_PAGE)
			if (!(part->p_flags & PF_W) || madvise((void *)begin, FAULTS_PAGE, MADV_POPULATE_WRITE) != 0)
				(void)madvise((void *)begin, FAULTS_PAGE, MADV_POPULATE_READ);
	}
	return 0;
}

/* Linux older than 5.14 has no such call; there the pages fault while the test runs. */
static void program_pages(void)
{
	dl_iterate_phdr(file_pages, NULL);
}

static long page_faults(void)
{
	struct rusage usage;

	NEED(getrusage(RUSAGE_THREAD, &usage) == 0);
	return usage.ru_minflt + usage.ru_majflt;
}

#endif
