//! Parsing.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, Result};
use crate::graph::{Arg, ConstKind, Graph, Kind, Meta, Node, Origin, SymbolRange, TensorMeta};
use crate::op;
use crate::subgraph::MAX_DEPTH;
use crate::tensor::Tensor;
use cleave_numerics::DType;
use std::sync::Arc;

/// Parses the text form. Constants get zeros; metas are inferred and must be those stated, where stated.
///
/// # Errors
/// [`IrError::Text`] with line and column, or what a call does not admit.
pub fn parse(text: &str) -> Result<Graph> {
    let mut p = Parser { text, at: 0, depth: 0, b: Builder::new() };
    p.graph()?;
    p.skip();
    if !p.rest().is_empty() {
        return Err(p.error("text behind the graph"));
    }
    p.b.finish()
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// In how many graphs the one that is built stands.
    depth: usize,
    b: Builder,
}

impl<'t> Parser<'t> {
    fn error(&self, why: impl Into<String>) -> IrError {
        let before = &self.text[..self.at.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        IrError::Text { line, column, why: why.into() }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            self.at = self.text.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let hit = self.rest().starts_with(token);
        self.at += if hit { token.len() } else { 0 };
        hit
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("expected '{token}'"))) }
    }

    fn word(&mut self) -> Result<&'t str> {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.error("expected a name"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    /// A string in quotes, with Rust's escapes for quote, backslash, tab and newline.
    fn string(&mut self) -> Result<String> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, 't')) => out.push('\t'),
                    Some((_, c @ ('"' | '\\' | '\''))) => out.push(c),
                    _ => return Err(self.error("unknown escape in a string")),
                },
                c => out.push(c),
            }
        }
        Err(self.error("string without end"))
    }

    fn outside(&mut self, node: &str) -> Result<String> {
        self.skip();
        if self.rest().starts_with('"') { self.string() } else { Ok(node.into()) }
    }

    fn graph(&mut self) -> Result<()> {
        self.expect("graph")?;
        self.expect("(")?;
        let mut names = vec![];
        while !self.eat(")") {
            self.expect("%")?;
            let name = self.word()?;
            names.push(self.outside(name)?);
            self.expect(":")?;
            let meta = self.meta()?;
            self.b.placeholder(name, meta);
            self.eat(",");
        }
        self.b.edit(|g| g.input_names = names);
        if self.eat("where") {
            self.ranges()?;
        }
        if self.eat("with") {
            self.facts()?;
        }
        self.expect("{")?;
        while !self.eat("return") {
            self.statement()?;
        }
        let mut results = vec![];
        while self.eat("%") {
            let name = self.word()?;
            let outside = self.outside(name)?;
            results.push((outside, self.node(name)?));
            self.eat(",");
        }
        let results: Vec<_> = results.into_iter().map(|(n, id)| (n, self.b.value(id))).collect();
        self.b.output(&results);
        self.expect("}")
    }

    /// A graph that is an argument.
    fn inner(&mut self) -> Result<Arg> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error("graphs too deep"));
        }
        let outer = std::mem::take(&mut self.b);
        self.depth += 1;
        self.graph()?;
        self.depth -= 1;
        Ok(Arg::Graph(Arc::new(std::mem::replace(&mut self.b, outer).finish()?)))
    }

    fn ranges(&mut self) -> Result<()> {
        loop {
            let min = self.word()?.parse().map_err(|_| self.error("expected an integer"))?;
            self.expect("<=")?;
            let symbol = self.word()?.to_string();
            let max = if self.eat("<=") {
                Some(self.word()?.parse().map_err(|_| self.error("expected an integer"))?)
            } else {
                None
            };
            self.b.edit(|g| g.symbols.insert(symbol, SymbolRange { min, max }));
            if !self.eat(",") {
                return Ok(());
            }
        }
    }

    fn facts(&mut self) -> Result<()> {
        loop {
            let key = self.word()?.to_string();
            self.expect("=")?;
            let value = self.string()?;
            self.b.edit(|g| g.metadata.insert(key, value));
            if !self.eat(",") {
                return Ok(());
            }
        }
    }

    fn node(&self, name: &str) -> Result<crate::NodeId> {
        self.b.with_graph(|g| g.find(name)).ok_or_else(|| self.error(format!("no node '{name}' so far")))
    }

    fn statement(&mut self) -> Result<()> {
        self.expect("%")?;
        let name = self.word()?.to_string();
        if self.b.with_graph(|g| g.find(&name)).is_some() {
            return Err(self.error(format!("a second node '{name}'")));
        }
        self.expect("=")?;
        let word = self.word()?;
        let kind = match word {
            "param" => Some(ConstKind::Param),
            "buffer" => Some(ConstKind::Buffer),
            "const" => Some(ConstKind::Constant),
            _ => None,
        };
        if let Some(kind) = kind {
            let target = self.string()?;
            self.expect(":")?;
            let Meta::Tensor(meta) = self.meta()? else { return Err(self.error("expected a tensor type")) };
            let t = self.zeros(&meta)?;
            let meta = Meta::Tensor(meta);
            let node = Node { name, kind: Kind::GetAttr(kind), target, args: vec![], meta, origin: Origin::default() };
            self.b.edit(|g| {
                g.constants.entry(node.target.clone()).or_insert(t);
                g.push(node);
            });
            return Ok(());
        }
        let op = op::find(word).map_err(|e| self.error(e.to_string()))?;
        self.expect("(")?;
        let mut args = vec![];
        while !self.eat(")") {
            args.push(self.arg(0)?);
            self.eat(",");
        }
        if !self.eat(":") {
            self.b.call_op(op, args, Some(&name));
            return self.b.error().map_or(Ok(()), |e| Err(self.error(e.to_string())));
        }
        let (args, found) = self.b.resolve(op, args, &name).map_err(|e| self.error(e.to_string()))?;
        let stated = self.meta()?;
        let found = found.settled(&stated);
        if stated != found {
            let (found, stated) = (super::meta_text(&found), super::meta_text(&stated));
            return Err(self.error(format!("{word} gives {found}, not {stated}")));
        }
        self.b.push_call(op, args, &name, found);
        Ok(())
    }

    fn zeros(&self, m: &TensorMeta) -> Result<Tensor> {
        let shape: Option<Vec<usize>> =
            m.shape.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok())).collect();
        let shape = shape.ok_or_else(|| self.error("a constant has a known shape"))?;
        let bytes = shape.iter().try_fold(m.dtype.size(), |a, b| a.checked_mul(*b)).filter(|n| *n <= 1 << 30);
        let bytes = bytes.ok_or_else(|| self.error("a constant of more than 1 GiB"))?;
        Tensor::from_bytes(m.dtype, shape, Arc::new(vec![0u8; bytes])).map_err(|e| self.error(e.to_string()))
    }

    fn arg(&mut self, depth: usize) -> Result<Arg> {
        self.skip();
        let rest = self.rest();
        if depth > 8 {
            return Err(self.error("lists too deep"));
        }
        if self.eat("[") {
            let mut items = vec![];
            while !self.eat("]") {
                items.push(self.arg(depth + 1)?);
                self.eat(",");
            }
            return Ok(Arg::List(items));
        }
        if self.eat("%") {
            let name = self.word()?;
            return Ok(Arg::Node(self.node(name)?));
        }
        if rest.starts_with('"') {
            return Ok(Arg::Str(self.string()?));
        }
        if rest.starts_with("graph(") {
            return self.inner();
        }
        if self.eat("<") {
            let end = self.rest().find('>').ok_or_else(|| self.error("expected '>'"))?;
            let d = Dim::parse(&self.rest()[..end]).map_err(|e| self.error(e.to_string()))?;
            self.at += end + 1;
            return Ok(d.into());
        }
        let end = rest.find([',', ')', ']', ' ', '\n']).unwrap_or(rest.len());
        let word = &rest[..end];
        let arg = match word {
            "none" => Arg::None,
            "true" => Arg::Bool(true),
            "false" => Arg::Bool(false),
            w => {
                let number = w.parse().map(Arg::Int).ok().or_else(|| w.parse().map(Arg::Float).ok());
                let arg = DType::from_name(w).map(Arg::DType).or(number);
                arg.ok_or_else(|| self.error(format!("'{w}' is no argument")))?
            }
        };
        self.at += end;
        Ok(arg)
    }

    fn meta(&mut self) -> Result<Meta> {
        if self.eat("(") {
            let mut items = vec![];
            while !self.eat(")") {
                items.push(self.meta()?);
                self.eat(",");
            }
            return Ok(Meta::Tuple(items));
        }
        let word = self.word()?;
        if word == "none" {
            return Ok(Meta::None);
        }
        if word == "int" {
            return match self.arg(0)? {
                Arg::Dim(d) => Ok(Meta::Int(d)),
                Arg::Int(i) => Ok(Meta::Int(i.into())),
                _ => Err(self.error("expected a size")),
            };
        }
        let dtype = DType::from_name(word).ok_or_else(|| self.error(format!("'{word}' is no element type")))?;
        self.expect("[")?;
        let mut shape = vec![];
        while !self.eat("]") {
            let rest = self.rest();
            let mut depth = 0;
            let end = rest.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0 && (c == ',' || c == ']')
            });
            let end = end.ok_or_else(|| self.error("expected ']'"))?;
            shape.push(Dim::parse(rest[..end].trim()).map_err(|e| self.error(e.to_string()))?);
            self.at += end;
            self.eat(",");
        }
        Ok(Meta::tensor(dtype, shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::verify;
    use crate::{Levels, op};

    const TEXT: &str = r#"graph(%x "image:0": f32[N, 1, 28, 28]) where 1 <= N <= 64 with quantize = "divide" {
  %stem_0_weight = param "stem.0.weight": f32[16, 1, 3, 3]
  %mean = buffer "mean": f32[16]
  %conv2d = aten.conv2d(%x, %stem_0_weight, none, [1, 1], [1, 1]): f32[N, 16, 28, 28]
  %batch_norm = aten.batch_norm(%conv2d, none, none, %mean, %mean, false, 0.1, 1e-5, false): f32[N, 16, 28, 28]
  %max_pool2d_with_indices = aten.max_pool2d_with_indices(%batch_norm, [3, 3], [2, 2]): (f32[N, 16, 13, 13], i64[N, 16, 13, 13])
  %getitem = getitem(%max_pool2d_with_indices, 0): f32[N, 16, 13, 13]
  %flatten = aten.flatten.using_ints(%getitem, 1): f32[N, 2704]
  %size = aten.sym_size.int(%x, 0): int<N>
  %view = aten.view(%flatten, [%size, 16, 169]): f32[N, 16, 169]
  %q = quantized_decomposed.quantize_per_tensor(%view, 0.1, 3, 0, 255, u8): u8[N, 16, 169]
  return %q "result", %view
}
"#;

    #[test]
    fn printing_and_parsing_are_inverse() {
        let g = parse(TEXT).unwrap();
        assert_eq!(g.to_string(), TEXT);
        verify(&g, Levels::ALL).unwrap();
        assert_eq!(g.input_names, ["image:0"]);
        assert_eq!(g.output_names, ["result", "view"]);
    }

    #[test]
    fn errors_have_line_and_column() {
        for (text, want) in [
            ("graph(%x: f31[1]) {", "line 1, column 14: 'f31' is no element type"),
            ("graph() {\n  %a = aten.nix()\n", "line 2, column 16: unknown op 'aten.nix'"),
            ("graph(%x: f32[2]) {\n  %a = aten.relu(%y)", "line 2, column 20: no node 'y' so far"),
            ("graph(%x: f32[2]) {\n return %x } x", "line 2, column 14: text behind the graph"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn every_op_has_a_schema_and_a_way_to_infer() {
        for o in op::all() {
            assert!(o.infer.is_some() || o.rule.is_some(), "{} has neither shape function nor rule", o.name);
        }
    }

    #[test]
    fn the_verifier_collects_what_does_not_hold() {
        let mut g = parse("graph(%x: f32[2]) {\n %a = aten.relu(%x)\n return %a\n}").unwrap();
        g.set_meta(crate::NodeId::new(1), Meta::tensor(DType::F32, vec![3.into()]));
        g.input_names.clear();
        let e = verify(&g, Levels::ALL).unwrap_err().to_string();
        assert_eq!(e.lines().count(), 2, "{e}");
        assert!(e.contains("a: aten.relu.default gives") && e.contains("0 input names for 1 inputs"), "{e}");
    }
}
