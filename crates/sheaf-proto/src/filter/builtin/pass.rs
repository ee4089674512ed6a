//! `pass`: what one member says, as it is. For streams with a single member.
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use sheaf_core::Errno;

pub(super) fn register(registry: &mut Registry) {
    registry.register("pass", |_| Ok(Box::new(Pass)));
}

struct Pass;

impl Filter for Pass {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(PassedTail(None))
    }
}

struct PassedTail(Option<Vec<u8>>);

impl Accumulator for PassedTail {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if self.0.is_some() {
            return Err(FilterError::new(Errno::TOOBIG, "pass is for streams with one member"));
        }
        self.0 = Some(input.payload.to_vec());
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        out.extend(self.0.take().unwrap_or_default());
        Ok(())
    }
}
