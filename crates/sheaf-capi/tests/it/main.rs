//! Integration tests: C and C++ programs against the headers and the shared library.
mod programs;
mod tools;
