//! The hosts of a session: their names in the order of its leaves, and the same as a set.
use crate::error::GroupError;
use sheaf_core::RangeSet;
use sheaf_core::hostset::HostSet;
use sheaf_tree::topology::Names;
use std::collections::HashSet;

/// A set of hosts has an order of its own, which need not be that of the leaves.
#[derive(Debug)]
pub(super) struct MemberHosts {
    names: Names,
    set: HostSet,
    /// The leaf of each host in the order of the set; `None` when that is the order of the leaves.
    leaf_of: Option<Box<[u32]>>,
}

impl MemberHosts {
    /// The hosts of a tree with `leaves` leaves.
    pub fn new(names: Names, leaves: u32) -> Result<Self, GroupError> {
        if names.len() != leaves {
            return Err(GroupError::Names { names: names.len(), leaves });
        }
        let set: HostSet = names.iter().collect();
        if set.len() != names.len() as usize {
            return Err(GroupError::NamedTwice(repeated(&names)));
        }
        let leaf_of = (!set.iter().map(|name| name.to_string()).eq(names.iter())).then(|| {
            let mut leaf_of = vec![0; set.len()];
            for (leaf, name) in names.iter().enumerate() {
                let place = set.index_of(&name).and_then(|place| leaf_of.get_mut(place));
                *place.expect("the set was made of these names") = leaf as u32;
            }
            leaf_of.into_boxed_slice()
        });
        Ok(Self { names, set, leaf_of })
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn set(&self) -> &HostSet {
        &self.set
    }

    pub fn leaf(&self, name: &str) -> Option<u32> {
        let place = self.set.index_of(name)?;
        match &self.leaf_of {
            Some(leaf_of) => leaf_of.get(place).copied(),
            None => u32::try_from(place).ok(),
        }
    }

    pub fn fold(&self, leaves: &RangeSet) -> String {
        match &self.leaf_of {
            Some(_) => leaves
                .iter()
                .filter_map(|leaf| self.names.get(leaf))
                .collect::<HostSet>()
                .to_string(),
            None => self.set.select(leaves).to_string(),
        }
    }
}

/// The first name that is there twice, or is empty.
fn repeated(names: &Names) -> String {
    let mut seen = HashSet::new();
    names.iter().find(|name| name.is_empty() || !seen.insert(name.clone())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Names {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn leaves_keep_the_order_of_the_tree() {
        let hosts = MemberHosts::new(names(&["n3", "n1", "login", "n2"]), 4).unwrap();
        let found: Vec<_> = ["n1", "n2", "n3", "login", "n4"].map(|name| hosts.leaf(name)).into();
        assert_eq!(found, [Some(1), Some(3), Some(0), Some(2), None]);
        assert_eq!(hosts.fold(&[0, 1].into_iter().collect()), "n[1,3]");
        assert_eq!(hosts.fold(&RangeSet::full(4)), "login,n[1-3]");
        assert_eq!(hosts.set().to_string(), "login,n[1-3]");
        let plain = MemberHosts::new(names(&["n1", "n2", "n3"]), 3).unwrap();
        assert!(plain.leaf_of.is_none());
        assert_eq!(
            (plain.leaf("n3"), plain.fold(&RangeSet::single(1))),
            (Some(2), "n2".to_owned())
        );
    }

    #[test]
    fn names_must_fit_the_tree() {
        let of =
            |list: &[&str], leaves| MemberHosts::new(names(list), leaves).unwrap_err().to_string();
        assert_eq!(of(&["n1", "n2"], 4), "2 names for a tree with 4 leaves");
        assert_eq!(of(&["n1", "n2", "n1"], 3), "\"n1\" is the name of more than one leaf");
        assert_eq!(of(&["n1", ""], 2), "\"\" is the name of more than one leaf");
    }
}
