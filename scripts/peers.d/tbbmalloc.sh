# tbbmalloc.sh: oneTBB's scalable allocator behind the malloc proxy, Debian's build; Debian has no archive.
packages="libtbbmalloc2"

build() {
	cp -L "$(package_file libtbbmalloc2 'libtbbmalloc_proxy\.so\.2')" lib.so
	version "$(debian_version libtbbmalloc2) (Debian)"
}
