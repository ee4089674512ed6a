//! Values of options that have names, for completions to offer.
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};
use std::ffi::OsStr;

/// A parser of values, and the names it knows. What is wrong with other values is the parser's to
/// say.
#[derive(Clone)]
pub struct Named<P, const N: usize>(pub P, pub [&'static str; N]);

impl<P: TypedValueParser, const N: usize> TypedValueParser for Named<P, N> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, Error> {
        self.0.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.1.iter().map(PossibleValue::new)))
    }
}
