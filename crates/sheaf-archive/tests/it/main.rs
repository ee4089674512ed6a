//! Packs: what is written is read, by Sheaf and by others, and what is damaged is named.
mod damage;
mod made;
mod others;
mod pack;
