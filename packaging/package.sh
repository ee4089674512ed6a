#!/bin/sh
# Makes packages of what packaging/build.sh has built: a .deb and a .rpm of the programs for this machine's libc,
# a tar file of the static ones, and the file sha256sums. What is not built, or cannot be made here, is left out
# with a message. The same programs give the same bytes again.
#
#   packaging/package.sh [--target DIR] [--static-target DIR] [--output DIR]
#
# Needs tar, gzip and sha256sum; for the .deb ar and objdump (binutils); for the .rpm rpmbuild.
# All times in the packages are SOURCE_DATE_EPOCH, which is the time of the last commit if it is not set.
set -eu
umask 022
export LC_ALL=C TZ=UTC

usage() {
    cat <<END
usage: $0 [--target DIR] [--static-target DIR] [--output DIR]

  --target DIR         programs for the .deb and the .rpm [default: target/dist]
  --static-target DIR  programs for the tar file [default: target/ARCH-unknown-linux-musl/dist]
  --output DIR         where the packages go [default: target/packages]
END
}
here=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
arch=$(uname -m)
built=${CARGO_TARGET_DIR:-$here/target}
target=$built/dist static=$built/$arch-unknown-linux-musl/dist output=$built/packages
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --target=* | --static-target=* | --output=*) option=${1%%=*} value=${1#*=}; shift ;;
        --target | --static-target | --output)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            option=$1 value=$2
            shift 2
            ;;
        *) echo "$0: not an option: $1" >&2; usage >&2; exit 2 ;;
    esac
    case $value in
        '') echo "$0: $option needs a directory" >&2; exit 2 ;;
        /*) ;;
        *) value=$PWD/$value ;;
    esac
    case $option in
        --target) target=$value ;;
        --static-target) static=$value ;;
        --output) output=$value ;;
    esac
done
have() { command -v "$1" >/dev/null 2>&1; }

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
homepage=$(sed -n 's/^repository = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
summary='opens a group of files on many hosts as if it were one'
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory="$here" -C "$here" log -1 --format=%ct 2>/dev/null || date -r "$here/Cargo.toml" +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$output"
made=

# The files of DIR/…, sorted, owned by root, all of one time: archive DIR NAME… >FILE
archive() {
    directory=$1
    shift
    tar --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        -C "$directory" -cf - "$@" | gzip -n
}

# fill DIR PREFIX TARGET: one layout for all packages.
fill() {
    "$here/packaging/install.sh" --programs-only --destdir "$1" --prefix "$2" --target "$3"
}

# What a dynamically linked program needs, as Debian calls it.
debian_depends() {
    libc=0 others=
    for file in "$1"/bin/* "$1"/lib/sheaf/*; do
        objdump -p "$file" >"$work/headers"
        for needed in $(sed -n 's/^ *NEEDED *//p' "$work/headers"); do
            case $needed in
                libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
                libgcc_s.so.1) others=', libgcc-s1' ;;
                *) echo "$0: $file needs $needed, which is of no package that is known here" >&2; return 1 ;;
            esac
        done
        # A name without a number stands for relocations that glibc 2.36 understands.
        for found in $(sed -n -e 's/.* GLIBC_\([0-9.]*\)$/\1/p' -e 's/.* GLIBC_ABI_DT_RELR$/2.36/p' "$work/headers"); do
            libc=$(printf '%s\n%s\n' "$libc" "$found" | sort -V | tail -n 1)
        done
    done
    echo "libc6 (>= $libc)$others"
}

make_deb() {
    have ar && have objdump || { echo "$0: no .deb: ar and objdump are needed (binutils)" >&2; return 0; }
    case $arch in
        x86_64) debian=amd64 ;;
        aarch64) debian=arm64 ;;
        *) debian=$arch ;;
    esac
    depends=$(debian_depends "$tree/usr")
    mkdir -p "$work/deb/control"
    cp -a "$tree" "$work/deb/data"
    # Debian's zsh reads no other directory of packages.
    mkdir -p "$work/deb/data/usr/share/zsh/vendor-completions"
    mv "$work/deb/data/usr/share/zsh/site-functions/_sheaf" "$work/deb/data/usr/share/zsh/vendor-completions/"
    rmdir "$work/deb/data/usr/share/zsh/site-functions"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
        printf 'Upstream-Name: sheaf\nSource: %s\n\n' "$homepage"
        printf 'Files: *\nCopyright: The Sheaf developers\nLicense: MIT or Apache-2.0\n'
        printf ' The texts are in LICENSE-MIT and LICENSE-APACHE beside this file.\n'
    } >"$work/deb/data/usr/share/doc/sheaf/copyright"
    size=$(find "$work/deb/data" -type f -printf '%s\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
    cat >"$work/deb/control/control" <<END
Package: sheaf
Version: $version
Architecture: $debian
Maintainer: The Sheaf developers
Installed-Size: $size
Depends: $depends
Recommends: openssh-client
Suggests: fuse3
Section: net
Priority: optional
Homepage: $homepage
Description: $summary
 Sheaf runs the same operation on the files of many hosts in one step. The answers
 are combined on their way back up a tree, so that identical output of several
 hosts is printed once. It also archives trees of files, and records the I/O of
 programs.
END
    (cd "$work/deb/data" && find usr -type f | sort | xargs -d '\n' md5sum) >"$work/deb/control/md5sums"
    echo 2.0 >"$work/deb/debian-binary"
    archive "$work/deb/control" . >"$work/deb/control.tar.gz"
    archive "$work/deb/data" . >"$work/deb/data.tar.gz"
    file=sheaf_${version}_$debian.deb
    rm -f "$output/$file"
    (cd "$work/deb" && ar qcDS "$output/$file" debian-binary control.tar.gz data.tar.gz)
    made="$made $file"
}

make_rpm() {
    have rpmbuild || { echo "$0: no .rpm: rpmbuild is not installed" >&2; return 0; }
    file=sheaf-$version-1.$arch.rpm
    # The programs stay as they are built. rpmbuild finds what they need by itself.
    cat >"$work/sheaf.spec" <<END
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%global __provides_exclude_from ^/usr/lib/sheaf/
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global _buildhost reproducible
%global _binary_payload w6.gzdio
Name: sheaf
Version: $version
Release: 1
Summary: Program that $summary
License: MIT OR Apache-2.0
URL: $homepage
Recommends: openssh-clients
Suggests: fuse3
%description
Sheaf runs the same operation on the files of many hosts in one step. The answers
are combined on their way back up a tree, so that identical output of several
hosts is printed once. It also archives trees of files, and records the I/O of
programs.
%install
mkdir -p %{buildroot}
cp -a $tree/. %{buildroot}/
find %{buildroot} -exec touch -h -d @$SOURCE_DATE_EPOCH {} +
%files
%defattr(-,root,root)
END
    # Directories are listed only if no other package has them.
    (
        cd "$tree"
        echo '%dir /usr/lib/sheaf'
        echo '%dir /usr/share/doc/sheaf'
        find usr -type f | sort | sed -e 's|^usr/share/doc/sheaf/LICENSE|%license /&|' -e t -e 's|^|/|'
    ) >>"$work/sheaf.spec"
    rpmbuild --quiet -bb --target "$arch" --define "_topdir $work/rpm" --define "_rpmdir $work" \
        --define '_build_name_fmt sheaf.rpm' --define "_dbpath $work/rpmdb" "$work/sheaf.spec" >"$work/rpm.log" 2>&1 ||
        { cat "$work/rpm.log" >&2; return 1; }
    mv "$work/sheaf.rpm" "$output/$file"
    made="$made $file"
}

if [ -e "$target/sheaf" ]; then
    tree=$work/tree
    fill "$tree" /usr "$target"
    make_deb
    make_rpm
else
    echo "$0: no .deb and no .rpm: nothing is built in $target (packaging/build.sh)" >&2
fi

if [ -e "$static/sheaf" ]; then
    name=sheaf-$version-$arch-linux-musl
    fill "$work/static" /usr/local "$static"
    mv "$work/static/usr/local" "$work/static/$name"
    archive "$work/static" "$name" >"$output/$name.tar.gz"
    made="$made $name.tar.gz"
else
    echo "$0: no tar file: nothing is built in $static (packaging/build.sh --static)" >&2
fi

[ -n "$made" ] || exit 1
# shellcheck disable=SC2086 # They are words.
(cd "$output" && sha256sum $made >sha256sums && cat sha256sums)
