//! Op schemas in torch's own notation, parsed once.

use crate::graph::Arg;
use cleave_numerics::DType;

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// One tensor.
    Tensor,
    /// A list of tensors (`Tensor[]`, `Tensor?[]`).
    TensorList,
    /// An integer or a size.
    Int,
    /// A list of integers or sizes; with a length, one integer stands for that many.
    IntList(Option<usize>),
    /// A float.
    Float,
    /// A list of floats.
    FloatList,
    /// An int, float or bool.
    Scalar,
    /// A bool.
    Bool,
    /// A list of bools.
    BoolList,
    /// A string, or one of torch's closed sets (layout, device, memory format), by name.
    Str,
    /// An element type.
    DType,
    /// A graph.
    Graph,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// torch's name.
    pub name: String,
    /// What it takes.
    pub ty: Type,
    /// Whether none is admitted.
    pub optional: bool,
    /// Whether the op writes to it (`Tensor(a!)`).
    pub mutated: bool,
    /// The default, if it has one.
    pub default: Option<Arg>,
    /// Whether it may only be given by name.
    pub keyword_only: bool,
}

/// What an op returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// Nothing.
    None,
    /// One tensor.
    One,
    /// A tuple of so many tensors.
    Tuple(usize),
    /// A list of tensors.
    List,
    /// An integer.
    Int,
    /// A bool, float or scalar.
    Scalar,
}

/// Parameters and results of an op.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Results.
    pub returns: Returns,
}

impl Schema {
    /// Parses `(Tensor self, Scalar alpha=1) -> Tensor`.
    ///
    /// # Errors
    /// What in the text is not a schema.
    pub fn parse(text: &str) -> Result<Schema, String> {
        let (params, returns) = text.rsplit_once("->").ok_or("no '->'")?;
        let inner = params.trim().strip_prefix('(').and_then(|p| p.strip_suffix(')')).ok_or("no parentheses")?;
        let mut schema = Schema { params: vec![], returns: parse_returns(returns.trim())? };
        let mut keyword_only = false;
        for item in split_top(inner) {
            if item == "*" {
                keyword_only = true;
                continue;
            }
            let mut p = parse_param(item)?;
            p.keyword_only = keyword_only;
            schema.params.push(p);
        }
        Ok(schema)
    }

    /// The position of a parameter.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }

    /// Whether the op writes to an argument.
    pub fn mutates(&self) -> bool {
        self.params.iter().any(|p| p.mutated)
    }
}

/// Splits at commas outside brackets.
fn split_top(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut out) = (0, 0, vec![]);
    for (i, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out.retain(|s| !s.is_empty());
    out
}

fn parse_returns(text: &str) -> Result<Returns, String> {
    Ok(match text {
        "()" => Returns::None,
        "SymInt" | "int" => Returns::Int,
        "Scalar" | "bool" | "float" | "SymBool" | "SymFloat" => Returns::Scalar,
        t if t.starts_with("Tensor") && t.ends_with("[]") => Returns::List,
        t if t.starts_with("Tensor") => Returns::One,
        t if t.starts_with('(') && t.ends_with(')') => Returns::Tuple(split_top(&t[1..t.len() - 1]).len()),
        t => return Err(format!("return type '{t}'")),
    })
}

fn parse_param(item: &str) -> Result<Param, String> {
    let (decl, default) = match item.split_once('=') {
        Some((d, v)) => (d, Some(v)),
        None => (item, None),
    };
    let (ty, name) = decl.rsplit_once(' ').ok_or_else(|| format!("parameter '{item}'"))?;
    let mutated = ty.contains('!');
    let mut plain = String::new();
    let mut depth = 0;
    for c in ty.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let optional = plain.ends_with('?');
    let ty = parse_type(plain.trim_end_matches('?')).ok_or_else(|| format!("type '{plain}'"))?;
    let default = default.map(|d| parse_default(d, ty)).transpose()?;
    Ok(Param { name: name.into(), ty, optional, mutated, default, keyword_only: false })
}

fn parse_type(t: &str) -> Option<Type> {
    if let Some((base, len)) = t.strip_suffix(']').and_then(|t| t.rsplit_once('[')) {
        return Some(match base.trim_end_matches('?') {
            "Tensor" => Type::TensorList,
            "int" | "SymInt" => Type::IntList(len.parse().ok()),
            "float" | "Scalar" => Type::FloatList,
            "bool" => Type::BoolList,
            _ => return None,
        });
    }
    Some(match t {
        "Tensor" => Type::Tensor,
        "int" | "SymInt" => Type::Int,
        "float" => Type::Float,
        "Scalar" => Type::Scalar,
        "bool" => Type::Bool,
        "str" | "Layout" | "Device" | "MemoryFormat" => Type::Str,
        "ScalarType" => Type::DType,
        "Graph" => Type::Graph,
        _ => return None,
    })
}

fn parse_default(text: &str, ty: Type) -> Result<Arg, String> {
    let atom = |t: &str| -> Option<Arg> {
        Some(match t.trim() {
            "None" => Arg::None,
            "True" => Arg::Bool(true),
            "False" => Arg::Bool(false),
            "inf" => Arg::Float(f64::INFINITY),
            "-inf" => Arg::Float(f64::NEG_INFINITY),
            t if t.starts_with('\'') => Arg::Str(t.trim_matches('\'').into()),
            t if DType::from_torch_name(t).is_some() => Arg::DType(DType::from_torch_name(t)?),
            t => match t.parse::<i64>() {
                Ok(v) if ty == Type::Float => Arg::Float(v as f64),
                Ok(v) => Arg::Int(v),
                Err(_) => Arg::Float(t.parse().ok()?),
            },
        })
    };
    let bad = || format!("default '{text}'");
    let value = if let Some(list) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        Arg::List(split_top(list).into_iter().map(atom).collect::<Option<_>>().ok_or_else(bad)?)
    } else {
        atom(text).ok_or_else(bad)?
    };
    Ok(match (ty, value) {
        (Type::IntList(Some(n)), Arg::Int(v)) => Arg::List(vec![Arg::Int(v); n]),
        (_, v) => v,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchs_notation_is_read() {
        let s = Schema::parse("(Tensor(a!) self, Tensor? bias=None, SymInt[2] stride=1, *, str approximate='none', float[]? s=None, ScalarType? dtype=None) -> (Tensor, Tensor)").unwrap();
        assert_eq!(s.returns, Returns::Tuple(2));
        assert!(s.params[0].mutated && s.mutates());
        assert!(s.params[1].optional);
        assert_eq!(s.params[2].default, Some(Arg::List(vec![Arg::Int(1), Arg::Int(1)])));
        assert_eq!(s.params[3].default, Some(Arg::Str("none".into())));
        assert!(s.params[3].keyword_only && !s.params[2].keyword_only);
        assert_eq!(s.index("dtype"), Some(5));
        assert_eq!(Schema::parse("(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]").unwrap().returns, Returns::List);
        assert!(Schema::parse("(Tenser x) -> Tensor").is_err());
    }
}
