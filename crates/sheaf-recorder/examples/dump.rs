//! Prints what the segments of a directory hold.
use sheaf_recorder::{Reader, flag};

fn main() {
    let directory = std::env::args().nth(1).expect("a directory");
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let mut reader = match Reader::open(&path) {
            Ok(reader) => reader,
            Err(damage) => {
                println!("{}: {damage}", path.display());
                continue;
            }
        };
        let read = reader.read();
        let command = String::from_utf8_lossy(&reader.process().command).replace('\0', " ");
        println!(
            "== {} {command} lost {} unplaced {}",
            reader.process().pid,
            read.lost,
            read.unplaced
        );
        for record in &read.records {
            let name = read.names.get(&record.file).map(|name| String::from_utf8_lossy(name));
            println!(
                "{:>10} {:<12} {} at {:?} asked {} {} {}",
                record.ticks,
                record.op.map_or("?", sheaf_recorder::IoOp::word),
                name.unwrap_or_default(),
                (record.flags & flag::PLACED != 0).then_some(record.offset),
                record.asked,
                if record.flags & flag::FAILED != 0 { "errno" } else { "bytes" },
                record.bytes
            );
        }
    }
}
