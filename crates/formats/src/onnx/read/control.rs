//! Control flow: If, Loop and Scan. What is decided while the model is read is read as it is then; the rest becomes
//! torch's `cond`, `while_loop` and `scan`.

use super::host::{Host, Known};
use super::node::{Ctx, Map, Step, axis_of, dim_of};
use crate::onnx::proto::GraphProto;
use cleave_ir::{Arg, Dim, Graph, Meta, Tensor, Value};
use cleave_numerics::DType;
use std::sync::Arc;

pub(super) const OPS: &[(&str, Map)] = &[("If", choose), ("Loop", repeat), ("Scan", scan)];

/// The most steps of a loop that is read step by step, and nodes that these come to.
const UNROLLED: i64 = 64;
const UNROLLED_NODES: usize = 4096;
/// How often the sizes of what a loop carries are revised.
const REVISIONS: usize = 8;

fn graph(g: Graph) -> Arg {
    Arg::Graph(Arc::new(g))
}

fn choose<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (yes, no) = (c.graph("then_branch")?, c.graph("else_branch")?);
    let holds = |t: Tensor| t.to_f64().first().is_some_and(|v| *v != 0.0);
    if let Some(t) = c.scope.constant(c.known(0)?)? {
        return c.scope.inline(if holds(t) { yes } else { no }, vec![]);
    }
    match cond(c, yes, no) {
        // Branches of different types or ranks are no cond: one of them must be known to be taken.
        Err(why) => match c.settled(0)? {
            Some(t) => c.scope.inline(if holds(t) { yes } else { no }, vec![]),
            None => {
                c.scope.env.sized.set(true);
                Err(why)
            }
        },
        done => done,
    }
}

fn cond<'b>(c: &Ctx<'b, '_>, yes: &GraphProto, no: &GraphProto) -> Step<Vec<Known<'b>>> {
    let capture = c.scope.capture(&[yes, no], &[], &[]);
    let read = |g| c.scope.carried(g, &capture, &[], &|results, _| Ok(results));
    let (yes, no) = (read(yes)?, read(no)?);
    let count = yes.results().len();
    let args = vec![c.value(0)?.into(), graph(yes), graph(no), capture.args.into()];
    // What the branches do not have in common is told before anything is built.
    let op = cleave_ir::op::find("higher_order.cond").map_err(|e| e.to_string())?;
    c.b.resolve(op, args.clone(), &c.name).map_err(|e| e.to_string())?;
    let all = c.call("higher_order.cond", args);
    Ok((0..count).map(|i| Known::Value(c.b.getitem(all, i))).collect())
}

/// A loop's body, and what goes into it.
struct Loop<'b, 'm> {
    body: &'m GraphProto,
    trips: Option<Known<'b>>,
    keep: Option<Known<'b>>,
    init: Vec<Known<'b>>,
}

fn repeat<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let init = (2..c.len()).map(|i| c.known(i).cloned()).collect::<Step<Vec<_>>>()?;
    let l = Loop { body: c.graph("body")?, trips: c.opt(0).cloned(), keep: c.opt(1).cloned(), init };
    if l.body.input.len() != l.init.len() + 2 || l.body.output.len() <= l.init.len() {
        return Err(format!("a body of {} inputs and {} outputs", l.body.input.len(), l.body.output.len()));
    }
    let number = |k: &Option<Known<'b>>| -> Step<Option<i64>> {
        let t = k.as_ref().map(|k| c.scope.constant(k)).transpose()?.flatten();
        Ok(t.and_then(|t| t.to_i64().first().copied()))
    };
    let trips = number(&l.trips)?;
    let starts = l.keep.is_none() || number(&l.keep)?.is_some_and(|k| k != 0);
    let small =
        |n: i64| n <= UNROLLED && l.body.node.len().saturating_mul(n.max(0).unsigned_abs() as usize) <= UNROLLED_NODES;
    if let Some(n) = trips.filter(|n| starts && small(*n))
        && let Some(done) = unrolled(c, &l, n)?
    {
        return Ok(done);
    }
    match while_loop(c, &l) {
        // A loop that cannot be carried may be one whose steps can be told.
        Err(why) => {
            c.settled(0)?;
            c.settled(1)?;
            Err(why)
        }
        done => done,
    }
}

/// The loop step by step; none if a condition is not known.
fn unrolled<'b>(c: &Ctx<'b, '_>, l: &Loop<'b, '_>, trips: i64) -> Step<Option<Vec<Known<'b>>>> {
    let mut carried = l.init.clone();
    let mut outs: Vec<Vec<Value<'b>>> = vec![vec![]; l.body.output.len() - 1 - carried.len()];
    for i in 0..trips {
        let head = [Tensor::scalar(i), Tensor::from_bools(&[], &[true])];
        let head = head.into_iter().map(|t| Known::Host(Host::tensor("", t)));
        let results = c.scope.inline(l.body, head.chain(carried.clone()).collect())?;
        let (keep, rest) = results.split_first().ok_or("a body without outputs")?;
        let Some(keep) = c.scope.constant(keep)? else { return Ok(None) };
        let (next, new) = rest.split_at(carried.len());
        outs.iter_mut().zip(new).for_each(|(all, k)| all.push(c.node_of(k)));
        carried = next.to_vec();
        if keep.to_i64().first() == Some(&0) {
            break;
        }
    }
    if outs.iter().any(Vec::is_empty) {
        return Ok(None);
    }
    let stack = |all: Vec<Value<'b>>| Known::Value(c.b.call("aten.stack", vec![all.into(), 0i64.into()]));
    Ok(Some(carried.into_iter().chain(outs.into_iter().map(stack)).collect()))
}

/// The sizes of operands that are to be symbols because a step changes them.
fn revised(c: &Ctx<'_, '_>, formal: &mut Meta, after: &Meta, made: &mut usize) -> Step<bool> {
    let (Some(f), Some(a)) = (formal.as_tensor(), after.as_tensor()) else {
        return Err(format!("a carried value that is {formal:?} and becomes {after:?}"));
    };
    if f.dtype != a.dtype || f.shape.len() != a.shape.len() {
        return Err(format!("a carried value that is {}{:?} and becomes {}{:?}", f.dtype, f.shape, a.dtype, a.shape));
    }
    let mut changed = false;
    let mut size = |(x, y): (&Dim, &Dim)| {
        // A symbol of the loop's own may be anything.
        if x == y || x.as_symbol().is_some_and(|s| s.starts_with("step_")) {
            return x.clone();
        }
        changed = true;
        loop {
            let name = format!("step_{made}");
            *made += 1;
            if !c.b.with_graph(|g| g.symbols.contains_key(&name)) {
                return Dim::symbol(&name);
            }
        }
    };
    let shape = f.shape.iter().zip(&a.shape).map(&mut size).collect();
    *formal = Meta::tensor(f.dtype, shape);
    Ok(changed)
}

fn metas(g: &Graph) -> Vec<Meta> {
    g.results().into_iter().map(|r| g.node(r).meta.clone()).collect()
}

fn while_loop<'b>(c: &Ctx<'b, '_>, l: &Loop<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (count, outs) = (l.init.len(), l.body.output.len() - 1 - l.init.len());
    let init: Vec<Value<'b>> = l.init.iter().map(|k| c.node_of(k)).collect();
    let names: Vec<&str> = l.body.input.iter().map(|v| v.name.as_str()).collect();
    let (long, truth) = (Meta::tensor(DType::I64, vec![]), Meta::tensor(DType::Bool, vec![]));
    let mut formal: Vec<Meta> = init.iter().map(|v| v.meta()).collect();
    let mut made = 0;
    let mut stacks = None;
    for _ in 0..REVISIONS {
        let own = [&[long.clone(), truth.clone()], formal.as_slice()].concat();
        let capture = c.scope.capture(&[l.body], &names, &own);
        let operands: Vec<(&str, Meta)> = names.iter().copied().zip(own).collect();
        let after = metas(&c.scope.carried(l.body, &capture, &operands, &|r, _| Ok(r))?);
        let mut changed = false;
        for (f, a) in formal.iter_mut().zip(&after[1..=count]) {
            changed |= revised(c, f, a, &mut made)?;
        }
        if !changed {
            stacks = Some(after[1 + count..].to_vec());
            break;
        }
    }
    let stacks = stacks.ok_or("the sizes of what the loop carries do not settle")?;
    // Results of all steps are carried as stacks that grow.
    let mut empty = vec![];
    for s in &stacks {
        let t = s.as_tensor().ok_or("a result that is no tensor")?;
        if t.shape.iter().any(|d| d.as_const().is_none()) {
            return Err(format!(
                "results of each step of sizes {:?}, which only running tells, are not supported",
                t.shape
            ));
        }
        let shape = [vec![Dim::from(0)], t.shape.clone()].concat();
        empty.push(c.b.call("aten.full", vec![shape.into(), 0i64.into(), t.dtype.into()]));
    }
    let mut grown: Vec<Meta> = vec![];
    for v in &empty {
        let mut m = v.meta();
        let longer = m.map_dims(&mut |d| if d.is(0) { Dim::from(1) } else { d.clone() });
        revised(c, &mut m, &longer, &mut made)?;
        grown.push(m);
    }
    let stack_names: Vec<String> = (0..outs).map(|i| format!("stack_{i}")).collect();
    let all_names: Vec<&str> =
        names.iter().copied().chain(["trip_count"]).chain(stack_names.iter().map(String::as_str)).collect();
    let own = [&[long.clone(), truth][..], &formal, &[long], &grown].concat();
    let capture = c.scope.capture(&[l.body], &all_names, &own);
    let operands: Vec<(&str, Meta)> = all_names.iter().copied().zip(own).collect();
    let body = c.scope.carried(l.body, &capture, &operands, &|results, own| {
        let (i, trips, stacks) = (own[0], own[2 + count], &own[3 + count..]);
        let next = i + 1i64;
        let keep = results[0].op("aten.reshape", vec![Vec::<i64>::new().into()]);
        let keep = keep.op("aten.logical_and", vec![next.op("aten.lt.Tensor", vec![trips.into()]).into()]);
        let grow = |(s, v): (&Value<'_>, &Value<'_>)| -> Arg {
            let row = v.op("aten.unsqueeze", vec![0i64.into()]);
            vec![Arg::from(*s), row.into()].into()
        };
        let lists: Vec<Arg> = stacks.iter().zip(&results[1 + count..]).map(grow).collect();
        let b = i.builder();
        let grown = lists.into_iter().map(|l| b.call("aten.cat", vec![l, 0i64.into()]));
        let states = results[1..=count].to_vec();
        Ok([vec![next, keep], states, vec![trips.op("aten.alias", vec![])], grown.collect()].concat())
    })?;
    let nothing = GraphProto { output: vec![], ..GraphProto::default() };
    let cond = c.scope.carried(&nothing, &capture, &operands, &|_, own| Ok(vec![own[1].op("aten.alias", vec![])]))?;
    let scalar = |k: &Known<'b>| c.node_of(k).op("aten.reshape", vec![Vec::<i64>::new().into()]);
    let number = |name: &str, t: Tensor| c.node_of(&Known::Host(Host::tensor(&format!("{}.{name}", c.name), t)));
    let trips = l.trips.as_ref().map_or_else(|| number("trips", Tensor::scalar(i64::MAX)), scalar);
    let start = number("start", Tensor::scalar(0i64));
    let any = start.op("aten.lt.Tensor", vec![trips.into()]);
    let keep = l.keep.as_ref().map_or(any, |k| scalar(k).op("aten.logical_and", vec![any.into()]));
    let carried = [vec![start, keep], init, vec![trips], empty].concat();
    let args = vec![graph(cond), graph(body), carried.into(), capture.args.into()];
    let all = c.call("higher_order.while_loop", args);
    let wanted = (2..2 + count).chain(3 + count..3 + count + outs);
    Ok(wanted.map(|i| Known::Value(c.b.getitem(all, i))).collect())
}

/// How a scan goes along one of its operands or results.
fn axes(c: &Ctx<'_, '_>, what: &str, count: usize) -> Step<Vec<(i64, bool)>> {
    let axes = c.opt_list(&format!("scan_{what}_axes"))?.unwrap_or(vec![0; count]);
    let ways = c.opt_list(&format!("scan_{what}_directions"))?.unwrap_or(vec![0; count]);
    if axes.len() != count || ways.len() != count {
        return Err(format!("{} axes and {} directions for {count} {what}s", axes.len(), ways.len()));
    }
    Ok(axes.into_iter().zip(ways).map(|(a, w)| (a, w != 0)).collect())
}

fn moved<'b>(x: Value<'b>, from: usize, to: usize) -> Value<'b> {
    if from == to { x } else { x.op("aten.movedim.int", vec![from.into(), to.into()]) }
}

fn scan<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let body = c.graph("body")?;
    if c.opset < 9 {
        return Err("Scan over a batch, of operator set 8, is not supported".into());
    }
    let slices = c.opt_int("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok());
    let slices =
        slices.filter(|n| (1..=c.len()).contains(n)).ok_or("attribute 'num_scan_inputs' is missing or wrong")?;
    let states = c.len() - slices;
    if body.input.len() != c.len() || body.output.len() < states {
        return Err(format!("a body of {} inputs and {} outputs", body.input.len(), body.output.len()));
    }
    let outs = body.output.len() - states;
    let mut xs = vec![];
    for (i, (axis, back)) in axes(c, "input", slices)?.into_iter().enumerate() {
        let x = c.value(states + i)?;
        let x = moved(x, axis_of(axis, x.rank())?, 0);
        xs.push(if back { x.op("aten.flip", vec![vec![0i64].into()]) } else { x });
    }
    let init: Vec<Known<'b>> = (0..states).map(|i| c.known(i).cloned()).collect::<Step<_>>()?;
    let length = dim_of(xs[0], 0);
    let small = |n: &i64| (1..=UNROLLED).contains(n) && body.node.len() * n.unsigned_abs() as usize <= UNROLLED_NODES;
    let (done, stacked) = match length.as_const().filter(small) {
        Some(n) => steps(c, body, init, &xs, n)?,
        None => scan_op(c, body, init, &xs)?,
    };
    let mut results: Vec<Known<'b>> = done;
    for ((axis, back), y) in axes(c, "output", outs)?.into_iter().zip(stacked) {
        let y = if back { y.op("aten.flip", vec![vec![0i64].into()]) } else { y };
        results.push(Known::Value(moved(y, 0, axis_of(axis, y.rank())?)));
    }
    Ok(results)
}

/// Final states and stacked results.
type Scanned<'b> = (Vec<Known<'b>>, Vec<Value<'b>>);

fn steps<'b>(c: &Ctx<'b, '_>, body: &GraphProto, init: Vec<Known<'b>>, xs: &[Value<'b>], n: i64) -> Step<Scanned<'b>> {
    let mut states = init;
    let mut outs: Vec<Vec<Value<'b>>> = vec![vec![]; body.output.len() - states.len()];
    for t in 0..n {
        let slices = xs.iter().map(|x| Known::Value(x.op("aten.select.int", vec![0i64.into(), t.into()])));
        let results = c.scope.inline(body, states.iter().cloned().chain(slices).collect())?;
        let (next, new) = results.split_at(states.len());
        outs.iter_mut().zip(new).for_each(|(all, k)| all.push(c.node_of(k)));
        states = next.to_vec();
    }
    let stack = |all: Vec<Value<'b>>| c.b.call("aten.stack", vec![all.into(), 0i64.into()]);
    Ok((states, outs.into_iter().map(stack).collect()))
}

fn scan_op<'b>(c: &Ctx<'b, '_>, body: &GraphProto, init: Vec<Known<'b>>, xs: &[Value<'b>]) -> Step<Scanned<'b>> {
    let init: Vec<Value<'b>> = init.iter().map(|k| c.node_of(k)).collect();
    let slice = |x: &Value<'b>| Meta::tensor(x.dtype(), x.shape().into_iter().skip(1).collect());
    let own: Vec<Meta> = init.iter().map(|v| v.meta()).chain(xs.iter().map(slice)).collect();
    let names: Vec<&str> = body.input.iter().map(|v| v.name.as_str()).collect();
    let capture = c.scope.capture(&[body], &names, &own);
    let operands: Vec<(&str, Meta)> = names.into_iter().zip(own).collect();
    let g = c.scope.carried(body, &capture, &operands, &|r, _| Ok(r))?;
    let (count, states) = (g.results().len(), init.len());
    let args = vec![graph(g), init.into(), xs.to_vec().into(), capture.args.into()];
    let all = c.call("higher_order.scan", args);
    let item = |i| c.b.getitem(all, i);
    Ok(((0..states).map(|i| Known::Value(item(i))).collect(), (states..count).map(item).collect()))
}
