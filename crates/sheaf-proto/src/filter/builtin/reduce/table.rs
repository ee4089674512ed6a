//! The general case: packets of several values and arrays, as columns of wide cells.
use super::{CONTRIBUTIONS_MAX, ReduceOp};
use crate::filter::FilterError;
use crate::filter::builtin::{OPAQUE, bad};
use crate::packet::{Field, FieldKind, FieldShape, FieldType, Fields, scalar_header};
use sheaf_core::{Errno, varint};

/// One wave's values, kept from wave to wave for its memory.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The header of the packets that are folded.
    header: Vec<u8>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    field_type: FieldType,
    cells: Cells,
}

#[derive(Debug)]
enum Cells {
    /// Integers of up to 32 bits.
    Narrow(Vec<i64>),
    /// Integers of 64 bits.
    Wide(Vec<i128>),
    /// Floating-point numbers.
    Float(Vec<f64>),
}

/// A partial that a [`Table`] wrote with cells instead of values.
#[derive(Debug, Clone)]
pub(super) struct WideFields<'a> {
    pub(super) header: &'a [u8],
    cells: &'a [u8],
}

/// Reads the start of what [`Table::put_wide`] wrote, after the mark.
pub(super) fn open_wide(mut input: &[u8]) -> Result<(u64, WideFields<'_>), FilterError> {
    let count = varint::get(&mut input)?;
    if count == 0 || count > CONTRIBUTIONS_MAX {
        return Err(bad("a partial has an impossible number of contributions"));
    }
    let header = input
        .first()
        .and_then(|&len| input.get(..=usize::from(len)))
        .ok_or_else(|| bad("a partial ends inside its format"))?;
    Ok((count, WideFields { header, cells: &input[header.len()..] }))
}

/// Two contributions of different formats.
pub(super) fn mismatch(name: &str, have: &[u8], got: &[u8]) -> FilterError {
    let text =
        |header: &[u8]| String::from_utf8_lossy(header.get(1..).unwrap_or_default()).into_owned();
    bad(format!("{name} of {:?} cannot take a packet of {:?}", text(have), text(got)))
}

impl Table {
    /// Starts a wave with its first packet.
    pub(super) fn start(&mut self, fields: Fields<'_>, name: &str) -> Result<(), FilterError> {
        let checked: Vec<Field<'_>> = fields.clone().collect::<Result<_, _>>()?;
        if checked.iter().any(|field| field.kind() == FieldKind::Str) {
            return Err(bad(format!("{name} does not combine strings (%s)")));
        }
        self.set_header(fields.header(), checked.iter().map(Field::field_type));
        for (column, field) in self.columns.iter_mut().zip(checked) {
            column.cells.extend(field);
        }
        Ok(())
    }

    /// Starts a wave with one integer.
    pub(super) fn start_int(&mut self, kind: FieldKind, value: i128) {
        self.start_single(kind);
        match &mut self.columns[0].cells {
            Cells::Wide(cells) => cells.push(value),
            Cells::Narrow(cells) => {
                cells.push(i64::try_from(value).expect("2³¹ numbers of 32 bits sum to 63 bits"));
            }
            Cells::Float(_) => {}
        }
    }

    /// Starts a wave with one floating-point number.
    pub(super) fn start_float(&mut self, kind: FieldKind, value: f64) {
        self.start_single(kind);
        if let Cells::Float(cells) = &mut self.columns[0].cells {
            cells.push(value);
        }
    }

    fn start_single(&mut self, kind: FieldKind) {
        let header = scalar_header(kind).expect("a single value is a number");
        self.set_header(header, [FieldType::scalar(kind)].into_iter());
    }

    fn set_header(&mut self, header: &[u8], types: impl Iterator<Item = FieldType>) {
        if self.header == header {
            self.columns.iter_mut().for_each(|column| column.cells.clear());
            return;
        }
        self.header.clear();
        self.header.extend_from_slice(header);
        self.columns.clear();
        self.columns.extend(
            types.map(|field_type| Column { field_type, cells: Cells::new(field_type.kind) }),
        );
    }

    /// Folds another packet of the same format.
    pub(super) fn fold<O: ReduceOp>(&mut self, fields: Fields<'_>) -> Result<(), FilterError> {
        if fields.header() != self.header {
            return Err(mismatch(O::NAME, &self.header, fields.header()));
        }
        // All is checked before anything is folded: an error must leave the wave as it was.
        let mut lengths = self.columns.iter().map(|column| column.cells.len());
        for field in fields.clone() {
            check_length(O::NAME, lengths.next(), field?.count())?;
        }
        for (column, field) in self.columns.iter_mut().zip(fields) {
            column.cells.fold::<O>(field?);
        }
        Ok(())
    }

    /// Folds a partial of `count` contributions, or starts with it.
    pub(super) fn fold_wide<O: ReduceOp>(
        &mut self,
        fields: WideFields<'_>,
        count: u64,
        start: bool,
    ) -> Result<(), FilterError> {
        let parsed = Self::parse_wide(fields.clone(), count)?;
        if start {
            *self = parsed;
            return Ok(());
        }
        if fields.header != self.header {
            return Err(mismatch(O::NAME, &self.header, fields.header));
        }
        for (column, other) in self.columns.iter().zip(&parsed.columns) {
            check_length(O::NAME, Some(column.cells.len()), other.cells.len())?;
        }
        for (column, other) in self.columns.iter_mut().zip(&parsed.columns) {
            column.cells.fold_cells::<O>(&other.cells);
        }
        Ok(())
    }

    fn parse_wide(fields: WideFields<'_>, count: u64) -> Result<Self, FilterError> {
        let (mut format, mut input) = (&fields.header[1..], fields.cells);
        let mut table = Self { header: fields.header.to_vec(), columns: Vec::new() };
        while !format.is_empty() {
            let field_type = FieldType::take(&mut format)
                .filter(|field_type| field_type.kind != FieldKind::Str)
                .ok_or_else(|| bad("a partial has a malformed format"))?;
            let mut cells = Cells::new(field_type.kind);
            let len = if field_type.shape == FieldShape::Scalar {
                1
            } else {
                varint::get_len(&mut input)?
            };
            cells.take(len, &mut input).ok_or_else(|| bad("a partial ends inside its cells"))?;
            // `CONTRIBUTIONS_MAX` keeps true sums within the cells. A forged sum could overflow
            // them later.
            if !cells.within(field_type.kind, count) {
                return Err(bad("a partial holds a sum that its contributions cannot have"));
            }
            table.columns.push(Column { field_type, cells });
            format = match format {
                [] => format,
                [b' ', rest @ ..] if !rest.is_empty() => rest,
                _ => return Err(bad("a partial has a malformed format")),
            };
        }
        if input.is_empty() {
            Ok(table)
        } else {
            Err(bad("bytes follow the last cell of a partial"))
        }
    }

    /// Whether every value fits into its type.
    pub(super) fn fits(&self) -> bool {
        self.columns.iter().all(|column| column.cells.fits(column.field_type.kind))
    }

    /// An error when a sum is too large for its type.
    pub(super) fn check_fits(&self, name: &str) -> Result<(), FilterError> {
        // Single precision only rounds; that is for a partial to avoid, not for a result.
        let misfit = self.columns.iter().position(|column| {
            !column.field_type.kind.is_float() && !column.cells.fits(column.field_type.kind)
        });
        match misfit {
            None => Ok(()),
            Some(at) => {
                let what = self.columns[at].field_type;
                let message = format!("the {name} of value {} does not fit into {what}", at + 1);
                Err(FilterError::new(Errno::OVERFLOW, message))
            }
        }
    }

    /// Makes means of sums.
    pub(super) fn divide(&mut self, count: u64) {
        for column in &mut self.columns {
            match &mut column.cells {
                Cells::Narrow(cells) => cells.iter_mut().for_each(|cell| *cell /= count as i64),
                Cells::Wide(cells) => cells.iter_mut().for_each(|cell| *cell /= i128::from(count)),
                Cells::Float(cells) => cells.iter_mut().for_each(|cell| *cell /= count as f64),
            }
        }
    }

    /// Appends the values as a packet of the contributions' format.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header);
        for Column { field_type, cells } in &self.columns {
            if field_type.shape != FieldShape::Scalar {
                varint::put(out, cells.len() as u64);
            }
            cells.put(field_type.kind, out);
        }
    }

    /// Appends the cells and the number of contributions as a partial.
    pub(super) fn put_wide(&self, count: u64, out: &mut Vec<u8>) {
        out.push(OPAQUE);
        varint::put(out, count);
        out.extend_from_slice(&self.header);
        for Column { field_type, cells } in &self.columns {
            if field_type.shape != FieldShape::Scalar {
                varint::put(out, cells.len() as u64);
            }
            cells.put_wide(out);
        }
    }
}

fn check_length(name: &str, have: Option<usize>, got: usize) -> Result<(), FilterError> {
    if have == Some(got) {
        return Ok(());
    }
    Err(bad(format!("{name} of arrays of {} elements cannot take one of {got}", have.unwrap_or(0))))
}

/// Runs `$do` on the cells and the elements of the field, widened to `$cell`.
macro_rules! widened {
    ($cell:ident from $($kind:ident $type:ident),*; $cells:ident, $field:ident, |$c:ident, $v:ident| $do:expr) => {
        match $field.kind() {
            $(FieldKind::$kind => {
                if let Some(values) = $field.elements::<$type>() {
                    let ($c, $v) = ($cells, values.map($cell::from));
                    $do
                }
            })*
            // Cells are made for the kind of their fields.
            _ => {}
        }
    };
}
macro_rules! narrow {
    ($($rest:tt)*) => {
        widened!(i64 from I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32; $($rest)*)
    };
}
macro_rules! wide {
    ($($rest:tt)*) => { widened!(i128 from I64 i64, U64 u64; $($rest)*) };
}
macro_rules! float {
    ($($rest:tt)*) => { widened!(f64 from F32 f32, F64 f64; $($rest)*) };
}

impl Cells {
    fn new(kind: FieldKind) -> Self {
        match kind {
            FieldKind::F32 | FieldKind::F64 => Self::Float(Vec::new()),
            FieldKind::I64 | FieldKind::U64 => Self::Wide(Vec::new()),
            _ => Self::Narrow(Vec::new()),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Narrow(cells) => cells.clear(),
            Self::Wide(cells) => cells.clear(),
            Self::Float(cells) => cells.clear(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Narrow(cells) => cells.len(),
            Self::Wide(cells) => cells.len(),
            Self::Float(cells) => cells.len(),
        }
    }

    fn extend(&mut self, field: Field<'_>) {
        match self {
            Self::Narrow(cells) => narrow!(cells, field, |cells, values| cells.extend(values)),
            Self::Wide(cells) => wide!(cells, field, |cells, values| cells.extend(values)),
            Self::Float(cells) => float!(cells, field, |cells, values| cells.extend(values)),
        }
    }

    fn fold<O: ReduceOp>(&mut self, field: Field<'_>) {
        match self {
            Self::Narrow(cells) => {
                narrow!(cells, field, |cells, values| zip(cells, values, O::narrow))
            }
            Self::Wide(cells) => wide!(cells, field, |cells, values| zip(cells, values, O::wide)),
            Self::Float(cells) => {
                float!(cells, field, |cells, values| zip(cells, values, O::float))
            }
        }
    }

    fn fold_cells<O: ReduceOp>(&mut self, other: &Self) {
        match (self, other) {
            (Self::Narrow(a), Self::Narrow(b)) => zip(a, b.iter().copied(), O::narrow),
            (Self::Wide(a), Self::Wide(b)) => zip(a, b.iter().copied(), O::wide),
            (Self::Float(a), Self::Float(b)) => zip(a, b.iter().copied(), O::float),
            // Tables of equal headers have equal cells.
            _ => {}
        }
    }

    fn fits(&self, kind: FieldKind) -> bool {
        let (min, max) = limits(kind);
        match self {
            Self::Narrow(cells) => {
                cells.iter().all(|&cell| (min..=max).contains(&i128::from(cell)))
            }
            Self::Wide(cells) => cells.iter().all(|cell| (min..=max).contains(cell)),
            Self::Float(_) if kind == FieldKind::F64 => true,
            Self::Float(cells) => {
                cells.iter().all(|&cell| cell.is_nan() || f64::from(cell as f32) == cell)
            }
        }
    }

    /// Whether `count` contributions of `kind` can have summed to this.
    fn within(&self, kind: FieldKind, count: u64) -> bool {
        let (min, max) = limits(kind);
        let range = (min * i128::from(count))..=(max * i128::from(count));
        match self {
            Self::Narrow(cells) => cells.iter().all(|&cell| range.contains(&i128::from(cell))),
            Self::Wide(cells) => cells.iter().all(|cell| range.contains(cell)),
            Self::Float(_) => true,
        }
    }

    fn put(&self, kind: FieldKind, out: &mut Vec<u8>) {
        match self {
            Self::Float(cells) if kind == FieldKind::F32 => {
                cells.iter().for_each(|&cell| out.extend_from_slice(&(cell as f32).to_le_bytes()));
            }
            Self::Float(cells) => {
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()));
            }
            // Two's complement: the low bytes are the value, once it fits.
            Self::Narrow(cells) => {
                let width = kind.width().unwrap_or(0);
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()[..width]));
            }
            Self::Wide(cells) => {
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()[..8]));
            }
        }
    }

    fn put_wide(&self, out: &mut Vec<u8>) {
        match self {
            Self::Narrow(cells) => {
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()));
            }
            Self::Wide(cells) => {
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()))
            }
            Self::Float(cells) => {
                cells.iter().for_each(|cell| out.extend_from_slice(&cell.to_le_bytes()));
            }
        }
    }

    /// Reads `len` cells; `None` when they are cut off.
    fn take(&mut self, len: usize, input: &mut &[u8]) -> Option<()> {
        fn chunks<'a, const WIDTH: usize>(
            len: usize,
            input: &mut &'a [u8],
        ) -> Option<impl Iterator<Item = [u8; WIDTH]> + use<'a, WIDTH>> {
            let (bytes, rest) = input.split_at_checked(len.checked_mul(WIDTH)?)?;
            *input = rest;
            Some(bytes.as_chunks().0.iter().copied())
        }
        match self {
            Self::Narrow(cells) => cells.extend(chunks(len, input)?.map(i64::from_le_bytes)),
            Self::Wide(cells) => cells.extend(chunks(len, input)?.map(i128::from_le_bytes)),
            Self::Float(cells) => cells.extend(chunks(len, input)?.map(f64::from_le_bytes)),
        }
        Some(())
    }
}

fn zip<T: Copy>(cells: &mut [T], values: impl Iterator<Item = T>, op: impl Fn(T, T) -> T) {
    for (cell, value) in cells.iter_mut().zip(values) {
        *cell = op(*cell, value);
    }
}

fn limits(kind: FieldKind) -> (i128, i128) {
    match kind {
        FieldKind::I8 => (i8::MIN.into(), i8::MAX.into()),
        FieldKind::U8 => (0, u8::MAX.into()),
        FieldKind::I16 => (i16::MIN.into(), i16::MAX.into()),
        FieldKind::U16 => (0, u16::MAX.into()),
        FieldKind::I32 => (i32::MIN.into(), i32::MAX.into()),
        FieldKind::U32 => (0, u32::MAX.into()),
        FieldKind::I64 => (i64::MIN.into(), i64::MAX.into()),
        FieldKind::U64 => (0, u64::MAX.into()),
        FieldKind::F32 | FieldKind::F64 | FieldKind::Str => (0, 0),
    }
}
