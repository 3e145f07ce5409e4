# mimalloc2.sh: mimalloc's second generation, built as the third generation; one Cargo package has both.
. "$recipes/mimalloc3.sh"
release="microsoft/mimalloc v2.4.1"
spare_packages="libmimalloc2.0"

build() {
	mimalloc v2
}

spare() {
	cp -L "$(package_file libmimalloc2.0 'libmimalloc\.so\.2')" lib.so
	version "$(debian_version libmimalloc2.0) (Debian)"
}
