//! From a graph to its stored form.

use super::mirror::{Atom, AtomMeta, Constant, Model, Section, Size, StoredArg, StoredKind, StoredMeta, StoredNode};
use cleave_ir::{Arg, ConstKind, Dim, Graph, Kind, Meta, Tensor};
use indexmap::{IndexMap, IndexSet};
use xxhash_rust::xxh3::xxh3_64;

/// The stored form, and the tensor whose bytes make each section.
pub(super) fn store<'g>(g: &'g Graph, extra: &IndexMap<String, String>) -> Result<(Model, Vec<&'g Tensor>), String> {
    let pairs = |m: &IndexMap<String, String>| m.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut model = Model {
        extra: pairs(extra),
        metadata: pairs(&g.metadata),
        symbols: g.symbols.iter().map(|(s, r)| (s.clone(), r.min, r.max)).collect(),
        input_names: g.input_names.clone(),
        output_names: g.output_names.clone(),
        ops: vec![],
        constants: vec![],
        sections: vec![],
        nodes: vec![],
    };
    let tensors = constants(g, &mut model)?;
    let mut ops: IndexSet<&'static str> = IndexSet::new();
    for (_, n) in g.nodes() {
        let constant = || number(g.constants.get_index_of(&n.target).unwrap_or(usize::MAX));
        let kind = match n.kind {
            Kind::Placeholder => StoredKind::Placeholder,
            Kind::Output => StoredKind::Output,
            Kind::GetAttr(ConstKind::Param) => StoredKind::Param(constant()?),
            Kind::GetAttr(ConstKind::Buffer) => StoredKind::Buffer(constant()?),
            Kind::GetAttr(ConstKind::Constant) => StoredKind::Constant(constant()?),
            Kind::Call(op) => StoredKind::Call(number(ops.insert_full(op.name).0)?),
        };
        let at = |why: &str| format!("node '{}': {why}", n.name);
        let args =
            n.args.iter().map(arg).collect::<Option<_>>().ok_or_else(|| at("a list inside a list cannot be stored"))?;
        let meta = meta(&n.meta).ok_or_else(|| at("a tuple inside a tuple cannot be stored"))?;
        let (name, sources, module) = (n.name.clone(), n.origin.sources.clone(), n.origin.module.clone());
        model.nodes.push(StoredNode { name, kind, args, meta, sources, module });
    }
    model.ops = ops.into_iter().map(String::from).collect();
    Ok((model, tensors))
}

/// One section for each place in memory: tied constants share theirs.
fn constants<'g>(g: &'g Graph, model: &mut Model) -> Result<Vec<&'g Tensor>, String> {
    let mut places = IndexMap::new();
    let mut tensors = vec![];
    let mut offset = 0u64;
    for (name, t) in &g.constants {
        let key = (t.place(), t.dtype());
        let section = match places.get(&key) {
            Some(s) => *s,
            None => {
                let bytes = t.to_bytes();
                let len = bytes.len() as u64;
                model.sections.push(Section { offset, len, hash: xxh3_64(&bytes) });
                offset += len.next_multiple_of(super::ALIGN);
                tensors.push(t);
                let s = number(tensors.len() - 1)?;
                places.insert(key, s);
                s
            }
        };
        let shape = t.shape().iter().map(|n| *n as u64).collect();
        model.constants.push(Constant { name: name.clone(), dtype: t.dtype(), shape, section });
    }
    Ok(tensors)
}

fn number(n: usize) -> Result<u32, String> {
    u32::try_from(n).map_err(|_| "more entries than can be numbered, or a constant that is missing".into())
}

fn arg(a: &Arg) -> Option<StoredArg> {
    match a {
        Arg::List(items) => Some(StoredArg::List(items.iter().map(atom).collect::<Option<_>>()?)),
        one => Some(StoredArg::One(atom(one)?)),
    }
}

fn atom(a: &Arg) -> Option<Atom> {
    Some(match a {
        Arg::None => Atom::None,
        Arg::Node(n) => Atom::Node(u32::try_from(n.index()).ok()?),
        Arg::Int(i) => Atom::Int(*i),
        Arg::Dim(d) => Atom::Dim(d.to_string()),
        Arg::Float(f) => Atom::Float(*f),
        Arg::Bool(b) => Atom::Bool(*b),
        Arg::Str(s) => Atom::Str(s.clone()),
        Arg::DType(d) => Atom::DType(*d),
        Arg::List(_) => return None,
    })
}

fn meta(m: &Meta) -> Option<StoredMeta> {
    Some(match m {
        Meta::None => StoredMeta::None,
        Meta::Tuple(items) => StoredMeta::Tuple(items.iter().map(atom_meta).collect::<Option<_>>()?),
        one => StoredMeta::One(atom_meta(one)?),
    })
}

fn atom_meta(m: &Meta) -> Option<AtomMeta> {
    Some(match m {
        Meta::None => AtomMeta::None,
        Meta::Tensor(t) => AtomMeta::Tensor(t.dtype, t.shape.iter().map(size).collect()),
        Meta::Int(d) => AtomMeta::Int(size(d)),
        Meta::Tuple(_) => return None,
    })
}

fn size(d: &Dim) -> Size {
    d.as_const().map_or_else(|| Size::Expression(d.to_string()), Size::Number)
}
