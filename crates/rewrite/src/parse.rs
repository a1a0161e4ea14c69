//! Text to syntax tree. Names are not resolved here.

use crate::error::PatternError;

/// A part of an expression with the byte where it starts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ast {
    pub at: usize,
    pub node: Syntax,
}

/// What a part is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Syntax {
    Any,
    Capture { name: String, optional: bool },
    Number(f64),
    None,
    Bool(bool),
    Text(String),
    List { items: Vec<Ast>, rest: Option<String> },
    Call(CallSyntax),
}

/// A call and what stands in its parentheses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallSyntax {
    pub label: Option<String>,
    pub head: String,
    /// `|other`
    pub others: Vec<String>,
    pub head_at: usize,
    pub optional: bool,
    pub chain: bool,
    pub args: Vec<Ast>,
    pub attrs: Vec<(usize, String, Ast)>,
    /// `..`
    pub open: bool,
    /// `extras…`
    pub extras: Option<String>,
}

/// Characters with a position.
pub(crate) struct Cursor<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    pub(crate) fn error(&self, why: impl Into<String>) -> PatternError {
        PatternError::at(self.text, self.at, why)
    }

    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(crate) fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    pub(crate) fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(crate) fn expect(&mut self, token: &str) -> Result<(), PatternError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("expected '{token}'"))) }
    }

    /// A name: letters, digits, underscores, and dots between them.
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        self.skip();
        let bytes = self.rest().as_bytes();
        let part = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        if !bytes.first().is_some_and(|c| part(*c) && !c.is_ascii_digit()) {
            return None;
        }
        let mut n = 1;
        while n < bytes.len() && (part(bytes[n]) || (bytes[n] == b'.' && bytes.get(n + 1).is_some_and(|c| part(*c)))) {
            n += 1;
        }
        let word = &self.rest()[..n];
        self.at += n;
        Some(word)
    }

    /// `…` or `...`
    fn ellipsis(&mut self) -> bool {
        self.eat("…") || self.eat("...")
    }

    pub(crate) fn number(&mut self) -> Result<Option<f64>, PatternError> {
        self.skip();
        let rest = self.rest();
        let signed = rest.strip_prefix('-').unwrap_or(rest);
        let sign = rest.len() - signed.len();
        if signed.starts_with("inf") {
            self.at += sign + 3;
            return Ok(Some(if sign == 1 { f64::NEG_INFINITY } else { f64::INFINITY }));
        }
        if !signed.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(None);
        }
        let bytes = signed.as_bytes();
        let mut n = 0;
        while n < bytes.len() {
            let exponent = matches!(bytes[n], b'+' | b'-') && matches!(bytes[n - 1], b'e' | b'E');
            let dot = bytes[n] == b'.' && bytes.get(n + 1) != Some(&b'.');
            if !(bytes[n].is_ascii_digit() || dot || exponent || matches!(bytes[n], b'e' | b'E')) {
                break;
            }
            n += 1;
        }
        let text = &rest[..sign + n];
        let value = text.parse().map_err(|_| self.error(format!("'{text}' is no number")))?;
        self.at += sign + n;
        Ok(Some(value))
    }

    pub(crate) fn quoted(&mut self) -> Result<Option<String>, PatternError> {
        self.skip();
        let Some(quote) = self.rest().chars().next().filter(|c| matches!(c, '\'' | '"')) else { return Ok(None) };
        let inner = &self.rest()[1..];
        let end = inner.find(quote).ok_or_else(|| self.error("text without an end"))?;
        self.at += end + 2;
        Ok(Some(inner[..end].to_string()))
    }
}

const DEEPEST: usize = 64;

/// Parses a whole pattern.
pub(crate) fn parse(text: &str) -> Result<Ast, PatternError> {
    let mut c = Cursor::new(text);
    let ast = expression(&mut c, 0)?;
    c.skip();
    if !c.rest().is_empty() {
        return Err(c.error("text behind the pattern"));
    }
    Ok(ast)
}

fn expression(c: &mut Cursor<'_>, depth: usize) -> Result<Ast, PatternError> {
    if depth > DEEPEST {
        return Err(c.error("nested too deeply"));
    }
    c.skip();
    let at = c.at;
    if c.eat("[") {
        return Ok(Ast { at, node: list(c, depth)? });
    }
    if let Some(s) = c.quoted()? {
        return Ok(Ast { at, node: Syntax::Text(s) });
    }
    let infinite = c.rest().starts_with("inf") && !c.rest()[3..].starts_with(|x: char| x.is_alphanumeric() || x == '_');
    if (infinite || !c.rest().starts_with("inf"))
        && let Some(n) = c.number()?
    {
        return Ok(Ast { at, node: Syntax::Number(n) });
    }
    let Some(word) = c.word() else { return Err(c.error("expected a name, a number, a list or a call")) };
    if c.eat(":") {
        c.skip();
        let head_at = c.at;
        let head = c.word().ok_or_else(|| c.error("expected an op behind the label"))?;
        let call = call(c, Some(word.into()), head, head_at, depth)?;
        return call.map(|node| Ast { at, node }).ok_or_else(|| c.error("expected '('"));
    }
    if let Some(node) = call(c, None, word, at, depth)? {
        return Ok(Ast { at, node });
    }
    let node = match word {
        "_" => Syntax::Any,
        "none" => Syntax::None,
        "true" => Syntax::Bool(true),
        "false" => Syntax::Bool(false),
        name if name.contains('.') => return Err(PatternError::at(c.text, at, format!("'{name}' is no capture"))),
        name => Syntax::Capture { name: name.into(), optional: c.eat("?") },
    };
    Ok(Ast { at, node })
}

/// What follows an op's name; none if it is not called.
fn call(
    c: &mut Cursor<'_>,
    label: Option<String>,
    head: &str,
    head_at: usize,
    depth: usize,
) -> Result<Option<Syntax>, PatternError> {
    let before = c.at;
    let mut others = vec![];
    while c.eat("|") {
        c.skip();
        others.push(c.word().ok_or_else(|| c.error("expected an op behind '|'"))?.to_string());
    }
    let (optional, chain) = (c.eat("?"), c.eat("*"));
    if !c.eat("(") {
        if !others.is_empty() {
            return Err(c.error("alternatives are called: expected '('"));
        }
        c.at = before;
        return Ok(None);
    }
    let mut out = CallSyntax {
        label,
        head: head.into(),
        others,
        head_at,
        optional,
        chain,
        args: vec![],
        attrs: vec![],
        open: false,
        extras: None,
    };
    while !c.eat(")") {
        argument(c, &mut out, depth)?;
        c.skip();
        if !c.rest().starts_with(')') {
            c.expect(",")?;
        }
    }
    Ok(Some(Syntax::Call(out)))
}

fn argument(c: &mut Cursor<'_>, out: &mut CallSyntax, depth: usize) -> Result<(), PatternError> {
    c.skip();
    let at = c.at;
    let rest = c.rest();
    if rest.starts_with("..") && !rest.starts_with("...") {
        c.at += 2;
        out.open = true;
        return Ok(());
    }
    if let Some(word) = c.word() {
        if c.ellipsis() {
            out.extras = Some(word.into());
            return Ok(());
        }
        c.skip();
        if c.rest().starts_with('=') && !c.rest().starts_with("==") {
            c.at += 1;
            let value = expression(c, depth + 1)?;
            out.attrs.push((at, word.into(), value));
            return Ok(());
        }
    }
    c.at = at;
    if !out.attrs.is_empty() {
        return Err(c.error("an argument by position behind one by name"));
    }
    out.args.push(expression(c, depth + 1)?);
    Ok(())
}

fn list(c: &mut Cursor<'_>, depth: usize) -> Result<Syntax, PatternError> {
    let (mut items, mut rest) = (vec![], None);
    while !c.eat("]") {
        c.skip();
        let at = c.at;
        if let Some(word) = c.word()
            && c.ellipsis()
        {
            rest = Some(word.to_string());
            c.expect("]")?;
            break;
        }
        c.at = at;
        items.push(expression(c, depth + 1)?);
        c.skip();
        if !c.rest().starts_with(']') {
            c.expect(",")?;
        }
    }
    Ok(Syntax::List { items, rest })
}
