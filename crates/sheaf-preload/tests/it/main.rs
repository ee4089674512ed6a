//! Programs with the library preloaded: what is recorded of them, and that they do what they did.
mod edges;
mod exact;
mod forks;
mod kernel_aio;
mod long;
mod mpi;
mod names;
mod program;
mod same;
mod sockets;
mod strange;
mod symbols;
mod wide;
