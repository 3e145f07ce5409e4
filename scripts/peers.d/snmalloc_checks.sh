# snmalloc_checks.sh: snmalloc with its checks of what the program does.
. "$recipes/snmalloc.sh"

build() {
	snmalloc -DSNMALLOC_CHECK_CLIENT
}
