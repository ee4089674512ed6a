//! Integration tests.
mod filters;
mod flow;
mod oracle;
mod seeds;
mod sim;
mod waves;
