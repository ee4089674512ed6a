//! Packs: what is written is read, by Sheaf and by others, and what is damaged is named.
mod catalog;
mod changes;
mod crash;
mod damage;
mod deltas;
mod disk;
mod exclude;
mod flips;
mod grep;
mod grep_bytes;
mod heal;
mod hostile;
mod hostile_random;
mod hosts;
mod ignores;
mod interrupted;
mod kept;
mod kills;
mod kinds;
mod leases;
mod limits;
mod links;
mod list;
mod local;
mod losses;
mod made;
mod matrix;
mod memory;
mod others;
mod overwrite;
mod pack;
mod parted;
mod postgres;
mod proxy;
mod racy;
mod random_rounds;
mod relay;
mod remove;
mod repack;
mod restoring;
mod resumed;
mod round;
mod s3;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
mod snapshots;
mod store;
mod stores;
mod tape;
mod tar_out;
mod target;
mod trees;
mod verify;
mod versions;
mod versions_work;
mod walk;
mod writers;
mod zstd;

#[test]
fn fuzz_seeds_pass() {
    seeds::pass(sheaf_archive::fuzzing::TARGETS);
}
