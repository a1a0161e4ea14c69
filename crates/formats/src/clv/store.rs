//! From a graph to its stored form.

use super::mirror::{
    Atom, AtomMeta, Constant, Model, Section, Size, StoredArg, StoredGraph, StoredKind, StoredMeta, StoredNode,
};
use cleave_ir::{Arg, ConstKind, Dim, Graph, Kind, Meta, Tensor};
use cleave_numerics::DType;
use indexmap::{IndexMap, IndexSet};
use xxhash_rust::xxh3::xxh3_64;

/// The stored form, and the tensor whose bytes make each section.
pub(super) fn store<'g>(g: &'g Graph, extra: &IndexMap<String, String>) -> Result<(Model, Vec<&'g Tensor>), String> {
    let mut s = Store::default();
    s.graph(g)?;
    let ops = s.ops.into_iter().map(String::from).collect();
    Ok((Model { extra: pairs(extra), ops, sections: s.sections, graphs: s.graphs }, s.tensors))
}

fn pairs(m: &IndexMap<String, String>) -> Vec<(String, String)> {
    m.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// A place in memory and how its elements are read.
type Place = ((usize, usize, Vec<usize>, Vec<usize>), DType);

/// What is stored so far.
#[derive(Default)]
struct Store<'g> {
    ops: IndexSet<&'static str>,
    sections: Vec<Section>,
    graphs: Vec<StoredGraph>,
    tensors: Vec<&'g Tensor>,
    /// One section for each place in memory: tied constants share theirs.
    places: IndexMap<Place, u32>,
}

impl<'g> Store<'g> {
    /// Stores a graph behind those among its arguments; its number.
    fn graph(&mut self, g: &'g Graph) -> Result<u32, String> {
        let constants = g.constants.iter().map(|(name, t)| self.constant(name, t)).collect::<Result<_, _>>()?;
        let mut nodes = vec![];
        for (_, n) in g.nodes() {
            let constant = || number(g.constants.get_index_of(&n.target).unwrap_or(usize::MAX));
            let kind = match n.kind {
                Kind::Placeholder => StoredKind::Placeholder,
                Kind::Output => StoredKind::Output,
                Kind::GetAttr(ConstKind::Param) => StoredKind::Param(constant()?),
                Kind::GetAttr(ConstKind::Buffer) => StoredKind::Buffer(constant()?),
                Kind::GetAttr(ConstKind::Constant) => StoredKind::Constant(constant()?),
                Kind::Call(op) => StoredKind::Call(number(self.ops.insert_full(op.name).0)?),
            };
            let at = |why: String| format!("node '{}': {why}", n.name);
            let args = n.args.iter().map(|a| self.arg(a)).collect::<Result<_, _>>().map_err(at)?;
            let meta = meta(&n.meta).ok_or_else(|| at("a tuple inside a tuple cannot be stored".into()))?;
            let (name, sources, module) = (n.name.clone(), n.origin.sources.clone(), n.origin.module.clone());
            nodes.push(StoredNode { name, kind, args, meta, sources, module });
        }
        self.graphs.push(StoredGraph {
            metadata: pairs(&g.metadata),
            symbols: g.symbols.iter().map(|(s, r)| (s.clone(), r.min, r.max)).collect(),
            input_names: g.input_names.clone(),
            output_names: g.output_names.clone(),
            constants,
            nodes,
        });
        number(self.graphs.len() - 1)
    }

    fn constant(&mut self, name: &str, t: &'g Tensor) -> Result<Constant, String> {
        let key = (t.place(), t.dtype());
        let section = match self.places.get(&key) {
            Some(s) => *s,
            None => {
                let bytes = t.to_bytes();
                let offset = self.sections.last().map_or(0, |s| s.offset + s.len.next_multiple_of(super::ALIGN));
                self.sections.push(Section { offset, len: bytes.len() as u64, hash: xxh3_64(&bytes) });
                self.tensors.push(t);
                let s = number(self.tensors.len() - 1)?;
                self.places.insert(key, s);
                s
            }
        };
        let shape = t.shape().iter().map(|n| *n as u64).collect();
        Ok(Constant { name: name.into(), dtype: t.dtype(), shape, section })
    }

    fn arg(&mut self, a: &'g Arg) -> Result<StoredArg, String> {
        Ok(match a {
            Arg::List(items) => StoredArg::List(items.iter().map(|a| self.atom(a)).collect::<Result<_, _>>()?),
            one => StoredArg::One(self.atom(one)?),
        })
    }

    fn atom(&mut self, a: &'g Arg) -> Result<Atom, String> {
        Ok(match a {
            Arg::None => Atom::None,
            Arg::Node(n) => Atom::Node(number(n.index())?),
            Arg::Int(i) => Atom::Int(*i),
            Arg::Dim(d) => Atom::Dim(d.to_string()),
            Arg::Float(f) => Atom::Float(*f),
            Arg::Bool(b) => Atom::Bool(*b),
            Arg::Str(s) => Atom::Str(s.clone()),
            Arg::DType(d) => Atom::DType(*d),
            Arg::Graph(g) => Atom::Graph(self.graph(g)?),
            Arg::List(_) => return Err("a list inside a list cannot be stored".into()),
        })
    }
}

fn number(n: usize) -> Result<u32, String> {
    u32::try_from(n).map_err(|_| "more entries than can be numbered, or a constant that is missing".into())
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
