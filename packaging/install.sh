#!/bin/sh
# Installs what is built: sheaf, the programs and libraries beside it, manual pages, completions, units of systemd
# and licences; and libsheaf.so with its headers, the program of its inner nodes, MRNet's interface, and the files
# of pkg-config and CMake.
#
#   packaging/install.sh [--prefix DIR] [--destdir DIR] [--target DIR] [--programs-only]
#
# Build first: packaging/build.sh (then --target target/dist), or cargo build --release; for programs in C,
# cargo build --release -p libsheaf -p sheaf-mrnet -p sheaf-wasm
set -eu
# Directories that are made can be entered by all users.
umask 022

prefix=/usr/local destdir= target= programs_only=
usage() {
    cat <<END
usage: $0 [--prefix DIR] [--destdir DIR] [--target DIR] [--programs-only]

  --prefix DIR     install in DIR/bin, DIR/lib and DIR/share [default: /usr/local]
  --destdir DIR    put the files below DIR, as a package is made of them
  --target DIR     where the programs are built: target/release [default], target/dist, ...
  --programs-only  leave out what is for programs in C (libsheaf.so and its headers)
END
}
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --programs-only) programs_only=yes; shift; continue ;;
        --prefix=* | --destdir=* | --target=*) option=${1%%=*} value=${1#*=}; shift ;;
        --prefix | --destdir | --target)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            option=$1 value=$2
            shift 2
            ;;
        *) echo "$0: not an option: $1" >&2; usage >&2; exit 2 ;;
    esac
    case $option$value in
        --destdir) ;;
        --prefix | --target) echo "$0: $option needs a directory" >&2; exit 2 ;;
        *) case $value in /*) ;; *) value=$PWD/$value ;; esac ;;
    esac
    case $option in
        --prefix) prefix=$(printf '%s\n' "$value" | sed 's|//*|/|g; s|/$||') ;;
        --destdir) destdir=${value%/} ;;
        --target) target=${value%/} ;;
    esac
done
here=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
target=${target:-${CARGO_TARGET_DIR:-$here/target}/release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
# A library that was built as a dependency is newer than one that was built by its name, or the only one.
library=
[ -n "$programs_only" ] ||
    library=$(ls -t "$target/liblibsheaf.so" "$target/deps/liblibsheaf.so" 2>/dev/null | head -n 1)
to=$destdir$prefix

# The command that builds a package into the directory that is installed from.
profile=${target##*/} root=${target%/*} triple=
case ${root##*/} in *-*-linux-*) triple=${root##*/} root=${root%/*} ;; esac
builder() {
    if [ "$profile" = dist ]; then
        command=packaging/build.sh
        case $triple in
            '') ;;
            *-musl) command="$command --static" ;;
            *) command="$command --target $triple" ;;
        esac
    else
        case $profile in
            debug) command="cargo build -p $1" ;;
            release) command="cargo build --release -p $1" ;;
            *) command="cargo build --profile $profile -p $1" ;;
        esac
        [ -z "$triple" ] || command="$command --target $triple"
    fi
    [ "$root" = "${CARGO_TARGET_DIR:-$here/target}" ] || command="CARGO_TARGET_DIR=$root $command"
    echo "$command"
}

if [ ! -e "$target/sheaf" ] && [ -z "$library" ]; then
    echo "$0: nothing is built in $target: build it ($(builder sheaf)), or name another directory with --target" >&2
    exit 1
fi

# Programs of two versions do not work together.
if [ -e "$target/sheaf" ]; then
    built=$("$target/sheaf" --version) || { echo "$0: $target/sheaf does not run on this machine" >&2; exit 1; }
    for program in sheaf-archive sheaf-trace; do
        if [ -e "$target/$program" ]; then
            other=$("$target/$program" --version) || other='does not run'
            if [ "$other" != "$built" ]; then
                echo "$0: $target/$program is of another version ($other, and sheaf $built): build it again ($(builder $program-cli))" >&2
                exit 1
            fi
        fi
        # sheaf runs the program in its own directory first.
        if [ -e "$to/bin/$program" ]; then
            echo "$0: $to/bin/$program exists, which sheaf would run instead of lib/sheaf/$program: remove it first (if cargo install put it there: cargo uninstall --root $to $program-cli)" >&2
            exit 1
        fi
    done
fi

# Removes a file of an earlier installation that the new programs must not use.
remove_old() {
    if [ -e "$to/lib/sheaf/$1" ]; then
        rm -f "$to/lib/sheaf/$1"
        echo "$0: removed $to/lib/sheaf/$1, which an earlier build had installed" >&2
    fi
}

# sheaf, with what belongs beside it.
if [ -e "$target/sheaf" ]; then
    mkdir -p "$to/bin" "$to/lib/sheaf"
    install -m 755 "$target/sheaf" "$to/bin/"
    for program in sheaf-archive sheaf-trace; do
        if [ -e "$target/$program" ]; then
            install -m 755 "$target/$program" "$to/lib/sheaf/"
        else
            echo "$0: without sheaf ${program#sheaf-}: $program is not built ($(builder $program-cli))" >&2
            remove_old "$program"
        fi
    done
    # The newest, built by packaging/build.sh, by its name, or as a dependency. sheaf-trace contains it as well, and
    # writes that one to the user's cache where none is installed.
    trace=
    [ ! -e "$target/sheaf-trace" ] ||
        trace=$(ls -t "$target/libsheaf_trace.so" "$target/libsheaf_preload.so" "$target/deps/libsheaf_preload.so" \
            2>/dev/null | head -n 1)
    if [ -n "$trace" ]; then
        install -m 755 "$trace" "$to/lib/sheaf/libsheaf_trace.so"
    else
        remove_old libsheaf_trace.so
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
    mkdir -p "$to/share/doc/sheaf"
    install -m 644 "$here/LICENSE-MIT" "$here/LICENSE-APACHE" "$to/share/doc/sheaf/"
    # systemd reads a user's units in share of each prefix, and those of the system in lib of two.
    unit() {
        mkdir -p "$to/$2"
        sed "s|/usr/local/bin/sheaf|$prefix/bin/sheaf|g" "$here/packaging/systemd/$1" >"$to/$2/$1"
    }
    case $prefix in
        *[!A-Za-z0-9/._+@:,=~-]*)
            echo "$0: without units for systemd: $prefix has characters that units take for others" >&2 ;;
        *) unit sheaf@.service share/systemd/user ;;
    esac
    case $prefix in
        /usr | /usr/local)
            unit sheaf-serve.service lib/systemd/system
            unit sheaf-view.service lib/systemd/system
            ;;
    esac
fi
end() { [ -z "${failed:-}" ] || exit 1; exit 0; }

engine=$target/libsheaf_wasm.so
[ -e "$engine" ] || engine=$target/deps/libsheaf_wasm.so
if [ -e "$engine" ]; then
    mkdir -p "$to/lib/sheaf"
    install -m 755 "$engine" "$to/lib/sheaf/"
else
    case $triple in
        *-musl) echo "$0: without libsheaf_wasm.so, which static programs cannot load: for WebAssembly filters, sheaf has to be built with the feature wasm (packaging/build.sh --static --features wasm)" >&2 ;;
        *) echo "$0: without WebAssembly filters: libsheaf_wasm.so is not built ($(builder sheaf-wasm))" >&2 ;;
    esac
    [ ! -e "$target/sheaf" ] || remove_old libsheaf_wasm.so
fi
[ -z "$programs_only" ] || end

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
