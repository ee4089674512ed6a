#!/bin/sh
# Installs libsheaf.so, its headers and the program of its inner nodes, MRNet's headers and programs, and what
# pkg-config and CMake need; what runs WebAssembly filters, and MRNet's interface, if they are built.
#
#   packaging/install.sh [--prefix DIR] [--destdir DIR] [--target DIR]
#
# Build first: cargo build --release -p libsheaf -p sheaf-mrnet -p sheaf-wasm
set -eu

prefix=/usr/local destdir= target=
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=$2; shift 2 ;;
        --destdir) destdir=$2; shift 2 ;;
        --target) target=$2; shift 2 ;;
        *) echo "usage: $0 [--prefix DIR] [--destdir DIR] [--target DIR]" >&2; exit 2 ;;
    esac
done
here=$(cd "$(dirname "$0")/.." && pwd)
target=${target:-${CARGO_TARGET_DIR:-$here/target}/release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
# What was built for a crate that depends on it is newer than what was built by its name, or alone there.
library=$(ls -t "$target/liblibsheaf.so" "$target/deps/liblibsheaf.so" 2>/dev/null | head -n 1)
[ -n "$library" ] && [ -e "$target/sheaf-node" -o -e "$target/mrnet_commnode" ] || { echo "$0: nothing is built in $target" >&2; exit 1; }

to=$destdir$prefix
mkdir -p "$to/lib/pkgconfig" "$to/lib/cmake/Sheaf" "$to/bin" "$to/include"
install -m 644 "$here/include/"sheaf*.h "$to/include/"
# Either program is an inner node.
[ ! -e "$target/sheaf-node" ] || install -m 755 "$target/sheaf-node" "$to/bin/"
if [ -e "$target/mrnet_commnode" ]; then
    for set in mrnet mrnet_lightweight xplat; do
        mkdir -p "$to/include/$set"
        install -m 644 "$here/crates/sheaf-mrnet/include/$set/"*.h "$to/include/$set/"
    done
    install -m 755 "$target/mrnet_commnode" "$target/mrnet_topgen" "$to/bin/"
else
    echo "$0: without MRNet's interface: sheaf-mrnet is not built" >&2
fi
install -m 755 "$library" "$to/lib/libsheaf.so.$version"
ln -sf "libsheaf.so.$version" "$to/lib/libsheaf.so.0"
ln -sf libsheaf.so.0 "$to/lib/libsheaf.so"
engine=$target/libsheaf_wasm.so
[ -e "$engine" ] || engine=$target/deps/libsheaf_wasm.so
if [ -e "$engine" ]; then
    mkdir -p "$to/lib/sheaf"
    install -m 755 "$engine" "$to/lib/sheaf/"
else
    echo "$0: without WebAssembly filters: libsheaf_wasm.so is not built" >&2
fi
fill() { sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" "$here/packaging/$1" >"$2"; }
fill sheaf.pc.in "$to/lib/pkgconfig/sheaf.pc"
fill SheafConfig.cmake.in "$to/lib/cmake/Sheaf/SheafConfig.cmake"
fill SheafConfigVersion.cmake.in "$to/lib/cmake/Sheaf/SheafConfigVersion.cmake"
