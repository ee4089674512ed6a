//! Names of users and groups, looked up once each.
use rustc_hash::FxHashMap;

/// The names that were looked up so far. A number nobody has a name for stays a number.
#[derive(Default)]
pub struct Owners {
    users: FxHashMap<u32, String>,
    groups: FxHashMap<u32, String>,
}

impl Owners {
    pub fn user(&mut self, uid: u32) -> &str {
        self.users
            .entry(uid)
            .or_insert_with(|| sheaf_file::user_name(uid).unwrap_or_else(|| uid.to_string()))
    }

    pub fn group(&mut self, gid: u32) -> &str {
        self.groups
            .entry(gid)
            .or_insert_with(|| sheaf_file::group_name(gid).unwrap_or_else(|| gid.to_string()))
    }
}
