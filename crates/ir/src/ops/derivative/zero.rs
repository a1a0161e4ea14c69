//! Ops through which no gradient flows though their results are floats.

use crate::derivative::Derivative;

const STEPS: &str = "constant between its steps";
const FORM: &str = "only the shape and type of its argument count";
const CUT: &str = "made to hold gradients back";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::zero("aten.floor.default", STEPS),
    Derivative::zero("aten.ceil.default", STEPS),
    Derivative::zero("aten.round.default", STEPS),
    Derivative::zero("aten.round.decimals", STEPS),
    Derivative::zero("aten.trunc.default", STEPS),
    Derivative::zero("aten.sign.default", STEPS),
    Derivative::zero("aten.sgn.default", STEPS),
    Derivative::zero("aten.floor_divide.default", STEPS),
    Derivative::zero("aten.heaviside.default", STEPS),
    Derivative::zero("aten.nextafter.default", "torch has none: what is next is said of bits"),
    Derivative::zero("aten.full_like.default", FORM),
    Derivative::zero("aten.empty_like.default", FORM),
    Derivative::zero("aten.new_empty.default", FORM),
    Derivative::zero("aten.rand_like.default", FORM),
    Derivative::zero("aten.randn_like.default", FORM),
    Derivative::zero("aten.detach.default", CUT),
];
