//! Losses: the distance of a prediction from its target, reduced as asked (0: not at all, 1: mean, 2: sum).

use super::expr::{choose, compare, elementwise, log, log1p, minus, neg, scalar};
use super::promote::{self, Kind};
use crate::builder::{Call, Value};
use crate::graph::Arg;
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};

const BASE: OpDef = OpDef {
    class: Class::Reduction,
    levels: Levels::TORCH.and(Levels::ATEN),
    schema: "(Tensor self, Tensor target, int reduction=1) -> Tensor",
    accuracy: Accuracy::Approximate,
    example: "f32[2, 3], f32[2, 3] | f32[2], f32[2], 0 | f32[2], f32[2], 2",
    ..OpDef::BASE
};

records! { ELEMENTWISE:
    /// `|x - y|`.
    L1 = "aten.l1_loss.default", BASE { rule: Some(|c| reduced(c, (c.tensor("self") - c.tensor("target")).abs())) };
    /// `(x - y)²`.
    MSE = "aten.mse_loss.default", BASE {
        rule: Some(|c| apart(c, |d| d.op("aten.pow.Tensor_Scalar", vec![2i64.into()]))),
    };
    /// `(x - y)² / 2·beta` below `beta`, `|x - y| - beta/2` above.
    SMOOTH_L1 = "aten.smooth_l1_loss.default", BASE {
        schema: "(Tensor self, Tensor target, int reduction=1, float beta=1.0) -> Tensor",
        rule: Some(|c| {
            let beta = c.float("beta");
            apart(c, |d| {
                let d = d.abs();
                let near = d.op("aten.pow.Tensor_Scalar", vec![2i64.into()]) * 0.5 / beta;
                choose(compare(d, "lt", beta), near, d - 0.5 * beta)
            })
        }),
        example: "f32[2, 3], f32[2, 3] | f32[2], f32[2], 0, 0.5",
    };
    /// `(x - y)² / 2` below `delta`, `delta·(|x - y| - delta/2)` above.
    HUBER = "aten.huber_loss.default", BASE {
        schema: "(Tensor self, Tensor target, int reduction=1, float delta=1.0) -> Tensor",
        rule: Some(|c| {
            let delta = c.float("delta");
            if delta <= 0.0 {
                c.fail("delta must be positive");
            }
            apart(c, |d| {
                let d = d.abs();
                choose(compare(d, "lt", delta), d * 0.5 * d, (d - 0.5 * delta) * delta)
            })
        }),
        example: "f32[2, 3], f32[2, 3] | f32[2], f32[2], 0, 0.5",
    };
    /// `log(1 + exp(-y·x))`.
    SOFT_MARGIN = "aten.soft_margin_loss.default", BASE {
        rule: Some(|c| {
            elementwise(c, ["self", "target"], Kind::Default, |[x, y]| reduce(c, log1p((neg(x) * y).exp())))
        }),
    };
    /// `-(y·log(x) + (1 - y)·log(1 - x))`, the logarithms held above -100.
    BINARY_CROSS_ENTROPY = "aten.binary_cross_entropy.default", BASE {
        schema: "(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor",
        rule: Some(|c| {
            let mut names = vec!["self", "target"];
            names.extend(c.opt_tensor("weight").map(|_| "weight"));
            let (t, types) = promote::tensors(c, &names, Kind::Default);
            let (x, y) = (t[0], t[1]);
            let least = || c.b.call("aten.full", vec![Arg::List(vec![]), (-100i64).into(), x.dtype().into()]);
            let off = (y - 1i64) * log1p(neg(x)).op("aten.maximum", vec![least().into()]);
            let loss = off - y * log(x).op("aten.maximum", vec![least().into()]);
            vec![reduce(c, t.get(2).map_or(loss, |w| loss * *w)).to(types.result)]
        }),
        example: "f32[2, 3]>0<1, f32[2, 3] | f32[2]>0<1, f32[2], f32[2], 0",
    };
    /// [`BINARY_CROSS_ENTROPY`] of `sigmoid(x)`, positive targets weighted.
    BINARY_CROSS_ENTROPY_WITH_LOGITS = "aten.binary_cross_entropy_with_logits.default", BASE {
        schema: "(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor",
        rule: Some(|c| {
            let (x, y) = (c.tensor("self"), c.tensor("target"));
            let logs = x.op("aten.log_sigmoid", vec![]);
            let loss = match c.opt_tensor("pos_weight") {
                Some(w) => {
                    let weight = (w - 1i64) * y + 1i64;
                    minus(1i64, y) * x - weight * logs
                }
                None => minus(1i64, y) * x - logs,
            };
            let loss = c.opt_tensor("weight").map_or(loss, |w| loss * w);
            vec![reduce(c, loss.to(y.dtype()))]
        }),
        example: "f32[2, 3], f32[2, 3] | f32[2], f32[2], f32[2], f32[2], 0",
    };
    /// `y·(log(y) - x)`, or of a logarithm as target `exp(y)·(y - x)`.
    KL_DIV = "aten.kl_div.default", BASE {
        schema: "(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor",
        rule: Some(|c| {
            let (x, y) = (c.tensor("self"), c.tensor("target"));
            let loss = if c.bool("log_target") {
                y.exp() * (y - x)
            } else {
                y.op("aten.xlogy.Tensor", vec![y.into()]) - y * x
            };
            reduced(c, loss)
        }),
        example: "f32[2, 3], f32[2, 3]>0 | f32[2], f32[2], 0, true",
    };
    /// `exp(x) - y·x`, or without `log_input` `x - y·log(x + eps)`; `full` adds Stirling's approximation of `log(y!)`.
    POISSON_NLL = "aten.poisson_nll_loss.default", BASE {
        schema: "(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
        rule: Some(|c| {
            let (x, y) = (c.tensor("input"), c.tensor("target"));
            let loss = if c.bool("log_input") {
                x.exp() - y * x
            } else {
                x - y * log(plus(x, c.float("eps")))
            };
            if !c.bool("full") {
                return reduced(c, loss);
            }
            let half_log = by(log(by(y, std::f64::consts::TAU)), 0.5);
            let factorial = y * log(y) - y + half_log;
            let factorial = factorial.op("aten.masked_fill.Scalar", vec![compare(y, "le", 1i64).into(), 0i64.into()]);
            reduced(c, (loss + factorial).to(loss.dtype()))
        }),
        example: "f32[2, 3]>0, f32[2, 3]>0, true, false, 1e-8, 1 | f32[2]>0, f32[2]>0, false, true, 1e-8, 0",
    };
    /// `max(0, margin - x)` where the target is -1, `x` where it is 1.
    HINGE_EMBEDDING = "aten.hinge_embedding_loss.default", BASE {
        schema: "(Tensor self, Tensor target, float margin=1.0, int reduction=1) -> Tensor",
        rule: Some(|c| {
            let (x, y) = (c.tensor("self"), c.tensor("target"));
            let zeros = zeros(x);
            let below = from(c.float("margin"), x).op("aten.clamp_min", vec![0i64.into()]);
            let far = choose(compare(y, "ne", 1i64), below, zeros);
            reduced(c, far + choose(compare(y, "ne", -1i64), x, zeros))
        }),
        example: "f32[2, 3], f32[2, 3] | f32[2], f32[2], 2.0, 0",
    };
    /// `max(0, margin - y·(x1 - x2))`.
    MARGIN_RANKING = "aten.margin_ranking_loss.default", BASE {
        schema: "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor",
        rule: Some(|c| {
            let loss = neg(c.tensor("target")) * (c.tensor("input1") - c.tensor("input2"));
            reduced(c, plus(loss, c.float("margin")).op("aten.clamp_min", vec![0i64.into()]))
        }),
        example: "f32[2, 3], f32[2, 3], f32[2, 3], 0.5 | f32[2], f32[2], f32[2], 0.5, 0",
    };
}

records! { ROWS:
    /// Cosine of the angle between vectors, whose lengths are held above `eps`.
    COSINE_SIMILARITY = "aten.cosine_similarity.default", BASE {
        schema: "(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
        rule: Some(|c| {
            let (x, types) = promote::tensors(c, &["x1", "x2"], Kind::NoOpmath);
            if !types.result.is_float() {
                c.fail(&format!("vectors of type {}, expected floats", types.result));
            }
            let x = super::expr::broadcast(c, [x[0], x[1]]);
            let norms = x.map(|x| norm(x, 2.0, c.arg("dim"), true).op("aten.clone", vec![]));
            let eps = scalar(c.b, c.float("eps"), types.result);
            let [a, b] = [0, 1].map(|i| x[i] / norms[i].op("aten.clamp_min.Tensor", vec![eps.into()]));
            vec![(a * b).op("aten.sum.dim_IntList", vec![Arg::List(vec![c.arg("dim").clone()])])]
        }),
        example: "f32[2, 3], f32[2, 3] | f32[2, 3], f32[3], -1, 0.5",
    };
    /// `1 - cos(x1, x2)` where the target is 1, `max(0, cos(x1, x2) - margin)` where it is -1.
    COSINE_EMBEDDING = "aten.cosine_embedding_loss.default", BASE {
        schema: "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1) -> Tensor",
        rule: Some(|c| {
            /// 1e-12 as f32 has it.
            const EPSILON: f64 = 1e-12f32 as f64;
            let [a, b, y] = ["input1", "input2", "target"].map(|n| c.tensor(n));
            let dim = y.rank() as i64;
            let lengths = plus(dot(a, a, dim), EPSILON) * plus(dot(b, b, dim), EPSILON);
            let cosine = dot(a, b, dim) / lengths.sqrt();
            let zeros = zeros(cosine);
            let far = less(cosine, c.float("margin")).op("aten.clamp_min", vec![0i64.into()]);
            let alike = choose(compare(y, "eq", 1i64), from(1i64, cosine), zeros);
            reduced(c, alike + choose(compare(y, "eq", -1i64), far, zeros))
        }),
        example: "f32[2, 3], f32[2, 3], f32[2] | f32[3], f32[3], f32[], 0.5, 0",
    };
    /// The p-norm of `x1 - x2 + eps` over the last dimension.
    PAIRWISE_DISTANCE = "aten.pairwise_distance.default", BASE {
        schema: "(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor",
        rule: Some(|c| {
            let rank = c.tensor("x1").rank().max(c.tensor("x2").rank());
            let d = plus(c.tensor("x1") - c.tensor("x2"), c.float("eps"));
            vec![norm(d, c.float("p"), &Arg::Int(rank as i64 - 1), c.bool("keepdim"))]
        }),
        example: "f32[2, 3], f32[2, 3] | f32[2, 3], f32[3], 1, 0.01, true",
    };
    /// `max(0, margin + d(anchor, positive) - d(anchor, negative))`; `swap` takes the negative's lesser distance.
    TRIPLET_MARGIN = "aten.triplet_margin_loss.default", BASE {
        schema: "(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False, int reduction=1) -> Tensor",
        rule: Some(|c| {
            let distance = |a: &str, b: &str| {
                c.tensor(a).op("aten.pairwise_distance", vec![c.tensor(b).into(), c.arg("p").clone(), c.arg("eps").clone()])
            };
            let near = distance("anchor", "positive");
            let mut far = distance("anchor", "negative");
            if c.bool("swap") {
                far = far.op("aten.minimum", vec![distance("positive", "negative").into()]);
            }
            reduced(c, (plus(near, c.float("margin")) - far).op("aten.clamp_min", vec![0i64.into()]))
        }),
        example: "f32[2, 3], f32[2, 3], f32[2, 3] | f32[2, 3], f32[2, 3], f32[2, 3], 0.5, 2, 1e-6, true, 0",
    };
    /// Mean over classes of `max(0, margin - x[target] + x[class])^p` without the target's own.
    MULTI_MARGIN = "aten.multi_margin_loss.default", BASE {
        schema: "(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int reduction=1) -> Tensor",
        functional: Functional::Always,
        rule: Some(multi_margin),
        example: "f32[2, 3], i64[2]<3 | f32[3], i64[]<3 | f32[2, 3], i64[2]<3, 2, 0.5, f32[3], 0",
    };
    /// Mean over classes of `max(0, 1 - x[target] + x[class])`, targets against the classes that are none.
    MULTILABEL_MARGIN = "aten.multilabel_margin_loss.default", BASE {
        rule: Some(|c| vec![c.b.getitem(c.b.call("aten.multilabel_margin_loss_forward", c.args.clone()), 0)]),
        example: "f32[2, 3], i64[2, 3]<3 | f32[3], i64[3]<3, 0",
    };
    /// [`MULTILABEL_MARGIN`], and which classes are targets.
    MULTILABEL_MARGIN_FORWARD = "aten.multilabel_margin_loss_forward.default", BASE {
        schema: "(Tensor self, Tensor target, int reduction) -> (Tensor output, Tensor is_target)",
        functional: Functional::Always,
        rule: Some(multilabel_margin),
        example: "f32[2, 3], i64[2, 3]<3, 1 | f32[3], i64[3]<3, 0",
    };
}

fn plus<'b>(x: Value<'b>, number: f64) -> Value<'b> {
    x.op("aten.add.Scalar", vec![number.into()])
}

fn less<'b>(x: Value<'b>, number: f64) -> Value<'b> {
    x.op("aten.sub.Scalar", vec![number.into()])
}

fn by<'b>(x: Value<'b>, number: f64) -> Value<'b> {
    x.op("aten.mul.Scalar", vec![number.into()])
}

fn dot<'b>(a: Value<'b>, b: Value<'b>, dim: i64) -> Value<'b> {
    (a * b).op("aten.sum.dim_IntList", vec![vec![dim].into()])
}

fn zeros(like: Value<'_>) -> Value<'_> {
    like.op("aten.full_like", vec![0i64.into()])
}

/// `number - x` as torch's C++ operator has it: a filled tensor less x.
fn from<'b>(number: impl Into<Arg>, x: Value<'b>) -> Value<'b> {
    let like = x.op("aten.empty_like", vec![]);
    like.op("aten.full_like", vec![number.into()]) - x
}

fn norm<'b>(x: Value<'b>, p: f64, dim: &Arg, keep: bool) -> Value<'b> {
    x.op("aten.linalg_vector_norm", vec![p.into(), Arg::List(vec![dim.clone()]), keep.into()])
}

/// A loss, reduced as the call asks.
fn reduce<'b>(c: &Call<'b>, loss: Value<'b>) -> Value<'b> {
    match c.int("reduction") {
        0 => loss,
        1 => loss.op("aten.mean", vec![]),
        2 => loss.op("aten.sum", vec![]),
        other => {
            c.fail(&format!("reduction {other}, expected 0 (none), 1 (mean) or 2 (sum)"));
            loss
        }
    }
}

fn reduced<'b>(c: &Call<'b>, loss: Value<'b>) -> Vec<Value<'b>> {
    vec![reduce(c, loss)]
}

/// The reduced loss by how far `self` and `target` are apart.
fn apart<'b>(c: &Call<'b>, loss: impl FnOnce(Value<'b>) -> Value<'b>) -> Vec<Value<'b>> {
    elementwise(c, ["self", "target"], Kind::Default, |[x, y]| reduce(c, loss(x - y)))
}

fn unsqueeze(x: Value<'_>, dim: i64) -> Value<'_> {
    x.op("aten.unsqueeze", vec![dim.into()])
}

fn multi_margin<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self").op("aten.atleast_2d", vec![]);
    let target = c.tensor("target").op("aten.atleast_1d", vec![]);
    let p = c.float("p");
    let classes = match x.shape().as_slice() {
        [_, classes] if (p == 1.0 || p == 2.0) && target.rank() == 1 => classes.clone(),
        shape => {
            c.fail(&format!("p of {p} and rows of shape {shape:?}, expected 1 or 2 and at most two dimensions"));
            return vec![x];
        }
    };
    let column = unsqueeze(target, 1);
    let own = x.op("aten.gather", vec![1i64.into(), column.into()]);
    let margin = own.op("aten.rsub.Scalar", vec![c.arg("margin").clone()]) + x;
    let mut z = margin.op("aten.clamp_min", vec![0i64.into()]);
    if p == 2.0 {
        z = z * z;
    }
    if let Some(w) = c.opt_tensor("weight") {
        let picked = w.op("aten.atleast_1d", vec![]).op("aten.index.Tensor", vec![vec![target].into()]);
        z = z * unsqueeze(picked, 1);
    }
    let other = compare(c.b.call("aten.arange", vec![classes.clone().into()]), "ne", column);
    let z = choose(other, z, 0i64);
    vec![match c.int("reduction") {
        0 => z.op("aten.mean.dim", vec![vec![1i64].into()]),
        2 => z.op("aten.sum", vec![]).op("aten.div.Tensor", vec![classes.into()]),
        _ => reduce(c, z),
    }]
}

fn multilabel_margin<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let [x, target] = ["self", "target"].map(|n| c.tensor(n).op("aten.atleast_2d", vec![]));
    let classes = match x.shape().as_slice() {
        [_, classes] if x.shape() == target.shape() => classes.clone(),
        shape => {
            c.fail(&format!("rows of shape {shape:?} and targets of shape {:?}", target.shape()));
            return vec![x, x];
        }
    };
    let flip = |v: Value<'b>| unsqueeze(v.permute(vec![1, 0]), -1);
    // Targets after the first -1 do not count.
    let index = c.b.call("aten.arange", vec![classes.clone().into()]);
    let ends = choose(compare(target, "eq", -1i64), index, classes.clone());
    let end = ends.op("aten.amin", vec![vec![-1i64].into(), true.into()]);
    let counts = compare(index, "lt", end);
    let own = x.op("aten.gather", vec![(-1i64).into(), choose(counts, target, 0i64).into()]);
    let named = unsqueeze(choose(counts, target, -1i64), -1);
    let is_target = compare(index, "eq", named).op("aten.any.dim", vec![1i64.into()]);
    let z = (minus(1.0, flip(own)) + x).op("aten.clamp_min", vec![0i64.into()]);
    let z = choose(is_target, 0i64, z.op("aten.div.Tensor", vec![classes.into()]));
    let z = choose(flip(counts), z, 0i64);
    let rows = || z.op("aten.sum.dim_IntList", vec![vec![0i64, -1].into()]);
    let loss = match c.int("reduction") {
        0 => rows(),
        2 => z.op("aten.sum", vec![]),
        _ => reduce(c, rows()),
    };
    let is_target = is_target.to(x.dtype());
    let shape = c.tensor("target").shape();
    vec![loss, if is_target.shape() == shape { is_target } else { is_target.view(shape) }]
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[ELEMENTWISE, ROWS];
