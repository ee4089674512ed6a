//! Integration tests.
mod flow;
mod oracle;
mod seeds;
mod sim;
mod waves;
