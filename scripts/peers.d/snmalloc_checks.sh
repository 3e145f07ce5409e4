# snmalloc_checks.sh: snmalloc with checks of the program's calls.
. "$recipes/snmalloc.sh"

build() {
	snmalloc -DSNMALLOC_CHECK_CLIENT
}
