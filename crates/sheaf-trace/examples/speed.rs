use sheaf_trace::*;
fn main() {
    let mut args = std::env::args().skip(1);
    let (what, path) = (args.next().unwrap(), args.next().unwrap());
    let path = std::path::PathBuf::from(path);
    if what == "write" {
        let rows: u64 = args.next().unwrap().parse().unwrap();
        let mut names = TraceNames::default();
        let mut store = TraceStore::open(&path, 10_000_000).unwrap();
        let ops: Vec<u32> = ["read", "write", "open", "stat", "seek"].iter().map(|w| names.number(w.as_bytes())).collect();
        let posix = names.number(b"posix");
        let hosts: Vec<u32> = (0..4).map(|n| names.number(format!("n{n}").as_bytes())).collect();
        let command = names.number(b"./ior -a POSIX -b 1g -t 4k");
        let files: Vec<u32> = (0..2000).map(|n| names.number(format!("/scratch/run/data/part-{n:05}").as_bytes())).collect();
        let mut part = Vec::new();
        let mut x = 0x9e3779b97f4a7c15u64;
        for n in 0..rows {
            x ^= x << 13; x ^= x >> 7; x ^= x << 17;
            let p = (x >> 20) % 64;
            part.push(TraceRow { time_ns: 1_700_000_000_000_000_000 + n as i64 * 800, duration_ns: 600 + (x % 900) as i64,
                op: ops[match x % 20 { 0 => 2, 1 => 3, 2 => 4, 3..=9 => 1, _ => 0 }], layer: posix, host: hosts[(p % 4) as usize], command, path: files[(p * 31 + (x >> 40) % 31) as usize],
                offset: Some(if x % 3 == 0 { (x >> 30) as i64 % (1 << 30) } else { n as i64 * 64 }), asked: 4096, bytes: 4096, errno: 0, pid: 1000 + p as i32, thread: 1000 + p as i32, is_nested: false });
            if part.len() == 100_000 { store.push(&part, &names).unwrap(); part.clear(); }
        }
        store.push(&part, &names).unwrap();
        store.finish(&names).unwrap();
        return;
    }
    let begun = std::time::Instant::now();
    let mut names = TraceNames::default();
    let (mut count, mut sum) = (0u64, 0i64);
    let mut summary = TraceReport::new(ReportOptions::default());
    StoreReader::open(&path).unwrap().read(&mut names, |row, names| {
        count += 1; sum = sum.wrapping_add(row.time_ns ^ row.path as i64);
        if what == "sum" { summary.add(row, names); }
        Ok(())
    }).unwrap();
    if what == "sum" { let data = summary.finish(&names); println!("{}", data.to_text(100)); std::fs::write("/tmp/h/report.html", data.to_html()).unwrap(); }
    let s = begun.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    println!("{count} rows {s:.2} s {:.0} rows/s {peak} {sum}", count as f64 / s);
}
