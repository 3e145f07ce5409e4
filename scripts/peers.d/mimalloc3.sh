# mimalloc3.sh: mimalloc's third generation, from the source file that includes all other sources.
packages="gcc libc6-dev"
release="microsoft/mimalloc v3.4.3"
crate="libmimalloc-sys 0.1.49"

build() {
	mimalloc v3
}

# mimalloc GENERATION [DEFINE]: builds with the defines and flags of mimalloc's CMake file. The crate has a folder for
# each generation.
mimalloc() {
	source=$(release_dir) || source=$(crate_dir)/c_src/mimalloc/$1
	flags="-O2 -std=gnu11 -DNDEBUG -DMI_BUILD_RELEASE -DMI_MALLOC_OVERRIDE ${2:-}
		-I$source/include -I$source/src
		-fvisibility=hidden -ftls-model=initial-exec -fno-builtin-malloc"
	shared="-fPIC -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT"
	# Since 3.4 the CMake file has this define for the shared object only.
	! grep -q 'mi_cflags_dynamic -DMI_FREE_IS_CHECKED' "$source/CMakeLists.txt" ||
		shared="$shared -DMI_FREE_IS_CHECKED=1"
	# shellcheck disable=SC2086
	gcc $flags $shared -shared "$source/src/static.c" -o lib.so -lpthread
	# shellcheck disable=SC2086
	gcc $flags -DMI_STATIC_LIB -c "$source/src/static.c" -o static.o
	ar rcs lib.a static.o
	number=$(awk '/^#define MI_MALLOC_VERSION / { print $3 }' "$source/include/mimalloc.h")
	version "$((number / 10000)).$((number / 100 % 100)).$((number % 100))"
}
