//! What calibration learns of a model.

use crate::error::Result;
use cleave_quantize::{QuantizeError, Statistics};
use serde::{Deserialize, Serialize};

/// What calibration learns of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learnt {
    /// Of the prepared graph.
    pub statistics: Statistics,
    /// On the same samples, of that in which layers are equalized, if any are.
    pub equalized: Option<Equalized>,
}

/// Statistics of the graph that [`cleave_quantize::equalize`] made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Equalized {
    /// Its pairs of layers; by these statistics know their graph.
    pub pairs: Vec<String>,
    /// What was learnt.
    pub statistics: Statistics,
}

impl From<Statistics> for Learnt {
    /// Of a graph in which nothing is equalized.
    fn from(statistics: Statistics) -> Learnt {
        Learnt { statistics, equalized: None }
    }
}

impl Learnt {
    /// Adds what other samples taught.
    ///
    /// # Errors
    /// Another graph, and observers that depend on the order of the data.
    pub fn merge(&mut self, other: &Learnt) -> Result<()> {
        self.statistics.merge(&other.statistics)?;
        match (&mut self.equalized, &other.equalized) {
            (Some(a), Some(b)) if a.pairs == b.pairs => Ok(a.statistics.merge(&b.statistics)?),
            (None, None) => Ok(()),
            _ => {
                let why = "other layers are equalized: the graph or its selection differs";
                Err(QuantizeError::Statistics(why.into()).into())
            }
        }
    }

    /// Whether this is what calibration can lead to: for what comes from a file.
    pub fn is_valid(&self) -> bool {
        self.statistics.is_valid() && self.equalized.as_ref().is_none_or(|e| e.statistics.is_valid())
    }
}
