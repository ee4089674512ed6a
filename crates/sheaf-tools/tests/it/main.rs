//! Integration tests.
mod cp;
mod gnu_grep;
mod merge;
mod print;
mod read;
mod report;
