//! Integration tests.
mod ahead;
mod filters;
mod flow;
mod oracle;
mod recovery;
mod runs;
mod seeds;
mod sim;
mod stateful;
mod waves;
