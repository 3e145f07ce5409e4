# The system's calls, as one with larger pages has them.
TEST_LIBS_system_pages := -Wl,--wrap=getauxval,--wrap=mmap,--wrap=munmap,--wrap=mprotect,--wrap=madvise
