#!/bin/sh
# Tests how Sheaf is installed: makes packages of the programs that are built, puts each into an empty root, runs
# the programs from there, and removes the package. What the machine lacks a program for is named and left out.
#
#   packaging/test.sh [--target DIR] [--static-target DIR]
#
# It takes the options of packaging/package.sh. Any profile will do: --target target/release.
set -eu
umask 022
here=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
for word in "$@"; do
    case $word in
        -h | --help) echo "usage: $0 [--target DIR] [--static-target DIR]"; exit 0 ;;
        --output*) echo "$0: not an option: $word" >&2; exit 2 ;;
    esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
have() { command -v "$1" >/dev/null 2>&1; }
fail() { echo "$0: $*" >&2; exit 1; }
is() { [ "$1" = "$2" ] || fail "expected '$2', found '$1'"; }

# Runs the sheaf of the root in the directory of the root for that.
sheaf() { (cd "$home" && env -i HOME="$home" TMPDIR="$home/run" XDG_RUNTIME_DIR="$home/run" PATH=/usr/bin:/bin "$root/bin/sheaf" "$@"); }

# run NAME DIR UNITS: tests what is installed in DIR/bin, DIR/lib and DIR/share, whose units name UNITS/bin/sheaf.
run() {
    name=$1 root=$2 home=$work/home.$1
    mkdir -p "$home/run" "$home/notes"
    is "$(sheaf --version)" "sheaf $version"
    grep '^root:' /etc/passwd >"$home/notes/passwd"
    is "$(sheaf --embedded 4 grep -c ^root: /etc/passwd)" "n[1-4]:/etc/passwd:$(wc -l <"$home/notes/passwd")"
    parts='sheaf'
    if [ -e "$root/lib/sheaf/sheaf-archive" ]; then
        parts="$parts, archive"
        sheaf archive store --create notes backup:: 2>/dev/null
        sheaf archive get backup::notes back 2>/dev/null
        cmp "$home/notes/passwd" "$(find "$home/back" -name passwd)"
    fi
    if [ -e "$root/lib/sheaf/sheaf-trace" ]; then
        parts="$parts, trace"
        is "$(sheaf trace record -o ls.trace -- ls notes 2>"$home/said")" passwd
        grep -q 'operations are in' "$home/said" || fail "no trace: $(cat "$home/said")"
        sheaf trace report ls.trace >/dev/null
    fi
    for page in sheaf sheaf-grep; do
        [ -s "$root/share/man/man1/$page.1" ] || fail "$name: no manual page $page(1)"
    done
    if have man; then
        [ -n "$(man -l "$root/share/man/man1/sheaf.1" 2>"$home/said" </dev/null)" ] || fail "man: $(cat "$home/said")"
    fi
    completions=$root/share/bash-completion/completions/sheaf
    grep -q sheaf "$completions" "$root/share/fish/vendor_completions.d/sheaf.fish" || fail "$name: no completions"
    ! have bash || bash -n "$completions"
    [ -n "$(find "$root/share/zsh" -name _sheaf)" ] || fail "$name: no completions for zsh"
    for unit in lib/systemd/system/sheaf-serve.service lib/systemd/system/sheaf-view.service share/systemd/user/sheaf@.service; do
        grep -q "^ExecStart=$3/bin/sheaf " "$root/$unit" || fail "$name: $unit does not start $3/bin/sheaf"
    done
    [ -s "$root/share/doc/sheaf/LICENSE-MIT" ] && [ -s "$root/share/doc/sheaf/LICENSE-APACHE" ] || fail "$name: no licences"
    # Nothing but what the tests above have asked for.
    is "$(find "$home" -mindepth 1 -maxdepth 1 -name '.*' ! -name .cache ! -name .local)" ''
    echo "$name: $parts"
}

# removed NAME DIR: no file is left when the package is removed.
removed() { is "$(cd "$2" && find . -name '*sheaf*' ! -path './var/*')" ''; }

# install.sh, with programs that do nothing: what an earlier installation left does not stay.
fake=$work/fake/release to=$work/fake/to
mkdir -p "$fake"
program() {
    printf '#!/bin/sh\ncase $1 in --version) echo sheaf %s ;; man) mkdir -p "$3" ;; esac\n' "$2" >"$fake/$1"
    chmod 755 "$fake/$1"
}
install_fake() { "$here/packaging/install.sh" --target="$fake" --prefix="$to" >"$work/said" 2>&1; }
for name in sheaf sheaf-archive sheaf-trace; do program "$name" 1; done
install_fake || fail "$(cat "$work/said")"
[ -x "$to/bin/sheaf" ] && [ -x "$to/lib/sheaf/sheaf-archive" ] || fail "not installed"
program sheaf-archive 2
! install_fake || fail "programs of two versions were installed"
grep -q 'another version' "$work/said" || fail "$(cat "$work/said")"
rm "$fake/sheaf-archive"
install_fake || fail "$(cat "$work/said")"
[ ! -e "$to/lib/sheaf/sheaf-archive" ] || fail "the old sheaf-archive is still there"
grep -q 'removed .*/lib/sheaf/sheaf-archive' "$work/said" || fail "$(cat "$work/said")"
cp "$fake/sheaf-trace" "$to/bin/"
! install_fake || fail "bin/sheaf-trace would be run instead"
grep -q 'remove it first' "$work/said" || fail "$(cat "$work/said")"
"$here/packaging/install.sh" -h >/dev/null
echo "install.sh: refuses other versions, removes old files"

"$here/packaging/package.sh" "$@" --output "$work/packages" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
grep -v '^[0-9a-f]\{64\} ' "$work/said" || true
(cd "$work/packages" && sha256sum --quiet -c sha256sums)
is_root=
[ "$(id -u)" != 0 ] || is_root=yes

for deb in "$work"/packages/*.deb; do
    [ -e "$deb" ] || continue
    into=$work/deb
    mkdir -p "$into/var/lib/dpkg/info" "$into/var/lib/dpkg/updates"
    : >"$into/var/lib/dpkg/status"
    if [ -n "$is_root" ] && have dpkg; then
        # The packages that it depends on are those of this machine.
        dpkg --root="$into" --force-depends --log="$work/dpkg.log" -i "$deb" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
        run deb "$into/usr" /usr
        dpkg --root="$into" --log="$work/dpkg.log" --purge sheaf >"$work/said" 2>&1 || fail "$(cat "$work/said")"
        removed deb "$into"
    else
        (cd "$work" && ar p "$deb" data.tar.gz | tar -C "$into" -xzf -)
        run deb "$into/usr" /usr
    fi
done

for rpm in "$work"/packages/*.rpm; do
    [ -e "$rpm" ] || continue
    into=$work/rpm
    mkdir -p "$into"
    if [ -n "$is_root" ] && have rpm; then
        rpm --root "$into" --nodeps -i "$rpm" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
        run rpm "$into/usr" /usr
        rpm --root "$into" -e sheaf >"$work/said" 2>&1 || fail "$(cat "$work/said")"
        removed rpm "$into"
    elif have rpm2cpio && have cpio; then
        rpm2cpio "$rpm" | (cd "$into" && cpio -idm --quiet)
        run rpm "$into/usr" /usr
    else
        echo "SKIPPED: the .rpm needs root, or rpm2cpio and cpio"
    fi
done

for tar in "$work"/packages/*.tar.gz; do
    [ -e "$tar" ] || continue
    mkdir -p "$work/static/usr/local"
    tar -C "$work/static/usr/local" --strip-components=1 -xzf "$tar"
    run static "$work/static/usr/local" /usr/local
done
