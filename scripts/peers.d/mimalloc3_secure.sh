# mimalloc3_secure.sh: mimalloc's third generation as its CMake file builds it for MI_SECURE.
. "$recipes/mimalloc3.sh"

build() {
	mimalloc v3 -DMI_SECURE=4
}
