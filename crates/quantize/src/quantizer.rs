//! Quantizers: what is to be quantized, and how.

use crate::annotate::Annotator;
use crate::error::{QuantizeError, Result};
use crate::file;
use crate::select::Selector;
use crate::spec::{ObserverKind, Scheme, Spec, SpecId};
use cleave_ir::{Class, Graph};
use cleave_rewrite::Pattern;
use indexmap::IndexMap;
use std::path::Path;

/// The quantizers that are part of the program, by name, with their files' text.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("arm", include_str!("../../../patterns/arm.toml")),
    ("cpu", include_str!("../../../patterns/cpu.toml")),
    ("dynamic", include_str!("../../../patterns/dynamic.toml")),
    ("fp16", include_str!("../../../patterns/fp16.toml")),
    ("onnx", include_str!("../../../patterns/onnx.toml")),
    ("openvino", include_str!("../../../patterns/openvino.toml")),
    ("x86", include_str!("../../../patterns/x86.toml")),
    ("xnnpack", include_str!("../../../patterns/xnnpack.toml")),
];

/// Decides what is quantized. [`TomlQuantizer`] does it by patterns; a quantizer in Rust may claim units itself.
///
/// This one quantizes the inputs of matrix products that are wide enough, and leaves the rest to the patterns of `cpu`:
///
/// ```
/// use cleave_ir::{Arg, Dim, text};
/// use cleave_quantize::{Annotator, Input, Quantizer, Result, Selection, Spec, TomlQuantizer, Unit, annotate};
/// use indexmap::IndexMap;
///
/// struct Wide(TomlQuantizer);
///
/// impl Quantizer for Wide {
///     fn name(&self) -> &str {
///         "wide"
///     }
///     fn divides(&self) -> bool {
///         self.0.divides()
///     }
///     fn specs(&self) -> &[Spec] {
///         self.0.specs()
///     }
///     fn annotate(&self, a: &mut Annotator<'_>) -> Result<()> {
///         let spec = |name: &str| self.specs().iter().position(|s| s.name == name).unwrap();
///         for (id, node) in a.graph().nodes() {
///             let [Arg::Node(x), Arg::Node(w), ..] = node.args.as_slice() else { continue };
///             let width = |n| a.graph().node(n).meta.as_tensor().map(|t| t.shape[1].clone());
///             let wide = width(*w).is_some_and(|d: Dim| d.as_const() >= Some(64));
///             if node.op().is_none_or(|o| o.base() != "linear") || !wide {
///                 continue;
///             }
///             let input = |capture: &str, slot, value, name| {
///                 Input { capture: capture.into(), user: id, slot, index: None, value, spec: spec(name) }
///             };
///             let unit = Unit {
///                 pattern: "wide_linear".into(),
///                 nodes: vec![id],
///                 root: id,
///                 compute: id,
///                 inputs: vec![input("x", 0, *x, "activation"), input("w", 1, *w, "weight")],
///                 captures: IndexMap::new(),
///                 output: None,
///                 share: vec![],
///                 follows: false,
///                 unread_float: false,
///             };
///             // A node that a selector keeps float, or that another unit has, is refused with the reason.
///             let _ = a.claim(unit, false);
///         }
///         self.0.annotate(a)
///     }
/// }
///
/// let g = text::parse(
///     "graph(%x: f32[2, 64]) {
///   %w = param \"w\": f32[8, 64]
///   %v = param \"v\": f32[3, 8]
///   %wide = aten.linear(%x, %w): f32[2, 8]
///   %narrow = aten.linear(%wide, %v): f32[2, 3]
///   return %narrow
/// }
/// ",
/// )
/// .unwrap();
/// let quantizer = Wide(TomlQuantizer::load("cpu").unwrap());
/// let a = annotate(&g, &quantizer, &Selection::default()).unwrap();
/// let found: Vec<_> = a.units.iter().map(|u| (u.pattern.as_str(), g.node(u.root).name.as_str())).collect();
/// assert_eq!(found, [("wide_linear", "wide"), ("linear_act", "narrow")]);
/// ```
pub trait Quantizer {
    /// Its name.
    fn name(&self) -> &str;

    /// Whether quantizing divides by the scale, as ONNX does, instead of multiplying by its reciprocal.
    fn divides(&self) -> bool;

    /// Whether a result that no quantized unit reads is left float, as a backend likes it whose kernels write
    /// either; else it is quantized and dequantized again.
    fn leaves_unread_float(&self) -> bool {
        false
    }

    /// Whether products with a gate (a sigmoid's results, repeated over the pixels) may be computed in fixed point where
    /// the model runs here: within a level of the exact product, and faster.
    fn fixes_gates(&self) -> bool {
        false
    }

    /// Whether biases are corrected for what rounding the weights does on average, if that helps: see
    /// [`crate::correct_biases`].
    fn corrects_biases(&self) -> bool {
        false
    }

    /// Whether neighbouring layers share out the ranges of the channels between them, if that helps: see
    /// [`crate::equalize`].
    fn equalizes(&self) -> bool {
        false
    }

    /// The specs that its units refer to.
    fn specs(&self) -> &[Spec];

    /// Whether it changes how values are stored and nothing else: what it takes is still computed in float, so that
    /// behind other quantizers it also takes what their patterns leave in float, and the arithmetic is theirs.
    fn only_casts(&self) -> bool {
        self.specs().iter().all(|s| s.scheme == Scheme::Cast)
    }

    /// Patterns whose nodes are to be left as they are by what prepares a graph for annotation: a factor behind a
    /// convolution is folded into its weight, unless a pattern names it.
    fn names(&self) -> Vec<&Pattern> {
        vec![]
    }

    /// Patterns that name dropout, which a graph at inference does without: where they match, it is left for them.
    fn inert(&self) -> Vec<&Pattern> {
        vec![]
    }

    /// Exceptions for selected nodes.
    fn overrides(&self) -> &[Override] {
        &[]
    }

    /// Claims units.
    ///
    /// # Errors
    /// What makes the graph impossible to annotate; an unmatched pattern is not an error.
    fn annotate(&self, a: &mut Annotator<'_>) -> Result<()>;
}

/// An exception for selected nodes: they stay float, or their unit has other specs.
#[derive(Clone, Debug)]
pub struct Override {
    /// Which nodes.
    pub selector: Selector,
    /// Whether they stay float.
    pub float: bool,
    /// Specs with those that take their place in the units of the nodes.
    pub replace: Vec<(SpecId, SpecId)>,
}

/// One pattern of a quantizer: what makes a unit, and how its edges are quantized.
#[derive(Debug)]
pub struct UnitPattern {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub doc: String,
    /// What it matches.
    pub pattern: Pattern,
    /// Captures with the specs that they are quantized by; others stay float.
    pub inputs: IndexMap<String, SpecId>,
    /// The spec of the result; none if its consumers' specs decide.
    pub output: Option<SpecId>,
    /// Captures, or `output`, that have one scale and zero point together.
    pub share: Vec<String>,
    /// Whether what is shared takes the spec of its producer, if that has one.
    pub inherits: bool,
    /// If set, what is matched stays float, and this is why.
    pub float: Option<String>,
    /// Whether the unit needs inputs that are results of quantized units.
    pub follows: bool,
    /// Whether its result stays float where no quantized unit reads it, whatever the quantizer does else.
    pub unread_float: bool,
    /// Patterns of a higher priority are tried before others; 0 if nothing is said.
    pub priority: i32,
    /// Whether it stands in a user's file.
    pub own: bool,
}

/// A quantizer read from a pattern file.
#[derive(Debug)]
pub struct TomlQuantizer {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) divides: bool,
    pub(crate) unread_float: bool,
    pub(crate) fixed_gates: bool,
    pub(crate) bias_correction: bool,
    pub(crate) equalization: bool,
    pub(crate) specs: Vec<Spec>,
    pub(crate) patterns: Vec<UnitPattern>,
    pub(crate) overrides: Vec<Override>,
    pub(crate) tests: Vec<PatternTest>,
}

/// What a quantizer's file says of a small graph: the units that its patterns find there.
#[derive(Clone, Debug)]
pub struct PatternTest {
    /// Its name.
    pub name: String,
    /// The graph; its constants have shapes and no values that matter.
    pub graph: Graph,
    /// All units in order, as `pattern: node node`.
    pub units: Vec<String>,
}

impl TomlQuantizer {
    /// A built-in quantizer by name, or one from a file whose name ends in `.toml`.
    ///
    /// # Errors
    /// No such quantizer, or a file that does not hold, with line and column.
    pub fn load(name: &str) -> Result<TomlQuantizer> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(n, _)| *n == name) {
            return file::read(text, &format!("patterns/{name}.toml"), &|base| built_in_or_file(base, None));
        }
        let path = Path::new(name);
        let unknown = |why: String| QuantizeError::UnknownQuantizer {
            name: name.into(),
            known: BUILT_IN.map(|(n, _)| n).join(", "),
            why,
        };
        if path.extension().is_none_or(|e| e != "toml") {
            return Err(unknown("its name has another ending".into()));
        }
        let text = std::fs::read_to_string(path).map_err(|e| unknown(e.to_string()))?;
        file::read(&text, name, &|base| built_in_or_file(base, path.parent()))
    }

    /// A quantizer from text; `file` is named in errors. It may extend a built-in one.
    ///
    /// # Errors
    /// What does not hold, with line and column.
    pub fn parse(text: &str, file: &str) -> Result<TomlQuantizer> {
        file::read(text, file, &|base| built_in_or_file(base, None))
    }

    /// What it is for.
    pub fn doc(&self) -> &str {
        &self.doc
    }

    /// The tests in its file.
    pub fn tests(&self) -> &[PatternTest] {
        &self.tests
    }

    /// Puts another observer in place of those of all specs with one scale, activations that is.
    ///
    /// # Errors
    /// A quantizer that observes nothing.
    pub fn set_observer(&mut self, kind: ObserverKind) -> Result<()> {
        let mut observed = self.specs.iter_mut().filter(|s| s.observed()).peekable();
        if observed.peek().is_none() {
            return Err(QuantizeError::NothingObserved(self.name.clone()));
        }
        observed.for_each(|s| s.observer = kind);
        Ok(())
    }

    /// Its patterns, in order.
    pub fn patterns(&self) -> &[UnitPattern] {
        &self.patterns
    }
}

/// The text of the quantizer that another extends, and what it is called in errors. Files stay in their folder.
fn built_in_or_file(base: &str, folder: Option<&Path>) -> std::result::Result<(String, String), String> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(n, _)| *n == base) {
        return Ok((format!("patterns/{name}.toml"), (*text).to_string()));
    }
    let plain = !base.contains(['/', '\\']) && base.ends_with(".toml");
    match folder {
        Some(f) if plain => {
            let path = f.join(base);
            let text = std::fs::read_to_string(&path).map_err(|e| format!("cannot read '{base}': {e}"))?;
            Ok((path.display().to_string(), text))
        }
        _ => Err(format!("no quantizer '{base}': built in are {}", BUILT_IN.map(|(n, _)| n).join(", "))),
    }
}

impl Quantizer for TomlQuantizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn divides(&self) -> bool {
        self.divides
    }

    fn leaves_unread_float(&self) -> bool {
        self.unread_float
    }

    fn fixes_gates(&self) -> bool {
        self.fixed_gates
    }

    fn corrects_biases(&self) -> bool {
        self.bias_correction
    }

    fn equalizes(&self) -> bool {
        self.equalization
    }

    fn specs(&self) -> &[Spec] {
        &self.specs
    }

    fn names(&self) -> Vec<&Pattern> {
        self.patterns.iter().filter(|p| p.own).map(|p| &p.pattern).collect()
    }

    fn inert(&self) -> Vec<&Pattern> {
        let inert = |p: &Pattern| p.labels().any(|l| p.ops(l).iter().any(|o| o.class == Class::Inert));
        self.patterns.iter().map(|p| &p.pattern).filter(|p| inert(p)).collect()
    }

    fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    fn annotate(&self, a: &mut Annotator<'_>) -> Result<()> {
        for pattern in &self.patterns {
            a.apply(pattern);
        }
        Ok(())
    }
}
