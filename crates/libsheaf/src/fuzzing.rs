//! What the fuzz targets in `fuzz/` run. No part of the API.
#![allow(missing_docs)]
use crate::attach::{self, AttachAnswer, AttachHello, Seat};
use crate::filter::{self, AssignFilter};
use crate::meter::MeterRecord;
use crate::plan::BackEndPlan;
use crate::topgen::{self, TopologyRequest};
use crate::wire::{Control, Down, OpenParams, Parcel};
use bytes::Bytes;
use sheaf_core::fuzzing::FuzzTarget;
use sheaf_tree::filter::{Emit, Input, NodeInfo};

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] =
    &[("libsheaf_wire", wire), ("libsheaf_text", text), ("libsheaf_filter", filters)];

/// What the ends of a session, and back ends that attach themselves, say to each other.
pub fn wire(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    let bytes = Bytes::copy_from_slice(rest);
    match which % 7 {
        0 => down(&bytes),
        1 => {
            let Ok(parcels) = Parcel::list(bytes.clone()) else { return };
            let mut out = Vec::new();
            for Parcel { tag, source, packet } in &parcels {
                Parcel::put(&mut out, *tag, *source, packet);
                let _ = OpenParams::decode(packet);
            }
            assert_eq!(out, bytes);
        }
        2 => {
            let Ok(records) = MeterRecord::decode(rest) else { return };
            assert_eq!(MeterRecord::decode(&MeterRecord::encode(&records)), Ok(records));
        }
        3 => {
            let Ok(welcome) = attach::read::<Seat>(&mut &rest[..]) else { return };
            let again = attach::encode(&welcome);
            assert_eq!(attach::read(&mut &again[..]).ok(), Some(welcome));
        }
        5 => {
            let Ok(plan) = BackEndPlan::from_session(rest) else { return };
            assert!(plan.table().lines().count() >= plan.back_ends().count());
            let again =
                BackEndPlan::from_session(&plan.to_session()).expect("what was encoded decodes");
            assert_eq!(again.topology().nodes_len(), plan.topology().nodes_len());
        }
        _ => {
            drop(attach::read::<AttachHello>(&mut &rest[..]));
            drop(attach::read::<AttachAnswer>(&mut &rest[..]));
        }
    }
}

fn down(bytes: &Bytes) {
    match Down::decode(bytes, 1) {
        Ok(Down::Control(control)) => {
            let again = Down::decode(&Bytes::from(control.encode()), 1);
            assert!(matches!(again, Ok(Down::Control(again)) if again == control));
            if let Control::Describe(described) = control {
                let choices = described.up.iter().chain(&described.down);
                choices.for_each(|assign| {
                    let _ = (assign.at(0), assign.simple(), assign.has_modules());
                });
            }
        }
        Ok(Down::NotForUs(packet, ranks)) => {
            let again = Down::decode(&Down::encode(&packet, &ranks).into(), 1);
            assert!(ranks.is_empty() || matches!(again, Ok(Down::NotForUs(..))));
        }
        Ok(Down::Packet(_)) | Err(_) => {}
    }
}

/// Texts of the application's: topology files, shapes and hosts to make them of, filters by rank.
pub fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(plan) = BackEndPlan::parse(text, data.len().is_multiple_of(2)) {
        let places = if plan.attach() { plan.topology().leaves_len() } else { 0 };
        assert_eq!(plan.table().lines().count(), (plan.topology().nodes_len() - places) as usize);
    }
    let (shape, hosts) = text.split_once('\n').unwrap_or((text, "n[1-4]"));
    if let Ok(mut hosts) = topgen::hosts(hosts, 4) {
        hosts.iter_mut().for_each(|(_, count)| *count %= 64);
        let request = TopologyRequest {
            shape: shape.to_owned(),
            front: "fe".to_owned(),
            hosts,
            inner: Vec::new(),
        };
        drop(topgen::make(&request));
    }
    if let Ok(assign) = AssignFilter::parse(text, true, data) {
        let _ = (assign.at(0), assign.simple(), assign.encode());
    }
}

/// The filters of streams, by assignment, with forged assignments and contributions.
pub fn filters(data: &[u8]) {
    let registry = filter::registry(&Default::default());
    let mut pieces = data.split(|&byte| byte == b'\xff');
    let mut next = || pieces.next().unwrap_or_default();
    let text = String::from_utf8_lossy(next()).into_owned();
    let params = match AssignFilter::parse(&text, data.len().is_multiple_of(2), b"") {
        Ok(assign) => assign.encode(),
        Err(_) => next().to_vec(),
    };
    let name = if params.len() == 4 { filter::PERF_NAME } else { filter::NAME };
    let Ok(mut made) = registry.instantiate(name, &params, &NodeInfo::default()) else { return };
    for wave in 0..3 {
        let mut accumulator = made.accumulator();
        for rank in 0..3 {
            let payload = contribution(next(), rank);
            let _ = accumulator.fold(Input {
                child: rank,
                rank,
                raw: wave == 0,
                payload: &payload,
                ..Input::default()
            });
        }
        let mut out = Vec::new();
        if accumulator.finish(Emit::Partial, &mut out).is_ok() && name == filter::NAME {
            assert!(Parcel::list(out.into()).is_ok(), "a node cannot read what another has made");
        }
        let _ = accumulator.replies();
    }
    let _ = (made.state(), made.absorb(data));
}

/// A list of packets, mostly well-formed; as it is when its first byte says so.
fn contribution(piece: &[u8], rank: u32) -> Vec<u8> {
    let Some((&first, rest)) = piece.split_first().filter(|(first, _)| **first != b'!') else {
        return piece.to_vec();
    };
    let mut out = Vec::new();
    for packet in rest.split(|&byte| byte == b'|') {
        let tag = if first == b'p' { crate::wire::PARAMS_TAG } else { i32::from(first) };
        Parcel::put(&mut out, tag, rank, packet);
    }
    out
}
