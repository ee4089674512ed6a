//! The fuzz targets' seeds, and what was found with them, run with any compiler.
use sheaf_tools::fuzzing;
use std::path::Path;

type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[("tools", fuzzing::wire)];

#[test]
fn every_seed_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in TARGETS {
        let files = std::fs::read_dir(corpus.join(name)).unwrap().map(|entry| entry.unwrap().path());
        let seeds: Vec<Vec<u8>> = files.map(|file| std::fs::read(file).unwrap()).collect();
        assert!(!seeds.is_empty(), "no seeds of {name}");
        for seed in &seeds {
            run(seed);
            // Cut short, and with a byte changed, at each place.
            for at in 0..seed.len().min(64) {
                run(&seed[..at]);
                let mut changed = seed.clone();
                changed[at] ^= 0x81;
                run(&changed);
            }
        }
    }
}
