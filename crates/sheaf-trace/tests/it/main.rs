//! From segments to files and back.
mod again;
mod export;
mod findings;
mod looks;
mod made;
mod parts;
mod replay;
mod report;
mod served;
mod store;
mod users;
mod waits;
