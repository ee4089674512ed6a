//! Runs the seeds of fuzz targets, and what was found with them, as a test, with any compiler. Part
//! of the integration tests of each crate that has targets.
use std::path::Path;

/// A fuzz target: its name, and what it runs.
type Target = (&'static str, fn(&[u8]));

/// Runs each seed of each target: whole, cut short, and with a byte changed.
pub fn pass(targets: &[Target]) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in targets {
        let files =
            std::fs::read_dir(corpus.join(name)).unwrap().map(|entry| entry.unwrap().path());
        let seeds: Vec<Vec<u8>> = files.map(|file| std::fs::read(file).unwrap()).collect();
        assert!(!seeds.is_empty(), "no seeds of {name}");
        for seed in &seeds {
            run(seed);
            for at in 0..seed.len().min(64) {
                run(&seed[..at]);
                let mut changed = seed.clone();
                changed[at] ^= 0x81;
                run(&changed);
            }
        }
    }
}
