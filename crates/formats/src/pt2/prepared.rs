//! Calls that observe a value and then fake-quantize it: what preparing a program for quantization leaves in it.
//!
//! With its observer switched off such a call is the latter alone, and is read so. With it on, the scale would follow
//! every input.

use super::schema::{InputJson, NodeJson};

/// The ops. All take the same arguments; some give more results than what they make of `self`.
const OPS: [&str; 3] = [
    "aten.fused_moving_avg_obs_fake_quant.default",
    "aten._fused_moving_avg_obs_fq_helper.default",
    "aten._fused_moving_avg_obs_fq_helper_functional.default",
];

/// The arguments that the last of them gives back behind value and mask.
pub(super) const GIVEN_BACK: [&str; 4] = ["running_min", "running_max", "scale", "zero_point"];

pub(super) fn observes(op: &str) -> bool {
    OPS.contains(&op)
}

/// An argument by name.
pub(super) fn input<'n>(n: &'n NodeJson, name: &str) -> Result<&'n InputJson, String> {
    n.inputs.iter().find(|i| i.name == name).ok_or_else(|| format!("argument '{name}' is missing"))
}

/// The call of a plain op that a node is whose observer is off; none if it gives its input. `on` tells a switch that is
/// a constant.
pub(super) fn plain(
    n: &NodeJson,
    on: impl Fn(&InputJson) -> Result<Option<bool>, String>,
) -> Result<Option<NodeJson>, String> {
    let switch = |name: &str| on(input(n, name)?)?.ok_or_else(|| format!("argument '{name}': expected a constant"));
    if switch("observer_on")? {
        return Err("its observer is on, so that its scale would follow every input; convert the program with \
                    convert_pt2e before export, or switch observers off with disable_observer"
            .into());
    }
    if !switch("fake_quant_on")? {
        return Ok(None);
    }
    let rows = n.inputs.iter().find(|i| i.name == "per_row_fake_quant");
    let channels = rows.is_some_and(|i| i.arg.get("as_bool").is_some_and(|v| v == true));
    let (form, more) = match channels {
        true => ("per_channel_affine.default", vec![("ch_axis", "axis")]),
        false => ("per_tensor_affine.tensor_qparams", vec![]),
    };
    let same = ["self", "scale", "zero_point", "quant_min", "quant_max"].map(|name| (name, name));
    let inputs = same.into_iter().chain(more).map(|(from, to)| {
        let arg = input(n, from)?.arg.clone();
        Ok(InputJson { name: to.into(), arg })
    });
    Ok(Some(NodeJson {
        target: format!("torch.ops.aten.fake_quantize_{form}"),
        inputs: inputs.collect::<Result<_, String>>()?,
        outputs: n.outputs.iter().take(1).cloned().collect(),
        metadata: Default::default(),
        name: n.name.clone(),
    }))
}
