//! Integration tests.
mod flow;
mod oracle;
mod sim;
mod waves;
