//! Bytes in a record: text, or base64 in a field of another name.
use serde::Serialize;

/// Bytes that are not UTF-8, in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename = "base64")]
pub struct Base64(String);

/// Returns bytes as text, or as base64 if they are not UTF-8, for the two fields of a record.
pub fn text(bytes: &[u8]) -> (Option<String>, Option<Base64>) {
    use base64::Engine;
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(Base64(base64::engine::general_purpose::STANDARD.encode(bytes)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_in_base64() {
        assert_eq!(text(b"a"), (Some("a".to_owned()), None));
        assert_eq!(text(b"/\xff"), (None, Some(Base64("L/8=".to_owned()))));
    }
}
