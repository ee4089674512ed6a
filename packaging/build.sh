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
cd "$(dirname "$0")/.."

programs="-p sheaf -p sheaf-archive-cli -p sheaf-trace-cli"
if [ "${1:-}" = --static ]; then
    shift
    target=$(uname -m)-unknown-linux-musl
    exec cargo build --profile dist $programs --target "$target" "$@"
fi
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
# shellcheck disable=SC2086 # They are words.
cargo build --profile dist $programs -p sheaf-wasm -p sheaf-preload "$@"
# The crate is called as what it does, and the file as users know it.
built=${CARGO_TARGET_DIR:-target}/dist
[ ! -e "$built/libsheaf_preload.so" ] || ln -f "$built/libsheaf_preload.so" "$built/libsheaf_trace.so"
