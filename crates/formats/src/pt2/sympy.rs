//! Sizes as a .pt2 file spells them, in sympy's notation: `Mul(Integer(2), Symbol('s77', positive=True, integer=True))`.

use cleave_ir::Dim;

/// How deep an expression may nest.
const DEPTH: usize = 64;
/// How many terms a product may have.
const TERMS: usize = 1024;

/// The size that the text stands for: in sympy's notation, or as plain arithmetic (`2*s77 + 1`), which
/// older files have. None if it is neither, or uses a function that sizes do not have.
pub(super) fn parse(text: &str) -> Option<Dim> {
    let mut p = Parser { rest: text.trim(), depth: 0 };
    p.expr().filter(|_| p.rest.is_empty()).or_else(|| Dim::parse(text).ok())
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, token: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(token)?.trim_start();
        Some(())
    }

    fn word(&mut self) -> Option<&'a str> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn expr(&mut self) -> Option<Dim> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let name = self.word()?;
        self.eat('(')?;
        let value = match name {
            "Symbol" => self.symbol()?,
            "Integer" => Dim::from(self.word()?.parse::<i64>().ok()?),
            _ => {
                let args = self.args()?;
                apply(name, &args)?
            }
        };
        self.eat(')')?;
        self.depth -= 1;
        Some(value)
    }

    /// `'s77', positive=True, integer=True`; what is assumed of the symbol is in its range.
    fn symbol(&mut self) -> Option<Dim> {
        self.eat('\'')?;
        let (name, rest) = self.rest.split_once('\'')?;
        let plain = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
        if !plain || name.as_bytes()[0].is_ascii_digit() {
            return None;
        }
        self.rest = &rest[rest.find(')')?..];
        Some(Dim::symbol(name))
    }

    fn args(&mut self) -> Option<Vec<Dim>> {
        let mut args = vec![self.expr()?];
        while self.eat(',').is_some() {
            if self.rest.starts_with("evaluate=") {
                self.rest = &self.rest[self.rest.find(')')?..];
                break;
            }
            args.push(self.expr()?);
        }
        Some(args)
    }
}

/// The product, unless it could have more terms than any size has.
fn times(a: Dim, b: &Dim) -> Option<Dim> {
    (a.terms() * b.terms() <= TERMS).then(|| a * b.clone())
}

fn apply(name: &str, args: &[Dim]) -> Option<Dim> {
    let fold = |f: fn(Dim, Dim) -> Dim| args.iter().cloned().reduce(f);
    Some(match (name, args) {
        ("Add", _) => fold(|a, b| a + b)?,
        ("Mul", [first, rest @ ..]) => rest.iter().try_fold(first.clone(), times)?,
        ("Max", _) => fold(|a, b| a.max_of(&b))?,
        ("Min", _) => fold(|a, b| a.min_of(&b))?,
        ("FloorDiv" | "CleanDiv", [a, b]) if a.terms() * b.terms() <= TERMS => a.floor_div(b),
        ("Mod" | "PythonMod", [a, b]) if a.terms() * b.terms() <= TERMS => a.modulo(b),
        ("Pow" | "PowByNatural", [a, b]) => {
            let n = usize::try_from(b.as_const()?).ok().filter(|n| *n <= 8)?;
            std::iter::repeat_n(a, n).try_fold(Dim::from(1), times)?
        }
        ("Identity", [a]) => a.clone(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sympys_notation_and_plain_arithmetic_are_read() {
        for (text, size) in [
            ("Symbol('s77', positive=True, integer=True)", "s77"),
            ("Symbol('u0', integer=True)", "u0"),
            ("Integer(-3)", "-3"),
            ("Mul(Integer(2), Symbol('s77', positive=True, integer=True))", "2*s77"),
            ("Add(Integer(1), FloorDiv(Add(Symbol('h', integer=True), Integer(-1)), Integer(2)))", "(h - 1)//(2) + 1"),
            ("Mul(Integer(5), Max(Integer(1), Symbol('u0', integer=True)))", "5*max(1, u0)"),
            ("Pow(Symbol('a', integer=True), Integer(2))", "a*a"),
            ("2*s0 + 1", "2*s0 + 1"),
        ] {
            assert_eq!(parse(text).map(|d| d.to_string()).as_deref(), Some(size), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_none() {
        let deep = "Add(".repeat(500);
        for text in
            ["", "Symbol(s77)", "Symbol('a b')", "Integer(1.5)", "Rational(1, 2)", "Add()", "Mul(Integer(1)", &deep]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
