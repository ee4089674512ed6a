//! Numbers of many members, compared with a loop over their texts.
use crate::cluster::{Cluster, SHAPES, run};
use proptest::prelude::*;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_group::aggregate::{Number, NumberAt, NumberOp, Overflow};
use sheaf_group::flags::O_PARTIAL;
use sheaf_group::message::DataAggregation;
use sheaf_group::{Client, GroupError, Reading, Value};
use std::collections::BTreeMap;

/// Fields whose sums the loop gets exactly with units of 2^−20.
const SMALL: &[&str] = &[
    "0", "3", "-7", "+12345", "0.5", "-0.25", "1e3", "999999", ".125", "N/A", "17/421", "5kB", "x",
];
/// Fields whose sums need more digits than a float has, or more than there are.
const BIG: &[&str] = &[
    "123456789012345",
    "-1",
    "85070591730234615865843651857942052864",
    "-85070591730234615865843651857942052864",
    "170141183460469231731687303715884105727",
    "9007199254740993",
    "N/A",
];
const COLUMNS: &[&[u32]] = &[&[], &[1], &[2], &[3, 1]];
const OPS: &[NumberOp] = &[NumberOp::Sum, NumberOp::Average, NumberOp::Min, NumberOp::Max];

/// What a number is to the loop.
#[derive(Clone, Copy)]
enum Plain {
    Whole(i128),
    Float(f64),
}

fn plain(field: &str) -> Option<Plain> {
    if let Ok(value) = field.parse() {
        return Some(Plain::Whole(value));
    }
    field.parse().ok().filter(|value: &f64| value.is_finite()).map(Plain::Float)
}

/// What all members have at one place.
#[derive(Default)]
struct Column {
    numbers: Vec<Plain>,
    without: MemberSet,
}

type Columns = BTreeMap<(u32, u32), Column>;
type Numbers = BTreeMap<(u32, u32), Plain>;

/// Goes through the texts; also says who has no number at all.
fn columns_of(texts: &[Option<String>], wanted: &[u32]) -> (Columns, RangeSet) {
    let mut per_member: Vec<(u32, Numbers)> = Vec::new();
    let mut none = RangeSet::new();
    for (leaf, text) in (0u32..).zip(texts) {
        let Some(text) = text else { continue };
        let mut numbers = Numbers::new();
        for (line, text) in (0..).zip(text.split('\n')) {
            let fields: Vec<&str> = text.split_whitespace().collect();
            let all: Vec<u32> = (1..=fields.len() as u32).collect();
            for (place, column) in (0..).zip(if wanted.is_empty() { &all[..] } else { wanted }) {
                if let Some(number) =
                    fields.get(*column as usize - 1).and_then(|field| plain(field))
                {
                    numbers.insert((line, place), number);
                }
            }
        }
        if numbers.is_empty() {
            none.insert(leaf);
        } else {
            per_member.push((leaf, numbers));
        }
    }
    let mut columns = Columns::new();
    for (_, numbers) in &per_member {
        for (place, number) in numbers {
            columns.entry(*place).or_default().numbers.push(*number);
        }
    }
    for (place, column) in &mut columns {
        let without = per_member.iter().filter(|(_, numbers)| !numbers.contains_key(place));
        without.for_each(|(leaf, _)| column.without.insert(0, *leaf));
    }
    (columns, none)
}

/// `None`: it does not fit.
fn combine(op: NumberOp, numbers: &[Plain]) -> Option<Number> {
    let floats: Vec<f64> = numbers
        .iter()
        .map(|number| match number {
            Plain::Whole(value) => *value as f64,
            Plain::Float(value) => *value,
        })
        .collect();
    let whole: Option<Vec<i128>> = numbers
        .iter()
        .map(|number| if let Plain::Whole(value) = number { Some(*value) } else { None })
        .collect();
    let Some(whole) = whole else {
        let unit = f64::from(1 << 20);
        let units: i128 = floats.iter().map(|value| (value * unit) as i128).sum();
        let least = floats.iter().copied().fold(f64::INFINITY, f64::min);
        let most = floats.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Whether the least was written as an integer.
        let written = |value: f64| {
            let is_whole =
                |number: &&Plain| matches!(number, Plain::Whole(whole) if *whole as f64 == value);
            numbers.iter().any(|number| is_whole(&number)).then_some(value as i128)
        };
        return Some(match op {
            NumberOp::Sum => Number::Float(units as f64 / unit),
            NumberOp::Average => Number::Float(units as f64 / (unit * floats.len() as f64)),
            NumberOp::Min => written(least).map_or(Number::Float(least), Number::Integer),
            // Of an equal integer and float, the float counts as the greater.
            NumberOp::Max
                if numbers
                    .iter()
                    .any(|number| matches!(number, Plain::Float(value) if *value == most)) =>
            {
                Number::Float(most)
            }
            NumberOp::Max => Number::Integer(most as i128),
            other => panic!("the loop has no {other:?}"),
        });
    };
    // In two halves, which cannot overflow.
    let high: i128 = whole.iter().map(|value| value >> 64).sum();
    let low: i128 = whole.iter().map(|value| value & i128::from(u64::MAX)).sum();
    let (high, low) = (high + (low >> 64), low & i128::from(u64::MAX));
    let sum = i64::try_from(high).ok().map(|high| i128::from(high) << 64 | low);
    let count = whole.len() as i128;
    Some(match op {
        NumberOp::Sum => Number::Integer(sum?),
        NumberOp::Average => match sum {
            Some(sum) if sum % count == 0 => Number::Integer(sum / count),
            _ => Number::Float(floats.iter().sum::<f64>() / floats.len() as f64),
        },
        NumberOp::Min => Number::Integer(whole.iter().copied().min()?),
        NumberOp::Max => Number::Integer(whole.iter().copied().max()?),
        other => panic!("the loop has no {other:?}"),
    })
}

async fn read(
    client: &Client,
    cluster: &Cluster,
    op: NumberOp,
    columns: &[u32],
) -> Result<Reading, GroupError> {
    let flags = O_PARTIAL | sheaf_group::flags::O_BESTEFFORT;
    let group = client.gopenat(&cluster.everyone(), "/f", flags, 0).await?;
    let data =
        DataAggregation::Numbers { op, columns: columns.to_vec(), lines: None, labels: false };
    group.pread(1 << 20, 0, data).await
}

fn texts(fields: &'static [&'static str]) -> impl Strategy<Value = Vec<Option<String>>> {
    let field = prop::sample::select(fields);
    let line = prop::collection::vec(field, 0..4).prop_map(|fields| fields.join("  "));
    let text = prop::collection::vec(line, 0..4).prop_map(|lines| lines.join("\n"));
    prop::collection::vec(prop::option::weighted(0.9, text), 1..24)
}

fn check(texts: &[Option<String>], shape: &str, wanted: &[u32], ops: &[NumberOp]) {
    let cluster = Cluster::new(texts.len() as u32);
    for (leaf, text) in (0..).zip(texts) {
        if let Some(text) = text {
            cluster.write(leaf, "f", text);
        }
    }
    if texts.iter().all(Option::is_none) {
        return;
    }
    let (columns, none) = columns_of(texts, wanted);
    run(async {
        let client = cluster.client(shape);
        for &op in ops {
            let expected: Result<Vec<NumberAt>, Overflow> = columns
                .iter()
                .map(|((line, place), column)| {
                    let (line, column_number) =
                        (line + 1, wanted.get(*place as usize).copied().unwrap_or(place + 1));
                    let number = combine(op, &column.numbers)
                        .ok_or(Overflow { line, column: column_number })?;
                    let without_members = column.without.clone();
                    let (count, without) = (column.numbers.len() as u64, without_members.len());
                    Ok(NumberAt {
                        line,
                        column: column_number,
                        number,
                        count,
                        without,
                        without_members,
                    })
                })
                .collect();
            let reading = match (read(&client, &cluster, op, wanted).await, &expected) {
                (Err(GroupError::Overflow(found)), Err(overflow)) if found == *overflow => continue,
                (Ok(reading), Ok(_)) => reading,
                (other, _) => panic!("{other:?} for {expected:?}"),
            };
            let Value::Numbers(found) = &reading.value else { panic!("{reading:?}") };
            assert_eq!(found, &expected.unwrap(), "{op:?} of {texts:?}");
            let failed = reading.outcome.errors.iter().find(|error| error.errno == Errno::BADMSG);
            assert_eq!(failed.map(|error| error.members.leaves()).unwrap_or_default(), none);
            let have =
                (0..).zip(texts).filter(|(leaf, text)| text.is_some() && !none.contains(*leaf));
            assert_eq!(reading.contributors, have.map(|(leaf, _)| leaf).collect());
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn numbers_are_what_a_loop_makes_of_them(
        texts in texts(SMALL),
        shape in prop::sample::select(SHAPES),
        wanted in prop::sample::select(COLUMNS),
    ) {
        check(&texts, shape, wanted, OPS);
    }

    #[test]
    fn integers_stay_integers(texts in texts(BIG), shape in prop::sample::select(SHAPES)) {
        check(&texts, shape, &[], &[NumberOp::Sum, NumberOp::Min, NumberOp::Max]);
    }

}

proptest! {
    // Each case is every shape and every operation.
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn no_shape_shows_in_the_digits(values in prop::collection::vec(any::<f64>().prop_filter("finite", |value| value.is_finite()), 1..24)) {
        let cluster = Cluster::new(values.len() as u32);
        values.iter().enumerate().for_each(|(leaf, value)| cluster.write(leaf as u32, "f", format!("{value:?}")));
        run(async {
            for &op in OPS {
                let mut all = Vec::new();
                for shape in SHAPES {
                    let client = cluster.client(shape);
                    let Value::Numbers(numbers) = read(&client, &cluster, op, &[]).await.unwrap().value else { panic!() };
                    all.push(numbers[0].number.to_string());
                }
                all.dedup();
                assert_eq!(all.len(), 1);
            }
        });
    }
}

fn numbers_of(texts: &[&str], op: NumberOp) -> (Vec<String>, Vec<(Errno, RangeSet)>) {
    let cluster = Cluster::new(texts.len() as u32);
    (0..).zip(texts).for_each(|(leaf, text)| cluster.write(leaf, "f", text));
    run(async {
        let reading = read(&cluster.client("k-ary:2"), &cluster, op, &[]).await.unwrap();
        let Value::Numbers(numbers) = reading.value else { panic!() };
        let errors =
            reading.outcome.errors.iter().map(|error| (error.errno, error.members.leaves()));
        (numbers.iter().map(|at| at.number.to_string()).collect(), errors.collect())
    })
}

#[test]
fn field_that_is_no_number_moves_no_other() {
    assert_eq!(numbers_of(&["N/A 5", "3 5"], NumberOp::Sum).0, ["3", "10"]);
    assert_eq!(numbers_of(&["0.5 17/421 7", "0.25 1/9 8"], NumberOp::Max).0, ["0.5", "8"]);
    // Lines, too, are places.
    assert_eq!(
        numbers_of(&["a 1\nb 2\n", "a 1 9\n\nb 2\n"], NumberOp::Sum).0,
        ["2", "9", "2", "2"]
    );
}

#[test]
fn file_without_a_number_is_reported_as_ebadmsg() {
    for text in ["no numbers", "", "\n", "\u{0}\u{1}"] {
        let (numbers, errors) = numbers_of(&[text, "5"], NumberOp::Average);
        assert_eq!(numbers, ["5"]);
        assert_eq!(errors, [(Errno::BADMSG, RangeSet::single(0))], "{text:?}");
    }
}

#[test]
fn no_digit_is_lost() {
    let sum = |texts: &[&str]| numbers_of(texts, NumberOp::Sum).0;
    assert_eq!(sum(&["123456789012345", "0"]), ["123456789012345"]);
    assert_eq!(sum(&["9007199254740993", "2"]), ["9007199254740995"]);
    assert_eq!(sum(&["0.1", "0.2"]), ["0.30000000000000004"]);
    assert_eq!(sum(&["1e308"; 4]), ["inf"]);
    assert_eq!(sum(&["1e308", "1e308", "-1e308"]), ["1e308"]);
    assert_eq!(sum(&["9007199254740993", "0.0"]), ["9007199254740992"]);
    assert_eq!(
        numbers_of(&["9007199254740993", "9007199254740995"], NumberOp::Average).0,
        ["9007199254740994"]
    );
    let (numbers, errors) =
        numbers_of(&["5", "999999999999999999999999999999999999999"], NumberOp::Max);
    assert_eq!(
        (numbers, errors),
        (vec!["5".to_owned()], vec![(Errno::OVERFLOW, RangeSet::single(1))])
    );
}

#[test]
fn too_many_places_are_named_by_their_bound() {
    let cluster = Cluster::new(2);
    let long = |leaf: usize| format!("{}{}", "\n".repeat(leaf * 40_000), "1\n".repeat(40_000));
    (0..2).for_each(|leaf| cluster.write(leaf as u32, "f", long(leaf)));
    run(async {
        let client = cluster.client("flat");
        let refused = read(&client, &cluster, NumberOp::Sum, &[]).await;
        assert!(
            matches!(refused, Err(GroupError::TooManyNumbers { numbers_max: 65_536 })),
            "{refused:?}"
        );
        cluster.write(0, "f", "1\n".repeat(70_000));
        let reading = read(&client, &cluster, NumberOp::Sum, &[1]).await.unwrap();
        assert_eq!(reading.outcome.errors[0].errno, Errno::MSGSIZE);
        assert_eq!(reading.contributors, RangeSet::single(1));
    });
}
