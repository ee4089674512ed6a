//! Groups and tools on whole trees, against the loop that a program without them would write.
mod cluster;
mod group;
mod lines;
mod loss;
mod oracle;
mod seeds;
mod tools;
mod wire;
