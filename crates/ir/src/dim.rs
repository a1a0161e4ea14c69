//! Sizes: integers, or expressions over named symbols in one canonical form.
//!
//! An expression is a polynomial with integer coefficients whose atoms are symbols and the
//! operations that polynomials lack (floor division, remainder, max, min). Equal expressions are
//! equal values, so `N*16//16 == N` is a comparison. What the form cannot prove equal is not equal.

use crate::error::{IrError, Result};
use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of symbols.
pub type Bindings = IndexMap<String, i64>;

/// A size: a number or a canonical expression.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Const(i64),
    Poly(Arc<Poly>),
}

/// Monomial (sorted atoms; none for the constant term) to non-zero coefficient.
type Poly = BTreeMap<Vec<Atom>, i64>;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(Arc<str>),
    Op(Func, Dim, Dim),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Func {
    FloorDiv,
    Mod,
    Max,
    Min,
}

impl Func {
    fn public(self) -> DimOp {
        match self {
            Func::FloorDiv => DimOp::FloorDiv,
            Func::Mod => DimOp::Mod,
            Func::Max => DimOp::Max,
            Func::Min => DimOp::Min,
        }
    }

    fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Func::FloorDiv => a.checked_div_euclid(b)?.checked_sub(i64::from(b < 0 && a.rem_euclid(b) != 0)),
            Func::Mod => (b > 0).then(|| a.rem_euclid(b)),
            Func::Max => Some(a.max(b)),
            Func::Min => Some(a.min(b)),
        }
    }
}

/// An operation in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are their own description")]
pub enum DimOp {
    Add,
    Mul,
    FloorDiv,
    Mod,
    Max,
    Min,
}

impl Dim {
    /// A symbol.
    pub fn symbol(name: &str) -> Dim {
        Dim::from_poly(Poly::from([(vec![Atom::Symbol(name.into())], 1)]))
    }

    /// A size that only running tells, as inference has it before the graph gives it a name: the `k`-th of a call.
    pub fn unknown(k: usize) -> Dim {
        Dim::symbol(&format!("?{k}"))
    }

    /// Whether inference knows the size only by [`Dim::unknown`].
    pub fn is_unknown(&self) -> bool {
        self.as_const().is_none() && self.symbols().iter().any(|s| s.starts_with('?'))
    }

    /// Whether a symbol in it is one that only running tells: as yet unknown, or named `u0`, `u1`, …
    pub fn depends_on_data(&self) -> bool {
        let data = |s: &String| {
            let digits = s.strip_prefix('u').filter(|d| !d.is_empty());
            s.starts_with('?') || digits.is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()))
        };
        self.as_const().is_none() && self.symbols().iter().any(data)
    }

    /// The number, if it is one.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(c) => Some(c),
            Repr::Poly(_) => None,
        }
    }

    /// The symbol's name, if the size is one bare symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        let Repr::Poly(p) = &self.0 else { return None };
        match p.iter().next() {
            Some((m, 1)) if p.len() == 1 && m.len() == 1 => match &m[0] {
                Atom::Symbol(s) => Some(s),
                Atom::Op(..) => None,
            },
            _ => None,
        }
    }

    /// Number of summands when multiplied out: what a product of two sizes may cost.
    pub fn terms(&self) -> usize {
        match &self.0 {
            Repr::Const(_) => 1,
            Repr::Poly(p) => p.len(),
        }
    }

    /// Whether the size is the number `n`.
    pub fn is(&self, n: i64) -> bool {
        self.as_const() == Some(n)
    }

    fn from_poly(mut p: Poly) -> Dim {
        p.retain(|_, c| *c != 0);
        match p.len() {
            0 => Dim(Repr::Const(0)),
            1 if p.contains_key(&vec![]) => Dim(Repr::Const(p[&vec![]])),
            _ => Dim(Repr::Poly(Arc::new(p))),
        }
    }

    fn poly(&self) -> Poly {
        match &self.0 {
            Repr::Const(0) => Poly::new(),
            Repr::Const(c) => Poly::from([(vec![], *c)]),
            Repr::Poly(p) => (**p).clone(),
        }
    }

    fn func(f: Func, a: &Dim, b: &Dim) -> Dim {
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const())
            && let Some(v) = f.apply(x, y)
        {
            return v.into();
        }
        Dim::from_poly(Poly::from([(vec![Atom::Op(f, a.clone(), b.clone())], 1)]))
    }

    /// `floor(self / by)`; whole multiples leave the division.
    pub fn floor_div(&self, by: &Dim) -> Dim {
        if by.is(1) {
            return self.clone();
        }
        let divisor = by.poly();
        let Some((mono, coef)) = divisor.iter().next().filter(|_| divisor.len() == 1) else {
            return if self == by { 1.into() } else { Dim::func(Func::FloorDiv, self, by) };
        };
        let (mut whole, mut rest) = (Poly::new(), Poly::new());
        for (m, c) in self.poly() {
            match monomial_quotient(&m, mono) {
                Some(q) if c.checked_rem(*coef) == Some(0) => *whole.entry(q).or_insert(0) += c / coef,
                _ => *rest.entry(m).or_insert(0) += c,
            }
        }
        let (whole, rest) = (Dim::from_poly(whole), Dim::from_poly(rest));
        if rest.is(0) { whole } else { whole + Dim::func(Func::FloorDiv, &rest, by) }
    }

    /// The remainder of the floor division.
    pub fn modulo(&self, by: &Dim) -> Dim {
        let q = self.floor_div(by);
        let r = self.clone() - q * by.clone();
        if r.as_const().is_some() { r } else { Dim::func(Func::Mod, self, by) }
    }

    /// The greater one.
    pub fn max_of(&self, other: &Dim) -> Dim {
        if self == other { self.clone() } else { Dim::func(Func::Max, self, other) }
    }

    /// The lesser one.
    pub fn min_of(&self, other: &Dim) -> Dim {
        if self == other { self.clone() } else { Dim::func(Func::Min, self, other) }
    }

    /// The expression built from symbols and numbers by operations, in the order in which it is printed.
    pub fn lower<T>(
        &self,
        symbol: &mut dyn FnMut(&str) -> T,
        number: &mut dyn FnMut(i64) -> T,
        op: &mut dyn FnMut(DimOp, T, T) -> T,
    ) -> T {
        let p = match &self.0 {
            Repr::Const(c) => return number(*c),
            Repr::Poly(p) => p,
        };
        let constant = p.iter().take_while(|(m, _)| m.is_empty());
        let mut sum = None;
        for (m, c) in p.iter().skip_while(|(m, _)| m.is_empty()).chain(constant) {
            let mut product = (*c != 1 || m.is_empty()).then(|| number(*c));
            for a in m {
                let factor = match a {
                    Atom::Symbol(s) => symbol(s),
                    Atom::Op(f, x, y) => {
                        let (x, y) = (x.lower(symbol, number, op), y.lower(symbol, number, op));
                        op(f.public(), x, y)
                    }
                };
                product = Some(match product {
                    Some(t) => op(DimOp::Mul, t, factor),
                    None => factor,
                });
            }
            let term = product.expect("invariant: a monomial has a factor");
            sum = Some(match sum {
                Some(t) => op(DimOp::Add, t, term),
                None => term,
            });
        }
        sum.expect("invariant: a polynomial has a term")
    }

    /// The symbols in the expression, in order.
    pub fn symbols(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_symbols(&mut out);
        out.sort();
        out.dedup();
        out
    }

    fn collect_symbols(&self, out: &mut Vec<String>) {
        let Repr::Poly(p) = &self.0 else { return };
        for atom in p.keys().flatten() {
            match atom {
                Atom::Symbol(s) => out.push(s.to_string()),
                Atom::Op(_, a, b) => {
                    a.collect_symbols(out);
                    b.collect_symbols(out);
                }
            }
        }
    }

    /// The expression with sizes put in for symbols.
    pub fn substitute(&self, with: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        let Repr::Poly(p) = &self.0 else { return self.clone() };
        let mut sum = Dim::from(0);
        for (m, c) in p.iter() {
            let mut product = Dim::from(*c);
            for atom in m {
                product = product
                    * match atom {
                        Atom::Symbol(s) => with(s).unwrap_or_else(|| Dim::symbol(s)),
                        Atom::Op(f, a, b) => {
                            let (a, b) = (a.substitute(with), b.substitute(with));
                            match f {
                                Func::FloorDiv => a.floor_div(&b),
                                Func::Mod => a.modulo(&b),
                                Func::Max => a.max_of(&b),
                                Func::Min => a.min_of(&b),
                            }
                        }
                    };
            }
            sum = sum + product;
        }
        sum
    }

    /// The number that the expression is for these values of its symbols.
    ///
    /// # Errors
    /// A symbol without a value, or a division by zero.
    pub fn eval(&self, with: &Bindings) -> Result<i64> {
        let v = self.substitute(&|s| with.get(s).map(|v| Dim::from(*v)));
        v.as_const().ok_or_else(|| {
            let missing: Vec<_> = self.symbols().into_iter().filter(|s| !with.contains_key(s)).collect();
            let why = match missing.as_slice() {
                [] => "has no value here (division by zero)".into(),
                m => format!("{} has no value", m.join(", ")),
            };
            IrError::Dim { expr: self.to_string(), why }
        })
    }

    /// Parses what [`std::fmt::Display`] prints.
    ///
    /// # Errors
    /// Text that is not an expression.
    pub fn parse(text: &str) -> Result<Dim> {
        let mut p = Parser { text: text.as_bytes(), at: 0, depth: 0 };
        let d = p.sum().filter(|_| p.skip() == p.text.len());
        d.ok_or_else(|| IrError::Dim { expr: text.into(), why: "not a size".into() })
    }
}

fn monomial_quotient(m: &[Atom], by: &[Atom]) -> Option<Vec<Atom>> {
    let mut rest = m.to_vec();
    for a in by {
        rest.remove(rest.iter().position(|x| x == a)?);
    }
    Some(rest)
}

impl From<i64> for Dim {
    fn from(v: i64) -> Dim {
        Dim(Repr::Const(v))
    }
}

impl From<i32> for Dim {
    fn from(v: i32) -> Dim {
        Dim(Repr::Const(v.into()))
    }
}

impl From<usize> for Dim {
    fn from(v: usize) -> Dim {
        Dim(Repr::Const(v as i64))
    }
}

impl std::ops::Add for Dim {
    type Output = Dim;
    fn add(self, o: Dim) -> Dim {
        let mut p = self.poly();
        for (m, c) in o.poly() {
            let e = p.entry(m).or_insert(0);
            *e = e.saturating_add(c);
        }
        Dim::from_poly(p)
    }
}

impl std::ops::Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self * Dim::from(-1i64)
    }
}

impl std::ops::Sub for Dim {
    type Output = Dim;
    fn sub(self, o: Dim) -> Dim {
        self + -o
    }
}

impl std::ops::Mul for Dim {
    type Output = Dim;
    fn mul(self, o: Dim) -> Dim {
        let (a, b) = (self.poly(), o.poly());
        let mut p = Poly::new();
        for (m, c) in &a {
            for (n, d) in &b {
                let mut k = [m.as_slice(), n.as_slice()].concat();
                k.sort();
                let e = p.entry(k).or_insert(0);
                *e = e.saturating_add(c.saturating_mul(*d));
            }
        }
        Dim::from_poly(p)
    }
}

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Dim>>(iter: I) -> Dim {
        iter.fold(Dim::from(1i64), |a, b| a * b)
    }
}

impl std::fmt::Display for Atom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Atom::Symbol(s) => f.write_str(s),
            Atom::Op(Func::FloorDiv, a, b) => write!(f, "({a})//({b})"),
            Atom::Op(Func::Mod, a, b) => write!(f, "({a})%({b})"),
            Atom::Op(Func::Max, a, b) => write!(f, "max({a}, {b})"),
            Atom::Op(Func::Min, a, b) => write!(f, "min({a}, {b})"),
        }
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let p = match &self.0 {
            Repr::Const(c) => return write!(f, "{c}"),
            Repr::Poly(p) => p,
        };
        // The constant, whose monomial sorts first, is written last.
        let constant = p.iter().take_while(|(m, _)| m.is_empty());
        for (i, (m, c)) in p.iter().skip_while(|(m, _)| m.is_empty()).chain(constant).enumerate() {
            match (i, *c < 0) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            let c = c.unsigned_abs();
            if c != 1 || m.is_empty() {
                write!(f, "{c}")?;
            }
            for (j, a) in m.iter().enumerate() {
                if j > 0 || c != 1 {
                    f.write_str("*")?;
                }
                write!(f, "{a}")?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Dim, D::Error> {
        let text = String::deserialize(d)?;
        Dim::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Recursive descent over `sum := product (('+' | '-') product)*`.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn skip(&mut self) -> usize {
        while self.text.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        self.at
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let hit = self.text[self.at..].starts_with(token.as_bytes());
        self.at += if hit { token.len() } else { 0 };
        hit
    }

    fn sum(&mut self) -> Option<Dim> {
        self.depth += 1;
        if self.depth > 64 {
            return None;
        }
        let negative = self.eat("-");
        let mut v = self.product()?;
        if negative {
            v = -v;
        }
        loop {
            v = match () {
                () if self.eat("+") => v + self.product()?,
                () if self.eat("-") => v - self.product()?,
                () => break,
            };
        }
        self.depth -= 1;
        Some(v)
    }

    fn product(&mut self) -> Option<Dim> {
        let mut v = self.atom()?;
        loop {
            v = match () {
                () if self.eat("//") => v.floor_div(&self.factor(&v)?),
                () if self.eat("%") => v.modulo(&self.factor(&v)?),
                () if self.eat("*") => {
                    let mut w = self.factor(&v)?;
                    // Division binds to the atom before it, as printed: 2*(a)//(b) is 2*((a)//(b)).
                    while self.eat("//") {
                        w = w.floor_div(&self.factor(&w)?);
                    }
                    while self.eat("%") {
                        w = w.modulo(&self.factor(&w)?);
                    }
                    v * w
                }
                () => return Some(v),
            };
        }
    }

    /// An atom to multiply or divide by; none if the result could have more terms than any size has.
    fn factor(&mut self, by: &Dim) -> Option<Dim> {
        self.atom().filter(|w| w.terms() * by.terms() <= 1024)
    }

    fn atom(&mut self) -> Option<Dim> {
        if self.eat("(") {
            let v = self.sum()?;
            return self.eat(")").then_some(v);
        }
        for (name, f) in [("max(", Dim::max_of as fn(&Dim, &Dim) -> Dim), ("min(", Dim::min_of)] {
            if self.eat(name) {
                let a = self.sum()?;
                let b = self.eat(",").then(|| self.sum())??;
                return self.eat(")").then(|| f(&a, &b));
            }
        }
        let start = self.skip();
        while self.text.get(self.at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_' || *c == b'.') {
            self.at += 1;
        }
        let word = std::str::from_utf8(&self.text[start..self.at]).ok().filter(|w| !w.is_empty())?;
        if word.as_bytes()[0].is_ascii_digit() {
            word.parse::<i64>().ok().map(Dim::from)
        } else {
            Some(Dim::symbol(word))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn n() -> Dim {
        Dim::symbol("N")
    }

    #[test]
    fn expressions_are_equal_when_their_forms_are() {
        assert_eq!((n() * 16.into()).floor_div(&16.into()), n());
        assert_eq!((n() * Dim::symbol("H") * 4.into()).floor_div(&(n() * 2.into())), Dim::symbol("H") * 2.into());
        assert_eq!(n() + 1.into() - n(), 1.into());
        assert_eq!((n() * 4.into()).modulo(&2.into()), 0.into());
        assert_ne!(n(), Dim::symbol("M"));
        assert_eq!((n() + 7.into()).floor_div(&2.into()).to_string(), "(N + 7)//(2)");
    }

    #[test]
    fn values_come_from_bindings() {
        let d = (n() + 7.into()).floor_div(&2.into());
        assert_eq!(d.eval(&Bindings::from([("N".into(), 4)])), Ok(5));
        let e = d.eval(&Bindings::new()).unwrap_err().to_string();
        assert_eq!(e, "size (N + 7)//(2): N has no value");
    }

    #[test]
    fn nonsense_does_not_parse() {
        for t in ["", "N +", "3 4", "(N", "max(N)", &"(".repeat(500), &format!("(a+b){}", "*(a+c+d)".repeat(99))] {
            assert!(Dim::parse(t).is_err(), "{t}");
        }
    }

    fn any_dim() -> impl Strategy<Value = Dim> {
        let leaf = prop_oneof![(-9i64..10).prop_map(Dim::from), "[A-C]".prop_map(|s| Dim::symbol(&s))];
        leaf.prop_recursive(4, 24, 2, |d| {
            (0..6, d.clone(), d).prop_map(|(k, a, b)| match k {
                0 => a + b,
                1 => a - b,
                2 => a * b,
                3 => a.floor_div(&(b.max_of(&2.into()))),
                4 => a.max_of(&b),
                _ => a.min_of(&b),
            })
        })
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(d in any_dim()) {
            prop_assert_eq!(Dim::parse(&d.to_string()).unwrap(), d);
        }

        #[test]
        fn substitution_commutes_with_floor_division(a in -50i64..50, b in 1i64..9, c in -9i64..9) {
            let e = (n() * b.into() + c.into()).floor_div(&b.into());
            prop_assert_eq!(e.eval(&Bindings::from([("N".into(), a)])).unwrap(), (a * b + c).div_euclid(b));
        }
    }
}
