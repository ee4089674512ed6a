//! The recorder with threads, processes that are killed, and files that are no segments.
mod crash;
mod damage;
mod exact;
