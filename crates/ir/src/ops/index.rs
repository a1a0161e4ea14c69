//! Elements picked by index.

use super::infer::{broadcast, ensure, same};
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Class, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::Move, levels: Levels::ALL, ..OpDef::BASE };

/// Elements at broadcast index tensors, one for each leading dimension, none for a whole one.
pub static INDEX: OpDef = OpDef {
    name: "aten.index.Tensor",
    schema: "(Tensor self, Tensor?[] indices) -> Tensor",
    infer: Some(index),
    ..BASE
};

/// [`INDEX`] with indices that are known to lie inside.
pub static UNSAFE_INDEX: OpDef = OpDef {
    name: "aten._unsafe_index.Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| vec![c.b.call("aten.index.Tensor", c.args.to_vec())]),
    example: "f32[3, 4], [i64[2]<3, i64[2]<4]",
    ..INDEX
};

fn index(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    let Arg::List(items) = c.arg("indices") else { return Err(c.err("expected a list of indices")) };
    ensure(c, items.len() <= m.shape.len(), || format!("{} indices for {:?}", items.len(), m.shape))?;
    let given: Vec<usize> = (0..items.len()).filter(|i| items[*i] != Arg::None).collect();
    let metas = c.metas("indices")?;
    ensure(c, metas.iter().all(|m| m.dtype.is_int()), || {
        "indices must be integers; masks select a size that depends on data".into()
    })?;
    let shapes: Vec<&[Dim]> = metas.iter().map(|m| m.shape.as_slice()).collect();
    let picked = broadcast(&shapes).map_err(|why| c.err(&why))?;
    let together = given.windows(2).all(|w| w[0] + 1 == w[1]);
    let rest = |range: std::ops::Range<usize>| range.filter(|i| !given.contains(i)).map(|i| m.shape[i].clone());
    let n = m.shape.len();
    let shape: Vec<Dim> = match given.first() {
        Some(&first) if together => rest(0..first).chain(picked).chain(rest(first..n)).collect(),
        _ => picked.into_iter().chain(rest(0..n)).collect(),
    };
    Ok(Meta::tensor(m.dtype, shape))
}

/// Places along one dimension.
pub static INDEX_SELECT: OpDef = OpDef {
    name: "aten.index_select.default",
    schema: "(Tensor self, int dim, Tensor index) -> Tensor",
    infer: Some(|c| {
        let (mut m, index) = (c.meta("self")?, c.meta("index")?);
        ensure(c, index.shape.len() <= 1, || format!("index of shape {:?}", index.shape))?;
        let axis = c.axis("dim", m.shape.len())?;
        if let Some(d) = m.shape.get_mut(axis) {
            *d = index.shape.first().cloned().unwrap_or(Dim::from(1i64));
        }
        Ok(Meta::Tensor(m))
    }),
    ..BASE
};

/// Elements along one dimension, each by an index of its own.
pub static GATHER: OpDef = OpDef {
    name: "aten.gather.default",
    schema: "(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        c.axis("dim", m.shape.len())?;
        Ok(Meta::tensor(m.dtype, c.meta("index")?.shape))
    }),
    ..BASE
};

/// Rows of a table.
pub static EMBEDDING: OpDef = OpDef {
    name: "aten.embedding.default",
    schema: "(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
    infer: Some(|c| {
        let (w, i) = (c.meta("weight")?, c.meta("indices")?);
        ensure(c, w.shape.len() == 2, || format!("weight of shape {:?}", w.shape))?;
        Ok(Meta::tensor(w.dtype, [i.shape, vec![w.shape[1].clone()]].concat()))
    }),
    ..BASE
};

/// Elements of `src` put where the indices say.
pub static SCATTER: OpDef = OpDef {
    name: "aten.scatter.src",
    schema: "(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
    infer: Some(same),
    ..BASE
};

/// Elements pushed along dimensions, those that leave come in at the other end.
pub static ROLL: OpDef = OpDef {
    name: "aten.roll.default",
    schema: "(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(same),
    rule: Some(|c| {
        let (mut x, shifts, dims) = (c.tensor("self"), c.ints("shifts"), c.ints("dims"));
        let shape = x.shape();
        if shape.iter().any(|d| d.is(0)) {
            return vec![x.op("aten.clone", vec![])];
        }
        if dims.is_empty() {
            let flat = x.op("aten.flatten.using_ints", vec![]);
            return vec![flat.op("aten.roll", vec![shifts.into(), vec![0i64].into()]).view(shape)];
        }
        for (shift, dim) in shifts.into_iter().zip(dims) {
            let Ok(axis) = c.wrap(dim, shape.len()) else { continue };
            let Some(n) = shape.get(axis).and_then(Dim::as_const).filter(|n| *n > 0) else {
                c.fail("a dimension of unknown size");
                return vec![x];
            };
            let start = (-shift).rem_euclid(n);
            let places = c.b.call("aten.arange.start_step", vec![0i64.into(), n.into()]);
            let places = (places + start).op("aten.fmod.Scalar", vec![n.into()]);
            x = x.op("aten.index_select", vec![dim.into(), places.into()]);
        }
        vec![x]
    }),
    ..BASE
};

/// The family.
pub static OPS: &[&OpDef] = &[&INDEX, &UNSAFE_INDEX, &INDEX_SELECT, &GATHER, &EMBEDDING, &SCATTER, &ROLL];
