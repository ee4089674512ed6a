//! In which system call a thread waits for an answer, as `/proc` says it.
//!
//! No request says to which system call it belongs. As long as it is not answered, its thread is in that call.
use std::ffi::c_long;
use std::fs::File;
use std::io::{self, Read};

/// A file of `/proc/PID` that is read here fits, so one call reads it.
const SAID_BYTES: usize = 4096;

/// Where the stacks of 64-bit programs are: above. The numbers of calls of 32-bit programs mean others.
const STACK_MIN: u64 = 1 << 32;

/// Whether a thread that waits for an answer is in a call that makes, removes or renames a name. Such a call shows no
/// attributes to its program: the kernel asks for those of directories to check rights. What is not known is no such
/// call.
pub(super) fn changes_names(thread: u32) -> bool {
    // Threads of other PID namespaces have no number.
    let text = (thread != 0).then(|| said_of(thread, "syscall"));
    let text = text.and_then(Result::ok).and_then(|text| String::from_utf8(text).ok());
    text.is_some_and(|text| is_change(&text))
}

/// The content of a file of `/proc/PID`, of a process or a thread.
pub(super) fn said_of(thread: u32, what: &str) -> io::Result<Vec<u8>> {
    let mut said = Vec::with_capacity(SAID_BYTES);
    File::open(format!("/proc/{thread}/{what}"))?.read_to_end(&mut said)?;
    Ok(said)
}

/// Of what `/proc/TID/syscall` says (proc(5)): the number, six arguments, the stack and the instruction; `running` and
/// `-1` are no calls.
fn is_change(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<c_long>().ok()) else {
        return false;
    };
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let Some(rest) = words.map(hexadecimal).collect::<Option<Vec<u64>>>() else { return false };
    let [_, of_open, of_openat, _, _, _, stack, _] = rest[..] else { return false };
    let creates = |flags: u64| flags & libc::O_CREAT as u64 != 0;
    stack >= STACK_MIN
        && match number {
            libc::SYS_openat => creates(of_openat),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => creates(of_open),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat
            | libc::SYS_mkdir
            | libc::SYS_mknod
            | libc::SYS_symlink
            | libc::SYS_link
            | libc::SYS_unlink
            | libc::SYS_rmdir
            | libc::SYS_rename
            | libc::SYS_renameat => true,
            libc::SYS_mkdirat
            | libc::SYS_mknodat
            | libc::SYS_symlinkat
            | libc::SYS_linkat
            | libc::SYS_unlinkat
            | libc::SYS_renameat2 => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_change_names_are_known() {
        let said = |number: c_long, flags: [i32; 2], stack: u64| {
            let [open, openat] = flags;
            format!("{number} 0x3 {open:#x} {openat:#x} 0x1b6 0x0 0x0 {stack:#x} 0x7f12\n")
        };
        let (stack, none) = (0x7ffd_1234_5678, [0, 0]);
        assert!(is_change(&said(libc::SYS_unlinkat, none, stack)));
        assert!(is_change(&said(libc::SYS_openat, [0, libc::O_CREAT | libc::O_EXCL], stack)));
        assert!(!is_change(&said(libc::SYS_openat, [libc::O_CREAT, libc::O_RDWR], stack)));
        assert!(!is_change(&said(libc::SYS_fstat, none, stack)));
        assert!(!is_change(&said(libc::SYS_statx, [-1, -1], stack)));
        // A number of a 32-bit program, and what is no call.
        assert!(!is_change(&said(libc::SYS_unlinkat, none, 0xffff_d000)));
        for text in ["running\n", "-1 0x7ffd12345678 0x7f12\n", "", "263", "263 zero\n"] {
            assert!(!is_change(text), "{text}");
        }
    }

    /// The thread that asks is in `read` or `openat` without `O_CREAT` itself.
    #[test]
    fn thread_that_looks_is_in_no_such_call() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert!(!changes_names(own));
        assert!(!changes_names(0));
        assert!(!changes_names(u32::MAX));
    }
}
