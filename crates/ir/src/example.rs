//! Examples of ops: small calls written in their records, as graphs with inputs.
//!
//! An example is what [`crate::OpDef::example`] describes: arguments as the text form has them, a tensor as its type
//! with marks behind that say which elements it may have.

use crate::builder::{Builder, Value};
use crate::error::{IrError, Result};
use crate::graph::{Arg, Graph, Kind, Meta};
use crate::op::Op;
use crate::tensor::Tensor;
use cleave_numerics::DType;
use half::{bf16, f16};

/// What the elements of an input may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Marks {
    above: Option<f64>,
    below: Option<f64>,
    distinct: bool,
}

/// A graph of one call, on inputs that are made for it.
pub struct Example {
    /// The call on placeholders, its tensors as results.
    pub graph: Graph,
    marks: Vec<Marks>,
}

/// The examples of an op: those of its record, else those of its derivative. Tensors and arguments of type f32 are
/// of type `float` instead.
///
/// # Errors
/// Text that is no example, or a call that the op does not admit.
pub fn of(op: &'static Op, float: DType) -> Result<Vec<Example>> {
    let text = match op.derivative {
        Some(d) if op.example.is_empty() => d.example,
        _ => op.example,
    };
    text.split('|').filter(|t| !t.trim().is_empty()).map(|t| parse(op, t, float)).collect()
}

fn parse(op: &'static Op, text: &str, float: DType) -> Result<Example> {
    let mut p = Parser { op, text, at: 0, float, b: Builder::new(), marks: vec![] };
    let args = p.items("")?;
    let y = p.b.call_op(op, args, Some("y"));
    let mut results = vec![];
    name_results(&p.b, y, "y", &mut results);
    p.b.output(&results);
    Ok(Example { graph: p.b.finish()?, marks: p.marks })
}

/// The tensors of a value, taken apart.
fn name_results<'b>(b: &'b Builder, v: Value<'b>, name: &str, results: &mut Vec<(String, Value<'b>)>) {
    match v.meta() {
        Meta::Tuple(items) => {
            for i in 0..items.len() {
                name_results(b, b.getitem(v, i), &format!("{name}_{i}"), results);
            }
        }
        Meta::None => {}
        _ => results.push((name.into(), v)),
    }
}

struct Parser<'t> {
    op: &'static Op,
    text: &'t str,
    at: usize,
    float: DType,
    b: Builder,
    marks: Vec<Marks>,
}

impl<'t> Parser<'t> {
    fn error(&self, why: &str) -> IrError {
        let why = format!("{why} at '{}' in the example '{}'", self.rest(), self.text.trim());
        IrError::Call { op: self.op.name.into(), node: "y".into(), why }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn eat(&mut self, token: &str) -> bool {
        self.at = self.text.len() - self.rest().trim_start().len();
        let hit = self.rest().starts_with(token);
        self.at += if hit { token.len() } else { 0 };
        hit
    }

    fn ends(&mut self, close: &str) -> bool {
        self.eat("");
        self.rest().is_empty() || !close.is_empty() && self.rest().starts_with(close)
    }

    /// Arguments up to the closing token, or the end.
    fn items(&mut self, close: &str) -> Result<Vec<Arg>> {
        let mut items = vec![];
        loop {
            if self.ends(close) {
                return if self.eat(close) { Ok(items) } else { Err(self.error("a list without end")) };
            }
            items.push(self.arg(items.len(), close.is_empty())?);
            if !(self.eat(",") || self.ends(close)) {
                return Err(self.error("expected ','"));
            }
        }
    }

    fn word(&mut self) -> &'t str {
        let rest = self.rest();
        let end = rest.find([',', '[', ']', ' ', '<', '>', '!']).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn arg(&mut self, place: usize, top: bool) -> Result<Arg> {
        if self.eat("[") {
            return Ok(Arg::List(self.items("]")?));
        }
        if self.eat("\"") {
            let end = self.rest().find('"').ok_or_else(|| self.error("a string without end"))?;
            let s = self.rest()[..end].to_string();
            self.at += end + 1;
            return Ok(Arg::Str(s));
        }
        let word = self.word();
        let dtype = DType::from_name(word).map(|d| if d == DType::F32 { self.float } else { d });
        if let Some(d) = dtype.filter(|_| self.rest().starts_with('[')) {
            return self.tensor(d, place, top);
        }
        let number = || word.parse().map(Arg::Int).or_else(|_| word.parse().map(Arg::Float)).ok();
        match word {
            "none" => Ok(Arg::None),
            "true" => Ok(Arg::Bool(true)),
            "false" => Ok(Arg::Bool(false)),
            _ => dtype.map(Arg::DType).or_else(number).ok_or_else(|| self.error("no argument")),
        }
    }

    fn tensor(&mut self, dtype: DType, place: usize, top: bool) -> Result<Arg> {
        self.eat("[");
        let sizes = self.items("]")?;
        let size = |a: &Arg| if let Arg::Int(n) = a { usize::try_from(*n).ok().map(Into::into) } else { None };
        let shape = sizes.iter().map(size).collect::<Option<Vec<_>>>().ok_or_else(|| self.error("no shape"))?;
        let mut marks = Marks::default();
        loop {
            let above = self.rest().starts_with('>');
            if self.eat("!") {
                marks.distinct = true;
            } else if self.eat(">") || self.eat("<") {
                let n = self.word().parse().map_err(|_| self.error("expected a number"))?;
                *(if above { &mut marks.above } else { &mut marks.below }) = Some(n);
            } else {
                break;
            }
        }
        self.marks.push(marks);
        let name = self.op.schema.params.get(place).filter(|_| top).map_or("item", |p| p.name.as_str());
        let name = self.b.with_graph(|g| g.fresh_name(name));
        Ok(self.b.placeholder(&name, Meta::tensor(dtype, shape)).into())
    }
}

impl Example {
    /// Inputs with elements as the example says, the same for the same seed. Floats that it says nothing of lie in
    /// (-2, 2), integers are 1 to 4.
    pub fn inputs(&self, seed: u64) -> Vec<Tensor> {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        let inputs = self.graph.nodes().filter(|(_, n)| n.kind == Kind::Placeholder);
        let metas = inputs.filter_map(|(_, n)| n.meta.as_tensor());
        let make = |(m, marks): (&crate::TensorMeta, &Marks)| {
            let shape: Vec<usize> = m.shape.iter().map(|d| d.as_const().unwrap_or(0) as usize).collect();
            numbers.tensor(m.dtype, &shape, marks)
        };
        metas.zip(&self.marks).map(make).collect()
    }
}

/// A small generator of numbers.
struct Numbers(u64);

impl Numbers {
    /// In [0, 1).
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The numbers below n in some order.
    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, (self.next() * (i + 1) as f64) as usize);
        }
        order
    }

    fn tensor(&mut self, dtype: DType, shape: &[usize], marks: &Marks) -> Tensor {
        let n: usize = shape.iter().product();
        if dtype.is_float() {
            let (low, high) = match (marks.above, marks.below) {
                (Some(a), Some(b)) => (a + 0.05 * (b - a), b - 0.05 * (b - a)),
                (Some(a), None) => (a + 0.1, a + 2.0),
                (None, Some(b)) => (-0.95 * b, 0.95 * b),
                (None, None) => (-2.0, 2.0),
            };
            let places: Vec<f64> = match marks.distinct {
                true => self.order(n).into_iter().map(|i| (i as f64 + 0.3 + 0.4 * self.next()) / n as f64).collect(),
                false => (0..n).map(|_| self.next()).collect(),
            };
            return floats(dtype, shape, places.into_iter().map(|p| low + (high - low) * p).collect());
        }
        if dtype == DType::Bool {
            return Tensor::from_bools(shape, &(0..n).map(|_| self.next() < 0.5).collect::<Vec<_>>());
        }
        let low = marks.above.map_or(if marks.below.is_some() { 0 } else { 1 }, |a| a as i64 + 1);
        let count = marks.below.map_or(4, |b| b as i64 - low).max(1);
        let places: Vec<i64> = match marks.distinct {
            true => self.order(n.max(count as usize)).into_iter().take(n).map(|i| i as i64).collect(),
            false => (0..n).map(|_| (self.next() * count as f64) as i64).collect(),
        };
        integers(dtype, shape, places.into_iter().map(|p| low + p).collect())
    }
}

/// Elements as a float type; one of 8 bits, which no example has, is f32.
fn floats(dtype: DType, shape: &[usize], v: Vec<f64>) -> Tensor {
    match dtype {
        DType::F64 => Tensor::new(shape, v),
        DType::F16 => Tensor::new(shape, v.into_iter().map(f16::from_f64).collect()),
        DType::BF16 => Tensor::new(shape, v.into_iter().map(bf16::from_f64).collect()),
        _ => Tensor::new(shape, v.into_iter().map(|v| v as f32).collect()),
    }
}

/// Elements as an integer type; one of more than 32 bits is i64.
fn integers(dtype: DType, shape: &[usize], v: Vec<i64>) -> Tensor {
    match dtype {
        DType::U8 => Tensor::new(shape, v.into_iter().map(|v| v as u8).collect()),
        DType::I8 => Tensor::new(shape, v.into_iter().map(|v| v as i8).collect()),
        DType::I16 => Tensor::new(shape, v.into_iter().map(|v| v as i16).collect()),
        DType::I32 => Tensor::new(shape, v.into_iter().map(|v| v as i32).collect()),
        _ => Tensor::new(shape, v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op;

    #[test]
    fn an_example_is_a_graph_with_inputs() {
        let op = op::find("aten.cat").unwrap();
        let e = parse(op, "[f32[2, 3]!, f32[1, 3]>0], -2", DType::F64).unwrap();
        let want = "graph(%item: f64[2, 3], %item_1: f64[1, 3]) {
  %y = aten.cat([%item, %item_1], -2): f64[3, 3]
  return %y
}
";
        assert_eq!(e.graph.to_string(), want);
        let x = e.inputs(1);
        assert_eq!(x.iter().map(Tensor::shape).collect::<Vec<_>>(), [[2, 3], [1, 3]]);
        assert_eq!(x[0].to_f64(), e.inputs(1)[0].to_f64());
        let mut sorted = x[0].to_f64();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|w| w[1] - w[0] > 0.3), "{sorted:?}");
        assert!(x[1].to_f64().iter().all(|v| (0.1..2.0).contains(v)));
    }

    #[test]
    fn marks_bound_integers() {
        let op = op::find("aten.embedding").unwrap();
        let x = parse(op, "f32[3, 2], i64[3]<3!", DType::F32).unwrap().inputs(7);
        let mut picked = x[1].to_i64();
        picked.sort_unstable();
        assert_eq!((x[0].dtype(), picked), (DType::F32, vec![0, 1, 2]));
    }

    #[test]
    fn what_is_no_example_is_said() {
        let op = op::find("aten.relu").unwrap();
        for (text, want) in [
            ("f32[2, 3", "a list without end at '' in the example 'f32[2, 3'"),
            ("f31[2]", "no argument at '[2]' in the example 'f31[2]'"),
            ("f32[2]>x", "expected a number at '' in the example 'f32[2]>x'"),
            ("f32[2] 3", "expected ',' at '3' in the example 'f32[2] 3'"),
        ] {
            let e = parse(op, text, DType::F32).err().map(|e| e.to_string());
            assert_eq!(e.unwrap_or_default(), format!("aten.relu.default at node 'y': {want}"));
        }
    }

    #[test]
    fn every_example_is_one() {
        let bad: Vec<String> = op::all().filter_map(|o| of(o, DType::F32).err()).map(|e| e.to_string()).collect();
        assert!(bad.is_empty(), "{}", bad.join("\n"));
    }
}
