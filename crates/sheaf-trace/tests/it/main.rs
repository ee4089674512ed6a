//! From segments to files and back.
mod again;
mod export;
mod findings;
mod made;
mod parts;
mod replay;
mod report;
mod served;
mod store;
mod waits;
