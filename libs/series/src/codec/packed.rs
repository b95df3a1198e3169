//! The small codec: steps, times and values as three columns through `pco`, each preceded by its length.

use super::{
    CodecError,
    bits::{read_varint, write_varint},
};
use crate::Point;
use pco::{
    ChunkConfig,
    data_types::Number,
    standalone::{simple_compress, simple_decompress_into},
};

/// The body, or nothing where `pco` cannot take the points.
pub(super) fn encode(points: &[Point]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(points.len() * 4);
    write_column(&mut out, &points.iter().map(|point| point.step).collect::<Vec<_>>())?;
    write_column(&mut out, &points.iter().map(|point| point.time_ms).collect::<Vec<_>>())?;
    write_column(&mut out, &points.iter().map(|point| point.value).collect::<Vec<_>>())?;
    Some(out)
}

fn write_column<T: Number>(out: &mut Vec<u8>, numbers: &[T]) -> Option<()> {
    let column = simple_compress(numbers, &ChunkConfig::default()).ok()?;
    write_varint(out, column.len() as u64);
    out.extend_from_slice(&column);
    Some(())
}

pub(super) fn decode(body: &[u8], count: usize) -> Result<Vec<Point>, CodecError> {
    let mut rest = body;
    let steps = read_column::<i64>(&mut rest, count)?;
    let times = read_column::<i64>(&mut rest, count)?;
    let values = read_column::<f64>(&mut rest, count)?;
    if !rest.is_empty() {
        return Err(CodecError::Malformed);
    }
    let columns = steps.into_iter().zip(times).zip(values);
    Ok(columns.map(|((step, time_ms), value)| Point { step, time_ms, value }).collect())
}

fn read_column<T: Number + Default>(rest: &mut &[u8], count: usize) -> Result<Vec<T>, CodecError> {
    let length = usize::try_from(read_varint(rest)?).ok().filter(|length| *length <= rest.len()).ok_or(CodecError::CutOff)?;
    let (column, after) = rest.split_at(length);
    *rest = after;
    let mut numbers = vec![T::default(); count];
    let progress = simple_decompress_into(column, &mut numbers).map_err(|_| CodecError::Malformed)?;
    if progress.n_processed == count && progress.finished { Ok(numbers) } else { Err(CodecError::Malformed) }
}
