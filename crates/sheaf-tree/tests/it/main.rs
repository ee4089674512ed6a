//! Integration tests.
mod oracle;
mod waves;
