# mimalloc3.sh: mimalloc's third generation, from the source file that includes all other sources.
packages="gcc libc6-dev"
crate="libmimalloc-sys 0.1.49"

build() {
	mimalloc v3
}

# mimalloc GENERATION [DEFINE]: builds with the defines and flags of mimalloc's CMake file.
mimalloc() {
	source=$(crate_dir)/c_src/mimalloc/$1
	flags="-O2 -std=gnu11 -DNDEBUG -DMI_BUILD_RELEASE -DMI_MALLOC_OVERRIDE ${2:-}
		-I$source/include -I$source/src
		-fvisibility=hidden -ftls-model=initial-exec -fno-builtin-malloc"
	# shellcheck disable=SC2086
	gcc $flags -fPIC -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT -shared "$source/src/static.c" \
		-o lib.so -lpthread
	# shellcheck disable=SC2086
	gcc $flags -DMI_STATIC_LIB -c "$source/src/static.c" -o static.o
	ar rcs lib.a static.o
	number=$(awk '/^#define MI_MALLOC_VERSION / { print $3 }' "$source/include/mimalloc.h")
	version "$((number / 10000)).$((number / 100 % 100)).$((number % 100))"
}
