//! Traces, as a user records and reads them.
mod trace;
mod trace_contained;
mod trace_flight;
mod trace_kernel;
mod trace_less;
mod trace_page;
mod trace_recover;
mod trace_replay;
mod trace_serve;
mod trace_strange;
mod trace_unseen;
mod trace_words;
