/*
 * older_libc: debug_stacks.c where libc can't say at once which file an address is in (glibc before 2.35): the files'
 * list is asked, under the dynamic linker's lock in the first process, and without it in a child.
 */
#include "debug_stacks.c"
