//! The functions of this machine's C library that are I/O: each is stood in for, or named here with
//! the reason why not.
use crate::program::library;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::Path;

/// What the names of such functions are made of.
const WORDS: &[&str] = &[
    "open",
    "creat",
    "read",
    "write",
    "stat",
    "seek",
    "truncate",
    "fallocate",
    "sync",
    "mmap",
    "munmap",
    "sendfile",
    "splice",
    "tee",
    "copy_file",
    "dir",
    "dent",
    "rename",
    "link",
    "remove",
    "mknod",
    "mkfifo",
    "access",
    "chmod",
    "chown",
    "utime",
    "xattr",
    "dup",
    "fcntl",
    "close",
    "aio_",
    "listio",
    "fput",
    "fget",
    "getc",
    "putc",
    "puts",
    "getw",
    "putw",
    "getline",
    "getdelim",
    "printf",
    "scanf",
    "rewind",
    "fsetpos",
    "fflush",
    "tmpfile",
    "mkstemp",
    "mkostemp",
    "mkdtemp",
    "pipe",
    "fork",
    "exec",
    "spawn",
    "ftw",
    "fts",
    "glob",
    "lockf",
    "flock",
    "memfd",
    "fadvise",
    "socket",
    "connect",
    "accept",
    "send",
    "recv",
];

/// Beginnings of names of functions that are not stood in for, with the reason.
const OTHERS: &[(&str, &[&str])] = &[
    (
        "of glibc's own parts, which no program calls by name",
        &[
            "_IO_",
            "_nl_",
            "_nss_",
            "__nss_",
            "_thread_db_",
            "__libc_",
            "__nptl_",
            "__gconv_",
            "__rpc_",
            "__res_",
            "_rtld_",
            "__cxa_",
            "__open_nocancel",
            "__open64_nocancel",
            "__close_nocancel",
            "__read_nocancel",
            "__write_nocancel",
            "__pread64_nocancel",
            "__netlink_",
            "__mq_open_2",
            "__file_change",
            "__open_catalog",
            "_pthread_",
            "__pthread_",
            "__readlink_",
            "__nss",
            "__register_atfork",
            "__obstack_",
            "__freadable",
            "__freading",
            "__printf_fp",
            "__fcntl",
            "__fseeko64",
            "__fstat64",
            "__mmap",
            "__munmap",
            "__pipe",
            "__pread64",
            "__statfs",
            "__vfork",
            "__vfscanf",
            "__strdup",
            "__strndup",
            "__duplocale",
            "__getcwd_chk",
            "__getwd_chk",
            "__asprintf",
            "__snprintf",
            "__sprintf",
            "__swprintf",
            "__vasprintf",
            "__vsnprintf",
            "__vsprintf",
            "__vsscanf",
            "__vswprintf",
        ],
    ),
    (
        "no file",
        &[
            "asprintf",
            "vasprintf",
            "snprintf",
            "vsnprintf",
            "sprintf",
            "vsprintf",
            "sscanf",
            "vsscanf",
            "__isoc99_sscanf",
            "__isoc99_vsscanf",
            "__isoc99_swscanf",
            "__isoc99_vswscanf",
            "__isoc23_sscanf",
            "__isoc23_vsscanf",
            "__isoc23_swscanf",
            "__isoc23_vswscanf",
            "swprintf",
            "swscanf",
            "vswprintf",
            "vswscanf",
            "obstack_",
            "printf_size",
            "register_printf",
            "pthread_",
            "thrd_",
            "tss_",
            "mtx_",
            "cnd_",
            "strdup",
            "strndup",
            "wcsdup",
            "duplocale",
            "getcontext",
            "putenv",
            "posix_spawn_file",
            "posix_spawnattr",
            "globfree",
            "glob_pattern",
            "process_vm_",
            "mq_",
            "res_",
            "inet6_",
            "sched_",
            "rt",
            "getdirentries",
            "nis_",
            "xdr",
            "svc",
            "tcsendbreak",
            "key_",
            "clnt",
            "authdes",
            "spawn",
            "sigset",
            "addmntent",
            "setfsent",
            "getutx",
            "fgetspent",
            "fgetgrent",
            "fgetpwent",
            "fgetsgent",
            "getwd",
            "getcwd",
            "get_current_dir",
            "dirname",
            "dirfd",
            "argp_",
            "argz_",
            "auth",
            "cfget",
            "clock_",
            "create_module",
            "dlclose",
            "dlmopen",
            "dlopen",
            "envz_",
            "getcpu",
            "hcreate",
            "initstate",
            "setstate",
            "malloc_",
            "parse_printf",
            "re_exec",
            "regexec",
            "rexec",
            "rpc_",
            "sem_",
            "timer",
            "telldir",
            "seekdir",
            "rewinddir",
            "alphasort",
            "versionsort",
            "bindtextdomain",
        ],
    ),
    (
        "what a file is told apart from, or asked for, without touching it",
        &[
            "aio_cancel",
            "aio_error",
            "aio_init",
            "fgetpos",
            "ftell",
            "freadable",
            "freading",
            "flockfile",
            "ftrylockfile",
            "funlockfile",
            "ungetc",
            "fopencookie",
            "open_memstream",
            "open_wmemstream",
            "fmemopen",
            "closelog",
            "openlog",
            "catopen",
            "catclose",
            "openpty",
            "forkpty",
            "open_tree",
            "fsopen",
            "iconv_",
            "ungetwc",
            "pidfd_",
            "posix_openpt",
            "shm_",
            "eventfd_",
            "epoll_",
            "signalfd",
            "putpwent",
        ],
    ),
    (
        "a call of one that is stood in for, seen by what comes of it",
        &[
            "execl",
            "_Fork",
            "fcloseall",
            "fts_open",
            "fts_close",
            "fts_set",
            "fts64_open",
            "fts64_close",
            "fts64_set",
            "ulckpwdf",
            "lckpwdf",
            "putgrent",
            "putspent",
            "putsgent",
            "llseek",
            "ustat",
        ],
    ),
];

pub fn exports(path: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    defined.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).collect()
}

fn c_library() -> std::path::PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/libc.so.6") || line.contains("/libc-2"));
    line.expect("this runs with the C library").split_whitespace().last().unwrap().into()
}

#[test]
fn each_function_that_does_io_is_stood_in_for_or_named() {
    let (ours, theirs) = (exports(&library()), exports(&c_library()));
    let is_io = |name: &&String| WORDS.iter().any(|word| name.contains(word));
    let named = |name: &&String| {
        OTHERS.iter().any(|(_, begin)| begin.iter().any(|begin| name.starts_with(begin)))
    };
    let left: Vec<&String> =
        theirs.iter().filter(is_io).filter(|name| !ours.contains(*name) && !named(name)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(theirs.iter().filter(is_io).filter(|name| ours.contains(*name)).count() > 200);
}

/// Nothing is exported by accident: whatever the library defines, the program gets.
#[test]
fn nothing_else_is_exported() {
    let (ours, theirs) = (exports(&library()), exports(&c_library()));
    // Of other versions of the C library.
    let elsewhere = [
        "__isoc23_fscanf",
        "__isoc23_scanf",
        "__isoc23_vfscanf",
        "__isoc23_vscanf",
        "__isoc23_fwscanf",
        "__isoc23_wscanf",
        "__isoc23_vfwscanf",
        "__isoc23_vwscanf",
    ];
    let is_of_mpi = |name: &String| {
        ["MPI_File_", "MPI_FILE_", "mpi_file_", "ompi_file_"].iter().any(|at| name.starts_with(at))
    };
    // Of libaio and liburing.
    let is_of_kernel_aio = |name: &String| {
        ["io_submit", "io_getevents", "io_pgetevents", "io_uring_"]
            .iter()
            .any(|at| name.starts_with(at))
    };
    let more: Vec<&String> = ours
        .difference(&theirs)
        .filter(|name| {
            !elsewhere.contains(&name.as_str()) && !is_of_mpi(name) && !is_of_kernel_aio(name)
        })
        .collect();
    assert!(more.is_empty(), "{more:?}");
}
