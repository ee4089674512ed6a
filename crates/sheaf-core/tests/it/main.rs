//! Integration tests.
mod hostset;
