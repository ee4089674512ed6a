#!/bin/sh
# Installs what is built: sheaf, the programs and libraries beside it, manual pages and completions; and
# libsheaf.so with its headers, the program of its inner nodes, MRNet's interface, and the files of pkg-config
# and CMake.
#
#   packaging/install.sh [--prefix DIR] [--destdir DIR] [--target DIR]
#
# Build first: packaging/build.sh (then --target target/dist), or cargo build --release; for programs in C,
# cargo build --release -p libsheaf -p sheaf-mrnet -p sheaf-wasm
set -eu

prefix=/usr/local destdir= target=
usage() { echo "usage: $0 [--prefix DIR] [--destdir DIR] [--target DIR]"; }
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --prefix | --destdir | --target) [ $# -ge 2 ] || { usage >&2; exit 2; } ;;
        *) echo "$0: not an option: $1" >&2; usage >&2; exit 2 ;;
    esac
    case $1 in
        --prefix) prefix=$2 ;;
        --destdir) destdir=$2 ;;
        --target) target=$2 ;;
    esac
    shift 2
done
here=$(cd "$(dirname "$0")/.." && pwd)
target=${target:-${CARGO_TARGET_DIR:-$here/target}/release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
# What was built for a crate that depends on it is newer than what was built by its name, or alone there.
library=$(ls -t "$target/liblibsheaf.so" "$target/deps/liblibsheaf.so" 2>/dev/null | head -n 1)
to=$destdir$prefix
if [ ! -e "$target/sheaf" ] && [ -z "$library" ]; then
    echo "$0: nothing is built in $target: build it by packaging/build.sh or cargo build --release, or name another with --target" >&2
    exit 1
fi

# sheaf, with what belongs beside it.
if [ -e "$target/sheaf" ]; then
    mkdir -p "$to/bin" "$to/lib/sheaf"
    install -m 755 "$target/sheaf" "$to/bin/"
    for program in sheaf-archive sheaf-trace; do
        if [ -e "$target/$program" ]; then
            install -m 755 "$target/$program" "$to/lib/sheaf/"
        else
            echo "$0: without sheaf ${program#sheaf-}: $program is not built (cargo build --release -p $program-cli)" >&2
        fi
    done
    # Built by packaging/build.sh, by its name, or beside other crates.
    trace=
    for file in "$target/libsheaf_trace.so" "$target/libsheaf_preload.so" "$target/deps/libsheaf_preload.so"; do
        [ -n "$trace" ] || [ ! -e "$file" ] || trace=$file
    done
    if [ -n "$trace" ]; then
        install -m 755 "$trace" "$to/lib/sheaf/libsheaf_trace.so"
    else
        echo "$0: without sheaf trace record: sheaf-preload is not built (cargo build --release -p sheaf-preload)" >&2
    fi
    # What is not built was said above, and what sheaf says of it is shown only when it fails.
    failed=
    said=$(mktemp)
    trap 'rm -f "$said"' EXIT
    pages() {
        what=$1
        shift
        "$to/bin/sheaf" "$@" 2>"$said" || { cat "$said" >&2; echo "$0: not written: $what" >&2; failed=yes; }
    }
    completion() {
        if mkdir -p "$to/share/$2"; then
            pages "completions for $1" completions "$1" >"$to/share/$2/$3" || failed=yes
        else
            failed=yes
        fi
    }
    pages "manual pages" man --quiet "$to/share/man/man1"
    completion bash bash-completion/completions sheaf
    completion zsh zsh/site-functions _sheaf
    completion fish fish/vendor_completions.d sheaf.fish
fi
end() { [ -z "${failed:-}" ] || exit 1; exit 0; }

engine=$target/libsheaf_wasm.so
[ -e "$engine" ] || engine=$target/deps/libsheaf_wasm.so
if [ -e "$engine" ]; then
    mkdir -p "$to/lib/sheaf"
    install -m 755 "$engine" "$to/lib/sheaf/"
else
    echo "$0: without WebAssembly filters: libsheaf_wasm.so is not built (cargo build --release -p sheaf-wasm)" >&2
fi

# The tree for programs in C.
if [ -z "$library" ] || [ ! -e "$target/sheaf-node" -a ! -e "$target/mrnet_commnode" ]; then
    [ -e "$target/sheaf" ] || { echo "$0: nothing is built in $target" >&2; exit 1; }
    end
fi
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
fill() { sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" "$here/packaging/$1" >"$2"; }
fill sheaf.pc.in "$to/lib/pkgconfig/sheaf.pc"
fill SheafConfig.cmake.in "$to/lib/cmake/Sheaf/SheafConfig.cmake"
fill SheafConfigVersion.cmake.in "$to/lib/cmake/Sheaf/SheafConfigVersion.cmake"
end
