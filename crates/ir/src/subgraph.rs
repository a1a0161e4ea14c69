//! Graphs as arguments: functions of their placeholders, with symbols, constants and names of their own.
//!
//! What runs one gives it operands in the order of its placeholders; their sizes are the values of its symbols.

use crate::builder::{Builder, Value};
use crate::dim::{Bindings, Dim};
use crate::error::{IrError, Result};
use crate::graph::{Arg, Graph, Kind, Meta, NodeId};
use crate::ops::{control, structural};
use crate::transform::{Replace, bind, transform};
use indexmap::IndexMap;
use std::sync::Arc;

/// How deep graphs may stand in one another.
pub const MAX_DEPTH: usize = 16;

/// What is known of an operand.
pub fn operand_meta(b: &Builder, a: &Arg) -> Meta {
    match a {
        Arg::Node(n) => b.with_graph(|g| g.node(*n).meta.clone()),
        Arg::Int(i) => Meta::Int(Dim::from(*i)),
        Arg::Dim(d) => Meta::Int(d.clone()),
        _ => Meta::None,
    }
}

/// The caller's sizes by the symbols of a graph that is called on these operands. Symbols that are no size of an
/// operand by themselves are not among them.
pub fn sizes_of_symbols(g: &Graph, operands: &[Meta]) -> IndexMap<String, Dim> {
    let mut known = IndexMap::new();
    for (p, operand) in g.placeholders().into_iter().zip(operands) {
        for (inner, outer) in g.node(p).meta.dims().iter().zip(operand.dims()) {
            if let Some(s) = inner.as_symbol() {
                known.entry(s.to_string()).or_insert(outer);
            }
        }
    }
    known
}

/// What the placeholders of a graph that is to be called on these operands say of them: a size that is an expression
/// is a symbol of its own in there, unless its symbols are sizes by themselves.
pub fn placeholder_metas(operands: &[Meta]) -> Vec<Meta> {
    let dims: Vec<Dim> = operands.iter().flat_map(Meta::dims).collect();
    let plain: Vec<&str> = dims.iter().filter_map(Dim::as_symbol).collect();
    let mut own: IndexMap<Dim, Dim> = IndexMap::new();
    let mut inner = |d: &Dim| {
        if d.symbols().iter().all(|s| plain.contains(&s.as_str())) {
            return d.clone();
        }
        let next = own.len();
        own.entry(d.clone()).or_insert_with(|| Dim::symbol(&format!("size_{next}"))).clone()
    };
    operands.iter().map(|m| m.map_dims(&mut inner)).collect()
}

/// The graphs among a call's arguments with the sizes that its operands have as numbers.
///
/// # Errors
/// A call in such a graph that these sizes do not admit.
pub(crate) fn bind_operands(b: &Builder, args: &mut [Arg]) -> Result<()> {
    // Sizes of what a loop carries may change, so that its graphs keep their symbols.
    if args.iter().filter(|a| matches!(a, Arg::List(_))).count() > 1 {
        return Ok(());
    }
    let Some((Arg::List(operands), graphs)) = args.split_last_mut() else { return Ok(()) };
    let metas: Vec<Meta> = operands.iter().map(|a| operand_meta(b, a)).collect();
    for arg in graphs {
        if let Arg::Graph(g) = arg {
            let sizes = sizes_of_symbols(g, &metas).into_iter().filter_map(|(s, d)| Some((s, d.as_const()?)));
            *g = Arc::new(bind(g, &sizes.collect::<Bindings>())?);
        }
    }
    Ok(())
}

/// Appends a graph's nodes, its placeholders being these operands, and gives its results.
///
/// # Errors
/// A call that these operands do not admit; a result that is an operand and no node.
pub fn inline<'b>(b: &'b Builder, g: &Graph, operands: &[Arg]) -> Result<Vec<Value<'b>>> {
    let metas: Vec<Meta> = operands.iter().map(|a| operand_meta(b, a)).collect();
    let sizes = sizes_of_symbols(g, &metas);
    let lookup = |s: &str| sizes.get(s).cloned();
    let mut given = operands.iter();
    let mut map: Vec<Arg> = Vec::with_capacity(g.len());
    for (id, node) in g.nodes() {
        let args = node.args.iter().map(|a| a.map_nodes(&mut |n: NodeId| map[n.index()].clone()));
        let args: Vec<Arg> = args.map(|a| a.map_dims(&mut |d| d.substitute(&lookup))).collect();
        map.push(match node.kind {
            Kind::Placeholder => given.next().cloned().unwrap_or(Arg::None),
            Kind::Call(op) => b.call_op(op, args, Some(&node.name)).into(),
            Kind::Output => break,
            Kind::GetAttr(kind) => match g.constant(id) {
                Some(t) => b.constant(&node.target, kind, t.clone()).into(),
                None => Arg::None,
            },
        });
    }
    if let Some(e) = b.error() {
        return Err(e);
    }
    let result = |id: NodeId| match &map[id.index()] {
        Arg::Node(n) => Ok(b.value(*n)),
        other => Err(IrError::Call {
            op: "graph".into(),
            node: g.node(id).name.clone(),
            why: format!("the result is {other:?}, expected a node"),
        }),
    };
    g.results().into_iter().map(result).collect()
}

/// The graph with the branch that is taken in the place of each `cond` whose predicate is known.
///
/// # Errors
/// What copying a branch meets.
pub fn take_branches(src: &Graph) -> Result<Graph> {
    let mut g = src.map_subgraphs(&mut take_branches)?.into_owned();
    let is_cond = |n: &crate::Node| n.op().is_some_and(|o| o.name == control::COND.name);
    let mut taken = g.nodes().any(|(_, n)| is_cond(n));
    // A branch may hold a cond whose predicate is an operand.
    while taken {
        taken = false;
        g = transform(&g, |b, _, node, args| {
            let (true, Some(holds)) = (is_cond(node), args.first().and_then(|p| predicate(b, p))) else {
                return Ok(Replace::Copy);
            };
            taken = true;
            match (&args[if holds { 1 } else { 2 }], args.last()) {
                (Arg::Graph(branch), Some(Arg::List(operands))) => Ok(Replace::With(inline(b, branch, operands)?)),
                _ => Ok(Replace::Copy),
            }
        })?;
    }
    Ok(g)
}

/// The value of a predicate that does not depend on inputs.
fn predicate(b: &Builder, a: &Arg) -> Option<bool> {
    match a {
        Arg::Bool(v) => Some(*v),
        Arg::Int(i) => Some(*i != 0),
        Arg::Node(n) => b.with_graph(|g| {
            let node = g.node(*n);
            match (node.op(), node.args.as_slice()) {
                (Some(op), [Arg::Int(x), Arg::Int(y)]) => structural::condition(op.name, *x, *y),
                _ => g.constant(*n).filter(|t| t.len() == 1)?.to_f64().first().map(|v| *v != 0.0),
            }
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Levels, Tensor, text, verify::verify};

    const SRC: &str = r#"graph(%x: f32[N, 4], %p: bool[]) where 1 <= N {
  %w = param "w": f32[4]
  %cond = higher_order.cond(%p, graph(%a: f32[n, 4], %w: f32[4]) where 1 <= n {
    %mul = aten.mul.Tensor(%a, %w): f32[n, 4]
    %n_of_a = aten.sym_size.int(%a, 0): int<n>
    %view = aten.view(%mul, [%n_of_a, 2, 2]): f32[n, 2, 2]
    return %view
  }, graph(%a: f32[n, 4], %w: f32[4]) where 1 <= n {
    %view = aten.view(%a, [<n>, 2, 2]): f32[n, 2, 2]
    return %view
  }, [%x, %w]): (f32[N, 2, 2])
  %getitem = getitem(%cond, 0): f32[N, 2, 2]
  return %getitem
}
"#;

    #[test]
    fn graphs_in_arguments_are_printed_parsed_and_verified() {
        let g = text::parse(SRC).unwrap();
        assert_eq!(g.to_string(), SRC);
        verify(&g, Levels::ALL).unwrap();
        let wrong = SRC.replacen("%mul = aten.mul.Tensor(%a, %w): f32[n, 4]", "%mul = aten.relu(%w): f32[5]", 1);
        let e = text::parse(&wrong).unwrap_err().to_string();
        assert_eq!(e, "line 4, column 33: aten.relu gives f32[4], not f32[5]");
        let swapped = SRC.replacen("[%x, %w])", "[%w, %x])", 1);
        let e = text::parse(&swapped).unwrap_err().to_string();
        assert!(e.contains("operand 0: the graph takes f32[n, 4], not f32[4]"), "{e}");
        let other = SRC.replacen("%view = aten.view(%a, [<n>, 2, 2]): f32[n, 2, 2]", "%view = aten.relu(%a)", 1);
        let e = text::parse(&other).unwrap_err().to_string();
        assert!(e.contains("result 0 is f32[N, 2, 2] in one branch and f32[N, 4] in the other"), "{e}");
    }

    #[test]
    fn sizes_that_are_expressions_are_symbols_inside() {
        let n = Dim::symbol("N");
        let row = |d: Dim| Meta::tensor(cleave_numerics::DType::F32, vec![d, 4.into()]);
        let four = n.clone() * Dim::from(4);
        assert_eq!(placeholder_metas(&[row(four.clone())]), [row(Dim::symbol("size_0"))]);
        let both = [row(four.clone()), Meta::Int(n)];
        assert_eq!(placeholder_metas(&both), both);
    }

    #[test]
    fn binding_reaches_into_branches() {
        let g = text::parse(SRC).unwrap();
        let bound = bind(&g, &g.bind(&[vec![3, 4], vec![]]).unwrap()).unwrap();
        let text = bound.to_string();
        assert!(text.contains("%view = aten.view(%mul, [3, 2, 2]): f32[3, 2, 2]") && !text.contains("<n>"), "{text}");
        verify(&bound, Levels::ALL).unwrap();
    }

    #[test]
    fn a_known_predicate_takes_its_branch() {
        let src = SRC.replacen(", %p: bool[]", "", 1).replacen("%p,", "%c,", 1);
        let src = src.replacen("  %w = param", "  %c = const \"c\": bool[]\n  %w = param", 1);
        let mut g = text::parse(&src).unwrap();
        let want = |body: &str| format!("graph(%x: f32[N, 4]) where 1 <= N {{\n{body}  return %view \"getitem\"\n}}\n");
        let no = "  %view = aten.view(%x, [<N>, 2, 2]): f32[N, 2, 2]\n";
        assert_eq!(take_branches(&g).unwrap().to_string(), want(no));
        g.constants.insert("c".into(), Tensor::from_bools(&[], &[true]));
        let yes = "  %w = param \"w\": f32[4]
  %mul = aten.mul.Tensor(%x, %w): f32[N, 4]
  %n_of_a = aten.sym_size.int(%x, 0): int<N>
  %view = aten.view(%mul, [%n_of_a, 2, 2]): f32[N, 2, 2]\n";
        assert_eq!(take_branches(&g).unwrap().to_string(), want(yes));
    }

    #[test]
    fn sizes_that_are_numbers_decide_too() {
        let src = SRC.replacen(", %p: bool[]", "", 1).replacen(
            "  %cond = higher_order.cond(%p,",
            "  %n = aten.sym_size.int(%x, 0): int<N>\n  %p = _operator.gt(%n, 2): none\n  %cond = higher_order.cond(%p,",
            1,
        );
        let g = text::parse(&src).unwrap();
        assert_eq!(take_branches(&g).unwrap().op_counts().get("higher_order.cond"), Some(&1));
        for (n, muls) in [(2, None), (3, Some(&1))] {
            let bound = bind(&g, &g.bind(&[vec![n, 4]]).unwrap()).unwrap();
            let counts = take_branches(&bound).unwrap().op_counts();
            assert_eq!(counts.get("higher_order.cond"), None);
            assert_eq!(counts.get("aten.mul.Tensor"), muls);
        }
    }
}
