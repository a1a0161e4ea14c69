//! Types and sizes as the JSON has them.

use cleave_ir::dim::DimOp;
use cleave_ir::{Bindings, Dim, Graph, Kind, SymbolRange, Tensor, TensorMeta};
use cleave_numerics::DType;
use indexmap::IndexMap;
use serde_json::{Value, json};

/// Symbols under torch's names, and a plausible value of each.
pub(super) struct Values<'g> {
    g: &'g Graph,
    names: IndexMap<String, String>,
    hints: Bindings,
    /// Symbols in the shapes of inputs: the others have values at run time only.
    backed: Vec<String>,
}

impl<'g> Values<'g> {
    pub(super) fn new(g: &'g Graph) -> Values<'g> {
        Values::named(g, IndexMap::new(), Bindings::new())
    }

    /// Those of a graph that is an argument in one with these, and whose symbols are spelled as there.
    pub(super) fn within<'i>(&self, g: &'i Graph) -> Values<'i> {
        let names = self.names.values().map(|n| (n.clone(), n.clone())).collect();
        let hints = self.hints.iter().map(|(s, v)| (self.names.get(s).unwrap_or(s).clone(), *v)).collect();
        Values::named(g, names, hints)
    }

    fn named(g: &'g Graph, names: IndexMap<String, String>, hints: Bindings) -> Values<'g> {
        let symbols_of = |inputs: bool| {
            let nodes = g.nodes().filter(move |(_, n)| !inputs || n.kind == Kind::Placeholder);
            let mut all: Vec<String> = vec![];
            for s in nodes.flat_map(|(_, n)| n.meta.dims()).flat_map(|d| d.symbols()) {
                if !all.contains(&s) {
                    all.push(s);
                }
            }
            all
        };
        let backed = symbols_of(true);
        let mut values = Values { g, names, hints, backed };
        for s in symbols_of(false) {
            if !values.names.contains_key(&s) {
                values.name(&s);
            }
        }
        values
    }

    /// torch tells sizes of inputs (`s0`) from sizes that depend on data (`u0`) by their names.
    fn name(&mut self, symbol: &str) {
        let prefix = if self.backed.iter().any(|b| b == symbol) { 's' } else { 'u' };
        let kept = symbol.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()));
        let free = |n: &String| !self.names.values().any(|v| v == n) && !self.g.symbols.contains_key(n);
        let name = if kept {
            symbol.to_string()
        } else {
            (0u64..).map(|i| format!("{prefix}{i}")).find(free).expect("invariant: numbers do not run out")
        };
        if prefix == 's' {
            let SymbolRange { min, max } = self.range(symbol);
            // A hint of 0 or 1 would be taken for a fixed size.
            let hint = min.max(2).min(max.unwrap_or(i64::MAX));
            self.hints.insert(symbol.into(), hint);
        }
        self.names.insert(symbol.into(), name);
    }

    fn range(&self, symbol: &str) -> SymbolRange {
        self.g.symbols.get(symbol).copied().unwrap_or(SymbolRange { min: 0, max: None })
    }

    /// Ranges of the symbols, by torch's names.
    pub(super) fn ranges(&self) -> Value {
        let range = |s: &str| {
            let r = self.range(s);
            json!({"min_val": r.min, "max_val": r.max})
        };
        Value::Object(self.names.iter().map(|(s, name)| (name.clone(), range(s))).collect())
    }

    /// A size: a number or an expression with its hint.
    pub(super) fn size(&self, d: &Dim) -> Value {
        if let Some(n) = d.as_const() {
            return json!({ "as_int": n });
        }
        let hint = d.eval(&self.hints).ok().map(|h| json!({ "as_int": h }));
        json!({"as_expr": {"expr_str": self.sympy(d), "hint": hint}})
    }

    /// A size under torch's names for symbols.
    pub(super) fn spelled(&self, d: &Dim) -> Dim {
        d.substitute(&|s| self.names.get(s).map(|n| Dim::symbol(n)))
    }

    /// Whether a condition on two sizes holds.
    pub(super) fn condition(&self, op: &str, a: &Dim, b: &Dim) -> Option<Value> {
        let name = match op {
            "ge" => "GreaterThan",
            "gt" => "StrictGreaterThan",
            "le" => "LessThan",
            "lt" => "StrictLessThan",
            "eq" => "Equality",
            "ne" => "Unequality",
            _ => return None,
        };
        let text = format!("{name}({}, {})", self.sympy(a), self.sympy(b));
        Some(json!({"as_expr": {"expr_str": text, "hint": null}}))
    }

    fn sympy(&self, d: &Dim) -> String {
        let mut symbol = |s: &str| {
            let name = self.names.get(s).map_or(s, String::as_str);
            let positive = if name.starts_with('s') { "positive=True, " } else { "" };
            format!("Symbol('{name}', {positive}integer=True)")
        };
        d.lower(&mut symbol, &mut |n| format!("Integer({n})"), &mut |op, a, b| {
            let name = match op {
                DimOp::Add => "Add",
                DimOp::Mul => "Mul",
                DimOp::FloorDiv => "FloorDiv",
                DimOp::Mod => "Mod",
                DimOp::Max => "Max",
                DimOp::Min => "Min",
            };
            format!("{name}({a}, {b})")
        })
    }

    /// A tensor in row-major order.
    pub(super) fn tensor(&self, t: &TensorMeta) -> Value {
        let mut step = Dim::from(1i64);
        let mut strides = vec![];
        for d in t.shape.iter().rev() {
            strides.push(self.size(&step));
            if !d.is(0) {
                step = step * d.clone();
            }
        }
        strides.reverse();
        meta(t.dtype, t.shape.iter().map(|d| self.size(d)).collect(), strides)
    }
}

/// A stored tensor, in row-major order.
pub(super) fn stored(t: &Tensor) -> Value {
    let numbers = |list: &[usize]| list.iter().map(|n| json!({ "as_int": n })).collect();
    let strides = cleave_ir::tensor::contiguous_strides(t.shape());
    meta(t.dtype(), numbers(t.shape()), numbers(&strides))
}

fn meta(dtype: DType, sizes: Vec<Value>, strides: Vec<Value>) -> Value {
    json!({
        "dtype": dtype.torch_code(), "sizes": sizes, "requires_grad": false,
        "device": {"type": "cpu", "index": null}, "strides": strides,
        "storage_offset": {"as_int": 0}, "layout": 7,
    })
}
