//! Several quantizers in a row: each takes what those before it left.

use crate::annotate::Annotator;
use crate::error::{QuantizeError, Result};
use crate::quantizer::{Override, Quantizer, TomlQuantizer};
use crate::spec::{ObserverKind, Spec};
use cleave_rewrite::Pattern;

/// Quantizers in order. Units are named `quantizer:pattern`; where a later one would have taken what an earlier one
/// took, the plan has a note.
pub struct Composed {
    name: String,
    parts: Vec<Box<dyn Quantizer>>,
    specs: Vec<Spec>,
    overrides: Vec<Override>,
}

impl Composed {
    /// Puts quantizers together.
    ///
    /// # Errors
    /// None at all, one twice, or two that quantize by different arithmetic: a graph has one.
    pub fn new(parts: Vec<Box<dyn Quantizer>>) -> Result<Composed> {
        let fail = |why: String| Err(QuantizeError::Compose(why));
        let Some(first) = deciding(&parts).next() else { return fail("there is no quantizer".into()) };
        let how = |q: &dyn Quantizer| if q.divides() { "divides by the scale" } else { "multiplies by its reciprocal" };
        for (i, p) in parts.iter().enumerate() {
            if p.divides() != first.divides() && deciding(&parts).any(|d| d.name() == p.name()) {
                let (a, b) = (how(first), how(p.as_ref()));
                return fail(format!(
                    "'{}' {a} and '{}' {b}: one graph has one arithmetic; set arithmetic in a file that extends one",
                    first.name(),
                    p.name()
                ));
            }
            if parts[..i].iter().any(|o| o.name() == p.name()) {
                return fail(format!("'{}' stands twice", p.name()));
            }
        }
        let (mut specs, mut overrides) = (vec![], vec![]);
        for p in &parts {
            let at = specs.len();
            specs.extend(p.specs().iter().cloned());
            overrides.extend(p.overrides().iter().cloned().map(|o| {
                let replace = o.replace.iter().map(|(a, b)| (a + at, b + at)).collect();
                Override { replace, ..o }
            }));
        }
        let name = parts.iter().map(|p| p.name()).collect::<Vec<_>>().join("+");
        Ok(Composed { name, parts, specs, overrides })
    }
}

/// The quantizers that decide on arithmetic: those with integers, if there are any.
fn deciding(parts: &[Box<dyn Quantizer>]) -> impl Iterator<Item = &dyn Quantizer> {
    let casts = parts.iter().all(|p| p.only_casts());
    parts.iter().map(AsRef::as_ref).filter(move |p| casts || !p.only_casts())
}

impl Quantizer for Composed {
    fn name(&self) -> &str {
        &self.name
    }

    fn divides(&self) -> bool {
        deciding(&self.parts).all(|p| p.divides())
    }

    fn leaves_unread_float(&self) -> bool {
        deciding(&self.parts).all(|p| p.leaves_unread_float())
    }

    fn fixes_gates(&self) -> bool {
        deciding(&self.parts).all(|p| p.fixes_gates())
    }

    fn corrects_biases(&self) -> bool {
        deciding(&self.parts).all(|p| p.corrects_biases())
    }

    fn equalizes(&self) -> bool {
        deciding(&self.parts).all(|p| p.equalizes())
    }

    fn specs(&self) -> &[Spec] {
        &self.specs
    }

    fn names(&self) -> Vec<&Pattern> {
        self.parts.iter().flat_map(|p| p.names()).collect()
    }

    fn inert(&self) -> Vec<&Pattern> {
        self.parts.iter().flat_map(|p| p.inert()).collect()
    }

    fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    fn annotate(&self, a: &mut Annotator<'_>) -> Result<()> {
        let mut at = 0;
        for p in &self.parts {
            a.within(p.as_ref(), at)?;
            at += p.specs().len();
        }
        Ok(())
    }
}

/// Quantizers by name or file, separated by commas; several are composed in this order.
///
/// # Errors
/// One that cannot be loaded, or that does not go with the others.
pub fn load(names: &str) -> Result<Box<dyn Quantizer>> {
    load_observing(names, None)
}

/// [`load`] with another observer in place of those of all activations.
///
/// # Errors
/// As [`load`], and a quantizer that observes nothing.
pub fn load_observing(names: &str, observer: Option<ObserverKind>) -> Result<Box<dyn Quantizer>> {
    let mut all = names.split(',').map(|n| TomlQuantizer::load(n.trim())).collect::<Result<Vec<_>>>()?;
    if let Some(kind) = observer {
        // Behind a quantizer that observes, one that has nothing to observe is no mistake.
        let casts = all.iter().all(|q| q.only_casts());
        all.iter_mut().filter(|q| casts || !q.only_casts()).try_for_each(|q| q.set_observer(kind))?;
    }
    if all.len() == 1 {
        return Ok(Box::new(all.remove(0)));
    }
    Ok(Box::new(Composed::new(all.into_iter().map(|q| Box::new(q) as Box<dyn Quantizer>).collect())?))
}
