//! `null`: combines nothing and keeps every leaf's contribution, in child order.
use super::{bad, check_gathered, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use sheaf_core::varint;

pub(super) fn register(registry: &mut Registry) {
    registry.register("null", |params| {
        if params.is_empty() {
            Ok(Box::new(Null))
        } else {
            Err(invalid("null takes no parameters"))
        }
    });
}

/// The contributions in a result (or a partial) of `null`, by leaf.
///
/// ```
/// use sheaf_proto::filter::{Emit, Input, NodeInfo, Registry, builtin::null};
/// let mut wave = Registry::with_builtins().instantiate("null", b"", &NodeInfo::default())?.accumulator();
/// wave.fold(Input { child: 0, raw: true, payload: b"one", ..Input::default() })?;
/// wave.fold(Input { child: 1, raw: true, payload: b"two", ..Input::default() })?;
/// let mut result = Vec::new();
/// wave.finish(Emit::Result, &mut result)?;
/// assert_eq!(null::items(&result)?, [b"one", b"two"]);
/// # Ok::<(), sheaf_proto::filter::FilterError>(())
/// ```
///
/// # Errors
/// `EBADMSG` when it is neither.
pub fn items(result: &[u8]) -> Result<Vec<&[u8]>, FilterError> {
    let (mut rest, mut items) = (result, Vec::new());
    while !rest.is_empty() {
        items.push(varint::get_bytes(&mut rest)?);
    }
    Ok(items)
}

struct Null;

impl Filter for Null {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::<NullKeeper>::default()
    }

    fn in_child_order(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct NullKeeper {
    kept: Vec<u8>,
}

impl Accumulator for NullKeeper {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        check_gathered(self.kept.len(), input.payload.len())?;
        if input.raw {
            varint::put_bytes(&mut self.kept, input.payload);
            return Ok(());
        }
        // Read through before it is kept: one malformed partial would spoil the whole list.
        let mut rest = input.payload;
        while !rest.is_empty() {
            varint::get_bytes(&mut rest)
                .map_err(|_| bad("a partial of null is a list of contributions"))?;
        }
        self.kept.extend_from_slice(input.payload);
        Ok(())
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        out.append(&mut self.kept);
        Ok(())
    }
}
