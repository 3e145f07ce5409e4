# scudo.sh: LLVM's hardened allocator, Debian's standalone build.
packages="libclang-rt-16-dev"
spare_packages="libclang-rt-14-dev"

build() {
	scudo libclang-rt-16-dev
}

spare() {
	scudo libclang-rt-14-dev
}

scudo() {
	cp -L "$(package_file "$1" "libclang_rt\.scudo_standalone-$(uname -m)\.so")" lib.so
	cp "$(package_file "$1" "libclang_rt\.scudo_standalone-$(uname -m)\.a")" lib.a
	version "$(debian_version "$1" | sed 's/~.*//') (Debian)"
}
