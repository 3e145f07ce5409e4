# mimalloc2.sh: mimalloc's second generation, in the package of the third generation and built the same way.
. "$recipes/mimalloc3.sh"
spare_packages="libmimalloc2.0"

build() {
	mimalloc v2
}

spare() {
	cp -L "$(package_file libmimalloc2.0 'libmimalloc\.so\.2')" lib.so
	version "$(debian_version libmimalloc2.0) (Debian)"
}
