//! Who is meant by a name, a leaf or a set of hosts.
use crate::cluster::{Cluster, run};
use proptest::prelude::*;
use sheaf_core::RangeSet;
use sheaf_core::hostset::HostSet;
use sheaf_group::message::DataAggregation;
use sheaf_group::{Client, GroupError, Limits, Value};

#[test]
fn too_few_names_and_leaves_that_do_not_exist_are_errors() {
    let cluster = Cluster::new(4);
    cluster.write_all("f", "x");
    run(async {
        let client = cluster.client("flat");
        let few = client.names().slice(0..3);
        let Err(error) = Client::new(client.network().clone(), few, Limits::default()) else {
            panic!()
        };
        assert!(matches!(error, GroupError::Names { names: 3, leaves: 4 }), "{error}");
        let beyond: RangeSet = [0, 77].into_iter().collect();
        let Err(error) = client.gopenat(&beyond, "/f", 0, 0).await else { panic!() };
        assert_eq!(
            error.to_string(),
            "there is no leaf 77 in this session: it has 4, counted from 0"
        );
        assert!(matches!(
            client.call(&beyond, "none", b""),
            Err(GroupError::UnknownLeaf { leaf: 77, .. })
        ));
        let Err(error) = client.leaves(&HostSet::parse("n[2-5]").unwrap()) else { panic!() };
        assert!(matches!(&error, GroupError::UnknownHost(name) if name == "n5"), "{error}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn selected_hosts_answer_in_any_host_order(
        order in Just((1..=9).collect::<Vec<u32>>()).prop_shuffle(),
        asked in prop::collection::btree_set(1u32..=9, 1..9),
    ) {
        let cluster = Cluster::new(9);
        (1..=9).for_each(|host| cluster.write(host - 1, "who", format!("n{host}")));
        run(async {
            let client = cluster.session_in_order(&order);
            let hosts: HostSet = asked.iter().map(|host| format!("n{host}")).collect();
            let leaves = client.leaves(&hosts).unwrap();
            assert_eq!(client.fold(&leaves), hosts.to_string());
            let group = client.gopenat(&leaves, "/who", 0, 0).await.unwrap();
            let data = DataAggregation::Packed { bytes_max: 1 << 20 };
            let Value::Packed(items) = group.pread(9, 0, data).await.unwrap().value else { panic!() };
            let said: Vec<String> = items.iter().map(|(_, name)| String::from_utf8(name.clone()).unwrap()).collect();
            let named: Vec<String> = said.iter().map(|name| format!("{name}:/who")).collect();
            assert_eq!(group.files().await.unwrap(), named.iter().map(String::as_str).collect::<Vec<_>>());
            for (index, name) in named.iter().enumerate() {
                assert_eq!(group.index(name).await.unwrap(), index as u64);
            }
            let in_order: Vec<String> =
                order.iter().filter(|host| asked.contains(*host)).map(|host| format!("n{host}")).collect();
            assert_eq!(said, in_order);
        });
    }
}
