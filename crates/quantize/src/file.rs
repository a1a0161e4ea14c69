//! Reading quantizer files. Every name is resolved here; errors have file, line and column.

use crate::error::{QuantizeError, Result};
use crate::quantizer::{BUILT_IN, Override, PatternTest, TomlQuantizer, UnitPattern};
use crate::select::Selector;
use crate::spec::{self, LEAST_SCALE, ObserverKind, Scheme, Spec, SpecId};
use cleave_numerics::{DType, QRange, QScheme};
use cleave_rewrite::{Alternatives, Pattern};
use indexmap::IndexMap;
use serde::Deserialize;
use toml::Spanned;

type Names = IndexMap<String, Vec<Spanned<String>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    quantizer: Head,
    #[serde(default)]
    any: Names,
    #[serde(default)]
    spec: IndexMap<String, Spanned<SpecEntry>>,
    #[serde(default)]
    pattern: Vec<PatternEntry>,
    #[serde(default, rename = "override")]
    overrides: Vec<OverrideEntry>,
    #[serde(default)]
    test: Vec<TestEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestEntry {
    name: String,
    graph: Spanned<String>,
    units: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    name: String,
    #[serde(default)]
    doc: String,
    extends: Option<Spanned<String>>,
    arithmetic: Option<Arithmetic>,
    unread: Option<Unread>,
    gates: Option<Gates>,
    bias_correction: Option<bool>,
    equalization: Option<bool>,
}

/// How products with a gate are computed.
#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Gates {
    Fixed,
    Exact,
}

/// What becomes of results that no quantized unit reads.
#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Unread {
    Float,
    Quantized,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Arithmetic {
    Divide,
    Reciprocal,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Eps {
    Number(f64),
    Name(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecEntry {
    dtype: Spanned<String>,
    range: Option<Spanned<[i64; 2]>>,
    scheme: Option<Spanned<String>>,
    observer: Option<Spanned<String>>,
    eps: Option<Spanned<Eps>>,
    scale: Option<f64>,
    zero_point: Option<i32>,
    from: Option<[String; 2]>,
    #[serde(default)]
    as_float: bool,
    group_size: Option<usize>,
    #[serde(default)]
    dynamic: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatternEntry {
    name: Spanned<String>,
    #[serde(default)]
    doc: String,
    #[serde(rename = "match")]
    expression: Spanned<String>,
    #[serde(default)]
    any: Names,
    #[serde(default, rename = "where")]
    conditions: Vec<Spanned<String>>,
    #[serde(default)]
    inputs: IndexMap<String, Spanned<String>>,
    output: Option<Spanned<String>>,
    #[serde(default)]
    share: Vec<Spanned<String>>,
    float: Option<String>,
    #[serde(default)]
    follows: bool,
    unread: Option<Unread>,
    #[serde(default)]
    priority: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideEntry {
    select: Spanned<String>,
    #[serde(default)]
    float: bool,
    #[serde(default)]
    replace: IndexMap<String, Spanned<String>>,
}

/// Finds the quantizer that another extends: its name in errors, and its text.
type Base<'a> = dyn Fn(&str) -> std::result::Result<(String, String), String> + 'a;

/// Where a text stands, for errors.
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    /// Whether it is a file of this program's.
    fn built_in(&self) -> bool {
        BUILT_IN.iter().any(|(_, text)| *text == self.text)
    }

    fn error(&self, offset: usize, why: impl Into<String>) -> QuantizeError {
        let before = self.text.get(..offset.min(self.text.len())).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        QuantizeError::File { file: self.file.into(), line, column, why: why.into() }
    }

    /// An error inside a quoted text: behind its opening quote.
    fn inside<T>(&self, s: &Spanned<T>, offset: usize, why: impl Into<String>) -> QuantizeError {
        let quotes = if self.text.get(s.span()).is_some_and(|t| t.starts_with("\"\"\"") || t.starts_with("'''")) {
            3
        } else {
            1
        };
        self.error(s.span().start + quotes + offset, why)
    }
}

/// Reads a quantizer; `base` gives name and text of the one that it extends.
pub(crate) fn read(text: &str, file: &str, base: &Base<'_>) -> Result<TomlQuantizer> {
    read_at(text, file, base, 0)
}

fn read_at(text: &str, file: &str, base: &Base<'_>, depth: usize) -> Result<TomlQuantizer> {
    let at = Place { file, text };
    let raw: File =
        toml::from_str(text).map_err(|e| at.error(e.span().map_or(0, |s| s.start), e.message().trim_end()))?;
    let parent = match &raw.quantizer.extends {
        Some(e) if depth >= 8 => return Err(at.error(e.span().start, "extends leads back to itself")),
        Some(e) => {
            let (name, text) = base(e.get_ref()).map_err(|why| at.error(e.span().start, why))?;
            Some(read_at(&text, &name, base, depth + 1)?)
        }
        None => None,
    };
    let mut q = TomlQuantizer {
        name: raw.quantizer.name,
        doc: raw.quantizer.doc,
        divides: raw.quantizer.arithmetic == Some(Arithmetic::Divide),
        unread_float: raw.quantizer.unread == Some(Unread::Float),
        fixed_gates: raw.quantizer.gates == Some(Gates::Fixed),
        bias_correction: raw.quantizer.bias_correction == Some(true),
        equalization: raw.quantizer.equalization == Some(true),
        specs: vec![],
        patterns: vec![],
        overrides: vec![],
        tests: vec![],
    };
    let mut inherited = vec![];
    if let Some(p) = parent {
        q.divides = raw.quantizer.arithmetic.map_or(p.divides, |a| a == Arithmetic::Divide);
        q.unread_float = raw.quantizer.unread.map_or(p.unread_float, |u| u == Unread::Float);
        q.fixed_gates = raw.quantizer.gates.map_or(p.fixed_gates, |g| g == Gates::Fixed);
        q.bias_correction = raw.quantizer.bias_correction.unwrap_or(p.bias_correction);
        q.equalization = raw.quantizer.equalization.unwrap_or(p.equalization);
        q.specs = p.specs;
        q.overrides = p.overrides;
        inherited = p.patterns;
    }
    for (name, entry) in &raw.spec {
        let spec = resolve_spec(&at, name, entry)?;
        match q.specs.iter_mut().find(|s| s.name == *name) {
            Some(old) => *old = spec,
            None => q.specs.push(spec),
        }
    }
    for entry in &raw.pattern {
        let p = resolve_pattern(&at, &q.specs, &raw.any, entry)?;
        if q.patterns.iter().any(|o: &UnitPattern| o.name == p.name) {
            return Err(at.error(entry.name.span().start, format!("a pattern '{}' stands above", p.name)));
        }
        q.patterns.push(p);
    }
    for entry in &raw.overrides {
        q.overrides.push(resolve_override(&at, &q.specs, entry)?);
    }
    for t in raw.test {
        let graph = cleave_ir::text::parse(t.graph.get_ref())
            .map_err(|e| at.error(t.graph.span().start, format!("test '{}': {e}", t.name)))?;
        q.tests.push(PatternTest { name: t.name, graph, units: t.units });
    }
    // A pattern of the same name takes the place of the inherited one, but is tried with the file's own.
    inherited.retain(|p| q.patterns.iter().all(|o| o.name != p.name));
    q.patterns.extend(inherited);
    // Stable: of one priority, in the order of the file.
    q.patterns.sort_by_key(|p| std::cmp::Reverse(p.priority));
    Ok(q)
}

fn resolve_spec(at: &Place<'_>, name: &str, entry: &Spanned<SpecEntry>) -> Result<Spec> {
    let e = entry.get_ref();
    let here = |why: &str| at.error(entry.span().start, format!("spec '{name}': {why}"));
    let whole = spec::dtype_code(e.dtype.get_ref()).ok_or_else(|| {
        let why = format!("'{}': expected u8, s8, u16, s16, s32, s4, u4, f16 or bf16", e.dtype.get_ref());
        at.error(e.dtype.span().start, why)
    })?;
    if whole.dtype.is_float() {
        return cast(name, whole, e).map_err(here);
    }
    let range = match &e.range {
        None => whole,
        Some(r) => {
            let [a, b] = *r.get_ref();
            let fits = |v: i64| i32::try_from(v).ok().filter(|v| (whole.min..=whole.max).contains(v));
            let (min, max) = fits(a).zip(fits(b)).filter(|(a, b)| a < b).ok_or_else(|| {
                at.error(r.span().start, format!("expected a range within [{}, {}]", whole.min, whole.max))
            })?;
            QRange { min, max, ..whole }
        }
    };
    let scheme = match resolve_scheme(at, e, range, &here)? {
        s if !e.dynamic => s,
        s => dynamic(&s, e, range).map_err(here)?,
    };
    let fixed_or_derived = (matches!(scheme, Scheme::Fixed { .. }), matches!(scheme, Scheme::Derived { .. }));
    let grouped = matches!(scheme, Scheme::PerGroupSymmetric(_) | Scheme::PerGroupAffine(_));
    let used = (fixed_or_derived.0, fixed_or_derived.1, !fixed_or_derived.0 && !fixed_or_derived.1);
    if (!used.0 && (e.scale.is_some() || e.zero_point.is_some()))
        || (!used.1 && (e.from.is_some() || e.as_float))
        || (!used.2 && (e.observer.is_some() || e.eps.is_some()))
        || (!grouped && e.group_size.is_some())
    {
        return Err(here("a key that its scheme does not use"));
    }
    let observer = match &e.observer {
        Some(o) => ObserverKind::parse(o.get_ref()).map_err(|why| at.error(o.span().start, why))?,
        None => ObserverKind::Minmax,
    };
    Ok(Spec { name: name.into(), range, scheme, observer, eps: resolve_eps(at, e)? })
}

fn resolve_scheme(
    at: &Place<'_>,
    e: &SpecEntry,
    range: QRange,
    here: &dyn Fn(&str) -> QuantizeError,
) -> Result<Scheme> {
    let Some(named) = &e.scheme else { return Err(here("integers need a scheme")) };
    Ok(match named.get_ref().as_str() {
        "per_tensor_affine" => Scheme::Affine,
        "per_tensor_symmetric" => Scheme::Symmetric,
        // Their zero point is 0, which unsigned integers have at their end.
        "per_channel_symmetric" | "per_group_symmetric" if range.min >= 0 => {
            return Err(here("weights are symmetric around 0: expected s4, s8 or s16"));
        }
        "per_channel_symmetric" => Scheme::PerChannelSymmetric,
        "per_channel_affine" | "per_group_affine" if range.dtype == DType::I32 => {
            return Err(here("weights are integers of 4, 8 or 16 bits"));
        }
        "per_channel_affine" => Scheme::PerChannelAffine,
        kind @ ("per_group_symmetric" | "per_group_affine") => match e.group_size {
            Some(n) if n > 0 && kind == "per_group_affine" => Scheme::PerGroupAffine(n),
            Some(n) if n > 0 => Scheme::PerGroupSymmetric(n),
            _ => return Err(here(&format!("{kind} needs group_size, 1 or more"))),
        },
        "fixed" => {
            let (Some(scale), Some(zero_point)) = (e.scale, e.zero_point) else {
                return Err(here("fixed needs scale and zero_point"));
            };
            if !(scale > 0.0 && scale.is_finite() && (range.min..=range.max).contains(&zero_point)) {
                return Err(here("scale must be positive, zero_point within the range"));
            }
            Scheme::Fixed { scale: scale as f32, zero_point }
        }
        "derived" if range.dtype != DType::I32 => return Err(here("derived needs dtype s32")),
        "derived" => {
            let from = e.from.clone().ok_or_else(|| here("derived needs from = [capture, capture]"))?;
            Scheme::Derived { from, as_float: e.as_float }
        }
        other => {
            let known = "per_tensor_affine, per_tensor_symmetric, per_channel_affine, per_channel_symmetric, \
                         per_group_affine, per_group_symmetric, fixed or derived";
            return Err(at.error(named.span().start, format!("'{other}': expected {known}")));
        }
    })
}

/// A spec of a floating-point type: values are cast to it.
fn cast(name: &str, range: QRange, e: &SpecEntry) -> std::result::Result<Spec, &'static str> {
    let numbers = e.scale.is_some() || e.zero_point.is_some() || e.group_size.is_some() || e.from.is_some();
    let ranges = e.scheme.is_some() || e.range.is_some() || e.observer.is_some() || e.eps.is_some();
    if numbers || ranges || e.dynamic {
        return Err("f16 and bf16 are casts: they have a dtype and no scheme, range, observer, scale or zero point");
    }
    let observer = ObserverKind::Minmax;
    Ok(Spec { name: name.into(), range, scheme: Scheme::Cast, observer, eps: LEAST_SCALE })
}

/// A scheme whose numbers are computed as the model runs.
fn dynamic(scheme: &Scheme, e: &SpecEntry, range: QRange) -> std::result::Result<Scheme, &'static str> {
    if e.observer.is_some() {
        return Err("a dynamic spec observes nothing: its scale is computed as the model runs");
    }
    if !matches!(range.dtype, DType::U8 | DType::I8) {
        return Err("a dynamic spec is u8 or s8");
    }
    match scheme {
        Scheme::Affine => Ok(Scheme::Dynamic(QScheme::Affine)),
        Scheme::Symmetric => Ok(Scheme::Dynamic(QScheme::Symmetric)),
        _ => Err("a dynamic spec is per_tensor_affine or per_tensor_symmetric"),
    }
}

fn resolve_eps(at: &Place<'_>, e: &SpecEntry) -> Result<f32> {
    let Some((eps, start)) = e.eps.as_ref().map(|s| (s.get_ref(), s.span().start)) else { return Ok(LEAST_SCALE) };
    match eps {
        Eps::Number(n) if *n > 0.0 && *n < 1.0 => Ok(*n as f32),
        Eps::Number(_) => Err(at.error(start, "expected a number between 0 and 1")),
        Eps::Name(n) => {
            spec::named_eps(n).ok_or_else(|| at.error(start, format!("'{n}': expected torch, f32 or a number")))
        }
    }
}

fn alternatives(shared: &Names, own: &Names) -> Alternatives {
    let plain = |l: &Vec<Spanned<String>>| l.iter().map(|s| s.get_ref().clone()).collect();
    shared.iter().chain(own).map(|(k, v)| (k.clone(), plain(v))).collect()
}

fn find_spec(at: &Place<'_>, specs: &[Spec], name: &Spanned<String>) -> Result<SpecId> {
    specs.iter().position(|k| k.name == *name.get_ref()).ok_or_else(|| {
        let known: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
        at.error(name.span().start, format!("unknown spec '{}'; there are {}", name.get_ref(), known.join(", ")))
    })
}

fn resolve_pattern(at: &Place<'_>, specs: &[Spec], shared: &Names, e: &PatternEntry) -> Result<UnitPattern> {
    let any = alternatives(shared, &e.any);
    let mut pattern =
        Pattern::parse(e.expression.get_ref(), &any).map_err(|p| at.inside(&e.expression, p.offset, p.why))?;
    for c in &e.conditions {
        pattern = pattern.with_condition(c.get_ref()).map_err(|p| at.inside(c, p.offset, p.why))?;
    }
    let mut inputs = resolve_inputs(at, specs, &pattern, e)?;
    let output = e.output.as_ref().map(|o| find_spec(at, specs, o)).transpose()?;
    if let (Some(o), Some(id)) = (&e.output, output)
        && !(specs[id].observed() || matches!(specs[id].scheme, Scheme::Fixed { .. } | Scheme::Cast))
    {
        return Err(at.error(o.span().start, "a result needs a per-tensor or fixed spec that is not dynamic"));
    }
    let name_at = e.name.span().start;
    let quantizes = !inputs.is_empty() || output.is_some() || !e.share.is_empty();
    match &e.float {
        None if !quantizes => {
            return Err(at.error(name_at, "the pattern says neither what is quantized nor float = \"why\""));
        }
        Some(_) if quantizes => return Err(at.error(name_at, "a float pattern quantizes nothing")),
        _ => {}
    }
    let share: Vec<String> = e.share.iter().map(|s| s.get_ref().clone()).collect();
    let inherits = !share.is_empty() && share.iter().all(|s| !inputs.contains_key(s));
    if inherits {
        // What shares and names no spec takes its producers'; the first activation spec stands in where they have none.
        let id = specs.iter().position(Spec::observed);
        let id = id.ok_or_else(|| at.error(name_at, "no spec that could be shared"))?;
        inputs.extend(share.iter().filter(|s| *s != "output").map(|s| (s.clone(), id)));
    }
    let (name, doc, float) = (e.name.get_ref().clone(), e.doc.clone(), e.float.clone());
    Ok(UnitPattern {
        name,
        doc,
        pattern,
        inputs,
        output,
        share,
        inherits,
        float,
        follows: e.follows,
        unread_float: e.unread == Some(Unread::Float),
        priority: e.priority,
        own: !at.built_in(),
    })
}

/// The specs of the captures; checks what is shared, too.
fn resolve_inputs(
    at: &Place<'_>,
    specs: &[Spec],
    pattern: &Pattern,
    e: &PatternEntry,
) -> Result<IndexMap<String, SpecId>> {
    let missing = |s: &Spanned<String>, name: &str| {
        let known: Vec<&str> = pattern.captures().collect();
        at.error(s.span().start, format!("the pattern captures no '{name}', only {}", known.join(", ")))
    };
    let captured = |name: &str| pattern.captures().any(|c| c == name);
    let mut inputs = IndexMap::new();
    for (capture, s) in &e.inputs {
        if !captured(capture) {
            return Err(missing(s, capture));
        }
        let id = find_spec(at, specs, s)?;
        if let Scheme::Derived { from, .. } = &specs[id].scheme
            && let Some(missing) = from.iter().find(|f| !e.inputs.contains_key(*f))
        {
            let why = format!("'{}' is derived from '{missing}', which this pattern does not quantize", s.get_ref());
            return Err(at.error(s.span().start, why));
        }
        check_scales(specs, e, capture, id).map_err(|why| at.error(s.span().start, why))?;
        inputs.insert(capture.clone(), id);
    }
    for s in e.share.iter().filter(|s| *s.get_ref() != "output") {
        if !captured(s.get_ref()) {
            return Err(missing(s, s.get_ref()));
        }
    }
    match e.share.as_slice() {
        [alone] => Err(at.error(alone.span().start, "sharing takes two")),
        _ => Ok(inputs),
    }
}

/// Biases that are derived from what has no scale before the model runs, and what is dynamic and shared.
fn check_scales(specs: &[Spec], e: &PatternEntry, capture: &str, id: SpecId) -> std::result::Result<(), String> {
    let dynamic = |id: SpecId| matches!(specs[id].scheme, Scheme::Dynamic(_));
    let of = |capture: &String| e.inputs.get(capture).and_then(|s| specs.iter().position(|k| k.name == *s.get_ref()));
    if let Scheme::Derived { from, .. } = &specs[id].scheme
        && let Some(x) = from.iter().find(|f| of(f).is_some_and(dynamic))
    {
        return Err(format!("the scale of '{x}' is not known before the model runs: leave the bias float"));
    }
    let cast = |id: SpecId| specs[id].scheme == Scheme::Cast;
    if let Scheme::Derived { from, .. } = &specs[id].scheme
        && let Some(x) = from.iter().find(|f| of(f).is_some_and(cast))
    {
        return Err(format!("'{x}' is cast and has no scale to derive one from: leave the bias float"));
    }
    if dynamic(id) && e.share.iter().any(|s| s.get_ref() == capture) {
        return Err(format!("'{capture}' is dynamic: its scale is its own and cannot be shared"));
    }
    Ok(())
}

fn resolve_override(at: &Place<'_>, specs: &[Spec], e: &OverrideEntry) -> Result<Override> {
    let start = e.select.span().start;
    let selector = Selector::parse(e.select.get_ref()).map_err(|why| at.error(start, why.to_string()))?;
    let mut replace = vec![];
    for (from, to) in &e.replace {
        let id = specs.iter().position(|s| s.name == *from);
        let id = id.ok_or_else(|| at.error(to.span().start, format!("unknown spec '{from}'")))?;
        replace.push((id, find_spec(at, specs, to)?));
    }
    match (e.float, replace.is_empty()) {
        (true, true) | (false, false) => Ok(Override { selector, float: e.float, replace }),
        (true, false) => Err(at.error(start, "what stays float has no specs to replace")),
        (false, true) => Err(at.error(start, "an override says float = true or replace = { spec = \"other\" }")),
    }
}
