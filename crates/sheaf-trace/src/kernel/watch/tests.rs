//! Events made by hand.
use super::{KernelNames, KernelWatch, WatchedRows};
use crate::kernel::files::DescriptorOf;
use crate::kernel::rings::{KernelEvent, KernelWhat};
use sheaf_log::{TraceNames, TraceRow};

const PID: i32 = 7;

/// A watch, and the names of its rows.
struct Bench {
    watch: KernelWatch,
    names: TraceNames,
    out: WatchedRows,
    time: u64,
}

/// Each descriptor is a file of its number.
struct Numbered;

impl KernelNames for Numbered {
    fn file(&mut self, (_, fd): DescriptorOf) -> Option<Vec<u8>> {
        Some(format!("/{fd}").into_bytes())
    }

    fn command(&mut self, pid: i32) -> Option<Vec<u8>> {
        Some(format!("p{pid}").into_bytes())
    }
}

impl Bench {
    fn new() -> Self {
        let mut names = TraceNames::default();
        let watch = KernelWatch::new("n1", &mut names);
        Self { watch, names, out: WatchedRows::default(), time: 0 }
    }

    fn tell(&mut self, cpu: usize, pid: i32, thread: i32, what: KernelWhat) {
        self.time += 1;
        let event = KernelEvent { time: self.time, cpu, pid, thread, what };
        self.watch.event(&event, &mut self.names);
    }

    fn enter(&mut self, cpu: usize, thread: i32, number: i64, given: &[u64]) {
        let mut arguments = [0; 6];
        arguments[..given.len()].copy_from_slice(given);
        self.tell(cpu, PID, thread, KernelWhat::Enter { number, arguments });
    }

    fn exit(&mut self, cpu: usize, thread: i32, number: i64, result: i64) {
        self.tell(cpu, PID, thread, KernelWhat::Exit { number, result });
    }

    /// A call from beginning to end.
    fn call(&mut self, number: i64, arguments: &[u64], result: i64) {
        self.enter(0, PID, number, arguments);
        self.exit(0, PID, number, result);
    }

    /// Asks for names, as at the end of a look.
    fn ask(&mut self) {
        self.time += 1;
        self.watch.ask(self.time, &mut Numbered, &mut self.names);
    }

    /// All that is certain by now, as operation, path and offset.
    fn rows(&mut self) -> Vec<(String, String, Option<i64>)> {
        self.time += 1;
        self.watch.take(self.time, &mut self.out);
        let text = |name| String::from_utf8(self.names.text(name).to_vec()).unwrap();
        let told = |row: &TraceRow| (text(row.op), text(row.path), row.offset);
        self.out.rows.iter().map(told).collect()
    }
}

fn row(op: &str, path: &str, offset: Option<i64>) -> (String, String, Option<i64>) {
    (op.to_owned(), path.to_owned(), offset)
}

#[test]
fn calls_become_rows_with_names_and_places() {
    let mut bench = Bench::new();
    bench.call(libc::SYS_openat, &[0, 0, 0], 3);
    bench.call(libc::SYS_read, &[3, 0, 100], 60);
    bench.call(libc::SYS_read, &[3, 0, 100], -4);
    bench.call(libc::SYS_dup, &[3], 4);
    bench.call(libc::SYS_write, &[4, 0, 10], 10);
    bench.call(libc::SYS_pread64, &[3, 0, 5, 900], 5);
    bench.call(libc::SYS_lseek, &[3, 1000, 0], 1000);
    bench.call(libc::SYS_write, &[4, 0, 1], 1);
    assert_eq!(bench.rows(), [], "nothing is certain before the names are");
    bench.ask();
    let expected = [
        row("open", "/3", None),
        row("read", "/3", Some(0)),
        row("read", "/3", Some(60)),
        row("dup", "/3", None),
        row("write", "/3", Some(60)),
        row("read", "/3", Some(900)),
        row("seek", "/3", None),
        row("write", "/3", Some(1000)),
    ];
    assert_eq!(bench.rows(), expected);
    let rows = &bench.out.rows;
    assert_eq!((rows[1].bytes, rows[1].asked, rows[1].errno), (60, 100, 0));
    assert_eq!((rows[2].bytes, rows[2].asked, rows[2].errno), (0, 100, 4));
    assert!(rows.iter().all(|row| bench.names.text(row.command) == b"p7"));
    assert_eq!((bench.out.unnamed, bench.watch.seen, bench.watch.ended), (0, 1, 8));
}

/// An open file that was closed before it was asked for, and a descriptor that was another file's
/// by then.
#[test]
fn name_that_is_not_certain_is_none() {
    let mut bench = Bench::new();
    bench.call(libc::SYS_openat, &[0, 0, 0], 3);
    bench.call(libc::SYS_close, &[3], 0);
    bench.call(libc::SYS_openat, &[0, 0, 0], 3);
    bench.ask();
    let expected = [row("open", "", None), row("close", "", None), row("open", "/3", None)];
    assert_eq!(bench.rows(), expected);
    assert_eq!(bench.out.unnamed, 2);
    // Asked for at a time when, as is seen later, it had been closed.
    let mut bench = Bench::new();
    bench.call(libc::SYS_openat, &[0, 0, 0], 3);
    bench.time += 10;
    bench.ask();
    bench.time -= 10;
    bench.call(libc::SYS_close, &[3], 0);
    bench.ask();
    bench.time += 10;
    assert_eq!(bench.rows(), [row("open", "", None), row("close", "", None)]);
}

#[test]
fn children_have_the_open_files_of_their_parents() {
    let mut bench = Bench::new();
    bench.call(libc::SYS_openat, &[0, 0, 0], 3);
    bench.tell(0, 8, 8, KernelWhat::Fork { parent: PID });
    bench.call(libc::SYS_close, &[3], 0);
    bench.tell(
        1,
        8,
        8,
        KernelWhat::Enter { number: libc::SYS_read, arguments: [3, 0, 9, 0, 0, 0] },
    );
    bench.tell(1, 8, 8, KernelWhat::Exit { number: libc::SYS_read, result: 9 });
    bench.ask();
    let expected = [row("open", "/3", None), row("close", "/3", None), row("read", "/3", Some(0))];
    assert_eq!(bench.rows(), expected);
    assert_eq!(bench.watch.seen, 2);
    bench.tell(1, 8, 8, KernelWhat::Ends);
    assert_eq!(bench.watch.processes().collect::<Vec<_>>(), [PID]);
}

#[test]
fn halves_of_calls_are_counted_and_never_put_together() {
    let mut bench = Bench::new();
    // A beginning without an end, then an end without a beginning.
    bench.enter(0, PID, libc::SYS_read, &[3, 0, 1]);
    bench.enter(0, PID, libc::SYS_write, &[3, 0, 1]);
    bench.exit(0, PID, libc::SYS_write, 1);
    bench.exit(0, PID, libc::SYS_read, 1);
    // Something was lost of the processor between, or of any when it was another in the end.
    bench.enter(0, PID, libc::SYS_read, &[3, 0, 1]);
    bench.tell(0, PID, PID, KernelWhat::Lost);
    bench.exit(0, PID, libc::SYS_read, 1);
    bench.enter(0, PID, libc::SYS_read, &[3, 0, 1]);
    bench.tell(2, PID, PID, KernelWhat::Lost);
    bench.exit(1, PID, libc::SYS_read, 1);
    bench.enter(0, PID, libc::SYS_read, &[3, 0, 1]);
    bench.tell(2, PID, PID, KernelWhat::Lost);
    bench.exit(0, PID, libc::SYS_read, 1);
    bench.ask();
    assert_eq!(bench.rows(), [row("write", "/3", None), row("read", "/3", None)]);
    assert_eq!((bench.watch.ended, bench.watch.unbegun), (5, 3));
}

#[test]
fn io_uring_user_is_identified_by_program_and_pid() {
    let mut bench = Bench::new();
    bench.tell(0, PID, PID, KernelWhat::Exec { name: b"fio".to_vec() });
    bench.call(libc::SYS_io_uring_setup, &[1, 0], 5);
    let ((program, how), pid) = bench.watch.unseen.pop_first().unwrap();
    assert_eq!((how, pid, bench.watch.skipped), ("io_uring", PID, 1));
    let name = bench.watch.command(program).unwrap();
    assert_eq!(bench.names.text(name), b"fio");
}
