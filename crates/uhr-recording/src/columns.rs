//! Tables as parallel columns: one definition gives the row, the columns in memory, the Arrow schema and the
//! documentation.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, StringArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Schema};

/// A type that a column can hold.
pub trait Column: Sized {
    /// The stored type.
    const TYPE: DataType;
    /// Whether values may be missing.
    const NULLABLE: bool;
    /// Hands the values over to Arrow.
    fn into_array(values: Vec<Self>) -> ArrayRef;
    /// Appends the values of a stored array; false if it has another type, or misses values that it must not.
    fn extend(values: &mut Vec<Self>, array: &dyn Array) -> bool;
}

macro_rules! primitive_column {
    ($native:ty, $arrow:ident, $array:ident, $type:ident) => {
        impl Column for $native {
            const TYPE: DataType = DataType::$type;
            const NULLABLE: bool = false;
            fn into_array(values: Vec<Self>) -> ArrayRef {
                Arc::new($array::from(values))
            }
            fn extend(values: &mut Vec<Self>, array: &dyn Array) -> bool {
                let Some(array) = array.as_primitive_opt::<$arrow>() else { return false };
                values.extend_from_slice(array.values());
                array.null_count() == 0
            }
        }
        impl Column for Option<$native> {
            const TYPE: DataType = DataType::$type;
            const NULLABLE: bool = true;
            fn into_array(values: Vec<Self>) -> ArrayRef {
                Arc::new($array::from(values))
            }
            fn extend(values: &mut Vec<Self>, array: &dyn Array) -> bool {
                let Some(array) = array.as_primitive_opt::<$arrow>() else { return false };
                values.extend(array.iter());
                true
            }
        }
    };
}
primitive_column!(u8, UInt8Type, UInt8Array, UInt8);
primitive_column!(u16, UInt16Type, UInt16Array, UInt16);
primitive_column!(u32, UInt32Type, UInt32Array, UInt32);
primitive_column!(u64, UInt64Type, UInt64Array, UInt64);

impl Column for bool {
    const TYPE: DataType = DataType::Boolean;
    const NULLABLE: bool = false;
    fn into_array(values: Vec<Self>) -> ArrayRef {
        Arc::new(BooleanArray::from(values))
    }
    fn extend(values: &mut Vec<Self>, array: &dyn Array) -> bool {
        let Some(array) = array.as_boolean_opt() else { return false };
        values.extend(array.values());
        array.null_count() == 0
    }
}

impl Column for String {
    const TYPE: DataType = DataType::Utf8;
    const NULLABLE: bool = false;
    fn into_array(values: Vec<Self>) -> ArrayRef {
        Arc::new(StringArray::from(values))
    }
    fn extend(values: &mut Vec<Self>, array: &dyn Array) -> bool {
        let Some(array) = array.as_string_opt::<i32>() else { return false };
        values.extend(array.iter().map(|value| value.unwrap_or_default().to_owned()));
        array.null_count() == 0
    }
}

impl Column for Option<String> {
    const TYPE: DataType = DataType::Utf8;
    const NULLABLE: bool = true;
    fn into_array(values: Vec<Self>) -> ArrayRef {
        Arc::new(StringArray::from(values))
    }
    fn extend(values: &mut Vec<Self>, array: &dyn Array) -> bool {
        let Some(array) = array.as_string_opt::<i32>() else { return false };
        values.extend(array.iter().map(|value| value.map(str::to_owned)));
        true
    }
}

impl Column for Vec<u8> {
    const TYPE: DataType = DataType::Binary;
    const NULLABLE: bool = false;
    fn into_array(values: Vec<Self>) -> ArrayRef {
        Arc::new(BinaryArray::from_iter_values(values))
    }
    fn extend(values: &mut Vec<Self>, array: &dyn Array) -> bool {
        let Some(array) = array.as_binary_opt::<i32>() else { return false };
        values.extend(array.iter().map(|value| value.unwrap_or_default().to_vec()));
        array.null_count() == 0
    }
}

/// What one column is, for `docs/format.md`.
#[derive(Clone, Debug)]
pub struct ColumnDoc {
    /// Its name.
    pub name: &'static str,
    /// Its stored type, with `?` where values may be missing.
    pub kind: String,
    /// What it says.
    pub text: String,
}

/// A table of the recording, in memory as parallel columns.
pub trait Table: Default + Send {
    /// The name of its file, without ending.
    const NAME: &'static str;
    /// One row.
    type Row;
    /// Its Arrow schema.
    fn schema() -> Arc<Schema>;
    /// What each column says.
    fn docs() -> Vec<ColumnDoc>;
    /// What the table says.
    fn about() -> String;
    /// The number of rows.
    fn len(&self) -> usize;
    /// Whether it has no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether every column has so many values: a stored table may lack one.
    fn is_whole(&self, rows: usize) -> bool;
    /// Appends a row.
    fn push(&mut self, row: Self::Row);
    /// The row at `index`; panics past the end, as indexing does.
    fn row(&self, index: usize) -> Self::Row;
    /// Hands the columns over to Arrow.
    fn into_batch(self) -> Result<RecordBatch, arrow_schema::ArrowError>;
    /// Appends the rows of a batch. Columns that the batch lacks (it was read by projection, or written by an older
    /// version) stay empty. `Err` names a column of the wrong type.
    fn extend(&mut self, batch: &RecordBatch) -> Result<(), &'static str>;
}

/// Defines a table: the columns in memory (`$Table`), one row (`$Row`), and [`Table`] between them.
macro_rules! table {
    ($(#[doc = $about:literal])* $Table:ident, $Row:ident, $file:literal {
        $($(#[doc = $doc:literal])* $column:ident: $kind:ty,)*
    }) => {
        $(#[doc = $about])*
        #[derive(Debug, Default, Clone)]
        pub struct $Table { $($(#[doc = $doc])* pub $column: Vec<$kind>,)* }

        #[doc = concat!("One row of [`", stringify!($Table), "`].")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct $Row { $($(#[doc = $doc])* pub $column: $kind,)* }

        impl $crate::Table for $Table {
            const NAME: &'static str = $file;
            type Row = $Row;

            fn schema() -> std::sync::Arc<arrow_schema::Schema> {
                std::sync::Arc::new(arrow_schema::Schema::new(vec![$(arrow_schema::Field::new(
                    stringify!($column),
                    <$kind as $crate::Column>::TYPE,
                    <$kind as $crate::Column>::NULLABLE,
                ),)*]))
            }
            fn docs() -> Vec<$crate::ColumnDoc> {
                vec![$($crate::ColumnDoc {
                    name: stringify!($column),
                    kind: $crate::columns::kind_in_words::<$kind>(),
                    text: concat!($($doc,)*).trim().to_owned(),
                },)*]
            }
            fn about() -> String {
                concat!($($about,)*).trim().to_owned()
            }
            fn len(&self) -> usize {
                [$(self.$column.len(),)*].into_iter().max().unwrap_or(0)
            }
            fn is_whole(&self, rows: usize) -> bool {
                [$(self.$column.len(),)*].into_iter().all(|values| values == rows)
            }
            fn push(&mut self, row: $Row) {
                $(self.$column.push(row.$column);)*
            }
            fn row(&self, index: usize) -> $Row {
                $Row { $($column: self.$column[index].clone(),)* }
            }
            fn into_batch(self) -> Result<arrow_array::RecordBatch, arrow_schema::ArrowError> {
                arrow_array::RecordBatch::try_new(
                    Self::schema(),
                    vec![$(<$kind as $crate::Column>::into_array(self.$column),)*],
                )
            }
            fn extend(&mut self, batch: &arrow_array::RecordBatch) -> Result<(), &'static str> {
                $(if let Some(array) = batch.column_by_name(stringify!($column))
                    && !<$kind as $crate::Column>::extend(&mut self.$column, array.as_ref())
                {
                    return Err(stringify!($column));
                })*
                Ok(())
            }
        }
    };
}
pub(crate) use table;

pub(crate) fn kind_in_words<C: Column>() -> String {
    let name = match C::TYPE {
        DataType::Boolean => "bool",
        DataType::UInt8 => "u8",
        DataType::UInt16 => "u16",
        DataType::UInt32 => "u32",
        DataType::UInt64 => "u64",
        DataType::Binary => "bytes",
        _ => "text",
    };
    if C::NULLABLE { format!("{name}?") } else { name.to_owned() }
}
