#!/bin/sh
# fuzz.sh: fuzzes the library by hand with libFuzzer: builds the library and tests/model/fuzz.c by clang with
# coverage, AddressSanitizer and UndefinedBehaviorSanitizer, and runs the program on a copy of the corpus in
# build-fuzz/. Usage: tests/model/fuzz.sh [SECONDS] [libFuzzer's options]. KMEM_PERCPU and KMEM_OPTIONS are
# passed on. FUZZ=NAME: instead a reader of texts, tests/model/NAME.c: debug_grammar, options_grammar,
# failslab_grammar, or slabinfo_grammar.
set -eu
cd "$(dirname "$0")/../.."
scripts/need clang "libclang-rt-<clang>-dev"
seconds=${1:-60}
[ $# = 0 ] || shift
entry=${FUZZ:-fuzz} corpus=corpus
[ "$entry" = fuzz ] || corpus=$entry
mkdir -p "build-fuzz/$corpus"
cp -n "tests/model/$corpus"/* "build-fuzz/$corpus/" || true
flags="-std=gnu17 -O1 -g -mcx16 -fsanitize=address,undefined -Iinclude -Isrc -iquote . -Itests -w"
objects=
for source in src/base/*.c src/os/*.c src/percpu/*.c src/page/*.c src/slab/*.c src/alloc/*.c src/cache/*.c src/inspect/*.c \
	src/memcg/*.c engines/*.c engines/*/*.c ext/*/*.c; do
	object=build-fuzz/$(echo "$source" | tr / -).o
	# shellcheck disable=SC2086
	clang $flags -fsanitize=fuzzer-no-link -ftls-model=initial-exec -c "$source" -o "$object"
	objects="$objects $object"
done
# shellcheck disable=SC2086
clang $flags -DKM_LIBFUZZER -fsanitize=fuzzer "tests/model/$entry.c" $objects -lpthread -o "build-fuzz/$entry"
exec "build-fuzz/$entry" -max_total_time="$seconds" -max_len=4096 -artifact_prefix=build-fuzz/ "$@" "build-fuzz/$corpus"
