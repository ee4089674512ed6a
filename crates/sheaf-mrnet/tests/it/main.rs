//! Integration tests: C and C++ programs against MRNet's headers and the shared library.
mod hosts;
mod install;
mod programs;
mod tools;
