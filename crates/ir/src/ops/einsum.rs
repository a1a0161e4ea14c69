//! Einstein sums.

use super::infer::broadcast;
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::Arg;
use crate::op::{Accuracy, Class, OpDef};

/// Products of operands summed over the labels that the result lacks.
pub static EINSUM: OpDef = OpDef {
    name: "aten.einsum.default",
    schema: "(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
    class: Class::Strategic,
    accuracy: Accuracy::Approximate,
    rule: Some(|c| match einsum(c) {
        Ok(y) => vec![y],
        Err(why) => {
            c.fail(&why);
            vec![]
        }
    }),
    example: "\"ij,jk->ki\", [f32[2, 3], f32[3, 2]] | \"bij,bjk->bik\", [f32[2, 2, 3], f32[2, 3, 2]] | \"ij->j\", [f32[2, 3]] | \"...i,i->...\", [f32[2, 2, 3], f32[3]] | \"ij,jk,k->i\", [f32[2, 3], f32[3, 2], f32[2]] | \"ij,k->ijk\", [f32[2, 3], f32[2]]",
    ..OpDef::BASE
};

/// One place of an operand or of the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// Of the dimensions that an ellipsis stands for, the one so far from the last.
    Rest(usize),
    /// A letter.
    Letter(char),
}

/// The labels in a term of an equation; an ellipsis is for `rest` dimensions.
fn labels(term: &str, rest: usize) -> Result<Vec<Label>, String> {
    let (mut out, mut left) = (vec![], term);
    while let Some(c) = left.chars().next() {
        if let Some(more) = left.strip_prefix("...") {
            out.extend((0..rest).rev().map(Label::Rest));
            left = more;
        } else if c.is_ascii_alphabetic() {
            out.push(Label::Letter(c));
            left = &left[1..];
        } else {
            return Err(format!("'{c}' in the term '{term}'"));
        }
    }
    if term.matches("...").count() > 1 { Err(format!("two ellipses in the term '{term}'")) } else { Ok(out) }
}

/// torch's einsum: operands with a dimension for each label, multiplied two at a time; labels that no other operand
/// has are summed on the way.
fn einsum<'b>(c: &Call<'b>) -> Result<Value<'b>, String> {
    let text: String = c.str("equation").chars().filter(|c| !c.is_whitespace()).collect();
    let operands = c.tensors("tensors");
    let (left, right) = text.split_once("->").map_or((text.as_str(), None), |(l, r)| (l, Some(r)));
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != operands.len() {
        return Err(format!("'{text}' for {} operands", operands.len()));
    }
    // What an ellipsis stands for, in each operand.
    let mut rests = vec![];
    for (term, x) in terms.iter().zip(&operands) {
        let letters = labels(term, 0)?.len();
        let rest = x.rank().checked_sub(letters).filter(|n| *n == 0 || term.contains("..."));
        rests.push(rest.ok_or_else(|| format!("the term '{term}' for a tensor of rank {}", x.rank()))?);
    }
    let rest = rests.iter().copied().max().unwrap_or(0);
    let inputs = terms.iter().zip(&rests).map(|(t, n)| labels(t, *n)).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<Label> = inputs.concat();
    let mut order = match right {
        Some(r) => labels(r, rest)?,
        None => {
            let once = |l: &Label| all.iter().filter(|m| *m == l).count() == 1;
            let mut letters: Vec<Label> =
                all.iter().copied().filter(|l| matches!(l, Label::Letter(_)) && once(l)).collect();
            letters.sort_unstable();
            [(0..rest).rev().map(Label::Rest).collect(), letters].concat()
        }
    };
    let kept = order.len();
    let named = |l: &Label| all.contains(l) || matches!(l, Label::Rest(_));
    if (1..kept).any(|i| order[..i].contains(&order[i])) || !order.iter().all(named) {
        return Err(format!("'{text}' names results twice, or that no operand has"));
    }
    let mut summed: Vec<Label> = all.iter().copied().filter(|l| !order.contains(l)).collect();
    summed.sort_unstable();
    summed.dedup();
    order.extend(summed);
    let mut open = vec![];
    for (x, own) in operands.iter().zip(&inputs) {
        open.push(spread(*x, own, &order)?);
    }
    let shapes: Vec<Vec<Dim>> = open.iter().map(|x| x.shape()).collect();
    broadcast(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    contract(c, open, kept, order.len())
}

/// An operand with a dimension for every label in order, those that it lacks of size 1; a label that stands twice is
/// a diagonal.
fn spread<'b>(x: Value<'b>, own: &[Label], order: &[Label]) -> Result<Value<'b>, String> {
    let (mut x, mut have): (Value<'b>, Vec<Label>) = (x, vec![]);
    // Dimensions that the ellipses of other operands have in addition stand before its own.
    let most = order.iter().filter(|l| matches!(l, Label::Rest(_))).count();
    let rest = own.iter().filter(|l| matches!(l, Label::Rest(_))).count();
    let mut own = own.to_vec();
    if let Some(at) = own.iter().position(|l| matches!(l, Label::Rest(_))) {
        for k in rest..most {
            x = x.op("aten.unsqueeze", vec![at.into()]);
            own.insert(at, Label::Rest(k));
        }
    }
    for l in own {
        match have.iter().position(|h| *h == l) {
            Some(at) => {
                let (shape, to) = (x.shape(), have.len());
                if shape[at].as_const().zip(shape[to].as_const()).is_some_and(|(a, b)| a != b) {
                    return Err(format!("sizes {} and {} under one label", shape[at], shape[to]));
                }
                x = x.op("aten.diagonal", vec![0i64.into(), at.into(), to.into()]);
                x = x.op("aten.movedim.int", vec![(-1i64).into(), at.into()]);
            }
            None => have.push(l),
        }
    }
    for l in order {
        if !have.contains(l) {
            x = x.op("aten.unsqueeze", vec![have.len().into()]);
            have.push(*l);
        }
    }
    let at = |l: &Label| have.iter().position(|h| h == l).unwrap_or(0) as i64;
    Ok(x.permute(order.iter().map(at).collect()))
}

/// The operands multiplied, two at a time, until the dimensions from `kept` on are summed.
fn contract<'b>(c: &Call<'b>, mut open: Vec<Value<'b>>, kept: usize, rank: usize) -> Result<Value<'b>, String> {
    let several = open.len() > 1;
    let path = c.opt_ints("path");
    let mut steps = path.iter().flatten().copied();
    let mut counts: Vec<usize> = (0..rank).map(|d| open.iter().filter(|x| !x.shape()[d].is(1)).count()).collect();
    while open.len() > 1 {
        let (i, j) = match path {
            Some(_) => (steps.next().unwrap_or(-1), steps.next().unwrap_or(-1)),
            None => (0, 1),
        };
        let place = |i: i64| usize::try_from(i).ok().filter(|i| *i < open.len());
        let (Some(i), Some(j)) = (place(i.min(j)), place(i.max(j))) else {
            return Err(format!("path {path:?}"));
        };
        if i == j {
            return Err(format!("path {path:?}"));
        }
        let (mut b, mut a) = (open.remove(j), open.remove(i));
        let (mut both, mut alone) = (vec![], [vec![], vec![]]);
        for (d, count) in counts.iter_mut().enumerate().skip(kept) {
            match (!a.shape()[d].is(1), !b.shape()[d].is(1)) {
                (true, true) => {
                    *count -= 1;
                    if *count == 1 {
                        both.push(d);
                        *count = 0;
                    }
                }
                (in_a, in_b) if *count == 1 && (in_a || in_b) => {
                    alone[usize::from(in_b)].push(d);
                    *count = 0;
                }
                _ => {}
            }
        }
        let [of_a, of_b] = alone;
        for (x, dims) in [(&mut a, of_a), (&mut b, of_b)] {
            if !dims.is_empty() {
                *x = x.op("aten.sum.dim_IntList", vec![dims.into(), true.into()]);
            }
        }
        let y = pair(a, b, &both);
        open.insert(if path.is_some() { open.len() } else { 0 }, y);
    }
    let y = open.pop().ok_or("no operands")?;
    let summed: Vec<usize> = (kept..rank).collect();
    Ok(match () {
        () if summed.is_empty() => y,
        () if several => y.view(y.shape()[..kept].to_vec()),
        () => y.op("aten.sum.dim_IntList", vec![summed.into()]),
    })
}

/// torch's `sumproduct_pair`: one batched matrix product between permutations; summed dimensions stay with size 1.
fn pair<'b>(a: Value<'b>, b: Value<'b>, summed: &[usize]) -> Value<'b> {
    if summed.is_empty() {
        return a * b;
    }
    let (mut a, mut b) = (a, b);
    let (mut batch, mut left, mut right) = (vec![], vec![], vec![]);
    for i in (0..a.rank()).filter(|i| !summed.contains(i)) {
        match (!a.shape()[i].is(1), !b.shape()[i].is(1)) {
            (true, true) => batch.push(i),
            (true, false) => left.push(i),
            _ => right.push(i),
        }
    }
    // Where the right operand's dimensions come first in the result, the operands change places.
    if left.first().zip(right.last()).is_some_and(|(l, r)| r < l) {
        std::mem::swap(&mut a, &mut b);
        std::mem::swap(&mut left, &mut right);
    }
    let size = |x: Value<'b>, dims: &[usize]| -> Dim { dims.iter().map(|i| x.shape()[*i].clone()).product() };
    let order = |parts: [&[usize]; 4]| -> Vec<i64> { parts.concat().into_iter().map(|i| i as i64).collect() };
    let (n, k) = (size(a, &batch), size(a, summed));
    let (rows, columns) = (size(a, &left), size(b, &right));
    let x = reshape(a.permute(order([&batch, &left, summed, &right])), vec![n.clone(), rows, k.clone()]);
    let y = reshape(b.permute(order([&batch, summed, &right, &left])), vec![n, k, columns]);
    let laid = [batch.as_slice(), &left, summed, &right].concat();
    let sizes = laid.iter().map(|i| match () {
        () if summed.contains(i) => Dim::from(1i64),
        () if right.contains(i) => b.shape()[*i].clone(),
        () => a.shape()[*i].clone(),
    });
    let product = x.op("aten.bmm", vec![Arg::from(y)]).view(sizes.collect());
    product.permute((0..laid.len()).map(|i| laid.iter().position(|l| *l == i).unwrap_or(0) as i64).collect())
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[&EINSUM]];
