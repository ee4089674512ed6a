//! Integration tests.
mod cp;
mod edit;
mod gnu_grep;
mod merge;
mod print;
mod read;
mod report;
mod seeds;
