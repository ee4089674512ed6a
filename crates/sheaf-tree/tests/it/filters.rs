//! Filters that users bring, compiled here with the compilers there are.
mod build;
mod examples;
mod failing;
mod lost;
mod tree;
