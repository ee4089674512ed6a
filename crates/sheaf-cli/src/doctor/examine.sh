n=$(id -u); LC_ALL=C; export LC_ALL; umask 077; t=; g=
trap 'test -z "$t" || rm -f "$t"' 0
trap 'exit 1' 1 2 13 15
say() { printf '%s' "$m"; for w; do printf '\t%s' "$w"; done; printf '\n'; }
at() { say at "$1"; }
have() { command -v "$1" >/dev/null; }
line() { head -c 400 | tr '\n\t' '  '; }
yes() { "$@" && echo 1 || echo 0; }
sum() { s=$(sha256sum <"$1") && printf '%s' "${s%% *}"; }
room() { df "$1" "$2" | { read -r _; read -r _ a _ c _; printf '%s %s' "$a" "$c"; }; }
runs() { x=$("$2" --version 2>&1); r=$?; say "$1" "$2" "$r" "$(printf '%s' "$x" | line)"; }
way() {
    p=$(cd -P "$1" && pwd -P) || return 0
    while :; do
        set -- $(ls -ldn "$p")
        case $3 in 0 | "$n") ;; *) return 1 ;; esac
        case $1 in ?????????[tT]*) ;; ?????w* | ????????w*) return 1 ;; esac
        test "$p" = / && return 0
        p=${p%/*} p=${p:-/}
    done
}
try() {
    if x=$(mktemp "$q/.sheaf-doctor.XXXXXX" 2>&1); then t=$x; else k=unwritable; return; fi
    x=$({ { printf '#!/bin/sh\nexit 0\n'; head -c 65536 /dev/zero | tr '\0' '#'; } | cat >"$t"; } 2>&1)
    if test $? != 0; then k=full
    elif chmod 700 "$t"; ! test -x "$t"; then k=noexec
    else x=$("$t" 2>&1) || k=norun
    fi
    rm -f "$t"; t=
}
directory() {
    b=$1; q=$b/bin; k=fit; x=; at "the directory $b"
    case $b in
    /run/user/*) test -d "/run/user/$n" || { say directory "$b" "$b" absent; return; } ;;
    /*) ;;
    *) say directory "$b" "$b" relative; return ;;
    esac
    while ! test -e "$q" && ! test -h "$q"; do q=${q%/*}; test -n "$q" || q=/; done
    set -- $(ls -ldn "$b")
    case $b in */sheaf-$n) test -h "$b" && k=link ;; esac
    if test $k = link; then :
    elif test -e "$b" && ! test -d "$b"; then k=file
    elif test -e "$b" && ! test -O "$b"; then k=other
    elif ! test -d "$q"; then q=$b/bin k=file
    elif o=${b%/*}; test -d "$o" || o=$q; ! way "$o"; then q=$p k=way
    else try
    fi
    say directory "$b" "$q" $k "$1" "$3" "$(room -Pk "$q")" "$(room -Pi "$q")" "$(printf '%s' "$x" | line)"
    case $k in link | file | other | way) return ;; esac
    j=0
    for f in "$b"/bin/*/*; do
        case ${f##*/} in new.*) continue ;; esac
        test -f "$f" && ! test -h "$f" || continue
        j=$((j + 1)); test $j -gt 12 && break
        d=${f%/*} z=$(($(wc -c <"$f"))) s=; s=$(sum "$f")
        say program "$f" "${d##*/}" "$z" "$s"
        test "${d##*/}/${f##*/} $z" = "$hash/sheaf $size" && test "${s:-$hash}" = "$hash" && g=$f
    done
}
space() {
    at "the free space of $1"
    if test -d "$1"; then say space "$1" "$(room -Pk "$1")"; else say space "$1" none; fi
}
main() {
    say clock "$(date +%s.%N)"
    at 'the account'; say account "$n" "$(id -un)" "$SHELL"
    at 'the system'; say system "$(uname -s)" "$(uname -m)" "$(uname -r)"
    l=$(getconf GNU_LIBC_VERSION)
    case $l in glibc*) ;; *) l=; for f in /lib/ld-musl-*; do test -e "$f" && l=musl; done ;; esac
    say libc "$l"
    say files "$(ulimit -S -n)" "$(ulimit -H -n)"
    have sha256sum || say unchecked
    for b in DIRS; do directory "$b"; done
    at 'the program'
    if test -z "$program"; then test -z "$g" || runs own "$g"
    elif test -f "$program" && test -x "$program"; then runs installed "$program"
    else say installed "$program" none
    fi
    f=$(command -v sheaf) && runs path "$f"
    if test "$sudo" = 1; then
        at sudo
        if have sudo; then
            x=$(sudo -n true 2>&1); r=$? f=${program:-$g}
            # It may allow this program alone.
            test $r != 0 && test -n "$f" && sudo -n -- "$f" --version >/dev/null && r=0
            say sudo $r "$(printf '%s' "$x" | line)"
        else say sudo none
        fi
    fi
    space /tmp; space /dev/shm; space "/run/user/$n"
    at 'its versions'
    f=$(command -v sshd) || f=/usr/sbin/sshd
    say sshd "$("$f" -V 2>&1 | sed -n 's/.*\(OpenSSH_[^ ,]*\).*/\1/p' | head -n 1)"
    say fuse "$(yes test -r /dev/fuse -a -w /dev/fuse)" "$(yes have fusermount3)" "$(yes unshare -Ur true)"
    if test -n "$port"; then
        at 'the way to the root'
        f=${program:-$g} a=${address:-${SSH_CONNECTION%% *}}
        if test -n "$f" && test -n "$a"; then
            x=$("$f" doctor --reach "$a" "$port" 2>&1); say reach $? "$(printf '%s' "$x" | line)"
        else say reach none
        fi
    fi
    say end
}
main </dev/null 2>/dev/null
exit 0
