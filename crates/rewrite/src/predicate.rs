//! Conditions of a pattern: a closed list of predicates over its captures and labels.

use crate::error::PatternError;
use crate::matcher::{State, close, number, users};
use crate::parse::Cursor;
use crate::pattern::Pattern;
use cleave_ir::{Arg, Dim, Graph, NodeId, Op, TensorMeta};

/// How a predicate is written and what it says.
pub struct PredicateDoc {
    /// Its form.
    pub form: &'static str,
    /// What it says.
    pub doc: &'static str,
}

/// All predicates. One that speaks of a part that is absent from the match holds.
pub const PREDICATES: &[PredicateDoc] = &[
    PredicateDoc { form: "constant(x)", doc: "the value is a parameter, a buffer or a literal" },
    PredicateDoc { form: "scalar(x)", doc: "the value is a number or a constant of one element" },
    PredicateDoc { form: "floating(x)", doc: "the elements are floating-point numbers" },
    PredicateDoc { form: "single_use(op)", doc: "only matched nodes use the value, or it is the pattern's own result" },
    PredicateDoc { form: "same_shape(a, b)", doc: "both have the same sizes, symbols included" },
    PredicateDoc {
        form: "compatible_shape(a, b)",
        doc: "as same_shape, but sizes that cannot be compared are taken to be equal unless one of them is 1",
    },
    PredicateDoc { form: "rank(x) == 4", doc: "number of dimensions; also !=, <, <=, >, >=" },
    PredicateDoc {
        form: "dim(x, 2) == 1",
        doc: "one size, counted from the end if negative; a symbol equals no number",
    },
    PredicateDoc { form: "dtype(x) == f32", doc: "element type" },
    PredicateDoc { form: "op.param == 1", doc: "an argument of a matched call: a number, word, 'text', none or list" },
    PredicateDoc { form: "produced_by(x, op)", doc: "the value is the result of this op, class or alternative" },
    PredicateDoc {
        form: "used_by(x, op)",
        doc: "a node that is not matched and is this op, class or alternative uses it",
    },
    PredicateDoc { form: "before(a, b)", doc: "a stands before b in the graph" },
    PredicateDoc { form: "not P", doc: "P does not hold" },
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

const COMPARISONS: [(&str, Cmp); 6] =
    [("==", Cmp::Eq), ("!=", Cmp::Ne), ("<=", Cmp::Le), (">=", Cmp::Ge), ("<", Cmp::Lt), (">", Cmp::Gt)];

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    Word(String),
    List(Vec<Value>),
}

#[derive(Clone, Copy, Debug)]
enum Flag {
    Constant,
    Scalar,
    Floating,
    SingleUse,
}

#[derive(Clone, Debug)]
enum Measure {
    Rank,
    Dim(i64),
    DType,
    Param(String),
}

#[derive(Clone, Debug)]
enum Test {
    Flag(Flag, String),
    SameShape { a: String, b: String, strict: bool },
    Before { a: String, b: String },
    Neighbour { of: String, producer: bool, what: String, ops: Vec<&'static Op> },
    Compare(Measure, String, Cmp, Value),
    Not(Box<Test>),
}

impl Test {
    /// The test as it is written.
    fn text(&self) -> String {
        match self {
            Test::Flag(flag, of) => {
                let flag = match flag {
                    Flag::Constant => "constant",
                    Flag::Scalar => "scalar",
                    Flag::Floating => "floating",
                    Flag::SingleUse => "single_use",
                };
                format!("{flag}({of})")
            }
            Test::SameShape { a, b, strict } => {
                format!("{}({a}, {b})", if *strict { "same_shape" } else { "compatible_shape" })
            }
            Test::Before { a, b } => format!("before({a}, {b})"),
            Test::Neighbour { of, producer, what, .. } => {
                format!("{}({of}, {what})", if *producer { "produced_by" } else { "used_by" })
            }
            Test::Compare(m, of, cmp, want) => {
                let cmp = COMPARISONS.iter().find(|(_, c)| c == cmp).map_or("", |(t, _)| t);
                let what = match m {
                    Measure::Rank => format!("rank({of})"),
                    Measure::DType => format!("dtype({of})"),
                    Measure::Dim(d) => format!("dim({of}, {d})"),
                    Measure::Param(p) => format!("{of}.{p}"),
                };
                format!("{what} {cmp} {}", show(want))
            }
            Test::Not(inner) => format!("not {}", inner.text()),
        }
    }
}

/// A resolved condition.
#[derive(Clone, Debug)]
pub(crate) struct Predicate {
    text: String,
    test: Test,
}

impl Predicate {
    pub(crate) fn parse(text: &str, p: &Pattern) -> Result<Predicate, PatternError> {
        let mut c = Cursor::new(text);
        let test = test(&mut c, p)?;
        c.skip();
        if !c.rest().is_empty() {
            return Err(c.error("text behind the predicate"));
        }
        Ok(Predicate { text: text.into(), test })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the condition holds; if not, why.
    pub(crate) fn check(&self, p: &Pattern, g: &Graph, root: NodeId, state: &State) -> Result<(), String> {
        let found = Found { p, g, root, state };
        match found.eval(&self.test) {
            Some((false, why)) => Err(why),
            _ => Ok(()),
        }
    }
}

fn name(c: &mut Cursor<'_>, p: &Pattern) -> Result<String, PatternError> {
    c.skip();
    let at = c.at;
    let word = c.word().ok_or_else(|| c.error("expected a capture or label"))?;
    known(c.text, at, word, p)
}

fn known(text: &str, at: usize, word: &str, p: &Pattern) -> Result<String, PatternError> {
    if p.captures().chain(p.labels()).any(|n| n == word) {
        return Ok(word.into());
    }
    let names: Vec<&str> = p.captures().chain(p.labels()).collect();
    Err(PatternError::at(text, at, format!("the pattern has no '{word}', only {}", names.join(", "))))
}

fn test(c: &mut Cursor<'_>, p: &Pattern) -> Result<Test, PatternError> {
    c.skip();
    let at = c.at;
    let word = c.word().ok_or_else(|| c.error("expected a predicate"))?;
    if word == "not" {
        return Ok(Test::Not(Box::new(test(c, p)?)));
    }
    let flag = match word {
        "constant" => Some(Flag::Constant),
        "scalar" => Some(Flag::Scalar),
        "floating" => Some(Flag::Floating),
        "single_use" => Some(Flag::SingleUse),
        _ => None,
    };
    if let Some(flag) = flag {
        c.expect("(")?;
        let of = name(c, p)?;
        c.expect(")")?;
        return Ok(Test::Flag(flag, of));
    }
    if matches!(word, "same_shape" | "compatible_shape" | "before") {
        c.expect("(")?;
        let a = name(c, p)?;
        c.expect(",")?;
        let b = name(c, p)?;
        c.expect(")")?;
        return Ok(match word {
            "before" => Test::Before { a, b },
            _ => Test::SameShape { a, b, strict: word == "same_shape" },
        });
    }
    if matches!(word, "produced_by" | "used_by") {
        c.expect("(")?;
        let of = name(c, p)?;
        c.expect(",")?;
        c.skip();
        let at = c.at;
        let what = c.word().ok_or_else(|| c.error("expected an op"))?;
        let ops = p.named(what);
        if ops.is_empty() {
            return Err(PatternError::at(c.text, at, format!("unknown op, class or alternative '{what}'")));
        }
        c.expect(")")?;
        return Ok(Test::Neighbour { of, producer: word == "produced_by", what: what.into(), ops });
    }
    let (measure, of) = measure(c, p, word, at)?;
    for (text, cmp) in COMPARISONS {
        if c.eat(text) {
            return Ok(Test::Compare(measure, of, cmp, value(c)?));
        }
    }
    Err(c.error("expected a comparison"))
}

fn measure(c: &mut Cursor<'_>, p: &Pattern, word: &str, at: usize) -> Result<(Measure, String), PatternError> {
    if let Some((label, param)) = word.rsplit_once('.') {
        let label = known(c.text, at, label, p)?;
        if p.ops(&label).iter().all(|o| o.schema.index(param).is_none()) {
            return Err(PatternError::at(c.text, at, format!("'{label}' has no parameter '{param}'")));
        }
        return Ok((Measure::Param(param.into()), label));
    }
    if !matches!(word, "rank" | "dim" | "dtype") {
        let forms: Vec<&str> = PREDICATES.iter().map(|d| d.form).collect();
        let why = format!("unknown predicate '{word}'; there are: {}", forms.join("; "));
        return Err(PatternError::at(c.text, at, why));
    }
    c.expect("(")?;
    let of = name(c, p)?;
    let measure = match word {
        "rank" => Measure::Rank,
        "dtype" => Measure::DType,
        _ => {
            c.expect(",")?;
            let n = c.number()?.filter(|n| n.fract() == 0.0).ok_or_else(|| c.error("expected a dimension"))?;
            Measure::Dim(n as i64)
        }
    };
    c.expect(")")?;
    Ok((measure, of))
}

fn value(c: &mut Cursor<'_>) -> Result<Value, PatternError> {
    if c.eat("[") {
        let mut items = vec![];
        while !c.eat("]") {
            items.push(value(c)?);
            c.skip();
            if !c.rest().starts_with(']') {
                c.expect(",")?;
            }
        }
        return Ok(Value::List(items));
    }
    if let Some(s) = c.quoted()? {
        return Ok(Value::Word(s));
    }
    if let Some(n) = c.number()? {
        return Ok(Value::Number(n));
    }
    c.word().map(|w| Value::Word(w.into())).ok_or_else(|| c.error("expected a number, a word or a list"))
}

/// Whether sizes are equal as far as can be told: symbols may stand for anything but a broadcast 1.
fn compatible(a: &[Dim], b: &[Dim]) -> bool {
    let one = |d: &Dim| d.is(1);
    let differ = |(x, y): (&Dim, &Dim)| match (x.as_const(), y.as_const()) {
        (Some(p), Some(q)) => p != q,
        _ => one(x) || one(y),
    };
    a.len() == b.len() && !a.iter().zip(b).any(differ)
}

/// A match so far, as predicates see it.
struct Found<'a> {
    p: &'a Pattern,
    g: &'a Graph,
    root: NodeId,
    state: &'a State,
}

impl Found<'_> {
    /// The values under a name: none if it is absent.
    fn values(&self, name: &str) -> Vec<Arg> {
        let at = |names: &[String]| names.iter().position(|n| n == name);
        if let Some(i) = at(&self.p.captures) {
            return self.state.captures[i].iter().cloned().collect();
        }
        if let Some(i) = at(&self.p.lists) {
            return self.state.lists[i].clone().unwrap_or_default();
        }
        let label = at(&self.p.labels).and_then(|i| self.state.labels[i]);
        label.map(|n| vec![Arg::Node(n)]).unwrap_or_default()
    }

    fn meta(&self, a: &Arg) -> Option<TensorMeta> {
        match a {
            Arg::Node(n) => match &self.g.node(*n).meta {
                cleave_ir::Meta::Tuple(items) => items.first().and_then(|m| m.as_tensor()).cloned(),
                m => m.as_tensor().cloned(),
            },
            _ => None,
        }
    }

    /// Whether the test holds, and why not; nothing where it speaks of an absent part.
    fn eval(&self, t: &Test) -> Option<(bool, String)> {
        match t {
            Test::Not(inner) => {
                let (held, _) = self.eval(inner)?;
                Some((!held, format!("'{}' holds", inner.text())))
            }
            Test::SameShape { a, b, strict } => {
                let (x, y) = (self.values(a), self.values(b));
                let (x, y) = (self.meta(x.first()?), self.meta(y.first()?));
                let why = match (&x, &y) {
                    (Some(x), Some(y)) => format!("{a} is {:?} and {b} is {:?}", x.shape, y.shape),
                    _ => format!("{a} and {b} are not both tensors"),
                };
                let equal = |x: &[Dim], y: &[Dim]| if *strict { x == y } else { compatible(x, y) };
                Some((x.zip(y).is_some_and(|(x, y)| equal(&x.shape, &y.shape)), why))
            }
            Test::Before { a, b } => {
                let place = |name| self.values(name).first().and_then(|v| v.nodes().first().copied());
                Some((place(a)? < place(b)?, format!("{a} does not stand before {b}")))
            }
            Test::Neighbour { of, producer, what, ops } => {
                self.all(of, |a| self.neighbour(of, *producer, what, ops, a))
            }
            Test::Flag(flag, of) => self.all(of, |a| self.flag(*flag, of, a)),
            Test::Compare(m, of, cmp, want) => self.all(of, |a| self.compare(m, of, *cmp, want, a)),
        }
    }

    fn all(&self, of: &str, f: impl Fn(&Arg) -> (bool, String)) -> Option<(bool, String)> {
        let results: Vec<(bool, String)> = self.values(of).iter().map(f).collect();
        let failed = results.iter().find(|r| !r.0).cloned();
        failed.or_else(|| results.into_iter().next())
    }

    fn neighbour(&self, of: &str, producer: bool, what: &str, ops: &[&'static Op], a: &Arg) -> (bool, String) {
        let Arg::Node(n) = a else { return (false, format!("{of} is no node")) };
        let is = |n: NodeId| self.g.node(n).op().is_some_and(|o| ops.contains(&o));
        if !producer {
            let held = users(self.g, *n).into_iter().any(|u| !self.state.nodes.contains(&u) && is(u));
            return (held, format!("no {what} uses {of}"));
        }
        // A getitem stands for what it takes from.
        let node = self.g.node(*n);
        let from = match (node.op(), node.args.first()) {
            (Some(o), Some(Arg::Node(tuple))) if o.name == "getitem" => *tuple,
            _ => *n,
        };
        (is(*n) || is(from), format!("{of} is not the result of {what}"))
    }

    fn flag(&self, flag: Flag, of: &str, a: &Arg) -> (bool, String) {
        match flag {
            Flag::Constant => {
                let held = !matches!(a, Arg::Node(n) if self.g.constant(*n).is_none());
                (held, format!("{of} is not a constant"))
            }
            Flag::Scalar => (number(self.g, a).is_some(), format!("{of} is not one number")),
            Flag::Floating => {
                let floating = self.meta(a).is_none_or(|m| m.dtype.is_float());
                (floating, format!("{of} is not floating-point"))
            }
            Flag::SingleUse => {
                let Arg::Node(n) = a else { return (true, String::new()) };
                let users = users(self.g, *n);
                let inside = *n == self.root || users.iter().all(|u| self.state.nodes.contains(u));
                (inside, format!("{of} has {} users", users.len()))
            }
        }
    }

    fn compare(&self, m: &Measure, of: &str, cmp: Cmp, want: &Value, a: &Arg) -> (bool, String) {
        let shape = self.meta(a).map(|t| t.shape).unwrap_or_default();
        let (what, have) = match m {
            Measure::Rank => (format!("rank({of})"), Value::Number(shape.len() as f64)),
            Measure::DType => {
                let dtype = self.meta(a).map_or("none".into(), |t| t.dtype.name().to_string());
                (format!("dtype({of})"), Value::Word(dtype))
            }
            Measure::Dim(d) => {
                let at = if *d < 0 { d + shape.len() as i64 } else { *d };
                let size = usize::try_from(at).ok().and_then(|i| shape.get(i));
                let have = size.map_or(Value::Word("none".into()), |s| match s.as_const() {
                    Some(n) => Value::Number(n as f64),
                    None => Value::Word(s.to_string()),
                });
                (format!("dim({of}, {d})"), have)
            }
            Measure::Param(name) => {
                let arg = match a {
                    Arg::Node(n) => self.g.node(*n).arg(name),
                    _ => None,
                };
                (format!("{of}.{name}"), arg.map_or(Value::Word("none".into()), |a| self.as_value(a)))
            }
        };
        let why = format!("{what} is {}", show(&have));
        (holds(&have, cmp, want), why)
    }

    fn as_value(&self, a: &Arg) -> Value {
        match a {
            Arg::List(l) => Value::List(l.iter().map(|a| self.as_value(a)).collect()),
            Arg::Bool(b) => Value::Word(b.to_string()),
            Arg::Str(s) => Value::Word(s.clone()),
            Arg::None => Value::Word("none".into()),
            Arg::DType(d) => Value::Word(d.name().into()),
            other => number(self.g, other).map_or(Value::Word("value".into()), Value::Number),
        }
    }
}

fn show(v: &Value) -> String {
    match v {
        Value::Number(n) => n.to_string(),
        Value::Word(w) => w.clone(),
        Value::List(l) => format!("[{}]", l.iter().map(show).collect::<Vec<_>>().join(", ")),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => close(*x, *y),
        (Value::List(x), Value::List(y)) => x.len() == y.len() && x.iter().zip(y).all(|(p, q)| equal(p, q)),
        _ => a == b,
    }
}

fn holds(have: &Value, cmp: Cmp, want: &Value) -> bool {
    let ordered = |f: fn(f64, f64) -> bool| match (have, want) {
        (Value::Number(a), Value::Number(b)) => f(*a, *b),
        _ => false,
    };
    match cmp {
        Cmp::Eq => equal(have, want),
        Cmp::Ne => !equal(have, want),
        Cmp::Lt => ordered(|a, b| a < b),
        Cmp::Le => ordered(|a, b| a <= b),
        Cmp::Gt => ordered(|a, b| a > b),
        Cmp::Ge => ordered(|a, b| a >= b),
    }
}
