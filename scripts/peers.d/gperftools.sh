# gperftools.sh: gperftools' tcmalloc, Debian's build without profilers.
packages="libtcmalloc-minimal4 libgoogle-perftools-dev"

build() {
	cp -L "$(package_file libtcmalloc-minimal4 'libtcmalloc_minimal\.so\.4')" lib.so
	cp "$(package_file libgoogle-perftools-dev 'libtcmalloc_minimal\.a')" lib.a
	version "$(debian_version libtcmalloc-minimal4) (Debian)"
}
