/*
 * older_libc: debug_stacks.c with a libc that cannot find the file of an address at once (glibc before 2.35): the
 * library walks the list of files, under the dynamic linker's lock in the first process, and without the lock in a
 * child.
 */
#include "debug_stacks.c"
