//! Integration tests.
mod gnu_grep;
mod merge;
mod print;
