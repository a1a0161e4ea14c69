//! What calibrated numbers decide: qparams of the groups, and units that must stay float after all.

use crate::calibrate::Observed;
use crate::mask::{self, BEFORE_SOFTMAX, SENTINEL};
use crate::prepare::{GroupId, Prepared};
use crate::spec::{Scheme, SpecId};
use crate::weights;
use cleave_ir::{Class, NodeId};
use cleave_numerics::{DType, QParams};
use half::f16;

/// Qparams of the groups, and which units stay.
pub(crate) struct Settled {
    /// For each group.
    pub qparams: Vec<Option<QParams>>,
    /// For each unit: why it stays float, if it does.
    pub dropped: Vec<Option<String>>,
    /// For each unit: how its result is quantized, if it is.
    pub outputs: Vec<Option<SpecId>>,
}

/// Settles a prepared graph.
pub(crate) fn settle(p: &Prepared, observed: &[Observed]) -> Settled {
    let masked = mask::before_softmax(&p.graph);
    let judged: Vec<Result<QParams, String>> = (0..p.groups.len()).map(|g| judge(p, observed, &masked, g)).collect();
    let mut dropped: Vec<Option<String>> = vec![None; p.units.len()];
    for (u, why) in p.units.iter().zip(&mut dropped) {
        let sites = u.inputs.iter().map(|i| (i.value, i.spec)).chain(u.output.map(|o| (u.root, o)));
        *why = sites.filter_map(|s| p.sites.get(&s)).find_map(|g| judged[*g].as_ref().err().cloned());
    }
    unfed(p, &mut dropped);
    let outputs = outputs(p, &mut dropped);
    Settled { outputs, qparams: judged.into_iter().map(Result::ok).collect(), dropped }
}

/// How results are quantized: not where only excluded nodes read them, and, if the quantizer likes it so, not
/// where no quantized unit does. Views of such results move floats just as well and are dropped.
fn outputs(p: &Prepared, dropped: &mut [Option<String>]) -> Vec<Option<SpecId>> {
    let mut outputs = vec![None; p.units.len()];
    let mut read = vec![false; p.graph.len()];
    // Units stand in order of their roots, so backwards every reader comes before what it reads.
    for (n, u) in p.units.iter().enumerate().rev() {
        if dropped[n].is_some() {
            continue;
        }
        let users = p.graph.users(u.root);
        let excluded = !users.is_empty() && users.iter().all(|id| p.excluded.contains(id));
        let unread = (p.unread_float || u.unread_float) && !read[u.root.index()];
        let view = u.nodes.len() == 1 && p.graph.node(u.root).op().is_some_and(|o| o.class == Class::View);
        if unread && view && u.follows {
            dropped[n] = Some("no quantized unit reads its result".into());
            continue;
        }
        outputs[n] = u.output.filter(|_| !excluded && !unread);
        // Levels that are computed as the model runs are computed of floats.
        let own = |s: SpecId| matches!(p.specs[s].scheme, Scheme::Dynamic(_));
        u.inputs.iter().filter(|i| !own(i.spec)).for_each(|i| read[i.value.index()] = true);
    }
    outputs
}

fn judge(p: &Prepared, observed: &[Observed], masked: &[bool], id: GroupId) -> Result<QParams, String> {
    let group = &p.groups[id];
    let spec = &p.specs[group.spec];
    if let Scheme::Fixed { scale, zero_point } = spec.scheme {
        return Ok(QParams { scale, zero_point });
    }
    let name = group.values.first().map_or("", |v| p.graph.node(*v).name.as_str());
    let Observed { observer, left_out, .. } = &observed[id];
    if spec.scheme == Scheme::Cast && !spec.watched() {
        return Ok(CAST);
    }
    let before_softmax = group.values.iter().any(|v| masked[v.index()]);
    if before_softmax && *left_out > 0 {
        return Err(format!("{name} holds -inf before a softmax: a mask, not an activation"));
    }
    let (min, max) = observer.extrema().ok_or_else(|| format!("{name} was never observed"))?;
    if spec.scheme == Scheme::Cast {
        return cast(p, id, min, max).map_err(|why| format!("{name} {why}"));
    }
    if min == 0.0 && max == 0.0 {
        return Err(format!("dead tensor: {name} is always 0 in calibration"));
    }
    if min < -SENTINEL || max > SENTINEL {
        return Err(format!("{name} reaches {}: a mask, not an activation", if -min > max { min } else { max }));
    }
    if before_softmax && min < BEFORE_SOFTMAX {
        return Err(format!("{name} reaches {min} before a softmax: a mask, not an activation"));
    }
    let dtype = group.values.first().and_then(|v| p.graph.node(*v).meta.as_tensor()).map_or(DType::F32, |t| t.dtype);
    let q = observer.qparams(spec).ok_or_else(|| format!("{name} was never observed"))?;
    Ok(QParams { scale: weights::in_type(q.scale, dtype), ..q })
}

/// What stands for the qparams of values that are cast.
const CAST: QParams = QParams { scale: 1.0, zero_point: 0 };

/// The share of a constant's values, but for zeros, that may be less than f16 holds at its full precision.
const SMALL: f32 = 0.25;

/// Whether a group's values may be cast, of the range that was seen; else why not.
pub(crate) fn cast(p: &Prepared, id: GroupId, min: f32, max: f32) -> Result<QParams, String> {
    let group = &p.groups[id];
    if p.specs[group.spec].range.dtype != DType::F16 {
        return Ok(CAST);
    }
    let far = if -min > max { min } else { max };
    if !f16::from_f32(far).is_finite() {
        return Err(format!("reaches {far}, which f16 does not hold"));
    }
    for t in group.values.iter().filter_map(|v| p.graph.constant(*v)) {
        let least = f16::MIN_POSITIVE.to_f32();
        let (mut all, mut small) = (0u32, 0u32);
        for v in t.to_f32().iter().filter(|v| **v != 0.0) {
            all += 1;
            small += u32::from(v.abs() < least);
        }
        if small as f32 > SMALL * all as f32 {
            let share = 100.0 * small as f32 / all as f32;
            return Err(format!("has {share:.0} % of its values below {least:.1e}, where f16 loses digits or all"));
        }
    }
    Ok(CAST)
}

/// Drops units that follow others whose inputs no longer come from quantized units.
fn unfed(p: &Prepared, dropped: &mut [Option<String>]) {
    let mut fed = vec![false; p.graph.len()];
    for (u, why) in p.units.iter().zip(dropped) {
        let starved = u.inputs.iter().find(|i| !fed[i.value.index()] && p.graph.constant(i.value).is_none());
        if let (true, Some(i), None) = (u.follows, starved, why.as_ref()) {
            *why = Some(format!("{} comes from {}, which is not quantized", i.capture, name(p, i.value)));
        }
        fed[u.root.index()] = why.is_none();
    }
}

fn name(p: &Prepared, id: NodeId) -> &str {
    &p.graph.node(id).name
}
