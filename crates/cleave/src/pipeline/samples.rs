//! Where samples come from.

use cleave_ir::Tensor;
use cleave_quantize::BoxError;

/// Where samples come from: as many as [`Samples::len`] says, each with one tensor for each input.
pub trait Samples: Sync {
    /// How many.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The inputs of samples `from..to`, joined along the first dimension.
    ///
    /// # Errors
    /// A sample that cannot be read or does not fit.
    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError>;

    /// Looks for NaN and infinities in a batch that began with sample `from`.
    ///
    /// # Errors
    /// Where the first one is.
    fn check_finite(&self, from: usize, batch: &[Tensor]) -> std::result::Result<(), BoxError> {
        match batch.iter().any(|t| cleave_formats::data::first_not_finite(t).is_some()) {
            true => Err(format!("{}: an input is NaN or infinite", self.place(from)).into()),
            false => Ok(()),
        }
    }

    /// Where a sample comes from, for errors.
    fn place(&self, sample: usize) -> String {
        format!("sample {sample}")
    }
}

impl Samples for cleave_formats::Dataset {
    fn len(&self) -> usize {
        cleave_formats::Dataset::len(self)
    }

    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError> {
        Ok(cleave_formats::Dataset::batch(self, from..to)?)
    }

    fn check_finite(&self, from: usize, batch: &[Tensor]) -> std::result::Result<(), BoxError> {
        Ok(cleave_formats::Dataset::check_finite(self, from, batch)?)
    }

    fn place(&self, sample: usize) -> String {
        format!("{}, sample {sample}", self.file_of(sample).display())
    }
}

/// Samples in memory: one tensor for each input, samples along the first dimension.
impl Samples for [Tensor] {
    fn len(&self) -> usize {
        self.first().and_then(|t| t.shape().first().copied()).unwrap_or(0)
    }

    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError> {
        Ok(self.iter().map(|t| t.narrow(0, from, to - from)).collect())
    }
}

/// Samples in memory: for each one tensor for each input, samples along the first dimension, of one sample or more.
impl Samples for [Vec<Tensor>] {
    fn len(&self) -> usize {
        <[Vec<Tensor>]>::len(self)
    }

    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError> {
        let samples = &self[from..to];
        let inputs = samples.first().map_or(0, Vec::len);
        if samples.iter().any(|s| s.len() != inputs) {
            return Err(format!("samples {from} to {} differ in their number of inputs", to - 1).into());
        }
        let input = |i: usize| crate::backend::join(&samples.iter().map(|s| &s[i]).collect::<Vec<_>>());
        (0..inputs).map(|i| Ok(input(i)?)).collect()
    }
}
