use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn array() -> impl Strategy<Value = Array> {
    let strings = vec(vec(any::<u8>(), 0..9).prop_map(Bytes::from), 0..5);
    prop_oneof![
        vec(any::<i8>(), 0..5).prop_map(Array::I8),
        vec(any::<u8>(), 0..200).prop_map(Array::U8),
        vec(any::<i16>(), 0..5).prop_map(Array::I16),
        vec(any::<u16>(), 0..5).prop_map(Array::U16),
        vec(any::<i32>(), 0..5).prop_map(Array::I32),
        vec(any::<u32>(), 0..5).prop_map(Array::U32),
        vec(any::<i64>(), 0..5).prop_map(Array::I64),
        vec(any::<u64>(), 0..5).prop_map(Array::U64),
        vec(any::<f32>().prop_filter("NaN is not equal to itself", |v| !v.is_nan()), 0..5)
            .prop_map(Array::F32),
        vec(any::<f64>().prop_filter("NaN is not equal to itself", |v| !v.is_nan()), 0..5)
            .prop_map(Array::F64),
        strings.prop_map(Array::Str),
    ]
}

fn value() -> impl Strategy<Value = PacketValue> {
    prop_oneof![
        any::<i8>().prop_map(PacketValue::I8),
        any::<u16>().prop_map(PacketValue::U16),
        any::<i32>().prop_map(PacketValue::I32),
        any::<u64>().prop_map(PacketValue::U64),
        (-1e9f32..1e9).prop_map(PacketValue::F32),
        (-1e9f64..1e9).prop_map(PacketValue::F64),
        vec(any::<u8>(), 0..200).prop_map(|bytes| PacketValue::Str(bytes.into())),
        array().prop_map(PacketValue::Array),
        array().prop_map(PacketValue::LargeArray),
    ]
}

proptest! {
    #[test]
    fn packets_round_trip(values in vec(value(), 0..12)) {
        let packet = Bytes::from(pack(&values).unwrap());
        prop_assert_eq!(&unpack(&packet).unwrap(), &values);
        prop_assert_eq!(unpack_shared(&packet).unwrap(), values);
        for cut in 0..packet.len() {
            prop_assert!(unpack(&packet[..cut]).is_err());
        }
    }

    #[test]
    fn unpacking_garbage_never_panics(bytes in vec(any::<u8>(), 0..64)) {
        let _ = unpack(&bytes);
    }

    #[test]
    fn unpacking_garbage_of_a_good_format_never_panics(
        format in "(%[aA]?(u?(c|hd|d|ld)|f|lf|s) ?){0,4}",
        bytes in vec(any::<u8>(), 0..48),
    ) {
        let mut packet = vec![format.len() as u8];
        packet.extend_from_slice(format.as_bytes());
        packet.extend_from_slice(&bytes);
        if let Ok(values) = unpack(&packet) {
            // What is accepted has one spelling of its format. (Its counts may be spelled longer.)
            prop_assert_eq!(Format::of(&values).unwrap().to_string(), format);
        }
    }

    #[test]
    fn formats_round_trip(text in "( ?%[aA]?(u?(c|hd|d|ld)|f|lf|s)){0,9}") {
        let format = Format::parse(&text).unwrap();
        prop_assert_eq!(Format::parse(&format.to_string()).unwrap(), format);
    }

    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC{0,12}") {
        let _ = Format::parse(&text);
    }
}

#[test]
fn every_kind_has_its_header() {
    fn check<T: Scalar + Default + Into<PacketValue>>() {
        let mut packet = Vec::new();
        put_scalar(T::default(), &mut packet);
        assert_eq!(packet, pack(&[T::default().into()]).unwrap());
        assert!(scalar::<T>(&packet) == Some(T::default()));
        assert_eq!(T::KIND.width(), Some(T::WIDTH));
    }
    check::<i8>();
    check::<u8>();
    check::<i16>();
    check::<u16>();
    check::<i32>();
    check::<u32>();
    check::<i64>();
    check::<u64>();
    check::<f32>();
    check::<f64>();
}

#[test]
fn errors_say_where() {
    let message = |text: &str| Format::parse(text).unwrap_err().to_string();
    assert_eq!(message("%d %q"), "the format has no conversion like \"%q\" (column 4)");
    assert_eq!(message("%d  d"), "the format has no conversion like \"d\" (column 5)");
    assert_eq!(message("%us"), "the format has no conversion like \"%us\" (column 1)");
    assert_eq!(message("%dé"), "the format has no conversion like \"é\" (column 3)");
    assert_eq!(
        message(&"%uld ".repeat(52)),
        "the format has 259 bytes; a packet holds at most 254"
    );
}

#[test]
fn forged_counts_are_refused() {
    let mut packet = b"\x04%alf".to_vec();
    varint::put(&mut packet, u64::MAX);
    assert_eq!(unpack(&packet), Err(PacketError::Truncated(1)));
    let mut packet = b"\x03%as".to_vec();
    varint::put(&mut packet, 1 << 40);
    assert_eq!(unpack(&packet), Err(PacketError::Truncated(1)));
    assert_eq!(unpack(&[255; 300]), Err(PacketError::FormatTooLong(255)));
}

#[test]
fn second_spelling_of_a_format_is_refused() {
    assert!(unpack(b"\x04%c%c\x01\x02").is_err());
    assert!(unpack(b"\x05%c %c\x01\x02").is_ok());
    assert!(unpack(b"\x06%c  %c\x01\x02").is_err());
    assert!(unpack(b"\x03%c \x01").is_err());
    assert!(unpack(b"\x03 %c\x01").is_err());
}
