//! Limits of rates hold within a task, too. A slow machine takes longer, so only the least time is looked at.
use crate::round::Place;
use sheaf_archive::{FetchOptions, Resource, SaveOptions, ScheduleLimits};
use std::fs;
use std::time::{Duration, Instant};

/// Bytes of one large file, and of many small ones of one directory.
const BYTES: usize = 3_000_000;
/// At this rate they take half a second.
const RATE: u64 = 6_000_000;
/// What a burst saves of that, and more.
const TIME_MIN: Duration = Duration::from_millis(350);

fn make(place: &Place) {
    fs::create_dir(place.path("large")).unwrap();
    fs::write(place.path("large/file"), vec![7; BYTES]).unwrap();
    fs::create_dir(place.path("small")).unwrap();
    for number in 0..30 {
        fs::write(place.path(&format!("small/{number}")), vec![number; BYTES / 30]).unwrap();
    }
    fs::create_dir(place.path("members")).unwrap();
    fs::write(place.path("members/file"), vec![9; BYTES]).unwrap();
}

#[test]
fn limits_of_disk_and_network_hold_within_a_task() {
    for resource in [Resource::DiskBytes, Resource::NetworkBytes] {
        let place = Place::new();
        make(&place);
        let limits = ScheduleLimits::default().with(resource, RATE);
        for (name, member_bytes_max) in
            [("large", 1 << 20), ("small", 1 << 20), ("members", 8 << 20)]
        {
            let began = Instant::now();
            let options = SaveOptions { limits, member_bytes_max, ..SaveOptions::default() };
            let (report, told) = place.save(name, options);
            assert_eq!((report.stored_bytes, &told[..]), (BYTES as u64, &[][..]));
            assert!(began.elapsed() >= TIME_MIN, "{name} was stored within {:?}", began.elapsed());
            let began = Instant::now();
            let options = FetchOptions { limits, ..FetchOptions::default() };
            let (report, told) = place.fetch(&format!("/{name}"), &format!("to-{name}"), options);
            assert_eq!((report.fetched_bytes, &told[..]), (BYTES as u64, &[][..]));
            assert!(began.elapsed() >= TIME_MIN, "{name} was got within {:?}", began.elapsed());
        }
    }
}
