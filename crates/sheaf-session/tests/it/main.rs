//! Sessions as a program without a command line has them.
mod door;
mod surroundings;
