//! `concat`: scalars and arrays to arrays, in child order.
use super::{NOTHING, bad, check_gathered, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{Field, FieldKind, FieldShape, FieldType, Fields, Format};
use sheaf_core::varint;

pub(super) fn register(registry: &mut Registry) {
    registry.register("concat", |params| {
        if params.is_empty() {
            Ok(Box::new(Concat))
        } else {
            Err(invalid("concat takes no parameters"))
        }
    });
}

struct Concat;

impl Filter for Concat {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::<Arrays>::default()
    }

    fn in_child_order(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Arrays {
    columns: Vec<ConcatColumn>,
    /// Bytes in all columns.
    bytes: usize,
}

struct ConcatColumn {
    kind: FieldKind,
    shape: FieldShape,
    count: usize,
    /// The elements as packets hold them.
    elements: Vec<u8>,
}

impl Arrays {
    fn start(fields: &[Field<'_>]) -> Result<Vec<ConcatColumn>, FilterError> {
        let column = |field: &Field<'_>| ConcatColumn {
            kind: field.kind(),
            shape: array_of(field),
            count: 0,
            elements: Vec::new(),
        };
        let columns: Vec<ConcatColumn> = fields.iter().map(column).collect();
        // The format of the result is longer than that of a contribution; it must still fit.
        Format::new(columns.iter().map(ConcatColumn::field_type).collect())?;
        Ok(columns)
    }

    fn check(&self, fields: &[Field<'_>]) -> Result<(), FilterError> {
        let kinds = self.columns.iter().map(|column| column.kind);
        if !kinds.clone().eq(fields.iter().map(Field::kind)) {
            let text = |kinds: &mut dyn Iterator<Item = FieldKind>| {
                kinds.map(|kind| format!("%{}", kind.name())).collect::<Vec<_>>().join(" ")
            };
            let (have, got) = (text(&mut kinds.clone()), text(&mut fields.iter().map(Field::kind)));
            return Err(bad(format!("concat of {have:?} cannot take a packet of {got:?}")));
        }
        Ok(())
    }
}

fn array_of(field: &Field<'_>) -> FieldShape {
    match field.field_type().shape {
        FieldShape::LargeArray => FieldShape::LargeArray,
        FieldShape::Scalar | FieldShape::Array => FieldShape::Array,
    }
}

impl ConcatColumn {
    fn field_type(&self) -> FieldType {
        FieldType { kind: self.kind, shape: self.shape }
    }

    fn append(&mut self, field: &Field<'_>) {
        self.shape = self.shape.max(array_of(field));
        self.count += field.count();
        if field.field_type() == FieldType::scalar(FieldKind::Str) {
            varint::put_bytes(&mut self.elements, field.bytes());
        } else {
            self.elements.extend_from_slice(field.bytes());
        }
    }
}

impl Accumulator for Arrays {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        let fields = Fields::new(input.payload)?.collect::<Result<Vec<_>, _>>()?;
        check_gathered(self.bytes, input.payload.len())?;
        if self.columns.is_empty() {
            self.columns = Self::start(&fields)?;
        } else {
            self.check(&fields)?;
        }
        for (column, field) in self.columns.iter_mut().zip(&fields) {
            column.append(field);
        }
        self.bytes += input.payload.len();
        Ok(())
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        self.bytes = 0;
        let columns = std::mem::take(&mut self.columns);
        Format::new(columns.iter().map(ConcatColumn::field_type).collect())?.encode(out);
        for column in columns {
            varint::put(out, column.count as u64);
            out.extend_from_slice(&column.elements);
        }
        Ok(())
    }
}
