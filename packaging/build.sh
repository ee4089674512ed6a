#!/bin/sh
# Builds what is installed and measured, in target/dist: sheaf, the programs beside it, the library that
# runs WebAssembly filters, and the library that records the I/O of programs.
# It takes several times as long as cargo build --release.
#
#   packaging/build.sh            everything, for this machine's libc
#   packaging/build.sh --static   the programs alone, linked with musl: for hosts with another or an older libc.
#                                 Needs: rustup target add x86_64-unknown-linux-musl, and a C compiler for it
#                                 (Debian: musl-tools). It loads no native filters; --features wasm has those
#                                 of WebAssembly inside.
#
# Further arguments are cargo's.
set -eu
CDPATH= cd "$(dirname "$0")/.."

# sheaf by itself: built in one run with the others, it would have the features that they need of its libraries.
beside="-p sheaf-archive-cli -p sheaf-trace-cli"
build() {
    cargo build --profile dist -p sheaf ${features:+"--features=$features"} "$@"
    # shellcheck disable=SC2086 # They are words.
    cargo build --profile dist $beside "$@"
}
# Features are those of sheaf.
static= features= left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $word in
        --static) static=$(uname -m)-unknown-linux-musl ;;
        --features=*) features=$features,${word#*=} ;;
        --features | -F)
            [ "$left" -gt 0 ] || { echo "$0: $word needs the name of a feature" >&2; exit 2; }
            features=$features,$1
            shift
            left=$((left - 1))
            ;;
        *) set -- "$@" "$word" ;;
    esac
done
features=${features#,}
if [ -n "$static" ]; then
    build --target "$static" "$@"
    exit
fi
beside="$beside -p sheaf-wasm -p sheaf-preload"
# Relocations in a tenth of the room, which a dynamic linker understands since glibc 2.36; a program made
# so says "GLIBC_ABI_DT_RELR not found" to an older one.
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
minor=${glibc#glibc 2.}
case $minor in
    '' | *[!0-9]*) ;;
    *) [ "$minor" -lt 36 ] || RUSTFLAGS="${RUSTFLAGS:-} -C link-arg=-Wl,-z,pack-relative-relocs" ;;
esac
# Functions with the same code once, which the linker of Rust's x86-64 targets knows (LLD).
[ "$(uname -m)" != x86_64 ] || RUSTFLAGS="${RUSTFLAGS:-} -C link-arg=-Wl,--icf=all"
export RUSTFLAGS="${RUSTFLAGS:-} -C link-arg=-Wl,--strip-all"
build "$@"
# The crate is called as what it does, and the file as users know it.
built=${CARGO_TARGET_DIR:-target}/dist
[ ! -e "$built/libsheaf_preload.so" ] || ln -f "$built/libsheaf_preload.so" "$built/libsheaf_trace.so"
